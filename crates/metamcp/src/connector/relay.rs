//! The loop of a connector: lines of the client to the daemon, lines of the daemon to the client.
//! Owns: both ends, what is read and not written yet.      Never: decides what to do with a line or a lost daemon.
//! In: a session with a daemon.  Out: how the process ends.
//! Tests: `tests/daemon/`.
//!
//! One loop: a line is written before it is looked at, wherever the machine says that every line is to be forwarded, so
//! the look costs no latency. Neither side is read while the other has not taken what came before.

use std::io;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use metamcp_calls::connector::{Connector, Effect, Message, Next, ToClient, ToDaemon};
use metamcp_wire::glance::{Glance, glance};
use metamcp_wire::object::set_member;

use super::buffer::Buffer;
use super::ends::{Ends, Link, Wanted, link};
use super::launch::{Found, Launcher};
use super::{Mode, answers, say, serve_alone};
use crate::exit::Exit;

/// After this long with one daemon, those lost before do not count.
const STEADY: Duration = Duration::from_secs(10);
/// How long a daemon may take to end a session after a signal: it has a limit of its own, which is shorter.
const LAST_CALLS: Duration = Duration::from_secs(32);
/// How long the last lines may take to be written to a client that does not read.
const LAST_LINES: Duration = Duration::from_secs(2);
/// While the client has this much left to read, no more is read for it.
const BACKLOG: usize = 256 * 1024;
/// Longest line: as long as the longest that can be configured, and a little, so that the daemon is who refuses it.
const MAX_LINE: usize = (1 << 30) + (1 << 20);

/// Serves the client to its end.
pub(super) fn run(launcher: Launcher, found: Found, mode: Mode) -> Exit {
    let ends = match Ends::open() {
        Ok(ends) => ends,
        Err(error) => {
            say(&format!("signals cannot be received: {error}"));
            return Exit::Failure;
        }
    };
    let nonce = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
    let mut relay = Relay {
        launcher,
        mode,
        machine: Connector::new(nonce),
        ends,
        is_deaf: false,
        gateway: None,
        up: Buffer::new(),
        written: 0,
        down: Buffer::new(),
        to_daemon: Vec::new(),
        to_client: Vec::new(),
        is_input_open: true,
        has_told_end: false,
        steady_at: None,
        deadline: None,
        over: None,
    };
    relay.attach(link(found.stream), &found.rest, false);
    let exit = relay.serve();
    relay.leave();
    exit
}

struct Relay {
    launcher: Launcher,
    mode: Mode,
    machine: Connector,
    ends: Ends,
    /// It reads no more: either it is gone, or it answers what it has and wants this client to come anew.
    is_deaf: bool,
    /// The gateway of this process, once there is no daemon to be had.
    gateway: Option<JoinHandle<()>>,
    up: Buffer,
    /// How much of the first line in `up` this daemon has.
    written: usize,
    down: Buffer,
    /// What goes to the daemon before any line in `up`.
    to_daemon: Vec<u8>,
    /// What goes to the client before any line in `down`.
    to_client: Vec<u8>,
    is_input_open: bool,
    has_told_end: bool,
    steady_at: Option<Instant>,
    deadline: Option<Instant>,
    /// Set when only the last lines are to be written.
    over: Option<Exit>,
}

/// The client does not read any more.
struct ClientGone;

impl Relay {
    fn serve(&mut self) -> Exit {
        loop {
            // What it wrote before is read to its end.
            if !self.is_deaf && self.push_up().is_err() {
                self.is_deaf = true;
            }
            if self.push_down().is_err() {
                return Exit::Success;
            }
            if let Some(exit) = self.over.filter(|_| self.to_client.is_empty()) {
                return exit;
            }
            match self.wait() {
                Ok(None) => {}
                Ok(Some(exit)) => return exit,
                Err(ClientGone) => return Exit::Success,
            }
        }
    }

