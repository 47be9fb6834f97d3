//! Request smuggling guard in front of hyper: heads and chunks that another HTTP parser might frame differently are rejected.
//! Owns: message framing (line ends, Content-Length, Transfer-Encoding, chunks).      Never: changes a byte of what it lets through.
//! In: bytes of a connection.  Out: the same bytes, or in place of the first ambiguous line one that hyper rejects with 400.
//! Tests: below, and `metamcp/tests/http/heads.rs`.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::MAX_HEAD;

/// Headers of a request, as many as hyper takes.
const MAX_HEADERS: usize = 100;
/// The line in front of a chunk: its size and extensions, which nobody uses.
const MAX_CHUNK_LINE: usize = 4 * 1024;
/// Trailers after the last chunk.
const MAX_TRAILERS: usize = 16 * 1024;
/// Bytes read at once while a line is incomplete.
const PIECE: usize = 4 * 1024;
/// Replaces rejected bytes. No message, chunk or trailer begins with it, so hyper responds with 400, where it still can,
/// and closes the connection.
const INVALID_BYTE: u8 = 0;

/// See the module.
pub(super) struct SmugglingGuard<S> {
    stream: S,
    parser: FramingParser,
}

impl<S> SmugglingGuard<S> {
    pub(super) fn new(stream: S) -> SmugglingGuard<S> {
        SmugglingGuard { stream, parser: FramingParser::default() }
    }
}

/// What the parser expects next.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Next {
    #[default]
    Head,
    ChunkLine,
    /// The CRLF after the data of a chunk.
    ChunkEnd,
    Trailers,
    /// Everything else passes: hyper rejects it.
    Anything,
    /// The connection is rejected.
    End,
}

/// Tracks message framing. Pure.
#[derive(Debug, Default)]
struct FramingParser {
    /// Bytes that were read and not passed on.
    held: Vec<u8>,
    /// How many of them were parsed, in complete lines.
    seen: usize,
    /// The start of the current line.
    line: usize,
    /// Bytes that pass before parsing goes on.
    pass: u64,
    next: Next,
}

/// A line that another parser might frame differently.
#[derive(Debug, PartialEq, Eq)]
struct BadFraming;

impl FramingParser {
    /// How many bytes, held ones first, pass unchanged. Zero if more has to be read first.
    fn passing(&mut self) -> u64 {
        while self.pass == 0 {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => return 0,
                Err(BadFraming) => {
                    self.held = vec![INVALID_BYTE];
                    (self.pass, self.next) = (1, Next::End);
                }
            }
        }
        self.pass
    }

    /// Parses the next element; false if it is incomplete.
    fn advance(&mut self) -> Result<bool, BadFraming> {
        match self.next {
            Next::Head => self.head(),
            Next::ChunkLine => self.chunk_line(),
            Next::ChunkEnd => match self.held.get(..2) {
                None => Ok(false),
                Some(b"\r\n") => Ok(self.found(2, Next::ChunkLine)),
                Some(_) => Err(BadFraming),
            },
            Next::Trailers => self.trailers(),
            Next::Anything => Ok(self.found(u64::MAX, Next::Anything)),
            Next::End => Ok(false),
        }
    }

    fn found(&mut self, pass: u64, next: Next) -> bool {
        (self.pass, self.next) = (pass, next);
        (self.seen, self.line) = (0, 0);
        true
    }

    /// Start and end of the next line, without its CRLF.
    fn next_line(&mut self) -> Result<Option<(usize, usize)>, BadFraming> {
        let Some(at) = self.held[self.seen..].iter().position(|byte| *byte == b'\n') else {
            self.seen = self.held.len();
            return Ok(None);
        };
        let at = self.seen + at;
        if at == self.line || self.held[at - 1] != b'\r' {
            return Err(BadFraming);
        }
        let line = (self.line, at - 1);
        (self.seen, self.line) = (at + 1, at + 1);
        Ok(Some(line))
    }

    fn head(&mut self) -> Result<bool, BadFraming> {
        while let Some((start, end)) = self.next_line()? {
            if start == end {
                return match start {
                    // Some clients send an empty line after a message (RFC 9112, 2.2).
                    0 => Ok(self.found(2, Next::Head)),
                    _ => self.whole_head(end + 2),
                };
            }
        }
        // Too long: hyper rejects it.
        Ok(self.held.len() > MAX_HEAD && self.found(u64::MAX, Next::Anything))
    }

    fn whole_head(&mut self, size: usize) -> Result<bool, BadFraming> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let Ok(httparse::Status::Complete(read)) = request.parse(&self.held[..size]) else {
            // Not a head, or too many headers: hyper says which.
            return Ok(self.found(u64::MAX, Next::Anything));
        };
        if read != size {
            return Err(BadFraming);
        }
        let named = |name: &'static str| {
            let is_so =
                move |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
            request.headers.iter().filter(is_so).map(|header| header.value)
        };
        let (mut lengths, mut codings) = (named("content-length"), named("transfer-encoding"));
        let said = (lengths.next(), codings.next());
        if lengths.next().is_some() || codings.next().is_some() {
            return Err(BadFraming);
        }
        let (body, next) = match said {
            (Some(_), Some(_)) => return Err(BadFraming),
            (Some(length), None) => (number(length, 10).ok_or(BadFraming)?, Next::Head),
            (None, Some(coding)) => {
                let is_known =
                    coding.eq_ignore_ascii_case(b"chunked") && request.version == Some(1);
                (0, if is_known { Next::ChunkLine } else { return Err(BadFraming) })
            }
            (None, None) => (0, Next::Head),
        };
        let pass = body.checked_add(size as u64).ok_or(BadFraming)?;
        Ok(self.found(pass, next))
    }

    fn chunk_line(&mut self) -> Result<bool, BadFraming> {
        let whole = self.next_line()?;
        if self.seen > MAX_CHUNK_LINE {
            return Err(BadFraming);
        }
        let Some((_, end)) = whole else { return Ok(false) };
        let line = &self.held[..end];
        let digits = line.iter().position(|byte| *byte == b';').unwrap_or(end);
        let size = number(&line[..digits], 16).ok_or(BadFraming)?;
        if line.contains(&b'\r') {
            return Err(BadFraming);
        }
        let line = end as u64 + 2;
        Ok(match size {
            0 => self.found(line, Next::Trailers),
            size => self.found(line.checked_add(size).ok_or(BadFraming)?, Next::ChunkEnd),
        })
    }

    fn trailers(&mut self) -> Result<bool, BadFraming> {
        while let Some((start, end)) = self.next_line()? {
            if self.seen > MAX_TRAILERS {
                return Err(BadFraming);
            }
            if start == end {
                return Ok(self.found(end as u64 + 2, Next::Head));
            }
        }
        if self.seen > MAX_TRAILERS { Err(BadFraming) } else { Ok(false) }
    }

    /// End of input: hyper gets the incomplete rest.
    fn end(&mut self) {
        if self.next != Next::End {
            self.found(u64::MAX, Next::Anything);
        }
    }
}

