//! Walls around a server: of the disk it has the system's folders and its own, of the machine's sockets the network's.
//! Owns: which folders are the system's, raising the walls, proving that they stand.      Never: runs with less than was asked for.
//! In: `Walls`.  Out: this process behind them for good, with all that it becomes and starts; or why not.
//! Tests: `tests/it/walls.rs`, with a real process.
//!
//! Files are kept by Landlock, which needs no rights and no namespace. It also keeps a server from signalling and
//! tracing what is outside, and so from reading the variables of other processes; for root, who may look at every
//! process, the process namespace does that, which root has by default. What Landlock does not know are sockets that
//! have a path: the agent with the keys and the keychain listen on those. Making one is therefore refused by
//! seccomp, and so is the other way to make one. The network stays as it is.

use std::ffi::OsStr;
#[cfg(unix)]
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[cfg(unix)]
use metamcp_core::config::Walls;

/// What every program may read and run: the system, and what tells names of hosts and of users. Not `/run`, `/var`,
/// `/tmp` and the homes, where others keep what is theirs.
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
    // What belongs to other processes in there is kept from us by the rule against tracing.
    "/proc",
    "/sys",
    // Where `/etc/resolv.conf` may point.
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/mnt/wsl/resolv.conf",
    // Where programs of NixOS are found.
    "/run/current-system",
    "/run/wrappers",
    "/var/cache/fontconfig",
];

/// What every program may read and write.
#[cfg(target_os = "linux")]
const DEVICES: [&str; 8] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
];

/// Stands for no walls on the command line of the last stage.
#[cfg(unix)]
const NONE: &str = "-";

/// Whether a file is in one of the folders that every program may read.
pub fn is_of_the_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

/// Whether walls can be had here; if not, why, in words for the user.
#[cfg(target_os = "linux")]
pub fn available() -> Result<(), String> {
    linux::available()
}

/// Whether walls can be had here; if not, why, in words for the user.
#[cfg(not(target_os = "linux"))]
pub fn available() -> Result<(), String> {
    Err("they are made of Landlock, which only Linux has".to_owned())
}

/// What a program needs that lies outside of the system's folders: itself, and the libraries beside it. `bin/node` of
/// a version switcher is such a one. Nothing else of the folder it is in, which may be the user's home.
pub fn runtime(program: &Path) -> Vec<PathBuf> {
    let Ok(real) = program.canonicalize() else { return Vec::new() };
    if is_of_the_system(&real) {
        return Vec::new();
    }
    let base = real.parent().filter(|bin| bin.ends_with("bin")).and_then(Path::parent);
    let libraries = base.into_iter().flat_map(|base| [base.join("lib"), base.join("lib64")]);
    // Homebrew keeps each program in a cellar of its own, and its libraries in others.
    let brewed = real.ancestors().find(|folder| folder.ends_with("Cellar"));
    let brewed = brewed.into_iter().flat_map(|cellar| {
        let beside = |name: &str| cellar.with_file_name(name);
        [cellar.to_owned(), beside("opt"), beside("lib")]
    });
    let mut all: Vec<PathBuf> = libraries.chain(brewed).filter(|path| path.is_dir()).collect();
    all.push(real);
    all
}

/// A program as `PATH` finds it.
pub fn in_path(program: &OsStr) -> Option<PathBuf> {
    let given = Path::new(program);
    if given.components().count() > 1 {
        return given.is_file().then(|| given.to_owned());
    }
    let endings: &[&str] = if cfg!(windows) { &["", ".exe", ".cmd", ".bat"] } else { &[""] };
    let with = |ending: &&str| {
        let mut name = program.to_owned();
        name.push(ending);
        name
    };
    let names: Vec<_> = endings.iter().map(with).collect();
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .find(|path| path.is_file())
}

/// As they travel on the command line of the last stage.
#[cfg(unix)]
pub(crate) fn to_words(walls: Option<&Walls>) -> Vec<OsString> {
    let Some(walls) = walls else { return vec![NONE.into()] };
    let mut words: Vec<OsString> = vec![walls.reads.len().to_string().into()];
    words.push(walls.writes.len().to_string().into());
    words.push(walls.home.clone().into());
    words.extend(walls.reads.iter().chain(&walls.writes).map(|path| path.clone().into()));
    words
}

