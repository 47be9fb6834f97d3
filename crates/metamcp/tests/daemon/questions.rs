//! Questions of servers: each reaches a client of the instance that asks, and nobody else.

use std::process::Command;
use std::sync::Arc;

use metamcp_testkit::client::{Answerer, Reply};
use metamcp_testkit::{Client, EventKind, Workspace, eventually};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::crowd::{
    HUNG, command, join_answering, process, starts, stateful, structure, told, workspace,
};
use crate::http::{HttpSession, Listening};

/// A client that says its name, and its roots, to whoever asks.
struct Person {
    client: Client,
    name: String,
    /// Methods it was asked, without the roots that the gateway itself wants to know.
    asked: Arc<Mutex<Vec<String>>>,
}

fn able() -> Value {
    json!({"elicitation": {}, "roots": {"listChanged": true}})
}

fn person(command: Command, name: &str, roots: &[&str]) -> Person {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let roots: Vec<Value> = roots.iter().map(|uri| json!({"uri": uri})).collect();
    let answerer: Answerer = Box::new({
        let (asked, name) = (Arc::clone(&asked), name.to_owned());
        move |method, _| {
            asked.lock().push(method.to_owned());
            Reply::Result(match method {
                "roots/list" => json!({"roots": roots, "by": name}),
                _ => json!({"action": "accept", "content": {"name": name}}),
            })
        }
    });
    let client = join_answering(command, &able(), answerer);
    Person { client, name: name.to_owned(), asked }
}

impl Person {
    fn asked(&self, method: &str) -> usize {
        self.asked.lock().iter().filter(|known| *known == method).count()
    }
}

fn with(share: &str) -> Workspace {
    let mut workspace = workspace();
    workspace.server("kept", stateful(share).variable("SEEN", "${TOKEN:-none}"));
    workspace.write_config().unwrap();
    workspace
}

/// Who answered what servers asked by `ask_later`, by the key of that call.
fn answers(workspace: &Workspace) -> Vec<(String, String)> {
    let told = workspace.journal("kept").of(EventKind::Told).unwrap();
    let who = |detail: &Value| {
        let result = &detail["result"];
        let name = result["content"]["name"].as_str().or(result["by"].as_str());
        name.unwrap_or_else(|| panic!("{detail}")).to_owned()
    };
    told.into_iter().map(|record| (record.key.unwrap(), who(&record.detail))).collect()
}

#[test]
fn a_question_reaches_the_session_of_its_instance_only() {
    let workspace = with("session");
    let people: Vec<Person> = (0..10)
        .map(|number| person(command(&workspace), &format!("person {number}"), &["file:///same"]))
        .collect();
    let ask = |tool: &str| {
        let asked: Vec<u64> = people
            .iter()
            .map(|one| one.client.mcp_call("kept", tool, &json!({"key": one.name})).unwrap())
            .collect();
        for (one, id) in people.iter().zip(asked) {
            let answer = structure(&one.client.wait(id, HUNG).unwrap().value);
            assert!(answer.to_string().contains(&format!("\"{}\"", one.name)), "{answer}");
        }
    };
    for _ in 0..3 {
        ask("elicit");
        ask("roots");
    }
    for one in &people {
        assert_eq!(one.asked("elicitation/create"), 3, "{}", one.name);
    }
    // The same without a call that would say for whom.
    let methods = ["elicitation/create", "roots/list"];
    for one in &people {
        for method in methods {
            let args = json!({"key": one.name, "method": method});
            told(&one.client, "kept", "ask_later", &args);
        }
    }
    let all = people.len() * methods.len();
    assert!(eventually(HUNG, || answers(&workspace).len() == all), "{:?}", answers(&workspace));
    for (key, who) in answers(&workspace) {
        assert_eq!(key, who);
    }
    assert_eq!(starts(&workspace, "kept"), people.len());
}

#[test]
fn a_shared_server_asks_one_of_its_own_users() {
    let workspace = with("machine");
    let of = |token: &str, name: &str| {
        let mut command = command(&workspace);
        command.env("TOKEN", token);
        person(command, name, &["file:///same"])
    };
    // Others come before and after, have the same server in their configuration, and use their own.
    let others_first = of("beta", "beta first");
    process(&others_first.client, "kept");
    let (one, two) = (of("alpha", "alpha one"), of("alpha", "alpha two"));
    let others_last = of("beta", "beta last");
    assert_eq!(process(&one.client, "kept"), process(&two.client, "kept"));
    process(&others_last.client, "kept");
    let methods = ["elicitation/create", "roots/list"];
    for round in 0..5 {
        for method in methods {
            told(
                &one.client,
                "kept",
                "ask_later",
                &json!({"key": format!("{round}"), "method": method}),
            );
        }
    }
    assert!(eventually(HUNG, || answers(&workspace).len() == 10), "{:?}", answers(&workspace));
    for (_, who) in answers(&workspace) {
        assert!(who.starts_with("alpha"), "{who} was asked");
    }
    for other in [&others_first, &others_last] {
        assert_eq!(other.asked("elicitation/create"), 0, "{}", other.name);
    }
    // With a call in flight it is the caller.
    for one in [&one, &two, &others_first] {
        let answer = told(&one.client, "kept", "elicit", &json!({}));
        assert_eq!(answer["result"]["content"]["name"], one.name, "{answer}");
    }
}

