//! The host of a running script: its calls take the path of `mcp_call`.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use metamcp_sandbox::host::{Answer, CallError, Host, Level, Op};
use metamcp_surface::discover::split_id;
use metamcp_surface::execution::{self, CallEnd, CallTally, Gap, Logs};
use metamcp_tools::declarations::{self, Declared};
use metamcp_tools::tool::Tool;
use metamcp_types::text;
use metamcp_wire::object;
use metamcp_wire::trace_context::TraceContext;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::View;
use super::execute::{call_id, level};
use super::query_cache::QueryCache;
use super::reply::{Code, ErrorObject, is_error};
use super::script_queries::{describe, list, name_in, search, stored_result, types};
use super::sub_request::{Progress, SubRequests};
use crate::catalog::Snapshot;
use crate::observe::{Event, Interest, Origin, Subscriber, Subscription, Verdict};
use crate::shapes;

/// Most log lines in the final response of a script that is ended from outside.
const MAX_RECORDED: usize = 1000;
/// Most bytes of output there.
const MAX_RECORDED_BYTES: usize = 8 * 1024;
/// Longest name in a message; a script can use names of any length.
pub(super) const MAX_NAME: usize = 200;
/// Longest error message that a script receives.
pub(super) const MAX_MESSAGE: usize = 4000;
/// The nesting limit for requests of a script: that of the sandbox, and the envelope around it.
const PAYLOAD_DEPTH: usize = 128;
/// Most details of an error, in bytes of JSON.
const MAX_DETAILS: usize = 8 * 1024;

static LAST_SCRIPT: AtomicU64 = AtomicU64::new(0);

/// What a script logged and called so far, for a response that cannot wait for its end.
pub(super) struct Transcript {
    /// Its number, which the records of its calls carry.
    pub(super) script: u64,
    recorded: Mutex<Recorded>,
}

#[derive(Default)]
struct Recorded {
    logs: Vec<(&'static str, String)>,
    calls: Vec<CallTally>,
}

impl Transcript {
    pub(super) fn new() -> Arc<Transcript> {
        let script = LAST_SCRIPT.fetch_add(1, Ordering::Relaxed) + 1;
        Arc::new(Transcript { script, recorded: Mutex::default() })
    }

    pub(super) fn so_far(&self) -> (Logs, Vec<CallTally>) {
        let recorded = self.lock();
        let lines = recorded.logs.iter().map(|(level, text)| (*level, text.as_str()));
        (execution::logs(lines, Gap::default(), MAX_RECORDED_BYTES), recorded.calls.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.recorded.lock()
    }
}

impl Subscriber for Transcript {
    fn interest(&self) -> Interest {
        Interest::CALLS
    }

