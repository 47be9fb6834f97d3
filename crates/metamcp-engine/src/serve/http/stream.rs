//! One event stream to a client: written by the session, read by at most one response at a time. Its last events are kept
//! so that a client that lost its connection can resume.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use metamcp_wire::write;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Sleep;

use super::connection_timer::ConnectionTimer;
use crate::clock;

/// Sent events kept for resumption.
const RING_EVENTS: usize = 64;
/// Their bytes. A larger event is not kept.
const RING_BYTES: usize = 1024 * 1024;
/// Bodies of events below this size are copied, larger ones sent as they are.
const COPY_BELOW: usize = 8 * 1024;
/// Events are batched up to this size, so that a burst takes few writes.
const GATHER: usize = 16 * 1024;
/// Interval of keep-alive comments: less than the minute after which intermediaries close an idle connection.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The SSE `retry` field: how long a client should wait before it reconnects, in milliseconds.
const RETRY_MS: u64 = 1000;

/// Longest list of request ids inside an event id.
const MAX_ABOUT: usize = 192;

/// The last stream number. Unique in the process, so that an event id names one stream.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Bits of a number that count; the others say which process of a fleet it is of.
const COUNTING: u32 = 28;
/// Numbers stay exact in every JSON parser.
const EXACT: u64 = (1 << 53) - 1;

/// The first number of a process of a fleet.
pub(in crate::serve) fn range_of(process: u64) -> u64 {
    ((process << COUNTING) & EXACT).max(1 << COUNTING)
}

/// Numbers streams in the range of this process.
pub fn count_from(process: u64) {
    LAST.store(range_of(process), Ordering::Relaxed);
}

/// Whether a stream's number is one of this process.
pub fn is_own(number: u64) -> bool {
    number >> COUNTING == LAST.load(Ordering::Relaxed) >> COUNTING
}

/// Counts requests as in flight while it is held: by the stream until it is over, and by its response until that is
/// written.
pub type Ticket = Arc<dyn Send + Sync>;

/// One message, ending in a line break.
#[derive(Debug, Clone)]
pub struct Event {
    head: Bytes,
    body: Bytes,
    tail: &'static [u8],
}

impl Event {
    /// A message in one piece.
    pub fn whole(message: Bytes) -> Event {
        Event { head: message, body: Bytes::new(), tail: b"" }
    }

    /// A message whose middle is large and shared.
    pub fn parts(head: Bytes, body: Bytes, tail: &'static [u8]) -> Event {
        Event { head, body, tail }
    }

    /// Length in bytes.
    pub fn size(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// The message as one slice.
    pub fn to_bytes(&self) -> Bytes {
        if self.body.is_empty() && self.tail.is_empty() {
            return self.head.clone();
        }
        let mut whole = BytesMut::with_capacity(self.size());
        self.append(&mut whole);
        whole.freeze()
    }

    fn append(&self, out: &mut BytesMut) {
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&self.body);
        out.extend_from_slice(self.tail);
    }
}

/// See the module.
pub struct Stream {
    number: u64,
    /// The requests it answers, for a gateway that has to say that their answers are not there. Only in a fleet.
    about: Option<Box<str>>,
    /// Whether events are kept after they were sent.
    keeps: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    /// The position of the oldest event kept; the first ever has 1.
    first: u64,
    /// The position the reader gets next.
    next: u64,
    /// Bytes not sent yet.
    unsent: usize,
    /// Bytes sent and kept.
    kept: usize,
    /// Responses still to come; `None` for a stream without end.
    awaited: Option<usize>,
    closed: bool,
    /// Number of readers so far; only the newest may read.
    generation: u64,
    read: bool,
    /// Whether a reader got events rather than one document.
    streamed: bool,
    waker: Option<Waker>,
    ticket: Option<Ticket>,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({})", self.number)
    }
}

impl Stream {
    /// A stream that stays open until it is closed.
    pub fn general(keeps: bool) -> Arc<Stream> {
        Stream::new(None, keeps, None, None)
    }

