//! Request bodies: read whole within a limit, or drained and discarded.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};

/// Bytes drained of the body of a rejected request: a client that is cut off while it still sends sees a broken
/// connection instead of the response.
const MAX_DISCARDED: usize = 32 * 1024 * 1024;
/// Time for that.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) enum RequestBody<'a> {
    /// Still arriving, from hyper.
    Streaming(&'a mut Incoming),
    /// Complete and within the limit, from the fast path.
    Buffered(Bytes),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyReadError {
    TooLong,
    /// The memory for bodies is used up.
    NoRoom,
    /// The client disconnected, or its framing is invalid.
    Broken,
}

/// Reads a body of at most `limit` bytes; `room` reserves memory for each piece. A body in one piece, as most are, is not
/// copied.
pub(super) async fn whole<B>(
    body: &mut B,
    limit: usize,
    mut room: impl FnMut(usize) -> bool,
) -> Result<Bytes, BodyReadError>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|_| BodyReadError::Broken)?.into_data() else { continue };
        if first.len().max(all.len()) + piece.len() > limit {
            return Err(BodyReadError::TooLong);
        }
        if !room(piece.len()) {
            return Err(BodyReadError::NoRoom);
        }
        if first.is_empty() && all.is_empty() {
            first = piece;
            continue;
        }
        all.extend_from_slice(&std::mem::take(&mut first));
        all.extend_from_slice(&piece);
    }
    Ok(if all.is_empty() { first } else { all.freeze() })
}

/// Drains a body, within bounds.
pub(super) async fn discard(body: &mut Incoming) {
    let length = body.size_hint().lower();
    if body.is_end_stream() || length > MAX_DISCARDED as u64 {
        return;
    }
    let mut room = MAX_DISCARDED;
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            match room.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                Some(rest) => room = rest,
                None => return,
            }
        }
    };
    // Best effort: a client that is still sending then may miss the response.
    drop(tokio::time::timeout(DISCARD_TIMEOUT, reading).await);
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::HeaderMap;
    use hyper::body::Frame;

    use super::*;

    struct Frames(VecDeque<Result<Frame<Bytes>, ()>>);

    impl Body for Frames {
        type Data = Bytes;
        type Error = ();

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
            Poll::Ready(self.0.pop_front())
        }
    }

    async fn read(pieces: &[&'static str], end: Option<Result<Frame<Bytes>, ()>>) -> String {
        let pieces =
            pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
        let mut body = Frames(pieces.chain(end).collect());
        match whole(&mut body, 6, |_| true).await {
            Ok(whole) => String::from_utf8(whole.to_vec()).unwrap(),
            Err(unread) => format!("{unread:?}"),
        }
    }

    #[tokio::test]
    async fn a_body_is_read_to_its_end_and_not_beyond_the_limit() {
        for pieces in [&["abcdef"][..], &["abc", "def"], &["", "a", "", "bcde", "f", ""]] {
            assert_eq!(read(pieces, None).await, "abcdef", "{pieces:?}");
            assert_eq!(read(pieces, Some(Ok(Frame::trailers(HeaderMap::new())))).await, "abcdef");
            assert_eq!(read(pieces, Some(Err(()))).await, "Broken", "{pieces:?}");
            let more = Frame::data(Bytes::from_static(b"g"));
            assert_eq!(read(pieces, Some(Ok(more))).await, "TooLong", "{pieces:?}");
        }
        assert_eq!(read(&["abcdefg"], None).await, "TooLong");
        let pieces =
            ["ab", "cd"].map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
        let mut left = 3_usize;
        let room = |size: usize| left.checked_sub(size).map(|rest| left = rest).is_some();
        let unread = whole(&mut Frames(pieces.into()), 6, room).await;
        assert_eq!(unread, Err(BodyReadError::NoRoom));
        assert_eq!(read(&[], None).await, "");
    }
}
