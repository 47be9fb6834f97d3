//! Splits bytes from a pipe into lines: each a message, or a notice that one was too long.
//! Owns: the read buffer, the line limit, the id of a discarded line.      Never: reads, parses messages.
//! In: bytes appended to `Lines::buffer`.  Out: `Line`.
//! Tests: `frame/tests.rs`, `fuzz/fuzz_targets/codec.rs`.

mod skim;

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

pub use skim::{Skim, skim};

/// Default line limit: larger than usual results, small enough to hold one per child.
pub const MAX_LINE: usize = 16 * 1024 * 1024;

/// Size of a fresh buffer: what a pipe holds, so that one read can empty it.
const START: usize = 64 * 1024;

/// Least free space offered to a reader: below it, reads become small and many.
const MIN_SPACE: usize = 8 * 1024;

/// From here on a line counts as long, and gets a mapping of its own.
const LONG: usize = 2 * 1024 * 1024;

/// Size of the buffer of a long line. glibc maps what is larger than 32 MiB separately, whatever was
/// freed before: pages count once they are written, and all of them go back with the line. Smaller
/// buffers would stay in the heap after the first of them was freed, holding 16 MiB and more for good.
const MAPPED: usize = 33 * 1024 * 1024;

/// One line of the other side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A line that is not blank, without its line break or byte order mark.
    ///
    /// It shares the read buffer: copy what is to be kept beyond the handling of the message.
    Message(Bytes),
    /// A line over the limit; its bytes are gone.
    Oversize {
        /// The JSON text of its top-level `id`, if it had exactly one that is a string or a number.
        id: Option<Vec<u8>>,
        /// Whether it had a top-level `method`: then `id` is the other side's, not the answer to ours.
        request: bool,
        /// Its length in bytes without the newline.
        length: u64,
    },
}

/// Splits a stream of bytes into lines.
#[derive(Debug)]
pub struct Lines {
    buffer: BytesMut,
    /// Bytes at the front of the buffer known to hold no newline.
    searched: usize,
    limit: usize,
    /// The line being discarded, if any.
    discarded: Option<Discarded>,
    /// The buffer of the last long line, for reuse: writing to fresh pages costs more than everything else that is done
    /// with such a line.
    spare: Option<Spare>,
}

/// A part of a long line's buffer, and the size of the whole, which is ours again once the line is gone.
#[derive(Debug)]
struct Spare {
    part: BytesMut,
    whole: usize,
}

#[derive(Debug, Default)]
struct Discarded {
    skim: Skim,
    length: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Lines::new(MAX_LINE)
    }
}

impl Lines {
    /// Lines of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Lines { buffer: BytesMut::new(), searched: 0, limit, discarded: None, spare: None }
    }

    /// Where a reader appends, with free space in it. Call [`Lines::next_line`] until it gives `None` after each read.
    pub fn buffer(&mut self) -> &mut BytesMut {
        let used = self.buffer.len();
        if self.buffer.capacity() - used < MIN_SPACE {
            let most = self.limit.saturating_add(START).max(used + MIN_SPACE);
            // Doubling keeps copying linear.
            let wanted =
                if used < LONG { (used * 2).max(START).min(most) } else { most.max(MAPPED) };
            // Where the last line was long the next one may be: growing step by step would write pages anew.
            if used < START || !self.reuse() {
                self.buffer.reserve(wanted - used);
            }
        }
        &mut self.buffer
    }

    /// Whether part of a line has been read and its end not yet.
    pub fn is_inside(&self) -> bool {
        !self.buffer.is_empty() || self.discarded.is_some()
    }

    /// Whether a buffer is kept for the next long line. A reader that has been idle for a while should release it.
    pub fn has_spare(&self) -> bool {
        self.spare.is_some()
    }

    /// Releases the buffer for the next long line.
    pub fn drop_spare(&mut self) {
        self.spare = None;
    }

    /// Continues in the buffer of the last long line, if that line is gone.
    fn reuse(&mut self) -> bool {
        let Some(Spare { mut part, whole }) = self.spare.take() else { return false };
        // Asking for the whole leaves no way but to begin at its front, where the pages have been written before.
        if self.buffer.len() + MIN_SPACE > whole || !part.try_reclaim(whole) {
            return false;
        }
        part.extend_from_slice(&self.buffer);
        self.buffer = part;
        true
    }

    /// The next complete line that is not blank.
    pub fn next_line(&mut self) -> Option<Line> {
        loop {
            if self.discarded.is_some() {
                return self.discard();
            }
            let Some(offset) = memchr(b'\n', &self.buffer[self.searched..]) else {
                self.searched = self.buffer.len();
                if self.searched > self.limit {
                    return self.discard();
                }
                return None;
            };
            let end = self.searched + offset;
            self.searched = 0;
            if end > self.limit {
                return self.discard();
            }
            let mut line = self.buffer.split_to(end + 1);
            line.truncate(end);
            self.release(end);
            if let Some(message) = trimmed(line) {
                return Some(Line::Message(message));
            }
        }
    }

    /// The rest when the stream has ended, to be called until `None`: the last line may lack its newline.
    pub fn finish(&mut self) -> Option<Line> {
        if let Some(line) = self.next_line() {
            return Some(line);
        }
        if let Some(discarded) = self.discarded.take() {
            return Some(discarded.line());
        }
        self.searched = 0;
        trimmed(std::mem::take(&mut self.buffer)).map(Line::Message)
    }

    /// Discards the buffered part of a line over the limit; returns the line once its end is seen.
    fn discard(&mut self) -> Option<Line> {
        let discarded = self.discarded.get_or_insert_default();
        self.searched = 0;
        let end = memchr(b'\n', &self.buffer);
        let part = &self.buffer[..end.unwrap_or(self.buffer.len())];
        discarded.skim.feed(part);
        discarded.length += part.len() as u64;
        match end {
            Some(end) => {
                self.buffer.advance(end + 1);
                self.release(end);
                self.discarded.take().map(Discarded::line)
            }
            None => {
                self.buffer.clear();
                if self.buffer.capacity() > START {
                    self.buffer = BytesMut::new();
                }
                None
            }
        }
    }

    /// After a line longer than a fresh buffer, moves what follows it to a fresh one, so that the
    /// large one goes when its line goes. What follows is usually one read; where it is more than
    /// the line itself it waits, so that moving never costs more than the reading did.
    fn release(&mut self, length: usize) {
        if length >= START && self.buffer.len() <= length {
            let mut fresh = BytesMut::with_capacity(START.max(self.buffer.len()));
            fresh.extend_from_slice(&self.buffer);
            let mut part = std::mem::replace(&mut self.buffer, fresh);
            // The line, its newline, and what is left of the buffer behind it.
            let whole = length + 1 + part.capacity();
            if whole >= MAPPED {
                part.clear();
                self.spare = Some(Spare { part, whole });
            }
        }
    }
}

impl Discarded {
    fn line(self) -> Line {
        let request = self.skim.has_method();
        Line::Oversize { id: self.skim.into_id(), request, length: self.length }
    }
}

/// A line without carriage return and byte order mark; `None` when it is blank.
fn trimmed(mut line: BytesMut) -> Option<Bytes> {
    if line.last() == Some(&b'\r') {
        line.truncate(line.len() - 1);
    }
    if line.starts_with(b"\xef\xbb\xbf") {
        line.advance(3);
    }
    let blank = line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    (!blank).then(|| line.freeze())
}

#[cfg(test)]
mod tests;