    /// A stream that ends with the last of `answers` responses.
    pub fn awaiting(answers: usize, keeps: bool, ticket: Option<Ticket>) -> Arc<Stream> {
        Stream::new(Some(answers), keeps, ticket, None)
    }

    /// The same; its event ids say which requests it is about.
    pub fn awaiting_named(tags: &[Bytes], keeps: bool, ticket: Option<Ticket>) -> Arc<Stream> {
        Stream::new(Some(tags.len()), keeps, ticket, about(tags))
    }

    fn new(
        awaited: Option<usize>,
        keeps: bool,
        ticket: Option<Ticket>,
        about: Option<Box<str>>,
    ) -> Arc<Stream> {
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let state = State { awaited, ticket, first: 1, next: 1, ..State::default() };
        Arc::new(Stream { number, about, keeps, state: Mutex::new(state) })
    }

    /// Its number, unique in the process.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Appends a message that is not a response.
    pub fn push(&self, event: Event) {
        let mut state = self.lock();
        if !state.is_over() {
            state.append(event);
        }
    }

    /// Appends a response; true if it was the last one awaited.
    pub fn answer(&self, event: Event) -> bool {
        let mut state = self.lock();
        if state.is_over() {
            return false;
        }
        state.awaited = state.awaited.map(|awaited| awaited - 1);
        state.append(event);
        state.settle()
    }

    /// One response will not come.
    pub fn miss(&self) {
        let mut state = self.lock();
        state.awaited = state.awaited.map(|awaited| awaited.saturating_sub(1));
        state.settle();
    }

    /// Ends the stream.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.settle();
    }

    /// Whether nothing more will come.
    pub fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// Bytes not read yet.
    pub fn backlog(&self) -> usize {
        self.lock().unsent
    }

    /// Whether a response is reading it.
    pub fn is_read(&self) -> bool {
        self.lock().read
    }

    /// Whether a client may resume it: it disconnected before the end, or read it event by event.
    pub fn is_worth_keeping(&self) -> bool {
        let state = self.lock();
        self.keeps && (!state.read || state.streamed)
    }

    /// Reads from the event after that position, else from the first unread one. Replaces an earlier reader: that is the
    /// same client on a connection that broke.
    pub fn read(self: &Arc<Self>, after: Option<u64>) -> Reader {
        let mut state = self.lock();
        state.generation += 1;
        state.read = true;
        state.wake();
        if let Some(after) = after {
            let next = after.saturating_add(1).clamp(state.first, state.end());
            state.rewind(next);
        }
        let (generation, ticket) = (state.generation, state.ticket.clone());
        drop(state);
        Reader {
            stream: Arc::clone(self),
            generation,
            ticket,
            format: Format::Numbered,
            frames: VecDeque::new(),
            quiet: None,
            leave: None,
        }
    }

    fn write_id(&self, out: &mut BytesMut, position: u64) {
        out.put_slice(b"id: ");
        write::number(out, self.number);
        out.put_u8(b'-');
        write::number(out, position);
        if let Some(about) = &self.about {
            out.put_u8(b'-');
            out.put_slice(about.as_bytes());
        }
        out.put_u8(b'\n');
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.closed || self.awaited == Some(0)
    }

    /// The position the next event will have.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn append(&mut self, event: Event) {
        self.unsent += event.size();
        self.events.push_back(event);
        self.wake();
    }

    /// What follows when nothing more will come.
    fn settle(&mut self) -> bool {
        let over = self.is_over();
        if over {
            self.ticket = None;
            self.wake();
        }
        over
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// The next event and its position.
    fn advance(&mut self, keeps: bool) -> Option<(u64, Event)> {
        let index = usize::try_from(self.next - self.first).ok()?;
        let position = self.next;
        if !keeps && index == 0 {
            // Not kept: it cannot be resumed.
            let event = self.events.pop_front()?;
            self.unsent -= event.size();
            (self.first, self.next) = (self.first + 1, self.next + 1);
            return Some((position, event));
        }
        let event = self.events.get(index)?.clone();
        self.next += 1;
        self.unsent -= event.size();
        self.kept += event.size();
        let (most_events, most_bytes) = if keeps { (RING_EVENTS, RING_BYTES) } else { (0, 0) };
        while self.next - self.first > most_events as u64 || self.kept > most_bytes {
            let Some(old) = self.events.pop_front() else { break };
            self.kept -= old.size();
            self.first += 1;
        }
        Some((position, event))
    }

    /// Moves to a position that is still kept.
    fn rewind(&mut self, next: u64) {
        let split = usize::try_from(next - self.first).unwrap_or(usize::MAX);
        let size = |events: &mut dyn Iterator<Item = &Event>| events.map(Event::size).sum();
        self.kept = size(&mut self.events.iter().take(split));
        self.unsent = size(&mut self.events.iter().skip(split));
        self.next = next;
    }
}

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// With ids to resume by.
    Numbered,
    /// Without ids, as in the HTTP+SSE transport.
    Plain,
}

