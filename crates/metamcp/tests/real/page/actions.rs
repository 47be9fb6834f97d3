//! Actions of the page that change something elsewhere: sign-ins, installed servers, decisions, and calls in great number.

use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::sync::Arc;

use metamcp_testkit::{Client, Workspace, chaos_server, echo_server, eventually};
use serde_json::{Value, json};

use super::{HUNG, Page, example, python, steps, text, with_something_waiting};
use crate::fake_sources::{Sources, Trick};
use crate::installed::{Installed, Start, sources};
use crate::remote::{Listening, free_ports};
use crate::world::World;

/// Calls under way at once while the page is open, and the most that are made: the page decides when it has seen enough.
const AT_ONCE: usize = 64;
const MOST_CALLS: usize = 400_000;
/// Fewer would be no load.
const FEWEST_CALLS: usize = 10_000;
/// Requests that the page may make in a second, of its own and by clicks.
const REQUESTS: f64 = 8.0;

/// A remote server that wants a sign-in, and the authorization server for it.
fn oauth(world: &World) -> (Listening, String) {
    let port = free_ports(2);
    let args = vec![
        text(&sources().join("oauth.mjs")),
        "serve".to_owned(),
        text(&world.installed.npm()),
        port.to_string(),
    ];
    let start = Start { command: world.installed.node(), args, env: Vec::new() };
    (Listening::start(world, &start, port), format!("http://127.0.0.1:{port}/mcp"))
}

/// The audit log's lines of one kind: what was decided about, and how.
pub(super) fn audited(page: &Page, kind: &str) -> Vec<Value> {
    let said = page.told(&["audit", "query", "--kind", kind, "--json"]);
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(super) fn verdicts(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["verdict"].as_str()).collect()
}

#[test]
fn a_person_signs_in_and_out_of_remote_servers() {
    let world = World::new();
    let ((_person, person), (_machine, machine)) = (oauth(&world), oauth(&world));
    let mut workspace = Workspace::new().unwrap();
    let grant = json!({"clientId": "machine", "clientSecret": "machine-s3cret", "grant": "client_credentials"});
    workspace.entry("person", json!({ "url": person }));
    workspace.entry("machine", json!({ "url": machine, "oauth": grant }));
    workspace.setting("audit", json!({ "enabled": true }));
    workspace.setting("tokenStore", json!("file"));
    workspace.with_daemon();
    workspace.write_config().unwrap();
    let page = Page::new(workspace);
    let report = page.play_with_tabs("remote", true, &Value::Null, 1);
    for step in ["signed in", "called behind the sign-in", "signed out", "a machine signed in"] {
        assert!(steps(&report).contains(&step), "{report:#}");
    }
    assert_eq!(report["opener"], true, "the provider gets no way back to the page");
    // Each of it is in the audit log, with where.
    let of = |url: &str| -> Vec<String> {
        let logins = audited(&page, "login");
        let is_its = |line: &&Value| url.starts_with(line["what"]["server"].as_str().unwrap());
        let its = logins.iter().filter(is_its);
        its.filter_map(|line| line["verdict"].as_str().map(str::to_owned)).collect()
    };
    let (by_person, by_machine) = (of(&person), of(&machine));
    for verdict in ["started", "granted", "forgotten"] {
        assert!(by_person.iter().any(|one| one == verdict), "{verdict}: {by_person:?}");
    }
    assert!(by_machine.iter().any(|one| one == "granted"), "{by_machine:?}");
}

