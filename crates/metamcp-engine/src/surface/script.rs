//! Who answers a running script: every call of it goes through `mcp_call`'s own path.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use metamcp_core::declarations::{self, Declared};
use metamcp_core::discover::{Request, split_id};
use metamcp_core::execution::{self, Logs};
use metamcp_sandbox::host::{Answer, CallError, Ended, Host, Level, Op};
use metamcp_wire::object;
use serde_json::{Value, json};

use super::calls::{self, Calls, Client};
use super::execute::level;
use super::reply::{Code, ErrorObject};
use super::{Finished, View};

/// Declarations given to a script at once, in bytes.
const MAX_TYPES: usize = 256 * 1024;
/// Lines and calls remembered for the last words of a script that is ended from outside.
const MAX_TOLD: usize = 1000;

/// What a script printed and called so far, for an answer that cannot wait for its end.
#[derive(Default)]
pub(super) struct Transcript(Mutex<Told>);

#[derive(Default)]
struct Told {
    logs: Vec<(&'static str, String)>,
    calls: Vec<Value>,
}

impl Transcript {
    pub(super) fn so_far(&self) -> (Logs, Vec<Value>) {
        let told = self.lock();
        let lines = told.logs.iter().map(|(level, text)| (*level, text.as_str()));
        (execution::logs(lines, 0, usize::MAX), told.calls.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// One running script, toward the gateway.
pub(super) struct Script {
    view: View,
    caller: Arc<Calls>,
    transcript: Arc<Transcript>,
}

impl Script {
    pub(super) fn new(view: &View, client: Client, transcript: Arc<Transcript>) -> Script {
        Script { view: view.clone(), caller: Calls::new(client), transcript }
    }
}

impl Host for Script {
    fn answer(&self, op: Op, payload: String) -> Answer {
        let (view, caller) = (self.view.clone(), Arc::clone(&self.caller));
        let transcript = Arc::clone(&self.transcript);
        Box::pin(async move {
            let asked: Value = serde_json::from_str(&payload).map_err(|_| {
                refused(&view, &ErrorObject::new(Code::ValidationInput, "not JSON"))
            })?;
            match op {
                Op::Call => {
                    let began = Instant::now();
                    let answer = call(&view, &caller, &payload, &asked).await;
                    let ended = match &answer {
                        Ok(result) if !is_error(result) => Ended::Ok,
                        _ => Ended::Failed,
                    };
                    let mut told = transcript.lock();
                    if told.calls.len() < MAX_TOLD {
                        let word = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
                        told.calls.push(call_json(
                            &word("server"),
                            &word("tool"),
                            began.elapsed(),
                            ended,
                        ));
                    }
                    drop(told);
                    answer
                }
                Op::Search => search(&view, &asked).await,
                Op::Describe => describe(&view, &asked).await,
                Op::List => list(&view, &asked).await,
                Op::Types => types(&view, &asked).await,
                Op::ResultsGet => kept(&view, &asked).await,
                Op::ResultsPut => {
                    let raw =
                        object::pick(payload.as_bytes(), ["value"]).ok().and_then(|[raw]| raw);
                    let value = Bytes::copy_from_slice(raw.unwrap_or(b"null"));
                    let handle = view.results.put(&view.owner(), value);
                    Ok(Value::from(handle).to_string())
                }
            }
        })
    }

    fn log(&self, how: Level, text: &str) {
        let mut told = self.transcript.lock();
        if told.logs.len() < MAX_TOLD {
            told.logs.push((level(how), text.to_owned()));
        }
    }

    fn progress(&self, value: f64, total: Option<f64>, message: Option<&str>) {
        self.caller.tell(Some((value, total)), message);
    }
}

/// A call of the script's: the tool's name may be written as an identifier.
async fn call(
    view: &View,
    calls: &Arc<Calls>,
    payload: &str,
    asked: &Value,
) -> Result<String, CallError> {
    let (server, written) = (asked["server"].as_str().unwrap_or_default(), asked["tool"].as_str());
    let Some(written) = written.filter(|written| !written.is_empty()) else {
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
    let made = calls::make(view, calls, "call", (Some(server), &tool), &arguments).await;
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
    view.shapes.saw(server, &tool, text);
    if !is_error(text) {
        view.shapes.used(server, &tool, &arguments);
    }
    Ok(text.to_owned())
}

fn is_error(result: &str) -> bool {
    object::pick(result.as_bytes(), ["isError"]).is_ok_and(|[flag]| flag == Some(b"true"))
}

fn refused(view: &View, object: &ErrorObject) -> CallError {
    CallError { json: thrown(&object.clone().to(view.audience).to_json()) }
}

/// An ErrorObject as the script's `ToolError` is made from.
fn thrown(object: &Value) -> String {
    let id = object["tool_id"].as_str().and_then(split_id);
    let message = match object["hint"].as_str() {
        Some(hint) => format!("{}. {hint}", object["message"].as_str().unwrap_or_default()),
        None => object["message"].as_str().unwrap_or_default().to_owned(),
    };
    json!({
        "message": message,
        "code": object["code"],
        "retryable": object["retryable"],
        "server": object["server"],
        "tool": id.map(|(_, tool)| tool),
        "details": object["details"],
    })
    .to_string()
}

async fn search(view: &View, asked: &Value) -> Result<String, CallError> {
    let query = asked["query"].as_str().unwrap_or_default();
    let options = &asked["options"];
    let arguments = json!({
        "query": query,
        "server": options["server"],
        "limit": if options["limit"].is_number() { options["limit"].clone() } else { 10.into() },
        "detail": options["detail"],
    });
    found(view, &arguments).await.map(|found| found["tools"].to_string())
}

async fn describe(view: &View, asked: &Value) -> Result<String, CallError> {
    let word = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
    let (server, tool) = match (word("server"), word("tool")) {
        (id, tool) if tool.is_empty() => {
            let parts = split_id(&id).or_else(|| id.split_once('.'));
            parts.map_or((id.clone(), String::new()), |(s, t)| (s.to_owned(), t.to_owned()))
        }
        both => both,
    };
    view.make_known(&server).await;
    let tool = view.tool_meant(&server, &tool);
    let arguments = json!({ "server": server, "tool": tool, "detail": "schema" });
    found(view, &arguments).await.map(|found| found["tools"][0].to_string())
}

async fn list(view: &View, asked: &Value) -> Result<String, CallError> {
    match asked["server"].as_str() {
        None => found(view, &json!({})).await.map(|found| found["servers"].to_string()),
        Some(server) => {
            let arguments = json!({ "server": server, "detail": "signature", "limit": 100 });
            found(view, &arguments).await.map(|found| found["tools"].to_string())
        }
    }
}

async fn found(view: &View, arguments: &Value) -> Result<Value, CallError> {
    let request = Request::decode(Some(arguments))
        .map_err(|bad| refused(view, &ErrorObject::new(Code::ValidationInput, bad.to_string())))?;
    match view.discover(request).await {
        Ok(found) => Ok(found.json),
        Err(Finished::Refused(object)) => Err(refused(view, &object)),
        Err(Finished::Result(result)) => Ok(serde_json::from_slice(&result).unwrap_or_default()),
        Err(Finished::Protocol { message, .. }) => {
            Err(refused(view, &ErrorObject::new(Code::ValidationInput, message)))
        }
        Err(Finished::Handed) => Ok(Value::Null),
    }
}

async fn types(view: &View, asked: &Value) -> Result<String, CallError> {
    view.catalog.loaded().await;
    let servers = view.servers();
    let all: Vec<String> = match asked["server"].as_str() {
        Some(name) => vec![name.to_owned()],
        None => servers.iter().map(|entry| entry.name.to_string()).collect(),
    };
    let mut page = String::new();
    for name in all {
        let Some(entry) = view.server(&name) else {
            return Err(refused(view, &view.no_such_server(&name)));
        };
        if asked["server"].is_string() {
            view.make_known(&name).await;
        }
        page.push_str(&view.declarations(&entry, MAX_TYPES.saturating_sub(page.len())));
    }
    Ok(Value::from(page).to_string())
}

async fn kept(view: &View, asked: &Value) -> Result<String, CallError> {
    let handle = asked["handle"].as_str().unwrap_or_default();
    match view.results.read(handle, &view.owner()).await {
        Some(stored) => Ok(String::from_utf8_lossy(&stored.value).into_owned()),
        None => Err(refused(view, &super::kept::unknown(handle))),
    }
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
    pub(crate) fn declarations(&self, entry: &crate::router::Entry, bound: usize) -> String {
        let snapshot = self.snapshot();
        let Some(known) = snapshot.known(entry.id) else { return String::new() };
        let identifier = declarations::identifier(&entry.name);
        let shapes: Vec<Option<Value>> =
            known.tools.tools.iter().map(|tool| self.shapes.of(&entry.name, &tool.name)).collect();
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

pub(super) fn call_json(server: &str, tool: &str, took: Duration, ended: Ended) -> Value {
    let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
    let mut call = json!({ "server": server, "tool": tool, "ms": ms, "ok": ended == Ended::Ok });
    if ended == Ended::Dropped {
        call["dropped"] = true.into();
    }
    call
}
