//! `metamcp daemon`: whether it runs, stopping and restarting it, its log.
//! Owns: words and exit codes.      Never: ends a process by its number: the daemon is asked.
//! In: the home of metamcp.  Out: text or JSON; the log.
//! Tests: below, `tests/config/daemon.rs` without a daemon, `tests/daemon` with one.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use metamcp_engine::files;
use metamcp_types::text;
use serde_json::json;

use super::daemon_client::{self, Absent};
use super::{daemon_run, status};
use crate::args::{DaemonCommand, DaemonLogsArgs, DaemonStopArgs};
use crate::exit::Exit;
use crate::{ConfigRequest, progress, with_home};

/// How long a daemon may take to finish its calls: longer than any sensible drainTimeoutMs.
const STOP: Duration = Duration::from_mins(2);

/// How often a log is looked at for more.
const LOOK: Duration = Duration::from_millis(200);

/// Longest line of a log that is shown whole.
const LONGEST: u64 = 64 * 1024;

pub(crate) fn run(
    config_request: ConfigRequest,
    command: &DaemonCommand,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    match command {
        DaemonCommand::Run(args) => daemon_run::run(config_request, args, out),
        DaemonCommand::Status(args) => {
            with_home(config_request, |home| status::brief(home, args, out))
        }
        DaemonCommand::Stop(args) => with_home(config_request, |home| stop(home, args, out)),
        DaemonCommand::Restart(args) => with_home(config_request, |home| restart(home, args, out)),
        DaemonCommand::Logs(args) => with_home(config_request, |home| logs(home, args, out)),
    }
}

fn stop(home: &Path, args: &DaemonStopArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let _working = progress::step("waiting for calls in progress");
    let stopped = daemon_client::stop(home, STOP)?;
    let told = match &stopped {
        Ok(pid) => (json!({ "stopped": true, "pid": pid }), format!("Stopped (process {pid}).")),
        Err(absent) => {
            (json!({ "stopped": false, "reason": absent.to_string() }), absent.to_string())
        }
    };
    say(out, args.json, &told)?;
    Ok(match stopped {
        // What was wanted is so.
        Ok(_) | Err(Absent::NotRunning | Absent::NoFolder(_)) => Exit::Success,
        Err(Absent::Unusable(_)) => Exit::Failure,
    })
}

fn restart(home: &Path, args: &DaemonStopArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let working = progress::step("waiting for calls in progress");
    let stopped = match daemon_client::stop(home, STOP)? {
        Ok(pid) => Some(pid),
        Err(Absent::NotRunning) => None,
        Err(absent) => anyhow::bail!("{absent}"),
    };
    working.say("starting the daemon");
    let pid = daemon_client::start(home)?;
    drop(working);
    let words = match stopped {
        Some(old) => format!("Restarted: process {old} has ended, {pid} serves."),
        None => format!("None was running; started process {pid}."),
    };
    say(out, args.json, &(json!({ "stopped": stopped, "pid": pid }), words))?;
    Ok(Exit::Success)
}

fn say(out: &mut dyn Write, json: bool, told: &(serde_json::Value, String)) -> io::Result<()> {
    match json {
        true => writeln!(out, "{:#}", told.0),
        false => writeln!(out, "{}", told.1),
    }
}

fn logs(home: &Path, args: &DaemonLogsArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let path = home.join("daemon.log");
    let opened = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        opened => Some(opened.with_context(|| format!("cannot read {}", path.display()))?),
    };
    if opened.is_none() && !args.follow {
        writeln!(out, "There is no log yet: {} does not exist.", path.display())?;
        return Ok(Exit::Success);
    }
    let mut log = opened.map(|file| Log::from_end(file, args.lines)).transpose()?;
    loop {
        if let Some(log) = &mut log {
            log.copy(out)?;
            out.flush()?;
        }
        if !args.follow {
            return Ok(Exit::Success);
        }
        std::thread::sleep(LOOK);
        // A log that was rotated is another file, and one that was truncated begins again.
        let is_over = log.as_ref().is_none_or(|log| log.is_over(&path));
        if is_over && let Ok(file) = File::open(&path) {
            if let Some(log) = &mut log {
                log.copy(out)?;
            }
            log = Some(Log { input: BufReader::new(file) });
        }
    }
}

