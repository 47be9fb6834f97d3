//! Requests in the form that nearly all have, a POST of HTTP/1.1 that says its length, at half of the library's cost.
//! Owns: reading them, and writing answers that are documents.      Never: refuses or mends anything, decides who comes in.
//! In: a connection.  Out: answers; from the first request or answer of another form on, all that was read, for the library.
//! Tests: below `plain/`, `tests/bodies/http.rs`, `metamcp/tests/http/roads.rs`.

pub mod head;
mod response_head;

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
use head::{Head, ParsedHead};
use response_head::HeadWriter;

/// What is held of a connection at first: most requests fit.
const USUAL: usize = 4 * 1024;
/// Requests that are longer, with their heads, are read by the library, which counts what all of them take together.
const MOST: usize = 16 * 1024;
/// A request in more pieces than this is read by the library, which does not begin anew with each of them.
const MOST_PIECES: usize = 8;
/// How soon a body has to follow its head: many clients send the two apart, and hardly any waits in between. For one that
/// does the library waits, which can refuse it by its head alone.
const SOON: Duration = Duration::from_millis(100);
/// Answers up to this size are copied behind their heads, so that they leave in one write.
const TOGETHER: usize = 8 * 1024;

/// What the library goes on with.
pub(super) struct Handover {
    /// What was read and not answered.
    pub(super) read: Bytes,
    /// The answer to the first request of it, if that was taken already.
    pub(super) answer: Option<Response<Answer>>,
    /// When the head of that request has to be here.
    pub(super) until: Instant,
}

/// Answers requests of one connection until it is over, or until one comes that is for the library. `patience` is for the
/// next request; `ending` says that no further ones are taken.
pub(super) async fn serve<S>(
    stream: &mut S,
    handler: &Handler,
    connection_timer: &ConnectionTimer,
    patience: Duration,
    ending: &AtomicBool,
) -> Option<Handover>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut buffer = Buffer { bytes: vec![0; USUAL], filled: 0 };
    let mut known: Option<CachedHead> = None;
    let mut writer = HeadWriter::default();
    loop {
        let until = Instant::now() + patience;
        let longest = handler.longest_body();
        let request =
            arrived(stream, &mut buffer, known.as_ref(), longest, connection_timer, ending);
        let (head, length) = match connection_timer.before(until, request).await {
            Some(Arrived::Same(head, length)) => (head, length),
            Some(Arrived::Other(next)) => {
                let found = (next.size, next.length);
                known = Some(CachedHead { head: *next, admission: None });
                found
            }
            Some(Arrived::Unsupported) => return Some(buffer.left(None, until)),
            Some(Arrived::Nothing) => return None,
            // What is late with its head is not waited for; what is late with its body is told so.
            None if buffer.has_head() => return Some(buffer.left(None, until)),
            None => return None,
        };
        let known = known.as_mut()?;
        let body = Bytes::copy_from_slice(&buffer.read()[head..head + length]);
        let answering = known.answer(handler, body, connection_timer);
        let mut response = unless_gone(stream, &mut buffer, answering).await?;
        if let Content::Events(_) = response.body().content {
            return Some(buffer.left(Some(response), until));
        }
        buffer.forget(head + length);
        let closes = writer.compose(&response, ending.load(Ordering::Relaxed));
        let document = response.body_mut().take().unwrap_or_default();
        // The response itself, with what counts it, is held until then.
        let written = write(stream, &mut writer.bytes, document).await;
        drop(response);
        if written.is_err() || closes {
            return None;
        }
    }
}

