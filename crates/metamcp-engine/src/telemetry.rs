//! What the gateway tells its operator, on stderr, without ever waiting for stderr.
//! Owns: the level, the thread that writes.      Never: prints a secret or a control character, blocks a caller.
//! In: a level and a line.  Out: lines on stderr.
//! Tests: below.

use std::io::Write;
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};

use metamcp_config::settings::LogLevel;
use metamcp_types::text;

/// Lines that may wait for a host that does not read our stderr; more are dropped, since the data path must not
/// wait for it.
const BACKLOG: usize = 256;
/// Longest line.
const MAX_CHARS: usize = 2000;

struct Log {
    level: LogLevel,
    lines: SyncSender<String>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// Starts logging at a level. The first call wins.
pub fn start(level: LogLevel) {
    let (lines, waiting) = sync_channel::<String>(BACKLOG);
    let started =
        std::thread::Builder::new().name("log".into()).stack_size(64 * 1024).spawn(move || {
            for line in waiting {
                // Nobody reads our stderr: then nobody misses the line.
                drop(std::io::stderr().write_all(line.as_bytes()));
            }
        });
    if started.is_ok() {
        drop(LOG.set(Log { level, lines }));
    }
}

/// Whether lines of that level are written.
pub fn wants(level: LogLevel) -> bool {
    LOG.get().is_some_and(|log| level as u8 <= log.level as u8)
}

/// Writes one line, if the level asks for it.
pub fn log(level: LogLevel, message: &str) {
    if let Some(log) = LOG.get().filter(|log| level as u8 <= log.level as u8) {
        // A full queue means that nobody reads; the line is dropped.
        drop(log.lines.try_send(line(level, message)));
    }
}

fn line(level: LogLevel, message: &str) -> String {
    format!("metamcp {}: {}\n", level.as_str(), text::clean_line(message, MAX_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_line_without_control_characters() {
        assert_eq!(line(LogLevel::Warn, "a\x1b[31mb\nc"), "metamcp warn: ab c\n");
    }
}
