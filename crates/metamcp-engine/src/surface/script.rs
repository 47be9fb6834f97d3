//! Who answers a running script: every call of it goes through `mcp_call`'s own path.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use metamcp_core::declarations::{self, Declared};
use metamcp_core::discover::{Request, split_id};
use metamcp_core::execution::{self, Logs};
use metamcp_core::ledger::ConnId;
use metamcp_sandbox::host::{Answer, CallError, Ended, Host, Level, Op};
use metamcp_wire::{object, write};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::execute::level;
use super::reply::{Code, ErrorObject};
use super::{Finished, Step, Surface};
use crate::router::{Caller, Outcome, Question};

/// Declarations given to a script at once, in bytes.
const MAX_TYPES: usize = 256 * 1024;
/// Lines and calls remembered for the last words of a script that is ended from outside.
const MAX_TOLD: usize = 1000;
/// How much a call's own progress moves the script's, which has to rise with every word.
const NUDGE: f64 = 1e-6;

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

/// Who runs a script, and by which request.
pub(super) struct Client {
    pub(super) caller: Arc<dyn Caller>,
    /// The tag of the request.
    pub(super) tag: Bytes,
    /// Its own progress token, if it gave one.
    pub(super) token: Option<Bytes>,
}

/// One running script, toward the gateway.
pub(super) struct Script {
    surface: Arc<Surface>,
    caller: Arc<Calls>,
    transcript: Arc<Transcript>,
}

impl Script {
    pub(super) fn new(
        surface: &Arc<Surface>,
        client: Client,
        transcript: Arc<Transcript>,
    ) -> Script {
        let caller = Calls { client, state: Mutex::default() };
        Script { surface: Arc::clone(surface), caller: Arc::new(caller), transcript }
    }
}

