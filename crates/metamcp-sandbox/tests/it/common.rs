//! A miniature gateway: one tool server that answers at once, or as a test configures it.
//!
//! Which workers it has is said by `program`; `metamcp-hardened/tests/workers` runs the same tests with others.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use metamcp_sandbox::host::{
    Answer, CallError, Host, Level, Limits, Op, ScriptJob, ScriptOutcome, Server, Workers, run,
};
use serde_json::{Value, json};
use tokio::sync::Notify;

pub(crate) use crate::program::{PROFILE, launch};

/// What no script may ever see: it is in the environment and in the memory of this process.
pub(crate) const SECRET: &str = "canary-7c1f0e5b9d";

pub(crate) fn workers() -> Workers {
    Workers::new(launch(&["worker"]), PROFILE, 0)
}

/// Limits that a test reaches quickly.
pub(crate) fn small() -> Limits {
    Limits {
        wall: Duration::from_secs(20),
        cpu: Duration::from_millis(400),
        heap: 16 * 1024 * 1024,
        calls: 30,
        result: 256 * 1024,
        logs: 32 * 1024,
        ..Limits::default()
    }
}

pub(crate) fn job(code: &str, limits: Limits) -> ScriptJob {
    let server = |name: &str, identifiers: &[&str]| Server {
        name: name.into(),
        identifiers: identifiers.iter().map(ToString::to_string).collect(),
    };
    let servers = vec![
        server("github", &["github"]),
        server("my files", &["myFiles", "my_files"]),
        server("console", &["console"]),
    ];
    ScriptJob { code: code.into(), servers, limits }
}

/// A progress report: value, total, message.
pub(crate) type Step = (f64, Option<f64>, Option<String>);

/// Answers everything from a small table; records all requests and log lines.
#[derive(Default)]
pub(crate) struct Table {
    pub(crate) asked: Mutex<Vec<(Op, String)>>,
    pub(crate) said: Mutex<Vec<String>>,
    /// Notified on every log line.
    pub(crate) heard: Notify,
    pub(crate) steps: Mutex<Vec<Step>>,
    /// What a search finds; an echo of it where there is none.
    pub(crate) listing: Option<Value>,
    under_way: Arc<Mutex<(usize, usize)>>,
}

impl Table {
    /// The maximum number of concurrent calls.
    pub(crate) fn most(&self) -> usize {
        self.under_way.lock().expect("no test panics with it held").1
    }
}

impl Host for Table {
    fn answer(&self, op: Op, payload: String) -> Answer {
        self.asked.lock().expect("no test panics with it held").push((op, payload.clone()));
        let under_way = Arc::clone(&self.under_way);
        if let (Op::Search, Some(listing)) = (op, &self.listing) {
            return Box::pin(std::future::ready(Ok(listing.to_string())));
        }
        Box::pin(async move {
            {
                let mut count = under_way.lock().expect("no test panics with it held");
                count.0 += 1;
                count.1 = count.1.max(count.0);
            }
            let answer = answer(op, &payload).await;
            under_way.lock().expect("no test panics with it held").0 -= 1;
            answer
        })
    }

    fn log(&self, level: Level, text: &str) {
        self.said.lock().expect("no test panics with it held").push(format!("{level:?} {text}"));
        self.heard.notify_one();
    }

    fn progress(&self, value: f64, total: Option<f64>, message: Option<&str>) {
        self.steps.lock().expect("no test panics with it held").push((
            value,
            total,
            message.map(str::to_owned),
        ));
    }
}

async fn answer(op: Op, payload: &str) -> Result<String, CallError> {
    let payload: Value = serde_json::from_str(payload).unwrap_or(Value::Null);
    let text = |text: &str| json!({"content": [{"type": "text", "text": text}]}).to_string();
    if op != Op::Call {
        return Ok(json!({"op": op.word(), "payload": payload}).to_string());
    }
    let arguments = &payload["arguments"];
    match payload["tool"].as_str().unwrap_or_default() {
        "echo" => Ok(json!({"content": [], "structuredContent": arguments}).to_string()),
        "text" => Ok(text(arguments["text"].as_str().unwrap_or("hello"))),
        "parts" => Ok(json!({"content": [{"type":"text","text":"one"},{"type":"text","text":"two"}]}).to_string()),
        "image" => Ok(json!({"content": [{"type":"image","data":"AA==","mimeType":"image/png"}]}).to_string()),
        "empty" => Ok(json!({"content": []}).to_string()),
        "wrong" => Ok(json!({"content": [{"type":"text","text":"no such issue"}], "isError": true}).to_string()),
        // A slow tool, for scripts that do not wait for it.
        "nap" => {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(text("rested"))
        }
        "never" => std::future::pending().await,
        "garbage" => Ok("{not json".into()),
        "big" => Ok(text(&"x".repeat(arguments["size"].as_u64().and_then(|size| usize::try_from(size).ok()).unwrap_or(0)))),
        "list" => {
            let count = arguments["count"].as_u64().unwrap_or(100);
            let rows: Vec<Value> = (0..count).map(|n| json!({"id": n, "name": format!("row {n}"), "open": n % 3 == 0})).collect();
            Ok(text(&Value::from(rows).to_string()))
        }
        other => Err(CallError {
            json: json!({"code": "unknown_tool", "retryable": false, "message": format!("no tool {other:?}; nearest: echo")}).to_string(),
        }),
    }
}

/// Uses the workers of this test process, shared by its tests, each of which has its own runtime.
pub(crate) async fn outcome_with(code: &str, limits: Limits, host: Arc<Table>) -> ScriptOutcome {
    let worker = workers().take().await.expect("a worker");
    run(worker, job(code, limits), host, std::future::pending()).await
}

pub(crate) async fn outcome(code: &str, limits: Limits) -> ScriptOutcome {
    outcome_with(code, limits, Arc::default()).await
}

/// Runs a script in its own runtime.
pub(crate) fn runs(code: &str) -> ScriptOutcome {
    runtime().block_on(outcome(code, Limits::default()))
}

/// The value of a script, which must have one.
pub(crate) fn value(code: &str) -> Value {
    let outcome = runs(code);
    let text = outcome.value.unwrap_or_else(|| panic!("{code}\n{:?}", outcome.error));
    serde_json::from_str(&text).expect("a value is JSON")
}

pub(crate) fn runtime() -> &'static tokio::runtime::Runtime {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime")
    })
}
