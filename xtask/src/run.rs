//! Runs a program, shows its output, and captures its summary lines.
//! Owns: the child's output.      Never: decides whether a task may fail.
//! In: a `Command`.  Out: its output on stderr, `CapturedOutput` for the summary.
//! Tests: below.

use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, IsTerminal, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, bail};

/// Lines shown of a quiet program that failed: some print the reason first, most print it last.
const HEAD: usize = 20;
const TAIL: usize = 20;

/// How a test begins a line that says how much it tried.
pub(crate) const COUNTED: &str = "counted: ";

/// The parts of a program's output for the summary.
#[derive(Debug, Default)]
pub(crate) struct CapturedOutput {
    /// The closing lines of a test runner, in order, without colours.
    pub(crate) closing: Vec<String>,
    /// Which binaries `cargo test` ran, with their results: the same lines, between those that name a binary.
    pub(crate) binaries: Vec<String>,
}

/// Runs a program with all its output on stderr, line by line as it comes.
pub(crate) fn loud(command: &mut Command) -> Result<CapturedOutput> {
    let (status, said) = watched(command)?;
    if !status.success() {
        // A runner reports a failure when it happens and again at the end; once is enough here.
        let mut closing = said.closing;
        let mut seen = HashSet::new();
        closing.retain(|line| seen.insert(line.clone()));
        closing.insert(0, format!("{}: {status}", shown(command)));
        bail!("{}", closing.join("\n"));
    }
    Ok(said)
}

/// The same, where what a program said counts although it failed.
pub(crate) fn watched(command: &mut Command) -> Result<(ExitStatus, CapturedOutput)> {
    if io::stderr().is_terminal() {
        command.env("CARGO_TERM_COLOR", "always");
    }
    let shown = shown(command);
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {shown}"))?;
    let (lines, incoming) = mpsc::sync_channel(64);
    let ears = [
        child.stdout.take().map(|out| listen(out, lines.clone())),
        child.stderr.take().map(|err| listen(err, lines)),
    ];
    let mut said = CapturedOutput::default();
    for line in incoming {
        io::stderr().write_all(&line)?;
        let text = without_colours(&String::from_utf8_lossy(&line));
        let text = text.trim();
        if text.starts_with("Running ") || text.starts_with("test result:") {
            said.binaries.push(text.to_owned());
        }
        if is_closing(text) {
            said.closing.push(text.to_owned());
        }
    }
    for ear in ears.into_iter().flatten() {
        ear.join().expect("a listener has nothing to panic about");
    }
    Ok((child.wait()?, said))
}

/// Runs a program silently and returns its stdout; on failure the error contains its last lines.
pub(crate) fn quiet(command: &mut Command) -> Result<String> {
    let shown = shown(command);
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {shown}"))?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(out);
    }
    let all = format!("{out}{}", String::from_utf8_lossy(&output.stderr));
    let mut lines: Vec<&str> = all.lines().collect();
    if lines.len() > HEAD + TAIL {
        lines.splice(HEAD..lines.len() - TAIL, ["..."]);
    }
    bail!("{shown}: {}\n    {}", output.status, lines.join("\n    "));
}

/// The command as a person would type it.
fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or_default().to_string_lossy()];
    words.extend(command.get_args().map(std::ffi::OsStr::to_string_lossy));
    words.join(" ")
}

fn listen(
    from: impl Read + Send + 'static,
    to: mpsc::SyncSender<Vec<u8>>,
) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(from);
        let mut line = Vec::new();
        while let Ok(1..) = reader.read_until(b'\n', &mut line) {
            if to.send(std::mem::take(&mut line)).is_err() {
                return;
            }
        }
    })
}

/// The summary lines of libtest and nextest, what tests counted, nextest's list of failures, and cargo's of what did not
/// build.
fn is_closing(text: &str) -> bool {
    text.starts_with("test result:")
        || text.starts_with(COUNTED)
        || text.starts_with("Summary [")
        || text.starts_with("error: could not compile")
        || ["FAIL [", "SIGABRT [", "SIGSEGV [", "SIGKILL [", "TIMEOUT ["]
            .iter()
            .any(|verdict| text.starts_with(verdict))
}

fn without_colours(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            // A colour sequence ends with its first letter.
            characters.by_ref().find(char::is_ascii_alphabetic);
        } else {
            plain.push(character);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_of_both_runners_are_known() {
        assert!(is_closing("Summary [   1.2s] 3 tests run: 3 passed, 0 skipped"));
        assert!(is_closing("test result: ok. 4 passed; 0 failed; 0 ignored"));
        assert!(is_closing("FAIL [   0.1s] xtask tidy::tests::x"));
        assert!(!is_closing("PASS [   0.1s] xtask tidy::tests::x"));
        assert!(!is_closing("test a::b ... ok"));
    }

    #[test]
    fn colours_are_taken_off() {
        assert_eq!(without_colours("\u{1b}[1;32mok\u{1b}[0m done"), "ok done");
        assert_eq!(without_colours("cut \u{1b}[3"), "cut ");
    }

    #[test]
    fn closing_lines_are_remembered_from_both_streams() {
        let script =
            "echo 'test result: ok. 1 passed'; echo 'Summary [1s] 1 test run' >&2; echo more";
        let mut said = loud(Command::new("sh").args(["-c", script])).unwrap();
        said.closing.sort();
        assert_eq!(said.closing, ["Summary [1s] 1 test run", "test result: ok. 1 passed"]);
    }

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let failed = quiet(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        let text = failed.to_string();
        assert!(text.contains("sh -c") && text.contains("why") && text.contains('3'), "{text}");
        let script = "seq 1000; echo why; exit 1";
        let failed = quiet(Command::new("sh").args(["-c", script])).unwrap_err().to_string();
        assert!(failed.contains("    1\n") && failed.ends_with("why"), "{failed}");
        assert_eq!(failed.lines().count(), 1 + HEAD + 1 + TAIL);
        let script = "echo 'FAIL [1s] a::b'; echo 'FAIL [1s] a::b'; exit 4";
        let failed = loud(Command::new("sh").args(["-c", script])).unwrap_err().to_string();
        assert!(
            failed.contains('4') && failed.matches("\nFAIL [1s] a::b").count() == 1,
            "{failed}"
        );
    }
}