#[test]
fn an_installed_server_its_secret_and_its_changes_are_accepted_on_the_page() {
    let mut workspace = Workspace::new().unwrap();
    workspace.setting("audit", json!({ "enabled": true }));
    workspace.setting("tokenStore", json!("file"));
    workspace.with_daemon();
    workspace.write_config().unwrap();
    let registry = Sources::start(&workspace.file(""));
    let needs = json!({
        "environmentVariables": [{ "name": "WHEEL_TOKEN", "isRequired": true, "isSecret": true }],
    });
    let about = "Turns the spinning wheel of fortune";
    registry.offer_needing("@honest/wheel", about, Trick::None, &needs);
    let variables = [
        ("METAMCP_REGISTRIES", &*registry.base),
        ("npm_config_registry", &*registry.base),
        ("npm_config_fetch_retries", "0"),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    let page = Page { variables, ..Page::new(workspace) };
    let waits = page.asks_for("turn the spinning wheel of fortune");
    // Those who ask what changed hear of this; the first question was for everything.
    registry.take_back("it sends mail to strangers");
    let more = json!({ "waits": waits, "turned": registry.turned_bad(), "secret": "t0ken-canary-on-a-page" });
    let report = page.play("installed", true, &more);
    assert_eq!(steps(&report).len(), 3, "{report:#}");
    assert_eq!(report["type"], "password", "a secret is not shown while it is typed");
    assert_eq!(verdicts(&audited(&page, "approval")), ["approved", "accepted", "accepted"]);
    let installations = audited(&page, "installation");
    assert_eq!(verdicts(&installations), ["installed"]);
    assert_eq!(installations[0]["what"]["server"], "wheel");
    assert_eq!(installations[0]["what"]["package"], "@honest/wheel 1.0.0");
}

#[test]
fn nothing_is_decided_on_the_page_that_cannot_be_recorded() {
    let (page, mut more) = with_something_waiting(&json!({ "required": true }));
    // As on a full disk: nothing can be written there.
    let blocking = page.workspace.home().join(".metamcp/audit");
    fs::remove_dir_all(&blocking).ok();
    fs::write(&blocking, "in the way").unwrap();
    more["blocking"] = json!(blocking);
    let report = page.play("unrecorded", true, &more);
    assert_eq!(steps(&report), ["nothing was decided", "decided once there is a log"]);
    assert_eq!(verdicts(&audited(&page, "trust")), ["approved"]);
    assert_eq!(verdicts(&audited(&page, "approval")), ["declined"]);
    assert!(audited(&page, "installation").is_empty());
    let project: Value = serde_json::from_str(&page.told(&["trust", "--json"])).unwrap();
    assert_eq!(project["standing"], "trusted");
}

#[test]
fn buttons_and_fields_that_are_easily_overlooked_work_too() {
    let installed = Installed::find();
    let mut workspace = Workspace::new().unwrap();
    workspace
        .server("talker", python(&installed, "talker.py"))
        .server("held", chaos_server(&[]))
        .server("numbers", example("numbers"));
    workspace.with_daemon();
    workspace.write_config().unwrap();
    let page = Page::new(workspace);
    let script = page.workspace.file("long.ts");
    let many = "for (let at = 0; at < 120; at += 1) await numbers.factorize({ number: 91 });\n";
    let filler = "// nothing happens on this line, nor on the next one\n".repeat(420);
    fs::write(&script, format!("{many}{filler}return 'the end of the script';\n")).unwrap();
    page.told(&["run", &text(&script)]);
    let report = page.play("rest", true, &Value::Null);
    assert_eq!(steps(&report).len(), 7, "{report:#}");
    let chosen = report["chosen"].as_str().unwrap().trim_start_matches("asked for ");
    let chosen: Value = serde_json::from_str(chosen).unwrap();
    let expected = json!({
        "colour": "blue", "loud": true, "count": 3, "names": ["ada", "grace"], "more": { "deep": [1, 2] },
    });
    assert_eq!(chosen, expected);
    assert_eq!(report["lost"], "failed", "a restart at once gives up its calls");
}

#[test]
fn a_thousand_calls_a_second_do_not_stall_the_page() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("loaded", echo_server());
    workspace.with_daemon();
    workspace.write_config().unwrap();
    let page = Arc::new(Page::new(workspace));
    let signals = page.workspace.file("signals");
    fs::create_dir(&signals).unwrap();
    let load = std::thread::spawn({
        let (page, signals) = (Arc::clone(&page), signals.clone());
        move || {
            let mut command = page.command(&[]);
            command.stdin(Stdio::piped());
            let client = Client::start(command).unwrap();
            client.initialize(&json!({}), HUNG).unwrap();
            assert!(eventually(HUNG, || signals.join("begin").exists()), "nobody looks");
            let mut made = 0;
            while made < MOST_CALLS && !signals.join("enough").exists() {
                let args = json!({ "text": "x" });
                let call = json!({ "name": "mcp_call",
                    "arguments": { "server": "loaded", "tool": "echo", "args": args } });
                let ids = client.request_at_once("tools/call", &vec![call; AT_ONCE]).unwrap();
                for id in ids {
                    let answer = client.wait(id, HUNG).unwrap();
                    assert!(answer.text().is_some(), "{}", answer.value);
                    made += 1;
                }
            }
            fs::write(signals.join("ended"), "").unwrap();
            made
        }
    });
    let report = page.play("load", true, &json!({ "signals": signals }));
    let made = load.join().unwrap();
    let number = |name: &str| report[name].as_f64().unwrap();
    assert!(made >= FEWEST_CALLS && number("during") >= 10_000.0, "{made}: {report:#}");
    assert_eq!(report["atOnce"], 1, "the page asks one thing at a time: {report:#}");
    assert!(number("requests") / number("seconds").max(1.0) < REQUESTS, "{report:#}");
    assert!(number("rowsAtMost") <= 500.0, "{report:#}");
    // What was lost on the way to the page was lost there only.
    let told: Value = serde_json::from_str(&page.told(&["status", "--json"])).unwrap();
    assert_eq!(told["traffic"]["calls"].as_u64(), u64::try_from(made).ok(), "{told:#}");
    let rate = number("during") / number("seconds");
    let told = format!("{made} calls, {rate:.0} a second, in {} laps", report["laps"]);
    // To stderr directly: for whoever wants to know.
    writeln!(std::io::stderr(), "{told}").unwrap();
}
