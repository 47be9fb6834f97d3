//! What went wrong with a server, as facts, and which of five categories that is.
//! Owns: the facts and their classification.      Never: reads message text to decide anything.
//! In: facts collected where bytes and processes are handled.  Out: a category; whether the breaker counts it.
//! Tests: below.

use std::fmt;
use std::time::Duration;

use metamcp_types::text::duration;
use serde::{Deserialize, Serialize};

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
}

/// The longest a server may ask to be left alone: beyond it, asking again once is no harm.
const LONGEST_WISH: Duration = Duration::from_mins(5);

/// One typed fact about a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The command could not be started at all.
    SpawnFailed {
        /// What the system said.
        reason: String,
    },
    /// A secret that its configuration only refers to cannot be had, so it was not started.
    SecretMissing {
        /// Which, and why not; never the secret.
        reason: String,
    },
    Exited {
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
        lines: u64,
    },
    /// It wrote a message longer than the limit, and not even its id could be read.
    Oversize {
        /// How long it was.
        bytes: u64,
    },
    HttpStatus {
        status: u16,
    },
    /// Its rate limit was hit.
    Limited {
        /// Its `Retry-After`.
        retry_after: Option<Duration>,
    },
    /// It cannot serve us now and says when it will again (HTTP 503).
    Busy {
        /// Its `Retry-After`.
        retry_after: Duration,
    },
    /// This process has as many files open as the system lets it have, so nothing more can be started or reached.
    OutOfFiles {
        /// What the system said, and of which limit.
        reason: String,
    },
    /// This user has as many processes as the system allows, so nothing more can be started.
    OutOfProcesses {
        /// What the system said, and of which limit.
        reason: String,
    },
    /// It wants to know who we are before it does anything.
    LoginNeeded {
        /// Why what we have does not do, as a fragment.
        reason: String,
        /// Where a person can sign in, if that is known already.
        address: Option<String>,
    },
    /// The network or name service refused.
    Unreachable {
        /// What the system said.
        reason: String,
    },
    /// What it shows to prove who it is, or how it encrypts, is not accepted.
    Insecure {
        /// What is wrong with it.
        reason: String,
    },
    /// The connection or stream ended before the answer came.
    StreamDropped,
    /// It answered a request with something that is not the protocol.
    NotMcp {
        /// What came instead, as a fragment.
        instead: String,
    },
    /// It redirects to an address that we do not follow.
    Astray {
        /// Where to, and why not, as a fragment.
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
            Fact::HttpStatus { status: 401 | 403 } | Fact::LoginNeeded { .. } => Category::Auth,
            Fact::HttpStatus { .. }
            | Fact::Limited { .. }
            | Fact::Busy { .. }
            | Fact::StreamDropped
            | Fact::NotMcp { .. }
            | Fact::Astray { .. } => Category::Http,
            Fact::SpawnFailed { .. }
            | Fact::SecretMissing { .. }
            | Fact::Unreachable { .. }
            | Fact::Insecure { .. } => Category::Offline,
            Fact::Exited { .. } | Fact::OutputClosed | Fact::InputClosed => Category::StdioExit,
            Fact::StartTimedOut { .. }
            | Fact::HandshakeRefused { .. }
            | Fact::CallTimedOut { .. }
            | Fact::Stalled { .. }
            | Fact::Garbage { .. }
            | Fact::Oversize { .. }
            | Fact::OutOfFiles { .. }
            | Fact::OutOfProcesses { .. }
            | Fact::Unsupported { .. } => Category::Other,
        }
    }

    /// Whether it speaks against the server's health. Credentials and rejected requests are ours to fix, and
    /// one that asks for a pause is alive.
    pub fn counts(&self) -> bool {
        match self {
            Fact::HttpStatus { status } => *status >= 500,
            Fact::Limited { .. } | Fact::OutOfFiles { .. } | Fact::OutOfProcesses { .. } => false,
            _ => self.category() != Category::Auth,
        }
    }

    /// How long nothing is to be sent to the server because of it.
    pub fn pause(&self) -> Option<Duration> {
        match self {
            Fact::Limited { retry_after } => retry_after.map(|pause| pause.min(LONGEST_WISH)),
            Fact::Busy { retry_after } => Some((*retry_after).min(LONGEST_WISH)),
            _ => None,
        }
    }

    /// Whether a fresh process might do better at once. A command that does not exist will not.
    pub fn may_pass(&self) -> bool {
        match self {
            Fact::Exited { .. }
            | Fact::OutputClosed
            | Fact::InputClosed
            | Fact::Garbage { .. }
            | Fact::StreamDropped => true,
            Fact::SpawnFailed { .. }
            | Fact::SecretMissing { .. }
            | Fact::StartTimedOut { .. }
            | Fact::HandshakeRefused { .. }
            | Fact::CallTimedOut { .. }
            | Fact::Stalled { .. }
            | Fact::Oversize { .. }
            | Fact::HttpStatus { .. }
            | Fact::Limited { .. }
            | Fact::Busy { .. }
            | Fact::OutOfFiles { .. }
            | Fact::OutOfProcesses { .. }
            | Fact::LoginNeeded { .. }
            | Fact::Unreachable { .. }
            | Fact::Insecure { .. }
            | Fact::NotMcp { .. }
            | Fact::Astray { .. }
            | Fact::Unsupported { .. } => false,
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fact::SpawnFailed { reason } => write!(f, "could not be started: {reason}"),
            Fact::SecretMissing { reason } => write!(f, "was not started: {reason}"),
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
            Fact::Limited { retry_after: Some(pause) } => {
                // The pause we apply, not the one it requested.
                let pause = duration((*pause).min(LONGEST_WISH));
                write!(f, "accepts no requests for {pause} (HTTP 429)")
            }
            Fact::Busy { retry_after } => {
                let pause = duration((*retry_after).min(LONGEST_WISH));
                write!(f, "cannot serve requests for {pause} (HTTP 503)")
            }
            Fact::OutOfFiles { reason } => {
                write!(
                    f,
                    "cannot be used now, since metamcp has no file descriptors left: {reason}"
                )
            }
            Fact::OutOfProcesses { reason } => {
                write!(
                    f,
                    "cannot be started now, since the system allows no more processes: {reason}"
                )
            }
            Fact::Limited { retry_after: None } => f.write_str("limits requests (HTTP 429)"),
            Fact::LoginNeeded { reason, .. } => write!(f, "needs a sign-in: {reason}"),
            Fact::Unreachable { reason } => write!(f, "cannot be reached: {reason}"),
            Fact::Insecure { reason } => write!(f, "cannot be trusted: {reason}"),
            Fact::StreamDropped => f.write_str("closed the connection before it answered"),
            Fact::NotMcp { instead } => {
                write!(f, "answered with {instead} instead of the protocol")
            }
            Fact::Astray { reason } => write!(f, "redirects elsewhere: {reason}"),
            Fact::Unsupported { reason } => f.write_str(reason),
        }
    }
}

