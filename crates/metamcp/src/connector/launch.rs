//! Finding the user's daemon, and starting it if there is none.
//! Owns: who starts one, its replacement by a newer one, its log.      Never: says anything to a person.
//! In: places, a hello.  Out: a connection whose hello was accepted, or why there is none.
//! Tests: `tests/daemon/`.

use std::fmt;
#[cfg_attr(unix, path = "launch/unix.rs")]
#[cfg_attr(windows, path = "launch/windows.rs")]
mod process;

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use metamcp_engine::runtime_folder::{Places, Stream, is_absent};
use metamcp_types::text;
use metamcp_wire::local::{Accepted, Code, Hello, Kind, MAX_REPLY, Refusal, Reply, is_newer};

#[cfg(windows)]
pub(crate) use self::process::start_apart;
use self::process::{Process, Said};
use super::VERSION;

/// How long a daemon may take to reply: it may have to read a configuration from a slow disk first.
const REPLY: Duration = Duration::from_secs(10);
/// How long it may take to start.
const READY: Duration = Duration::from_secs(10);
/// How long somebody else may take to start it.
const OTHERS: Duration = Duration::from_secs(15);
/// How often daemons may end between our connecting and their reply.
const ATTEMPTS: u32 = 8;

/// Why there is no session with a daemon.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It does not want this one.
    Refused(Refusal),
    /// It was killed before it was ready.
    Killed(String),
    Unusable(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Killed(words) | Trouble::Unusable(words) => f.write_str(words),
            Trouble::Refused(Refusal { error, hint, .. }) => {
                f.write_str(error)?;
                hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
            }
        }
    }
}

/// A session with a daemon.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) stream: Stream,
    pub(super) accepted: Accepted,
    /// What it wrote behind its reply.
    pub(super) rest: Vec<u8>,
}

/// Finds daemons for one connector.
#[derive(Debug)]
pub(super) struct Launcher {
    places: Places,
    home: PathBuf,
    hello: Vec<u8>,
    /// Those that were started here, so that their remains can be cleared away.
    children: Vec<Process>,
}

impl Launcher {
    pub(super) fn new(places: Places, home: PathBuf, hello: Vec<u8>) -> Launcher {
        Launcher { places, home, hello, children: Vec::new() }
    }

    /// Introduces itself differently from now on.
    pub(super) fn say_instead(&mut self, hello: Vec<u8>) {
        self.hello = hello;
    }

    /// A session with the daemon that runs, or with a new one.
    pub(super) fn find(&mut self) -> Result<Found, Trouble> {
        self.children.retain_mut(Process::is_running);
        let mut has_replaced = false;
        let mut last = "no daemon stays".to_owned();
        for attempt in 0..ATTEMPTS {
            let stream = match self.places.connect() {
                Ok(stream) => stream,
                Err(error) if is_absent(&error) => {
                    match self.start(None) {
                        // That says nothing of the next one.
                        Err(Trouble::Killed(words)) => {
                            last = words;
                            pause(attempt);
                        }
                        started => started?,
                    }
                    continue;
                }
                Err(error) => return Err(self.at_socket(&error)),
            };
            match greeted(stream, &self.hello) {
                Ok((Reply::Accepted(accepted), stream, rest)) => {
                    if has_replaced || !is_newer(VERSION, &accepted.version) {
                        return Ok(Found { stream, accepted, rest });
                    }
                    has_replaced = true;
                    drop(stream);
                    self.replace()?;
                }
                Ok((Reply::Refused(refusal), ..)) if refusal.code == Code::Draining => {
                    last = refusal.error;
                    pause(attempt);
                }
                Ok((Reply::Refused(refusal), ..)) => return Err(Trouble::Refused(refusal)),
                // It ended meanwhile.
                Err(Silence::Gone(error)) => {
                    last = format!("the daemon closed the connection before its reply ({error})");
                    pause(attempt);
                }
                Err(Silence::Wrong(words)) => return Err(self.wrong(&words)),
            }
        }
        Err(Trouble::Unusable(last))
    }

