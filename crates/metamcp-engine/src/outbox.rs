//! The write queue of one pipe: anybody pushes, one task writes, and every byte is counted.
//! Owns: the queue and the count of bytes the peer received.      Never: blocks a pusher, reorders.
//! In: whole messages.  Out: batches for the one writer.
//! Tests: below, and the crash tests that count executions.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Notify;

use crate::clock::Clock;

/// From this size on a message is queued without copying; below it, copying into one buffer is cheaper than a separate
/// write.
const COPY_BELOW: usize = 8 * 1024;
/// Slices in one vectored write.
const PIECES: usize = 16;

#[derive(Debug, Default)]
pub struct Outbox {
    queue: Mutex<Queue>,
    filled: Notify,
    emptied: Notify,
    /// Bytes pushed so far.
    pushed: AtomicU64,
    /// Bytes the peer received so far.
    taken: AtomicU64,
    closed: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Bytes>,
    tail: BytesMut,
}

#[derive(Debug)]
pub enum WriteEnd {
    /// The outbox was closed and everything before that was written.
    Closed,
    /// The peer read nothing for so long.
    Stalled(Duration),
    Broken(io::Error),
}

impl Outbox {
    /// Queues one message written by `build`; returns the stream position of its end.
    pub fn push(&self, build: impl FnOnce(&mut BytesMut)) -> u64 {
        let mut queue = self.queue.lock();
        let before = queue.tail.len();
        build(&mut queue.tail);
        let length = queue.tail.len() - before;
        self.pushed_more(length)
    }

    /// The same if `build` may fail: then it has appended nothing.
    pub(crate) fn try_push<E>(
        &self,
        build: impl FnOnce(&mut BytesMut) -> Result<(), E>,
    ) -> Result<u64, E> {
        let mut queue = self.queue.lock();
        let before = queue.tail.len();
        build(&mut queue.tail)?;
        let length = queue.tail.len() - before;
        Ok(self.pushed_more(length))
    }

    /// Queues one message whose middle is large and shared.
    pub fn push_parts(&self, head: &[u8], body: Bytes, tail: &[u8]) -> u64 {
        if body.len() < COPY_BELOW {
            return self.push(|out| {
                out.extend_from_slice(head);
                out.extend_from_slice(&body);
                out.extend_from_slice(tail);
            });
        }
        let mut queue = self.queue.lock();
        let length = head.len() + body.len() + tail.len();
        queue.tail.extend_from_slice(head);
        let before = queue.tail.split().freeze();
        queue.pieces.push_back(before);
        queue.pieces.push_back(body);
        queue.tail.extend_from_slice(tail);
        self.pushed_more(length)
    }

    /// Whether the peer has received all but the last byte up to here: then it may have seen the message.
    pub fn was_sent(&self, end: u64) -> bool {
        self.taken.load(Ordering::Relaxed) + 1 >= end
    }

    /// How many bytes the peer received, of how many were pushed.
    pub fn stands(&self) -> (u64, u64) {
        let taken = self.taken.load(Ordering::Relaxed);
        (taken, self.pushed.load(Ordering::Relaxed).max(taken))
    }

    pub fn backlog(&self) -> u64 {
        self.pushed.load(Ordering::Relaxed) - self.taken.load(Ordering::Relaxed)
    }

