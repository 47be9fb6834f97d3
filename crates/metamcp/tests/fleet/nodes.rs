//! Several gateways, one bus, one journaling server: who runs a call, what comes back, what happens when a node dies.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metamcp_testkit::client::{Answerer, Kind, Reply};
use metamcp_testkit::nats::Nats;
use metamcp_testkit::{Answer, Client, EventKind, Journal, Workspace, chaos_server, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::PATIENCE;
use crate::messages::KEYS;

pub(crate) struct Fleet {
    nats: Nats,
    pub(crate) workspace: Workspace,
}

impl Fleet {
    fn start() -> Fleet {
        Fleet::sharing("fleet")
    }

    pub(crate) fn sharing(scope: &str) -> Fleet {
        let nats = Nats::alone().unwrap();
        let mut workspace = Workspace::new().unwrap();
        workspace.server("a", chaos_server(&[]).setting("share", json!(scope)));
        for (number, key) in KEYS.iter().enumerate() {
            std::fs::write(workspace.file(&format!("key-{number}")), key).unwrap();
        }
        Fleet { nats, workspace }
    }

    fn node(&self, name: &str) -> Client {
        self.node_answering(name, Box::new(|_, _| Reply::Silence))
    }

    fn node_answering(&self, name: &str, answerer: Answerer) -> Client {
        let client = Client::start_answering(self.command(name, 0), answerer).unwrap();
        let able = json!({"elicitation": {}, "sampling": {}});
        client
            .initialize(&able, PATIENCE)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", client.stderr()));
        client
    }

    pub(crate) fn command(&self, name: &str, key: usize) -> std::process::Command {
        let mut command = self.workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
        let home = self.workspace.file(&format!("home-{name}"));
        std::fs::create_dir_all(&home).unwrap();
        command.env("HOME", home);
        command.args(["--surface", "direct", "--log-level", "debug", "--node-name", name]);
        command.args(["--cluster", &self.nats.url(), "--cluster-lease", "3000"]);
        command.arg("--cluster-key").arg(self.workspace.file(&format!("key-{key}")));
        command
    }

    pub(crate) fn journal(&self) -> Journal {
        self.workspace.journal("a")
    }

    fn processes(&self) -> usize {
        let all = self.workspace.processes_of(&metamcp_testkit::programs::chaos_child());
        all.len()
    }
}

fn call(client: &Client, tool: &str, arguments: &Value) -> Answer {
    let id = client.call_tool(tool, arguments).unwrap();
    let answered = client.wait(id, PATIENCE);
    answered.unwrap_or_else(|error| panic!("{tool}: {error:#}\n{}", client.stderr()))
}

#[track_caller]
fn works(client: &Client, tool: &str, arguments: &Value) -> Answer {
    let answer = call(client, tool, arguments);
    let is_good = answer.result().is_some_and(|result| result["isError"] != true);
    assert!(is_good, "{tool}: {}\n{}", answer.value, client.stderr());
    answer
}

#[test]
fn calls_from_every_node_reach_one_process_and_come_back_as_it_wrote_them() {
    let fleet = Fleet::start();
    let nodes = ["one", "two", "three"].map(|name| fleet.node(name));
    for (number, node) in nodes.iter().enumerate() {
        let key = format!("key {number}");
        assert_eq!(
            works(node, "effect", &json!({"key": key})).text().unwrap(),
            format!("done {key}")
        );
        assert_eq!(fleet.journal().executions(&key).unwrap(), 1);
    }
    let exotic = nodes.each_ref().map(|node| works(node, "exotic", &json!({})));
    assert!(exotic.iter().all(|one| one.raw_result() == exotic[0].raw_result()));
    let long = nodes.each_ref().map(|node| works(node, "big", &json!({"bytes": 5_000_000})));
    assert!(long.iter().all(|one| one.raw_result() == long[0].raw_result()));
    assert!(long[0].raw.len() > 5_000_000);
    // The server's own errors too, and those of the gateway that runs it.
    let failed = nodes.each_ref().map(|node| call(node, "rpc_error", &json!({"code": -32123})));
    assert!(
        failed.iter().all(|one| one.value["error"] == failed[0].value["error"]),
        "{:?}",
        failed[1].value
    );
    assert_eq!(failed[1].value["error"]["code"], -32123);
    assert_eq!(fleet.journal().count(EventKind::Start).unwrap(), 1, "one process serves all");
}

#[test]
fn progress_logs_and_questions_cross_nodes_in_order() {
    let fleet = Fleet::start();
    let owner = fleet.node("owner");
    works(&owner, "effect", &json!({"key": "first"}));
    let answers =
        |method: &str, _: &Value| Reply::Result(json!({"for": method, "b": [1.50, null]}));
    let other = fleet.node_answering("other", Box::new(answers));
    for (tool, method) in [("elicit", "elicitation/create"), ("sample", "sampling/createMessage")] {
        let answer = works(&other, tool, &json!({}));
        let answered = &answer.result().unwrap()["structuredContent"]["result"];
        assert_eq!(answered, &json!({"for": method, "b": [1.50, null]}));
    }
    let params = json!({"name": "progress", "arguments": {"count": 100}, "_meta": {"progressToken": "mine"}});
    let id = other.request("tools/call", &params).unwrap();
    let answer = other.wait(id, PATIENCE).unwrap();
    let steps: Vec<u64> = other.lines()[..answer.index]
        .iter()
        .filter(|line| line.kind == Kind::Notification("notifications/progress".to_owned()))
        .filter_map(|line| serde_json::from_slice::<Value>(&line.bytes).ok())
        .filter(|message| message["params"]["progressToken"] == "mine")
        .filter_map(|message| message["params"]["progress"].as_u64())
        .filter(|step| *step > 0)
        .collect();
    assert_eq!(steps, (1..=100).collect::<Vec<u64>>());
    works(&other, "log", &json!({"text": "heard elsewhere"}));
    let logs = other.notifications("notifications/message");
    assert!(logs.iter().any(|log| log["data"] == "heard elsewhere"), "{logs:?}");
    assert_eq!(fleet.journal().count(EventKind::Start).unwrap(), 1);
}

#[test]
fn a_call_taken_back_is_taken_back_where_it_runs() {
    let fleet = Fleet::start();
    let owner = fleet.node("owner");
    works(&owner, "effect", &json!({"key": "first"}));
    let other = fleet.node("other");
    works(&other, "effect", &json!({"key": "second"}));
    let never = fleet.workspace.file("never");
    let id = other.call_tool("slow", &json!({"ms": 0, "until": never, "key": "slow"})).unwrap();
    let runs = || fleet.journal().executions("slow").unwrap() == 1;
    assert!(eventually(PATIENCE, runs), "{}", other.stderr());
    other.notify("notifications/cancelled", &json!({"requestId": id})).unwrap();
    let is_cancelled = || fleet.journal().count(EventKind::Cancelled).unwrap() == 1;
    assert!(eventually(PATIENCE, is_cancelled), "{}", owner.stderr());
    works(&other, "effect", &json!({"key": "third"}));
    assert_eq!(other.violations(), Vec::<String>::new());
}

#[test]
fn when_a_node_is_killed_its_calls_are_unknown_and_the_next_one_runs_elsewhere() {
    let fleet = Fleet::start();
    let owner = fleet.node("owner");
    works(&owner, "effect", &json!({"key": "first"}));
    let asked = Arc::new(AtomicBool::new(false));
    let heard = Arc::clone(&asked);
    let other = fleet.node_answering(
        "other",
        Box::new(move |_, _| {
            heard.store(true, Ordering::SeqCst);
            Reply::Silence
        }),
    );
    // Not harmless, and under way: the server waits for an answer that does not come.
    let id = other.call_tool("elicit", &json!({})).unwrap();
    assert!(eventually(PATIENCE, || asked.load(Ordering::SeqCst)), "{}", other.stderr());
    owner.signal(Signal::SIGKILL).unwrap();
    let answer = other.wait(id, PATIENCE).unwrap();
    let told = answer.value.to_string();
    assert!(told.contains("outcome_unknown"), "{told}");
    works(&other, "effect", &json!({"key": "after"}));
    assert_eq!(fleet.journal().executions("after").unwrap(), 1);
    assert_eq!(fleet.journal().count(EventKind::Start).unwrap(), 2);
    assert!(eventually(PATIENCE, || fleet.processes() == 1));
}

#[test]
fn a_node_that_slept_ends_its_processes_and_answers_nothing_for_them() {
    let fleet = Fleet::start();
    let owner = fleet.node("owner");
    works(&owner, "effect", &json!({"key": "first"}));
    let other = fleet.node("other");
    works(&other, "effect", &json!({"key": "second"}));
    let go = fleet.workspace.file("go");
    // Of its own client: in flight when it falls asleep.
    let own = owner.call_tool("slow", &json!({"ms": 0, "until": go, "key": "own"})).unwrap();
    assert!(eventually(PATIENCE, || fleet.journal().executions("own").unwrap() == 1));
    owner.signal(Signal::SIGSTOP).unwrap();
    // Its lease ends meanwhile, and a call that may be repeated is run by another process.
    works(&other, "effect_idempotent", &json!({"key": "third"}));
    assert_eq!(fleet.journal().executions("third").unwrap(), 1);
    std::fs::write(&go, "").unwrap();
    owner.signal(Signal::SIGCONT).unwrap();
    // `slow` only reads, so it is run again, where the server is now; the first process's answer counts for nothing.
    let answer = owner.wait(own, PATIENCE).unwrap();
    assert_eq!(answer.text(), Some("waited 0 ms"), "{}\n{}", answer.value, owner.stderr());
    assert_eq!(fleet.journal().executions("own").unwrap(), 2, "{}", owner.stderr());
    assert!(eventually(PATIENCE, || fleet.processes() == 1), "{}", owner.stderr());
    works(&owner, "effect", &json!({"key": "fourth"}));
    assert_eq!(fleet.journal().executions("fourth").unwrap(), 1);
    assert_eq!(fleet.journal().count(EventKind::Start).unwrap(), 2);
}

#[test]
fn a_node_that_leaves_finishes_what_runs_and_hands_the_rest_on() {
    let fleet = Fleet::start();
    let mut owner = fleet.node("owner");
    works(&owner, "effect", &json!({"key": "first"}));
    let asked = Arc::new(AtomicBool::new(false));
    let (heard, go) = (Arc::clone(&asked), Arc::new(AtomicBool::new(false)));
    let until = Arc::clone(&go);
    let other = fleet.node_answering(
        "other",
        Box::new(move |_, _| {
            heard.store(true, Ordering::SeqCst);
            assert!(eventually(PATIENCE, || until.load(Ordering::SeqCst)));
            Reply::Result(json!({"action": "decline"}))
        }),
    );
    let id = other.call_tool("elicit", &json!({})).unwrap();
    assert!(eventually(PATIENCE, || asked.load(Ordering::SeqCst)), "{}", other.stderr());
    owner.signal(Signal::SIGTERM).unwrap();
    let is_leaving = || owner.stderr().contains("is leaving the fleet");
    assert!(eventually(PATIENCE, is_leaving), "{}", owner.stderr());
    go.store(true, Ordering::SeqCst);
    let answer = other.wait(id, PATIENCE).unwrap();
    assert!(answer.result().is_some_and(|result| result["isError"] != true), "{}", answer.value);
    works(&other, "effect", &json!({"key": "after"}));
    assert!(owner.wait_exit(PATIENCE).unwrap().success(), "{}", owner.stderr());
    assert_eq!(fleet.journal().executions("after").unwrap(), 1);
    assert_eq!(fleet.journal().count(EventKind::Start).unwrap(), 2);
}

#[test]
fn a_bus_that_restarts_costs_no_call() {
    let mut fleet = Fleet::start();
    let (owner, other) = (fleet.node("owner"), fleet.node("other"));
    works(&owner, "effect", &json!({"key": "first"}));
    works(&other, "effect", &json!({"key": "second"}));
    fleet.nats.kill(0);
    // What it owns goes on.
    works(&owner, "effect", &json!({"key": "without"}));
    fleet.nats.restart(0, false).unwrap();
    fleet.nats.wait_until_ready().unwrap();
    works(&other, "effect", &json!({"key": "third"}));
    works(&owner, "effect", &json!({"key": "fourth"}));
    for key in ["without", "third", "fourth"] {
        assert_eq!(fleet.journal().executions(key).unwrap(), 1, "{key}");
    }
}

#[test]
fn a_gateway_with_another_key_is_no_part_of_the_fleet() {
    let fleet = Fleet::start();
    let owner = fleet.node("owner");
    works(&owner, "effect", &json!({"key": "first"}));
    let mut stranger = Client::start(fleet.command("stranger", 1)).unwrap();
    assert!(!stranger.wait_exit(PATIENCE).unwrap().success());
    let told = stranger.stderr();
    assert!(told.contains("cluster key") && !told.contains(&KEYS[1][..8]), "{told}");
    works(&owner, "effect", &json!({"key": "second"}));
}

#[test]
fn a_call_longer_than_a_message_of_the_bus_arrives_whole() {
    let fleet = Fleet::start();
    let (owner, other) = (fleet.node("owner"), fleet.node("other"));
    works(&owner, "effect", &json!({"key": "first"}));
    let text = "long ".repeat(600_000);
    let answer = works(&other, "echo", &json!({"text": text}));
    assert!(answer.text() == Some(&text), "{} bytes came back", answer.raw.len());
    assert_eq!(fleet.journal().count(EventKind::Start).unwrap(), 1);
}
