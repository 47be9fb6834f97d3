//! The daemon's process. It inherits nothing: a handle of the client's pipes in it would keep that client waiting for their
//! end for as long as the daemon lives. So it has no output either: it writes its log itself, and it is ready once its pipe
//! is there.

use std::io;
use std::path::Path;
use std::time::Duration;

use metamcp_engine::runtime_folder::Places;
use winsafe::guard::CloseHandlePiGuard;
use winsafe::{CreateProcess, STARTUPINFO, co};

use crate::connector::program;

/// How soon a daemon that starts is looked at again.
const LOOK: Duration = Duration::from_millis(5);

/// A daemon that was started here.
pub(super) struct Process(CloseHandlePiGuard);

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Process({})", self.0.dwProcessId)
    }
}

/// What a daemon says at its start.
pub(super) enum Said {
    Line(String),
    /// It ended.
    Ended,
    /// Nothing in time.
    Nothing,
}

/// How it ended.
pub(super) struct End {
    pub(super) words: String,
    pub(super) is_killed: bool,
}

impl Process {
    pub(super) fn start(home: &Path, _log: &Path, take_over: Option<&Path>) -> io::Result<Process> {
        let mut words = vec!["daemon", "run", "--home", text(home)?];
        if let Some(socket) = take_over {
            words.extend(["--take-over", text(socket)?]);
        }
        Process::of(&words)
    }

    /// This program with these arguments.
    fn of(words: &[&str]) -> io::Result<Process> {
        let program = program();
        let mut line = quoted(text(&program)?);
        for word in words {
            line.push(' ');
            line.push_str(&quoted(word));
        }
        // A console of its own that nobody sees, so it hears none of the client's events. No process group: what leads one
        // does not hear Ctrl-C, nor does what it starts.
        let apart = co::CREATE::NO_WINDOW;
        let created = |flags| {
            // No streams at all: those of this process would be passed on although no other handle is, and whoever reads
            // them to their end would wait for the daemon.
            let mut startup = STARTUPINFO::default();
            startup.dwFlags = co::STARTF::USESTDHANDLES;
            let program = Some(text(&program).unwrap_or_default());
            CreateProcess(program, Some(&line), None, None, false, flags, &[], None, &mut startup)
        };
        // It outlives the job that its client may be in; some jobs do not allow that.
        let started = created(apart | co::CREATE::BREAKAWAY_FROM_JOB).or_else(|_| created(apart));
        started
            .map(Process)
            .map_err(|error| io::Error::from_raw_os_error(error.raw().cast_signed()))
    }

    pub(super) fn is_running(&mut self) -> bool {
        self.code().is_none()
    }

    /// Waits until it serves, or ends.
    pub(super) fn said(&mut self, places: &Places, limit: Duration) -> Said {
        let mut waited = Duration::ZERO;
        while waited < limit {
            // One that ends well leaves the place to another that serves already.
            match self.code() {
                Some(0) => return Said::Line("ready".to_owned()),
                Some(_) => return Said::Ended,
                None => {}
            }
            if places.connect().is_ok() {
                return Said::Line("ready".to_owned());
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
        Said::Nothing
    }

    /// How it ended. Whether somebody ended it cannot be told from its exit code.
    pub(super) fn ended(&mut self) -> Option<End> {
        let code = self.code()?;
        Some(End { words: format!("exit code: {code}"), is_killed: false })
    }

    /// Its exit code, once it has ended.
    fn code(&self) -> Option<u32> {
        match self.0.hProcess.WaitForSingleObject(Some(0)) {
            Ok(co::WAIT::OBJECT_0) => self.0.hProcess.GetExitCodeProcess().ok(),
            _ => None,
        }
    }
}

/// The same command line without the word that asks for this, in a process without our console: a task at logon has a
/// window for as long as its program runs.
pub(crate) fn start_apart() -> io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--apart").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Process::of(&words).map(drop)
}

fn text(path: &Path) -> io::Result<&str> {
    let words = || format!("the path {} is not Unicode", path.display());
    path.to_str().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, words()))
}

/// One word of a command line, as programs take it apart: backslashes count only in front of a quote, and the one we add
/// is such a quote. A path has none itself.
fn quoted(word: &str) -> String {
    let slashes = word.len() - word.trim_end_matches('\\').len();
    format!("\"{word}{}\"", "\\".repeat(slashes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(quoted(r"D:\Ada L\.metamcp"), r#""D:\Ada L\.metamcp""#);
        assert_eq!(quoted(r"C:\"), r#""C:\\""#);
    }
}