/// A failure: the fact, and the end of the process's stderr.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub fact: Fact,
    /// The last lines the process wrote to its error output, oldest first.
    pub last_words: Vec<String>,
}

impl Failure {
    /// A failure without stderr.
    pub fn new(fact: Fact) -> Failure {
        Failure { fact, last_words: Vec::new() }
    }

    /// The lines that say what went wrong, oldest first: without the frames of a stack, lone brackets and the like, which
    /// are what most programs write last. All of them where nothing else is there.
    pub fn telling_words(&self, most: usize) -> Vec<&str> {
        let all = || self.last_words.iter().map(String::as_str);
        let mut telling: Vec<&str> = all().filter(|line| !is_noise(line)).collect();
        if telling.is_empty() {
            telling = all().collect();
        }
        let from = telling.len().saturating_sub(most);
        telling.split_off(from)
    }
}

/// Whether a line of a crash only says where, or by which runtime.
fn is_noise(line: &str) -> bool {
    const STARTS: [&str; 9] = [
        "at ",
        "File \"",
        "Node.js v",
        "node:",
        "throw ",
        "requireStack",
        "Require stack",
        "npm notice",
        "npm error A complete log",
    ];
    let line = line.trim();
    STARTS.iter().any(|start| line.starts_with(start)) || !line.chars().any(char::is_alphanumeric)
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
        check(Fact::SecretMissing { reason: "no such file".into() }, Category::Offline);
        check(Fact::Unreachable { reason: "refused".into() }, Category::Offline);
        check(Fact::Exited { code: Some(1), signal: None }, Category::StdioExit);
        check(Fact::OutputClosed, Category::StdioExit);
        check(Fact::CallTimedOut { after: Duration::from_mins(1) }, Category::Other);
        let login = || Fact::LoginNeeded { reason: "no token".into(), address: None };
        check(login(), Category::Auth);
        check(Fact::Insecure { reason: "expired".into() }, Category::Offline);
        check(Fact::StreamDropped, Category::Http);
        check(Fact::Limited { retry_after: None }, Category::Http);
        let counts = [500, 502, 503].map(|status| Fact::HttpStatus { status });
        assert!(counts.iter().all(Fact::counts));
        let neutral = [400, 401, 403, 404, 413].map(|status| Fact::HttpStatus { status });
        assert!(!neutral.iter().any(Fact::counts));
        assert!(!login().counts() && !Fact::Limited { retry_after: None }.counts());
        assert!(Fact::StreamDropped.counts() && Fact::OutputClosed.counts());
        assert!(Fact::Unreachable { reason: "refused".into() }.counts());
    }

    #[test]
    fn a_pause_is_as_long_as_was_asked_but_not_for_ever() {
        let asked = |seconds| Fact::Limited { retry_after: Some(Duration::from_secs(seconds)) };
        assert_eq!(asked(3).pause(), Some(Duration::from_secs(3)));
        assert_eq!(asked(1_000_000).pause(), Some(LONGEST_WISH));
        assert_eq!(Fact::Limited { retry_after: None }.pause(), None);
        assert_eq!(Fact::HttpStatus { status: 503 }.pause(), None);
        let busy = |seconds| Fact::Busy { retry_after: Duration::from_secs(seconds) };
        assert_eq!(busy(7).pause(), Some(Duration::from_secs(7)));
        // Text and numbers agree, whatever was requested.
        let longest = duration(LONGEST_WISH);
        assert!(asked(99_999_999).to_string().contains(&longest), "{}", asked(99_999_999));
        assert!(busy(99_999_999).to_string().contains(&longest) && busy(9).counts());
    }

    #[test]
    fn the_telling_words_of_a_crash_are_not_its_last() {
        let told = |words: &str| {
            let last_words = words.lines().map(str::to_owned).collect();
            let failure = Failure { last_words, ..Failure::new(Fact::OutputClosed) };
            failure.telling_words(3).join(" | ")
        };
        let node = "node:internal/modules/cjs/loader:1143\n  throw err;\n  ^\n\nError: Cannot find module '/srv/x.js'\n    at Module._resolveFilename (node:internal/modules/cjs/loader:1140:15)\n    at node:internal/main/run_main_module:28:49 {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v20.20.2";
        assert_eq!(
            told(node),
            "Error: Cannot find module '/srv/x.js' |   code: 'MODULE_NOT_FOUND',"
        );
        let python = "Traceback (most recent call last):\n  File \"/srv/x.py\", line 3, in <module>\n    key = os.environ['KEY']\n          ~~~~~~~~~~^^^^^^^\nKeyError: 'KEY'";
        assert_eq!(
            told(python),
            "Traceback (most recent call last): |     key = os.environ['KEY'] | KeyError: 'KEY'"
        );
        assert_eq!(told("a\nb\nc\nd"), "b | c | d");
        assert_eq!(told("    at x.js:1\n}"), "    at x.js:1 | }", "all there is");
        assert_eq!(told(""), "");
    }

    #[test]
    fn text_never_decides() {
        let shouting = Fact::SpawnFailed { reason: "401 Unauthorized".into() };
        assert_eq!(shouting.category(), Category::Offline);
    }
}
