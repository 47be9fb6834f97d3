//! The stderr tail of a child, bounded, for error messages and `doctor`.
//! Owns: a ring of bytes per child.      Never: blocks the child, grows, passes on control characters.
//! In: bytes as they come.  Out: the last lines, safe to show.
//! Tests: below.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

/// Bytes stored per child: enough for a stack trace, small enough for a hundred children.
pub(crate) const CAPACITY: usize = 64 * 1024;

/// A longer line is truncated for display: one endless line must not fill an error message.
const MAX_LINE_CHARS: usize = 500;

/// A shared view of the last bytes a child wrote to stderr, and of what it put on stdout by mistake.
#[derive(Debug, Clone, Default)]
pub struct StderrTail {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    ring: Mutex<VecDeque<u8>>,
    total: AtomicU64,
}

impl StderrTail {
    /// Adds bytes from the pipe; the oldest are dropped.
    pub fn push(&self, bytes: &[u8]) {
        self.inner.total.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let kept = &bytes[bytes.len().saturating_sub(CAPACITY)..];
        let mut ring = self.ring();
        let overflow = (ring.len() + kept.len()).saturating_sub(CAPACITY);
        ring.drain(..overflow);
        ring.extend(kept);
    }

    /// Adds one line from elsewhere, such as text a server printed on stdout between messages.
    pub fn push_line(&self, line: &[u8]) {
        let needs_break = self.ring().back().is_some_and(|&last| last != b'\n');
        if needs_break {
            self.push(b"\n");
        }
        self.push(line);
        self.push(b"\n");
    }

    /// Bytes ever written, also dropped ones.
    pub fn total(&self) -> u64 {
        self.inner.total.load(Ordering::Relaxed)
    }

    /// The last `count` non-empty lines, oldest first, sanitized for display.
    pub fn last_lines(&self, count: usize) -> Vec<String> {
        let ring = self.ring();
        let (older, newer) = ring.as_slices();
        let text = String::from_utf8_lossy(&[older, newer].concat()).into_owned();
        drop(ring);
        let mut lines: Vec<String> = text
            .rsplit(['\n', '\r'])
            .map(clean)
            .filter(|line| !line.trim().is_empty())
            .take(count)
            .collect();
        lines.reverse();
        lines
    }

    /// The lines after the first `after` bytes, the last `most` of them: sanitized, oldest first. With them how many bytes
    /// that makes, to go on after, and whether some are missing because they were dropped. The last line counts once it
    /// has its end, or `is_over`.
    pub fn lines_after(&self, after: u64, most: usize, is_over: bool) -> (Vec<String>, u64, bool) {
        let ring = self.ring();
        let total = self.total();
        let oldest = total - ring.len() as u64;
        let from = usize::try_from(after.clamp(oldest, total) - oldest).unwrap_or(usize::MAX);
        let (older, newer) = ring.as_slices();
        let mut bytes = [older, newer].concat();
        drop(ring);
        bytes.drain(..from.min(bytes.len()));
        if !is_over {
            let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            bytes.truncate(end);
        }
        let read = after.max(oldest).min(total) + bytes.len() as u64;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<String> =
            text.split(['\n', '\r']).map(clean).filter(|line| !line.trim().is_empty()).collect();
        let left_out = lines.len().saturating_sub(most);
        (lines.into_iter().skip(left_out).collect(), read, after < oldest || left_out > 0)
    }

    fn ring(&self) -> MutexGuard<'_, VecDeque<u8>> {
        // A panic elsewhere leaves at worst a partial line behind.
        self.inner.ring.lock()
    }
}

/// A line without terminal sequences, control characters or characters that reorder or hide text.
fn clean(line: &str) -> String {
    let mut shown = String::new();
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        match character {
            '\u{1b}' => skip_sequence(&mut rest),
            '\u{9b}' => skip_until_final(&mut rest),
            '\t' => shown.push(' '),
            c if c.is_control() || is_invisible(c) => {}
            c => shown.push(c),
        }
        if shown.len() >= MAX_LINE_CHARS {
            shown.push('…');
            break;
        }
    }
    shown
}