/// What a stream begins with.
#[derive(Debug)]
pub enum First {
    /// The response, and nothing follows.
    Answer(Event),
    /// Other messages first.
    Events,
    /// Nothing within the timeout.
    Silence,
    /// The stream is over without a message.
    Nothing,
}

/// The reading end of a stream; as the body of a response it writes events.
pub struct Reader {
    stream: Arc<Stream>,
    generation: u64,
    ticket: Option<Ticket>,
    format: Format,
    frames: VecDeque<Bytes>,
    /// When the next keep-alive comment is due.
    quiet: Option<Pin<Box<Sleep>>>,
    leave: Option<OnDisconnect>,
}

/// Called when a reader is dropped before its stream is over.
pub type OnDisconnect = Box<dyn FnOnce() + Send + Sync>;

impl Reader {
    /// Sets what to do if the reader is dropped before the stream is over.
    #[must_use]
    pub fn on_disconnect(mut self, leave: OnDisconnect) -> Reader {
        self.leave = Some(leave);
        self
    }

    /// The ticket of the requests it reads; `None` if they were all answered when it began.
    pub fn ticket(&self) -> Option<Ticket> {
        self.ticket.clone()
    }

    /// Makes the response an event stream, whatever comes first.
    pub fn stream(&mut self) {
        self.lock().streamed = true;
    }

    /// Begins with an event of an id and `retry` only, so that the client can resume before the first message.
    pub fn prime(&mut self) {
        let position = self.lock().next - 1;
        let mut out = BytesMut::new();
        self.stream.write_id(&mut out, position);
        out.put_slice(format!("retry: {RETRY_MS}\ndata: \n\n").as_bytes());
        self.frames.push_back(out.freeze());
    }

    /// Writes events as the HTTP+SSE transport of 2024 does: first the endpoint to post to, then messages without ids.
    #[must_use]
    pub fn plain(mut self, endpoint: &str) -> Reader {
        self.format = Format::Plain;
        self.frames.push_back(Bytes::from(format!("event: endpoint\ndata: {endpoint}\n\n")));
        self
    }

    /// The next event, without waiting.
    pub fn ready(&mut self) -> Option<Event> {
        let keeps = self.stream.keeps;
        self.lock().advance(keeps).map(|(_, event)| event)
    }

    /// Waits for the first message, until the timeout. A lone response is taken out of the stream.
    pub async fn first(&mut self, connection_timer: &ConnectionTimer, timeout: Duration) -> First {
        let begun = poll_fn(|cx| self.poll_begun(cx));
        let first = connection_timer.within(timeout, begun).await.unwrap_or(First::Silence);
        if matches!(first, First::Events | First::Silence) {
            self.lock().streamed = true;
        }
        first
    }

