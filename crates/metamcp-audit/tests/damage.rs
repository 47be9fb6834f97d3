//! Everything that can happen to a log after it was written: is it found, and told as what it is?

use metamcp_audit::{
    Chain, Entry, Expected, Fact, FileName, Finding, Head, HeadNote, Kind, Report, Tail, Verifier,
    Who,
};
use proptest::prelude::*;

/// A log as its folder holds it.
#[derive(Clone)]
struct Log {
    files: Vec<(FileName, Vec<u8>)>,
    note: Option<HeadNote>,
}

fn entry<'a>(kind: Kind, what: &'a [(&'static str, Fact<'a>)], verdict: &'a str) -> Entry<'a> {
    let who = Who { principal: "owner", pid: 7, session: Some(1), client: Some(("c", "1")) };
    Entry { at_ms: 1_774_469_090_347, kind, who, what, verdict, arguments: None, result: None }
}

/// So many files of so many lines each, the first of each being its own.
fn log(files: u64, lines: u64) -> Log {
    let mut chain = Chain::default();
    let files: Vec<_> = (1..=files)
        .map(|file| {
            let mut bytes = Vec::new();
            let what = [("file", Fact::Number(file)), ("oldest", Fact::Number(1))];
            chain.seal(&mut bytes, &entry(Kind::File, &what, "opened"));
            for line in 1..lines {
                let tool = format!("tool {line}");
                let what = [("server", Fact::Text("files")), ("tool", Fact::Text(&tool))];
                chain.seal(&mut bytes, &entry(Kind::Call, &what, "ok"));
            }
            (FileName(file), bytes)
        })
        .collect();
    let (file, size) = files.last().map_or((0, 0), |(file, bytes)| (file.0, bytes.len() as u64));
    Log { files, note: Some(HeadNote { file, size, oldest: 1, head: chain.head() }) }
}

impl Log {
    fn verified(&self) -> Report {
        self.expecting(None)
    }

    fn expecting(&self, head: Option<Head>) -> Report {
        let mut verifier = Verifier::new(head);
        for (name, bytes) in &self.files {
            verifier.file(*name);
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                match line.strip_suffix(b"\n") {
                    Some(line) => verifier.line(line, true),
                    None => verifier.line(line, false),
                }
            }
        }
        verifier.finish(self.note)
    }

    fn head(&self) -> Head {
        self.note.expect("a log has a note").head
    }

    fn last(&mut self) -> &mut Vec<u8> {
        &mut self.files.last_mut().expect("a log has a file").1
    }

    fn lines(&self) -> Vec<(FileName, Vec<u8>)> {
        let of = |(name, bytes): &(FileName, Vec<u8>)| {
            let name = *name;
            bytes
                .split_inclusive(|byte| *byte == b'\n')
                .map(move |line| (name, line.to_vec()))
                .collect::<Vec<_>>()
        };
        self.files.iter().flat_map(of).collect()
    }

    fn of_lines(&self, lines: Vec<(FileName, Vec<u8>)>) -> Log {
        let mut files: Vec<(FileName, Vec<u8>)> = Vec::new();
        for (name, line) in lines {
            match files.last_mut() {
                Some((last, bytes)) if *last == name => bytes.extend(line),
                _ => files.push((name, line)),
            }
        }
        Log { files, note: self.note }
    }
}

#[test]
fn a_log_as_it_was_written_is_good() {
    for (files, lines) in [(1, 1), (1, 9), (3, 4)] {
        let log = log(files, lines);
        let report = log.expecting(Some(log.head()));
        assert!(report.is_good() && report.cuts.is_empty(), "{report:?}");
        assert_eq!((report.files as u64, report.lines), (files, files * lines));
        assert_eq!(report.last.unwrap().0, log.head());
        assert_eq!(report.expected, Some(Expected::Found));
    }
    assert!(Verifier::new(None).finish(None).is_good(), "a log that never began");
}

