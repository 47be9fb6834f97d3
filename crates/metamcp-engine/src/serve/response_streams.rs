//! The streams from a session to its client: messages of a request take its stream, the rest the general one.
//! Owns: which stream a message takes, what is queued on it.      Never: builds messages, knows sessions.
//! In: messages, with the tag of the request they belong to.  Out: bytes of one stdout, or events of streams.
//! Tests: below, `http/stream.rs`, and every test with a real client.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::{Mutex, MutexGuard};

use super::http::stream::{Event, Stream, Ticket};
use crate::outbox::Outbox;

/// Notifications are dropped rather than queued for a client that has this much to read already.
const NOTIFY_BACKLOG: u64 = 8 * 1024 * 1024;
/// The same for one stream of many.
const STREAM_BACKLOG: usize = 1024 * 1024;
/// The same while nobody reads the stream.
const UNREAD_BACKLOG: usize = 64 * 1024;
/// Room for most messages, so that building one allocates once.
const USUAL_MESSAGE: usize = 512;
/// Most answered streams of one session that can be replayed.
const REPLAYABLE: usize = 8;

/// See the module.
pub enum ResponseStreams {
    /// One pipe for everything.
    Pipe(Arc<Outbox>),
    /// One stream of events for everything.
    Shared(Arc<Stream>),
    /// A stream for each request, and one for the rest.
    PerRequest(RequestStreams),
}

impl ResponseStreams {
    /// What the client is connected by, in the words of OpenTelemetry. A connector hands on the pipe of its client.
    pub fn transport(&self) -> &'static str {
        match self {
            ResponseStreams::Pipe(_) => "pipe",
            ResponseStreams::Shared(_) | ResponseStreams::PerRequest(_) => "tcp",
        }
    }

    /// Sends the response to a request, or to a message that could not be parsed.
    pub fn answer(&self, tag: Option<&[u8]>, build: impl FnOnce(&mut BytesMut)) {
        match self {
            ResponseStreams::Pipe(outbox) => {
                outbox.push(build);
            }
            ResponseStreams::Shared(stream) => stream.push(event(build)),
            ResponseStreams::PerRequest(streams) => streams.answer(tag, event(build)),
        }
    }

    /// Sends a response whose body is large and shared.
    pub fn answer_parts(&self, tag: &[u8], head: &[u8], body: Bytes, tail: &'static [u8]) {
        let event = |body| Event::parts(Bytes::copy_from_slice(head), body, tail);
        match self {
            ResponseStreams::Pipe(outbox) => {
                outbox.push_parts(head, body, tail);
            }
            ResponseStreams::Shared(stream) => stream.push(event(body)),
            ResponseStreams::PerRequest(streams) => streams.answer(Some(tag), event(body)),
        }
    }

    /// Sends anything else: a notification or a server request.
    pub fn tell(&self, tag: Option<&[u8]>, build: impl FnOnce(&mut BytesMut)) {
        match self {
            ResponseStreams::Pipe(outbox) => {
                outbox.push(build);
            }
            ResponseStreams::Shared(stream) => stream.push(event(build)),
            ResponseStreams::PerRequest(streams) => streams.stream_for(tag).push(event(build)),
        }
    }

    /// Whether a message that may be dropped should be sent: not to a client that does not keep up.
    pub fn has_room(&self, tag: Option<&[u8]>) -> bool {
        match self {
            ResponseStreams::Pipe(outbox) => outbox.backlog() < NOTIFY_BACKLOG,
            ResponseStreams::Shared(stream) => has_room(stream),
            ResponseStreams::PerRequest(streams) => has_room(&streams.stream_for(tag)),
        }
    }

    /// Whether a server request can reach the client, and its response come back.
    pub fn can_ask(&self, tag: Option<&[u8]>) -> bool {
        match self {
            ResponseStreams::Pipe(_) | ResponseStreams::Shared(_) => true,
            ResponseStreams::PerRequest(streams) => streams.can_ask(tag),
        }
    }

    /// Whether this request has an event stream of its own, which is not over.
    pub fn has(&self, tag: &[u8]) -> bool {
        match self {
            ResponseStreams::PerRequest(streams) => {
                !streams.mode.json
                    && !streams.mode.stateless
                    && streams.lock().open.contains_key(tag)
            }
            _ => false,
        }
    }

    /// The request will not be answered.
    pub fn end(&self, tag: &[u8]) {
        if let ResponseStreams::PerRequest(streams) = self {
            streams.end(tag);
        }
    }

    /// Nothing more will be sent.
    pub fn close(&self) {
        match self {
            ResponseStreams::Pipe(outbox) => outbox.close(),
            ResponseStreams::Shared(stream) => stream.close(),
            ResponseStreams::PerRequest(streams) => streams.close(),
        }
    }

    /// Whether nobody reads and nothing is queued.
    pub fn is_quiet(&self) -> bool {
        match self {
            ResponseStreams::Pipe(_) | ResponseStreams::Shared(_) => false,
            ResponseStreams::PerRequest(streams) => streams.is_quiet(),
        }
    }
}

