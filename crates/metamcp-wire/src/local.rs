//! The local protocol: how a connector or a command introduces itself to the user's daemon, and what that replies.
//! Owns: the hello, the reply, the frames of a command.      Never: connects, decides who is served.
//! In: one line of JSON, or the parts of one.  Out: the other of the two.
//! Tests: `local/tests.rs`.
//!
//! One connection is one session or one request. Its first line is the hello, the first line back the reply. Members that
//! are not known are ignored, so that either side may be newer; what changes the meaning of a known one gets a new number.

mod refusal;

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::object::{self, elements, members};
use crate::scan::{self, Defect};
use crate::write::{json_string, number};

pub use refusal::{Code, Refusal};

/// The number of this protocol.
pub const PROTOCOL: u64 = 1;
/// Longest hello: an environment is at most two megabytes on the systems we know, twice that when escaped.
pub const MAX_HELLO: usize = 4 * 1024 * 1024;
/// Longest reply: remarks, or the state of a daemon with hundreds of sessions.
pub const MAX_REPLY: usize = 4 * 1024 * 1024;
/// How long a daemon waits for the hello.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// Where there is no half-close, on the pipes of Windows, this byte behind the last line of a client says that its input
/// has ended. No line of JSON has it.
pub const INPUT_ENDED: u8 = 0x04;
/// There too, a line of this byte alone is the daemon's word that its client is to come anew: what the client wrote until
/// now is answered here, and it says by [`INPUT_ENDED`] where that ends.
pub const COME_ANEW: u8 = 0x05;

/// Deepest nesting that is read: the state of a daemon, which is the deepest, has five levels.
const MAX_DEPTH: usize = 16;
/// Most flags or arguments of a hello.
const MAX_WORDS: usize = 4096;
/// Most variables of a hello.
const MAX_VARIABLES: usize = 16_384;
/// Most remarks of a reply.
const MAX_REMARKS: usize = 256;

/// The first line of a connection: who connects, and what for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The version of the program that connects.
    pub version: String,
    pub kind: Kind,
    pub pid: u32,
    /// Its working directory, absolute; empty where the kind needs none.
    pub folder: String,
    /// Its own flags, as on the command line, without the program and the command.
    pub flags: Vec<String>,
    /// Its environment, without what is not UTF-8.
    pub env: Vec<(String, String)>,
}

/// What a connection is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// MCP lines both ways after the reply; a half-close means that the client's input ended.
    Session,
    /// HTTP is served for this context while the connection lives.
    Listen,
    /// A command of a shell; frames follow the reply.
    Command(CommandLine),
    Status,
    Stop,
    /// Takes no new sessions, gives up name and lock, lives on until its last session ends.
    Drain,
    /// Hands over the HTTP listeners, with their hellos.
    Listeners,
    /// Requests of an operator, and their answers: one line of JSON each.
    Admin,
}

/// What a command needs besides the context.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommandLine {
    pub args: Vec<String>,
    /// What was piped in.
    pub stdin: Option<Vec<u8>>,
    /// Files named in the arguments, as the command's own process read them: it may be the only one that can.
    pub files: Vec<(String, Vec<u8>)>,
    pub terminal: Terminal,
}

/// Where the output of a command goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Terminal {
    pub stdout: bool,
    pub stderr: bool,
    /// Columns; 0 where there is no terminal.
    pub width: u16,
}

impl Kind {
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Session => "session",
            Kind::Listen => "listen",
            Kind::Command(_) => "command",
            Kind::Status => "status",
            Kind::Stop => "stop",
            Kind::Drain => "drain",
            Kind::Listeners => "listeners",
            Kind::Admin => "admin",
        }
    }
}

