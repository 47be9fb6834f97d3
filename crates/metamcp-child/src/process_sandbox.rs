//! The sandbox of a server process: file access to the system's folders and its own, sockets only for the network.
//! Owns: the list of system folders, enforcing the policy, verifying it.      Never: runs with less than the policy demands.
//! In: `SandboxPolicy`.  Out: this process restricted for good, with everything it executes; or why not.
//! Tests: `tests/it/process_sandbox.rs`, with a real process.
//!
//! Landlock restricts file access; it needs no privileges and no namespace. It also prevents a server from signalling and
//! tracing outside processes, and so from reading their environment; for root, who may trace every process, the process
//! namespace does that, which root has by default. Landlock does not cover Unix sockets with a path, on which key agents
//! and keychains listen. So seccomp forbids creating one, the other ways to get one, and the kernel's keyrings. The network
//! stays open. Mode and times of a file are covered by neither: its owner can change them.
//!
//! On macOS the same policy is a Seatbelt profile (`seatbelt.rs`). Elsewhere there is no sandbox, and `available` says so.

#[cfg(any(test, target_os = "macos"))]
mod seatbelt;

use std::ffi::OsStr;
#[cfg(unix)]
use std::io;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use metamcp_types::sandbox_policy::SandboxPolicy;

use crate::environment;
#[cfg(unix)]
use crate::message::Start;

#[cfg(target_os = "macos")]
const SYSTEM: [&str; 17] = seatbelt::SYSTEM;

/// What every program may read and run: the system, and host and user lookup. Not `/run`, `/var`, `/tmp` and the homes,
/// which contain the files of others.
#[cfg(not(target_os = "macos"))]
const SYSTEM: [&str; 21] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/etc",
    "/opt",
    "/nix/store",
    "/gnu/store",
    "/snap",
    // Landlock's rule against tracing protects the entries of other processes.
    "/proc",
    "/sys",
    // Where `/etc/resolv.conf` may point.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/mnt/wsl/resolv.conf",
    // Programs on NixOS.
    "/run/current-system",
    "/run/wrappers",
    "/var/cache/fontconfig",
];

/// What every program may read and write. No terminals: user input could be read from one.
#[cfg(target_os = "linux")]
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

pub fn is_system_path(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

/// Whether a sandbox is available here; if not, why, as text for the user.
#[cfg(target_os = "linux")]
pub fn available() -> Result<(), String> {
    linux::available()
}

/// Whether a sandbox is available here; if not, why, as text for the user.
#[cfg(target_os = "macos")]
pub fn available() -> Result<(), String> {
    if Path::new(seatbelt::PROGRAM).is_file() {
        return Ok(());
    }
    Err(format!("it requires {}, which this system does not have", seatbelt::PROGRAM))
}

/// Whether a sandbox is available here; if not, why, as text for the user.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn available() -> Result<(), String> {
    Err("it requires Landlock of Linux or Seatbelt of macOS".to_owned())
}

/// What a program needs outside of the system's folders: itself, and the libraries beside it, as with `bin/node` of a
/// version manager. Nothing else of its folder, which may be the user's home.
pub fn runtime(program: &Path) -> Vec<PathBuf> {
    let Ok(real) = program.canonicalize() else { return Vec::new() };
    if is_system_path(&real) {
        return Vec::new();
    }
    let base = real.parent().filter(|bin| bin.ends_with("bin")).and_then(Path::parent);
    let libraries = base.into_iter().flat_map(|base| [base.join("lib"), base.join("lib64")]);
    // Homebrew has a cellar for each program, and its libraries in others.
    let brewed = real.ancestors().find(|folder| folder.ends_with("Cellar"));
    let brewed = brewed.into_iter().flat_map(|cellar| {
        let beside = |name: &str| cellar.with_file_name(name);
        [cellar.to_owned(), beside("opt"), beside("lib")]
    });
    let mut all: Vec<PathBuf> = libraries.chain(brewed).filter(|path| path.is_dir()).collect();
    all.push(real);
    all
}

