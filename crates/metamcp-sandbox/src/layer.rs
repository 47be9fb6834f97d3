//! The layers of the lockdown by name, and which of them a profile requires.
//! Owns: the names both sides use.      Never: applies a layer.
//! In: a profile.  Out: what has to be in force before a script is sent.
//! Tests: beside.

/// `PR_SET_NO_NEW_PRIVS`: no exec could gain privileges.
pub const NO_NEW_PRIVILEGES: &str = "no_new_privs";
/// No ptrace by processes of the same user, and no core dump.
pub const NOT_DUMPABLE: &str = "not_dumpable";
/// One socket is open and nothing else.
pub const DESCRIPTORS: &str = "descriptors";
/// The environment is empty, also the one the kernel remembers.
pub const ENVIRONMENT: &str = "environment";
/// No capabilities, also where the gateway runs as root.
pub const CAPABILITIES: &str = "capabilities";
/// Landlock denies all file access.
pub const LANDLOCK_FILES: &str = "landlock_files";
/// Landlock denies binding and connecting TCP sockets.
pub const LANDLOCK_NETWORK: &str = "landlock_network";
/// Landlock denies signals and abstract sockets out of the worker.
pub const LANDLOCK_SCOPE: &str = "landlock_scope";
/// rlimits on address space, core, file size, descriptors, processes and CPU time.
pub const RESOURCE_LIMITS: &str = "resource_limits";
/// A seccomp allowlist; any other system call kills the worker, and no memory becomes executable.
pub const SECCOMP: &str = "seccomp";
/// The kernel kills the worker when its parent thread ends.
pub const PARENT_DEATH: &str = "parent_death_signal";
/// The engine runs as WASM.
pub const WASM: &str = "wasm";
/// The worker runs in a container.
pub const CONTAINER: &str = "container";

/// How strongly a script is confined. A missing layer is an error, never a weaker profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The locked-down worker.
    Standard,
    /// The same lockdown, with limits of the user's choice.
    Dev,
    /// The engine as WASM inside the locked-down worker.
    Hardened,
    /// A container of its own.
    Docker,
}

/// Required by every profile.
const LOCKDOWN: [&str; 9] = [
    NO_NEW_PRIVILEGES,
    CAPABILITIES,
    NOT_DUMPABLE,
    DESCRIPTORS,
    ENVIRONMENT,
    LANDLOCK_FILES,
    RESOURCE_LIMITS,
    SECCOMP,
    PARENT_DEATH,
];

/// Denied by Landlock in addition to seccomp, where the kernel supports it (network since Linux 6.7, scopes since 6.12).
/// The allowlist has no system call to open a socket or signal another process, so `standard` does without this on older
/// kernels; it is applied wherever it can be.
const SECOND_TIME: [&str; 2] = [LANDLOCK_NETWORK, LANDLOCK_SCOPE];

impl Profile {
    /// The layers required before a script is sent.
    pub fn demands(self) -> impl Iterator<Item = &'static str> {
        let further: &[&str] = match self {
            Profile::Standard | Profile::Dev => &[],
            Profile::Hardened => &[SECOND_TIME[0], SECOND_TIME[1], WASM],
            Profile::Docker => &[CONTAINER],
        };
        LOCKDOWN.into_iter().chain(further.iter().copied())
    }

    /// As it is written in settings.
    pub fn word(self) -> &'static str {
        match self {
            Profile::Standard => "standard",
            Profile::Dev => "dev",
            Profile::Hardened => "hardened",
            Profile::Docker => "docker",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_profile_demands_less_than_the_standard_one() {
        let standard: Vec<_> = Profile::Standard.demands().collect();
        for profile in [Profile::Dev, Profile::Hardened, Profile::Docker] {
            let demanded: Vec<_> = profile.demands().collect();
            assert!(standard.iter().all(|layer| demanded.contains(layer)), "{profile:?}");
        }
        assert!(Profile::Hardened.demands().any(|layer| layer == WASM));
        assert!(Profile::Docker.demands().any(|layer| layer == CONTAINER));
    }
}
