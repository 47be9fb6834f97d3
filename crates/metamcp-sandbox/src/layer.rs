//! The layers of the lockdown by name, and which of them a profile demands.
//! Owns: the names both sides use.      Never: applies a layer.
//! In: a profile.  Out: what has to be in force before a script is sent.
//! Tests: beside.

/// Nothing the worker starts could gain a right it has not.
pub const NO_NEW_PRIVILEGES: &str = "no_new_privs";
/// Nobody of the same user can look into its memory, nor find one in a core dump.
pub const NOT_DUMPABLE: &str = "not_dumpable";
/// One socket is open and nothing else.
pub const DESCRIPTORS: &str = "descriptors";
/// The environment is empty, also the one the kernel remembers.
pub const ENVIRONMENT: &str = "environment";
/// It has none of the capabilities that a gateway of root's would leave it.
pub const CAPABILITIES: &str = "capabilities";
/// Every right to files that landlock knows is denied.
pub const LANDLOCK_FILES: &str = "landlock_files";
/// Binding and connecting is denied by landlock.
pub const LANDLOCK_NETWORK: &str = "landlock_network";
/// Signals and abstract sockets out of the worker are denied by landlock.
pub const LANDLOCK_SCOPE: &str = "landlock_scope";
/// Address space, core, file size, descriptors, processes and processor time are bounded by the kernel.
pub const RESOURCE_LIMITS: &str = "resource_limits";
/// System calls that are not on the list kill the worker; no memory becomes executable.
pub const SECCOMP: &str = "seccomp";
/// The kernel kills the worker when the thread that started it ends.
pub const PARENT_DEATH: &str = "parent_death_signal";
/// The engine runs as WASM.
pub const WASM: &str = "wasm";
/// The worker runs in a container.
pub const CONTAINER: &str = "container";

/// How strongly a script is confined. What a profile demands is had or refused, never lowered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// The locked-down worker.
    Standard,
    /// The same lockdown; for people who try things out, with limits they choose.
    Dev,
    /// The engine as WASM inside the locked-down worker.
    Hardened,
    /// A container of its own.
    Docker,
}

/// What every profile demands.
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

/// Denied a second time, by landlock, where the kernel knows how (network since Linux 6.7, scopes since 6.12). The
/// list of system calls has none that could open a socket or signal another process, so `standard` does without
/// this second time on the older kernels most people have; it is applied wherever it can be.
const SECOND_TIME: [&str; 2] = [LANDLOCK_NETWORK, LANDLOCK_SCOPE];

impl Profile {
    /// The layers without which no script is sent.
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