#[test]
fn every_changed_byte_is_found_and_is_no_cut() {
    let whole = log(2, 3);
    for file in 0..2 {
        for at in 0..whole.files[file].1.len() {
            for with in [
                b'\n',
                b'0',
                b'a',
                b'}',
                b'"',
                whole.files[file].1[at] ^ 1,
                whole.files[file].1[at] ^ 0x80,
            ] {
                let mut log = whole.clone();
                if log.files[file].1[at] == with {
                    continue;
                }
                log.files[file].1[at] = with;
                let report = log.verified();
                let told = report.findings.iter().any(|found| {
                    matches!(found, Finding::Changed { .. } | Finding::Replaced { .. })
                });
                // Changing the last newline of a file joins its last line with nothing: more than a line.
                assert!(told, "file {file}, byte {at}, {with:?}: {report:?}");
                assert!(report.cuts.is_empty(), "file {file}, byte {at}, {with:?}: {report:?}");
            }
        }
    }
}

#[test]
fn a_line_that_a_killed_writer_left_is_cut_and_not_changed() {
    let whole = log(2, 4);
    let size = whole.files[1].1.len();
    for cut in 0..=size {
        let mut log = whole.clone();
        log.last().truncate(cut);
        // The note is written after its lines, so a killed writer's is of a line that is there.
        let kept = log.verified().last.unwrap().0;
        log.note = Some(HeadNote { head: kept, ..whole.note.unwrap() });
        let is_boundary = cut == 0 || log.files[1].1.ends_with(b"\n");
        let report = log.verified();
        assert!(report.is_good(), "{cut}: {report:?}");
        assert_eq!(report.cuts.len(), usize::from(!is_boundary), "{cut}: {report:?}");
        // The same bytes with a note of later lines: no killed writer leaves that.
        log.note = whole.note;
        let report = log.verified();
        assert_eq!(report.is_good(), cut == size, "{cut}");
        let only_the_end = |found: &Finding| matches!(found, Finding::EndGone { .. });
        assert!(report.findings.iter().all(only_the_end), "{cut}: {report:?}");
    }
}

#[test]
fn what_was_cut_stays_explained_when_the_log_goes_on() {
    let whole = log(1, 3);
    for cut in 1..whole.lines()[2].1.len() {
        let mut log = whole.clone();
        let keep = whole.files[0].1.len() - cut;
        log.last().truncate(keep);
        let kept: usize = whole.lines()[..2].iter().map(|(_, line)| line.len()).sum();
        let (tail, mut more) = (Tail::of(log.last()), Vec::new());
        let mut chain = tail.chain(None);
        tail.mend(whole.note, &mut chain, &mut more, (0, 7));
        chain.seal(&mut more, &entry(Kind::Call, &[], "ok"));
        log.last().extend(more);
        log.note = Some(HeadNote { head: chain.head(), ..whole.note.unwrap() });
        let report = log.verified();
        assert!(report.is_good() && report.cuts.len() == usize::from(cut > 1), "{cut}: {report:?}");
        // The fragment is protected from then on as well.
        log.last()[kept] ^= 1;
        assert!(!log.verified().is_good(), "{cut}");
    }
}

#[test]
fn removed_files_are_missed() {
    let whole = log(4, 3);
    let without = |at: usize| {
        let mut log = whole.clone();
        log.files.remove(at);
        log.verified()
    };
    assert_eq!(without(0).findings, [Finding::OldestGone { from: FileName(1), to: FileName(1) }]);
    assert!(without(1).findings.contains(&Finding::FileGone(FileName(2))));
    assert_eq!(without(3).findings, [Finding::EndGone { from: 10, to: 12 }]);
    let mut log = whole.clone();
    log.files.clear();
    assert_eq!(log.verified().findings, [Finding::EndGone { from: 1, to: 12 }]);
    let mut log = whole.clone();
    log.note = None;
    assert_eq!(log.verified().findings, [Finding::NoteGone]);
}

