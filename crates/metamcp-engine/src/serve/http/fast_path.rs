//! The HTTP fast path: ordinary POST requests read, and their JSON responses written, without hyper.
//! Owns: parsing such heads, reusing an admission for identical heads, writing responses that are one document, handing over to hyper.      Never: rejects or repairs a request, decides who is admitted.
//! In: a connection.  Out: responses; from the first other request or streamed response on, every unanswered byte, for hyper.
//! Tests: below `fast_path/`, `tests/bodies/http.rs` (fuzzed), `metamcp/tests/http/fast_path.rs` (both paths against each other, and the switch).
//!
//! Why it exists: nearly every request is a short HTTP/1.1 POST with a Content-Length, and reading and answering those
//! through hyper was over a fifth of their cost. Per request: 12.9 us with hyper, 10.1 us here (9.5 us at 64 connections).
//! Why it can be trusted: it parses with httparse, as hyper does, and takes only heads that say in one way where the
//! body ends; everything else is hyper's. 280,000 differential cases against hyper found no desync.
//!
//! One switch turns it off, `--http-fast-path=false`: `serve/http.rs` then gives every connection to hyper at once.
//! Nothing else in the gateway depends on it. What it shares with the hyper path: `ConnectionTimer`, `WriteTimeout`,
//! `Handler::admit` and `Handler::go`.

pub mod head;
mod response_head;
mod rewind;

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use hyper::Response;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

use super::body::RequestBody;
use super::connection_timer::ConnectionTimer;
use super::handler::{Admission, Handler};
use super::reply::{Answer, Content};
use crate::clock;
use head::{Head, ParsedHead};
use response_head::HeadWriter;
use rewind::Rewind;

/// Read buffer of a connection at first: most requests fit.
const USUAL_BUFFER: usize = 4 * 1024;
/// Longer requests, heads included, are hyper's: its path counts what all bodies take together.
const MAX_REQUEST: usize = 16 * 1024;
/// Requests in more pieces than this are hyper's, which does not parse the head again with each piece.
const MAX_READS: usize = 8;
/// How soon a body has to follow its head. Many clients send the two apart, and hardly any pauses in between; for one
/// that does, hyper waits, which can reject it by its head alone.
const BODY_TIMEOUT: Duration = Duration::from_millis(100);
/// Documents up to this size are copied behind their heads, so that they leave in one write.
const COPY_BELOW: usize = 8 * 1024;

/// Where hyper takes over. The default is a connection nothing was read from.
#[derive(Default)]
pub(super) struct Handover {
    /// Bytes that were read and not answered.
    read: Bytes,
    /// The response to the first request among them, if it was dispatched already.
    pub(super) response: Option<Response<Answer>>,
    /// By when the head of that request has to be complete.
    pub(super) head_deadline: Option<Instant>,
}

impl Handover {
    /// The connection as hyper has to see it: from the first unanswered byte on.
    pub(super) fn rewind<S>(&mut self, stream: S) -> Rewind<S> {
        Rewind::new(stream, std::mem::take(&mut self.read))
    }
}

/// Serves requests of one connection until it ends (`None`), or until one has to be hyper's. `head_timeout` is the time
/// for the next head; once `draining` is set, no further requests are read.
pub(super) async fn serve<S>(
    stream: &mut S,
    handler: &Handler,
    connection_timer: &ConnectionTimer,
    head_timeout: Duration,
    draining: &AtomicBool,
) -> Option<Handover>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = Buffer { bytes: vec![0; USUAL_BUFFER], filled: 0 };
    let mut cached: Option<CachedHead> = None;
    let mut writer = HeadWriter::default();
    loop {
        let deadline = clock::instant() + head_timeout;
        let max_body = handler.http_config.body_bytes;
        let request = next_request(
            stream,
            &mut buffer,
            cached.as_ref(),
            max_body,
            connection_timer,
            draining,
        );
        let (head, length) = match connection_timer.before(deadline, request).await {
            Some(NextRequest::SameHead(head, length)) => (head, length),
            Some(NextRequest::OtherHead(next)) => {
                let found = (next.size, next.length);
                cached = Some(CachedHead { head: *next, admission: None });
                found
            }
            Some(NextRequest::Unsupported) => return Some(buffer.hand_over(None, deadline)),
            Some(NextRequest::Closed) => return None,
            // A late head ends the connection; a late body is told so, by hyper.
            None if buffer.has_head() => return Some(buffer.hand_over(None, deadline)),
            None => return None,
        };
        let cached = cached.as_mut()?;
        let body = Bytes::copy_from_slice(&buffer.read()[head..head + length]);
        let answering = cached.answer(handler, body, connection_timer);
        let mut response = unless_disconnected(stream, &mut buffer, answering).await?;
        if let Content::Events(_) = response.body().content {
            return Some(buffer.hand_over(Some(response), deadline));
        }
        buffer.consume(head + length);
        let is_last = draining.load(Ordering::Relaxed) || handler.has_moved();
        let closes = writer.compose(&response, is_last);
        let document = response.body_mut().take().unwrap_or_default();
        // Dropping the response ends its count as in flight, so it is held until it is written.
        let written = write(stream, &mut writer.bytes, document).await;
        drop(response);
        if written.is_err() || closes {
            return None;
        }
    }
}

/// The last head and its admission, reused as long as the next head is identical but for its Content-Length.
struct CachedHead {
    head: Head,
    admission: Option<Admission>,
}

