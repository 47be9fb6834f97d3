//! Servers from container images, through a stand-in for docker: intent, plan, approval, call; what is refused; and
//! cleanup.

use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metamcp_testkit::client::{Answerer, Reply};
use metamcp_testkit::{Client, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::fake_engine::Engine;
use crate::fake_sources::Sources;
use crate::provision::{HUNG, Place, able, provision, yes};

const NEED: &str = "turn the spinning wheel of fortune";
const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
const OTHER: &str = "sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752";

/// A server is stopped, and its container removed, long before this.
const LONGEST: Duration = Duration::from_secs(90);

fn image() -> String {
    format!("ghcr.io/honest/wheel@{DIGEST}")
}

/// A registry that offers an image, and an engine that has it.
fn place(needs: &Value) -> (Place, Engine) {
    let (mut place, sources) = Place::with(Sources::start);
    sources.offer_image("wheel", "Turns the spinning wheel of fortune", &image(), needs);
    let engine = Engine::start(place.folder.path());
    engine.offer(&image(), &[&image()]);
    place.programs = Some(engine.programs.clone());
    (place, engine)
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    assert!(eventually(LONGEST, is_so), "never: {what}");
}

#[test]
fn an_image_is_planned_pulled_by_its_digest_called_and_taken_away() {
    let needs = json!({
        "packageArguments": [{ "type": "named", "name": "--mode", "value": "fast" }],
        "environmentVariables": [{ "name": "WHEEL_TOKEN", "isRequired": true, "isSecret": true }],
    });
    let (place, engine) = place(&needs);
    let questions = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&questions);
    let answerer: Answerer = Box::new(move |_, params| {
        heard.lock().unwrap().push(params["message"].as_str().unwrap_or_default().to_owned());
        Reply::Result(json!({ "action": "accept", "content": { "install": true } }))
    });
    let mut command = place.command(&[]);
    command.env("WHEEL_TOKEN", "t0ken-canary");
    let mut client = Client::start_answering(command, answerer).unwrap();
    client.initialize(&able(), HUNG).unwrap();
    let installed = provision(&client, NEED);
    assert_eq!(installed["_meta"]["metamcp/provision"]["status"], "installed", "{installed:#}");
    let question = questions.lock().unwrap().join("\n");
    insta::assert_snapshot!(question.replace(place.registries.as_str(), "REGISTRY"));

    let asked = json!({ "token": "t0ken-canary" });
    let turned = client.mcp_call_now("wheel", "turn", &asked, HUNG).unwrap();
    let seen: Value = serde_json::from_str(turned.text().unwrap()).unwrap();
    let expected =
        json!({ "words": ["--mode", "fast"], "variables": ["WHEEL_TOKEN"], "token": true });
    assert_eq!(seen, expected);
    assert_eq!(engine.asked("pull"), [["pull", "--quiet", &image()]]);
    let runs = engine.asked("run");
    let name = engine.containers().remove(0);
    let line = runs[0].join(" ").replace(&name, "NAME");
    let expected = format!(
        "run --name=NAME -i --rm --init --pull never --log-driver none --cap-drop ALL --security-opt no-new-privileges --label=metamcp=provisioned -e WHEEL_TOKEN {} --mode fast",
        image()
    );
    assert_eq!(line, expected);
    // The value is on no command line.
    assert!(!format!("{runs:?}").contains("t0ken-canary"));

    // The server does not exit at end of input: its container is removed.
    let removed = place.run(&["remove", "wheel"]);
    assert!(removed.contains("wheel"), "{removed}");
    until("the container is gone", || engine.containers().is_empty());
    until("the image is gone", || !engine.has(&image()));
    assert_eq!(fs::read_dir(place.installed()).unwrap().count(), 0);
    client.close_input();
    client.wait_exit(HUNG).unwrap();
}