    fn on_event(&self, event: &Event<'_>) {
        let Event::Call(record, _) = event else { return };
        if record.origin != Origin::Script(self.script) {
            return;
        }
        let ended = match record.verdict {
            Verdict::Ok => CallEnd::Ok,
            _ => CallEnd::Failed,
        };
        let tool = call_id(&record.server, &record.tool);
        CallTally::count(&mut self.lock().calls, &tool, ended);
    }
}

/// The gateway's side of one running script.
pub(super) struct ScriptHost {
    view: View,
    sub_requests: Arc<SubRequests>,
    progress: Arc<Progress>,
    transcript: Arc<Transcript>,
    /// Feeds the records of its calls to the transcript.
    _calls: Subscription,
    cache: Arc<QueryCache>,
}

impl ScriptHost {
    pub(super) fn new(
        view: &View,
        progress: &Arc<Progress>,
        transcript: Arc<Transcript>,
        place: Option<Arc<TraceContext>>,
    ) -> ScriptHost {
        let origin = Origin::Script(transcript.script);
        let sub_requests = SubRequests::traced(progress, origin, place);
        let calls = Arc::clone(&transcript) as Arc<dyn Subscriber>;
        ScriptHost {
            view: view.clone(),
            sub_requests,
            progress: Arc::clone(progress),
            _calls: view.surface.router.observer.subscribe(calls),
            transcript,
            cache: Arc::default(),
        }
    }
}

impl Host for ScriptHost {
    fn answer(&self, op: Op, payload: String) -> Answer {
        let (sub_requests, progress) = (Arc::clone(&self.sub_requests), Arc::clone(&self.progress));
        let view = self.view.clone();
        let cache = Arc::clone(&self.cache);
        let redacting = self.view.clone();
        let answer = async move {
            // Parsed once and strictly: what is counted is what is sent.
            let params =
                object::strict_value(payload.as_bytes(), PAYLOAD_DEPTH).map_err(|defect| {
                    let message = format!("the script's request cannot be used: {defect}");
                    refused(&view, &ErrorObject::new(Code::ValidationInput, message))
                })?;
            match op {
                Op::Call => {
                    progress.script_calls(name_in(&params["server"]), name_in(&params["tool"]));
                    let answer = call(&view, &sub_requests, &payload, &params).await;
                    // Declarations include the observed shapes of results.
                    cache.clear();
                    answer
                }
                Op::Describe => describe(&view, &params).await,
                Op::List if params["server"].is_null() => list(&view, &params).await,
                Op::Search | Op::List | Op::Types => {
                    // One at a time, so that concurrent queries for the same are computed once.
                    let _turn = cache.turn(op).await;
                    let generation = view.snapshot().generation;
                    if let Some(answer) = cache.get(generation, op, &payload) {
                        return Ok(answer);
                    }
                    let answer = match op {
                        Op::Search => search(&view, &params).await,
                        Op::List => list(&view, &params).await,
                        _ => types(&view, &params).await,
                    }?;
                    cache.put(generation, op, &payload, &answer);
                    Ok(answer)
                }
                // What the sandbox answers itself.
                Op::Partial | Op::Keep => Ok("null".to_owned()),
                Op::ResultsGet => stored_result(&view, &params).await,
                Op::ResultsPut => {
                    let raw =
                        object::pick(payload.as_bytes(), ["value"]).ok().and_then(|[raw]| raw);
                    let value = Bytes::copy_from_slice(raw.unwrap_or(b"null"));
                    let handle = view.surface.results.put(&view.owner(), value);
                    Ok(Value::from(handle).to_string())
                }
            }
        };
        // A script sees what the model would see: it could encode a secret so that redaction misses it later.
        Box::pin(async move {
            match answer.await {
                Ok(json) => Ok(without_secrets(&redacting, json)),
                Err(CallError { json }) => {
                    Err(CallError { json: without_secrets(&redacting, json) })
                }
            }
        })
    }

    fn server_meant(&self, written: &str) -> Option<String> {
        self.view.server_meant(written).ok().map(|entry| entry.name.to_string())
    }

    fn log(&self, how: Level, text: &str) {
        let mut recorded = self.transcript.lock();
        if recorded.logs.len() < MAX_RECORDED {
            recorded.logs.push((level(how), text.to_owned()));
        }
    }