/// A head that was let in before, as long as the same one comes again: it differs in the length of the body at most.
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
        let admission = match self.admission.take().filter(|known| handler.admits_again(known)) {
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

/// What came.
enum Arrived {
    /// A request with the same head as the one before: how long its head is, and its body.
    Same(usize, usize),
    /// Another one.
    Other(Box<Head>),
    /// Something for the library.
    Unsupported,
    /// Nothing, and nothing will.
    Nothing,
}

/// Waits for a whole request.
async fn arrived<S: AsyncRead + Unpin>(
    stream: &mut S,
    buffer: &mut Buffer,
    known: Option<&CachedHead>,
    longest: usize,
    connection_timer: &ConnectionTimer,
    ending: &AtomicBool,
) -> Arrived {
    let longest = longest.min(MOST);
    for _ in 0..=MOST_PIECES {
        let read = buffer.read();
        let (wanted, has_head) = if let Some((head, length)) =
            known.and_then(|known| known.head.fits(read))
        {
            if length > longest {
                return Arrived::Unsupported;
            }
            if read.len() >= head + length {
                return Arrived::Same(head, length);
            }
            (head + length, true)
        } else {
            match head::look(read) {
                ParsedHead::Unsupported => return Arrived::Unsupported,
                ParsedHead::Partial => (read.len() + 1, false),
                ParsedHead::Complete(head) if head.length > longest => return Arrived::Unsupported,
                ParsedHead::Complete(head) if read.len() >= head.size + head.length => {
                    return Arrived::Other(head);
                }
                ParsedHead::Complete(head) => (head.size + head.length, true),
            }
        };
        // There is always room for another byte, by which one sees whether the client is there.
        if wanted >= MOST {
            return Arrived::Unsupported;
        }
        buffer.widen(wanted + 1);
        let more = poll_fn(|cx| {
            if ending.load(Ordering::Relaxed) && buffer.filled == 0 {
                return Poll::Ready(Ok(0));
            }
            buffer.poll_more(stream, cx)
        });
        let more = match has_head {
            true => connection_timer.within(SOON, more).await,
            false => Some(more.await),
        };
        let Some(more) = more else { return Arrived::Unsupported };
        match more {
            Ok(0) | Err(_) if buffer.filled == 0 => return Arrived::Nothing,
            // It is told what the library tells those who break off.
            Ok(0) => return Arrived::Unsupported,
            Ok(_) => {}
            Err(_) => return Arrived::Nothing,
        }
    }
    Arrived::Unsupported
}

/// Waits for an answer as long as somebody does; `None` if the client left.
async fn unless_gone<S: AsyncRead + Unpin, T>(
    stream: &mut S,
    buffer: &mut Buffer,
    answering: impl Future<Output = T>,
) -> Option<T> {
    let mut answering = pin!(answering);
    let mut looks = !buffer.is_full();
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answering.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        if looks {
            match ready!(buffer.poll_more(stream, cx)) {
                Ok(0) | Err(_) => return Poll::Ready(None),
                // The next request, which has to wait; until it is read, nobody can see behind it.
                Ok(_) => looks = false,
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
    if document.len() <= TOGETHER {
        head.extend_from_slice(&document);
        stream.write_all(head).await?;
    } else {
        stream.write_all_buf(&mut head.as_slice().chain(document)).await?;
    }
    // A socket has nothing to flush; TLS has.
    stream.flush().await
}

/// What was read of a connection and not answered yet.
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
        !matches!(head::look(self.read()), ParsedHead::Partial)
    }

    fn widen(&mut self, wanted: usize) {
        if self.bytes.len() < wanted {
            self.bytes.resize(MOST, 0);
        }
    }

    /// Takes out what was answered.
    fn forget(&mut self, count: usize) {
        self.bytes.copy_within(count..self.filled, 0);
        self.filled -= count;
        if self.filled == 0 && self.bytes.len() > USUAL {
            // Who rests for hours shall not hold what one long request took.
            self.bytes = vec![0; USUAL];
        }
    }

    fn left(self, answer: Option<Response<Answer>>, until: Instant) -> Handover {
        let Buffer { mut bytes, filled } = self;
        bytes.truncate(filled);
        Handover { read: Bytes::from(bytes), answer, until }
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