/// How the requests of an HTTP client are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseMode {
    /// Responses are single JSON documents: other messages of a request take the general stream.
    pub json: bool,
    /// There is only this request: no general stream, no server requests, no replay.
    pub stateless: bool,
    /// A client may resume at another gateway, which has to know what it would resume.
    pub fleet: bool,
}

/// A stream for each request, and one for the rest.
#[derive(Debug)]
pub struct RequestStreams {
    mode: ResponseMode,
    general: Arc<Stream>,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    open: HashMap<Bytes, Arc<Stream>>,
    /// Answered ones that can be replayed, with the number of sweeps they have seen.
    replayable: VecDeque<(u8, Arc<Stream>)>,
}

/// A request with this id is in progress in the session already.
#[derive(Debug, PartialEq, Eq)]
pub struct IdInUse(pub Bytes);

impl RequestStreams {
    pub fn new(mode: ResponseMode) -> RequestStreams {
        RequestStreams { mode, general: Stream::general(!mode.stateless), table: Mutex::default() }
    }

    pub fn mode(&self) -> ResponseMode {
        self.mode
    }

    /// The stream of messages that belong to no request.
    pub fn general(&self) -> &Arc<Stream> {
        &self.general
    }

    /// Opens one stream for the responses to these requests.
    pub fn open(&self, tags: &[Bytes], ticket: Option<Ticket>) -> Result<Arc<Stream>, IdInUse> {
        let mut table = self.lock();
        if let Some(used) = tags.iter().enumerate().find_map(|(at, tag)| {
            (table.open.contains_key(tag) || tags[..at].contains(tag)).then_some(tag)
        }) {
            return Err(IdInUse(used.clone()));
        }
        let stream = match self.mode.fleet && !self.mode.stateless {
            true => Stream::awaiting_named(tags, true, ticket),
            false => Stream::awaiting(tags.len(), !self.mode.stateless, ticket),
        };
        for tag in tags {
            table.open.insert(tag.clone(), Arc::clone(&stream));
        }
        Ok(stream)
    }

    /// The stream of that number: of a request, or the general one.
    pub fn numbered(&self, number: u64) -> Option<Arc<Stream>> {
        if self.general.number() == number {
            return Some(Arc::clone(&self.general));
        }
        let table = self.lock();
        let replayable = table.replayable.iter().map(|(_, stream)| stream);
        table.open.values().chain(replayable).find(|stream| stream.number() == number).cloned()
    }

    /// Drops answered streams at the second sweep that sees them.
    pub fn sweep(&self) {
        let mut table = self.lock();
        table.replayable.retain_mut(|(seen, _)| {
            *seen += 1;
            *seen < 2
        });
    }

    fn answer(&self, tag: Option<&[u8]>, event: Event) {
        let Some(tag) = tag else { return };
        let mut table = self.lock();
        let Some(stream) = table.open.remove(tag) else { return };
        if stream.answer(event) && stream.is_worth_keeping() {
            if table.replayable.len() >= REPLAYABLE {
                table.replayable.pop_front();
            }
            table.replayable.push_back((0, stream));
        }
    }

    fn end(&self, tag: &[u8]) {
        let stream = self.lock().open.remove(tag);
        if let Some(stream) = stream {
            stream.miss();
        }
    }

    fn close(&self) {
        let table = std::mem::take(&mut *self.lock());
        table.open.into_values().for_each(|stream| stream.close());
        self.general.close();
    }

    fn stream_for(&self, tag: Option<&[u8]>) -> Arc<Stream> {
        let own =
            tag.filter(|_| !self.mode.json).and_then(|tag| self.lock().open.get(tag).cloned());
        own.unwrap_or_else(|| Arc::clone(&self.general))
    }

