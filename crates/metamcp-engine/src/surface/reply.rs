//! Failures as clients see them: one `ErrorObject`, and one readable line.
//! Owns: the error codes, their messages and hints.      Never: decides whether a call fails.
//! In: `CallError`, `DispatchError`.  Out: structured content, text, or a JSON-RPC error.
//! Tests: `metamcp/tests/surface/`, `metamcp/tests/promises/`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::dispatch::DispatchError;
use metamcp_calls::failure::{Category, Fact, Failure};
use metamcp_config::config::ServerConfig;
use metamcp_types::next::{Advice, Audience, Next};
use metamcp_types::secret::redact;
use metamcp_types::text;
use metamcp_wire::object;
use serde_json::{Map, Value, json};

use crate::router::{CallError, CallErrorKind, Unapproved};
use crate::upstream;

/// Longest text of a server that is quoted in an error.
const MAX_QUOTED: usize = 2000;
/// Most stderr lines in the details of an error.
const MAX_STDERR_LINES: usize = 20;
/// Most of these lines in the message itself, and the most bytes of all of them and of each.
const MAX_MESSAGE_LINES: usize = 4;
const MAX_MESSAGE_STDERR: usize = 500;
const MAX_MESSAGE_LINE: usize = 200;

/// Whether a tool result has `isError` set.
pub(super) fn is_error(result: &[u8]) -> bool {
    object::pick(result, ["isError"]).is_ok_and(|[flag]| flag == Some(b"true"))
}

/// The error codes, in the order of the reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// No such tool on that server.
    ToolNotFound,
    /// No such server.
    ServerNotFound,
    /// The arguments break the tool's schema.
    ValidationInput,
    /// The result breaks the tool's output schema.
    ValidationOutput,
    /// The server answered the call with an error.
    ExecutionFailed,
    /// The tool reports that it failed.
    ToolError,
    /// The server cannot be started or reached.
    ServerUnavailable,
    /// The server failed too often, so its circuit breaker is open.
    CircuitOpen,
    /// The server needs credentials.
    AuthRequired,
    /// No pool slot became free in time.
    PoolExhausted,
    /// Too many calls are waiting.
    Overloaded,
    /// The time limit passed.
    Timeout,
    /// The connection broke after the call was sent, so it may have run.
    OutcomeUnknown,
    /// The response is larger than allowed.
    LimitExceeded,
    /// The script is wrong.
    CodeError,
    /// The caller cancelled it.
    Cancelled,
    /// The configuration forbids this tool.
    Denied,
    /// The call needs a person's approval.
    ApprovalRequired,
    /// A step of a chain failed.
    ChainStepFailed,
    /// Results are not streamed.
    StreamNotSupported,
    /// A tool's server cannot be replaced by another.
    BackendOverrideInvalid,
    /// The gateway is shutting down.
    ShuttingDown,
    /// The call cannot be recorded, and has to be.
    AuditUnavailable,
    /// A bug in the gateway.
    Internal,
}

