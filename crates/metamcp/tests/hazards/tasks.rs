//! Calls that take long: they go on as tasks, for clients that have those and for others; and servers that make tasks of
//! calls themselves, in both eras.

use metamcp_testkit::client::{Answerer, Reply};
use metamcp_testkit::{Answer, EventKind, Server, Workspace, census, chaos_server, eventually};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

/// A client with the extension.
fn able() -> Value {
    json!({"elicitation": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}})
}

/// Calls become tasks at the first look.
fn patient(server: Server) -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.setting("timeouts", json!({"taskAfterMs": 1}));
    workspace.server("one", server);
    workspace
}

/// A call that ends once this file is there.
fn waiting(workspace: &Workspace) -> (Value, std::path::PathBuf) {
    let file = workspace.file("go");
    (json!({"ms": 0, "until": file.to_str().unwrap()}), file)
}

/// The id in the answer to a call that goes on.
fn id_in(answer: &Answer) -> String {
    let text = answer.text().unwrap_or_else(|| panic!("{}", answer.value));
    assert!(text.contains("goes on as task t"), "{text}");
    let (_, rest) = text.split_once("as task ").unwrap();
    rest.split(['.', ' ']).next().unwrap().to_owned()
}

fn ask(gateway: &Gateway, method: &str, params: &Value) -> Answer {
    gateway.answer(gateway.stateless(method, params, &able(), &json!({})).unwrap())
}

fn status(gateway: &Gateway, id: &str) -> Value {
    ask(gateway, "tasks/get", &json!({"taskId": id})).value["result"].clone()
}

/// The params of an `mcp_call`.
fn calling(tool: &str, args: &Value) -> Value {
    json!({"name": "mcp_call", "arguments": {"server": "one", "tool": tool, "args": args}})
}

#[test]
fn a_call_that_takes_long_is_waited_for_by_its_id_and_runs_once() {
    let workspace = patient(chaos_server(&[]));
    let (args, file) = waiting(&workspace);
    let gateway = Gateway::start(workspace);
    let id = id_in(&gateway.call("one", "slow", &args));
    let listed = gateway.call("@tasks", "list", &json!({}));
    assert!(listed.text().unwrap().contains(&format!("{id} one:slow: running for ")), "{listed:?}");
    let still = gateway.call("@tasks", "wait", &json!({"id": id, "seconds": 0}));
    assert!(still.text().unwrap().contains("There is no result yet."), "{still:?}");
    std::fs::write(&file, "").unwrap();
    for _ in 0..2 {
        let done = gateway.call("@tasks", "wait", &json!({"id": id, "seconds": 60}));
        assert_eq!(done.text(), Some("waited 0 ms"), "{}", done.value);
    }
    let listed = gateway.call("@tasks", "list", &json!({}));
    assert!(listed.text().unwrap().contains("completed "), "{listed:?}");
    let workspace = gateway.end();
    assert_eq!(workspace.journal("one").of(EventKind::Execute).unwrap().len(), 1);
}

#[test]
fn a_task_is_cancelled_at_its_server_and_says_so() {
    let workspace = patient(chaos_server(&[]));
    let (args, _file) = waiting(&workspace);
    let gateway = Gateway::start(workspace);
    let id = id_in(&gateway.call("one", "slow", &args));
    let gone = gateway.call("@tasks", "cancel", &json!({"id": id}));
    assert_eq!(gone.value["result"]["isError"], true, "{}", gone.value);
    assert!(gone.text().unwrap().contains("was cancelled"), "{gone:?}");
    let journal = gateway.workspace.journal("one");
    assert!(eventually(HUNG, || !journal.of(EventKind::Cancelled).unwrap().is_empty()));
    let again = gateway.call("@tasks", "wait", &json!({"id": id}));
    assert!(again.text().unwrap().contains("was cancelled"), "{again:?}");
    gateway.end();
}

#[test]
fn what_is_no_task_is_told_apart() {
    let gateway = Gateway::start(patient(chaos_server(&[])));
    let of_another_run = format!("t00000000{}", "0".repeat(32));
    for (args, said) in [
        (json!({"id": of_another_run}), "metamcp was restarted since"),
        (json!({"id": "t1"}), "there is no task"),
        (json!({"id": "ü"}), "there is no task"),
        (json!({}), "`id` must be"),
        (json!({"id": "t1", "second": 5}), "no argument `second`"),
    ] {
        let refused = gateway.call("@tasks", "wait", &args);
        assert_eq!(refused.value["result"]["isError"], true);
        assert!(refused.text().unwrap().contains(said), "{args}: {refused:?}");
    }
    let wrong = gateway.call("@tasks", "wiat", &json!({}));
    assert!(wrong.text().unwrap().contains("Did you mean wait?"), "{wrong:?}");
    let none = gateway.call("@tasks", "list", &json!({}));
    assert!(none.text().unwrap().starts_with("There are no tasks"), "{none:?}");
    gateway.end();
}