/// A log, read up to somewhere.
struct Log {
    input: BufReader<File>,
}

impl Log {
    /// Begins so many lines before the end.
    fn from_end(mut file: File, lines: usize) -> io::Result<Log> {
        let at = place_of_last(&mut file, lines)?;
        file.seek(SeekFrom::Start(at))?;
        Ok(Log { input: BufReader::new(file) })
    }

    /// Prints what has been added. The log repeats what servers say, so it is cleaned line by line.
    fn copy(&mut self, out: &mut dyn Write) -> io::Result<()> {
        loop {
            let mut line = Vec::new();
            self.input.by_ref().take(LONGEST).read_until(b'\n', &mut line)?;
            if line.is_empty() {
                return Ok(());
            }
            let is_whole = line.pop_if(|last| *last == b'\n').is_some();
            let shown = String::from_utf8_lossy(&line);
            write!(out, "{}", text::clean(&shown, usize::MAX))?;
            if is_whole {
                writeln!(out)?;
            }
        }
    }

    fn is_over(&self, path: &Path) -> bool {
        let mut file = self.input.get_ref();
        let (Ok(is_same), Ok(now)) = (files::is_named(file, path), std::fs::metadata(path)) else {
            return false;
        };
        let read = file.stream_position().unwrap_or_default();
        !is_same || now.len() < read
    }
}

/// Where the last `lines` lines of a file begin, found from its end in blocks.
fn place_of_last(file: &mut File, lines: usize) -> io::Result<u64> {
    const BLOCK: u64 = 64 * 1024;
    let end = file.seek(SeekFrom::End(0))?;
    let mut found = 0;
    let mut before = end;
    while before > 0 {
        let from = before.saturating_sub(BLOCK);
        let mut block = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        Read::by_ref(file).take(before - from).read_to_end(&mut block)?;
        for at in (0..block.len()).rev().filter(|at| block[*at] == b'\n') {
            let place = from + at as u64 + 1;
            // The last line's own end begins no line.
            if place == end {
                continue;
            }
            found += 1;
            if found == lines {
                return Ok(place);
            }
        }
        before = from;
    }
    Ok(if lines == 0 { end } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(content: &str, lines: usize) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daemon.log");
        std::fs::write(&path, content).unwrap();
        let mut out = Vec::new();
        Log::from_end(File::open(&path).unwrap(), lines).unwrap().copy(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn the_last_lines_of_a_log() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
        assert_eq!(tail("a\nb\n", 9), "a\nb\n");
        assert_eq!(tail("a\nb\n", 0), "");
        assert_eq!(tail("", 3), "");
        let long = "x".repeat(70_000);
        assert_eq!(tail(&format!("{long}\n{long}\n"), 1), format!("{long}\n"));
    }

    #[test]
    fn escape_codes_in_a_log_are_not_obeyed() {
        assert!(!tail("evil \u{1b}]0;title\u{7}\n", 1).contains('\u{1b}'));
    }

    #[test]
    fn a_rotated_log_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("daemon.log");
        std::fs::write(&path, "a\n").unwrap();
        let mut log = Log::from_end(File::open(&path).unwrap(), 9).unwrap();
        log.copy(&mut Vec::new()).unwrap();
        assert!(!log.is_over(&path));
        std::fs::rename(&path, folder.path().join("daemon.log.1")).unwrap();
        assert!(!log.is_over(&path), "there is no other yet");
        std::fs::write(&path, "b\n").unwrap();
        assert!(log.is_over(&path));
    }
}