impl Code {
    /// Every code, with what it means.
    pub const ALL: [(Code, &'static str); 24] = [
        (Code::ToolNotFound, "the server has no tool of that name; the nearest names are given"),
        (Code::ServerNotFound, "no server of that name is configured; the nearest names are given"),
        (
            Code::ValidationInput,
            "the arguments break the tool's input schema; the call was not sent",
        ),
        (
            Code::ValidationOutput,
            "the result breaks the tool's own output schema; the call ran, and its result is included",
        ),
        (
            Code::ExecutionFailed,
            "the server answered the call with a JSON-RPC error or with something unreadable",
        ),
        (
            Code::ToolError,
            "the tool itself reports that it failed; only where a result is turned into a value, `mcp_call` passes it on unchanged",
        ),
        (Code::ServerUnavailable, "the server cannot be started or reached; the call was not sent"),
        (
            Code::CircuitOpen,
            "the server failed too often, so its circuit breaker is open until `retry_after_ms` has passed; the call was not sent",
        ),
        (Code::AuthRequired, "the server needs credentials"),
        (Code::PoolExhausted, "other servers occupy every pool slot; the call was not sent"),
        (Code::Overloaded, "too many calls are already waiting; the call was not sent"),
        (
            Code::Timeout,
            "the time limit passed; `details.sent` says whether the server may have run the call",
        ),
        (
            Code::OutcomeUnknown,
            "the connection to the server broke after the call was sent: it may have run, so verify before repeating it",
        ),
        (
            Code::LimitExceeded,
            "the server's response is larger than allowed, or a script exceeded one of its limits",
        ),
        (
            Code::CodeError,
            "the script cannot be parsed or ended with an error; `details` has the position, its output and the calls it made",
        ),
        (Code::Cancelled, "the caller cancelled the call"),
        (
            Code::Denied,
            "the configuration forbids this tool, or the session's toolset does not have it",
        ),
        (
            Code::ApprovalRequired,
            "the call needs a person's approval and was not sent; `details.approval` is what `metamcp approve` takes",
        ),
        (
            Code::ChainStepFailed,
            "a step of a chain failed: `step_index` says which, `details.cause` why; the results of earlier steps are included",
        ),
        (Code::StreamNotSupported, "a streamed result was requested; nothing was run"),
        (Code::BackendOverrideInvalid, "another server was requested for a tool; nothing was run"),
        (
            Code::ShuttingDown,
            "the gateway is shutting down; `details.sent` says whether the server may have run the call",
        ),
        (
            Code::AuditUnavailable,
            "the audit log cannot be written, and `audit.required` is set; the call was not sent",
        ),
        (Code::Internal, "a bug in metamcp"),
    ];

    /// The code on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Code::ToolNotFound => "tool_not_found",
            Code::ServerNotFound => "server_not_found",
            Code::ValidationInput => "validation_input",
            Code::ValidationOutput => "validation_output",
            Code::ExecutionFailed => "execution_failed",
            Code::ToolError => "tool_error",
            Code::ServerUnavailable => "server_unavailable",
            Code::CircuitOpen => "circuit_open",
            Code::AuthRequired => "auth_required",
            Code::PoolExhausted => "pool_exhausted",
            Code::Overloaded => "overloaded",
            Code::Timeout => "timeout",
            Code::OutcomeUnknown => "outcome_unknown",
            Code::LimitExceeded => "limit_exceeded",
            Code::CodeError => "code_error",
            Code::Cancelled => "cancelled",
            Code::Denied => "denied",
            Code::ApprovalRequired => "approval_required",
            Code::ChainStepFailed => "chain_step_failed",
            Code::StreamNotSupported => "stream_not_supported",
            Code::BackendOverrideInvalid => "backend_override_invalid",
            Code::ShuttingDown => "shutting_down",
            Code::AuditUnavailable => "audit_unavailable",
            Code::Internal => "internal",
        }
    }
}

/// A failure of a tool call, as one object whatever went wrong.
#[derive(Debug, Clone)]
pub struct ErrorObject {
    code: Code,
    message: String,
    hint: Option<Advice>,
    audience: Audience,
    server: Option<Arc<str>>,
    tool: Option<Arc<str>>,
    op: Option<&'static str>,
    step: Option<usize>,
    retryable: bool,
    retry_after: Option<Duration>,
    details: Map<String, Value>,
}

impl ErrorObject {
    pub fn new(code: Code, message: impl Into<String>) -> ErrorObject {
        ErrorObject {
            code,
            message: message.into(),
            hint: None,
            audience: Audience::default(),
            server: None,
            tool: None,
            op: None,
            step: None,
            retryable: false,
            retry_after: None,
            details: Map::new(),
        }
    }

