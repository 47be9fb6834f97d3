//! A stream that yields bytes which were already read from it before it reads on.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// See the module. Without such bytes it is the stream itself.
pub(in crate::serve::http) struct Rewind<S> {
    read: Bytes,
    stream: S,
}

impl<S> Rewind<S> {
    pub(super) fn new(stream: S, read: Bytes) -> Rewind<S> {
        Rewind { read, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewind<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        if me.read.is_empty() {
            return Pin::new(&mut me.stream).poll_read(cx, buf);
        }
        let count = me.read.len().min(buf.remaining());
        buf.put_slice(&me.read.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewind<S> {
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

    #[tokio::test]
    async fn what_was_read_comes_first_and_once() {
        for piece in [1, 3, 64] {
            let mut rewind = Rewind::new(&b"def"[..], Bytes::from_static(b"abc"));
            let mut all = Vec::new();
            let mut buffer = vec![0; piece];
            loop {
                let count = rewind.read(&mut buffer).await.unwrap();
                if count == 0 {
                    break;
                }
                all.extend_from_slice(&buffer[..count]);
            }
            assert_eq!(all, b"abcdef", "{piece}");
        }
    }
}
