//! The record of one call: who made it, its origin, its tool, when, and how it ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use memchr::memmem::Finder;
use metamcp_calls::failure::Failure;
use metamcp_types::moment::Moment;
use metamcp_wire::object;

use super::CallTrace;

/// Who makes calls: one session of one client of one principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The principal of the token; zero for the owner of the process.
    pub principal: u64,
    /// The same for people: `owner`, `token:NAME`, `sub:NAME`.
    pub principal_name: Arc<str>,
    /// Unique in the life of the process. Not the id in the protocol, which is as good as a password.
    pub session: u64,
    /// Name and version of the client, after its handshake.
    pub client: Option<ClientInfo>,
}

/// Name and version of a client, as it gives them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    pub name: String,
    pub version: String,
}

static LAST_SESSION: AtomicU64 = AtomicU64::new(0);

impl Identity {
    /// The owner of the process, in a new session.
    pub fn owner() -> Identity {
        Identity::new(0, Arc::from("owner"))
    }

    /// A new session of a principal.
    pub fn new(principal: u64, principal_name: Arc<str>) -> Identity {
        let session = LAST_SESSION.fetch_add(1, Ordering::Relaxed) + 1;
        Identity { principal, principal_name, session, client: None }
    }
}

/// What made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// `mcp_call`.
    McpCall,
    /// `run_tool` of the surface `full`.
    RunTool,
    /// A step of `run_chain`.
    Chain,
    /// The script with this number.
    Script(u64),
    /// A request of a client in direct mode.
    Direct,
    /// A command of the binary.
    Command,
}

impl Origin {
    pub fn word(self) -> &'static str {
        match self {
            Origin::McpCall => "mcp_call",
            Origin::RunTool => "run_tool",
            Origin::Chain => "chain",
            Origin::Script(_) => "script",
            Origin::Direct => "direct",
            Origin::Command => "command",
        }
    }

    /// Whether a client chose the tool itself, rather than a script or a chain that it wrote before.
    pub fn is_direct_choice(self) -> bool {
        matches!(self, Origin::McpCall | Origin::RunTool | Origin::Direct)
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The server returned a result.
    Ok,
    /// The server returned a result with `isError`.
    ToolError,
    /// The server answered with a JSON-RPC error.
    RpcError,
    /// The server's response cannot be used.
    BadResponse,
    /// The server answered with `input_required`; the client retries with another call.
    InputRequired,
    /// The dispatch ended it, for this reason.
    Failed(&'static str),
    /// It was refused before the dispatch saw it, with this error code.
    Refused(&'static str),
    /// Its caller cancelled it.
    Cancelled,
}

static IS_ERROR: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"isError\""));

impl Verdict {
    /// For a result. Most have no `isError` at all, which a byte search finds without parsing.
    pub fn of_result(result: &[u8]) -> Verdict {
        let is_error = IS_ERROR.find(result).is_some()
            && object::pick(result, ["isError"]).is_ok_and(|[flag]| flag == Some(b"true"));
        if is_error { Verdict::ToolError } else { Verdict::Ok }
    }

    pub fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::ToolError => "tool_error",
            Verdict::RpcError => "rpc_error",
            Verdict::BadResponse => "bad_response",
            Verdict::InputRequired => "input_required",
            Verdict::Failed(word) | Verdict::Refused(word) => word,
            Verdict::Cancelled => "cancelled",
        }
    }

    /// Whether the tool succeeded; `None` where the outcome says nothing about the tool.
    pub fn tool_worked(self) -> Option<bool> {
        match self {
            Verdict::Ok => Some(true),
            Verdict::ToolError | Verdict::RpcError | Verdict::BadResponse => Some(false),
            Verdict::InputRequired
            | Verdict::Failed(_)
            | Verdict::Refused(_)
            | Verdict::Cancelled => None,
        }
    }
}

/// One time that a call was sent to a server. What most calls do not have is boxed: each call carries its record along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub sent: Moment,
    /// The start of the connection it was sent on, if the call waited for that.
    pub start: Option<Box<StartTimes>>,
    /// When the response began to arrive, where that was before all of it was there.
    pub first_byte: Option<Moment>,
    /// When and why the connection was lost under it.
    pub lost: Option<Box<(Moment, Arc<Failure>)>>,
}