    /// What to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Advice>) -> ErrorObject {
        self.hint = Some(hint.into());
        self
    }

    /// The server and tool it is about.
    #[must_use]
    pub fn at(mut self, server: &Arc<str>, tool: Option<&Arc<str>>) -> ErrorObject {
        self.server = Some(Arc::clone(server));
        self.tool = tool.map(Arc::clone);
        self
    }

    /// The tool of the full surface that was called. Next steps are worded for that surface.
    #[must_use]
    pub fn by(mut self, op: &'static str) -> ErrorObject {
        self.op = Some(op);
        self.to(Audience::Full)
    }

    /// Whose wording its next steps use.
    #[must_use]
    pub fn to(mut self, audience: Audience) -> ErrorObject {
        self.audience = audience;
        self
    }

    /// The step of a chain that failed.
    #[must_use]
    pub fn step(mut self, index: usize) -> ErrorObject {
        self.step = Some(index);
        self
    }

    /// Takes server, tool and retryability from its cause.
    #[must_use]
    pub fn like(mut self, cause: &ErrorObject) -> ErrorObject {
        self.server.clone_from(&cause.server);
        self.tool.clone_from(&cause.tool);
        self.retryable = cause.retryable;
        self.retry_after = cause.retry_after;
        self
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do next.
    pub fn next(&self) -> Option<String> {
        self.hint.as_ref().map(|hint| hint.words(self.audience))
    }

    /// Marks it as worth retrying, and says when.
    #[must_use]
    pub fn retryable(mut self, after: Option<Duration>) -> ErrorObject {
        self.retryable = true;
        self.retry_after = after;
        self
    }

    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> ErrorObject {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    pub fn code(&self) -> Code {
        self.code
    }

    /// As structured content.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("code".into(), self.code.word().into());
        object.insert("message".into(), self.message.clone().into());
        if let Some(hint) = self.next() {
            object.insert("hint".into(), hint.into());
        }
        if let Some(server) = &self.server {
            if let Some(tool) = &self.tool {
                object.insert("tool_id".into(), format!("{server}:{tool}").into());
            }
            object.insert("server".into(), server.to_string().into());
        }
        if let Some(op) = self.op {
            object.insert("op".into(), op.into());
        }
        if let Some(step) = self.step {
            object.insert("step_index".into(), step.into());
        }
        object.insert("retryable".into(), self.retryable.into());
        if let Some(after) = self.retry_after {
            object.insert(
                "retry_after_ms".into(),
                u64::try_from(after.as_millis()).unwrap_or(u64::MAX).into(),
            );
        }
        if !self.details.is_empty() {
            object.insert("details".into(), Value::Object(self.details.clone()));
        }
        Value::Object(object)
    }

    /// As the one readable line.
    pub fn to_line(&self) -> String {
        let mut line = format!("{}: {}", self.code.word(), self.message);
        if let Some(hint) = self.next() {
            // A message that quotes a script has several lines, so the hint starts a new one.
            line.push_str(if self.message.contains('\n') { "\n" } else { ". " });
            line.push_str(&hint);
        }
        line
    }

    /// As the result of a tool call.
    pub fn to_result(&self) -> Vec<u8> {
        json!({
            "content": [{ "type": "text", "text": self.to_line() }],
            "structuredContent": self.to_json(),
            "isError": true,
        })
        .to_string()
        .into_bytes()
    }

    /// For a call that the router ended without a result.
    pub fn from_call(error: &CallError, config: Option<&ServerConfig>) -> ErrorObject {
        let (server, tool) = (&error.server, &error.tool);
        let object = match &error.kind {
            CallErrorKind::Dispatch { error, holders } => {
                from_dispatch_error(server, error, holders, config)
            }
            CallErrorKind::Rpc(raw) => from_rpc(server, raw),
            CallErrorKind::Malformed(defect) => ErrorObject::new(
                Code::ExecutionFailed,
                format!("the server {server:?} answered with something that is not a valid message: {defect}"),
            )
            .hint("The call may have run. This is a bug of that server; report it to its author.")
            .detail("category", "other"),
            CallErrorKind::Unusable(why) => ErrorObject::new(
                Code::ExecutionFailed,
                format!("the server {server:?} {why}"),
            )
            .hint("The call may have run in part. Call again, or use another tool.")
            .detail("category", "other"),
            CallErrorKind::Unrecorded(why) => ErrorObject::new(
                Code::AuditUnavailable,
                format!("the call to the server {server:?} was not sent, because it cannot be recorded: {why}"),
            )
            .hint("The owner of metamcp requires every call to be in the audit log. Ask them to make room on its disk; `metamcp doctor` checks it.")
            .retryable(None),
            CallErrorKind::Mismatch(mismatch) => ErrorObject::new(
                Code::ValidationInput,
                format!("the arguments of {server}:{tool} cannot be used: {mismatch}"),
            )
            .hint("The call was not sent. Correct the arguments and call again."),
            CallErrorKind::Unapproved(why) => unapproved(server, tool, why),
            CallErrorKind::Oversize { bytes, limit } => ErrorObject::new(
                Code::LimitExceeded,
                format!("the response of the server {server:?} has {bytes} bytes, and the limit is {limit}"),
            )
            .hint("The call ran. Request less at once, or raise limits.maxLineBytes.")
            .detail("bytes", *bytes)
            .detail("limit", *limit as u64)
            .detail("category", "other"),
        };
        object.at(server, Some(tool))
    }
}

