//! Processes the child starts: the same program again, because forking by hand needs unsafe code.

use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::setsid;

use super::options::Descendant;
use super::server_state::{ServerState, linger};
use crate::journal::{EventKind, JournalWriter, Record};

/// The standard streams of a descendant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Streams {
    /// Inherited from the child, so that its pipes stay open when it dies.
    Ours,
    None,
}

/// Starts a descendant of the given kind; see `run` for the kinds.
pub(super) fn spawn(server: &ServerState, kind: &str, streams: Streams) -> Result<Child> {
    let mut command = command(kind, streams)?;
    if let Some(journal) = &server.options.journal {
        command.arg("--journal").arg(journal);
    }
    command.arg("--lifetime-ms").arg(server.options.lifetime.as_millis().to_string());
    command.spawn().context("starting a descendant")
}

/// Blocks the catchable termination signals for this thread and all it starts later.
pub(super) fn be_deaf() {
    let polite: SigSet = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
    polite.thread_block().expect("blocking these signals is always allowed");
}

pub(super) fn run(descendant: &Descendant) -> Result<()> {
    match descendant.kind.as_str() {
        // Exits at once; a parent that does not wait for it has a zombie.
        "brief" => return Ok(()),
        "lingering" => {}
        // Leaves the session, and with it the process group the parent would kill.
        "session" => drop(setsid().context("starting a session")?),
        // Daemonizes: new session, then the parent exits, so that the next process is orphaned.
        "daemon" => {
            setsid().context("starting a session")?;
            let mut command = command("lingering", Streams::Ours)?;
            if let Some(journal) = &descendant.journal {
                command.arg("--journal").arg(journal);
            }
            command.arg("--lifetime-ms").arg(descendant.lifetime.as_millis().to_string());
            // Not waited for: being orphaned is the point.
            drop(command.spawn().context("starting the daemon")?);
            return Ok(());
        }
        other => bail!("no descendant {other:?}"),
    }
    be_deaf();
    if let Some(path) = &descendant.journal {
        JournalWriter::open(path)?.write(&Record::new(EventKind::Descendant))?;
    }
    linger(descendant.lifetime)
}

fn command(kind: &str, streams: Streams) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(["--descendant", kind]);
    if streams == Streams::None {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    }
    Ok(command)
}
