//! Plans for the clients under tests/real, and what they report.

use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::installed::{Start, sources, text};
use crate::world::World;

/// One of the official SDKs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Client {
    TypescriptV1,
    TypescriptV2,
    PythonV1,
    PythonV2,
}

/// The steps a client runs against a server.
pub(crate) struct Plan {
    era: &'static str,
    answers: Map<String, Value>,
    steps: Vec<Value>,
}

/// A server that is already running.
pub(crate) struct Remote {
    pub(crate) url: String,
    /// `http` or `sse`.
    pub(crate) over: &'static str,
    /// The bearer token; empty where none is required.
    pub(crate) token: String,
    /// Environment variables that make the client trust its certificate.
    pub(crate) trust: Vec<(String, String)>,
}

/// The client's report.
pub(crate) struct Report(Value);

/// One step of a report.
pub(crate) struct StepReport<'a>(&'a Value);

impl Plan {
    /// A plan for a client that begins with `initialize`.
    pub(crate) fn new() -> Plan {
        Plan { era: "legacy", answers: Map::new(), steps: Vec::new() }
    }

    /// The client first probes the server's era, as the newest SDKs do.
    pub(crate) fn asking_the_era(mut self) -> Plan {
        self.era = "auto";
        self
    }

    /// The client supports this server request, and answers it like this.
    pub(crate) fn answering(mut self, method: &str, answer: Value) -> Plan {
        self.answers.insert(method.to_owned(), answer);
        self
    }

    pub(crate) fn list(mut self, name: &str) -> Plan {
        self.steps.push(json!({ "name": name, "do": "list" }));
        self
    }

    pub(crate) fn call(self, name: &str, tool: &str, arguments: &Value) -> Plan {
        self.step(name, tool, arguments, json!({}))
    }

    /// A call with a progress token.
    pub(crate) fn call_with_progress(self, name: &str, tool: &str, arguments: &Value) -> Plan {
        self.step(name, tool, arguments, json!({ "progress": true }))
    }

    /// A call that is repeated until its answer holds `text`, for at most a minute.
    pub(crate) fn call_until(self, name: &str, tool: &str, arguments: &Value, text: &str) -> Plan {
        self.step(name, tool, arguments, json!({ "until": text }))
    }

    /// Concurrent calls; their results come in the same order.
    pub(crate) fn many(mut self, name: &str, calls: &[(&str, Value)]) -> Plan {
        let calls: Vec<Value> = calls
            .iter()
            .map(|(tool, arguments)| json!({ "tool": tool, "arguments": arguments }))
            .collect();
        self.steps.push(json!({ "name": name, "do": "many", "calls": calls }));
        self
    }

    /// A call the client cancels after its first progress.
    pub(crate) fn call_and_cancel(self, name: &str, tool: &str, arguments: &Value) -> Plan {
        self.step(name, tool, arguments, json!({ "cancelAfterProgress": 1 }))
    }

    fn step(mut self, name: &str, tool: &str, arguments: &Value, extra: Value) -> Plan {
        let mut step = json!({ "name": name, "do": "call", "tool": tool, "arguments": arguments });
        let Value::Object(extra) = extra else { panic!("extra is an object") };
        step.as_object_mut().unwrap().extend(extra);
        self.steps.push(step);
        self
    }

    /// Runs the plan against a server that is already running.
    pub(crate) fn run_at(&self, world: &World, client: Client, server: &Remote) -> Report {
        let headers = json!({ "Authorization": format!("Bearer {}", server.token) });
        let place = json!({ "url": server.url, "over": server.over, "headers": headers });
        self.carry_out(world, client, &place, &server.trust)
    }

    /// Runs the plan against a server and waits for the report.
    pub(crate) fn run(&self, world: &World, client: Client, server: &Start) -> Report {
        let environment: Map<String, Value> = world
            .environment()
            .into_iter()
            .chain(server.env.iter().cloned())
            .map(|(name, value)| (name, json!(value)))
            .collect();
        let place = json!({
            "command": server.command,
            "args": server.args,
            "env": environment,
            "cwd": text(world.path()),
        });
        self.carry_out(world, client, &place, &[])
    }

