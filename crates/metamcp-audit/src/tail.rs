//! Where a writer continues: the end of a file that another one left, perhaps in the middle of a line.
//! Owns: what is taken for the last line, and the entry that explains a cut one.      Never: drops what is there.
//! In: the last bytes of the newest file, and the note beside it.  Out: the head to continue after, and what to write first.
//! Tests: below, and `tests/damage.rs`.

use crate::chain::Chain;
use crate::entry::{Digest, Entry, Fact, Kind, Who, digest};
use crate::head::{Head, HeadNote};
use crate::line::Framed;

/// The verdict of a line that says that the note of the head was not there.
pub(crate) const HEAD_MISSING: &str = "head_missing";

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tail {
    /// The last intact line.
    last: Option<Head>,
    /// Whether the bytes end without a newline.
    is_open: bool,
    /// The piece of a line at the end.
    fragment: Option<(usize, Digest)>,
}

impl Tail {
    /// Of the last bytes of a file, which may begin in the middle of a line.
    pub fn of(bytes: &[u8]) -> Tail {
        let is_open = !bytes.is_empty() && !bytes.ends_with(b"\n");
        let mut lines = bytes.rsplit(|byte| *byte == b'\n');
        // Behind the last newline: nothing, or what is cut.
        let end = lines.next().unwrap_or_default();
        let intact = |line: &[u8]| {
            Framed::read(line).filter(|framed| framed.is_intact).map(|framed| framed.head)
        };
        // A line that lacks only its newline is whole.
        let whole = intact(end);
        let fragment = (is_open && whole.is_none()).then(|| (end.len(), digest(end)));
        let last = whole.or_else(|| lines.find_map(intact));
        Tail { last, is_open, fragment }
    }

    /// The chain to continue with. A note that knows a later line, or another, has it right: the lines it knows were
    /// removed or changed, and what comes next must show that.
    pub fn chain(&self, note: Option<HeadNote>) -> Chain {
        let last = self.last.unwrap_or(Head::ORIGIN);
        let head = note.map(|note| note.head).filter(|head| head.seq >= last.seq);
        Chain::after(head.unwrap_or(last))
    }

    /// Appends what has to stand in front of the next line. Without a note nobody can tell whether lines were removed from
    /// the end, so that is said where there are lines.
    pub fn mend(
        &self,
        note: Option<HeadNote>,
        chain: &mut Chain,
        out: &mut Vec<u8>,
        (at_ms, pid): (u64, u32),
    ) {
        if self.is_open {
            out.push(b'\n');
        }
        let begun = chain.head();
        if let Some((bytes, digest)) = self.fragment {
            let sha256 = digest.to_string();
            let what = [("bytes", Fact::Number(bytes as u64)), ("sha256", Fact::Text(&sha256))];
            chain.seal(out, &resumed(&what, "resumed", (at_ms, pid)));
        }
        if note.is_none() && begun != Head::ORIGIN {
            chain.seal(out, &resumed(&[], HEAD_MISSING, (at_ms, pid)));
        }
    }
}

fn resumed<'a>(
    what: &'a [(&'static str, Fact<'a>)],
    verdict: &'a str,
    (at_ms, pid): (u64, u32),
) -> Entry<'a> {
    let who = Who { principal: "owner", pid, ..Who::default() };
    Entry { at_ms, kind: Kind::Resumed, who, what, verdict, arguments: None, result: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(count: u64) -> (Vec<u8>, Vec<Head>) {
        let (mut chain, mut out, mut heads) = (Chain::default(), Vec::new(), Vec::new());
        for at_ms in 0..count {
            let (kind, verdict) = (Kind::Call, "ok");
            let who = Who::default();
            chain.seal(
                &mut out,
                &Entry { at_ms, kind, who, what: &[], verdict, arguments: None, result: None },
            );
            heads.push(chain.head());
        }
        (out, heads)
    }

    #[test]
    fn a_writer_continues_after_the_last_whole_line() {
        let (bytes, heads) = lines(3);
        let after = |bytes: &[u8]| Tail::of(bytes).chain(None).head();
        assert_eq!(after(&bytes), heads[2]);
        assert_eq!(after(&bytes[40..]), heads[2]);
        assert_eq!(after(&bytes[..bytes.len() - 1]), heads[2]);
        assert_eq!(after(&bytes[..bytes.len() - 2]), heads[1]);
        assert_eq!(after(b""), Head::ORIGIN);
        let mended = |bytes: &[u8]| {
            let (tail, mut out) = (Tail::of(bytes), Vec::new());
            let note = HeadNote { head: Head::ORIGIN, ..HeadNote::default() };
            tail.mend(Some(note), &mut tail.chain(None), &mut out, (0, 0));
            out
        };
        assert_eq!(mended(&bytes), b"");
        assert_eq!(mended(&bytes[..bytes.len() - 1]), b"\n");
        assert!(mended(&bytes[..bytes.len() - 2]).starts_with(b"\n{"));
    }

    #[test]
    fn a_note_that_knows_more_is_continued_so_that_the_gap_shows() {
        let (bytes, heads) = lines(3);
        let note = |head| Some(HeadNote { file: 1, size: 0, oldest: 1, head });
        let first = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        assert_eq!(Tail::of(&bytes[..first]).chain(note(heads[2])).head(), heads[2]);
        // A writer that was killed before it could note its last lines.
        assert_eq!(Tail::of(&bytes).chain(note(heads[0])).head(), heads[2]);
        let other = Head { seq: 3, ..Head::ORIGIN };
        assert_eq!(Tail::of(&bytes).chain(note(other)).head(), other);
    }
}
