//! What went wrong with a server, as facts, and which of five categories that is.
//! Owns: the facts and their classification.      Never: reads message text to decide anything.
//! In: facts collected where bytes and processes are handled.  Out: a category; whether the breaker counts it.
//! Tests: below.

use std::fmt;
use std::time::Duration;

use crate::text::duration;

/// The five categories users see in `details.category`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Category {
    /// Credentials are missing, wrong or expired.
    Auth,
    /// The server cannot be reached or started.
    Offline,
    /// The server answered with an HTTP error.
    Http,
    /// The child process ended.
    StdioExit,
    /// Anything else.
    Other,
}

impl Category {
    /// The word used in answers and logs.
    pub fn word(self) -> &'static str {
        match self {
            Category::Auth => "auth",
            Category::Offline => "offline",
            Category::Http => "http",
            Category::StdioExit => "stdio-exit",
            Category::Other => "other",
        }
    }

    /// Credentials are never the server's health; everything else is.
    pub fn counts(self) -> bool {
        self != Category::Auth
    }
}

/// One typed fact about a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// The command could not be started at all.
    SpawnFailed {
        /// What the system said.
        reason: String,
    },
    /// The process ended.
    Exited {
        /// Its exit code.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
    },
    /// It closed its output but goes on living.
    OutputClosed,
    /// It does not take its input any more.
    InputClosed,
    /// It was not ready in time.
    StartTimedOut {
        /// How long it was given.
        after: Duration,
    },
    /// It refused the handshake or spoke nonsense in it.
    HandshakeRefused {
        /// What it said.
        reason: String,
    },
    /// It did not answer a call in time.
    CallTimedOut {
        /// How long it was given.
        after: Duration,
    },
    /// It stopped reading while calls for it pile up.
    Stalled {
        /// For how long nothing was taken.
        after: Duration,
    },
    /// It wrote too much that is not the protocol.
    Garbage {
        /// How many lines.
        lines: u64,
    },
    /// It wrote a message longer than the limit, and not even its id could be read.
    Oversize {
        /// How long it was.
        bytes: u64,
    },
    /// An HTTP status.
    HttpStatus {
        /// The status code.
        status: u16,
    },
    /// The network or name service refused.
    Unreachable {
        /// What the system said.
        reason: String,
    },
    /// This build cannot speak to it.
    Unsupported {
        /// What is missing.
        reason: String,
    },
}

impl Fact {
    /// The category of a fact.
    pub fn category(&self) -> Category {
        match self {
            Fact::HttpStatus { status: 401 | 403 } => Category::Auth,
            Fact::HttpStatus { .. } => Category::Http,
            Fact::SpawnFailed { .. } | Fact::Unreachable { .. } => Category::Offline,
            Fact::Exited { .. } | Fact::OutputClosed | Fact::InputClosed => Category::StdioExit,
            Fact::StartTimedOut { .. }
            | Fact::HandshakeRefused { .. }
            | Fact::CallTimedOut { .. }
            | Fact::Stalled { .. }
            | Fact::Garbage { .. }
            | Fact::Oversize { .. }
            | Fact::Unsupported { .. } => Category::Other,
        }
    }

    /// Whether a fresh process might do better at once. A command that does not exist will not.
    pub fn may_pass(&self) -> bool {
        match self {
            Fact::Exited { .. } | Fact::OutputClosed | Fact::InputClosed | Fact::Garbage { .. } => {
                true
            }
            Fact::SpawnFailed { .. }
            | Fact::StartTimedOut { .. }
            | Fact::HandshakeRefused { .. }
            | Fact::CallTimedOut { .. }
            | Fact::Stalled { .. }
            | Fact::Oversize { .. }
            | Fact::HttpStatus { .. }
            | Fact::Unreachable { .. }
            | Fact::Unsupported { .. } => false,
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::SpawnFailed { reason } => write!(f, "could not be started: {reason}"),
            Fact::Exited { code: Some(code), .. } => write!(f, "exited with code {code}"),
            Fact::Exited { signal: Some(signal), .. } => write!(f, "was ended by signal {signal}"),
            Fact::Exited { .. } => write!(f, "exited"),
            Fact::OutputClosed => write!(f, "closed its output"),
            Fact::InputClosed => write!(f, "closed its input"),
            Fact::StartTimedOut { after } => write!(f, "was not ready within {}", duration(*after)),
            Fact::HandshakeRefused { reason } => write!(f, "refused the handshake: {reason}"),
            Fact::CallTimedOut { after } => write!(f, "did not answer within {}", duration(*after)),
            Fact::Stalled { after } => write!(f, "has not read its input for {}", duration(*after)),
            Fact::Garbage { lines } => {
                write!(f, "wrote {lines} lines to its output that are not the protocol")
            }
            Fact::Oversize { bytes } => {
                write!(f, "wrote one message of {bytes} bytes, which is over the line limit")
            }
            Fact::HttpStatus { status } => write!(f, "answered HTTP {status}"),
            Fact::Unreachable { reason } => write!(f, "cannot be reached: {reason}"),
            Fact::Unsupported { reason } => f.write_str(reason),
        }
    }
}

/// A failure as it is told: the fact, and the last words of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub fact: Fact,
    /// The last lines the process wrote to its error output, oldest first.
    pub last_words: Vec<String>,
}

impl Failure {
    /// A failure without last words.
    pub fn new(fact: Fact) -> Failure {
        Failure { fact, last_words: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn categories() {
        let check = |fact: Fact, category| assert_eq!(fact.category(), category, "{fact}");
        check(Fact::HttpStatus { status: 401 }, Category::Auth);
        check(Fact::HttpStatus { status: 403 }, Category::Auth);
        check(Fact::HttpStatus { status: 502 }, Category::Http);
        check(Fact::SpawnFailed { reason: "no such file".into() }, Category::Offline);
        check(Fact::Unreachable { reason: "refused".into() }, Category::Offline);
        check(Fact::Exited { code: Some(1), signal: None }, Category::StdioExit);
        check(Fact::OutputClosed, Category::StdioExit);
        check(Fact::CallTimedOut { after: Duration::from_secs(60) }, Category::Other);
        assert!(!Category::Auth.counts());
        assert!(
            [Category::Offline, Category::Http, Category::StdioExit, Category::Other]
                .iter()
                .all(|c| c.counts())
        );
    }

    #[test]
    fn text_never_decides() {
        let shouting = Fact::SpawnFailed { reason: "401 Unauthorized".into() };
        assert_eq!(shouting.category(), Category::Offline);
    }
}
