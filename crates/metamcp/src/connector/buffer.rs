//! Bytes that were read and not passed on yet.
//! Owns: the room for the next read, whole lines in front of half a one.      Never: reads, looks into a line.
//! In: reads.  Out: lines.
//! Tests: below.

use memchr::{memchr, memrchr};

/// Room of an idle buffer: what most messages need, and few enough pages that nobody notices them.
const SMALL: usize = 16 * 1024;
/// Least room for a read.
const LEAST: usize = 4 * 1024;
/// What a pipe or socket gives in one read when it is full.
const FULL: usize = 64 * 1024;

#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Behind the last newline.
    whole: usize,
}

impl Buffer {
    pub(super) fn new() -> Buffer {
        Buffer { bytes: Vec::new(), start: 0, end: 0, whole: 0 }
    }

    /// Where the next read goes.
    pub(super) fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.clear();
        }
        if self.bytes.is_empty() {
            self.bytes.resize(SMALL, 0);
        }
        if self.bytes.len() - self.end < LEAST {
            self.bytes.copy_within(self.start..self.end, 0);
            self.whole -= self.start;
            self.end -= self.start;
            self.start = 0;
            // Half a buffer of a line: more of it will follow.
            if self.bytes.len() - self.end < self.bytes.len() / 2 {
                let grown = (self.bytes.len() * 2).max(FULL);
                self.bytes.resize(grown, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// So many bytes were read.
    pub(super) fn filled(&mut self, count: usize) {
        let from = self.end;
        self.end += count;
        if let Some(at) = memrchr(b'\n', &self.bytes[from..self.end]) {
            self.whole = from + at + 1;
        }
    }

    /// Puts bytes behind what there is.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let room = self.room();
            let count = room.len().min(rest.len());
            room[..count].copy_from_slice(&rest[..count]);
            self.filled(count);
            rest = &rest[count..];
        }
    }

    /// All lines that are whole, with their newlines.
    pub(super) fn lines(&self) -> &[u8] {
        self.bytes.get(self.start..self.whole).unwrap_or_default()
    }

    /// The first of them.
    pub(super) fn line(&self) -> Option<&[u8]> {
        let lines = self.lines();
        let end = memchr(b'\n', lines)?;
        Some(&lines[..=end])
    }

    /// Everything, also half a line.
    pub(super) fn all(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Takes so many bytes off the front.
    pub(super) fn take(&mut self, count: usize) {
        self.start += count;
        self.whole = self.whole.max(self.start);
        if self.start == self.end {
            self.clear();
        }
    }

    pub(super) fn clear(&mut self) {
        (self.start, self.end, self.whole) = (0, 0, 0);
        // The buffer of a long line is not kept: there may be a hundred of us.
        if self.bytes.len() > FULL {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_as_they_went_in() {
        let mut buffer = Buffer::new();
        assert_eq!(buffer.line(), None);
        buffer.append(b"one\ntw");
        assert_eq!((buffer.lines(), buffer.line()), (&b"one\n"[..], Some(&b"one\n"[..])));
        buffer.append(b"o\n\nthree");
        assert_eq!(buffer.lines(), b"one\ntwo\n\n");
        buffer.take(4);
        assert_eq!((buffer.line(), buffer.all()), (Some(&b"two\n"[..]), &b"two\n\nthree"[..]));
        buffer.take(5);
        assert_eq!((buffer.line(), buffer.all(), buffer.lines()), (None, &b"three"[..], &b""[..]));
        buffer.take(2);
        buffer.append(b"\n");
        assert_eq!(buffer.line(), Some(&b"ree\n"[..]));
        buffer.take(4);
        assert!(buffer.is_empty());
    }

    #[test]
    fn long_lines_fit_and_leave_no_memory_behind() {
        let mut buffer = Buffer::new();
        let mut long = vec![b'x'; 3_000_000];
        long.push(b'\n');
        buffer.append(b"a\n");
        buffer.take(1);
        buffer.append(&long);
        buffer.take(1);
        assert_eq!(buffer.line(), Some(&long[..]));
        buffer.take(long.len());
        assert!(buffer.is_empty() && buffer.bytes.is_empty());
        assert_eq!(buffer.room().len(), SMALL);
    }

    #[test]
    fn there_is_always_room() {
        let mut buffer = Buffer::new();
        for _ in 0..10_000 {
            assert!(buffer.room().len() >= LEAST);
            buffer.append(b"0123456789\n0123");
            buffer.take(13);
        }
        assert_eq!(buffer.len(), 20_000);
    }
}
