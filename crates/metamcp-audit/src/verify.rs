//! Verification: what was changed, what is missing, and what is only cut.
//! Owns: every finding and its words.      Never: opens a file, takes a cut for a change or a change for a cut.
//! In: the lines of all files, oldest first; the note of the head; a head that somebody noted.  Out: `Report`.
//! Tests: `tests/damage.rs`: every byte changed, every length cut, lines and files removed at random.

use std::fmt;

use crate::entry::{Kind, digest};
use crate::head::{Hash, Head, HeadNote};
use crate::line::{Framed, Line};
use crate::tail::HEAD_MISSING;

/// Most findings that are listed; the rest is counted.
const MAX_FINDINGS: usize = 100;

/// The name of a file of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileName(pub u64);

impl FileName {
    /// Reads `000012.jsonl`; no other file is one of the log.
    pub fn read(name: &str) -> Option<FileName> {
        let number = name.strip_suffix(".jsonl")?;
        let is_number = number.len() >= 6 && number.bytes().all(|byte| byte.is_ascii_digit());
        let number = FileName(number.parse().ok().filter(|_| is_number)?);
        (number.to_string() == name).then_some(number)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}.jsonl", self.0)
    }
}

/// Something that no writer of ours leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// A line is not what was written.
    Changed { file: FileName, line: u64, seq: Option<u64> },
    /// A line is intact, but was written after another than the one in front of it: that one was replaced.
    Replaced { file: FileName, line: u64, seq: u64 },
    /// Lines are missing in front of this one.
    Missing { file: FileName, line: u64, from: u64, to: u64 },
    /// A line has a number that was there before.
    Repeated { file: FileName, line: u64, seq: u64 },
    /// Files are missing from the beginning, though the bound had not reached them.
    OldestGone { from: FileName, to: FileName },
    /// A file is missing between others.
    FileGone(FileName),
    /// Lines are missing from the end: the note beside the files knows a later one.
    EndGone { from: u64, to: u64 },
    /// The note beside the files names another hash for the last line.
    EndReplaced { seq: u64 },
    /// The note beside the files is missing or damaged, so that nobody can tell whether the end is there.
    NoteGone,
    /// The same at an earlier time, as the writer says that came next.
    NoteWasGone { file: FileName, line: u64 },
    /// The line that somebody noted is not in the chain.
    NotExpected(Head),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let span = |from: &u64, to: &u64| match from == to {
            true => format!("line number {from} is"),
            false => format!("lines number {from} to {to} are"),
        };
        match self {
            Finding::Changed { file, line, seq } => {
                let number = seq.map(|seq| format!(" (number {seq})")).unwrap_or_default();
                write!(f, "{file}:{line}: this line{number} was changed")
            }
            Finding::Replaced { file, line, seq } => write!(
                f,
                "{file}:{line}: number {seq} was written after another line than the one in front of it, which was replaced"
            ),
            Finding::Missing { file, line, from, to } => {
                write!(f, "{file}:{line}: {} missing in front of this one", span(from, to))
            }
            Finding::Repeated { file, line, seq } => {
                write!(f, "{file}:{line}: number {seq} is not in its place")
            }
            Finding::OldestGone { from, to } => {
                write!(f, "the files {from} to {to} were removed; the limit of files had not reached them")
            }
            Finding::FileGone(file) => write!(f, "the file {file} is missing"),
            Finding::EndGone { from, to } => write!(f, "{} missing at the end", span(from, to)),
            Finding::EndReplaced { seq } => {
                write!(f, "the last line, number {seq}, is not the one that the head file names")
            }
            Finding::NoteGone => f.write_str(
                "the head file is missing or damaged, so that lines removed from the end would not be noticed",
            ),
            Finding::NoteWasGone { file, line } => write!(
                f,
                "{file}:{line}: the head file was missing or damaged when this was written, so lines in front of it may have been removed unnoticed"
            ),
            Finding::NotExpected(head) => {
                write!(f, "the expected line {head} is not in this log: it was written anew")
            }
        }
    }
}

/// A line that is cut off, because its writer died while writing it, or the disk was full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    pub file: FileName,
    pub line: u64,
    pub bytes: usize,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub files: usize,
    /// Intact lines.
    pub lines: u64,
    /// Number and time of the first line, and of the last.
    pub first: Option<(u64, String)>,
    pub last: Option<(Head, String)>,
    /// Whether older files were removed because there may be only so many.
    pub rotated: bool,
    pub cuts: Vec<Cut>,
    pub findings: Vec<Finding>,
    /// How many findings there are beyond those that are listed.
    pub more: u64,
    /// How many events could not be recorded at the time, as later lines say.
    pub lost: u64,
    /// What was asked about a noted head: found, or gone with older files.
    pub expected: Option<Expected>,
}

