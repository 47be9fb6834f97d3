//! `mcp_execute`: runs a model's script in a sandboxed worker.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_config::settings::{CodeProfile, CodeSettings};
use metamcp_sandbox::host::{
    self, Launch, Limits, Profile, ScriptJob, ScriptOutcome, Server, Status, Workers,
};
use metamcp_script::{Ending, Position, SyntaxError};
use metamcp_surface::{excerpt, execution};
use metamcp_tools::declarations::identifier;
use metamcp_types::next::{Advice, Next};
use metamcp_types::text;
use metamcp_wire::object;
use metamcp_wire::scan::MAX_DEPTH;
use serde_json::{Value, json};

use super::reply::{Code, ErrorObject};
use super::script::{ScriptHost, Transcript, call_json};
use super::script_queue::ScriptQueue;
use super::sub_request::Progress;
use super::{Finished, Running, Step, View};
use crate::compute;
use crate::rlimits;
use crate::router::{Caller, Entry};

/// Idle workers: one runs while the next arrives.
const READY: usize = 2;
/// A script up to this length is parsed in some microseconds.
const PARSE_INLINE: usize = 2 * 1024;
/// Longest message of a script's error that is quoted.
const MAX_MESSAGE: usize = 4000;
/// Longest `ToolError` of a script that is quoted, in bytes of JSON; ours has names, a message and details.
const MAX_TOOL_ERROR: usize = 32 * 1024;
/// Longest name of an image that is quoted.
const MAX_IMAGE: usize = 200;
/// `dev` is for experiments by hand: its time limits are this many times longer.
const DEV_FACTOR: u32 = 5;

/// Code mode as it is configured.
pub struct CodeMode {
    settings: CodeSettings,
    workers: Option<Workers>,
    script_queue: Arc<ScriptQueue>,
}

impl CodeMode {
    /// Code mode whose workers are started by `launch`; none is, before the first script.
    pub fn new(settings: &CodeSettings, launch: Launch) -> CodeMode {
        let profile = match settings.profile {
            CodeProfile::Standard => Some(Profile::Standard),
            CodeProfile::Hardened => Some(Profile::Hardened),
            CodeProfile::Docker => Some(Profile::Docker),
            CodeProfile::Dev => Some(Profile::Dev),
            CodeProfile::Off => None,
        };
        CodeMode {
            settings: settings.clone(),
            workers: profile.map(|profile| Workers::new(launch, profile, READY)),
            script_queue: ScriptQueue::new(settings.executions as usize),
        }
    }

    pub fn is_on(&self) -> bool {
        self.workers.is_some()
    }

    fn limits(&self, timeout: Option<Duration>, calls: Option<u32>) -> Limits {
        let code = &self.settings;
        let factor = if code.profile == CodeProfile::Dev { DEV_FACTOR } else { 1 };
        let wall = code.timeout * factor;
        Limits {
            source: code.source_bytes,
            wall: timeout.map_or(wall, |timeout| timeout.min(wall)),
            cpu: code.cpu * factor,
            heap: code.heap_bytes,
            stack: code.stack_bytes,
            calls: calls.map_or(code.calls, |calls| calls.min(code.calls)),
            in_flight: code.in_flight as usize,
            per_server: code.per_server as usize,
            sleep: code.sleep,
            logs: code.log_bytes,
            result: code.result_bytes,
        }
    }

    /// Bytes of output that are shown.
    pub(super) fn shown_log_bytes(&self) -> usize {
        self.settings.shown_log_bytes
    }
}

/// File descriptors of a worker, at both ends.
const SCRIPT_FILES: usize = 6;

pub(super) struct FinishedScript {
    pub(super) outcome: ScriptOutcome,
    /// Whether it neither returns a value nor ends with an expression.
    is_valueless: bool,
}

impl FinishedScript {
    /// A note for a script without a value.
    pub(super) fn note(&self) -> Option<&'static str> {
        let is_valueless = self.is_valueless && self.outcome.status == Status::Ok;
        is_valueless.then_some(execution::NOTHING)
    }
}

pub(super) struct ScriptRequest {
    source: String,
    timeout: Option<Duration>,
    calls: Option<u32>,
}

