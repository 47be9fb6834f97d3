//! How long the tests of each binary took: a table for the summary.
//! Owns: parsing nextest's report and libtest's summary lines.      Never: fails a run for being slow.
//! In: JUnit XML, or the output of `cargo test`.  Out: rows, slowest binary first.
//! Tests: below.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Where nextest writes its report: under the workspace, wherever the build folder is.
const REPORT: &str = "target/nextest/default/junit.xml";

/// The tests of one binary.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) binary: String,
    pub(crate) tests: usize,
    /// The sum over its tests, which run in parallel.
    pub(crate) seconds: f64,
    /// The slowest test, if the runner reports the time of each.
    pub(crate) slowest: Option<(String, f64)>,
}

/// Removes the report of an earlier run, so that it is not taken for the next one's.
pub(crate) fn forget_report(root: &Path) -> io::Result<()> {
    match fs::remove_file(root.join(REPORT)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The report of the last run, if nextest ran it.
pub(crate) fn report(root: &Path) -> Option<String> {
    fs::read_to_string(root.join(REPORT)).ok()
}

/// The rows of nextest's report.
pub(crate) fn of_report(xml: &str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    // A test's own output is escaped in a report, so every `<` begins an element.
    for element in xml.split('<') {
        if let Some(binary) =
            element.strip_prefix("testsuite ").and_then(|rest| attribute(rest, "name"))
        {
            rows.push(Row { binary, tests: 0, seconds: 0.0, slowest: None });
        }
        let (Some(test), Some(row)) = (element.strip_prefix("testcase "), rows.last_mut()) else {
            continue;
        };
        let name = attribute(test, "name").unwrap_or_default();
        let seconds = attribute(test, "time").and_then(|time| time.parse().ok()).unwrap_or(0.0);
        row.tests += 1;
        row.seconds += seconds;
        if row.slowest.as_ref().is_none_or(|(_, slowest)| *slowest < seconds) {
            row.slowest = Some((name, seconds));
        }
    }
    sorted(rows)
}

/// The rows of the output of `cargo test`: `Running tests/a.rs (…/a-0123)`, later `finished in 0.12s`.
pub(crate) fn of_libtest(lines: &[String]) -> Vec<Row> {
    let mut rows = Vec::new();
    // The two kinds of lines come over two pipes: each keeps its own order, so the first result belongs to the first
    // binary.
    let mut running = VecDeque::new();
    for line in lines {
        if let Some(rest) = line.strip_prefix("Running ") {
            running.extend(rest.rsplit(['/', '\\']).next().and_then(|file| file.rsplit_once('-')));
        } else if let Some((_, took)) = line.split_once("finished in ")
            && let Some((binary, _)) = running.pop_front()
        {
            rows.push(Row {
                binary: binary.to_owned(),
                tests: counted(line, "passed") + counted(line, "failed"),
                seconds: took.trim_end_matches('s').parse().unwrap_or(0.0),
                slowest: None,
            });
        }
    }
    sorted(rows)
}

/// One line per binary and one for all of them.
pub(crate) fn write(out: &mut impl Write, rows: &[Row]) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let wide = rows.iter().map(|row| row.binary.len()).max().unwrap_or(0).max("test binary".len());
    writeln!(out, "\n{:<wide$} {:>6} {:>9}  slowest test", "test binary", "tests", "time")?;
    for row in rows {
        let slowest = row
            .slowest
            .as_ref()
            .map_or_else(String::new, |(name, seconds)| format!("{seconds:.1} s {name}"));
        let line =
            format!("{:<wide$} {:>6} {:>7.1} s  {slowest}", row.binary, row.tests, row.seconds);
        writeln!(out, "{}", line.trim_end())?;
    }
    let tests: usize = rows.iter().map(|row| row.tests).sum();
    let seconds: f64 = rows.iter().map(|row| row.seconds).sum();
    writeln!(out, "{:<wide$} {tests:>6} {seconds:>7.1} s", "all")
}

/// The number before a word in libtest's summary line.
pub(crate) fn counted(line: &str, what: &str) -> usize {
    line.split([';', '.'])
        .find_map(|piece| piece.trim().strip_suffix(what)?.trim().parse().ok())
        .unwrap_or(0)
}

fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.retain(|row| row.tests > 0);
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    rows
}

/// The value of an attribute, with the five entities of XML decoded.
fn attribute(element: &str, name: &str) -> Option<String> {
    let opening = format!("{name}=\"");
    let at = element
        .match_indices(&opening)
        .find(|(at, _)| *at == 0 || element[..*at].ends_with(char::is_whitespace))?
        .0;
    let value = element[at + opening.len()..].split('"').next()?;
    let read = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    Some(read.iter().fold(value.to_owned(), |text, (entity, plain)| text.replace(entity, plain)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(binary: &str, tests: usize, seconds: f64, slowest: Option<(&str, f64)>) -> Row {
        let slowest = slowest.map(|(name, seconds)| (name.to_owned(), seconds));
        Row { binary: binary.to_owned(), tests, seconds, slowest }
    }

    #[test]
    fn a_report_is_summed_up_per_binary() {
        let xml = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" time="9.0">
    <testsuite name="quick" tests="1" failures="0">
        <testcase name="a::b&lt;c&gt;" classname="quick" timestamp="2026" time="0.25"/>
    </testsuite>
    <testsuite name="slow::it" tests="2" failures="1">
        <testcase name="one" classname="slow::it" time="1.5">
            <failure message="x" type="test failure">&lt;testcase name="no" time="7"/&gt;</failure>
        </testcase>
        <testcase name="two" classname="slow::it" time="0.5"></testcase>
    </testsuite>
    <testsuite name="empty" tests="0"></testsuite>
</testsuites>"#;
        assert_eq!(
            of_report(xml),
            [
                row("slow::it", 2, 2.0, Some(("one", 1.5))),
                row("quick", 1, 0.25, Some(("a::b<c>", 0.25))),
            ]
        );
        assert!(of_report("").is_empty());
        assert!(of_report("<testcase time=\"1\"").is_empty());
    }

    #[test]
    fn closing_lines_of_libtest_are_read_per_binary() {
        let lines = [
            "Running unittests src/lib.rs (target/debug/deps/metamcp_wire-0a1b)",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.12s",
            "Running tests/sim.rs (target/debug/deps/sim-2c3d)",
            "test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 4.50s",
            "test result: ok. 9 passed; 0 failed; finished in 1.00s",
        ];
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        assert_eq!(
            of_libtest(&lines),
            [row("sim", 2, 4.5, None), row("metamcp_wire", 3, 0.12, None)]
        );
    }

    #[test]
    fn the_table_ends_with_the_sum() {
        let mut out = Vec::new();
        write(&mut out, &[row("slow::it", 2, 2.0, Some(("one", 1.5))), row("q", 1, 0.25, None)])
            .unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "
test binary  tests      time  slowest test
slow::it         2     2.0 s  1.5 s one
q                1     0.2 s
all              3     2.2 s
"
        );
        let mut out = Vec::new();
        write(&mut out, &[]).unwrap();
        assert!(out.is_empty());
    }
}
