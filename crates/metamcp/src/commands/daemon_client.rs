//! Talking to the daemon from a command: one connection, one question.
//! Owns: hello and reply, how long to wait for them.      Never: decides what to do without a daemon.
//! In: the home of metamcp.  Out: the daemon's answer, or why there is none.
//! Tests: `tests/config/daemon.rs` with false daemons, `tests/daemon` with a real one.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use metamcp_engine::runtime_folder::{NoFolder, Places, Stream, is_absent};
use metamcp_engine::serve::daemon_status::DaemonStatus;
use metamcp_wire::local::{Accepted, Hello, Kind, MAX_REPLY, Refusal, Reply};
use serde_json::{Value, json};

/// How long a daemon may take to reply: it may have to read a configuration from a slow disk first.
const REPLY: Duration = Duration::from_secs(10);

/// Why no daemon answers.
#[derive(Debug)]
pub(crate) enum Absent {
    /// None runs.
    NotRunning,
    /// None can run.
    NoFolder(NoFolder),
    /// Something is at its place, and does not do.
    Unusable(String),
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Absent::NotRunning => f.write_str("No daemon is running."),
            Absent::NoFolder(error) => {
                write!(f, "No daemon can run here: {error}. Each client has a gateway of its own.")
            }
            Absent::Unusable(why) => write!(f, "The daemon cannot be used: {why}."),
        }
    }
}

/// A connection whose hello was answered.
pub(crate) struct Connection {
    pub(crate) input: BufReader<OneWay>,
    pub(crate) reply: Reply,
}

/// A stream that can be read through a reference.
pub(crate) struct OneWay(Stream);

impl Read for OneWay {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&self.0).read(into)
    }
}

/// Says hello to the daemon that runs, if one does.
pub(crate) fn ask(home: &Path, hello: &[u8]) -> Result<Connection, Absent> {
    let places = Places::find(home).map_err(Absent::NoFolder)?;
    let stream = match places.connect() {
        Ok(stream) => stream,
        Err(error) if is_absent(&error) => return Err(Absent::NotRunning),
        Err(error) => return Err(Absent::Unusable(error.to_string())),
    };
    introduce(stream, hello)
}

/// Sends the hello, and reads the reply to it.
pub(crate) fn introduce(stream: Stream, hello: &[u8]) -> Result<Connection, Absent> {
    let unusable = |error: io::Error| {
        Absent::Unusable(match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("it did not reply within {} s", REPLY.as_secs())
            }
            _ => error.to_string(),
        })
    };
    (&stream).write_all(hello).map_err(unusable)?;
    stream.set_read_timeout(Some(REPLY)).map_err(unusable)?;
    let mut input = BufReader::new(OneWay(stream));
    let line = line(&mut input, MAX_REPLY).map_err(unusable)?;
    let line = line.ok_or_else(|| Absent::Unusable("it closed the connection".to_owned()))?;
    let reply = Reply::parse(&line).map_err(|error| Absent::Unusable(error.to_string()))?;
    input.get_ref().0.set_read_timeout(None).map_err(unusable)?;
    Ok(Connection { input, reply })
}

/// One line without its end; `None` at the end of input. A longer one is an error: nobody means well with it.
pub(crate) fn line(input: &mut impl BufRead, most: usize) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.by_ref().take(most as u64).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(line)),
        Some(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "it broke off in a line")),
    }
}

/// A hello without a context.
fn plain(kind: Kind) -> Vec<u8> {
    Hello::plain(env!("CARGO_PKG_VERSION"), kind, std::process::id()).to_line()
}

/// Starts a daemon, unless one runs, and says which process it is.
pub(crate) fn start(home: &Path) -> anyhow::Result<u32> {
    crate::connector::start(home)
}

