//! One live connection to a server: requests out, responses and notifications in, in order.
//! Owns: the outbox, the ids of requests and who waits for each, the count of invalid lines.      Never: knows calls; they are numbers here.
//! In: what its transport reads.  Out: calls on `Listener`, without a task per message.
//! Tests: `connection/tests.rs`, `metamcp/tests/hazards/`.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::failure::{Fact, Failure};
use metamcp_calls::notification_limiter::NotificationLimiter;
use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_calls::replay::Delivery;
use metamcp_child::StderrTail;
use metamcp_types::moment::Moment;
use metamcp_wire::envelope::Envelope;
use metamcp_wire::frame::{Line, Lines, skim};
use metamcp_wire::handshake::Peer;
use metamcp_wire::object;
use metamcp_wire::scan::{Defect, Kind};
use parking_lot::{Mutex, MutexGuard};
use tokio::io::AsyncRead;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::outbound::Outbound;
use super::transport::Transport;
use crate::clock;
use crate::observe::StartTimes;
use crate::stream::{ReadBudget, read_lines};

/// The largest request id: some servers store ids as signed 32-bit integers.
const MAX_ID: u64 = i32::MAX as u64;
/// Invalid lines after which a server that sent no message is given up.
const MAX_INVALID_LINES: u64 = 100;
/// The time within which they have to come.
const INVALID_LINES_WINDOW: Duration = Duration::from_secs(10);
/// A single line is discarded up to this length; then the connection is closed.
const MAX_DISCARDED_BYTES: u64 = 512 * 1024 * 1024;
/// Unread bytes after which a server's own requests are no longer answered.
const MAX_UNREAD_BYTES: u64 = 1024 * 1024;
/// Server requests that may be open at once.
const MAX_SERVER_REQUESTS: u32 = 8;
/// Lines of the stderr tail in errors.
const STDERR_TAIL_LINES: usize = 20;

/// The response to a request, unparsed.
#[derive(Debug, Clone)]
pub enum Reply {
    Result(Bytes),
    Error(Bytes),
    /// The response is not a valid message.
    Malformed(Defect),
    /// The response was longer than the line limit.
    Oversize(u64),
    /// There is no response, although the connection goes on.
    Broke {
        fact: Fact,
        delivery: Delivery,
    },
}

/// Receives what a server sends.
pub trait Listener: Send + Sync {
    /// The time, for what takes long enough to be measured.
    fn now(&self) -> Moment;
    /// The response to the call with this number.
    fn on_response(&self, conn: &Arc<Connection>, number: u64, reply: Reply);
    fn on_notification(&self, conn: &Arc<Connection>, method: &str, params: Option<&[u8]>);
    /// The server lost its session and a new one began: subscriptions and the like have to be sent again.
    fn on_session_renewed(&self, conn: &Arc<Connection>);
    /// A server request, to be answered with `Connection::answer`; `cause` is the call on whose stream it came, if known.
    fn on_request(
        &self,
        conn: &Arc<Connection>,
        id: Bytes,
        method: &str,
        params: Option<&[u8]>,
        cause: Option<u64>,
    );
}

#[derive(Debug)]
pub struct Connection {
    pub id: ConnId,
    pub server: ServerId,
    pub name: Arc<str>,
    /// The result of the handshake.
    pub peer: OnceLock<Peer>,
    /// The `_meta` of the gateway's own requests to a stateless server.
    pub meta: OnceLock<Vec<u8>>,
    /// How long its list of tools may be cached, in milliseconds, if it says so and announces no changes itself.
    pub list_ttl: OnceLock<u64>,
    /// What the exit of its process means.
    pub opening: OpeningState,
    pub transport: Arc<dyn Transport>,
    pub outbox: Outbound,
    stderr: StderrTail,
    requests: Mutex<Requests>,
    /// Resources that a stateless server was asked to watch.
    subscribed: Mutex<HashSet<String>>,
    open_server_requests: AtomicU32,
    notification_limiter: Mutex<NotificationLimiter>,
    /// When its start began and its transport was open.
    opened: (Moment, Moment),
    /// When its handshake was done.
    ready: OnceLock<Moment>,
    /// When the line that is being handled began, in microseconds; zero for one that came whole.
    line_begun: AtomicU64,
}

