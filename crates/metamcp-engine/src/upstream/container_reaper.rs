//! Removes a server's container when the gateway is done with it, or is gone itself.
//!
//! Ending the docker client does not end the container: it only sees its input closed, on which most servers exit, but not
//! all. So each container has a name, and a process of ours beside it waits for the end of its own input, whatever the
//! cause, and then removes the container by that name.

use std::ffi::OsStr;
use std::io;
use std::process::Stdio;
use std::time::Duration;

use metamcp_child::{ExitWatch, ShimCommand, environment};
use tokio::process::{Child, Command};

/// The first argument that turns our binary into such a process.
pub const ARGUMENT: &str = "__container_sweeper";
/// How long a removal may take: it is retried for some seconds, and a busy engine takes as long again. After that the
/// engine hangs.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(90);
const RUN: &str = "run";

#[derive(Debug)]
pub(super) struct ContainerReaper {
    name: String,
    waiting: Child,
}

impl ContainerReaper {
    /// Starts the process that removes the container with `program`.
    #[expect(
        clippy::disallowed_methods,
        reason = "our own program, which waits for the server's end"
    )]
    pub(super) fn start(own: &ShimCommand, program: &OsStr) -> io::Result<ContainerReaper> {
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)
            .map_err(|_| io::Error::other("the system has no random numbers"))?;
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
        // A signal to our process group must not end it.
        #[cfg(unix)]
        command.process_group(0);
        Ok(ContainerReaper { name, waiting: command.spawn()? })
    }

    /// The arguments of a `docker run`, with the container's name added.
    pub(super) fn named(&self, mut args: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
        let at = usize::from(args.first().is_some_and(|first| first == RUN));
        args.insert(at, format!("--name={}", self.name).into());
        args
    }

    /// Removes the container once the command that started it has exited.
    pub(super) async fn follow(mut self, watch: ExitWatch) {
        watch.empty().await;
        self.end().await;
    }

    async fn end(&mut self) {
        drop(self.waiting.stdin.take());
        // There is nobody to report the result to.
        if tokio::time::timeout(REMOVE_TIMEOUT, self.waiting.wait()).await.is_err() {
            self.waiting.start_kill().ok();
        }
    }
}

#[cfg(all(test, unix))]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hanging_removal_is_killed() {
        let mut command = Command::new("sleep");
        command.arg("600").stdin(Stdio::piped()).kill_on_drop(true);
        let mut container_reaper =
            ContainerReaper { name: "any".to_owned(), waiting: command.spawn().unwrap() };
        container_reaper.end().await;
        let ended = container_reaper.waiting.wait().await.unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&ended), Some(9));
    }
}
