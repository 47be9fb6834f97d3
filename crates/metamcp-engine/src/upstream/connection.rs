//! One live connection to a server: requests out, answers and notifications in, in the order they came.
//! Owns: the outbox, the ids of requests and what each stands for, the garbage count.      Never: knows calls; they are numbers here.
//! In: what its transport reads.  Out: calls on `Listener`, without a task per message.
//! Tests: `connection/tests.rs`, `metamcp/tests/hazards/`.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
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
use crate::stream::{ReadBudget, read_lines};

/// The largest id of a request: servers are known that keep ids in 32 bits with a sign.
const MAX_ID: u64 = i32::MAX as u64;
/// Lines that are not the protocol before a server that said nothing else is given up.
const GARBAGE_LINES: u64 = 100;
/// The time within which they have to come for that.
const GARBAGE_WINDOW: Duration = Duration::from_secs(10);
/// A single line is thrown away up to this length; a server that writes on has lost its mind.
const LONGEST_DISCARD: u64 = 512 * 1024 * 1024;
/// What may wait for a server that does not read, before its own requests go unanswered.
const REPLY_BACKLOG: u64 = 1024 * 1024;
/// Questions of a server to the client that may be open at once.
const OPEN_QUESTIONS: u32 = 8;
/// Last words shown in errors.
const LAST_WORDS: usize = 20;

/// The answer to a request, raw.
#[derive(Debug, Clone)]
pub enum Reply {
    /// The `result` member.
    Result(Bytes),
    /// The `error` member.
    Error(Bytes),
    /// It answered with something that is no valid message.
    Malformed(Defect),
    /// Its answer was longer than a line may be.
    Oversize(u64),
    /// There is no answer, although the connection goes on.
    Broke {
        /// Why.
        fact: Fact,
        /// How far the request got.
        delivery: Delivery,
    },
}

/// Who hears what a server says.
pub trait Listener: Send + Sync {
    /// The answer to the call that was given this number.
    fn on_response(&self, conn: &Arc<Connection>, number: u64, reply: Reply);
    /// A notification.
    fn on_notification(&self, conn: &Arc<Connection>, method: &str, params: Option<&[u8]>);
    /// It forgot us, and hands were shaken anew: what it was told before is told again.
    fn on_session_renewed(&self, conn: &Arc<Connection>);
    /// A request of the server's own, to be answered with `Connection::answer`; `cause` is the call on whose stream it came,
    /// where there is such a thing.
    fn on_request(
        &self,
        conn: &Arc<Connection>,
        id: Bytes,
        method: &str,
        params: Option<&[u8]>,
        cause: Option<u64>,
    );
}

/// See the module.
#[derive(Debug)]
pub struct Connection {
    /// Which connection.
    pub id: ConnId,
    /// Of which server.
    pub server: ServerId,
    /// Its name.
    pub name: Arc<str>,
    /// Who answered the handshake.
    pub peer: OnceLock<Peer>,
    /// What the gateway's own requests to a stateless server carry.
    pub meta: OnceLock<Vec<u8>>,
    /// How long its list of tools may be kept, in milliseconds, where it says so and will not tell of changes itself.
    pub list_ttl: OnceLock<u64>,
    /// What the end of its process means.
    pub opening: OpeningState,
    /// How it is reached.
    pub transport: Arc<dyn Transport>,
    /// What goes to it.
    pub outbox: Outbound,
    stderr: StderrTail,
    requests: Mutex<Requests>,
    /// Resources of which a stateless server was asked to tell.
    listened: Mutex<HashSet<String>>,
    questions: AtomicU32,
    notification_limiter: Mutex<NotificationLimiter>,
}

/// Whether a server's process that ends is the end of its start. One that was asked what it speaks may have died of the
/// question, or gone deaf by it: it is started once more and greeted with `initialize`. Either the handshake or the end
/// of the process is first to decide, and the other one then finds it decided.
#[derive(Debug, Default)]
pub struct OpeningState(AtomicU8);

const SETTLED: u8 = 0;
const PROBED: u8 = 1;
const AFRESH: u8 = 2;

impl OpeningState {
    /// The first word was a question that older servers do not know.
    pub fn probed(&self) {
        self.0.store(PROBED, Ordering::Release);
    }

    /// The handshake came to an end of its own. False if a fresh process is on its way instead.
    pub fn settle(&self) -> bool {
        let settled = self.0.compare_exchange(PROBED, SETTLED, Ordering::AcqRel, Ordering::Acquire);
        settled.is_ok() || !self.is_afresh()
    }

