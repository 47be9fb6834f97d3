//! Who answers a running script: every call of it goes through `mcp_call`'s own path.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use metamcp_sandbox::host::{Answer, CallError, CallStatus, Host, Level, Op};
use metamcp_surface::discover::split_id;
use metamcp_surface::execution::{self, Logs};
use metamcp_tools::declarations::{self, Declared};
use metamcp_types::text;
use metamcp_wire::object;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::View;
use super::execute::level;
use super::query_cache::QueryCache;
use super::reply::{Code, ErrorObject, is_error};
use super::script_queries::{describe, list, name_in, search, stored_result, types};
use super::sub_request::{Progress, SubRequests};
use crate::catalog::Snapshot;
use crate::observe::{Event, Interest, Origin, Subscriber, Subscription, Verdict};
use crate::shapes;

/// Lines and calls remembered for the last words of a script that is ended from outside.
const MAX_TOLD: usize = 1000;
/// Longest name that is repeated; a script can ask for names of any length.
pub(super) const MAX_NAME: usize = 200;
/// Longest message of an error that a script is told.
pub(super) const MAX_MESSAGE: usize = 4000;
/// How deep what a script asks with may be nested: as deep as the sandbox lets it be, with what is around it.
const PAYLOAD_DEPTH: usize = 128;
/// Most details of an error, in bytes of JSON.
const MAX_DETAILS: usize = 8 * 1024;

static LAST_SCRIPT: AtomicU64 = AtomicU64::new(0);

/// What a script printed and called so far, for an answer that cannot wait for its end.
pub(super) struct Transcript {
    /// Its number, which the records of its calls carry.
    script: u64,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    logs: Vec<(&'static str, String)>,
    calls: Vec<Value>,
}

impl Transcript {
    /// Of a new script.
    pub(super) fn new() -> Arc<Transcript> {
        let script = LAST_SCRIPT.fetch_add(1, Ordering::Relaxed) + 1;
        Arc::new(Transcript { script, told: Mutex::default() })
    }

    pub(super) fn so_far(&self) -> (Logs, Vec<Value>) {
        let told = self.lock();
        let lines = told.logs.iter().map(|(level, text)| (*level, text.as_str()));
        (execution::logs(lines, 0, usize::MAX), told.calls.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.told.lock()
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
            Verdict::Ok => CallStatus::Ok,
            _ => CallStatus::Failed,
        };
        let mut told = self.lock();
        if told.calls.len() < MAX_TOLD {
            let took = record.ended.since(record.arrived);
            told.calls.push(call_json(&record.server, &record.tool, took, ended));
        }
    }
}

/// One running script, toward the gateway.
pub(super) struct ScriptHost {
    view: View,
    sub_requests: Arc<SubRequests>,
    progress: Arc<Progress>,
    transcript: Arc<Transcript>,
    /// What the transcript hears of its calls.
    _calls: Subscription,
    answers: Arc<QueryCache>,
}

impl ScriptHost {
    pub(super) fn new(
        view: &View,
        progress: &Arc<Progress>,
        transcript: Arc<Transcript>,
    ) -> ScriptHost {
        let sub_requests = SubRequests::within(progress, Origin::Script(transcript.script));
        let calls = Arc::clone(&transcript) as Arc<dyn Subscriber>;
        ScriptHost {
            view: view.clone(),
            sub_requests,
            progress: Arc::clone(progress),
            _calls: view.surface.router.observer.subscribe(calls),
            transcript,
            answers: Arc::default(),
        }
    }
}

impl Host for ScriptHost {
    fn answer(&self, op: Op, payload: String) -> Answer {
        let (sub_requests, progress) = (Arc::clone(&self.sub_requests), Arc::clone(&self.progress));
        let view = self.view.clone();
        let answers = Arc::clone(&self.answers);
        let scrubbing = self.view.clone();
        let answer = async move {
            // Read once, in one way: what is asked for is what is counted and what is sent.
            let asked =
                object::strict_value(payload.as_bytes(), PAYLOAD_DEPTH).map_err(|defect| {
                    let unread = format!("what the script asks for cannot be read: {defect}");
                    refused(&view, &ErrorObject::new(Code::ValidationInput, unread))
                })?;
            match op {
                Op::Call => {
                    progress.script_calls(name_in(&asked["server"]), name_in(&asked["tool"]));
                    let answer = call(&view, &sub_requests, &payload, &asked).await;
                    // What a result looks like is part of what is declared.
                    answers.forget();
                    answer
                }
                Op::Describe => describe(&view, &asked).await,
                Op::List if asked["server"].is_null() => list(&view, &asked).await,
                Op::Search | Op::List | Op::Types => {
                    // One at a time, so that who asks the same at once is answered by the first.
                    let _turn = answers.turn(op).await;
                    let generation = view.snapshot().generation;
                    if let Some(answer) = answers.known(generation, op, &payload) {
                        return Ok(answer);
                    }
                    let answer = match op {
                        Op::Search => search(&view, &asked).await,
                        Op::List => list(&view, &asked).await,
                        _ => types(&view, &asked).await,
                    }?;
                    answers.keep(generation, op, &payload, &answer);
                    Ok(answer)
                }
                Op::ResultsGet => stored_result(&view, &asked).await,
                Op::ResultsPut => {
                    let raw =
                        object::pick(payload.as_bytes(), ["value"]).ok().and_then(|[raw]| raw);
                    let value = Bytes::copy_from_slice(raw.unwrap_or(b"null"));
                    let handle = view.surface.results.put(&view.owner(), value);
                    Ok(Value::from(handle).to_string())
                }
            }
        };
        // A script sees what the model would see. In any other spelling a secret could leave unnoticed.
        Box::pin(async move {
            match answer.await {
                Ok(json) => Ok(without_secrets(&scrubbing, json)),
                Err(CallError { json }) => {
                    Err(CallError { json: without_secrets(&scrubbing, json) })
                }
            }
        })
    }