impl Host for Script {
    fn answer(&self, op: Op, payload: String) -> Answer {
        let (surface, caller) = (Arc::clone(&self.surface), Arc::clone(&self.caller));
        let transcript = Arc::clone(&self.transcript);
        Box::pin(async move {
            let asked: Value = serde_json::from_str(&payload)
                .map_err(|_| refused(&ErrorObject::new(Code::ValidationInput, "not JSON")))?;
            match op {
                Op::Call => {
                    let began = Instant::now();
                    let answer = call(&surface, &caller, &payload, &asked).await;
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
                Op::Search => search(&surface, &asked).await,
                Op::Describe => describe(&surface, &asked).await,
                Op::List => list(&surface, &asked).await,
                Op::Types => types(&surface, &asked).await,
                Op::ResultsGet => kept(&surface, &asked),
                Op::ResultsPut => {
                    let raw =
                        object::pick(payload.as_bytes(), ["value"]).ok().and_then(|[raw]| raw);
                    let handle =
                        surface.results.put(Bytes::copy_from_slice(raw.unwrap_or(b"null")));
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
    surface: &Arc<Surface>,
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
        return Err(refused(&missing));
    };
    surface.make_known(server).await;
    let tool = surface.tool_meant(server, written);
    let arguments = object::pick(payload.as_bytes(), ["arguments"]).ok().and_then(|[raw]| raw);
    let arguments = std::str::from_utf8(arguments.unwrap_or(b"null")).unwrap_or("null");
    let line = format!(
        "{{\"server\":{},\"tool\":{},\"args\":{arguments}}}",
        Value::from(server),
        Value::from(tool.as_str())
    );
    let line = Bytes::from(line);
    let (tag, answered) = calls.expect();
    // Its end, whatever ends it, takes the call back if it is still under way.
    let _under_way =
        UnderWay { surface: Arc::clone(surface), calls: Arc::clone(calls), tag: tag.clone() };
    let caller: Arc<dyn Caller> = Arc::clone(calls) as Arc<dyn Caller>;
    let finished = match surface.mcp_call(Some(&line), Some(META), &line, &caller, &tag) {
        Step::Now(finished) => finished,
        Step::Handed => Finished::Handed,
        Step::Later(later) => later.await,
        Step::Running(running) => running.future.await,
    };
    match finished {
        Finished::Result(result) => result_or_refusal(&result),
        Finished::Protocol { message, .. } => {
            Err(refused(&ErrorObject::new(Code::ValidationInput, message)))
        }
        Finished::Handed => match answered.await {
            Ok(Outcome::Result(result)) => match std::str::from_utf8(&write::one_line(&result)) {
                Ok(result) => {
                    surface.shapes.saw(server, &tool, result);
                    Ok(result.to_owned())
                }
                Err(_) => Err(refused(&ErrorObject::new(
                    Code::ExecutionFailed,
                    format!("the result of {server}:{written} is no text"),
                ))),
            },
            Ok(Outcome::Failed(error)) => {
                let entry = surface.server(&error.server);
                let config = entry.as_ref().map(|entry| &*entry.config);
                Err(refused(&ErrorObject::from_call(&error, config)))
            }
            Ok(Outcome::Cancelled) | Err(_) => {
                Err(refused(&ErrorObject::new(Code::Cancelled, "the call was cancelled")))
            }
        },
    }
}

/// Calls of a script ask for progress, which gives them their time again; they need not be told apart by it.
const META: &[u8] = br#"{"progressToken":"script"}"#;

/// What the surface itself answered: a result, or an ErrorObject inside one.
fn result_or_refusal(result: &[u8]) -> Result<String, CallError> {
    let text = String::from_utf8_lossy(result).into_owned();
    let parsed: Value = serde_json::from_slice(result).unwrap_or_default();
    if parsed["isError"] == true && parsed["structuredContent"]["code"].is_string() {
        return Err(CallError { json: thrown(&parsed["structuredContent"]) });
    }
    Ok(text)
}

fn is_error(result: &str) -> bool {
    object::pick(result.as_bytes(), ["isError"]).is_ok_and(|[flag]| flag == Some(b"true"))
}

fn refused(object: &ErrorObject) -> CallError {
    CallError { json: thrown(&object.to_json()) }
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

async fn search(surface: &Surface, asked: &Value) -> Result<String, CallError> {
    let query = asked["query"].as_str().unwrap_or_default();
    let options = &asked["options"];
    let arguments = json!({
        "query": query,
        "server": options["server"],
        "limit": if options["limit"].is_number() { options["limit"].clone() } else { 10.into() },
        "detail": options["detail"],
    });
    found(surface, &arguments).await.map(|found| found["tools"].to_string())
}

async fn describe(surface: &Surface, asked: &Value) -> Result<String, CallError> {
    let word = |name: &str| asked[name].as_str().unwrap_or_default().to_owned();
    let (server, tool) = match (word("server"), word("tool")) {
        (id, tool) if tool.is_empty() => {
            let parts = split_id(&id).or_else(|| id.split_once('.'));
            parts.map_or((id.clone(), String::new()), |(s, t)| (s.to_owned(), t.to_owned()))
        }
        both => both,
    };
    surface.make_known(&server).await;
    let tool = surface.tool_meant(&server, &tool);
    let arguments = json!({ "server": server, "tool": tool, "detail": "schema" });
    found(surface, &arguments).await.map(|found| found["tools"][0].to_string())
}

async fn list(surface: &Surface, asked: &Value) -> Result<String, CallError> {
    match asked["server"].as_str() {
        None => found(surface, &json!({})).await.map(|found| found["servers"].to_string()),
        Some(server) => {
            let arguments = json!({ "server": server, "detail": "signature", "limit": 100 });
            found(surface, &arguments).await.map(|found| found["tools"].to_string())
        }
    }
}

async fn found(surface: &Surface, arguments: &Value) -> Result<Value, CallError> {
    let request = Request::decode(Some(arguments))
        .map_err(|bad| refused(&ErrorObject::new(Code::ValidationInput, bad.to_string())))?;
    match surface.discover(request).await {
        Ok(found) => Ok(found.json),
        Err(Finished::Result(result)) => match result_or_refusal(&result) {
            Err(error) => Err(error),
            Ok(text) => Ok(serde_json::from_str(&text).unwrap_or_default()),
        },
        Err(Finished::Protocol { message, .. }) => {
            Err(refused(&ErrorObject::new(Code::ValidationInput, message)))
        }
        Err(Finished::Handed) => Ok(Value::Null),
    }
}

async fn types(surface: &Surface, asked: &Value) -> Result<String, CallError> {
    surface.catalog.loaded().await;
    let servers = surface.router.servers();
    let all: Vec<String> = match asked["server"].as_str() {
        Some(name) => vec![name.to_owned()],
        None => servers.iter().map(|entry| entry.name.to_string()).collect(),
    };
    let mut page = String::new();
    for name in all {
        let Some(entry) = surface.server(&name) else {
            return Err(refused(&surface.no_such_server(&name)));
        };
        if asked["server"].is_string() {
            surface.make_known(&name).await;
        }
        page.push_str(&surface.declarations(&entry, MAX_TYPES.saturating_sub(page.len())));
    }
    Ok(Value::from(page).to_string())
}

fn kept(surface: &Surface, asked: &Value) -> Result<String, CallError> {
    let handle = asked["handle"].as_str().unwrap_or_default();
    match surface.results.read(handle) {
        Some(value) => Ok(String::from_utf8_lossy(&value).into_owned()),
        None => Err(refused(&super::kept::unknown(handle))),
    }
}

impl Surface {
    /// The tool a script means by a name: as listed, or the one tool whose name reads so as an identifier.
    pub(super) fn tool_meant(&self, server: &str, written: &str) -> String {
        let snapshot = self.catalog.snapshot();
        let known = self.server(server).and_then(|entry| snapshot.known(entry.id));
        let meant = known.and_then(|known| {
            let names = known.tools.tools.iter().map(|tool| &*tool.name);
            declarations::resolve_tool(written, names).map(str::to_owned)
        });
        meant.unwrap_or_else(|| written.to_owned())
    }

    /// What is known of a server's tools, as TypeScript.
    pub(crate) fn declarations(&self, entry: &crate::router::Entry, bound: usize) -> String {
        let snapshot = self.catalog.snapshot();
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

/// A call that is called off when this goes.
struct UnderWay {
    surface: Arc<Surface>,
    calls: Arc<Calls>,
    tag: Bytes,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.calls.lock().waiting.remove(&self.tag).is_some() {
            let caller: Arc<dyn Caller> = Arc::clone(&self.calls) as Arc<dyn Caller>;
            self.surface.router.cancel(&caller, &self.tag);
        }
    }
}

/// The calls of one script, toward the router; what servers ask meanwhile goes to the client.
struct Calls {
    client: Client,
    state: Mutex<CallState>,
}

#[derive(Default)]
struct CallState {
    last: u64,
    waiting: HashMap<Bytes, oneshot::Sender<Outcome>>,
    progress: f64,
    total: Option<f64>,
}

impl Calls {
    fn expect(&self) -> (Bytes, oneshot::Receiver<Outcome>) {
        let (answer, answered) = oneshot::channel();
        let mut state = self.lock();
        state.last += 1;
        let tag = Bytes::from(state.last.to_string());
        state.waiting.insert(tag.clone(), answer);
        (tag, answered)
    }

    /// Progress to the client. The protocol wants it to rise, whatever a script or a tool says.
    fn tell(&self, stand: Option<(f64, Option<f64>)>, message: Option<&str>) {
        let Some(token) = &self.client.token else { return };
        let mut state = self.lock();
        let least = state.progress + NUDGE;
        let (value, total) = stand.unwrap_or((least, state.total));
        state.progress = if value.is_finite() { value.max(least) } else { least };
        state.total = total;
        let mut params = json!({ "progress": state.progress });
        if let Some(total) = total {
            params["total"] = total.into();
        }
        if let Some(message) = message {
            params["message"] = message.into();
        }
        drop(state);
        let mut params = params.to_string();
        params.truncate(params.len() - 1);
        params.push_str(",\"progressToken\":");
        let mut params = params.into_bytes();
        params.extend_from_slice(token);
        params.push(b'}');
        self.client.caller.progress(&self.client.tag, &params);
    }

    fn lock(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Caller for Calls {
    fn answer(&self, tag: &Bytes, outcome: Outcome) {
        let waiting = self.lock().waiting.remove(tag);
        if let Some(waiting) = waiting {
            // Nobody waits any more when the script has just ended.
            drop(waiting.send(outcome));
        }
    }

    fn progress(&self, _tag: &Bytes, params: &[u8]) {
        let message = object::pick(params, ["message"]).ok().and_then(|[raw]| raw);
        self.tell(None, message.and_then(object::text).as_deref());
    }

    fn log(&self, _tag: Option<&Bytes>, params: &[u8]) {
        self.client.caller.log(Some(&self.client.tag), params);
    }

    fn ask(&self, _tag: Option<&Bytes>, question: Question) -> Result<(), Question> {
        self.client.caller.ask(Some(&self.client.tag), question)
    }

    fn unask(&self, conn: ConnId, id: Option<&[u8]>) {
        self.client.caller.unask(conn, id);
    }

    fn capabilities(&self) -> Value {
        self.client.caller.capabilities()
    }

    fn client(&self) -> usize {
        self.client.caller.client()
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