#[test]
fn a_client_with_the_extension_gets_a_task_and_its_result_byte_for_byte() {
    let workspace = patient(chaos_server(&[]));
    let (args, file) = waiting(&workspace);
    let gateway = Gateway::start_silently(workspace);
    let found = ask(&gateway, "server/discover", &json!({}));
    let extensions = &found.value["result"]["capabilities"]["extensions"];
    assert!(extensions["io.modelcontextprotocol/tasks"].is_object(), "{extensions}");
    let made = ask(&gateway, "tools/call", &calling("slow", &args)).value["result"].clone();
    assert_eq!(
        (&made["resultType"], &made["status"]),
        (&json!("task"), &json!("working")),
        "{made}"
    );
    assert!(made["ttlMs"].is_null() && made["pollIntervalMs"].is_u64(), "{made}");
    let id = made["taskId"].as_str().unwrap();
    assert_eq!(status(&gateway, id)["status"], "working");
    std::fs::write(&file, "").unwrap();
    assert!(eventually(HUNG, || status(&gateway, id)["status"] == "completed"));
    let done = status(&gateway, id);
    assert_eq!(done["resultType"], "complete");
    assert_eq!(done["result"]["content"][0]["text"], "waited 0 ms", "{done}");
    let unknown = ask(&gateway, "tasks/get", &json!({"taskId": "t0"})).value["error"].clone();
    assert_eq!(unknown["code"], -32602, "{unknown}");
    let without = gateway.stateless("tasks/get", &json!({"taskId": id}), &json!({}), &json!({}));
    let refused = gateway.answer(without.unwrap()).value["error"].clone();
    assert_eq!(refused["code"], -32021, "{refused}");
    gateway.end();
}

#[test]
fn a_question_of_a_server_reaches_the_client_through_its_task() {
    let mut workspace = patient(chaos_server(&[]));
    workspace.server("one", chaos_server(&[]).argument("--tasks").argument("yes"));
    let gateway = Gateway::start_silently(workspace);
    let made = ask(&gateway, "tools/call", &calling("elicit", &json!({})));
    // The question may come before the call counts as long: then the client answers it as ever.
    let result = made.value["result"].clone();
    if result["resultType"] == "task" {
        let id = result["taskId"].as_str().unwrap().to_owned();
        assert!(eventually(HUNG, || status(&gateway, &id)["status"] == "input_required"));
        let asked = status(&gateway, &id)["inputRequests"].clone();
        let (key, question) = asked.as_object().unwrap().iter().next().unwrap();
        assert_eq!(question["method"], "elicitation/create", "{asked}");
        let answer = json!({"taskId": id, "inputResponses":
            {key: {"action": "accept", "content": {"name": "Ada"}}}});
        assert!(ask(&gateway, "tasks/update", &answer).value["result"].is_object());
        assert!(eventually(HUNG, || status(&gateway, &id)["status"] == "completed"));
        assert!(status(&gateway, &id)["result"].to_string().contains("Ada"));
    } else {
        assert_eq!(result["resultType"], "input_required", "{result}");
    }
    gateway.end();
}

fn errands(era: &str) -> Server {
    chaos_server(&[]).argument("--tasks").argument("yes").argument("--era").argument(era)
}

#[test]
fn a_server_that_makes_tasks_of_calls_is_asked_for_the_result() {
    for era in ["modern", "legacy"] {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("one", errands(era));
        let answerer: Answerer =
            Box::new(|_, _| Reply::Result(json!({"action": "accept", "content": {"name": "Ada"}})));
        let gateway = Gateway::start_answering(workspace, &json!({"elicitation": {}}), answerer);
        let done = gateway.call("one", "errand", &json!({"key": "a", "looks": 3}));
        assert_eq!(done.text(), Some("errand done for nobody"), "{era}: {}", done.value);
        if era == "modern" {
            let done = gateway.call("one", "errand", &json!({"key": "b", "looks": 2, "ask": true}));
            assert_eq!(done.text(), Some("errand done for Ada"), "{}", done.value);
        }
        let workspace = gateway.end();
        let runs = workspace.journal("one").of(EventKind::Execute).unwrap().len();
        assert_eq!(runs, if era == "modern" { 2 } else { 1 });
    }
}

#[test]
fn a_cancelled_call_cancels_the_task_at_its_server() {
    for era in ["modern", "legacy"] {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("one", errands(era));
        let gateway = Gateway::start(workspace);
        let id =
            gateway.mcp_call("one", "errand", &json!({"key": "a", "looks": 1_000_000})).unwrap();
        let journal = gateway.workspace.journal("one");
        assert!(eventually(HUNG, || !journal.of(EventKind::Execute).unwrap().is_empty()));
        gateway.notify("notifications/cancelled", &json!({"requestId": id})).unwrap();
        assert!(
            eventually(HUNG, || !journal.of(EventKind::Cancelled).unwrap().is_empty()),
            "{era}"
        );
        gateway.ping();
    }
}

#[test]
fn a_call_whose_server_dies_with_its_task_has_an_unknown_outcome() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("one", errands("modern"));
    let gateway = Gateway::start(workspace);
    let id = gateway.mcp_call("one", "errand", &json!({"key": "a", "looks": 1_000_000})).unwrap();
    let journal = gateway.workspace.journal("one");
    assert!(eventually(HUNG, || !journal.of(EventKind::Execute).unwrap().is_empty()));
    census::kill_all(&[gateway.only_child()]);
    let answer = gateway.answer(id);
    assert!(answer.value.to_string().contains("outcome_unknown"), "{}", answer.value);
    gateway.end();
}