/// The state of the daemon.
pub(crate) fn status(home: &Path) -> anyhow::Result<Result<DaemonStatus, Absent>> {
    let connection = match ask(home, &plain(Kind::Status)) {
        Ok(connection) => connection,
        Err(absent) => return Ok(Err(absent)),
    };
    let Accepted { status, .. } = accepted(connection.reply)?;
    let status = status.context("the daemon said nothing of its state")?;
    let status = serde_json::from_str(&status).context("the daemon's state cannot be read")?;
    Ok(Ok(status))
}

/// A connection for requests of the admin API.
pub(crate) struct Admin(BufReader<OneWay>);

/// What came of a request.
pub(crate) enum Answered {
    Value(Value),
    Refused(Refused),
}

/// The daemon refused a request: a code, words, and what to do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Refused {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let visible = |words: &str| crate::render::visible(words);
        write!(f, "{}", visible(&self.message))?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {}", visible(hint)))
    }
}

/// Longest answer: a thousand rows, each with names at their longest.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// How long an answer may take: a search may wait for servers to start.
const ANSWER: Duration = Duration::from_mins(2);

impl Admin {
    pub(crate) fn connect(home: &Path) -> anyhow::Result<Result<Admin, Absent>> {
        Admin::introduced(home, &plain(Kind::Admin))
    }

    /// The same with a hello that has a context, which some requests need.
    pub(crate) fn introduced(home: &Path, hello: &[u8]) -> anyhow::Result<Result<Admin, Absent>> {
        let connection = match ask(home, hello) {
            Ok(connection) => connection,
            Err(absent) => return Ok(Err(absent)),
        };
        accepted(connection.reply)?;
        connection.input.get_ref().0.set_read_timeout(Some(ANSWER))?;
        Ok(Ok(Admin(connection.input)))
    }

    pub(crate) fn ask(&mut self, ask: &str, params: &Value) -> anyhow::Result<Answered> {
        let request = json!({ "ask": ask, "params": params });
        (&self.0.get_ref().0).write_all(format!("{request}\n").as_bytes())?;
        let line = line(&mut self.0, MAX_ANSWER)?.context("the daemon has ended")?;
        let mut answer: Value =
            serde_json::from_slice(&line).context("the daemon's answer cannot be read")?;
        let error = &mut answer["error"];
        if error.is_null() {
            return Ok(Answered::Value(answer["ok"].take()));
        }
        let text = |name: &str| error[name].as_str().map(str::to_owned);
        Ok(Answered::Refused(Refused {
            code: text("code").unwrap_or_default(),
            message: text("message").unwrap_or_default(),
            hint: text("hint"),
        }))
    }
}

/// Has the daemon stop, and waits until it has.
pub(crate) fn stop(home: &Path, limit: Duration) -> anyhow::Result<Result<u32, Absent>> {
    let mut connection = match ask(home, &plain(Kind::Stop)) {
        Ok(connection) => connection,
        Err(absent) => return Ok(Err(absent)),
    };
    let Accepted { pid, .. } = accepted(connection.reply)?;
    connection.input.get_ref().0.set_read_timeout(Some(limit))?;
    // It closes the connection as the last thing it does.
    match io::copy(&mut connection.input, &mut io::sink()) {
        Err(error)
            if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            let limit = limit.as_secs();
            bail!(
                "the daemon (process {pid}) has not ended within {limit} s; `metamcp status` shows who still uses it"
            )
        }
        // A daemon that is gone has stopped as well.
        _ => Ok(Ok(pid)),
    }
}

fn accepted(reply: Reply) -> anyhow::Result<Accepted> {
    match reply {
        Reply::Accepted(accepted) => Ok(accepted),
        Reply::Refused(Refusal { error, hint, .. }) => {
            let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            bail!("{}{}", crate::render::visible(&error), crate::render::visible(&hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_whole() {
        let mut input = &b"one\ntwo"[..];
        assert_eq!(line(&mut input, 100).unwrap().as_deref(), Some(&b"one"[..]));
        assert!(line(&mut input, 100).is_err());
        assert_eq!(line(&mut &b""[..], 100).unwrap(), None);
        assert!(line(&mut &b"0123456789\n"[..], 5).is_err());
    }
}