    /// Closes the queue: the writer ends once it has written the rest.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Release);
        self.filled.notify_one();
    }

    /// Waits until at most so many bytes are queued, or the writer is gone.
    pub async fn drained(&self, limit: u64) {
        loop {
            let emptied = self.emptied.notified();
            if self.backlog() <= limit || self.closed.load(Ordering::Acquire) {
                return;
            }
            emptied.await;
        }
    }

    /// Writes until closed, broken, or stalled for `patience`. The only writer.
    pub async fn write_to<W: AsyncWrite + Unpin>(
        &self,
        mut writer: W,
        patience: Option<(Clock, Duration)>,
    ) -> WriteEnd {
        let mut batch: VecDeque<Bytes> = VecDeque::new();
        loop {
            self.take(&mut batch);
            if batch.is_empty() {
                if self.closed.load(Ordering::Acquire) && self.backlog() == 0 {
                    return WriteEnd::Closed;
                }
                self.filled.notified().await;
                continue;
            }
            while !batch.is_empty() {
                let written = match patience {
                    None => write_some(&mut writer, &batch).await,
                    Some((clock, limit)) => {
                        match clock.timeout(limit, write_some(&mut writer, &batch)).await {
                            Some(written) => written,
                            None => return self.end(WriteEnd::Stalled(limit)),
                        }
                    }
                };
                match written {
                    Ok(0) => return self.end(WriteEnd::Broken(io::ErrorKind::WriteZero.into())),
                    Ok(count) => {
                        self.taken.fetch_add(count as u64, Ordering::Relaxed);
                        advance(&mut batch, count);
                    }
                    Err(error) => return self.end(WriteEnd::Broken(error)),
                }
            }
            // A pipe has nothing to flush; a terminal written on a thread has.
            if let Err(error) = writer.flush().await {
                return self.end(WriteEnd::Broken(error));
            }
            self.emptied.notify_waiters();
        }
    }

    /// Takes the queued messages, once there are any, for a reader that sends them by other means. False once closed and
    /// empty. The only reader, in place of the writer.
    pub async fn next(&self, batch: &mut VecDeque<Bytes>) -> bool {
        loop {
            self.take(batch);
            if !batch.is_empty() {
                return true;
            }
            if self.closed.load(Ordering::Acquire) && self.backlog() == 0 {
                return false;
            }
            self.filled.notified().await;
        }
    }

    /// So many bytes of what was taken were sent.
    pub fn took(&self, bytes: usize) {
        self.taken.fetch_add(bytes as u64, Ordering::Relaxed);
        self.emptied.notify_waiters();
    }

    fn end(&self, end: WriteEnd) -> WriteEnd {
        self.closed.store(true, Ordering::Release);
        self.emptied.notify_waiters();
        end
    }

    fn take(&self, batch: &mut VecDeque<Bytes>) {
        let mut queue = self.queue.lock();
        batch.append(&mut queue.pieces);
        if !queue.tail.is_empty() {
            batch.push_back(queue.tail.split().freeze());
        }
    }

    fn pushed_more(&self, length: usize) -> u64 {
        let end = self.pushed.fetch_add(length as u64, Ordering::Relaxed) + length as u64;
        self.filled.notify_one();
        end
    }
}

async fn write_some<W: AsyncWrite + Unpin>(
    writer: &mut W,
    batch: &VecDeque<Bytes>,
) -> io::Result<usize> {
    if batch.len() == 1 {
        return writer.write(&batch[0]).await;
    }
    let mut slices = [io::IoSlice::new(&[]); PIECES];
    let mut count = 0;
    for (slice, piece) in slices.iter_mut().zip(batch) {
        *slice = io::IoSlice::new(piece);
        count += 1;
    }
    writer.write_vectored(&slices[..count]).await
}

fn advance(batch: &mut VecDeque<Bytes>, mut count: usize) {
    while count > 0 {
        let Some(front) = batch.front_mut() else { return };
        if count < front.len() {
            drop(front.split_to(count));
            return;
        }
        count -= front.len();
        batch.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn writes_everything_in_order_and_counts_what_was_taken() {
        let outbox = Outbox::default();
        let first = outbox.push(|out| out.extend_from_slice(b"small\n"));
        let big = Bytes::from(vec![b'x'; 100_000]);
        let second = outbox.push_parts(b"<", big.clone(), b">\n");
        outbox.close();
        assert!(!outbox.was_sent(first));
        let mut written = Vec::new();
        let end = outbox.write_to(&mut written, None).await;
        assert!(matches!(end, WriteEnd::Closed));
        let mut expected = b"small\n<".to_vec();
        expected.extend_from_slice(&big);
        expected.extend_from_slice(b">\n");
        assert_eq!(written, expected);
        assert_eq!(second, expected.len() as u64);
        assert!(outbox.was_sent(second));
    }

    #[tokio::test]
    async fn all_but_the_newline_counts_as_sent() {
        let outbox = Outbox::default();
        let end = outbox.push(|out| out.extend_from_slice(b"1234\n"));
        // A peer that takes four bytes and then breaks.
        let (near, far) = tokio::io::duplex(4);
        let mut writing = std::pin::pin!(outbox.write_to(near, None));
        tokio::select! {
            _ = &mut writing => panic!("nothing broke yet"),
            () = poll_until(|| outbox.backlog() == 1) => {}
        }
        drop(far);
        assert!(matches!(writing.await, WriteEnd::Broken(_)));
        assert!(outbox.was_sent(end));
    }

    async fn poll_until(condition: impl Fn() -> bool) {
        while !condition() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_stalled() {
        let outbox = Outbox::default();
        let end = outbox.push(|out| out.extend_from_slice(&[b'y'; 64]));
        let (near, _far) = tokio::io::duplex(8);
        let result = outbox.write_to(near, Some((Clock::start(), Duration::from_secs(10)))).await;
        assert!(matches!(result, WriteEnd::Stalled(_)));
        assert!(!outbox.was_sent(end));
    }
}