/// The last user of a shared server left: nobody of another context is asked in its place.
#[test]
fn a_server_whose_users_left_asks_nobody_else() {
    let workspace = with("machine");
    let of = |token: &str, name: &str| {
        let mut command = command(&workspace);
        command.env("TOKEN", token);
        person(command, name, &[])
    };
    let stays = of("beta", "beta");
    process(&stays.client, "kept");
    let mut leaves = of("alpha", "alpha");
    let args = json!({"key": "late", "method": "elicitation/create"});
    // The client is gone before it could answer: its input ends with the call itself.
    leaves.client.mcp_call("kept", "ask_later", &args).unwrap();
    leaves.client.close_input();
    leaves.client.wait_exit(HUNG).unwrap();
    let ran = || workspace.journal("kept").executions("late").unwrap() == 1;
    assert!(eventually(HUNG, ran));
    told(&stays.client, "kept", "recall", &json!({}));
    assert_eq!(stays.asked("elicitation/create"), 0);
}

#[test]
fn clients_with_different_roots_do_not_share_a_project() {
    let workspace = with("project");
    let own = format!("file://{}", workspace.project().canonicalize().unwrap().display());
    let people = [
        person(command(&workspace), "left", &["file:///left"]),
        person(command(&workspace), "right", &["file:///right"]),
        person(command(&workspace), "left again", &["file:///left"]),
        // Its folder and nothing else, which is what clients without roots have.
        person(command(&workspace), "own", &[&own]),
        person(command(&workspace), "none", &[]),
        person(command(&workspace), "both", &["file:///left", "file:///right"]),
        person(command(&workspace), "both again", &["file:///right", "file:///left"]),
    ];
    for one in &people {
        told(&one.client, "kept", "remember", &json!({"key": one.name}));
    }
    let at: Vec<u64> = people.iter().map(|one| process(&one.client, "kept")).collect();
    let groups = [at[0], at[1], at[3], at[5]];
    assert_eq!([at[2], at[4], at[6]], [at[0], at[3], at[5]], "equal roots share: {at:?}");
    let apart: std::collections::BTreeSet<u64> = groups.into();
    assert_eq!(apart.len(), 4, "{at:?}");
    let kept = |one: &Person| told(&one.client, "kept", "recall", &json!({}))["kept"].clone();
    assert_eq!(
        people.iter().map(kept).collect::<Vec<_>>(),
        ["left again", "right", "left again", "none", "none", "both again", "both again"]
    );
    assert_eq!(starts(&workspace, "kept"), 4);
}

/// A client that calls in the same breath as its handshake has not said its roots yet, and gets no other's project.
#[test]
fn a_call_right_after_the_handshake_waits_for_the_roots() {
    let workspace = with("project");
    let usual = person(command(&workspace), "usual", &[]);
    let folder = process(&usual.client, "kept");
    for (name, roots) in [("left", "file:///left"), ("right", "file:///right")] {
        let answerer: Answerer =
            Box::new(move |_, _| Reply::Result(json!({"roots": [{"uri": roots}]})));
        let client = Client::start_answering(command(&workspace), answerer).unwrap();
        let hello = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": able(),
            "clientInfo": {"name": name, "version": "1"},
        });
        let call = json!({"server": "kept", "tool": "remember", "args": {"key": name}});
        let lines = [
            json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": "call", "method": "tools/call", "params": {"name": "mcp_call", "arguments": call}}),
        ];
        client.expect("\"hello\"");
        client.expect("\"call\"");
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        client.send_bytes(lines.as_bytes()).unwrap();
        let first = structure(&client.wait_as("\"call\"", 0, HUNG).unwrap().value);
        assert_ne!(first["process"], folder, "{name}");
        assert_eq!(first["before"], "", "{name}");
        assert_eq!(told(&client, "kept", "recall", &json!({}))["kept"], name);
    }
    assert_eq!(starts(&workspace, "kept"), 3);
}

/// The listener's folder is nobody's over HTTP: what a client works in are its roots.
#[test]
fn clients_over_http_share_a_project_by_their_roots() {
    let workspace = with("project");
    let listening = Listening::start(&workspace, 0);
    let mut left = listening.session(&["file:///left"]);
    let mut right = listening.session(&["file:///right"]);
    let mut again = listening.session(&["file:///left"]);
    let process = |session: &mut HttpSession<'_>, key: &str| {
        structure(&session.call("kept", "remember", &json!({"key": key})))["process"].clone()
    };
    let at = [process(&mut left, "l"), process(&mut right, "r"), process(&mut again, "a")];
    assert_eq!(at[0], at[2], "equal roots share");
    assert_ne!(at[0], at[1]);
    assert_eq!(process(&mut left, "l"), at[0]);
    assert_eq!((left.asked, right.asked, again.asked), (1, 1, 1));
    left.moves_to(&["file:///right"]);
    assert_eq!(process(&mut left, "l"), at[1], "it has moved");
    assert_eq!(left.asked, 2);
}
