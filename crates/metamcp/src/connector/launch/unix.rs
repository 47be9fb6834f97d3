//! The daemon's process, which says by a line on its stdout that it is ready.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use metamcp_engine::runtime_folder::Places;
use metamcp_types::text;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::connector::program;

/// How a daemon ends that somebody killed.
const SIGKILL: i32 = nix::sys::signal::Signal::SIGKILL as i32;
/// The log is moved aside beyond this.
const MAX_LOG: u64 = 4 * 1024 * 1024;

/// A daemon that was started here.
#[derive(Debug)]
pub(super) struct Process(Child);

/// What a daemon says at its start.
pub(super) enum Said {
    Line(String),
    /// Its output ended before a whole line.
    Ended,
    /// Nothing in time.
    Nothing,
}

/// How it ended.
pub(super) struct End {
    pub(super) words: String,
    pub(super) is_killed: bool,
}

impl Process {
    /// It makes a session of its own, so that nothing of a terminal reaches it.
    #[expect(clippy::disallowed_methods, reason = "this is the one program that is not a server")]
    pub(super) fn start(home: &Path, log: &Path, take_over: Option<&Path>) -> io::Result<Process> {
        let mut command = Command::new(program());
        // What a list of processes shows.
        command.arg0("metamcp").args(["daemon", "run", "--home"]).arg(home);
        if let Some(socket) = take_over {
            command.arg("--take-over").arg(socket);
        }
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped());
        // Without a log it works as well.
        command.stderr(opened_log(home, log).map_or_else(|_| Stdio::null(), Stdio::from));
        command.spawn().map(Process)
    }

    /// Clears away what is left of one that has ended.
    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// The line by which the daemon says that it is ready, or why it will not be.
    pub(super) fn said(&mut self, _places: &Places, limit: Duration) -> Said {
        /// Longer than anything it says.
        const MOST: usize = 4096;
        let Some(mut stdout) = self.0.stdout.take() else { return Said::Nothing };
        let mut said = Vec::new();
        while !said.contains(&b'\n') && said.len() < MOST {
            let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
            let mut polled = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
            match poll(&mut polled, limit) {
                Ok(1..) => {}
                Err(nix::errno::Errno::EINTR) => continue,
                _ => return Said::Nothing,
            }
            let mut part = [0; 512];
            match stdout.read(&mut part) {
                Ok(count @ 1..) => said.extend_from_slice(&part[..count]),
                _ => return Said::Ended,
            }
        }
        let said = String::from_utf8_lossy(&said);
        Said::Line(text::clean_line(said.lines().next().unwrap_or_default(), MOST).into_owned())
    }

    /// How it ended, when its output has; nothing if it lives on all the same.
    pub(super) fn ended(&mut self) -> Option<End> {
        /// Its files are closed a moment before it can be waited for.
        const LOOKS: u32 = 100;
        const LOOK: Duration = Duration::from_millis(5);
        for _ in 0..LOOKS {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Some(End::of(status));
            }
            std::thread::sleep(LOOK);
        }
        None
    }
}

impl End {
    fn of(status: ExitStatus) -> End {
        End { words: status.to_string(), is_killed: status.signal() == Some(SIGKILL) }
    }
}

fn opened_log(home: &Path, log: &Path) -> io::Result<File> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    if std::fs::symlink_metadata(log).is_ok_and(|found| found.len() > MAX_LOG) {
        std::fs::rename(log, log.with_extension("log.1"))?;
    }
    let no_link = nix::fcntl::OFlag::O_NOFOLLOW.bits();
    OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(no_link).open(log)
}
