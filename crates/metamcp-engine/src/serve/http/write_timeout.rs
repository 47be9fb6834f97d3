//! A write timeout: a connection whose client stops reading fails, since its unread responses are held in memory.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::pending_writes::PendingWrites;

/// Vectored writes up to this size are copied together and written as one, which costs less. Most responses are smaller
/// with their heads.
const COPY_BELOW: usize = 4 * 1024;

/// See the module.
pub(super) struct WriteTimeout<S> {
    stream: S,
    timeout: Duration,
    /// Runs while a write is blocked.
    waiting: Option<Pin<Box<Sleep>>>,
    pending_writes: PendingWrites,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S, timeout: Duration) -> WriteTimeout<S> {
        let pending_writes = PendingWrites::default();
        WriteTimeout { stream, timeout, waiting: None, pending_writes }
    }

    /// Emptied with every flush.
    pub(super) fn pending_writes(&self) -> PendingWrites {
        self.pending_writes.clone()
    }

    /// The result of a write, or `TimedOut` if it has been blocked for too long.
    fn limited<T>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.waiting = None;
            return done;
        }
        let timeout = self.timeout;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(sleep(timeout)));
        ready!(waiting.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let done = Pin::new(&mut me.stream).poll_write(cx, bytes);
        me.limited(cx, done)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        let mut together = [0; COPY_BELOW];
        let done = match gathered(slices, &mut together) {
            Some(bytes) => Pin::new(&mut me.stream).poll_write(cx, bytes),
            None => Pin::new(&mut me.stream).poll_write_vectored(cx, slices),
        };
        me.limited(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let done = Pin::new(&mut me.stream).poll_flush(cx);
        if let Poll::Ready(Ok(())) = done {
            me.pending_writes.written();
        }
        me.limited(cx, done)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        let done = Pin::new(&mut me.stream).poll_shutdown(cx);
        me.limited(cx, done)
    }
}

/// The slices copied into one, if they fit.
fn gathered<'a>(
    slices: &[io::IoSlice<'_>],
    together: &'a mut [u8; COPY_BELOW],
) -> Option<&'a [u8]> {
    let mut length = 0;
    for slice in slices {
        together.get_mut(length..length + slice.len())?.copy_from_slice(slice);
        length += slice.len();
    }
    Some(&together[..length])
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stops_is_given_up_and_a_slow_one_is_not() {
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = WriteTimeout::new(near, Duration::from_secs(30));
        let reading = tokio::spawn(async move {
            let mut all = [0; 64];
            for chunk in all.chunks_mut(8) {
                sleep(Duration::from_secs(20)).await;
                far.read_exact(chunk).await.unwrap();
            }
            far
        });
        near.write_all(&[b'x'; 64]).await.unwrap();
        let far = reading.await.unwrap();
        let stopped = near.write_all(&[b'x'; 64]).await.unwrap_err();
        assert_eq!(stopped.kind(), io::ErrorKind::TimedOut);
        drop(far);
    }

    /// Records each write and whether it was vectored.
    #[derive(Default)]
    struct Counting(Vec<(bool, Vec<u8>)>);

    impl AsyncWrite for Counting {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.get_mut().0.push((false, bytes.to_vec()));
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[io::IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
            let count = all.len();
            self.get_mut().0.push((true, all));
            Poll::Ready(Ok(count))
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn small_pieces_leave_as_one_and_large_ones_are_not_copied() {
        let mut near = WriteTimeout::new(Counting::default(), Duration::from_secs(30));
        let write = |pieces: [&'static [u8]; 2]| pieces.map(io::IoSlice::new);
        assert_eq!(near.write_vectored(&write([b"head", b"body"])).await.unwrap(), 8);
        let large: &[u8] = &[b'x'; COPY_BELOW];
        assert_eq!(near.write_vectored(&write([b"", large])).await.unwrap(), COPY_BELOW);
        assert_eq!(near.write_vectored(&write([b"h", large])).await.unwrap(), COPY_BELOW + 1);
        let written = &near.stream.0;
        assert_eq!(written[0], (false, b"headbody".to_vec()));
        assert_eq!((written[1].0, &written[1].1[..]), (false, large));
        assert_eq!((written[2].0, written[2].1.len()), (true, COPY_BELOW + 1));
    }
}