    /// Waits for the end and takes every event.
    pub async fn all(&mut self) -> Vec<Event> {
        poll_fn(|cx| {
            let mut state = self.lock();
            if state.is_over() {
                return Poll::Ready(());
            }
            state.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        std::iter::from_fn(|| self.ready()).collect()
    }

    fn poll_begun(&mut self, cx: &mut Context<'_>) -> Poll<First> {
        let mut state = self.lock();
        match state.events.len() {
            0 if state.is_over() => Poll::Ready(First::Nothing),
            0 => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            1 if state.awaited == Some(0) => match state.advance(false) {
                Some((_, event)) => Poll::Ready(First::Answer(event)),
                None => Poll::Ready(First::Events),
            },
            _ => Poll::Ready(First::Events),
        }
    }

    /// Turns available events into frames; true if the stream is over for this reader.
    fn gather(&mut self, cx: &mut Context<'_>) -> bool {
        let (keeps, format) = (self.stream.keeps, self.format);
        let stream = Arc::clone(&self.stream);
        let mut state = stream.lock();
        if state.generation != self.generation {
            return true;
        }
        state.streamed = true;
        let mut out = BytesMut::new();
        while out.len() < GATHER {
            let Some((position, event)) = state.advance(keeps) else { break };
            // An id promises that the stream can be resumed.
            if format == Format::Numbered && keeps {
                stream.write_id(&mut out, position);
            }
            out.put_slice(b"event: message\ndata: ");
            if event.body.len() < COPY_BELOW {
                event.append(&mut out);
            } else {
                out.put_slice(&event.head);
                self.frames.extend([out.split().freeze(), event.body]);
                out.put_slice(event.tail);
            }
            out.put_slice(b"\n");
        }
        if !out.is_empty() {
            self.frames.push_back(out.freeze());
        }
        if self.frames.is_empty() && !state.is_over() {
            state.waker = Some(cx.waker().clone());
        }
        self.frames.is_empty() && state.is_over()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.stream.lock()
    }
}

impl Body for Reader {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let me = self.get_mut();
        if me.frames.is_empty() && me.gather(cx) {
            me.leave = None;
            return Poll::Ready(None);
        }
        if let Some(frame) = me.frames.pop_front() {
            me.quiet = None;
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        let quiet = me.quiet.get_or_insert_with(|| Box::pin(tokio::time::sleep(KEEP_ALIVE)));
        if quiet.as_mut().poll(cx).is_ready() {
            quiet.as_mut().reset(clock::instant() + KEEP_ALIVE);
            // Registers the waker for the next time.
            let _pending = quiet.as_mut().poll(cx);
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b": keep-alive\n\n")))));
        }
        Poll::Pending
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.lock();
        if state.generation == self.generation {
            state.read = false;
            state.waker = None;
        }
        let over = state.is_over();
        drop(state);
        if let Some(leave) = self.leave.take().filter(|_| !over) {
            leave();
        }
    }
}

/// What an event id stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventId {
    pub stream: u64,
    pub position: u64,
    /// The ids of the requests that the stream answers, where it says so.
    pub requests: Vec<Bytes>,
}

/// Reads an event id. It comes from a client, which may have made it up.
pub fn from_event_id(id: &str) -> Option<EventId> {
    let mut parts = id.splitn(3, '-');
    let stream = parts.next()?.parse().ok()?;
    let position = parts.next()?.parse().ok()?;
    let requests = match parts.next() {
        Some(about) => requests_of(about)?,
        None => Vec::new(),
    };
    Some(EventId { stream, position, requests })
}

/// Ids of requests as a part of event ids; `None` where they are too long for that.
fn about(tags: &[Bytes]) -> Option<Box<str>> {
    let list = [b"[", &*tags.join(&b','), b"]"].concat();
    (list.len() <= MAX_ABOUT).then(|| URL_SAFE_NO_PAD.encode(list).into())
}

fn requests_of(about: &str) -> Option<Vec<Bytes>> {
    if about.len() > MAX_ABOUT * 2 {
        return None;
    }
    let list = URL_SAFE_NO_PAD.decode(about).ok()?;
    let ids: Vec<serde_json::Value> = serde_json::from_slice(&list).ok()?;
    let is_id = |id: &serde_json::Value| id.is_string() || id.is_number();
    ids.iter().all(is_id).then(|| ids.iter().map(|id| Bytes::from(id.to_string())).collect())
}

#[cfg(test)]
mod tests;