    /// Whether the last daemon ended on purpose: one that was killed leaves its socket behind.
    pub(super) fn was_stopped(&self) -> bool {
        let connected = self.places.connect();
        connected.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// Has an older daemon drain, and starts one of this version.
    fn replace(&mut self) -> Result<(), Trouble> {
        let held = self.hold_start()?;
        let ask = |kind: Kind| -> Option<Accepted> {
            let stream = self.places.connect().ok()?;
            let hello = Hello::plain(VERSION, kind, std::process::id()).to_line();
            match greeted(stream, &hello) {
                Ok((Reply::Accepted(accepted), ..)) => Some(accepted),
                _ => None,
            }
        };
        // Somebody else may have been faster; one that does not drain is as good as it was.
        let is_old = ask(Kind::Status).is_some_and(|found| is_newer(VERSION, &found.version));
        let Some(old) = is_old.then(|| ask(Kind::Drain)).flatten() else { return Ok(()) };
        let socket = old.address.map_or_else(|| self.places.old_socket(old.pid), PathBuf::from);
        let spawned = self.spawn(Some(&socket));
        drop(held);
        match spawned {
            // The next one is found, or started, like any other.
            Err(Trouble::Killed(_)) => Ok(()),
            spawned => spawned,
        }
    }

    fn start(&mut self, take_over: Option<&Path>) -> Result<(), Trouble> {
        let _held = self.hold_start()?;
        if self.places.connect().is_ok() {
            return Ok(());
        }
        self.spawn(take_over)
    }

    fn hold_start(&self) -> Result<metamcp_engine::runtime_folder::Held, Trouble> {
        let held = self.places.hold_start(OTHERS).map_err(|error| {
            let lock = self.places.start_lock();
            Trouble::Unusable(format!("the lock {} cannot be had: {error}", lock.display()))
        })?;
        held.ok_or_else(|| {
            let limit = text::duration(OTHERS);
            Trouble::Unusable(format!("another process has not started the daemon within {limit}"))
        })
    }

    /// Starts a daemon and waits until it is ready.
    fn spawn(&mut self, take_over: Option<&Path>) -> Result<(), Trouble> {
        let log = self.places.log();
        let mut child = Process::start(&self.home, &log, take_over)
            .map_err(|error| Trouble::Unusable(format!("the daemon cannot be started: {error}")))?;
        let (how, is_killed) = match child.said(&self.places, READY) {
            Said::Line(line) if line.starts_with("ready") => {
                self.children.push(child);
                return Ok(());
            }
            Said::Line(line) => (line, false),
            Said::Ended => match child.ended() {
                Some(end) => (format!("it ended at once ({})", end.words), end.is_killed),
                None => ("it closed its output without a word".to_owned(), false),
            },
            Said::Nothing => (format!("it was not ready within {}", text::duration(READY)), false),
        };
        self.children.push(child);
        let last = last_words(&log).map(|words| format!(": {words}")).unwrap_or_default();
        let log = log.display();
        let words = format!("the daemon could not start: {how}{last}; its log is {log}");
        Err(if is_killed { Trouble::Killed(words) } else { Trouble::Unusable(words) })
    }

    fn at_socket(&self, error: &io::Error) -> Trouble {
        let socket = self.places.socket();
        Trouble::Unusable(format!("the socket {} cannot be used: {error}", socket.display()))
    }

    fn wrong(&self, words: &str) -> Trouble {
        let socket = self.places.socket();
        Trouble::Unusable(format!(
            "what answers at {} is no daemon of metamcp that this program understands: {words}",
            socket.display()
        ))
    }
}

/// The last line of the log.
fn last_words(log: &Path) -> Option<String> {
    /// Longer than any line that explains something.
    const TAIL: u64 = 2048;
    const MOST: usize = 300;
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(io::SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail).into_owned();
    let line = tail.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(text::clean_line(line, MOST).into_owned())
}

/// Starts the daemon of a home, unless it runs; its process.
pub(crate) fn start(home: &Path) -> anyhow::Result<u32> {
    let hello = Hello::plain(VERSION, Kind::Status, std::process::id()).to_line();
    let mut launcher = Launcher::new(Places::find(home)?, home.to_owned(), hello);
    match launcher.find() {
        Ok(found) => Ok(found.accepted.pid),
        Err(trouble) => anyhow::bail!("{trouble}"),
    }
}

/// A little longer each time.
fn pause(attempt: u32) {
    std::thread::sleep(Duration::from_millis(10 << attempt.min(6)));
}

/// Why there is no reply.
enum Silence {
    /// The connection ended.
    Gone(io::Error),
    Wrong(String),
}

fn greeted(mut stream: Stream, hello: &[u8]) -> Result<(Reply, Stream, Vec<u8>), Silence> {
    stream.set_write_timeout(Some(REPLY)).map_err(Silence::Gone)?;
    stream.set_read_timeout(Some(REPLY)).map_err(Silence::Gone)?;
    stream.write_all(hello).map_err(silence)?;
    let mut read = Vec::new();
    let mut part = [0; 4096];
    let end = loop {
        let count = stream.read(&mut part).map_err(silence)?;
        if count == 0 {
            return Err(Silence::Gone(io::ErrorKind::UnexpectedEof.into()));
        }
        let from = read.len();
        read.extend_from_slice(&part[..count]);
        if let Some(at) = memchr::memchr(b'\n', &read[from..]) {
            break from + at;
        }
        if read.len() > MAX_REPLY {
            return Err(Silence::Wrong("its reply is too long".to_owned()));
        }
    };
    let reply = Reply::parse(&read[..end]).map_err(|error| Silence::Wrong(error.to_string()))?;
    stream.set_read_timeout(None).map_err(Silence::Gone)?;
    stream.set_write_timeout(None).map_err(Silence::Gone)?;
    Ok((reply, stream, read.split_off(end + 1)))
}

fn silence(error: io::Error) -> Silence {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            Silence::Wrong(format!("it did not reply within {}", text::duration(REPLY)))
        }
        _ => Silence::Gone(error),
    }
}