/// Skips what follows an escape character.
fn skip_sequence(rest: &mut std::str::Chars<'_>) {
    match rest.next() {
        Some('[') => skip_until_final(rest),
        // Title and link sequences end with BEL or with ESC and a backslash.
        Some(']' | 'P' | '_' | '^' | 'X') => {
            while let Some(character) = rest.next() {
                if character == '\u{7}' || (character == '\u{1b}' && rest.next() == Some('\\')) {
                    break;
                }
            }
        }
        // Character set selections carry one more character.
        Some('(' | ')' | '#' | '%') => drop(rest.next()),
        _ => {}
    }
}

/// Skips the parameters of a control sequence up to and with its final character.
fn skip_until_final(rest: &mut std::str::Chars<'_>) {
    for character in rest.by_ref() {
        if ('\u{40}'..='\u{7e}').contains(&character) {
            break;
        }
    }
}

/// Zero-width, direction-changing and tag characters, which disguise text.
fn is_invisible(character: char) -> bool {
    matches!(character,
        '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
        | '\u{feff}' | '\u{e0000}'..='\u{e007f}' | '\u{fe00}'..='\u{fe0f}')
}

#[cfg(test)]
mod tests {
    use super::{CAPACITY, StderrTail};

    #[test]
    fn the_last_lines_survive_a_flood() {
        let tail = StderrTail::default();
        for _ in 0..100 {
            tail.push(&[b'x'; 10_000]);
        }
        tail.push(b"\nfirst\n\nlast");
        assert_eq!(tail.last_lines(2), ["first", "last"]);
        assert_eq!(tail.ring().len(), CAPACITY);
        assert_eq!(tail.total(), 1_000_012);
        tail.push(&vec![b'y'; 3 * CAPACITY]);
        assert_eq!(tail.ring().len(), CAPACITY);
    }

    #[test]
    fn who_follows_gets_each_line_once() {
        let tail = StderrTail::default();
        let of = |lines: &[&str], read, cut| {
            (lines.iter().map(ToString::to_string).collect(), read, cut)
        };
        assert_eq!(tail.lines_after(0, 9, false), of(&[], 0, false));
        tail.push(b"one\ntwo\nthr");
        assert_eq!(tail.lines_after(0, 9, false), of(&["one", "two"], 8, false));
        assert_eq!(tail.lines_after(8, 9, false), of(&[], 8, false));
        assert_eq!(tail.lines_after(8, 9, true), of(&["thr"], 11, false));
        tail.push(b"ee\n");
        assert_eq!(tail.lines_after(8, 9, false), of(&["three"], 14, false));
        assert_eq!(tail.lines_after(0, 1, false), of(&["three"], 14, true));
        assert_eq!(tail.lines_after(99, 9, false), of(&[], 14, false));
        tail.push(&vec![b'y'; CAPACITY]);
        tail.push(b"\nend\n");
        let (lines, _, is_cut) = tail.lines_after(14, 9, false);
        assert!(is_cut && lines.last().unwrap() == "end");
    }

    #[test]
    fn displayed_lines_are_plain_text() {
        let tail = StderrTail::default();
        tail.push(b"\x1b[31mred\x1b[0m \x1b]0;title\x07after\x00\x08\n");
        tail.push("a\u{202e}b\u{200b}c\u{e0041}\u{9b}1mf\n".as_bytes());
        tail.push(b"\xff\xfe bytes\n");
        assert_eq!(tail.last_lines(9), ["red after", "abcf", "\u{fffd}\u{fffd} bytes"]);
    }

    #[test]
    fn a_line_from_elsewhere_is_a_line_of_its_own() {
        let tail = StderrTail::default();
        tail.push(b"half");
        tail.push_line(b"banner");
        tail.push(b"rest\n");
        assert_eq!(tail.last_lines(9), ["half", "banner", "rest"]);
        tail.push(&[b'z'; 5000]);
        assert!(tail.last_lines(1)[0].len() < 600);
    }
}