/// Why a hello or a reply cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocalError {
    #[error("this is not a line of JSON ({0})")]
    Json(Defect),
    #[error("this is not metamcp's local protocol: the member `metamcp` is missing")]
    Stranger,
    #[error(
        "it speaks version {theirs} of the local protocol, and this program version {PROTOCOL}"
    )]
    Protocol { theirs: u64 },
    #[error("the member `{0}` is missing or is not what it should be")]
    Member(&'static str),
    #[error("there is no kind {0:?} of connection")]
    Kind(String),
    #[error("the member `{0}` is too long")]
    TooLong(&'static str),
}

impl Hello {
    /// A hello without a context, such as for `status` and `stop`.
    pub fn plain(version: &str, kind: Kind, pid: u32) -> Hello {
        let (folder, flags, env) = (String::new(), Vec::new(), Vec::new());
        Hello { version: version.to_owned(), kind, pid, folder, flags, env }
    }

    /// One line, with its newline.
    pub fn to_line(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        open(&mut out, &self.version);
        out.extend_from_slice(b",\"kind\":");
        json_string(&mut out, self.kind.word());
        out.extend_from_slice(b",\"pid\":");
        number(&mut out, u64::from(self.pid));
        out.extend_from_slice(b",\"folder\":");
        json_string(&mut out, &self.folder);
        words(&mut out, "flags", &self.flags);
        out.extend_from_slice(b",\"env\":{");
        for (index, (name, value)) in self.env.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            json_string(&mut out, name);
            out.push(b':');
            json_string(&mut out, value);
        }
        out.push(b'}');
        if let Kind::Command(command) = &self.kind {
            words(&mut out, "args", &command.args);
            if let Some(stdin) = &command.stdin {
                out.extend_from_slice(b",\"stdin\":");
                json_string(&mut out, &STANDARD.encode(stdin));
            }
            if !command.files.is_empty() {
                out.extend_from_slice(b",\"files\":{");
                for (index, (name, content)) in command.files.iter().enumerate() {
                    if index > 0 {
                        out.push(b',');
                    }
                    json_string(&mut out, name);
                    out.push(b':');
                    json_string(&mut out, &STANDARD.encode(content));
                }
                out.push(b'}');
            }
            let Terminal { stdout, stderr, width } = command.terminal;
            let terminal =
                format!(r#","terminal":{{"stdout":{stdout},"stderr":{stderr},"width":{width}}}"#);
            out.extend_from_slice(terminal.as_bytes());
        }
        out.extend_from_slice(b"}\n");
        out
    }

    pub fn parse(line: &[u8]) -> Result<Hello, LocalError> {
        checked(line)?;
        let [protocol, version, kind, pid, folder, flags, env, args, stdin, files, terminal] =
            object::pick(
                line,
                [
                    "metamcp", "version", "kind", "pid", "folder", "flags", "env", "args", "stdin",
                    "files", "terminal",
                ],
            )
            .map_err(LocalError::Json)?;
        is_ours(protocol)?;
        let word = text(kind, "kind")?;
        let kind = match &*word {
            "session" => Kind::Session,
            "listen" => Kind::Listen,
            "command" => Kind::Command(CommandLine {
                args: list(args, "args", MAX_WORDS)?,
                stdin: input(stdin)?,
                files: contents(files)?,
                terminal: terminal.map(terminal_of).transpose()?.unwrap_or_default(),
            }),
            "status" => Kind::Status,
            "stop" => Kind::Stop,
            "drain" => Kind::Drain,
            "listeners" => Kind::Listeners,
            "admin" => Kind::Admin,
            _ => return Err(LocalError::Kind(word.chars().take(40).collect())),
        };
        Ok(Hello {
            version: text(version, "version")?,
            kind,
            pid: whole(pid).and_then(|pid| pid.try_into().ok()).ok_or(LocalError::Member("pid"))?,
            folder: optional(folder, "folder")?.unwrap_or_default(),
            flags: list(flags, "flags", MAX_WORDS)?,
            env: variables(env)?,
        })
    }

    /// The reply to a line that is no hello.
    pub fn refused(error: &LocalError, version: &str) -> Refusal {
        let (code, hint) = match error {
            LocalError::Protocol { .. } => (
                Code::Protocol,
                "end the older of the two: `metamcp daemon stop` ends the daemon, a restart of the client its connector",
            ),
            _ => (Code::Denied, ""),
        };
        let hint = (!hint.is_empty()).then(|| hint.to_owned());
        let (version, error) = (version.to_owned(), format!("the daemon refuses this: {error}"));
        Refusal { version, code, error, hint, exit: None, remarks: Vec::new() }
    }
}

/// The first line of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Accepted(Accepted),
    Refused(Refusal),
}

/// A hello that was taken.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Accepted {
    /// The version of the daemon.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// What its user should know, for stderr.
    pub remarks: Vec<String>,
    /// Where it listens, for `listen`.
    pub address: Option<String>,
    /// Its state as JSON, for `status`.
    pub status: Option<String>,
    /// Whether more of what was asked for follows, for `listeners`: so many lines.
    pub follow: u32,
}

impl Reply {
    pub fn to_line(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(128);
        match self {
            Reply::Accepted(accepted) => accepted.write(&mut out),
            Reply::Refused(refusal) => refusal.write(&mut out),
        }
        out.extend_from_slice(b"}\n");
        out
    }

