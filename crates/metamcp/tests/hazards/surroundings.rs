//! What a server sees of its environment: what it was given, and nothing of ours.

use std::collections::BTreeSet;

use metamcp_engine::config::ABOVE;
use metamcp_testkit::census::MARK;
use metamcp_testkit::workspace::CANARY;
use metamcp_testkit::{EventKind, Workspace, chaos_server, eventually};
use serde_json::{Value, json};

use crate::gateway::{Gateway, HUNG};

#[test]
fn a_server_sees_the_variables_it_may_and_three_files() {
    let mut workspace = Workspace::new().unwrap();
    let names = ["a", "b", "c", "d"];
    for name in names {
        workspace.server(name, chaos_server(&[]).variable("OWN", name).variable("LANG", "C"));
    }
    let gateway = Gateway::start(workspace);
    // Concurrently, so that one might inherit the pipes of another.
    let calls = names.map(|name| (name, gateway.mcp_call(name, "env", &json!({})).unwrap()));
    for (name, id) in calls {
        let answer = gateway.answer(id);
        let seen = &answer.result().unwrap()["structuredContent"];
        let variables = keys(&seen["environment"]);
        let allowed =
            BTreeSet::from(["HOME", "LANG", ABOVE, "OWN", "PATH", MARK].map(str::to_owned));
        assert_eq!(variables, allowed);
        assert!(!variables.contains(CANARY));
        assert_eq!(seen["environment"]["OWN"], name);
        assert_eq!(seen["environment"]["LANG"], "C", "its own goes before ours");
        assert_eq!(keys(&seen["files"]), BTreeSet::from(["0", "1", "2"].map(str::to_owned)));
        let project = gateway.workspace.project();
        assert_eq!(seen["directory"].as_str(), project.to_str());
    }
    gateway.end();
}

#[test]
fn an_eager_server_starts_before_anybody_calls_it_and_others_do_not() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("lazy", chaos_server(&[]));
    workspace.server("eager", chaos_server(&[]).setting("eager", json!(true)));
    let gateway = Gateway::start(workspace);
    let started =
        |name: &str| !gateway.workspace.journal(name).of(EventKind::Initialize).unwrap().is_empty();
    assert!(eventually(HUNG, || started("eager")));
    assert!(!started("lazy"));
    gateway.end();
}

#[test]
fn a_later_server_inherits_no_file_of_an_earlier_one() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("first", chaos_server(&[])).server("second", chaos_server(&[]));
    let gateway = Gateway::start(workspace);
    gateway.call("first", "echo", &json!({"text": "x"}));
    let answer = gateway.call("second", "env", &json!({}));
    let seen = &answer.result().unwrap()["structuredContent"];
    assert_eq!(keys(&seen["files"]), BTreeSet::from(["0", "1", "2"].map(str::to_owned)));
    gateway.end();
}

fn keys(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}