impl CachedHead {
    async fn answer(
        &mut self,
        handler: &Handler,
        body: Bytes,
        connection_timer: &ConnectionTimer,
    ) -> Response<Answer> {
        let parts = &self.head.parts;
        let admission = match self.admission.take().filter(|known| is_valid(handler, known)) {
            Some(admission) => admission,
            None => match handler.admit(parts) {
                Ok(admission) => admission,
                Err(error_response) => return *error_response,
            },
        };
        let admission = self.admission.insert(admission);
        handler.go(admission, parts, RequestBody::Buffered(body), connection_timer).await
    }
}

/// Whether the admission of a head still holds: its token may have been replaced.
fn is_valid(handler: &Handler, admission: &Admission) -> bool {
    admission.good_for == Some(handler.http_config.access.generation())
}

enum NextRequest {
    /// A complete request with the head of the one before: the lengths of head and body.
    SameHead(usize, usize),
    /// A complete request with another head.
    OtherHead(Box<Head>),
    /// One for hyper.
    Unsupported,
    /// None: the connection is over.
    Closed,
}

/// Waits for a whole request.
async fn next_request<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut Buffer,
    cached: Option<&CachedHead>,
    max_body: usize,
    connection_timer: &ConnectionTimer,
    draining: &AtomicBool,
) -> NextRequest {
    let max_body = max_body.min(MAX_REQUEST);
    for _ in 0..=MAX_READS {
        let read = buffer.read();
        let (wanted, has_head) =
            if let Some((head, length)) = cached.and_then(|cached| cached.head.fits(read)) {
                if length > max_body {
                    return NextRequest::Unsupported;
                }
                if read.len() >= head + length {
                    return NextRequest::SameHead(head, length);
                }
                (head + length, true)
            } else {
                match head::parse(read) {
                    ParsedHead::Unsupported => return NextRequest::Unsupported,
                    ParsedHead::Partial => (read.len() + 1, false),
                    ParsedHead::Complete(head) if head.length > max_body => {
                        return NextRequest::Unsupported;
                    }
                    ParsedHead::Complete(head) if read.len() >= head.size + head.length => {
                        return NextRequest::OtherHead(head);
                    }
                    ParsedHead::Complete(head) => (head.size + head.length, true),
                }
            };
        // One byte of room is always left: reading it is how a disconnect is noticed.
        if wanted >= MAX_REQUEST {
            return NextRequest::Unsupported;
        }
        buffer.widen(wanted + 1);
        let more = poll_fn(|cx| {
            if draining.load(Ordering::Relaxed) && buffer.filled == 0 {
                return Poll::Ready(Ok(0));
            }
            buffer.poll_more(stream, cx)
        });
        let more = match has_head {
            true => connection_timer.within(BODY_TIMEOUT, more).await,
            false => Some(more.await),
        };
        let Some(more) = more else { return NextRequest::Unsupported };
        match more {
            Ok(0) | Err(_) if buffer.filled == 0 => return NextRequest::Closed,
            // Broken off in the middle: hyper says so.
            Ok(0) => return NextRequest::Unsupported,
            Ok(_) => {}
            Err(_) => return NextRequest::Closed,
        }
    }
    NextRequest::Unsupported
}

/// Waits for a response; `None` if the client disconnected first.
async fn unless_disconnected<S: AsyncRead + Unpin, T>(
    stream: &mut S,
    buffer: &mut Buffer,
    answering: impl Future<Output = T>,
) -> Option<T> {
    let mut answering = pin!(answering);
    let mut reads = !buffer.is_full();
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answering.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        if reads {
            match ready!(buffer.poll_more(stream, cx)) {
                Ok(0) | Err(_) => return Poll::Ready(None),
                // A pipelined request: until it is answered, a disconnect behind it cannot be seen.
                Ok(_) => reads = false,
            }
        }
        Poll::Pending
    })
    .await
}

async fn write<S: AsyncWrite + Unpin>(
    stream: &mut S,
    head: &mut Vec<u8>,
    document: Bytes,
) -> io::Result<()> {
    if document.len() <= COPY_BELOW {
        head.extend_from_slice(&document);
        stream.write_all(head).await?;
    } else {
        stream.write_all_buf(&mut head.as_slice().chain(document)).await?;
    }
    // A socket has nothing to flush; TLS has.
    stream.flush().await
}

/// Bytes that were read and not answered yet.
struct Buffer {
    bytes: Vec<u8>,
    filled: usize,
}

impl Buffer {
    fn read(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    fn is_full(&self) -> bool {
        self.filled == self.bytes.len()
    }

    fn has_head(&self) -> bool {
        !matches!(head::parse(self.read()), ParsedHead::Partial)
    }

    fn widen(&mut self, wanted: usize) {
        if self.bytes.len() < wanted {
            self.bytes.resize(MAX_REQUEST, 0);
        }
    }

    /// Removes a request that was answered.
    fn consume(&mut self, count: usize) {
        self.bytes.copy_within(count..self.filled, 0);
        self.filled -= count;
        if self.filled == 0 && self.bytes.len() > USUAL_BUFFER {
            // A connection that is idle for hours must not hold the memory of one long request.
            self.bytes = vec![0; USUAL_BUFFER];
        }
    }

    fn hand_over(self, response: Option<Response<Answer>>, deadline: Instant) -> Handover {
        let Buffer { mut bytes, filled } = self;
        bytes.truncate(filled);
        Handover { read: Bytes::from(bytes), response, head_deadline: Some(deadline) }
    }

    fn poll_more<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(&mut self.bytes[self.filled..]);
        ready!(Pin::new(stream).poll_read(cx, &mut room))?;
        let count = room.filled().len();
        self.filled += count;
        Poll::Ready(Ok(count))
    }
}