/// What became of the head that somebody noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    Found,
    /// It is older than the oldest line that is left.
    RotatedAway,
    NotFound,
}

impl Report {
    /// Whether nothing was changed and nothing is missing. A cut line is no damage.
    pub fn is_good(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.more += 1;
        }
    }
}

/// What is known of the line before.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// Nothing was read yet.
    Nothing,
    Line(Head),
    /// It cannot be read; this is the last one that could.
    Unreadable(Option<Head>),
}

/// A line that is no line of ours: cut, if the next one says so.
#[derive(Clone, Copy, Debug)]
struct Suspect {
    file: FileName,
    line: u64,
    bytes: usize,
    hash: Hash,
}

/// Reads a log line by line. See the module.
#[derive(Debug)]
pub struct Verifier {
    report: Report,
    expected: Option<Head>,
    file: FileName,
    line: u64,
    before: Before,
    suspect: Option<Suspect>,
    /// The oldest file that was left when the newest one was begun.
    oldest: Option<u64>,
    first_file: Option<FileName>,
}

impl Verifier {
    /// Also looks for a line that somebody noted.
    pub fn new(expected: Option<Head>) -> Verifier {
        Verifier {
            report: Report::default(),
            expected,
            file: FileName(0),
            line: 0,
            before: Before::Nothing,
            suspect: None,
            oldest: None,
            first_file: None,
        }
    }

    /// The next file begins.
    pub fn file(&mut self, name: FileName) {
        self.settle_suspect();
        if self.first_file.is_none() {
            self.first_file = Some(name);
        } else {
            // Not all of a million missing numbers.
            for missing in (self.file.0 + 1..name.0).take(MAX_FINDINGS) {
                self.report.find(Finding::FileGone(FileName(missing)));
            }
        }
        self.file = name;
        self.line = 0;
        self.report.files += 1;
    }

    /// The next line, without its newline; `ended` is whether it had one.
    pub fn line(&mut self, bytes: &[u8], ended: bool) {
        self.line += 1;
        if !ended {
            self.settle_suspect();
            return self.unended(bytes);
        }
        let (file, line) = (self.file, self.line);
        let Some(framed) = Framed::read(bytes) else {
            self.settle_suspect();
            let hash = digest(bytes);
            self.suspect = Some(Suspect { file, line, bytes: bytes.len(), hash });
            return;
        };
        if !framed.is_intact {
            self.settle_suspect();
            self.report.find(Finding::Changed { file, line, seq: Some(framed.head.seq) });
            self.before = Before::Line(framed.head);
            return;
        }
        // The frame is intact, so this is what a writer wrote.
        let content = Line::read(bytes);
        let kind = content.as_ref().and_then(Line::kind);
        if kind == Some(Kind::Resumed)
            && content.as_ref().is_some_and(|content| content.verdict() == HEAD_MISSING)
        {
            self.report.find(Finding::NoteWasGone { file, line });
        }
        match (self.suspect.take(), &content) {
            (Some(suspect), Some(content))
                if kind == Some(Kind::Resumed)
                    && content.what("sha256") == suspect.hash.to_string() =>
            {
                let Suspect { file, line, bytes, .. } = suspect;
                self.report.cuts.push(Cut { file, line, bytes });
            }
            (suspect, _) => {
                self.suspect = suspect;
                self.settle_suspect();
            }
        }
        self.chained(&framed);
        let time = content.as_ref().map(|content| content.time().to_owned()).unwrap_or_default();
        if let Some(content) = &content {
            match kind {
                Some(Kind::File) => self.oldest = content.number("oldest"),
                Some(Kind::Lost) => {
                    self.report.lost =
                        self.report.lost.saturating_add(content.number("events").unwrap_or(0));
                }
                _ => {}
            }
        }
        self.report.lines += 1;
        self.report.first.get_or_insert_with(|| (framed.head.seq, time.clone()));
        self.report.last = Some((framed.head, time));
        if self.expected == Some(framed.head) {
            self.report.expected = Some(Expected::Found);
        }
    }