    pub fn parse(line: &[u8]) -> Result<Reply, LocalError> {
        checked(line)?;
        let names = ["metamcp", "version", "ok", "pid", "remarks", "address", "status", "follow"];
        let [protocol, version, ok, pid, remarks, address, status, follow] =
            object::pick(line, names).map_err(LocalError::Json)?;
        // A refusal is read whatever the number: it may be what the refusal is about.
        let is_ok = flag(ok).ok_or(match protocol {
            None => LocalError::Stranger,
            Some(_) => LocalError::Member("ok"),
        })?;
        if !is_ok {
            return Refusal::read(line).map(Reply::Refused);
        }
        is_ours(protocol)?;
        Ok(Reply::Accepted(Accepted {
            version: text(version, "version")?,
            pid: whole(pid).and_then(|pid| pid.try_into().ok()).ok_or(LocalError::Member("pid"))?,
            remarks: list(remarks, "remarks", MAX_REMARKS)?,
            address: optional(address, "address")?,
            status: status.map(|raw| String::from_utf8_lossy(raw).into_owned()),
            follow: whole(follow).and_then(|count| count.try_into().ok()).unwrap_or(0),
        }))
    }
}

impl Accepted {
    fn write(&self, out: &mut Vec<u8>) {
        open(out, &self.version);
        out.extend_from_slice(b",\"ok\":true,\"pid\":");
        number(out, u64::from(self.pid));
        words(out, "remarks", &self.remarks);
        if let Some(address) = &self.address {
            out.extend_from_slice(b",\"address\":");
            json_string(out, address);
        }
        if let Some(status) = &self.status {
            out.extend_from_slice(b",\"status\":");
            out.extend_from_slice(&crate::write::one_line(status.as_bytes()));
        }
        if self.follow > 0 {
            out.extend_from_slice(b",\"follow\":");
            number(out, u64::from(self.follow));
        }
    }
}

/// What the daemon sends while a command runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    Out(String),
    Err(String),
    /// The last one: the exit code of the command.
    Exit(u8),
}

impl Frame {
    pub fn to_line(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Frame::Out(text) => {
                out.extend_from_slice(b"{\"out\":");
                json_string(&mut out, text);
            }
            Frame::Err(text) => {
                out.extend_from_slice(b"{\"err\":");
                json_string(&mut out, text);
            }
            Frame::Exit(code) => {
                out.extend_from_slice(b"{\"exit\":");
                number(&mut out, u64::from(*code));
            }
        }
        out.extend_from_slice(b"}\n");
        out
    }

    pub fn parse(line: &[u8]) -> Result<Frame, LocalError> {
        checked(line)?;
        let [out, err, exit] =
            object::pick(line, ["out", "err", "exit"]).map_err(LocalError::Json)?;
        match (out, err, exit) {
            (Some(_), None, None) => text(out, "out").map(Frame::Out),
            (None, Some(_), None) => text(err, "err").map(Frame::Err),
            (None, None, Some(_)) => {
                let code = whole(exit).and_then(|code| code.try_into().ok());
                code.map(Frame::Exit).ok_or(LocalError::Member("exit"))
            }
            _ => Err(LocalError::Member("out")),
        }
    }
}

/// Whether a connector of version `ours` should replace a daemon of version `theirs`: both as `1.2.3`, where anything
/// behind a hyphen comes before the release itself. What cannot be read is never newer.
pub fn is_newer(ours: &str, theirs: &str) -> bool {
    match (version(ours), version(theirs)) {
        (Some(ours), Some(theirs)) => ours > theirs,
        _ => false,
    }
}

/// Numbers, whether it is a release, and the name of what comes before one.
fn version(text: &str) -> Option<([u64; 3], bool, &str)> {
    let text = text.split('+').next().unwrap_or_default();
    let (numbers, pre) = text.split_once('-').unwrap_or((text, ""));
    let mut parts = numbers.split('.').map(|part| part.parse().ok());
    let found = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some((found, pre.is_empty(), pre))
}

fn open(out: &mut Vec<u8>, version: &str) {
    out.extend_from_slice(b"{\"metamcp\":");
    number(out, PROTOCOL);
    out.extend_from_slice(b",\"version\":");
    json_string(out, version);
}

fn words(out: &mut Vec<u8>, name: &str, words: &[String]) {
    if words.is_empty() {
        return;
    }
    out.push(b',');
    json_string(out, name);
    out.extend_from_slice(b":[");
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json_string(out, word);
    }
    out.push(b']');
}