/// How the start of a connection went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartTimes {
    pub begun: Moment,
    /// The process runs, or the address was reached.
    pub opened: Moment,
    /// The handshake is done.
    pub ready: Moment,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct CallRecord {
    /// Unique in the life of the process.
    pub id: u64,
    pub identity: Arc<Identity>,
    pub origin: Origin,
    pub server: Arc<str>,
    pub tool: Arc<str>,
    pub method: &'static str,
    pub arrived: Moment,
    /// When it was first sent, if it was. Until then it waited for a start, a slot or in a queue.
    pub sent: Option<Moment>,
    pub ended: Moment,
    /// How often it was sent.
    pub attempts: u32,
    /// The last attempt, and those before it, oldest first; most calls have one.
    pub attempt: Option<Attempt>,
    pub earlier: Vec<Attempt>,
    pub verdict: Verdict,
    /// Bytes of its arguments and of the server's result.
    pub bytes_in: usize,
    pub bytes_out: usize,
    /// What went wrong with the server, where that ended the call.
    pub cause: Option<Arc<Failure>>,
    /// The code of the JSON-RPC error that the server answered with.
    pub rpc_code: Option<i64>,
    /// The node of the fleet that ran it, where that is not this one.
    pub node: Option<Arc<str>>,
    /// Where it stands in a trace that is recorded.
    pub trace: Option<Box<CallTrace>>,
}

impl CallRecord {
    /// A call that arrives now. The rest is filled in later.
    pub fn arriving(
        identity: Arc<Identity>,
        origin: Origin,
        (server, tool): (Arc<str>, Arc<str>),
        method: &'static str,
        arguments: Option<&Bytes>,
        now: Moment,
    ) -> CallRecord {
        CallRecord {
            id: 0,
            identity,
            origin,
            server,
            tool,
            method,
            arrived: now,
            sent: None,
            ended: now,
            attempts: 0,
            attempt: None,
            earlier: Vec::new(),
            verdict: Verdict::Cancelled,
            bytes_in: arguments.map_or(0, Bytes::len),
            bytes_out: 0,
            cause: None,
            rpc_code: None,
            node: None,
            trace: None,
        }
    }
}

impl CallRecord {
    /// Notes that it is being sent. What became of the attempt before is kept.
    pub(crate) fn sending(&mut self, sent: Moment, start: Option<StartTimes>) {
        self.attempts += 1;
        self.sent = self.sent.or(Some(sent));
        let start = start.filter(|start| start.ready > self.arrived).map(Box::new);
        let attempt = Attempt { sent, start, first_byte: None, lost: None };
        self.earlier.extend(self.attempt.replace(attempt));
    }

    /// Notes that the connection it was sent on is gone.
    pub(crate) fn lost(&mut self, at: Moment, failure: Arc<Failure>) {
        if let Some(attempt) = &mut self.attempt {
            attempt.lost = Some(Box::new((at, failure)));
        }
    }

    /// All attempts, oldest first.
    pub fn all_attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.earlier.iter().chain(&self.attempt)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metamcp_calls::failure::Fact;

    use super::*;

    #[test]
    fn every_attempt_is_kept_and_only_a_start_that_was_waited_for() {
        let at = |ms| Moment::START + Duration::from_millis(ms);
        let names = (Arc::from("s"), Arc::from("t"));
        let identity = Arc::new(Identity::owner());
        let mut record =
            CallRecord::arriving(identity, Origin::McpCall, names, "tools/call", None, at(10));
        let start =
            |ready| StartTimes { begun: at(ready - 3), opened: at(ready - 2), ready: at(ready) };
        record.sending(at(11), Some(start(5)));
        record.lost(at(12), Arc::new(Failure::new(Fact::OutputClosed)));
        record.sending(at(20), Some(start(19)));
        assert_eq!((record.attempts, record.sent), (2, Some(at(11))));
        let attempts: Vec<_> = record.all_attempts().collect();
        assert_eq!(attempts.iter().map(|one| one.sent).collect::<Vec<_>>(), [at(11), at(20)]);
        assert!(attempts[0].start.is_none() && attempts[0].lost.is_some());
        assert_eq!(attempts[1].start.as_deref(), Some(&start(19)));
    }

    #[test]
    fn a_result_failed_only_if_it_says_so_at_its_top() {
        for (result, verdict) in [
            (r#"{"content":[]}"#, Verdict::Ok),
            (r#"{"content":[],"isError":false}"#, Verdict::Ok),
            (r#"{"content":[],"isError":true}"#, Verdict::ToolError),
            (r#"{"isError" : true}"#, Verdict::ToolError),
            (r#"{"structuredContent":{"isError":true}}"#, Verdict::Ok),
            (r#"{"content":[{"text":"\"isError\":true"}]}"#, Verdict::Ok),
        ] {
            assert_eq!(Verdict::of_result(result.as_bytes()), verdict, "{result}");
        }
    }

    #[test]
    fn sessions_are_told_apart() {
        assert_ne!(Identity::owner().session, Identity::owner().session);
    }
}
