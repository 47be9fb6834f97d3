//! Why a daemon does not take a connection.

use super::{LocalError, MAX_REMARKS, list, open, optional, quoted, text, whole, words};
use crate::object;
use crate::write::{json_string, number};

/// A hello that was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The version of the daemon.
    pub version: String,
    pub code: Code,
    /// What is wrong, for a person.
    pub error: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The exit code a program in its place would have had.
    pub exit: Option<u8>,
    /// Further words for stderr.
    pub remarks: Vec<String>,
}

/// What kind of refusal it is, which decides what the connector does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// It speaks another version of this protocol.
    Protocol,
    /// The configuration of this context cannot be used.
    Config,
    /// It takes no new sessions: another daemon will.
    Draining,
    /// It has too many sessions.
    Busy,
    /// Not for this one.
    Denied,
    /// The configuration of this context wants no daemon.
    Off,
    /// The configuration of this context wants HTTP: it has to ask for a listener.
    Http,
    /// Something failed, or a code that only a newer daemon knows.
    Internal,
}

impl Code {
    pub fn word(self) -> &'static str {
        match self {
            Code::Protocol => "protocol",
            Code::Config => "config",
            Code::Draining => "draining",
            Code::Busy => "busy",
            Code::Denied => "denied",
            Code::Off => "off",
            Code::Http => "http",
            Code::Internal => "internal",
        }
    }

    fn of(word: &str) -> Code {
        let known = [
            Code::Protocol,
            Code::Config,
            Code::Draining,
            Code::Busy,
            Code::Denied,
            Code::Off,
            Code::Http,
        ];
        known.into_iter().find(|code| code.word() == word).unwrap_or(Code::Internal)
    }
}

impl Refusal {
    pub fn new(version: &str, code: Code, error: impl Into<String>) -> Refusal {
        let (version, error) = (version.to_owned(), error.into());
        Refusal { version, code, error, hint: None, exit: None, remarks: Vec::new() }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        open(out, &self.version);
        out.extend_from_slice(b",\"ok\":false,\"code\":");
        json_string(out, self.code.word());
        out.extend_from_slice(b",\"error\":");
        json_string(out, &self.error);
        if let Some(hint) = &self.hint {
            out.extend_from_slice(b",\"hint\":");
            json_string(out, hint);
        }
        if let Some(exit) = self.exit {
            out.extend_from_slice(b",\"exit\":");
            number(out, u64::from(exit));
        }
        words(out, "remarks", &self.remarks);
    }

    /// From a line of JSON that was checked.
    pub(super) fn read(line: &[u8]) -> Result<Refusal, LocalError> {
        let names = ["version", "code", "error", "hint", "exit", "remarks"];
        let [version, code, error, hint, exit, remarks] =
            object::pick(line, names).map_err(LocalError::Json)?;
        Ok(Refusal {
            version: optional(version, "version")?.unwrap_or_default(),
            code: Code::of(&text(code, "code")?),
            error: quoted(&text(error, "error")?).into_owned(),
            hint: optional(hint, "hint")?.map(|hint| quoted(&hint).into_owned()),
            exit: whole(exit).and_then(|exit| exit.try_into().ok()),
            remarks: list(remarks, "remarks", MAX_REMARKS)?,
        })
    }
}