    fn server_meant(&self, written: &str) -> Option<String> {
        self.view.server(written).map(|entry| entry.name.to_string())
    }

    fn log(&self, how: Level, text: &str) {
        let mut told = self.transcript.lock();
        if told.logs.len() < MAX_TOLD {
            told.logs.push((level(how), text.to_owned()));
        }
    }

    fn progress(&self, value: f64, total: Option<f64>, message: Option<&str>) {
        self.progress.script_speaks(value, total, message);
    }
}

fn without_secrets(view: &View, json: String) -> String {
    match view.surface.clean(json.as_bytes()) {
        Cow::Borrowed(_) => json,
        // Whole characters are taken out, and put in.
        Cow::Owned(clean) => String::from_utf8_lossy(&clean).into_owned(),
    }
}

/// A call of the script's: the tool's name may be written as an identifier.
async fn call(
    view: &View,
    sub_requests: &Arc<SubRequests>,
    payload: &str,
    asked: &Value,
) -> Result<String, CallError> {
    let (server, written) = (name_in(&asked["server"]), name_in(&asked["tool"]));
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
                format!("the result of {server}:{written} is no text"),
            ),
        ));
    };
    if result.len() > shapes::SHORT_RESULT {
        // The script may ask next how it is declared.
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

/// An `ErrorObject` as the script's `ToolError` is made from.
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
    // What is not known here is left to what the script itself called it.
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
        let known = self.server(server).and_then(|entry| snapshot.known(entry.id));
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
        let Some(known) = snapshot.known(entry.id) else { return String::new() };
        let identifier = declarations::identifier(&entry.name);
        let shapes: Vec<Option<Value>> = known
            .tools
            .tools
            .iter()
            .map(|tool| self.surface.shapes.of(self.principal, &entry.name, &tool.name))
            .collect();
        let tools: Vec<Declared<'_>> = known
            .tools
            .tools
            .iter()
            .zip(&shapes)
            .map(|(tool, shape)| Declared { tool, observed: shape.as_ref() })
            .collect();
        declarations::for_server(&entry.name, &identifier, &tools, bound)
    }
}

pub(super) fn call_json(server: &str, tool: &str, took: Duration, ended: CallStatus) -> Value {
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let (server, tool) = (text::cut(server, MAX_NAME), text::cut(tool, MAX_NAME));
    let mut call =
        json!({ "server": server, "tool": tool, "ms": ms, "ok": ended == CallStatus::Ok });
    if ended == CallStatus::Dropped {
        call["dropped"] = true.into();
    }
    call
}
