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
/// The worker ends when the pipe from the gateway is closed, whatever its script does.
pub const LIFELINE: &str = "lifeline";
/// A job object of Windows around the worker, which has taken limits on memory, processes and CPU time.
pub const JOB_OBJECT: &str = "job_object";
/// The limits of that job, as the system says that it keeps them. Windows does where it took them; Wine keeps none.
pub const JOB_LIMITS: &str = "job_limits";
/// The Seatbelt sandbox of macOS, which denies files, network and other processes.
pub const SEATBELT: &str = "seatbelt";

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
    /// The engine as WASM in a process with the limits of its system, where there is no Linux lockdown. Whatever else
    /// can be applied is.
    Wasm,
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

/// Required of a worker whose engine is WASM, where there is no Linux lockdown: what its system can do for certain.
#[cfg(unix)]
const WITHOUT_LOCKDOWN: [&str; 4] = [WASM, DESCRIPTORS, ENVIRONMENT, RESOURCE_LIMITS];
#[cfg(not(unix))]
const WITHOUT_LOCKDOWN: [&str; 4] = [WASM, ENVIRONMENT, JOB_OBJECT, LIFELINE];

impl Profile {
    /// The layers required before a script is sent.
    pub fn demands(self) -> impl Iterator<Item = &'static str> {
        let (first, further): (&[&str], &[&str]) = match self {
            Profile::Standard | Profile::Dev => (&LOCKDOWN, &[]),
            Profile::Hardened => (&LOCKDOWN, &[SECOND_TIME[0], SECOND_TIME[1], WASM]),
            Profile::Docker => (&LOCKDOWN, &[CONTAINER]),
            Profile::Wasm => (&WITHOUT_LOCKDOWN, &[]),
        };
        first.iter().chain(further).copied()
    }

    /// Whether its workers need the Linux lockdown.
    pub fn needs_lockdown(self) -> bool {
        self != Profile::Wasm
    }

    /// As it is written in settings.
    pub fn word(self) -> &'static str {
        match self {
            Profile::Standard => "standard",
            Profile::Dev => "dev",
            Profile::Hardened => "hardened",
            Profile::Docker => "docker",
            Profile::Wasm => "wasm",
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
        // Where there is no lockdown, what holds a script is the engine.
        assert!(Profile::Wasm.demands().any(|layer| layer == WASM));
    }
}