/// The file that a program's name means, as it would be started from here.
#[cfg(not(windows))]
pub fn in_path(program: &OsStr) -> Option<PathBuf> {
    let given = Path::new(program);
    if given.components().count() > 1 {
        return given.is_file().then(|| given.to_owned());
    }
    let folders = environment::variable("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

#[cfg(windows)]
pub fn in_path(program: &OsStr) -> Option<PathBuf> {
    use crate::program::{Search, find};
    let named = |name: &str| Some((name.into(), environment::variable(name)?));
    let env: Vec<_> = ["PATH", "PATHEXT"].into_iter().filter_map(named).collect();
    let base = std::env::current_dir().unwrap_or_default();
    find(program, &Search::of(&env, base), &Path::is_file)
}

/// What to execute, so that the program runs in the sandbox: itself, after this process was restricted for good.
#[cfg(target_os = "linux")]
pub(crate) fn enter(policy: &SandboxPolicy, start: Start) -> io::Result<Start> {
    linux::enforce(policy)?;
    Ok(start)
}

/// What to execute, so that the program runs in the sandbox: the system's own program, which restricts itself and then
/// becomes the server.
#[cfg(target_os = "macos")]
pub(crate) fn enter(policy: &SandboxPolicy, mut start: Start) -> io::Result<Start> {
    available().map_err(|_| io::Error::from_raw_os_error(nix::libc::ENOSYS))?;
    let real = seatbelt::resolved(policy, |path| path.canonicalize().ok());
    let mut args = seatbelt::arguments(&real);
    args.push(std::mem::replace(&mut start.program, seatbelt::PROGRAM.into()));
    args.append(&mut start.args);
    start.args = args;
    Ok(start)
}

#[cfg(all(unix, not(any(target_os = "linux", target_os = "macos"))))]
pub(crate) fn enter(_policy: &SandboxPolicy, _start: Start) -> io::Result<Start> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::io;

    use landlock::{
        ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
        RulesetError, RulesetStatus, Scope, path_beneath_rules,
    };
    use metamcp_types::sandbox_policy::SandboxPolicy;
    use nix::libc;
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch, apply_filter,
    };

    use super::{DEVICES, SYSTEM};

    /// The newest ABI whose rights are used; an older kernel skips those it does not know.
    const RIGHTS: ABI = ABI::V6;
    /// The oldest ABI that can restrict reading and writing.
    const LEAST: ABI = ABI::V1;

    /// On x86-64 each system call has a second number, with this bit, for the x32 ABI. Any program may use it.
    const X32: i64 = 0x4000_0000;

    pub(super) fn available() -> Result<(), String> {
        // Creates a ruleset and drops it: nothing of this process changes.
        let made = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(LEAST))
            .and_then(Ruleset::create);
        made.map(drop).map_err(|_| {
            "this kernel has no Landlock; it comes with Linux 5.13, and has to be among the modules of `lsm=`"
                .to_owned()
        })
    }

    /// Restricts this process to the policy.
    pub(super) fn enforce(sandbox_policy: &SandboxPolicy) -> io::Result<()> {
        let status = restrict(sandbox_policy).map_err(io::Error::other)?;
        let all = sandbox_policy.reads.iter().chain(&sandbox_policy.writes);
        let root_is_named = all.chain([&sandbox_policy.home]).any(|path| path.parent().is_none());
        if !stand(&status, root_is_named, File::open("/").is_ok()) {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        refuse(refused(knows_truncation())?).map_err(io::Error::other)
    }

    /// Whether the sandbox is effective. The kernel's status is not enough: failing to open the root proves it, unless the
    /// policy allows the root itself.
    fn stand(status: &RulesetStatus, root_is_named: bool, root_opens: bool) -> bool {
        *status != RulesetStatus::NotEnforced && (root_is_named || !root_opens)
    }

    fn restrict(sandbox_policy: &SandboxPolicy) -> Result<RulesetStatus, RulesetError> {
        let (read, all) = (AccessFs::from_read(RIGHTS), AccessFs::from_all(RIGHTS));
        let own = sandbox_policy.writes.iter().chain([&sandbox_policy.home]);
        let status = Ruleset::default()
            .handle_access(all)?
            .scope(Scope::from_all(RIGHTS))?
            .create()?
            .add_rules(path_beneath_rules(SYSTEM, read))?
            .add_rules(path_beneath_rules(DEVICES, all))?
            .add_rules(path_beneath_rules(&sandbox_policy.reads, read))?
            .add_rules(path_beneath_rules(own, all))?
            .restrict_self()?;
        Ok(status.ruleset)
    }

    /// Whether Landlock covers truncation by path; kernels before 6.2 do not.
    fn knows_truncation() -> bool {
        let made = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::Truncate);
        made.and_then(Ruleset::create).is_ok()
    }

    /// Forbidden system calls, each with the arguments for which it is; without any it always is.
    type Refused = BTreeMap<i64, Vec<SeccompRule>>;

    /// What bypasses Landlock. Socket pairs of streams, by which programs talk to their children, stay allowed: they lead
    /// nowhere else.
    fn refused(knows_truncation: bool) -> io::Result<Refused> {
        let unix = u64::from(libc::AF_UNIX.unsigned_abs());
        let is_unix = || condition(0, SeccompCmpOp::Eq, unix);
        // A datagram socket can send to any path, also one of a pair. Raw ones are the same with the next number; flags are in
        // the bits above.
        let datagram = u64::from(libc::SOCK_DGRAM.unsigned_abs());
        let is_datagram = condition(1, SeccompCmpOp::MaskedEq(0b1110), datagram)?;
        let mut refused = BTreeMap::from([
            (libc::SYS_socket, vec![rule(vec![is_unix()?])?]),
            (libc::SYS_socketpair, vec![rule(vec![is_unix()?, is_datagram])?]),
            // Opens sockets without that system call.
            (libc::SYS_io_uring_setup, Vec::new()),
            // The kernel stores keys for all processes of a user.
            (libc::SYS_keyctl, Vec::new()),
            (libc::SYS_add_key, Vec::new()),
            (libc::SYS_request_key, Vec::new()),
        ]);
        if !knows_truncation {
            refused.insert(libc::SYS_truncate, Vec::new());
        }
        if cfg!(target_arch = "x86_64") {
            let twins: Refused = refused.clone().into_iter().map(|(n, r)| (n | X32, r)).collect();
            refused.extend(twins);
        }
        Ok(refused)
    }

    fn condition(argument: u8, is: SeccompCmpOp, value: u64) -> io::Result<SeccompCondition> {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, is, value)
            .map_err(io::Error::other)
    }

    fn rule(conditions: Vec<SeccompCondition>) -> io::Result<SeccompRule> {
        SeccompRule::new(conditions).map_err(io::Error::other)
    }

    fn refuse(calls: Refused) -> Result<(), seccompiler::Error> {
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let denied = SeccompAction::Errno(libc::EACCES.unsigned_abs());
        let filter = SeccompFilter::new(calls, SeccompAction::Allow, denied, arch)?;
        let program: BpfProgram = filter.try_into()?;
        apply_filter(&program)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_partially_enforced_sandbox_is_an_error() {
            let kept = |status| stand(&status, false, false);
            assert!(kept(RulesetStatus::FullyEnforced) && kept(RulesetStatus::PartiallyEnforced));
            assert!(!kept(RulesetStatus::NotEnforced));
            assert!(!stand(&RulesetStatus::NotEnforced, true, true));
            // Whatever the kernel says: a process that can open the root is not restricted.
            assert!(!stand(&RulesetStatus::FullyEnforced, false, true));
            assert!(stand(&RulesetStatus::FullyEnforced, true, true));
        }

        #[test]
        fn every_number_of_a_forbidden_call_is_refused() {
            let (new, old) = (refused(true).unwrap(), refused(false).unwrap());
            assert!(!new.contains_key(&libc::SYS_truncate));
            assert!(old[&libc::SYS_truncate].is_empty(), "whatever its arguments");
            for call in [libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key] {
                assert!(new[&call].is_empty(), "whatever its arguments");
            }
            if cfg!(target_arch = "x86_64") {
                for (call, rules) in old.iter().filter(|(call, _)| **call < X32) {
                    assert_eq!(old.get(&(call | X32)), Some(rules), "{call}");
                }
            }
        }
    }
}