/// For a call that no person approved.
fn unapproved(server: &str, tool: &str, why: &Unapproved) -> ErrorObject {
    match why {
        Unapproved::Declined => {
            let message = format!("the user declined this call of {server}:{tool}");
            let hint = "The call was not sent. Do not make it again unless the user asks for it.";
            ErrorObject::new(Code::Denied, message).hint(hint)
        }
        Unapproved::Open { id, why } => {
            let message =
                format!("a person has to approve this call of {server}:{tool} first, and {why}");
            let object = ErrorObject::new(Code::ApprovalRequired, message);
            match id {
                Some(id) => object
                    .hint(format!(
                        "The call was not sent. Ask the user to run `metamcp approve {id}` in a terminal, or to approve it on the page that `metamcp ui` opens; then make the same call again. The approval is for exactly these arguments."
                    ))
                    .detail("approval", id.as_str()),
                None => object.hint("The call was not sent. Only the user can change that, with `approve` in the configuration."),
            }
        }
    }
}

/// A failure as a client receives it in direct mode.
#[derive(Debug)]
pub enum Plain {
    /// A JSON-RPC error: the server's own, byte for byte, or ours.
    Error(Bytes),
    /// A tool result with `isError`.
    Result(Vec<u8>),
}

impl Plain {
    /// The server's own error unchanged; ours as a tool result for `tools/call`, else as a JSON-RPC error.
    pub fn from_call(error: &CallError, config: Option<&ServerConfig>) -> Plain {
        if let CallErrorKind::Rpc(raw) = &error.kind {
            return Plain::Error(raw.clone());
        }
        let object = ErrorObject::from_call(error, config);
        if error.method == "tools/call" {
            return Plain::Result(object.to_result());
        }
        let error =
            json!({ "code": -32000, "message": object.to_line(), "data": object.to_json() });
        Plain::Error(Bytes::from(error.to_string()))
    }
}