/// The walls at the beginning of a command line, and what comes behind them.
#[cfg(unix)]
pub(crate) fn from_words(words: &[OsString]) -> Option<(Option<Walls>, &[OsString])> {
    let (first, rest) = words.split_first()?;
    if first == NONE {
        return Some((None, rest));
    }
    let number = |word: &OsString| word.to_str()?.parse::<usize>().ok();
    let [writes, home, rest @ ..] = rest else { return None };
    let (reads, rest) = rest.split_at_checked(number(first)?)?;
    let (writes, rest) = rest.split_at_checked(number(writes)?)?;
    let paths = |words: &[OsString]| words.iter().map(PathBuf::from).collect();
    let walls = Walls { home: home.into(), reads: paths(reads), writes: paths(writes) };
    Some((Some(walls), rest))
}

#[cfg(target_os = "linux")]
pub(crate) use linux::raise;

#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) fn raise(_walls: &Walls) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
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
    use metamcp_core::config::Walls;
    use nix::libc;
    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule, TargetArch, apply_filter,
    };

    use super::{DEVICES, SYSTEM};

    /// The newest interface whose rights are handled; what an older kernel does not know is left out there.
    const RIGHTS: ABI = ABI::V6;
    /// The oldest that can keep files: before it nothing could be truncated by name, which is no reading.
    const LEAST: ABI = ABI::V1;

    pub(super) fn available() -> Result<(), String> {
        // Makes rules and lets them go: nothing of this process changes.
        let made = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(LEAST))
            .and_then(Ruleset::create);
        made.map(drop).map_err(|_| {
            "this kernel has no Landlock; it comes with Linux 5.13, and has to be among the modules of `lsm=`"
                .to_owned()
        })
    }

    /// Gives up all of the disk that is not within the walls.
    pub(crate) fn raise(walls: &Walls) -> io::Result<()> {
        let status = restrict(walls).map_err(io::Error::other)?;
        // Opening the root proves it, unless somebody named the root itself.
        let all = walls.reads.iter().chain(&walls.writes);
        let root_is_named = all.chain([&walls.home]).any(|path| path.parent().is_none());
        let is_open = !root_is_named && File::open("/").is_ok();
        if status == RulesetStatus::NotEnforced || is_open {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        refuse_sockets_with_paths().map_err(io::Error::other)
    }

    fn restrict(walls: &Walls) -> Result<RulesetStatus, RulesetError> {
        let (read, all) = (AccessFs::from_read(RIGHTS), AccessFs::from_all(RIGHTS));
        let own = walls.writes.iter().chain([&walls.home]);
        let status = Ruleset::default()
            .handle_access(all)?
            .scope(Scope::from_all(RIGHTS))?
            .create()?
            .add_rules(path_beneath_rules(SYSTEM, read))?
            .add_rules(path_beneath_rules(DEVICES, all))?
            .add_rules(path_beneath_rules(&walls.reads, read))?
            .add_rules(path_beneath_rules(own, all))?
            .restrict_self()?;
        Ok(status.ruleset)
    }

    /// Pairs that a program makes for itself are another call, and stay.
    fn refuse_sockets_with_paths() -> Result<(), seccompiler::Error> {
        let family = u64::from(libc::AF_UNIX.unsigned_abs());
        let is_unix = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family)?;
        let rules = BTreeMap::from([
            (libc::SYS_socket, vec![SeccompRule::new(vec![is_unix])?]),
            // Opens sockets without that call.
            (libc::SYS_io_uring_setup, Vec::new()),
        ]);
        let arch = TargetArch::try_from(std::env::consts::ARCH)?;
        let denied = SeccompAction::Errno(libc::EACCES.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, denied, arch)?;
        let program: BpfProgram = filter.try_into()?;
        apply_filter(&program)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::{Walls, from_words, to_words};
    use std::ffi::OsString;

    #[test]
    fn walls_survive_a_command_line() {
        let walls = Walls {
            home: "/own".into(),
            reads: vec!["/a b".into(), "-".into()],
            writes: vec!["/\nw".into()],
        };
        for walls in [None, Some(Walls::default()), Some(walls)] {
            let mut words = to_words(walls.as_ref());
            words.extend([OsString::from("node"), "-".into()]);
            let (back, rest) = from_words(&words).unwrap();
            assert_eq!(back, walls);
            assert_eq!(rest, ["node", "-"]);
        }
        assert_eq!(from_words(&["9".into(), "1".into(), "/h".into()]), None);
    }
}