#[test]
fn files_that_the_limit_removed_are_not_missed() {
    let mut chain = Chain::default();
    let mut files = Vec::new();
    for file in 1..=5_u64 {
        let mut bytes = Vec::new();
        let oldest = file.saturating_sub(1).max(1);
        let what = [("file", Fact::Number(file)), ("oldest", Fact::Number(oldest))];
        chain.seal(&mut bytes, &entry(Kind::File, &what, "opened"));
        files.push((FileName(file), bytes));
    }
    let note = Some(HeadNote { file: 5, size: 0, oldest: 4, head: chain.head() });
    let early = Head { seq: 1, ..Head::default() };
    for kept in [2, 3] {
        // Three are there while the writer was killed before it removed the oldest.
        let log = Log { files: files[5 - kept..].to_vec(), note };
        let report = log.expecting(Some(early));
        assert!(report.is_good() && report.rotated, "{report:?}");
        assert_eq!(report.expected, Some(Expected::RotatedAway));
    }
    let log = Log { files: files[4..].to_vec(), note };
    assert!(!log.verified().is_good());
}

#[test]
fn a_writer_without_a_note_says_so() {
    let mut log = log(1, 3);
    let (tail, mut more) = (Tail::of(log.last()), Vec::new());
    let mut chain = tail.chain(None);
    tail.mend(None, &mut chain, &mut more, (0, 7));
    log.last().extend(more);
    log.note = Some(HeadNote { head: chain.head(), ..log.note.unwrap() });
    assert_eq!(log.verified().findings, [Finding::NoteWasGone { file: FileName(1), line: 4 }]);
}

#[test]
fn a_log_that_was_written_anew_is_found_by_who_noted_a_line() {
    let whole = log(1, 5);
    let mut chain = Chain::default();
    let mut bytes = Vec::new();
    for _ in 0..5 {
        chain.seal(&mut bytes, &entry(Kind::Call, &[], "ok"));
    }
    let note = HeadNote { file: 1, size: bytes.len() as u64, oldest: 1, head: chain.head() };
    let forged = Log { files: vec![(FileName(1), bytes)], note: Some(note) };
    assert!(forged.verified().is_good(), "which is what a chain without a witness cannot show");
    let report = forged.expecting(Some(whole.head()));
    assert_eq!(report.findings, [Finding::NotExpected(whole.head())]);
    assert_eq!(report.expected, Some(Expected::NotFound));
    // Its end alone, with the note left as it was.
    let forged = Log { note: whole.note, ..forged };
    assert_eq!(forged.verified().findings, [Finding::EndReplaced { seq: 5 }]);
}

proptest! {
    #[test]
    fn removed_lines_are_missed(gone in proptest::collection::btree_set(0_usize..15, 1..8)) {
        let whole = log(3, 5);
        let mut lines = whole.lines();
        for at in gone.iter().rev() {
            lines.remove(*at);
        }
        let report = whole.of_lines(lines).verified();
        prop_assert!(!report.is_good());
        let is_missing = |found: &Finding| matches!(
            found,
            Finding::Missing { .. } | Finding::EndGone { .. } | Finding::FileGone(_) | Finding::OldestGone { .. }
        );
        prop_assert!(report.findings.iter().all(is_missing), "{:?}", report);
        prop_assert!(report.cuts.is_empty());
    }

    #[test]
    fn lines_in_another_order_are_found(one in 0_usize..15, other in 0_usize..15) {
        prop_assume!(one != other);
        let whole = log(1, 15);
        let mut lines = whole.lines();
        lines.swap(one, other);
        prop_assert!(!whole.of_lines(lines.clone()).verified().is_good());
        lines.swap(one, other);
        let twice = lines[one].clone();
        lines.insert(other, twice);
        prop_assert!(!whole.of_lines(lines).verified().is_good());
    }

    #[test]
    fn any_bytes_are_read_without_harm(bytes: Vec<u8>, at in 0_usize..600) {
        let mut log = log(1, 2);
        let at = at.min(log.last().len());
        log.last().splice(at..at, bytes.iter().copied());
        let report = log.verified();
        prop_assert!(bytes.is_empty() || !report.is_good() || !report.cuts.is_empty());
    }
}