/// For an error of the dispatch about a server, with or without a call.
pub fn from_dispatch_error(
    server: &str,
    error: &DispatchError,
    holders: &[Arc<str>],
    config: Option<&ServerConfig>,
) -> ErrorObject {
    let not_sent = "The call was not sent";
    match error {
        DispatchError::CircuitOpen { retry_after, failure } => {
            let why = failure.as_ref().map_or(String::new(), |failure| format!(" (last: it {})", describe(failure, config)));
            let object = ErrorObject::new(
                Code::CircuitOpen,
                format!("the server {server:?} failed too often in a row{why}; its circuit breaker is open for another {}", text::duration(*retry_after)),
            );
            with_failure(object, failure.as_deref(), config)
                .hint(format!("{not_sent}. Try again after that, or use another tool."))
                .retryable(Some(*retry_after))
        }
        DispatchError::Unavailable { failure, .. } | DispatchError::Refused { failure, .. }
            if failure.fact.category() == Category::Auth =>
        {
            login_needed(server, failure, config)
        }
        DispatchError::Refused { failure, retry_after } => {
            let limited = matches!(failure.fact, Fact::Limited { .. } | Fact::Busy { .. });
            let (code, hint) = if limited {
                (Code::ServerUnavailable, "It did not run the call. Try again after that.")
            } else {
                (Code::ExecutionFailed, "It did not run the call, and would refuse it again.")
            };
            let object =
                ErrorObject::new(code, format!("the server {server:?} {}", describe(failure, config)));
            let object = with_failure(object, Some(failure), config).hint(hint).detail("sent", false);
            if limited { object.retryable(*retry_after) } else { object }
        }
        DispatchError::Unavailable { failure, retry_after } => {
            let object = ErrorObject::new(
                Code::ServerUnavailable,
                format!("the server {server:?} {}", describe(failure, config)),
            );
            with_failure(object, Some(failure), config)
                .hint(format!("{not_sent}. {}", advice(failure, config)))
                .retryable(*retry_after)
        }
        DispatchError::Paused { failure, retry_after } => {
            let object = ErrorObject::new(
                Code::ServerUnavailable,
                format!(
                    "the server {server:?} is not contacted for another {}: the last time, it {}",
                    text::duration(*retry_after),
                    describe(failure, config)
                ),
            );
            with_failure(object, Some(failure), config)
                .hint(format!("{not_sent}. Try again after that, or use another tool."))
                .retryable(Some(*retry_after))
                .detail("sent", false)
        }
        DispatchError::CrashLoop { failure, retry_after } => {
            let why = failure.as_ref().map_or(String::new(), |failure| format!("; it {}", describe(failure, config)));
            let object = ErrorObject::new(
                Code::ServerUnavailable,
                format!("the server {server:?} keeps crashing{why}; it is not started again for {}", text::duration(*retry_after)),
            );
            with_failure(object, failure.as_deref(), config)
                .hint(format!("{not_sent}. Look at its stderr, and run its command in a terminal."))
                .retryable(Some(*retry_after))
        }
        DispatchError::PoolExhausted { waited, holders: _ } => ErrorObject::new(
            Code::PoolExhausted,
            format!(
                "no pool slot for the server {server:?} became free within {}; they are occupied by {}",
                text::duration(*waited),
                if holders.is_empty() { "no server".to_owned() } else { holders.join(", ") }
            ),
        )
        .hint(format!("{not_sent}. Try again, or raise pool.poolSize."))
        .retryable(None),
        DispatchError::Overloaded => ErrorObject::new(
            Code::Overloaded,
            format!("too many calls are already waiting for the server {server:?}"),
        )
        .hint(format!("{not_sent}. Wait for some of them before making more."))
        .retryable(None),
        DispatchError::NotJson => ErrorObject::new(
            Code::ValidationInput,
            format!("the request to the server {server:?} is not valid JSON"),
        )
        .hint(format!("{not_sent}. Write the arguments as one JSON object.")),
        DispatchError::TimedOut { after, sent: true } => ErrorObject::new(
            Code::Timeout,
            format!("the server {server:?} did not answer within {}", text::duration(*after)),
        )
        .hint("The outcome is unknown: the call may have run or still be running. Verify before repeating it, or raise timeoutMs for this server.")
        .detail("sent", true)
        .detail("outcome", "unknown")
        .detail("category", "other"),
        DispatchError::TimedOut { after, sent: false } => ErrorObject::new(
            Code::Timeout,
            format!("the server {server:?} was not ready for the call within {}", text::duration(*after)),
        )
        .hint(format!("{not_sent}, so it is safe to try again."))
        .retryable(None)
        .detail("sent", false)
        .detail("category", "other"),
        DispatchError::OutcomeUnknown { failure } => {
            let object = ErrorObject::new(
                Code::OutcomeUnknown,
                format!("the server {server:?} {} after it was sent the call", describe(failure, config)),
            );
            with_failure(object, Some(failure), config)
                .hint("The call may have run: verify before repeating it. The server is started again when it is needed.")
                .detail("sent", true)
        }
        DispatchError::ShuttingDown { sent } => {
            let hint = if *sent { "The call may have run: verify before repeating it." } else { "The call was not sent." };
            ErrorObject::new(Code::ShuttingDown, "metamcp is shutting down").hint(hint).detail("sent", *sent)
        }
        DispatchError::Removed => ErrorObject::new(
            Code::ServerNotFound,
            format!("the server {server:?} is not configured any more"),
        )
        .hint(Advice::from(format!("{not_sent}. ")).step(Next::Servers, " lists the servers.")),
        DispatchError::Cancelled => ErrorObject::new(Code::Cancelled, "the call was cancelled"),
    }
}