    /// The process is given up for a fresh one, if the question was all that it was judged by. True if it is.
    pub fn start_afresh(&self) -> bool {
        self.0.compare_exchange(PROBED, AFRESH, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether a fresh process takes its place.
    pub fn is_afresh(&self) -> bool {
        self.0.load(Ordering::Acquire) == AFRESH
    }
}

/// Requests that wait for their answer, by id. Ids cannot be guessed: who could make a server answer under one would
/// answer for it.
#[derive(Debug, Default)]
struct Requests {
    /// How many ids were drawn, and what makes them: a keyed hash of that number.
    drawn: u64,
    dice: RandomState,
    waiting: HashMap<u64, Waits>,
}

#[derive(Debug)]
enum Waits {
    /// For a request of the gateway's own.
    Own(oneshot::Sender<Reply>),
    /// A call, by the number that whoever made it gave it.
    Call(u64),
}

impl Requests {
    fn add(&mut self, waits: Waits) -> u64 {
        loop {
            self.drawn += 1;
            let id = self.dice.hash_one(self.drawn) & MAX_ID;
            // Some servers take nought for no id at all.
            if id != 0 && !self.waiting.contains_key(&id) {
                self.waiting.insert(id, waits);
                return id;
            }
        }
    }
}

impl Connection {
    /// A connection over which nothing was said yet.
    pub fn new(
        id: ConnId,
        server: ServerId,
        name: Arc<str>,
        transport: Arc<dyn Transport>,
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
            listened: Mutex::default(),
            questions: AtomicU32::new(0),
            notification_limiter: Mutex::default(),
        }
    }

    /// Sends a request of the gateway's own. The receiver fails when the connection ends first.
    pub fn request(&self, method: &str, params: Option<&[u8]>) -> oneshot::Receiver<Reply> {
        let (sender, receiver) = oneshot::channel();
        let id = self.requests().add(Waits::Own(sender));
        if let Err(defect) = self.outbox.push(|line| line.request(id, method, params)) {
            self.unwritten(method, defect);
            self.requests().waiting.remove(&id);
        }
        receiver
    }

    /// An id for a call that is about to be written; its answer comes under `call`.
    pub fn id_for(&self, call: u64) -> u64 {
        self.requests().add(Waits::Call(call))
    }

    /// The call whose request has this id.
    pub fn call_of(&self, id: u64) -> Option<u64> {
        match self.requests().waiting.get(&id) {
            Some(Waits::Call(call)) => Some(*call),
            _ => None,
        }
    }

    /// Nobody waits for the answer to this call any more. Its id, if it was still waited for.
    pub fn forget_call(&self, call: u64) -> Option<u64> {
        let mut requests = self.requests();
        let is_it = |waits: &Waits| matches!(waits, Waits::Call(other) if *other == call);
        let id = requests.waiting.iter().find(|(_, waits)| is_it(waits)).map(|(id, _)| *id)?;
        requests.waiting.remove(&id);
        Some(id)
    }

    /// Whether this is the id of a request of the gateway's own.
    pub(super) fn is_own(&self, id: u64) -> bool {
        matches!(self.requests().waiting.get(&id), Some(Waits::Own(_)))
    }

    fn requests(&self) -> MutexGuard<'_, Requests> {
        self.requests.lock()
    }

    /// A message was not written because something in it is no JSON.
    fn unwritten(&self, what: &str, defect: Defect) {
        tracing::warn!("{what} was not sent to server {:?}: {defect}", self.name);
    }

    /// Sends a request of the gateway's own, with what a stateless server wants to know with each. `params` is an
    /// object.
    pub fn ask(&self, method: &str, params: &[u8]) -> oneshot::Receiver<Reply> {
        match self.meta.get() {
            Some(meta) => self.request(method, Some(&object::set_member(params, "_meta", meta))),
            None => self.request(method, Some(params).filter(|params| *params != b"{}")),
        }
    }

    /// Whether each request to it has to carry everything it needs.
    pub fn is_stateless(&self) -> bool {
        self.peer.get().is_some_and(|peer| peer.era.is_stateless())
    }

    /// Whether it said that it tells when its tools change.
    pub fn tells_of_changes(&self) -> bool {
        self.peer.get().is_some_and(|peer| peer.can_also("tools", "listChanged"))
    }

    /// Whether this resource was not listened to before, and may be.
    pub fn listens_newly(&self, uri: &str, most: usize) -> bool {
        let mut listened = self.listened.lock();
        listened.len() < most && listened.insert(uri.to_owned())
    }

    /// Sends a notification.
    pub fn notify(&self, method: &str, params: Option<&[u8]>) {
        if let Err(defect) = self.outbox.push(|line| line.notification(method, params)) {
            self.unwritten(method, defect);
        }
    }

