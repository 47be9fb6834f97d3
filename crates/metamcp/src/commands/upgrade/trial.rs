//! Runs another program once, with a deadline.

use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use metamcp_engine::clock;

/// How often it is looked whether the program has ended.
const STEP: Duration = Duration::from_millis(10);
/// The longest output that is read.
const MAX_OUTPUT: u64 = 4096;

/// How it went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// With the beginning of its output.
    Well(String),
    /// It failed, or took too long.
    Badly,
    /// It cannot be started.
    Not,
}

#[expect(clippy::disallowed_methods, reason = "a downloaded program is tried before it is used")]
pub(super) fn run(program: &OsStr, arguments: &[&str], timeout: Duration) -> Ran {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return Ran::Not };
    let began = clock::std_instant();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => break,
            Ok(None) if began.elapsed() < timeout => std::thread::sleep(STEP),
            _ => {
                child.kill().ok();
                child.wait().ok();
                return Ran::Badly;
            }
        }
    }
    let mut text = String::new();
    let read = child.stdout.take().map(|out| out.take(MAX_OUTPUT).read_to_string(&mut text));
    if matches!(read, Some(Ok(_))) { Ran::Well(text) } else { Ran::Badly }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_program_runs_well_badly_or_not() {
        let run = |script: &str, timeout| run("sh".as_ref(), &["-c", script], timeout);
        let long = Duration::from_mins(1);
        assert_eq!(run("echo hello", long), Ran::Well("hello\n".into()));
        assert_eq!(run("exit 1", long), Ran::Badly);
        assert_eq!(run("sleep 60", Duration::ZERO), Ran::Badly);
        assert_eq!(super::run("no-such-program".as_ref(), &[], long), Ran::Not);
    }
}