/// A server that needs a login: only the person behind the client can sign in.
fn login_needed(server: &str, failure: &Failure, config: Option<&ServerConfig>) -> ErrorObject {
    let object = ErrorObject::new(
        Code::AuthRequired,
        format!("the server {server:?} {}", describe(failure, config)),
    );
    let object = with_failure(object, Some(failure), config).detail("sent", false);
    let command = format!("metamcp auth login {server}");
    let object = object.detail("login", command.clone());
    match &failure.fact {
        Fact::LoginNeeded { address: Some(address), .. } => object
            .hint(format!(
                "The call did not run. Open {address} in a browser on this machine, or run `{command}`, then call again."
            ))
            .detail("url", address.clone()),
        _ => object.hint(format!(
            "The call did not run. Run `{command}`, or put a token into its `headers`, then call again."
        )),
    }
}

/// A server's JSON-RPC error, quoted as data.
pub(super) fn from_rpc(server: &str, raw: &[u8]) -> ErrorObject {
    let [code, message, data] = object::pick(raw, ["code", "message", "data"]).unwrap_or([None; 3]);
    let code: i64 = code.and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok()).unwrap_or(0);
    let message = message.and_then(object::text).unwrap_or_default();
    let message = text::clean(&message, MAX_QUOTED).into_owned();
    let mut rpc = json!({ "code": code, "message": message });
    if let Some(data) = data.filter(|data| data.len() <= MAX_QUOTED)
        && let Ok(data) = serde_json::from_slice::<Value>(data)
    {
        rpc["data"] = data;
    }
    let hint = if code == -32602 || code == -32601 {
        Advice::from("Check the tool's name and arguments with ")
            .step(Next::Schema(server.to_owned()), ".")
    } else {
        "This is the server's own error; repeating the same call will hardly change it.".into()
    };
    ErrorObject::new(
        Code::ExecutionFailed,
        format!("the server {server:?} answered with error {code}: {message}"),
    )
    .hint(hint)
    .detail("rpc", rpc)
}

fn with_failure(
    object: ErrorObject,
    failure: Option<&Failure>,
    config: Option<&ServerConfig>,
) -> ErrorObject {
    let Some(failure) = failure else { return object };
    let object = object.detail("category", failure.fact.category().word());
    if failure.last_words.is_empty() {
        return object;
    }
    let lines: Vec<Value> = failure
        .last_words
        .iter()
        .rev()
        .take(MAX_STDERR_LINES)
        .rev()
        .map(|line| Value::from(scrubbed(line, config)))
        .collect();
    object.detail("stderr", lines)
}