/// Whether the exit of a server's process is a failed start. A server may crash or hang on the probe for its era: it is
/// started once more and sent `initialize` first. The handshake and the exit race, and the first one decides.
#[derive(Debug, Default)]
pub struct OpeningState(AtomicU8);

const SETTLED: u8 = 0;
const PROBED: u8 = 1;
const AFRESH: u8 = 2;

impl OpeningState {
    /// The probe was sent first, which older servers do not know.
    pub fn probed(&self) {
        self.0.store(PROBED, Ordering::Release);
    }

    /// The handshake ended by itself. False if a new process is being started instead.
    pub fn settle(&self) -> bool {
        let settled = self.0.compare_exchange(PROBED, SETTLED, Ordering::AcqRel, Ordering::Acquire);
        settled.is_ok() || !self.is_afresh()
    }

    /// Gives up the process for a new one, if the probe is the only thing it failed at. True if it does.
    pub fn start_afresh(&self) -> bool {
        self.0.compare_exchange(PROBED, AFRESH, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether a new process replaces it.
    pub fn is_afresh(&self) -> bool {
        self.0.load(Ordering::Acquire) == AFRESH
    }
}

/// Requests that wait for their response, by id. Ids are unpredictable: a caller who guessed one could make a server
/// answer somebody else's call.
#[derive(Debug, Default)]
struct Requests {
    /// How many ids were drawn; each is a keyed hash of that number.
    drawn: u64,
    dice: RandomState,
    waiting: HashMap<u64, Waits>,
}

#[derive(Debug)]
enum Waits {
    Own(oneshot::Sender<Reply>),
    /// A call, by the caller's number.
    Call(u64),
}

impl Requests {
    fn add(&mut self, waits: Waits) -> u64 {
        loop {
            self.drawn += 1;
            let id = self.dice.hash_one(self.drawn) & MAX_ID;
            // Some servers take zero for a missing id.
            if id != 0 && !self.waiting.contains_key(&id) {
                self.waiting.insert(id, waits);
                return id;
            }
        }
    }
}

impl Connection {
    /// A new connection.
    pub fn new(
        id: ConnId,
        server: ServerId,
        name: Arc<str>,
        transport: Arc<dyn Transport>,
        opened: (Moment, Moment),
    ) -> Connection {
        Connection {
            id,
            server,
            name,
            peer: OnceLock::new(),
            meta: OnceLock::new(),
            list_ttl: OnceLock::new(),
            opening: OpeningState::default(),
            outbox: Outbound::default(),
            stderr: transport.stderr(),
            transport,
            requests: Mutex::default(),
            subscribed: Mutex::default(),
            open_server_requests: AtomicU32::new(0),
            notification_limiter: Mutex::default(),
            opened,
            ready: OnceLock::new(),
            line_begun: AtomicU64::new(0),
        }
    }

    /// The handshake is done.
    pub fn is_ready(&self, now: Moment) {
        // Only the first of them was the start.
        let _unchanged = self.ready.set(now);
    }

    /// How its start went, once it is over.
    pub fn start_times(&self) -> Option<StartTimes> {
        let (begun, opened) = self.opened;
        self.ready.get().map(|ready| StartTimes { begun, opened, ready: *ready })
    }

    /// When the line that is being handled began to arrive, unless it came whole.
    pub fn line_begun(&self) -> Option<Moment> {
        let micros = self.line_begun.load(Ordering::Relaxed);
        (micros != 0).then(|| Moment::START + Duration::from_micros(micros))
    }

    fn began_line(&self, now: Moment) {
        let micros = u64::try_from(now.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.line_begun.store(micros.max(1), Ordering::Relaxed);
    }

    /// What its process wrote to stderr.
    pub fn stderr(&self) -> StderrTail {
        self.stderr.clone()
    }

    /// Sends a request of the gateway's own. The receiver fails if the connection ends first.
    pub fn request(&self, method: &str, params: Option<&[u8]>) -> oneshot::Receiver<Reply> {
        let (sender, receiver) = oneshot::channel();
        let id = self.requests().add(Waits::Own(sender));
        if let Err(defect) = self.outbox.push(|line| line.request(id, method, params)) {
            self.unwritten(method, defect);
            self.requests().waiting.remove(&id);
        }
        receiver
    }

    /// An id for a call about to be written; its response is reported under `call`.
    pub fn id_for(&self, call: u64) -> u64 {
        self.requests().add(Waits::Call(call))
    }

    pub fn call_of(&self, id: u64) -> Option<u64> {
        match self.requests().waiting.get(&id) {
            Some(Waits::Call(call)) => Some(*call),
            _ => None,
        }
    }

    /// Stops waiting for the response to this call. Returns its id if it was still pending.
    pub fn forget_call(&self, call: u64) -> Option<u64> {
        let mut requests = self.requests();
        let is_it = |waits: &Waits| matches!(waits, Waits::Call(other) if *other == call);
        let id = requests.waiting.iter().find(|(_, waits)| is_it(waits)).map(|(id, _)| *id)?;
        requests.waiting.remove(&id);
        Some(id)
    }

    pub(super) fn is_own(&self, id: u64) -> bool {
        matches!(self.requests().waiting.get(&id), Some(Waits::Own(_)))
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock()
    }

    /// Logs a message that was not written because part of it is not valid JSON.
    fn unwritten(&self, what: &str, defect: Defect) {
        tracing::warn!("{what} was not sent to server {:?}: {defect}", self.name);
    }

    /// Sends a request of the gateway's own, with the `_meta` that a stateless server requires. `params` is an object.
    pub fn ask(&self, method: &str, params: &[u8]) -> oneshot::Receiver<Reply> {
        match self.meta.get() {
            Some(meta) => self.request(method, Some(&object::set_member(params, "_meta", meta))),
            None => self.request(method, Some(params).filter(|params| *params != b"{}")),
        }
    }

    pub fn is_stateless(&self) -> bool {
        self.peer.get().is_some_and(|peer| peer.era.is_stateless())
    }

    /// Whether it announced `listChanged` for tools.
    pub fn tells_of_changes(&self) -> bool {
        self.peer.get().is_some_and(|peer| peer.can_also("tools", "listChanged"))
    }

    /// Adds a resource subscription. False if there is one already, or if there are too many.
    pub fn listens_newly(&self, uri: &str, most: usize) -> bool {
        let mut subscribed = self.subscribed.lock();
        subscribed.len() < most && subscribed.insert(uri.to_owned())
    }

    pub fn notify(&self, method: &str, params: Option<&[u8]>) {
        if let Err(defect) = self.outbox.push(|line| line.notification(method, params)) {
            self.unwritten(method, defect);
        }
    }

    /// Answers a server request.
    pub fn answer(&self, id: &[u8], reply: &Reply) {
        let unread = "the client's response is not valid JSON";
        let pushed = self.outbox.push(|line| match reply {
            Reply::Result(result) => line.result(id, result),
            Reply::Error(error) => line.error_raw(id, error),
            Reply::Malformed(_) | Reply::Oversize(_) | Reply::Broke { .. } => {
                line.error(id, -32603, unread);
            }
        });
        // The server waits for a response all the same.
        if pushed.is_err()
            && let Err(defect) = self.outbox.push(|line| line.error(id, -32603, unread))
        {
            self.unwritten("an answer", defect);
        }
    }

    /// Refuses a server request, unless too many responses are still unread.
    pub fn refuse(&self, id: &[u8], code: i64, message: &str) {
        if self.outbox.backlog() < MAX_UNREAD_BYTES
            && let Err(defect) = self.outbox.push(|line| line.error(id, code, message))
        {
            self.unwritten("an answer", defect);
        }
    }

    /// Whether one more progress or log notification is within its rate limit.
    pub fn admits_notification(&self, now: Moment) -> bool {
        self.notification_limiter.lock().admit(now)
    }

    /// Takes one of the slots for open server requests.
    pub fn take_server_request(&self) -> bool {
        let taken = |open: u32| (open < MAX_SERVER_REQUESTS).then_some(open + 1);
        self.open_server_requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    /// Frees the slot.
    pub fn return_server_request(&self) {
        let back = |open: u32| open.checked_sub(1);
        // A second release of the same slot changes nothing.
        let _unchanged =
            self.open_server_requests.fetch_update(Ordering::Relaxed, Ordering::Relaxed, back);
    }

    /// Adds an invalid line to the stderr tail, to be shown when the server fails.
    pub(super) fn record_stray_line(&self, words: &[u8]) {
        self.stderr.push_line(words);
    }

    /// A failure with the stderr tail of the process.
    pub fn failure(&self, fact: Fact) -> Failure {
        Failure { fact, last_words: self.stderr.last_lines(STDERR_TAIL_LINES) }
    }

    pub fn forget_requests(&self) {
        self.requests().waiting.retain(|_, waits| matches!(waits, Waits::Call(_)));
    }

    /// Reads until the output ends or is no longer the protocol; returns why. The only reader.
    pub async fn read_from<R: AsyncRead + Unpin>(
        self: &Arc<Self>,
        mut reader: R,
        line_limit: usize,
        listener: &dyn Listener,
    ) -> Fact {
        let mut lines = Lines::new(line_limit);
        let mut garbage = Garbage::new();
        let mut since_line: u64 = 0;
        let mut read_budget = ReadBudget::default();
        loop {
            match read_lines(&mut reader, &mut lines).await {
                Ok(0) | Err(_) => {
                    if let Some(line) = lines.finish() {
                        self.on_line(line, listener, &mut garbage);
                    }
                    return Fact::OutputClosed;
                }
                Ok(count) => {
                    since_line += count as u64;
                    read_budget.read(count).await;
                }
            }
            let mut is_long = self.line_begun().is_some();
            while let Some(line) = lines.next_line() {
                since_line = 0;
                if let Some(fact) = self.on_line(line, listener, &mut garbage) {
                    return fact;
                }
                if std::mem::take(&mut is_long) {
                    self.line_begun.store(0, Ordering::Relaxed);
                }
                read_budget.heard().await;
            }
            if lines.is_inside() && self.line_begun().is_none() {
                self.began_line(listener.now());
            }
            if since_line > MAX_DISCARDED_BYTES {
                return Fact::Oversize { bytes: since_line };
            }
        }
    }

    fn on_line(
        self: &Arc<Self>,
        line: Line,
        listener: &dyn Listener,
        garbage: &mut Garbage,
    ) -> Option<Fact> {
        let line = match line {
            Line::Message(line) => line,
            Line::Oversize { id, request, length } => {
                let number = id.and_then(|id| std::str::from_utf8(&id).ok()?.parse().ok());
                return match number {
                    Some(number) if !request => {
                        self.deliver(number, Reply::Oversize(length), listener);
                        None
                    }
                    _ => Some(Fact::Oversize { bytes: length }),
                };
            }
        };
        match self.message(&line, &line, None, listener) {
            Ok(_) => {
                garbage.sense();
                None
            }
            Err(defect) => self.invalid_line(&line, defect, listener, garbage),
        }
    }

    /// One message. With `asked`, it came in the HTTP response to that request and can answer no other. Returns whether it
    /// did.
    pub(super) fn message(
        self: &Arc<Self>,
        line: &Bytes,
        part: &[u8],
        asked: Option<u64>,
        listener: &dyn Listener,
    ) -> Result<bool, Defect> {
        let mut answered = false;
        let fits = |number: &u64| asked.is_none_or(|asked| asked == *number);
        match Envelope::parse(part)? {
            Envelope::Result { id, result } => {
                if let Some(number) = id.as_u64().filter(fits) {
                    answered = asked.is_some();
                    self.deliver(number, Reply::Result(line.slice_ref(result)), listener);
                }
            }
            Envelope::Error { id, error } => {
                // An error without an id can only mean the request of this HTTP response.
                let number = match id {
                    Some(id) => id.as_u64().filter(fits),
                    None => asked,
                };
                if let Some(number) = number {
                    answered = asked.is_some();
                    self.deliver(number, Reply::Error(line.slice_ref(error)), listener);
                }
            }
            Envelope::Notification { method, params } => {
                listener.on_notification(self, &method, params);
            }
            Envelope::Request { id, method, params } => {
                if method == "ping" {
                    // A flood of pings from a server that does not read must not fill our memory.
                    if self.outbox.backlog() < MAX_UNREAD_BYTES
                        && let Err(defect) = self.outbox.push(|line| line.result(id.raw(), b"{}"))
                    {
                        self.unwritten("an answer", defect);
                    }
                } else {
                    let id = Bytes::copy_from_slice(id.raw());
                    let cause = asked.and_then(|asked| self.call_of(asked));
                    listener.on_request(self, id, &method, params, cause);
                }
            }
            Envelope::Batch(parts) => {
                for part in parts {
                    // One invalid part must not cost the responses after it.
                    match self.message(line, part, asked, listener) {
                        Ok(here) => answered |= here,
                        Err(defect) => {
                            if !self.fail_answered(part, defect, listener) {
                                self.stderr.push_line(part);
                            }
                        }
                    }
                }
            }
        }
        Ok(answered)
    }

    pub(super) fn deliver(self: &Arc<Self>, number: u64, reply: Reply, listener: &dyn Listener) {
        // Separate statement: the lock is released before the receiver sends its next request.
        let waits = self.requests().waiting.remove(&number);
        match waits {
            Some(Waits::Call(call)) => listener.on_response(self, call, reply),
            // A receiver that is gone needs no response.
            Some(Waits::Own(sender)) => drop(sender.send(reply)),
            None => {}
        }
    }

    /// An invalid line: if it was meant as a response, the request fails now rather than at its deadline; otherwise the line
    /// goes to the stderr tail.
    fn invalid_line(
        self: &Arc<Self>,
        line: &[u8],
        defect: Defect,
        listener: &dyn Listener,
        garbage: &mut Garbage,
    ) -> Option<Fact> {
        if self.fail_answered(line, defect, listener) {
            return None;
        }
        self.stderr.push_line(line);
        garbage.one_more().map(|lines| Fact::Garbage { lines })
    }

    /// Fails the request that this was meant to answer, if that can be determined.
    pub(super) fn fail_answered(
        self: &Arc<Self>,
        part: &[u8],
        defect: Defect,
        listener: &dyn Listener,
    ) -> bool {
        let meant = !matches!(defect.kind, Kind::VersionMissing | Kind::NotMessage);
        let skimmed = skim(part);
        if meant
            && !skimmed.has_method()
            && let Some(id) = skimmed.into_id()
            && let Some(number) = std::str::from_utf8(&id).ok().and_then(|id| id.parse().ok())
        {
            self.deliver(number, Reply::Malformed(defect), listener);
            return true;
        }
        false
    }
}

/// Counts invalid lines since the last valid one.
pub(super) struct Garbage {
    lines: u64,
    since: Instant,
}

impl Garbage {
    pub(super) fn new() -> Garbage {
        Garbage { lines: 0, since: clock::instant() }
    }

    pub(super) fn sense(&mut self) {
        self.lines = 0;
    }

    /// `Some` when there was nothing else for too long.
    pub(super) fn one_more(&mut self) -> Option<u64> {
        if self.lines == 0 || self.since.elapsed() > INVALID_LINES_WINDOW {
            self.since = clock::instant();
            self.lines = 0;
        }
        self.lines += 1;
        (self.lines > MAX_INVALID_LINES).then_some(self.lines)
    }
}

#[cfg(test)]
mod tests;