impl ScriptRequest {
    pub(super) fn new(
        source: &str,
        timeout: Option<Duration>,
        calls: Option<u32>,
    ) -> ScriptRequest {
        ScriptRequest { source: unfenced(source).to_owned(), timeout, calls }
    }

    pub(super) fn source(&self) -> &str {
        &self.source
    }
}

impl View {
    pub(super) fn mcp_execute(
        &self,
        arguments: Option<&[u8]>,
        meta: Option<&[u8]>,
        caller: &Caller,
    ) -> Step {
        let script_request = match decode(arguments) {
            Ok(script_request) => script_request,
            Err(finished) => return Step::Now(finished),
        };
        let transcript = Transcript::new();
        let (view, recording) = (self.clone(), Arc::clone(&transcript));
        let progress = Progress::new(caller, meta);
        let unended = Arc::clone(&progress);
        let final_response = move || {
            unended.script_ended();
            let (logs, calls) = transcript.so_far();
            Finished::Result(failed(ended(), &logs, &calls, false))
        };
        let future = async move {
            match view.execute(&script_request, &progress, recording).await {
                Ok(ran) => Finished::Result(view.answer(&script_request.source, &ran)),
                Err(refused) => Finished::Refused(Box::new(refused)),
            }
        };
        Step::Running(Running {
            future: Box::pin(future),
            final_response: Box::new(final_response),
        })
    }

    /// Runs a script, or says why not; its end is reported as progress.
    pub(super) async fn execute(
        &self,
        script_request: &ScriptRequest,
        progress: &Arc<Progress>,
        transcript: Arc<Transcript>,
    ) -> Result<FinishedScript, ErrorObject> {
        if progress.is_followed() {
            self.surface.router.watch_silence(progress);
        }
        let ran = self.run_script(script_request, progress, transcript).await;
        progress.script_ended();
        ran
    }

    async fn run_script(
        &self,
        script_request: &ScriptRequest,
        progress: &Arc<Progress>,
        transcript: Arc<Transcript>,
    ) -> Result<FinishedScript, ErrorObject> {
        let Some(workers) = &self.surface.code.workers else {
            return Err(ErrorObject::new(Code::Denied, "code mode is off here")
                .hint("Call the tools one by one; only the owner of the configuration can turn it on (code.profile)."));
        };
        let limits = self.surface.code.limits(script_request.timeout, script_request.calls);
        if script_request.source.len() > limits.source {
            let message = format!(
                "the script has {} bytes, and the limit is {}",
                script_request.source.len(),
                limits.source
            );
            return Err(ErrorObject::new(Code::LimitExceeded, message)
                .hint("Nothing was run. Fetch data through a tool instead of writing it into the script.")
                .detail("limit", "source"));
        }
        let mut spare = rlimits::files(SCRIPT_FILES);
        if spare.is_err() && self.surface.router.shed().await {
            spare = rlimits::files(SCRIPT_FILES);
        }
        spare.map_err(|reason| no_files(&reason))?;
        let script = parse(&script_request.source).await?;
        let host = Arc::new(ScriptHost::new(self, progress, transcript));
        let _permit = self.surface.code.script_queue.acquire(self.principal).await;
        let servers = self.servers();
        let enabled: Vec<&Entry> =
            servers.iter().filter(|entry| entry.config.is_enabled()).collect();
        let job = ScriptJob { code: script.code.clone(), servers: named(&enabled), limits };
        // Servers that the script names start now, all at once, rather than each at its first call.
        for entry in &enabled {
            let at = job.servers.iter().find(|server| server.name == *entry.name);
            let is_meant = |name: &String| {
                *name == *entry.name || at.is_some_and(|server| server.identifiers.contains(name))
            };
            if script.names.iter().any(is_meant) {
                // The call that needs it reports why it cannot start.
                drop(self.surface.router.wake(entry.id));
            }
        }
        let worker = workers
            .take()
            .await
            .map_err(|refused| no_worker(&refused, &self.surface.code.settings))?;
        let mut outcome = host::run(worker, job, host, std::future::pending()).await;
        self.surface.shapes.keep();
        if let Some(error) = &mut outcome.error
            && let (Some(line), Some(column)) = (error.line, error.column)
        {
            let position = script.position(Position { line, column });
            (error.line, error.column) = (Some(position.line), Some(position.column));
        }
        Ok(FinishedScript { outcome, is_valueless: script.ending == Ending::Nothing })
    }