#[test]
fn a_gateway_that_is_killed_leaves_no_container() {
    let (place, engine) = place(&json!({}));
    let mut client = place.client(yes().0, &able());
    let installed = provision(&client, NEED);
    assert_eq!(installed["_meta"]["metamcp/provision"]["status"], "installed", "{installed:#}");
    client.mcp_call_now("wheel", "turn", &json!({}), HUNG).unwrap();
    assert_eq!(engine.containers().len(), 1);
    client.signal(Signal::SIGKILL).unwrap();
    client.wait_exit(HUNG).unwrap();
    until("the container is gone", || engine.containers().is_empty());
    // The next gateway starts it again, and also ends it.
    let mut client = place.client(yes().0, &json!({}));
    client.mcp_call_now("wheel", "turn", &json!({}), HUNG).unwrap();
    assert_eq!(engine.containers().len(), 1);
    client.close_input();
    client.wait_exit(HUNG).unwrap();
    until("the container is gone", || engine.containers().is_empty());
    assert_eq!(engine.asked("pull").len(), 1, "nothing is pulled at a start");
}

#[test]
fn an_image_that_was_here_before_stays() {
    let (place, engine) = place(&json!({}));
    let docker = engine.programs.join("docker");
    let pulled = std::process::Command::new(docker).args(["pull", "--quiet", &image()]).output();
    assert!(pulled.unwrap().status.success());
    let installed = place.run(&["add", &image(), "--yes"]);
    assert!(installed.contains("wheel: installed"), "{installed}");
    let removed = place.run(&["remove", "wheel"]);
    assert!(removed.contains("wheel"), "{removed}");
    until("the container is gone", || engine.containers().is_empty());
    assert!(engine.has(&image()));
}

#[test]
fn an_engine_that_brings_something_else_runs_nothing_of_it() {
    let (place, engine) = place(&json!({}));
    engine.offer(&image(), &[&format!("ghcr.io/honest/wheel@{OTHER}")]);
    let client = place.client(yes().0, &able());
    let refused = provision(&client, NEED);
    let said = refused["content"][0]["text"].as_str().unwrap();
    assert!(said.contains("no longer what was agreed to"), "{said}");
    assert!(said.contains(OTHER), "{said}");
    assert_eq!(engine.asked("run").len(), 0);
    assert!(!engine.has(&image()));
    assert_eq!(fs::read_dir(place.installed()).unwrap().count(), 0);
}

#[test]
fn without_its_engine_or_its_image_there_is_no_plan() {
    let (place, engine) = place(&json!({}));
    engine.switch(false);
    let said = place.run(&["add", &image(), "--yes"]);
    assert!(said.contains("its engine does not answer; start it"), "{said}");
    assert!(said.contains("Is the docker daemon running?"), "{said}");
    engine.switch(true);
    let (place, _engine) = {
        let (mut place, sources) = Place::with(Sources::start);
        let gone = format!("ghcr.io/honest/gone@{DIGEST}");
        sources.offer_image("gone", "Turns the spinning wheel", &gone, &json!({}));
        let engine = Engine::start(place.folder.path());
        place.programs = Some(engine.programs.clone());
        (place, engine)
    };
    let said = place.run(&["add", "gone", "--yes"]);
    assert!(said.contains("does not exist at its source"), "{said}");
}

#[test]
fn a_container_that_does_not_start_reports_dockers_error() {
    let (place, engine) = place(&json!({}));
    engine.fail(Some("Error response from daemon: exec format error"));
    let client = place.client(yes().0, &able());
    let installed = provision(&client, NEED);
    let said = installed.to_string();
    assert!(said.contains("exec format error"), "{said}");
    let failed = client.mcp_call_now("wheel", "turn", &json!({}), HUNG).unwrap();
    assert!(failed.value.to_string().contains("exec format error"), "{}", failed.value);
    // It is installed, and works as soon as docker does.
    engine.fail(None);
    until("it works", || {
        let answer = client.mcp_call_now("wheel", "turn", &json!({}), HUNG).unwrap();
        answer.text().is_some_and(|text| text.contains("words"))
    });
}

#[test]
fn a_secret_is_no_argument_of_a_container() {
    let needs = json!({
        "packageArguments": [{ "type": "positional", "valueHint": "connection", "isRequired": true, "isSecret": true }],
    });
    let (place, engine) = place(&needs);
    let said = place.run(&["add", &image(), "--yes", "-e", "connection=wheel://a:b@c"]);
    assert!(said.contains("a secret, only as an argument"), "{said}");
    assert!(engine.asked("pull").is_empty() && engine.asked("run").is_empty());
}