/// What happened, and the stderr lines that explain it, as a predicate that follows the server's name.
pub(super) fn describe(failure: &Failure, config: Option<&ServerConfig>) -> String {
    let fact = scrubbed(&failure.fact.to_string(), config);
    let lines: Vec<String> = failure
        .telling_words(MAX_MESSAGE_LINES)
        .into_iter()
        .map(|line| text::cut(scrubbed(line, config).trim(), MAX_MESSAGE_LINE).into_owned())
        .collect();
    if lines.is_empty() {
        return fact;
    }
    format!("{fact}; from its stderr: {:?}", text::cut(&lines.join(" | "), MAX_MESSAGE_STDERR))
}

fn scrubbed(text: &str, config: Option<&ServerConfig>) -> String {
    let secrets = config.map(ServerConfig::secrets).unwrap_or_default();
    let cleaned = text::clean_line(text, MAX_QUOTED);
    redact(&cleaned, secrets).into_owned()
}

/// What differs where the server is made of a description.
fn advice_on_api(fact: &Fact) -> Option<&'static str> {
    Some(match fact {
        Fact::Unreachable { .. } | Fact::StartTimedOut { .. } => {
            "Check that the API is running, and `baseUrl` and `openapi` in the configuration."
        }
        Fact::Insecure { .. } => "Check its `baseUrl`, and its `tls` in the configuration.",
        Fact::HttpStatus { .. } => "The API itself is in trouble: try again later.",
        Fact::Astray { .. } => "Check its `baseUrl` in the configuration.",
        _ => return None,
    })
}

fn advice(failure: &Failure, config: Option<&ServerConfig>) -> &'static str {
    let remote = config.is_some_and(|config| config.transport.is_remote());
    let installs = config.is_some_and(upstream::installs);
    if config.is_some_and(|config| config.transport.api().is_some())
        && let Some(advice) = advice_on_api(&failure.fact)
    {
        return advice;
    }
    match &failure.fact {
        Fact::OutOfFiles { .. } => {
            "Raise the limit on open files (`ulimit -n`) where metamcp is started, or lower pool.poolSize."
        }
        Fact::OutOfProcesses { .. } => {
            "Raise the limit on processes (`ulimit -u`) where metamcp is started, end other programs of this user, or lower pool.poolSize."
        }
        Fact::StartTimedOut { .. } if remote => {
            "Check that something answers at its `url`; if it is only slow, raise timeouts.connectTimeoutMs."
        }
        Fact::SpawnFailed { .. } => "Check the command of this server in the configuration.",
        Fact::SecretMissing { .. } => {
            "The user has to check the file, program or keyring entry that holds the secret, and how the configuration refers to it."
        }
        Fact::StartTimedOut { .. } if installs && failure.last_words.is_empty() => {
            "If it installs itself on first use, try again: what it has downloaded so far is not lost."
        }
        Fact::StartTimedOut { .. } if failure.last_words.is_empty() => {
            "It wrote nothing to stderr. Run its command in a terminal to see what it waits for, or raise timeouts.connectTimeoutMs if it is only slow."
        }
        Fact::StartTimedOut { .. } => {
            "Look at its stderr: it may be waiting for a login, or not be an MCP server. Raise timeouts.connectTimeoutMs if it is only slow."
        }
        Fact::HandshakeRefused { .. } => {
            "It may not be an MCP server, or it speaks a protocol revision that metamcp does not know."
        }
        Fact::Exited { .. } | Fact::OutputClosed | Fact::InputClosed => {
            "Look at its stderr, and run its command in a terminal to see more."
        }
        Fact::Unreachable { .. } => "Check that it is running, and its `url` in the configuration.",
        Fact::Insecure { .. } => "Check its `url`, and its `tls` in the configuration.",
        Fact::NotMcp { .. } | Fact::HttpStatus { .. } | Fact::Astray { .. } => {
            "Check its `url` in the configuration: this may not be an MCP server."
        }
        Fact::Unsupported { .. } => "Check its entry in the configuration.",
        _ => "Try again later, or use another tool.",
    }
}