    /// What a script logged and called, as far as it is shown.
    pub(super) fn output(&self, outcome: &ScriptOutcome) -> (execution::Logs, Vec<Value>) {
        let logs = execution::logs(
            outcome.logs.iter().map(|line| (level(line.level), line.text.as_str())),
            outcome.logs_dropped,
            self.surface.code.shown_log_bytes(),
        );
        let calls = outcome
            .calls
            .iter()
            .map(|call| {
                // The server's own name of it, however the script wrote it.
                let tool = self.tool_meant(&call.server, &call.tool);
                call_json(&call.server, &tool, call.took, call.ended)
            })
            .collect();
        (logs, calls)
    }

    /// The outcome as a tool result.
    fn answer(&self, source: &str, ran: &FinishedScript) -> Vec<u8> {
        let outcome = &ran.outcome;
        let (logs, calls) = self.output(outcome);
        let Some(value) = outcome.value.as_ref().filter(|_| outcome.status == Status::Ok) else {
            let has_limit = outcome.limit.is_some();
            return failed(self.script_error(source, outcome), &logs, &calls, has_limit);
        };
        let text = execution::value_text(value);
        let stored = (text.chars().count() > self.shown_chars()).then(|| {
            self.surface.results.put(&self.owner(), Bytes::from(value.clone().into_bytes()))
        });
        let mut body = match &stored {
            Some(handle) => excerpt::cut(&text, self.shown_chars(), handle, self.audience),
            None => text.into_owned(),
        };
        let note = ran.note();
        if let Some(note) = note {
            body.push_str(&format!("\n[{note}]"));
        }
        body.push_str(&execution::footer(&logs, &calls, false));
        let mut structured = json!({ "status": "ok", "logs": logs.lines, "calls": calls });
        if let Some(note) = note {
            structured["note"] = note.into();
        }
        if let Some(handle) = &stored {
            structured["handle"] = handle.as_str().into();
            structured["chars"] = value.chars().count().into();
        }
        let mut structured = structured.to_string();
        if stored.is_none() {
            // Spliced in as raw JSON: numbers of any length, keys in their order.
            structured.truncate(structured.len() - 1);
            structured.push_str(",\"value\":");
            structured.push_str(value);
            structured.push('}');
        }
        let content = json!([{ "type": "text", "text": body }]);
        format!("{{\"content\":{content},\"structuredContent\":{structured}}}").into_bytes()
    }

    /// What ended a script, and what may help.
    pub(super) fn script_error(&self, source: &str, outcome: &ScriptOutcome) -> ErrorObject {
        let error = outcome.error.clone().unwrap_or_default();
        let hit = outcome.limit.as_ref();
        let limit = hit.map_or(String::new(), |hit| format!(" ({} = {})", hit.name, hit.value));
        let (code, what, hint): (_, _, Cow<'static, str>) = match outcome.status {
            Status::Ok | Status::Error => (
                Code::CodeError,
                text::clean(&format!("{}: {}", error.name, error.message), MAX_MESSAGE)
                    .into_owned(),
                self.fix_hint(source, &error, outcome),
            ),
            Status::Timeout => (
                Code::Timeout,
                format!("the script ran out of time{limit}"),
                "Do less in one script, or make calls concurrently with parallel().".into(),
            ),
            Status::CpuLimit => (
                Code::LimitExceeded,
                format!("the script used up its CPU time{limit}"),
                "Look for a loop that does not end.".into(),
            ),
            Status::MemoryLimit => (
                Code::LimitExceeded,
                format!("the script used up its memory{limit}"),
                "Keep only what you need of each result.".into(),
            ),
            Status::CallLimit => (
                Code::LimitExceeded,
                format!("the script made too many tool calls{limit}"),
                "Use a tool that takes many items at once, or several scripts.".into(),
            ),
            Status::Deadlock => (
                Code::CodeError,
                "the script waits for a promise that nothing can settle".to_owned(),
                "Every `new Promise` must be resolved by a call, a sleep or a timer.".into(),
            ),
            Status::Cancelled => (
                Code::Cancelled,
                "the script was cancelled".to_owned(),
                "Calls it had made may have run.".into(),
            ),
        };
        let mut message = what;
        let mut object_position = None;
        if let (Some(line), column) = (error.line, error.column.unwrap_or(1)) {
            let shown = source.lines().nth(line.saturating_sub(1) as usize).unwrap_or_default();
            message.push_str(&format!(
                " (line {line}, column {column})\n{}",
                execution::caret(line, column, shown)
            ));
            object_position = Some((line, column));
        }
        let mut object = ErrorObject::new(code, message)
            .hint(hint.into_owned())
            .detail("status", outcome.status.word());
        if let Some((line, column)) = object_position {
            object = object.detail("line", line).detail("column", column);
        }
        if let Some(hit) = hit {
            object = object.detail("limit", hit.name).detail("limit_value", hit.value.clone());
        }
        // The script can forge it, so it may be no longer than our own.
        let tool_error = error.tool_error.filter(|raw| raw.len() <= MAX_TOOL_ERROR);
        if let Some(tool_error) =
            tool_error.and_then(|raw| serde_json::from_str::<Value>(&raw).ok())
        {
            object = object.detail("tool_error", tool_error);
        }
        if !error.stack.is_empty() {
            object = object.detail("stack", text::clean(&error.stack, MAX_MESSAGE).into_owned());
        }
        object
    }

