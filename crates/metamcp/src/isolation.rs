//! Which code-mode profiles this build and this machine support.
//! Owns: the probe for a working Docker engine.      Never: chooses a profile.
//! In: a profile.  Out: why it is unavailable, and how to fix that.
//! Tests: below, and `tests/config/isolation.rs` with a stand-in for Docker.
//!
//! Whether every layer holds is known by the worker alone; what is said here keeps the default from being a profile
//! that cannot be had.

use std::process::{Command, Stdio};
use std::time::Duration;

use metamcp_config::settings::CodeProfile;
use metamcp_engine::clock;
use metamcp_engine::config::Lack;

/// How long the engine may take to answer.
const ANSWER: Duration = Duration::from_secs(3);
/// Polling interval while waiting for it.
const LOOK: Duration = Duration::from_millis(10);

/// Why scripts cannot run in this profile here; `None` if they can, as far as can be told without running one.
pub(crate) fn lacks(profile: CodeProfile) -> Option<Lack> {
    let lack =
        |reason: &str, cure: &str| Some(Lack { reason: reason.to_owned(), cure: cure.to_owned() });
    match profile {
        CodeProfile::Standard | CodeProfile::Hardened | CodeProfile::Dev
            if !cfg!(target_os = "linux") =>
        {
            lack(
                "the lockdown of this profile is that of the Linux kernel",
                "leave code.profile unset, or set it to `wasm`",
            )
        }
        CodeProfile::Hardened | CodeProfile::Wasm if !cfg!(feature = "hardened") => lack(
            "this build has no WebAssembly engine",
            "install a package (npm, PyPI, the install script), or build with the feature `hardened`: `cargo xtask hardened`, then `cargo build --release --features hardened`",
        ),
        CodeProfile::Docker if !cfg!(target_os = "linux") => lack(
            "containers are used on Linux only",
            "run metamcp on Linux, or choose another profile",
        ),
        CodeProfile::Docker => match answers(super::CONTAINER_ENGINE) {
            Answer::Yes => None,
            Answer::No => lack(
                "the Docker engine does not answer",
                "start it, and check that `docker version` works for you",
            ),
            Answer::NotThere => {
                lack("there is no `docker` on the PATH", "install Docker and start it")
            }
        },
        CodeProfile::Standard | CodeProfile::Hardened | CodeProfile::Dev => kernel_lacks()
            .and_then(|reason| lack(&reason, "enable it (`cat /sys/kernel/security/lsm` lists what is), or choose a code.profile")),
        CodeProfile::Wasm | CodeProfile::Off => None,
    }
}

/// What the lockdown needs and this kernel does not have.
#[cfg(target_os = "linux")]
fn kernel_lacks() -> Option<String> {
    metamcp_sandbox::lockdown::unsupported()
}

#[cfg(not(target_os = "linux"))]
fn kernel_lacks() -> Option<String> {
    None
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    NotThere,
}

/// Whether the Docker client is installed and its engine answers.
#[expect(clippy::disallowed_methods, reason = "a container engine is asked for its version")]
fn answers(engine: &str) -> Answer {
    let mut command = Command::new(engine);
    command.args(["version", "--format", "{{.Server.Version}}"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut client) = command.spawn() else { return Answer::NotThere };
    let began = clock::std_instant();
    loop {
        match client.try_wait() {
            Ok(Some(status)) if status.success() => return Answer::Yes,
            Ok(None) if began.elapsed() < ANSWER => std::thread::sleep(LOOK),
            Ok(Some(_)) | Err(_) => return Answer::No,
            Ok(None) => {
                // A client that hangs must not outlive this check; whether the kill succeeds changes nothing.
                drop(client.kill());
                drop(client.wait());
                return Answer::No;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_not_there_or_fails_is_no_docker() {
        assert_eq!(answers("metamcp-no-such-program"), Answer::NotThere);
        assert_eq!(answers("false"), Answer::No);
        assert_eq!(answers("true"), Answer::Yes);
    }
}