    fn carry_out(
        &self,
        world: &World,
        client: Client,
        server: &Value,
        variables: &[(String, String)],
    ) -> Report {
        let plan = json!({
            "installed": text(&world.installed.npm()),
            "sdk": client.sdk(),
            "era": self.era,
            "server": server,
            "answers": self.answers,
            "steps": self.steps,
        });
        // Several may run at once.
        static PLANS: AtomicUsize = AtomicUsize::new(0);
        let number = PLANS.fetch_add(1, Ordering::Relaxed);
        let file = world.path().join(format!("plan-{number}.json"));
        fs::write(&file, plan.to_string()).unwrap();
        let (command, script) = client.script(world);
        let start =
            Start { command, args: vec![text(&script), text(&file)], env: variables.to_vec() };
        let output = world.command(&start).stdin(Stdio::null()).output().unwrap();
        Report(parsed(&format!("{client:?}"), &output))
    }
}

impl Client {
    fn sdk(self) -> &'static str {
        match self {
            Client::TypescriptV1 | Client::PythonV1 => "v1",
            Client::TypescriptV2 | Client::PythonV2 => "v2",
        }
    }

    fn script(self, world: &World) -> (String, PathBuf) {
        match self {
            Client::TypescriptV1 | Client::TypescriptV2 => {
                (world.installed.node(), sources().join("client.mjs"))
            }
            Client::PythonV1 => (world.installed.python("python-v1"), sources().join("client.py")),
            Client::PythonV2 => (world.installed.python("python"), sources().join("client.py")),
        }
    }
}

/// The one JSON document a client prints; the failure includes its stderr when there is none.
pub(crate) fn parsed(client: &str, output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{client}: {}; stderr:\n{stderr}", output.status);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{client}: {error} in {:?}; stderr:\n{stderr}",
            String::from_utf8_lossy(&output.stdout)
        )
    })
}

impl Report {
    pub(crate) fn step(&self, name: &str) -> StepReport<'_> {
        let steps = self.0["steps"].as_array().unwrap();
        StepReport(
            steps
                .iter()
                .find(|step| step["name"] == name)
                .unwrap_or_else(|| panic!("no step {name}")),
        )
    }

    /// The tool names the client ended up with.
    pub(crate) fn tools(&self, step: &str) -> Vec<String> {
        let told = self.step(step);
        let tools = told.value()["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The server requests the client received, in order.
    pub(crate) fn asked(&self) -> &Value {
        &self.0["asked"]
    }

    pub(crate) fn instructions(&self) -> &str {
        self.0["instructions"].as_str().unwrap_or_default()
    }
}

impl StepReport<'_> {
    /// The result as the SDK returned it.
    pub(crate) fn value(&self) -> &Value {
        assert!(self.0["error"].is_null(), "step {} failed: {}", self.0["name"], self.0["error"]);
        &self.0["value"]
    }

    /// The text of the first content block.
    pub(crate) fn text(&self) -> &str {
        self.value()["content"][0]["text"]
            .as_str()
            .unwrap_or_else(|| panic!("no text in {}", self.0))
    }

    pub(crate) fn failed(&self) -> bool {
        self.0["error"].is_object()
    }

    /// The progress the SDK reported to the program.
    pub(crate) fn progress(&self) -> Vec<f64> {
        let updates = self.0["progress"].as_array().unwrap();
        updates.iter().map(|update| update["progress"].as_f64().unwrap()).collect()
    }

    /// The result as it was on the wire, byte for byte. The first: an SDK may list the tools after a call.
    pub(crate) fn raw(&self) -> String {
        #[derive(serde::Deserialize)]
        struct Response<'a> {
            #[serde(borrow)]
            result: Option<&'a RawValue>,
        }
        self.lines()
            .find_map(|line| serde_json::from_str::<Response<'_>>(line).ok()?.result)
            .map_or_else(|| panic!("no response in {}", self.0), |result| result.get().to_owned())
    }

    /// The progress on the wire, and whether the response came after all of it.
    pub(crate) fn progress_before_response(&self) -> Vec<u64> {
        let mut progress = Vec::new();
        let mut answered = false;
        for line in self.lines() {
            let message: Value = serde_json::from_str(line).unwrap();
            if message["method"] == "notifications/progress" {
                assert!(!answered, "progress after the response in {}", self.0);
                progress.push(message["params"]["progress"].as_u64().unwrap());
            }
            answered |= message["result"].is_object();
        }
        assert!(answered, "no response in {}", self.0);
        progress
    }

    fn lines(&self) -> impl Iterator<Item = &str> {
        self.0["lines"].as_array().unwrap().iter().map(|line| line.as_str().unwrap())
    }
}