    /// The hint for an error of the script's own.
    fn fix_hint(
        &self,
        source: &str,
        error: &host::ScriptError,
        outcome: &ScriptOutcome,
    ) -> Cow<'static, str> {
        // A call that was refused here never reached its server.
        let refused = ["server_not_found", "tool_not_found", "validation_input", "denied"];
        let code = error
            .tool_error
            .as_deref()
            .and_then(|raw| object::pick(raw.as_bytes(), ["code"]).ok()?[0]);
        let code = code.and_then(object::text).unwrap_or_default();
        let unsent = usize::from(refused.contains(&&*code));
        let again = match outcome.calls.len() <= unsent {
            true => "No call was made.",
            false => "The listed calls were made; fix the script and do not repeat them blindly.",
        };
        let servers: Vec<String> =
            self.servers().iter().map(|entry| identifier(&entry.name)).collect();
        if error.message == "not a function"
            && let (Some(line), Some(column)) = (error.line, error.column)
            && let Some(name) = execution::callee(source, line, column)
        {
            let known = servers.iter().map(String::as_str);
            return format!("{} {again}", execution::instead_of_calling(&name, known)).into();
        }
        let Some(name) = execution::undefined(&error.message) else { return again.into() };
        let own = execution::declared(source).chain(servers.iter().map(String::as_str));
        match execution::instead_of(name, own) {
            Some(instead) => format!("{instead} {again}").into(),
            None => again.into(),
        }
    }
}

/// Parses a long script off the thread that relays calls, so that it delays none.
async fn parse(source: &str) -> Result<metamcp_script::PreparedScript, ErrorObject> {
    if source.len() <= PARSE_INLINE {
        return metamcp_script::prepare(source).map_err(|error| syntax_error(&error));
    }
    let owned = source.to_owned();
    match compute::run(move || metamcp_script::prepare(&owned)).await {
        Ok(parsed) => parsed.map_err(|error| syntax_error(&error)),
        Err(_) => Err(ErrorObject::new(Code::Internal, "parsing the script failed")
            .hint("Nothing was run. This is a bug in metamcp; a shorter script may work.")),
    }
}

/// The names of each server inside a script: its own, and an identifier unless another server has the same.
fn named(servers: &[&Entry]) -> Vec<Server> {
    let identifiers: Vec<String> = servers.iter().map(|entry| identifier(&entry.name)).collect();
    servers
        .iter()
        .zip(&identifiers)
        .map(|(entry, own)| {
            let is_shared = identifiers.iter().filter(|other| *other == own).count() > 1;
            // A server with exactly this name gets it; the others must not be mistaken for it.
            let is_usable = !is_shared || **own == *entry.name;
            let identifiers = is_usable.then(|| own.clone()).into_iter().collect();
            Server { name: entry.name.to_string(), identifiers }
        })
        .collect()
}