fn checked(line: &[u8]) -> Result<(), LocalError> {
    scan::check(line, MAX_DEPTH).map_err(LocalError::Json)
}

fn is_ours(protocol: Option<&[u8]>) -> Result<(), LocalError> {
    match protocol.map(|raw| whole(Some(raw))) {
        None => Err(LocalError::Stranger),
        Some(Some(PROTOCOL)) => Ok(()),
        Some(Some(theirs)) => Err(LocalError::Protocol { theirs }),
        Some(None) => Err(LocalError::Member("metamcp")),
    }
}

fn text(raw: Option<&[u8]>, name: &'static str) -> Result<String, LocalError> {
    optional(raw, name)?.ok_or(LocalError::Member(name))
}

fn optional(raw: Option<&[u8]>, name: &'static str) -> Result<Option<String>, LocalError> {
    match raw {
        None | Some(b"null") => Ok(None),
        Some(raw) => {
            let found = object::text(raw).ok_or(LocalError::Member(name))?;
            Ok(Some(found.into_owned()))
        }
    }
}

fn list(raw: Option<&[u8]>, name: &'static str, most: usize) -> Result<Vec<String>, LocalError> {
    let Some(raw) = raw else { return Ok(Vec::new()) };
    if raw.first() != Some(&b'[') {
        return Err(LocalError::Member(name));
    }
    let mut found = Vec::new();
    for element in elements(raw) {
        if found.len() == most {
            return Err(LocalError::TooLong(name));
        }
        found.push(object::text(element).ok_or(LocalError::Member(name))?.into_owned());
    }
    Ok(found)
}

fn variables(raw: Option<&[u8]>) -> Result<Vec<(String, String)>, LocalError> {
    let Some(raw) = raw else { return Ok(Vec::new()) };
    if raw.first() != Some(&b'{') {
        return Err(LocalError::Member("env"));
    }
    let mut found = Vec::new();
    for (name, value) in members(raw) {
        if found.len() == MAX_VARIABLES {
            return Err(LocalError::TooLong("env"));
        }
        let value = object::text(value).ok_or(LocalError::Member("env"))?;
        // A process cannot be given such a variable, so nobody can have had it.
        let is_possible = |text: &str| !text.contains('\0');
        if name.is_empty() || name.contains('=') || !is_possible(&name) || !is_possible(&value) {
            return Err(LocalError::Member("env"));
        }
        found.push((name.into_owned(), value.into_owned()));
    }
    Ok(found)
}

fn input(raw: Option<&[u8]>) -> Result<Option<Vec<u8>>, LocalError> {
    let Some(encoded) = optional(raw, "stdin")? else { return Ok(None) };
    STANDARD.decode(encoded).map(Some).map_err(|_| LocalError::Member("stdin"))
}

fn contents(raw: Option<&[u8]>) -> Result<Vec<(String, Vec<u8>)>, LocalError> {
    let Some(raw) = raw else { return Ok(Vec::new()) };
    if raw.first() != Some(&b'{') {
        return Err(LocalError::Member("files"));
    }
    let mut found = Vec::new();
    for (name, content) in members(raw) {
        if found.len() == MAX_WORDS {
            return Err(LocalError::TooLong("files"));
        }
        let content = object::text(content).and_then(|text| STANDARD.decode(&*text).ok());
        found.push((name.into_owned(), content.ok_or(LocalError::Member("files"))?));
    }
    Ok(found)
}

fn terminal_of(raw: &[u8]) -> Result<Terminal, LocalError> {
    let [stdout, stderr, width] =
        object::pick(raw, ["stdout", "stderr", "width"]).map_err(LocalError::Json)?;
    Ok(Terminal {
        stdout: flag(stdout).unwrap_or(false),
        stderr: flag(stderr).unwrap_or(false),
        width: whole(width).map_or(0, |width| width.try_into().unwrap_or(u16::MAX)),
    })
}

fn flag(raw: Option<&[u8]>) -> Option<bool> {
    match raw? {
        b"true" => Some(true),
        b"false" => Some(false),
        _ => None,
    }
}

fn whole(raw: Option<&[u8]>) -> Option<u64> {
    std::str::from_utf8(raw?).ok()?.parse().ok()
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A text of the other side, cut to what an error may quote.
fn quoted(text: &str) -> Cow<'_, str> {
    const MOST: usize = 8 * 1024;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => Cow::Owned(format!("{}…", &text[..at])),
        None => Cow::Borrowed(text),
    }
}

#[cfg(test)]
mod tests;