    /// The last bytes of a file, which no newline ends.
    fn unended(&mut self, bytes: &[u8]) {
        let (file, line) = (self.file, self.line);
        // A newline is written with its line, so one that lacks only that is cut as well. More than a whole line is not
        // the beginning of one.
        let is_more = bytes.iter().enumerate().any(|(at, byte)| {
            *byte == b'}'
                && at + 1 < bytes.len()
                && Framed::read(&bytes[..=at]).is_some_and(|framed| framed.is_intact)
        });
        if is_more {
            self.report.find(Finding::Changed { file, line, seq: None });
        } else {
            self.report.cuts.push(Cut { file, line, bytes: bytes.len() });
        }
    }

    /// A line that nothing explains was changed.
    fn settle_suspect(&mut self) {
        let Some(Suspect { file, line, .. }) = self.suspect.take() else { return };
        let last = match self.before {
            Before::Nothing => None,
            Before::Line(head) => Some(Head { seq: head.seq + 1, ..head }),
            Before::Unreadable(last) => last.map(|head| Head { seq: head.seq + 1, ..head }),
        };
        self.report.find(Finding::Changed { file, line, seq: last.map(|head| head.seq) });
        self.before = Before::Unreadable(last);
    }

    /// Whether a line continues the one before it.
    fn chained(&mut self, framed: &Framed) {
        let (file, line, seq) = (self.file, self.line, framed.head.seq);
        let expected = match self.before {
            Before::Nothing | Before::Unreadable(None) => None,
            Before::Line(head) | Before::Unreadable(Some(head)) => Some(head.seq + 1),
        };
        if let Some(expected) = expected {
            if seq > expected {
                self.report.find(Finding::Missing { file, line, from: expected, to: seq - 1 });
            } else if seq < expected {
                self.report.find(Finding::Repeated { file, line, seq });
            } else if let Before::Line(head) = self.before
                && head.hash != framed.prev
            {
                self.report.find(Finding::Replaced { file, line, seq });
            }
        } else if seq == 1 && framed.prev != Head::ORIGIN.hash {
            self.report.find(Finding::Replaced { file, line, seq });
        }
        self.before = Before::Line(framed.head);
    }

    /// The end. The note is that beside the files, read before them.
    pub fn finish(mut self, note: Option<HeadNote>) -> Report {
        self.settle_suspect();
        let first_file = self.first_file.map_or(0, |file| file.0);
        let first_seq = self.report.first.as_ref().map(|(seq, _)| *seq);
        match self.oldest {
            Some(oldest) if first_file > oldest => {
                let (from, to) = (FileName(oldest), FileName(first_file - 1));
                self.report.find(Finding::OldestGone { from, to });
            }
            _ => {}
        }
        self.report.rotated = first_file > 1;
        if first_file == 1
            && let Some(first) = first_seq.filter(|first| *first > 1)
            && !self
                .report
                .findings
                .iter()
                .any(|found| matches!(found, Finding::Changed { line: 1, .. }))
        {
            let (file, line) = (FileName(1), 1);
            self.report.find(Finding::Missing { file, line, from: 1, to: first - 1 });
        }
        let last = self.report.last.as_ref().map_or(Head::ORIGIN, |(head, _)| *head);
        match note {
            Some(note) if note.head.seq > last.seq => {
                let is_known = match self.before {
                    Before::Unreadable(Some(head)) => head.seq >= note.head.seq,
                    Before::Line(head) => head.seq >= note.head.seq,
                    _ => false,
                };
                if !is_known {
                    let (from, to) = (last.seq + 1, note.head.seq);
                    self.report.find(Finding::EndGone { from, to });
                }
            }
            Some(note) if note.head.seq == last.seq && note.head.hash != last.hash => {
                self.report.find(Finding::EndReplaced { seq: last.seq });
            }
            Some(_) => {}
            None if self.report.last.is_none() => {}
            None => self.report.find(Finding::NoteGone),
        }
        if let Some(head) = self.expected.filter(|_| self.report.expected.is_none()) {
            let is_old = first_file > 1 && first_seq.is_some_and(|first| head.seq < first);
            self.report.expected = Some(match is_old || head == Head::ORIGIN {
                true => Expected::RotatedAway,
                false => {
                    self.report.find(Finding::NotExpected(head));
                    Expected::NotFound
                }
            });
        }
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_own_names_are_files_of_the_log() {
        for (name, number) in [
            ("000001.jsonl", Some(1)),
            ("1234567.jsonl", Some(1_234_567)),
            ("0000001.jsonl", None),
            ("1.jsonl", None),
            ("00001a.jsonl", None),
            ("+00001.jsonl", None),
            ("000001.jsonl.bak", None),
            ("head", None),
        ] {
            assert_eq!(FileName::read(name), number.map(FileName), "{name}");
        }
        assert_eq!(FileName(12).to_string(), "000012.jsonl");
    }
}