    fn can_ask(&self, tag: Option<&[u8]>) -> bool {
        if self.mode.stateless {
            return false;
        }
        let stream = self.stream_for(tag);
        !Arc::ptr_eq(&stream, &self.general) || stream.is_read()
    }

    fn is_quiet(&self) -> bool {
        let table = self.lock();
        table.open.is_empty() && table.replayable.is_empty() && !self.general.is_read()
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }
}

fn event(build: impl FnOnce(&mut BytesMut)) -> Event {
    let mut out = BytesMut::with_capacity(USUAL_MESSAGE);
    build(&mut out);
    Event::whole(out.freeze())
}

fn has_room(stream: &Stream) -> bool {
    stream.backlog() < if stream.is_read() { STREAM_BACKLOG } else { UNREAD_BACKLOG }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODE: ResponseMode = ResponseMode { json: false, stateless: false, fleet: false };

    fn tag(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    fn texts(stream: &Arc<Stream>) -> Vec<String> {
        let mut reader = stream.read(None);
        std::iter::from_fn(|| reader.ready())
            .map(|event| String::from_utf8(event.to_bytes().to_vec()).unwrap())
            .collect()
    }

    #[test]
    fn what_belongs_to_a_request_takes_its_stream() {
        let response_streams = ResponseStreams::PerRequest(RequestStreams::new(MODE));
        let ResponseStreams::PerRequest(streams) = &response_streams else { unreachable!() };
        let one = streams.open(&[tag("1")], None).unwrap();
        let two = streams.open(&[tag("2")], None).unwrap();
        response_streams.tell(Some(b"2"), |out| out.extend_from_slice(b"progress of 2"));
        response_streams.tell(None, |out| out.extend_from_slice(b"news"));
        response_streams.answer(Some(b"1"), |out| out.extend_from_slice(b"answer 1"));
        response_streams.tell(Some(b"1"), |out| out.extend_from_slice(b"after 1"));
        response_streams.answer_parts(b"2", b"answer ", Bytes::from_static(b"2"), b"!");
        assert_eq!(texts(&one), ["answer 1"]);
        assert_eq!(texts(&two), ["progress of 2", "answer 2!"]);
        assert_eq!(
            texts(streams.general()),
            ["news", "after 1"],
            "a late message has no stream of its own"
        );
    }

    #[test]
    fn an_id_is_free_again_once_it_is_answered() {
        let streams = RequestStreams::new(MODE);
        let first = streams.open(&[tag("1")], None).unwrap();
        assert_eq!(streams.open(&[tag("2"), tag("1")], None).unwrap_err(), IdInUse(tag("1")));
        assert_eq!(streams.open(&[tag("3"), tag("3")], None).unwrap_err(), IdInUse(tag("3")));
        streams.answer(Some(b"1"), Event::whole(tag("done")));
        let second = streams.open(&[tag("1")], None).unwrap();
        streams.end(b"1");
        assert_eq!(texts(&first), ["done"]);
        assert!(second.is_over() && texts(&second).is_empty());
    }

    #[test]
    fn answered_streams_can_be_read_again_for_a_while() {
        let streams = RequestStreams::new(MODE);
        let stream = streams.open(&[tag("1")], None).unwrap();
        streams.answer(Some(b"1"), Event::whole(tag("done")));
        assert!(!streams.is_quiet(), "its client has not come for the answer yet");
        let again = streams.numbered(stream.number()).unwrap();
        assert_eq!(texts(&again), ["done"]);
        streams.sweep();
        assert!(streams.numbered(stream.number()).is_some());
        streams.sweep();
        assert!(streams.numbered(stream.number()).is_none() && streams.is_quiet());
    }

    #[test]
    fn a_client_that_wants_documents_gets_the_rest_on_the_general_stream() {
        let response_streams =
            ResponseStreams::PerRequest(RequestStreams::new(ResponseMode { json: true, ..MODE }));
        let ResponseStreams::PerRequest(streams) = &response_streams else { unreachable!() };
        let one = streams.open(&[tag("1")], None).unwrap();
        response_streams.tell(Some(b"1"), |out| out.extend_from_slice(b"progress"));
        assert!(!response_streams.can_ask(Some(b"1")), "nobody reads the general stream");
        assert_eq!(texts(streams.general()), ["progress"]);
        let _reader = streams.general().read(None);
        assert!(response_streams.can_ask(Some(b"1")));
        assert_eq!(one.backlog(), 0);
    }
}