    /// Waits for something to do, and reads what there is.
    fn wait(&mut self) -> Result<Option<Exit>, ClientGone> {
        let reads_client = self.over.is_none()
            && self.is_input_open
            && self.up.lines().is_empty()
            && (self.machine.is_live() || !self.ends.has_daemon());
        let has_lines = self.machine.is_live() && !self.up.lines().is_empty();
        let wanted = Wanted {
            client_in: reads_client,
            client_out: !self.to_client.is_empty(),
            daemon_in: self.to_client.len() < BACKLOG,
            daemon_out: !self.is_deaf && (has_lines || !self.to_daemon.is_empty()),
            at_most: self.timeout(),
        };
        let seen = match self.ends.wait(wanted) {
            Ok(Some(seen)) => seen,
            Ok(None) => return Ok(None),
            Err(error) => {
                say(&format!("waiting failed: {error}"));
                return Ok(Some(Exit::Failure));
            }
        };
        if seen.client_is_gone {
            return Err(ClientGone);
        }
        if seen.signal
            && let Some(exit) = self.signalled()
        {
            return Ok(Some(exit));
        }
        if seen.client_in {
            self.read_client();
        }
        if seen.is_sent_away {
            self.is_deaf = true;
            // One that is gone meanwhile is noticed by the next read.
            self.ends.end_daemon_input().ok();
        }
        if seen.daemon_in {
            self.read_daemon()?;
        }
        if seen.client_out {
            self.write_client()?;
        }
        Ok(self.timed())
    }

    /// When to wake without a reason.
    fn timeout(&self) -> Option<Duration> {
        let next = [self.steady_at, self.deadline].into_iter().flatten().min()?;
        // Rounded up: waking too early would be waking twice.
        Some(next.saturating_duration_since(now()) + Duration::from_millis(1))
    }

    fn timed(&mut self) -> Option<Exit> {
        if self.steady_at.is_none() && self.deadline.is_none() {
            return None;
        }
        let now = now();
        if self.steady_at.is_some_and(|at| at <= now) {
            self.steady_at = None;
            self.machine.steady();
        }
        self.deadline.filter(|at| *at <= now)?;
        Some(self.over.unwrap_or(Exit::Success))
    }

    /// The first signal ends the client's input, the second the process.
    fn signalled(&mut self) -> Option<Exit> {
        let count = self.ends.signals();
        if count == 0 {
            return None;
        }
        if count > 1 || !self.is_input_open || !self.ends.has_daemon() {
            return Some(Exit::Success);
        }
        self.is_input_open = false;
        self.deadline = Some(now() + LAST_CALLS);
        None
    }

    fn read_client(&mut self) {
        match self.ends.read_client(self.up.room()) {
            Ok(0) => self.is_input_open = false,
            Ok(count) => self.up.filled(count),
            Err(error) if is_not_yet(&error) => return,
            Err(_) => self.is_input_open = false,
        }
        if self.up.len() > MAX_LINE {
            say("the client's message is longer than a gigabyte; the session ends");
            self.finish(Exit::Failure);
        } else if !self.ends.has_daemon() {
            // What ended the wait for a reason to have a daemon.
            match self.is_input_open {
                true => self.reconnect(),
                false => self.finish(Exit::Success),
            }
        }
    }

    fn read_daemon(&mut self) -> Result<(), ClientGone> {
        if !self.ends.has_daemon() {
            return Ok(());
        }
        match self.ends.read_daemon(self.down.room()) {
            Ok(count @ 1..) => {
                self.down.filled(count);
                self.forward_down()?;
                if self.down.len() > MAX_LINE {
                    self.lost();
                }
            }
            Err(error) if is_not_yet(&error) => {}
            Ok(0) | Err(_) => self.lost(),
        }
        Ok(())
    }

    /// Passes every whole line of the daemon on: written, or kept in order for when the client has room.
    fn forward_down(&mut self) -> Result<(), ClientGone> {
        if self.machine.trusts_daemon() {
            let lines = self.down.lines();
            let mut count = 0;
            if self.to_client.is_empty() && !self.ends.must_be_asked() {
                count = written(self.ends.write_client(lines))?;
            }
            self.to_client.extend_from_slice(&lines[count..]);
            for line in split(lines) {
                with_message(&glance(line), |message| self.machine.from_daemon(message));
            }
            let length = lines.len();
            self.down.take(length);
        } else {
            while let Some(line) = self.down.line() {
                match with_message(&glance(line), |message| self.machine.from_daemon(message)) {
                    ToClient::Forward => self.to_client.extend_from_slice(line),
                    ToClient::Rename(id) => renamed(&mut self.to_client, line, &id),
                    ToClient::CancelAs(id) => answers::cancelled(&mut self.to_client, &id),
                    ToClient::Swallow => {}
                }
                let length = line.len();
                self.down.take(length);
            }
        }
        self.effects();
        self.push_down()
    }