/// Digits and nothing else.
fn number(digits: &[u8], base: u32) -> Option<u64> {
    // `from_str_radix` accepts a sign.
    let is_plain = digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_plain)?;
    u64::from_str_radix(text, base).ok()
}

impl<S: AsyncRead + Unpin> AsyncRead for SmugglingGuard<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let SmugglingGuard { stream, parser } = self.get_mut();
        loop {
            let pass = parser.passing();
            if pass == 0 && parser.next == Next::End {
                return Poll::Ready(Ok(()));
            }
            if pass == 0 {
                let mut piece = [0; PIECE];
                let mut read = ReadBuf::new(&mut piece);
                ready!(Pin::new(&mut *stream).poll_read(cx, &mut read))?;
                match read.filled() {
                    [] if parser.held.is_empty() => return Poll::Ready(Ok(())),
                    [] => parser.end(),
                    read => parser.held.extend_from_slice(read),
                }
                continue;
            }
            let most = usize::try_from(pass).unwrap_or(usize::MAX).min(buf.remaining());
            let before = buf.filled().len();
            if !parser.held.is_empty() {
                let count = most.min(parser.held.len());
                buf.put_slice(&parser.held[..count]);
                parser.held.drain(..count);
            } else if most == buf.remaining() {
                ready!(Pin::new(&mut *stream).poll_read(cx, buf))?;
            } else {
                // The end of a body: not a byte beyond it before it is parsed.
                let mut part = ReadBuf::new(buf.initialize_unfilled_to(most));
                ready!(Pin::new(&mut *stream).poll_read(cx, &mut part))?;
                let count = part.filled().len();
                buf.advance(count);
            }
            let count = buf.filled().len() - before;
            if pass != u64::MAX {
                parser.pass -= count as u64;
            }
            return Poll::Ready(Ok(()));
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SmugglingGuard<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    /// What comes out, read in pieces of such a size, of a connection that sends this in pieces of another.
    async fn through(sent: &[u8], piece: usize) -> Vec<u8> {
        let pieces = Pieces(sent.chunks(piece).map(<[u8]>::to_vec).collect());
        let mut out = Vec::new();
        SmugglingGuard::new(pieces).read_to_end(&mut out).await.unwrap();
        out
    }

    /// Hands out one piece a read.
    struct Pieces(std::collections::VecDeque<Vec<u8>>);

    impl AsyncRead for Pieces {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if let Some(mut piece) = self.0.pop_front() {
                let rest = piece.split_off(piece.len().min(buf.remaining()));
                buf.put_slice(&piece);
                if !rest.is_empty() {
                    self.0.push_front(rest);
                }
            }
            Poll::Ready(Ok(()))
        }
    }

    const POST: &str = "POST /mcp HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab\ncd";
    const CHUNKS: &str = "POST /mcp HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\na\nb\r\n00B\r\n0123456789\n\r\n0\r\nX: y\r\n\r\n";
    const GET: &str = "\r\nGET /mcp HTTP/1.1\r\nHost: a\r\n\r\n";

    #[tokio::test]
    async fn what_can_be_read_in_one_way_passes_byte_for_byte() {
        let all = [POST, CHUNKS, GET, POST, GET, CHUNKS, CHUNKS, POST].concat();
        for piece in [1, 2, 3, 7, 64, 1000, all.len()] {
            assert_eq!(through(all.as_bytes(), piece).await, all.as_bytes(), "{piece}");
        }
        // Hyper judges what breaks off, wherever it does.
        for end in 0..CHUNKS.len() {
            let part = &CHUNKS.as_bytes()[..end];
            assert_eq!(through(part, 5).await, part, "{end}");
        }
        // So is what is far too long, or no head at all.
        let long = format!("POST / HTTP/1.1\r\nX: {}", "y".repeat(2 * MAX_HEAD));
        assert_eq!(through(long.as_bytes(), 1000).await, long.as_bytes());
        let nonsense = "not a head\r\n\r\nGET / HTTP/1.1\n\n";
        assert_eq!(through(nonsense.as_bytes(), 1000).await, nonsense.as_bytes());
    }

    #[tokio::test]
    async fn what_could_be_read_in_two_ways_ends_the_connection() {
        for (from, to) in [
            ("HTTP/1.1\r\n", "HTTP/1.1\n"),
            ("Host: a\r\n", "Host: a\n"),
            ("\r\n\r\n", "\n\n"),
            ("\r\n\r\n", "\r\n\n"),
            ("POST", "\nPOST"),
            ("Content-Length: 5", "Content-Length: 5\r\ncontent-length: 5"),
            ("Content-Length: 5", "Content-Length: 5\r\nContent-Length: 6"),
            ("Content-Length: 5", "Content-Length: 5, 5"),
            ("Content-Length: 5", "Content-Length: +5"),
            ("Content-Length: 5", "Content-Length: 0x5"),
            ("Content-Length: 5", "Content-Length:"),
            ("Content-Length: 5", "Content-Length: 18446744073709551616"),
            ("Content-Length: 5", "Content-Length: 18446744073709551615"),
            ("Content-Length: 5", "Content-Length: 5\r\nTransfer-Encoding: chunked"),
            ("Content-Length: 5", "Transfer-Encoding: chunked\r\nContent-Length: 5"),
            ("Content-Length: 5", "Transfer-Encoding: identity\r\nContent-Length: 5"),
            ("Content-Length: 5", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"),
            ("Content-Length: 5", "Transfer-Encoding: chunked, chunked"),
            ("Content-Length: 5", "Transfer-Encoding: gzip, chunked"),
            ("Content-Length: 5", "Transfer-Encoding: xchunked"),
            ("HTTP/1.1\r\nHost: a\r\nContent-Length: 5", "HTTP/1.0\r\nTransfer-Encoding: chunked"),
        ] {
            let bad = POST.replacen(from, to, 1);
            assert_ne!(bad, POST, "{from}");
            for piece in [1, 9, 1000] {
                assert_eq!(through(bad.as_bytes(), piece).await, [INVALID_BYTE], "{bad:?}");
                // Behind a good one, which passes.
                let both = format!("{CHUNKS}{bad}{GET}");
                let expected = [CHUNKS.as_bytes(), &[INVALID_BYTE]].concat();
                assert_eq!(through(both.as_bytes(), piece).await, expected, "{bad:?}");
            }
        }
    }

    #[tokio::test]
    async fn chunks_are_read_in_one_way_too() {
        for (from, to) in [
            ("3;x=y\r\n", "3;x=y\n"),
            ("3;x=y\r\n", "+3\r\n"),
            ("3;x=y\r\n", "3 \r\n"),
            ("3;x=y\r\n", "0x3\r\n"),
            ("3;x=y\r\n", "3;\rx\r\n"),
            ("3;x=y\r\n", "\r\n"),
            ("3;x=y\r\n", "10000000000000000\r\n"),
            ("a\nb\r\n", "a\nb\n"),
            ("a\nb\r\n", "a\nbc\r\n"),
            ("a\nb\r\n", "a\n\r\n"),
            ("0\r\nX: y\r\n\r\n", "0\nX: y\r\n\r\n"),
            ("X: y\r\n\r\n", "X: y\n\r\n"),
            ("X: y\r\n\r\n", "X: y\r\n\n"),
        ] {
            let bad = CHUNKS.replacen(from, to, 1);
            assert_ne!(bad, CHUNKS, "{from}");
            let out = through(format!("{bad}{GET}").as_bytes(), 11).await;
            assert_eq!(out.last(), Some(&INVALID_BYTE), "{bad:?}");
            assert!(!out.windows(3).any(|three| three == b"GET"), "{bad:?}");
        }
        let long = CHUNKS.replacen("x=y", &"x".repeat(MAX_CHUNK_LINE), 1);
        assert_eq!(through(long.as_bytes(), 100).await.last(), Some(&INVALID_BYTE));
        let long = CHUNKS.replacen("X: y", &"X: y\r\n".repeat(MAX_TRAILERS), 1);
        assert_eq!(through(long.as_bytes(), 100).await.last(), Some(&INVALID_BYTE));
    }
}
