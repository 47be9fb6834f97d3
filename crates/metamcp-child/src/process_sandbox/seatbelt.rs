//! The sandbox of a server on macOS: a Seatbelt profile, in which the system's `sandbox-exec` runs the server.
//! Owns: the text of the profile.      Never: runs anything, resolves a link.
//! In: `SandboxPolicy` with real paths, since Seatbelt compares what links lead to.  Out: the arguments of `sandbox-exec`.
//! Tests: below, on every system, but for what only a Mac can say.
//!
//! Nothing is allowed that is not named. Paths are parameters of the profile and never part of its text, so that no name of a
//! file can change what the text says. As on Linux, any file's existence and times can be asked for, the network is open, and
//! sockets with a path, keychains and other processes are not there; the one socket that names are resolved by is.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use metamcp_types::sandbox_policy::SandboxPolicy;

/// Part of every macOS so far; without it nothing is started.
pub(crate) const PROGRAM: &str = "/usr/bin/sandbox-exec";

/// What every program may read and run. Not `/Library`, `/private/var`, `/tmp` and the homes, which contain the files of
/// others, but the parts of them that belong to the system.
pub(crate) const SYSTEM: [&str; 17] = [
    "/usr",
    "/bin",
    "/sbin",
    "/System",
    "/opt",
    "/nix/store",
    "/etc",
    "/private/etc",
    "/private/var/db/timezone",
    "/private/var/db/dyld",
    "/private/var/run/resolv.conf",
    "/private/var/select",
    "/Library/Apple",
    "/Library/Frameworks",
    "/Library/Java",
    // What `/usr/bin/python3` and `/usr/bin/git` really are.
    "/Library/Developer/CommandLineTools",
    "/Applications/Xcode.app/Contents/Developer",
];

/// The part that is the same for every server.
const BASE: &str = r#"(version 1)
(deny default)
(allow process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow file-read-metadata)
(allow file-read-data (literal "/"))
(allow file-read* file-write-data file-ioctl
  (literal "/dev/null") (literal "/dev/zero") (literal "/dev/random") (literal "/dev/urandom")
  (literal "/dev/dtracehelper"))
(allow file-read* file-write-data (subpath "/dev/fd"))
(allow network-outbound (remote ip "*:*") (literal "/private/var/run/mDNSResponder"))
(allow network-inbound (local ip "*:*"))
(allow network-bind (local ip "*:*"))
(allow system-socket)
(allow ipc-posix-sem)
(allow ipc-posix-shm-read-data (ipc-posix-name "apple.shm.notification_center"))
(allow mach-host*)
(allow mach-lookup
  (global-name "com.apple.SystemConfiguration.DNSConfiguration")
  (global-name "com.apple.SystemConfiguration.configd")
  (global-name "com.apple.logd")
  (global-name "com.apple.system.notification_center")
  (global-name "com.apple.system.opendirectoryd.libinfo")
  (global-name "com.apple.system.opendirectoryd.membership")
  (global-name "com.apple.trustd")
  (global-name "com.apple.trustd.agent"))
(allow sysctl-read
  (sysctl-name-prefix "hw.") (sysctl-name-prefix "machdep.") (sysctl-name-prefix "net.")
  (sysctl-name-prefix "vm.") (sysctl-name-prefix "kern.os") (sysctl-name-prefix "sysctl.")
  (sysctl-name "kern.argmax") (sysctl-name "kern.bootargs") (sysctl-name "kern.boottime")
  (sysctl-name "kern.hostname") (sysctl-name "kern.iossupportversion")
  (sysctl-name "kern.maxfilesperproc") (sysctl-name "kern.maxproc") (sysctl-name "kern.ngroups")
  (sysctl-name "kern.secure_kernel") (sysctl-name "kern.usrstack64") (sysctl-name "kern.version")
  (sysctl-name "kern.willshutdown"))
"#;

/// Operations of reading, and of running what was read.
const READ: &str = "file-read* file-map-executable process-exec";