    /// Writes to the daemon what it has room for.
    fn push_up(&mut self) -> io::Result<()> {
        loop {
            if !self.ends.has_daemon() {
                return Ok(());
            }
            if !self.to_daemon.is_empty() {
                let sent = taken(self.ends.write_daemon(&self.to_daemon))?;
                let Some(count) = sent else { return Ok(()) };
                self.to_daemon.drain(..count);
                continue;
            }
            if !self.machine.is_live() {
                return Ok(());
            }
            if self.up.lines().is_empty() {
                if self.is_input_open || self.has_told_end {
                    return Ok(());
                }
                if self.up.is_empty() {
                    self.has_told_end = true;
                    self.machine.ended();
                    return self.ends.end_daemon_input();
                }
                // The last line may lack its newline.
                self.up.append(b"\n");
            }
            let length = if self.machine.trusts_client() {
                self.up.lines().len()
            } else {
                match self.judged() {
                    Some(length) => length,
                    None => continue,
                }
            };
            let sent = taken(self.ends.write_daemon(&self.up.lines()[self.written..length]))?;
            let Some(count) = sent else { return Ok(()) };
            self.written += count;
            self.note_sent();
        }
    }

    /// What the machine says of the first line of the client: its length if it is to be written, nothing if it is done.
    fn judged(&mut self) -> Option<usize> {
        let line = self.up.line()?;
        let length = line.len();
        if self.written > 0 {
            return Some(length);
        }
        let seen = glance(line);
        match with_message(&seen, |message| self.machine.from_client(message)) {
            ToDaemon::Forward => return Some(length),
            ToDaemon::Drop => {}
            ToDaemon::Rename(id) => renamed(&mut self.to_daemon, line, &id),
            ToDaemon::Refuse => {
                if let Glance::Request { id, .. } = seen {
                    answers::overloaded(&mut self.to_client, id);
                }
                self.up.take(length);
                return None;
            }
        }
        with_message(&seen, |message| self.machine.sent(message, line.trim_ascii_end()));
        self.up.take(length);
        None
    }

    /// Tells the machine of every line that the daemon has whole.
    fn note_sent(&mut self) {
        while let Some(line) = self.up.line().filter(|line| line.len() <= self.written) {
            let length = line.len();
            with_message(&glance(line), |message| {
                self.machine.sent(message, line.trim_ascii_end());
            });
            self.up.take(length);
            self.written -= length;
        }
    }

    fn push_down(&mut self) -> Result<(), ClientGone> {
        if self.to_client.is_empty() || self.ends.must_be_asked() {
            return Ok(());
        }
        self.write_client()
    }

    fn write_client(&mut self) -> Result<(), ClientGone> {
        let count = written(self.ends.write_client(&self.to_client))?;
        self.to_client.drain(..count);
        Ok(())
    }

    fn effects(&mut self) {
        for effect in self.machine.effects() {
            match effect {
                Effect::Send { line } => {
                    self.to_daemon.extend_from_slice(&line);
                    self.to_daemon.push(b'\n');
                }
                Effect::SendAs { line, id } => renamed(&mut self.to_daemon, &line, &id),
                Effect::OutcomeUnknown { id, answer } => {
                    answers::outcome_unknown(&mut self.to_client, &id, answer);
                }
                Effect::Cancel { id } => answers::cancelled(&mut self.to_client, &id),
                Effect::Leave => return self.lost(),
            }
        }
    }

