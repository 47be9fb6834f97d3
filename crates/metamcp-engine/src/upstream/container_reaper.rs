//! Sees to it that a container is gone when the gateway is done with it, or is gone itself.
//!
//! Ending the client of docker does not end what runs in the engine: the container only finds its input closed, which
//! most servers take for the end, but not all. So each has a name, and a process of ours beside it that waits for the end
//! of its own input, however that came, and then removes the container by its name.

use std::ffi::OsStr;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use metamcp_child::{ExitWatch, ShimCommand, environment};
use tokio::process::{Child, Command};

/// The first argument that makes our binary such a process.
pub const ARGUMENT: &str = "__container_sweeper";
/// How long one may take to remove its container: it tries for some seconds, and an engine that is busy takes as long
/// again. After that the engine hangs, and waiting for it helps nobody.
const LONGEST_SWEEP: Duration = Duration::from_secs(90);
/// The command whose containers are swept, and the word of it that starts one.
const RUN: &str = "run";

/// See the module.
#[derive(Debug)]
pub(super) struct ContainerReaper {
    name: String,
    waiting: Child,
}

impl ContainerReaper {
    /// Waits from now on, as `program` is asked for containers.
    #[expect(
        clippy::disallowed_methods,
        reason = "our own program, which waits for the server's end"
    )]
    pub(super) fn start(own: &ShimCommand, program: &OsStr) -> io::Result<ContainerReaper> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes).map_err(|_| io::Error::other("there is no randomness"))?;
        let number: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let name = format!("metamcp-server-{number}");
        let mut command = Command::new(&own.program);
        command
            .arg(ARGUMENT)
            .arg(program)
            .arg(&name)
            .env_clear()
            .envs(environment::for_child(std::env::vars_os(), &[]))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // What ends us must not end it.
        #[cfg(unix)]
        command.process_group(0);
        Ok(ContainerReaper { name, waiting: command.spawn()? })
    }

    /// The arguments of a `docker run` whose container has the name that is swept.
    pub(super) fn named(&self, mut args: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
        let at = usize::from(args.first().is_some_and(|first| first == RUN));
        args.insert(at, format!("--name={}", self.name).into());
        args
    }

    /// Removes the container once the command that started it is gone.
    pub(super) async fn follow(mut self, watch: ExitWatch) {
        watch.empty().await;
        self.end().await;
    }

    async fn end(&mut self) {
        drop(self.waiting.stdin.take());
        // However it went, there is nobody to tell.
        if tokio::time::timeout(LONGEST_SWEEP, self.waiting.wait()).await.is_err() {
            self.waiting.start_kill().ok();
        }
    }
}

#[cfg(all(test, unix))]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_that_hangs_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::piped()).kill_on_drop(true);
        let mut container_reaper =
            ContainerReaper { name: "any".to_owned(), waiting: command.spawn().unwrap() };
        container_reaper.end().await;
        let ended = container_reaper.waiting.wait().await.unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
    }
}