/// The arguments of `sandbox-exec` up to the server's own command. `policy` has real paths: see `resolved`.
pub(crate) fn arguments(policy: &SandboxPolicy) -> Vec<OsString> {
    let mut text = BASE.to_owned();
    let mut parameters: Vec<(String, &Path)> = Vec::new();
    let system = SYSTEM.map(|path| format!("(subpath \"{path}\")"));
    text.push_str(&format!("(allow {READ}\n  {})\n", system.join("\n  ")));
    let reads = policy.reads.iter().map(PathBuf::as_path).enumerate();
    for (number, path) in reads {
        let name = format!("READ_{number}");
        text.push_str(&format!("(allow {READ} (subpath (param \"{name}\")))\n"));
        parameters.push((name, path));
    }
    let own = policy.writes.iter().chain([&policy.home]).map(PathBuf::as_path).enumerate();
    for (number, path) in own {
        let name = format!("WRITE_{number}");
        text.push_str(&format!(
            "(allow {READ} file-write* file-ioctl (subpath (param \"{name}\")))\n"
        ));
        parameters.push((name, path));
    }
    let mut arguments: Vec<OsString> = vec!["-p".into(), text.into()];
    for (name, path) in parameters {
        let mut definition = OsString::from(format!("{name}="));
        definition.push(path);
        arguments.extend(["-D".into(), definition]);
    }
    arguments
}

/// The policy with each path as `resolve` says it really is; one that is not there stays as it is.
pub(crate) fn resolved(
    policy: &SandboxPolicy,
    resolve: impl Fn(&Path) -> Option<PathBuf>,
) -> SandboxPolicy {
    let real = |path: &PathBuf| resolve(path).unwrap_or_else(|| path.clone());
    SandboxPolicy {
        home: real(&policy.home),
        reads: policy.reads.iter().map(real).collect(),
        writes: policy.writes.iter().map(real).collect(),
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn policy() -> SandboxPolicy {
        SandboxPolicy {
            home: "/Users/me/.metamcp/installed/notes/home".into(),
            reads: vec!["/Users/me/a \"b\") (allow default".into(), "/tmp/link".into()],
            writes: vec!["/Users/me/Documents".into()],
        }
    }

    fn parts() -> (String, Vec<String>) {
        let arguments = arguments(&policy());
        let words: Vec<String> =
            arguments.iter().map(|word| word.to_str().unwrap().to_owned()).collect();
        assert!(Path::new(PROGRAM).is_absolute(), "nobody's PATH decides about it");
        assert_eq!(words[0], "-p");
        (words[1].clone(), words[2..].to_vec())
    }

    #[test]
    fn the_profile_reads_like_this() {
        let (text, parameters) = parts();
        insta::assert_snapshot!(format!("{text}---\n{}\n", parameters.join("\n")));
    }

    #[test]
    fn everything_is_denied_first_and_every_parenthesis_closes() {
        let (text, _) = parts();
        assert!(text.starts_with("(version 1)\n(deny default)\n"));
        let mut depth = 0;
        for character in text.chars() {
            depth += i32::from(character == '(') - i32::from(character == ')');
            assert!(depth >= 0, "{text}");
        }
        assert_eq!(depth, 0);
        assert_eq!(text.matches('"').count() % 2, 0);
        assert!(!text.contains("(allow default") && !text.contains("allow network*"), "{text}");
    }

    #[test]
    fn no_path_of_the_policy_is_part_of_the_text() {
        let (text, parameters) = parts();
        assert!(!text.contains("/Users/me"), "{text}");
        let expected = [
            "-D",
            "READ_0=/Users/me/a \"b\") (allow default",
            "-D",
            "READ_1=/tmp/link",
            "-D",
            "WRITE_0=/Users/me/Documents",
            "-D",
            "WRITE_1=/Users/me/.metamcp/installed/notes/home",
        ];
        assert_eq!(parameters, expected);
    }

    #[test]
    fn only_its_own_paths_can_be_written_to() {
        let (text, _) = parts();
        for line in text.lines().filter(|line| line.contains("file-write*")) {
            assert!(
                line.ends_with("(subpath (param \"WRITE_0\")))")
                    || line.ends_with("(subpath (param \"WRITE_1\")))"),
                "{line}"
            );
        }
    }

    #[test]
    fn links_are_followed_before_anything_is_allowed() {
        let resolve = |path: &Path| {
            path.strip_prefix("/tmp").ok().map(|rest| Path::new("/private/tmp").join(rest))
        };
        let resolved = resolved(&policy(), resolve);
        assert_eq!(resolved.reads[1], Path::new("/private/tmp/link"));
        assert_eq!(resolved.home, policy().home, "what leads nowhere else stays");
    }
}