    fn lost(&mut self) {
        self.ends.leave_daemon();
        self.is_deaf = false;
        // Half a line of it is worth nothing; half a line to it goes to the next one whole.
        self.down.clear();
        self.to_daemon.clear();
        self.written = 0;
        self.steady_at = None;
        let next = self.machine.lost();
        self.effects();
        // The client need not wait for the next daemon to hear what became of its calls.
        drop(self.push_down());
        match next {
            Next::End => self.finish(Exit::Success),
            Next::ServeAlone => {
                say("the daemon ended again and again; serving this client without it");
                self.go_alone();
            }
            Next::Reconnect => {
                let is_needed = self.machine.needs_daemon() || !self.up.is_empty();
                if is_needed || !self.is_input_open || !self.launcher.was_stopped() {
                    self.reconnect();
                }
            }
        }
    }

    fn reconnect(&mut self) {
        match self.launcher.find() {
            Ok(found) => self.attach(link(found.stream), &found.rest, false),
            Err(trouble) if self.mode == Mode::Require => {
                say(&format!("the daemon is gone, and no other can be had: {trouble}"));
                self.machine.give_up();
                self.effects();
                self.finish(Exit::Unavailable);
            }
            Err(trouble) => {
                say(&format!(
                    "the daemon is gone, and no other can be had: {trouble}; serving this client without it"
                ));
                self.go_alone();
            }
        }
    }

    fn go_alone(&mut self) {
        match serve_alone() {
            Ok((stream, gateway)) => {
                self.gateway = Some(gateway);
                self.attach(stream, &[], true);
            }
            Err(error) => {
                say(&format!("this client cannot be served: {error}"));
                self.machine.give_up();
                self.effects();
                self.finish(Exit::Failure);
            }
        }
    }

    fn attach(&mut self, link: Link, rest: &[u8], is_alone: bool) {
        // A socket that cannot be made non-blocking is none.
        if self.ends.attach(link).is_err() {
            return self.finish(Exit::Failure);
        }
        self.is_deaf = false;
        self.steady_at = Some(now() + STEADY);
        if is_alone {
            self.machine.connected_alone();
        } else {
            self.machine.connected();
        }
        self.effects();
        if !rest.is_empty() {
            self.down.append(rest);
            // A client that is gone is noticed by the next write.
            drop(self.forward_down());
        }
    }

    /// Nothing more is to be waited for but the last lines.
    fn finish(&mut self, exit: Exit) {
        self.ends.leave_daemon();
        self.over = Some(exit);
        self.deadline = Some(now() + LAST_LINES);
    }

    /// Ends what is still there of this session.
    fn leave(mut self) {
        self.ends.leave_daemon();
        // It ends its servers first, within limits of its own.
        if let Some(gateway) = self.gateway.take() {
            drop(gateway.join());
        }
    }
}

/// What a write took, if it took anything; an error is the end of the connection.
fn taken(written: io::Result<usize>) -> io::Result<Option<usize>> {
    match written {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

/// The same for the client.
fn written(result: io::Result<usize>) -> Result<usize, ClientGone> {
    match result {
        Ok(count) => Ok(count),
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
            _ => Err(ClientGone),
        },
    }
}

/// Whether a read is only to be tried again.
fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn split(lines: &[u8]) -> impl Iterator<Item = &[u8]> {
    lines.split_inclusive(|byte| *byte == b'\n')
}

/// The line with another id.
fn renamed(out: &mut Vec<u8>, line: &[u8], id: &[u8]) {
    out.extend_from_slice(&set_member(line.trim_ascii_end(), "id", id));
    out.push(b'\n');
}

/// A glance in the machine's words.
fn with_message<T>(seen: &Glance<'_>, and: impl FnOnce(&Message<'_>) -> T) -> T {
    and(&message(seen))
}

fn message<'a>(seen: &'a Glance<'_>) -> Message<'a> {
    match seen {
        Glance::Request { id, method, subject } => {
            Message::Request { id, method, subject: *subject }
        }
        Glance::Notification { method, cancels } => {
            Message::Notification { method, cancels: *cancels }
        }
        Glance::Response { id, is_error } => Message::Response { id, is_error: *is_error },
        Glance::Batch(all) => Message::Batch(all.iter().map(message).collect()),
        Glance::Other => Message::Other,
    }
}

#[expect(clippy::disallowed_methods, reason = "the connector's only clock")]
fn now() -> Instant {
    Instant::now()
}
