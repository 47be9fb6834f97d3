//! `mcp_execute`: runs a model's script in a sandboxed worker.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_config::settings::{CodeProfile, CodeSettings};
use metamcp_sandbox::host::{
    self, CallStatus, Launch, Limits, Profile, ScriptJob, ScriptOutcome, Server, Status, Workers,
};
use metamcp_script::{Ending, Position, SyntaxError};
use metamcp_surface::excerpt;
use metamcp_surface::execution::{self, CallEnd, CallTally, Gap};
use metamcp_tools::declarations::identifier;
use metamcp_types::nearest::mistaken_argument;
use metamcp_types::next::{Advice, Audience, Next};
use metamcp_types::text;
use metamcp_wire::object;
use metamcp_wire::scan::MAX_DEPTH;
use metamcp_wire::trace_context::TraceContext;
use serde_json::{Value, json};

use super::reply::{Code, ErrorObject};
use super::script::{MAX_NAME, ScriptHost, Transcript};
use super::script_queue::ScriptQueue;
use super::sub_request::Progress;
use super::{Finished, Running, Step, View};
use crate::compute;
use crate::observe::{Event, Interest, ScriptPayload, ScriptRecord};
use crate::rlimits;
use crate::router::{Caller, Entry};

/// The arguments of `mcp_execute`.
const ARGUMENTS: [&str; 2] = ["code", "timeoutMs"];
/// Idle workers: one runs while the next arrives.
const READY: usize = 2;
/// A script up to this length is parsed in some microseconds.
const PARSE_INLINE: usize = 2 * 1024;
/// Where the engine as WASM is.
const PACKAGES: &str = "Install metamcp from npm, PyPI or by its install script, whose builds have the engine; \
    a build of one's own needs `cargo xtask hardened` and the feature `hardened`";
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
        CodeMode {
            settings: settings.clone(),
            workers: profile(settings.profile).map(|profile| Workers::new(launch, profile, READY)),
            script_queue: ScriptQueue::new(settings.executions as usize),
        }
    }

    pub fn is_on(&self) -> bool {
        self.workers.is_some()
    }

    /// The limits of a script in words, where there is code mode.
    pub(super) fn caps(&self) -> Option<String> {
        let Limits { calls, wall, .. } = self.limits(None, None);
        self.is_on().then(|| format!("{calls} calls (LimitError), {} s", wall.as_secs_f64()))
    }

    /// What a request asks for beyond what is configured, in words.
    fn unmet(&self, request: &ScriptRequest, given: &Limits) -> Vec<String> {
        let calls = request.calls.filter(|calls| *calls > given.calls).map(|calls| {
            format!(
                "{calls} tool calls were asked for, {} are the most here (code.maxCalls)",
                given.calls
            )
        });
        let timeout = request.timeout.filter(|timeout| *timeout > given.wall).map(|timeout| {
            format!(
                "{} ms were asked for, {} are the most here (code.timeoutMs)",
                timeout.as_millis(),
                given.wall.as_millis()
            )
        });
        calls.into_iter().chain(timeout).collect()
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

/// The sandbox's profile of that name; `None` if there is no code mode.
pub fn profile(configured: CodeProfile) -> Option<Profile> {
    match configured {
        CodeProfile::Standard => Some(Profile::Standard),
        CodeProfile::Hardened => Some(Profile::Hardened),
        CodeProfile::Wasm => Some(Profile::Wasm),
        CodeProfile::Docker => Some(Profile::Docker),
        CodeProfile::Dev => Some(Profile::Dev),
        CodeProfile::Off => None,
    }
}

/// File descriptors of a worker, at both ends.
const SCRIPT_FILES: usize = 6;

pub(super) struct FinishedScript {
    pub(super) outcome: ScriptOutcome,
    /// Whether it neither returns a value nor ends with an expression.
    is_valueless: bool,
    /// What was asked for and not given.
    unmet: Vec<String>,
}

impl FinishedScript {
    /// Notes for a script without a value, and about limits that were asked for in vain.
    pub(super) fn notes(&self) -> impl Iterator<Item = &str> {
        let is_valueless = self.is_valueless && self.outcome.status == Status::Ok;
        let valueless = is_valueless.then_some(execution::NOTHING);
        self.unmet.iter().map(String::as_str).chain(valueless)
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
            match view.execute("mcp_execute", &script_request, &progress, recording).await {
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
        tool: &'static str,
        script_request: &ScriptRequest,
        progress: &Arc<Progress>,
        transcript: Arc<Transcript>,
    ) -> Result<FinishedScript, ErrorObject> {
        if progress.is_followed() {
            self.surface.router.watch_silence(progress);
        }
        let (parent, script) = (progress.parent(), transcript.script);
        let mut end = ScriptEnd::new(self, parent, (script, tool), script_request);
        let place = self.place_in_trace(parent, &mut end.record);
        let ran = self.run_script(script_request, progress, (transcript, place)).await;
        end.publish(&ran);
        progress.script_ended();
        ran
    }

    /// Begins the trace of a script, if it is recorded, and says where in it its calls are made.
    fn place_in_trace(
        &self,
        parent: &Caller,
        record: &mut ScriptRecord,
    ) -> Option<Arc<TraceContext>> {
        let tracer = self.surface.router.observer.tracer()?;
        record.trace = parent.traced(&**tracer, None, record.tool);
        match (&record.trace, &parent.trace) {
            (Some(trace), _) => Some(Arc::new(trace.context())),
            (None, Some(unsampled)) => Some(Arc::clone(unsampled)),
            // What is decided for the script is decided for its calls.
            (None, None) => {
                let mut trace = [0; 16];
                trace[..8].copy_from_slice(&tracer.new_span());
                trace[8..].copy_from_slice(&tracer.new_span());
                let (span, is_sampled) = (tracer.new_span(), false);
                let unsampled =
                    TraceContext { trace, span, is_sampled, state: None, baggage: None };
                Some(Arc::new(unsampled))
            }
        }
    }

    async fn run_script(
        &self,
        script_request: &ScriptRequest,
        progress: &Arc<Progress>,
        (transcript, place): (Arc<Transcript>, Option<Arc<TraceContext>>),
    ) -> Result<FinishedScript, ErrorObject> {
        let Some(workers) = &self.surface.code.workers else {
            return Err(ErrorObject::new(Code::Denied, "code mode is off here")
                .hint("Call the tools one by one; only the owner of the configuration can turn it on (code.profile)."));
        };
        let limits = self.surface.code.limits(script_request.timeout, script_request.calls);
        let unmet = self.surface.code.unmet(script_request, &limits);
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
        let host = Arc::new(ScriptHost::new(self, progress, transcript, place));
        let _permit = self.surface.code.script_queue.acquire(self.sharer()).await;
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
        Ok(FinishedScript { outcome, is_valueless: script.ending == Ending::Nothing, unmet })
    }

    /// How much of a script's output is shown: all of it in a shell, which has no later call to read the rest with.
    fn shown_log_bytes(&self) -> usize {
        match self.audience {
            Audience::Shell => usize::MAX,
            _ => self.surface.code.shown_log_bytes(),
        }
    }

    /// What a script logged and called, as far as it is shown.
    pub(super) fn output(&self, outcome: &ScriptOutcome) -> (execution::Logs, Vec<CallTally>) {
        let logs = execution::logs(
            outcome.logs.iter().map(|line| (level(line.level), line.text.as_str())),
            Gap { bytes: outcome.logs_dropped, after: outcome.logs_before_drop },
            self.shown_log_bytes(),
        );
        // By the names that the script used first: there are few, and many calls.
        let mut written: Vec<(&str, &str, String)> = Vec::new();
        let mut calls = Vec::new();
        for call in &outcome.calls {
            let (server, tool) = (call.server.as_str(), call.tool.as_str());
            let known = written.iter().position(|(s, t, _)| (*s, *t) == (server, tool));
            let at = known.unwrap_or_else(|| {
                // The server's own name of it, however the script wrote it.
                let meant = self.tool_meant(server, tool);
                written.push((server, tool, call_id(server, &meant)));
                written.len() - 1
            });
            CallTally::count(&mut calls, &written[at].2, call_end(call.ended));
        }
        (logs, calls)
    }

    /// The outcome as a tool result.
    fn answer(&self, source: &str, ran: &FinishedScript) -> Vec<u8> {
        let outcome = &ran.outcome;
        let (logs, calls) = self.output(outcome);
        let Some(value) = outcome.value.as_ref().filter(|_| outcome.status == Status::Ok) else {
            let has_limit = outcome.limit.is_some();
            let mut object = self.script_error(source, outcome);
            let notes: Vec<&str> = ran.notes().collect();
            if !notes.is_empty() {
                object = object.detail("notes", notes);
            }
            return failed(object, &logs, &calls, has_limit);
        };
        let text = execution::value_text(value);
        let stored = (text.chars().count() > self.shown_chars()).then(|| {
            self.surface.results.put(&self.owner(), Bytes::from(value.clone().into_bytes()))
        });
        let mut body = match &stored {
            Some(handle) => excerpt::cut(&text, self.shown_chars(), handle, self.audience),
            None => text.into_owned(),
        };
        for note in ran.notes() {
            body.push_str(&format!("\n[{note}]"));
        }
        body.push_str(&execution::footer(&logs, &calls, false));
        let content = json!([{ "type": "text", "text": body }]);
        // A model reads the text, and a client that prefers data would read everything twice or less of it. The shell
        // gets data: it prints value and output apart.
        if self.audience != Audience::Shell {
            return format!("{{\"content\":{content}}}").into_bytes();
        }
        let calls: Vec<Value> = calls.iter().map(CallTally::to_json).collect();
        let notes: Vec<&str> = ran.notes().collect();
        let structured =
            json!({ "status": "ok", "logs": logs.lines, "calls": calls, "notes": notes });
        let mut structured = structured.to_string();
        // Spliced in as raw JSON: numbers of any length, keys in their order.
        structured.truncate(structured.len() - 1);
        structured.push_str(",\"value\":");
        structured.push_str(value);
        structured.push('}');
        format!("{{\"content\":{content},\"structuredContent\":{structured}}}").into_bytes()
    }
}

/// Publishes the record of a script, also of one that is cut short.
struct ScriptEnd<'a> {
    view: &'a View,
    code: &'a str,
    record: ScriptRecord,
    is_published: bool,
}

impl<'a> ScriptEnd<'a> {
    fn new(
        view: &'a View,
        caller: &Caller,
        (number, tool): (u64, &'static str),
        request: &'a ScriptRequest,
    ) -> Self {
        let (identity, now) = (caller.client.identity(), view.surface.router.clock.now());
        let record = ScriptRecord {
            number,
            identity,
            began: now,
            ended: now,
            verdict: "cancelled",
            calls: 0,
            bytes_out: 0,
            tool,
            trace: None,
        };
        ScriptEnd { view, code: &request.source, record, is_published: false }
    }

    fn publish(&mut self, ran: &Result<FinishedScript, ErrorObject>) {
        self.is_published = true;
        let observer = &self.view.surface.router.observer;
        if !observer.wants(Interest::SCRIPTS) {
            return;
        }
        let record = &mut self.record;
        record.ended = self.view.surface.router.clock.now();
        let outcome = match ran {
            Err(refused) => {
                record.verdict = refused.code().word();
                let payload = ScriptPayload { code: self.code, ..ScriptPayload::default() };
                return observer.publish(&Event::Script(record, payload));
            }
            Ok(ran) => &ran.outcome,
        };
        record.verdict = match outcome.status {
            Status::Ok => "ok",
            _ if outcome.limit.is_some() => "limit",
            _ => "failed",
        };
        record.calls = outcome.calls.len();
        record.bytes_out = outcome.value.as_ref().map_or(0, String::len);
        let logs: Vec<(&'static str, &str)> =
            outcome.logs.iter().map(|line| (level(line.level), line.text.as_str())).collect();
        let error = outcome.error.as_ref().map(|error| error.message.as_str());
        let payload = ScriptPayload { code: self.code, logs: &logs, error };
        observer.publish(&Event::Script(record, payload));
    }
}

impl Drop for ScriptEnd<'_> {
    fn drop(&mut self) {
        if !self.is_published {
            self.record.ended = self.view.surface.router.clock.now();
            let payload = ScriptPayload { code: self.code, ..ScriptPayload::default() };
            let observer = &self.view.surface.router.observer;
            observer.publish(&Event::Script(&self.record, payload));
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
    for name in value.as_object().into_iter().flat_map(|given| given.keys()) {
        if !ARGUMENTS.contains(&name.as_str())
            && let Some(wrong) = mistaken_argument("mcp_execute", name, &ARGUMENTS)
        {
            let refused = ErrorObject::new(Code::ValidationInput, wrong).hint("Nothing was run.");
            return Err(Finished::error(&refused));
        }
    }
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
        _ if matches!(refused, host::WorkerError::Platform { .. }) => {
            "Here the profile `wasm` is the one for scripts, and the default. ".to_owned()
        }
        CodeProfile::Wasm if matches!(refused, host::WorkerError::Engine) => {
            format!("{PACKAGES}. ")
        }
        CodeProfile::Hardened | CodeProfile::Wasm => {
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
    calls: &[CallTally],
    has_limit: bool,
) -> Vec<u8> {
    let mut body = object.to_line();
    body.push_str(&execution::footer(logs, calls, has_limit));
    let calls: Vec<Value> = calls.iter().map(CallTally::to_json).collect();
    let object = object.detail("logs", logs.lines.clone()).detail("calls", calls);
    json!({
        "content": [{ "type": "text", "text": body }],
        "structuredContent": object.to_json(),
        "isError": true,
    })
    .to_string()
    .into_bytes()
}

/// The id of a tool in the list of calls; a script can use names of any length.
pub(super) fn call_id(server: &str, tool: &str) -> String {
    format!("{}:{}", text::cut(server, MAX_NAME), text::cut(tool, MAX_NAME))
}

pub(super) fn call_end(ended: CallStatus) -> CallEnd {
    match ended {
        CallStatus::Ok => CallEnd::Ok,
        CallStatus::Failed => CallEnd::Failed,
        CallStatus::Dropped => CallEnd::Cancelled,
    }
}

pub(super) fn level(level: host::Level) -> &'static str {
    match level {
        host::Level::Debug => "debug",
        host::Level::Info => "",
        host::Level::Warn => "warn",
        host::Level::Error => "error",
    }
}