    /// Answers a request of the server's.
    pub fn answer(&self, id: &[u8], reply: &Reply) {
        let unread = "the client's answer could not be read";
        let pushed = self.outbox.push(|line| match reply {
            Reply::Result(result) => line.result(id, result),
            Reply::Error(error) => line.error_raw(id, error),
            Reply::Malformed(_) | Reply::Oversize(_) | Reply::Broke { .. } => {
                line.error(id, -32603, unread);
            }
        });
        // It waits for an answer all the same.
        if pushed.is_err()
            && let Err(defect) = self.outbox.push(|line| line.error(id, -32603, unread))
        {
            self.unwritten("an answer", defect);
        }
    }

    /// Refuses a request of the server's, unless it has left too many answers unread already.
    pub fn refuse(&self, id: &[u8], code: i64, message: &str) {
        if self.outbox.backlog() < REPLY_BACKLOG
            && let Err(defect) = self.outbox.push(|line| line.error(id, code, message))
        {
            self.unwritten("an answer", defect);
        }
    }

    /// Whether one more progress or log notification of it is passed on.
    pub fn admits_notification(&self, now: Moment) -> bool {
        self.notification_limiter.lock().admit(now)
    }

    /// Takes one of the few places for questions to the client.
    pub fn take_server_request(&self) -> bool {
        let taken = |open: u32| (open < OPEN_QUESTIONS).then_some(open + 1);
        self.questions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
    }

    /// Gives the place back.
    pub fn return_server_request(&self) {
        let back = |open: u32| open.checked_sub(1);
        // A second return of the same place changes nothing.
        let _unchanged = self.questions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, back);
    }

    /// Keeps something that is no message, to be shown when the server fails.
    pub(super) fn overheard(&self, words: &[u8]) {
        self.stderr.push_line(words);
    }

    /// A failure with the last words of the process.
    pub fn failure(&self, fact: Fact) -> Failure {
        Failure { fact, last_words: self.stderr.last_lines(LAST_WORDS) }
    }

    /// Fails all requests of the gateway's own.
    pub fn forget_requests(&self) {
        self.requests().waiting.retain(|_, waits| matches!(waits, Waits::Call(_)));
    }

    /// Reads until the server stops talking sense or at all; says why. The only reader.
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
                        self.hear(line, listener, &mut garbage);
                    }
                    return Fact::OutputClosed;
                }
                Ok(count) => {
                    since_line += count as u64;
                    read_budget.read(count).await;
                }
            }
            while let Some(line) = lines.next_line() {
                since_line = 0;
                if let Some(fact) = self.hear(line, listener, &mut garbage) {
                    return fact;
                }
                read_budget.heard().await;
            }
            if since_line > LONGEST_DISCARD {
                return Fact::Oversize { bytes: since_line };
            }
        }
    }

    /// One line. `Some` ends the connection.
    fn hear(
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
            Err(defect) => self.nonsense(&line, defect, listener, garbage),
        }
    }

    /// One message, alone on its line or in its document. With `asked`, it came in response to that request: no other
    /// can be answered by it. Says whether that one was.
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
                // An error without an id can only mean the request in whose response it stands.
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
                    if self.outbox.backlog() < REPLY_BACKLOG
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
                    // One bad part must not cost the answers behind it.
                    match self.message(line, part, asked, listener) {
                        Ok(here) => answered |= here,
                        Err(defect) => {
                            if !self.bad_answer(part, defect, listener) {
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
        // On a line of its own: whoever hears of it may ask the next.
        let waits = self.requests().waiting.remove(&number);
        match waits {
            Some(Waits::Call(call)) => listener.on_response(self, call, reply),
            // Whoever asked may have gone; then nobody misses the answer.
            Some(Waits::Own(sender)) => drop(sender.send(reply)),
            None => {}
        }
    }

    /// A line that is no message: if it was meant as the answer to something, that something fails now rather
    /// than at its deadline; otherwise it is kept as last words.
    fn nonsense(
        self: &Arc<Self>,
        line: &[u8],
        defect: Defect,
        listener: &dyn Listener,
        garbage: &mut Garbage,
    ) -> Option<Fact> {
        if self.bad_answer(line, defect, listener) {
            return None;
        }
        self.stderr.push_line(line);
        garbage.one_more().map(|lines| Fact::Garbage { lines })
    }

    /// Fails what this was meant to answer, if that can be told.
    pub(super) fn bad_answer(
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

/// Counts lines that are not the protocol, since the last one that was.
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
        if self.lines == 0 || self.since.elapsed() > GARBAGE_WINDOW {
            self.since = clock::instant();
            self.lines = 0;
        }
        self.lines += 1;
        (self.lines > GARBAGE_LINES).then_some(self.lines)
    }
}

#[cfg(test)]
mod tests;
