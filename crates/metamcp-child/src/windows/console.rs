//! Console events, which Windows has in place of signals: Ctrl-C and Ctrl-Break, heard by all on one console.
//! Owns: which event a step of the escalation is, the process that sends it.      Never: sends one to our own console.
//! In: a step, a server that runs.  Out: an event on that server's console, unless it has none.
//! Tests: below, and `cargo xtask test --windows` with real processes.
//!
//! Only who is on a console can send one there, and a server has its own, which nobody sees. So this program is started
//! once more without any, joins the server's for that moment, and sends the event to everybody on it. Servers are in no
//! process group of their own: whoever leads one does not hear Ctrl-C.

use std::io::{self, Write};
use std::process::Stdio;
use std::sync::Arc;

use metamcp_types::escalation::Step;
use send_ctrlc::Interruptible;
use tokio::process::{Child, Command};
use tokio::signal::windows::{ctrl_break, ctrl_c};
use tokio::task::JoinHandle;
use winsafe::{AttachConsole, FreeConsole, PidParent};

use crate::spec::ShimCommand;

/// Without any console.
const DETACHED_PROCESS: u32 = 0x0000_0008;

/// Exit codes of the process that sends.
const SENT: i32 = 0;
const NOT_SENT: i32 = 1;
const MISUSED: i32 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Event {
    CtrlC,
    CtrlBreak,
}

impl Event {
    /// What a step is here. Ctrl-C first, because that is what programs of this system clean up on. Ctrl-Break ends most at
    /// once, and is heard by those too that were started with Ctrl-C turned off, which passes on to what they start.
    pub(super) fn of(step: Step) -> Option<Event> {
        match step {
            Step::TerminateAndResumeAll => Some(Event::CtrlC),
            Step::InterruptAll | Step::TerminateAll => Some(Event::CtrlBreak),
            // No event is for one process alone.
            Step::TerminateLeader => None,
            // The caller closes it, and the job is ended as a whole.
            Step::CloseStdin | Step::KillAll => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Event::CtrlC => "ctrl-c",
            Event::CtrlBreak => "ctrl-break",
        }
    }

    fn named(word: &str) -> Option<Event> {
        [Event::CtrlC, Event::CtrlBreak].into_iter().find(|event| event.word() == word)
    }
}

/// An event on its way. Dropping it ends the process that sends it.
pub(super) type Sending = JoinHandle<io::Result<Child>>;

/// Has an event sent to the console of a process, whose handle the caller holds: its pid must not be another's by then.
/// A server without a console hears nothing, and is ended a little later.
pub(super) fn send(sender: &Arc<ShimCommand>, event: Event, pid: u32) -> Sending {
    let sender = Arc::clone(sender);
    // Starting a process takes long where each is scanned.
    tokio::task::spawn_blocking(move || {
        #[expect(clippy::disallowed_methods, reason = "this very program, in the job of this one")]
        let mut command = Command::new(&sender.program);
        command
            .args(&sender.args)
            .args([event.word(), &pid.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .creation_flags(DETACHED_PROCESS)
            .kill_on_drop(true);
        command.spawn()
    })
}

/// The process that sends: `ctrl-c PID` or `ctrl-break PID`.
pub(super) fn main(mut words: impl Iterator<Item = String>) -> i32 {
    let event = words.next().and_then(|word| Event::named(&word));
    let pid = words.next().and_then(|word| word.parse().ok());
    let (Some(event), Some(pid)) = (event, pid) else { return MISUSED };
    match sent(event, pid) {
        Ok(()) => SENT,
        Err(error) => {
            // For who tries it by hand; the gateway does not listen.
            writeln!(io::stderr(), "{} was not sent to {pid}: {error}", event.word()).ok();
            NOT_SENT
        }
    }
}

fn sent(event: Event, pid: u32) -> io::Result<()> {
    // We hear it as well, and are not to end before it is sent.
    let _heard = (ctrl_c()?, ctrl_break()?);
    // We may have been started with a console, by hand.
    FreeConsole().ok();
    AttachConsole(PidParent::Pid(pid))
        .map_err(|error| io::Error::from_raw_os_error(error.raw().cast_signed()))?;
    match event {
        Event::CtrlC => Everybody.interrupt(),
        Event::CtrlBreak => Everybody.terminate(),
    }
}

/// All processes on the console that we are on.
struct Everybody;

impl Interruptible for Everybody {
    fn pid(&mut self) -> io::Result<Option<u32>> {
        Ok(Some(0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metamcp_types::escalation::{Escalation, Next};

    use super::*;

    #[test]
    fn a_polite_stop_is_ctrl_c_and_then_ctrl_break() {
        let mut escalation = Escalation::graceful();
        let mut events = Vec::new();
        while let Next::Take(step) = escalation.next(Duration::from_secs(10)) {
            events.extend(Event::of(step));
        }
        assert_eq!(events, [Event::CtrlC, Event::CtrlBreak, Event::CtrlBreak]);
    }

    #[test]
    fn a_brisk_one_is_ctrl_c_alone() {
        let mut escalation = Escalation::brisk();
        let mut events = Vec::new();
        while let Next::Take(step) = escalation.next(Duration::from_secs(10)) {
            events.extend(Event::of(step));
        }
        assert_eq!(events, [Event::CtrlC]);
    }

    #[test]
    fn what_is_not_understood_is_not_sent() {
        let ran = |words: &[&str]| main(words.iter().map(ToString::to_string));
        assert_eq!(ran(&[]), MISUSED);
        assert_eq!(ran(&["ctrl-c"]), MISUSED);
        assert_eq!(ran(&["ctrl-alt-del", "1"]), MISUSED);
        assert_eq!(ran(&["ctrl-c", "all"]), MISUSED);
    }
}