fn decode(arguments: Option<&[u8]>) -> Result<ScriptRequest, Finished> {
    let usage = "mcp_execute needs `code`: TypeScript or JavaScript, as a string";
    let Some(raw) = arguments else { return Err(Finished::invalid(usage)) };
    let value = object::strict_value(raw, MAX_DEPTH).map_err(|defect| {
        Finished::invalid(format!("the arguments of mcp_execute cannot be used: {defect}"))
    })?;
    let Some(source) = value["code"].as_str() else { return Err(Finished::invalid(usage)) };
    let timeout = match &value["timeoutMs"] {
        Value::Null => None,
        given => {
            let millis = given.as_f64().filter(|millis| *millis >= 1.0).ok_or_else(|| {
                Finished::invalid("`timeoutMs` of mcp_execute must be a number of milliseconds")
            })?;
            Some(Duration::from_millis(millis as u64))
        }
    };
    Ok(ScriptRequest::new(source, timeout, None))
}

/// Models like to send code as they would show it: inside a Markdown fence.
fn unfenced(source: &str) -> &str {
    let trimmed = source.trim();
    let Some(inner) = trimmed.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else {
        return source;
    };
    inner.split_once('\n').map_or(source, |(_language, code)| code)
}

fn syntax_error(error: &SyntaxError) -> ErrorObject {
    // Its hint becomes the hint of the error object, and is not repeated in the message.
    let mut bare = error.clone();
    let hint = bare.hint.take();
    let object = ErrorObject::new(Code::CodeError, format!("the script cannot be parsed: {bare}"))
        .detail("status", "error")
        .detail("line", error.line)
        .detail("column", error.column);
    match hint {
        Some(hint) => object.hint(hint),
        None => object,
    }
}

fn no_files(reason: &str) -> ErrorObject {
    let message = format!("metamcp has no file descriptors left to run a script: {reason}");
    ErrorObject::new(Code::Overloaded, message)
        .hint("Nothing was run. Wait for other calls to end, or raise the limit on open files (`ulimit -n`) where metamcp is started.")
        .retryable(None)
}

fn no_worker(refused: &host::WorkerError, code: &CodeSettings) -> ErrorObject {
    if let host::WorkerError::Files { reason } = refused {
        return no_files(reason);
    }
    let needs = match code.profile {
        CodeProfile::Hardened => {
            "The profile needs a build with the feature `hardened`. ".to_owned()
        }
        CodeProfile::Docker => format!(
            "The profile needs Docker, running, and the image {} pulled. ",
            text::clean_line(&code.image, MAX_IMAGE)
        ),
        CodeProfile::Standard | CodeProfile::Dev | CodeProfile::Off => String::new(),
    };
    ErrorObject::new(
        Code::ExecutionFailed,
        format!("the script was not run: {refused} (profile {})", code.profile.as_str()),
    )
    .hint(
        Advice::from("Nothing was run, and nothing weaker is used instead. Call the tools with ")
            .step(
                Next::Call,
                format!(". {needs}The owner of the configuration can choose another code.profile."),
            ),
    )
}

/// The gateway shuts down while a script runs.
pub(super) fn ended() -> ErrorObject {
    ErrorObject::new(Code::ShuttingDown, "metamcp is shutting down")
        .hint("The script was ended. Calls it had made may have run: see `calls`.")
}

/// A failure with the logs and calls of the script.
fn failed(
    object: ErrorObject,
    logs: &execution::Logs,
    calls: &[Value],
    has_limit: bool,
) -> Vec<u8> {
    let mut body = object.to_line();
    body.push_str(&execution::footer(logs, calls, has_limit));
    let object = object.detail("logs", logs.lines.clone()).detail("calls", calls.to_vec());
    json!({
        "content": [{ "type": "text", "text": body }],
        "structuredContent": object.to_json(),
        "isError": true,
    })
    .to_string()
    .into_bytes()
}

pub(super) fn level(level: host::Level) -> &'static str {
    match level {
        host::Level::Debug => "debug",
        host::Level::Info => "",
        host::Level::Warn => "warn",
        host::Level::Error => "error",
    }
}