    fn progress(&self, value: f64, total: Option<f64>, message: Option<&str>) {
        self.progress.script_reports(value, total, message);
    }
}

fn without_secrets(view: &View, json: String) -> String {
    match view.surface.clean(json.as_bytes()) {
        Cow::Borrowed(_) => json,
        // Redaction replaces whole characters, so nothing is lossy.
        Cow::Owned(clean) => String::from_utf8_lossy(&clean).into_owned(),
    }
}

/// A call of the script; the tool's name may be written as an identifier.
async fn call(
    view: &View,
    sub_requests: &Arc<SubRequests>,
    payload: &str,
    params: &Value,
) -> Result<String, CallError> {
    let (server, written) = (name_in(&params["server"]), name_in(&params["tool"]));
    let Some(written) = Some(written).filter(|written| !written.is_empty()) else {
        let missing = ErrorObject::new(
            Code::ValidationInput,
            "which tool? Its name comes first: call(\"name\", {…})",
        );
        return Err(refused(view, &missing));
    };
    view.make_known(server).await;
    let tool = view.tool_meant(server, written);
    let arguments = object::pick(payload.as_bytes(), ["arguments"]).ok().and_then(|[raw]| raw);
    let arguments = Bytes::copy_from_slice(arguments.unwrap_or(b"null"));
    let made = sub_requests.call_tool(view, "call", (Some(server), &tool), &arguments).await;
    let result = made.map_err(|error| refused(view, &error))?;
    let Ok(text) = std::str::from_utf8(&result) else {
        return Err(refused(
            view,
            &ErrorObject::new(
                Code::ExecutionFailed,
                format!("the result of {server}:{written} is not UTF-8"),
            ),
        ));
    };
    if result.len() > shapes::SHORT_RESULT {
        // The script may request its declaration next.
        view.surface.shapes.learnt().await;
    }
    if is_error(text.as_bytes()) {
        let entry = view.server(server);
        let server = Value::from(entry.as_ref().map_or(server, |entry| &*entry.name));
        let tool = Value::from(tool);
        let json = format!("{{\"server\":{server},\"tool\":{tool},\"result\":{text}}}");
        return Err(CallError { json });
    }
    Ok(text.to_owned())
}

pub(super) fn refused(view: &View, object: &ErrorObject) -> CallError {
    CallError { json: thrown(&object.clone().to(view.audience).to_json()) }
}

/// The JSON of an `ErrorObject` as the script's `ToolError`.
fn thrown(object: &Value) -> String {
    let id = object["tool_id"].as_str().and_then(split_id);
    let message = text::cut(object["message"].as_str().unwrap_or_default(), MAX_MESSAGE);
    let message = match object["hint"].as_str() {
        Some(hint) => format!("{message}. {}", text::cut(hint, MAX_MESSAGE)).into(),
        None => message,
    };
    let mut thrown = json!({
        "message": message,
        "code": object["code"],
        "retryable": object["retryable"],
    });
    // Where the names are unknown here, the script's own are used.
    if let Some(server) = object["server"].as_str() {
        thrown["server"] = text::cut(server, MAX_NAME).into();
    }
    if let Some((_, tool)) = id {
        thrown["tool"] = text::cut(tool, MAX_NAME).into();
    }
    let details = &object["details"];
    let length = details.to_string().len();
    thrown["details"] = match length > MAX_DETAILS {
        true => json!({ "left_out": format!("{length} bytes of details") }),
        false => details.clone(),
    };
    thrown.to_string()
}

impl View {
    /// The tool a script means by a name: as listed, or the one tool whose name reads so as an identifier.
    pub(super) fn tool_meant(&self, server: &str, written: &str) -> String {
        let snapshot = self.snapshot();
        let known = self.server(server).and_then(|entry| snapshot.known(entry.definition));
        let meant = known.and_then(|known| {
            let names = known.tools.tools.iter().map(|tool| &*tool.name);
            declarations::resolve_tool(written, names).map(str::to_owned)
        });
        meant.unwrap_or_else(|| written.to_owned())
    }

    /// What is known of a server's tools, as TypeScript.
    pub(crate) fn declarations(
        &self,
        entry: &crate::router::Entry,
        snapshot: &Snapshot,
        bound: usize,
    ) -> String {
        self.declarations_of(entry, snapshot, None, bound)
    }

    /// The same of one tool.
    pub(super) fn declarations_of(
        &self,
        entry: &crate::router::Entry,
        snapshot: &Snapshot,
        only: Option<&str>,
        bound: usize,
    ) -> String {
        let Some(known) = snapshot.known(entry.definition) else { return String::new() };
        let identifier = declarations::identifier(&entry.name);
        let is_meant = |tool: &&Tool| only.is_none_or(|only| *tool.name == *only);
        let meant: Vec<&Tool> = known.tools.tools.iter().filter(is_meant).collect();
        let shapes: Vec<Option<Value>> = meant
            .iter()
            .map(|tool| self.surface.shapes.of(self.principal, &entry.name, &tool.name))
            .collect();
        let tools: Vec<Declared<'_>> = meant
            .into_iter()
            .zip(&shapes)
            .map(|(tool, shape)| Declared { tool, observed: shape.as_ref() })
            .collect();
        declarations::for_server(&entry.name, &identifier, &tools, bound)
    }
}
