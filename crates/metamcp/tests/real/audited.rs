//! Approvals and installations in the audit log, at the places where they happen: in a client, at a terminal, by commands.

use std::fs;

use metamcp_testkit::Client;
use metamcp_testkit::client::{Answerer, Reply};
use serde_json::{Value, json};

use crate::fake_sources::{Sources, Trick};
use crate::provision::{HUNG, Place, able, provision, yes};

const NEED: &str = "turn the spinning wheel of fortune";

/// A home with these settings of the audit log, and a registry with one honest server.
fn recorded(audit: &Value) -> (Place, Sources) {
    let (place, sources) = Place::with(Sources::start);
    let config = json!({ "mcpServers": {}, "audit": audit });
    fs::write(place.folder.path().join("mcp.json"), config.to_string()).unwrap();
    sources.offer("@honest/wheel", "Turns the spinning wheel of fortune", Trick::None);
    (place, sources)
}

/// What was recorded of approvals and installations, in order: kind and verdict, then server, package and who it was.
fn told(place: &Place) -> Vec<(String, Value)> {
    let said =
        place.run(&["audit", "query", "--json", "--kind", "approval", "--kind", "installation"]);
    let lines = said.lines().map(|line| serde_json::from_str::<Value>(line).expect(&said));
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    lines
        .map(|line| (format!("{} {}", word(&line["kind"]), word(&line["verdict"])), line))
        .collect()
}

fn verdicts(lines: &[(String, Value)]) -> Vec<&str> {
    lines.iter().map(|(verdict, _)| &**verdict).collect()
}

/// A client that leaves as clients do: what is still to be written then is.
fn end(mut client: Client) {
    client.close_input();
    client.wait_exit(HUNG).unwrap();
}

fn no() -> Answerer {
    Box::new(|_, _| Reply::Result(json!({ "action": "decline" })))
}

#[test]
fn what_a_person_approves_in_a_client_and_what_came_of_it() {
    let (place, sources) = recorded(&json!({ "enabled": true }));
    sources.offer("@tricks/walrus", "Feeds the walrus in the aquarium", Trick::OtherBytes);
    let client = place.client(no(), &able());
    provision(&client, NEED);
    end(client);
    let client = place.client(yes().0, &able());
    provision(&client, "feed the walrus in the aquarium");
    let installed = provision(&client, NEED);
    assert_eq!(installed["_meta"]["metamcp/provision"]["status"], "installed", "{installed:#}");
    end(client);
    let lines = told(&place);
    assert_eq!(
        verdicts(&lines),
        [
            "approval declined",
            "approval approved",
            "installation failed",
            "approval approved",
            "installation installed",
        ]
    );
    let servers: Vec<&Value> = lines.iter().map(|(_, line)| &line["what"]["server"]).collect();
    assert_eq!(servers, ["wheel", "walrus", "walrus", "wheel", "wheel"]);
    for (verdict, line) in &lines {
        assert_eq!(line["what"]["plan"].as_str().unwrap().len(), 64, "{line:#}");
        if verdict.starts_with("approval") {
            assert_eq!(line["who"]["client"], "testkit", "{line:#}");
        }
    }
}

#[test]
fn what_a_person_approves_at_a_terminal_accepts_and_removes() {
    let (place, sources) = recorded(&json!({ "enabled": true }));
    let client = place.client(yes().0, &json!({}));
    let waiting = provision(&client, NEED);
    let id = waiting["_meta"]["metamcp/provision"]["id"].as_str().unwrap().to_owned();
    let typed = place.typed(&["approve", &id], "yes\n");
    assert!(typed.contains("wheel is installed"), "{typed}");
    end(client);
    fs::write(sources.turned_bad(), "").unwrap();
    fs::remove_dir_all(place.folder.path().join(".metamcp/cache")).unwrap();
    place.run(&["call", "wheel:turn"]);
    let accepted = place.run(&["provisioned", "accept", "wheel", "--yes"]);
    assert!(accepted.contains("accepted as shown"), "{accepted}");
    place.run(&["provisioned", "remove", "wheel"]);
    let added = place.run(&["add", "@honest/wheel", "--yes"]);
    assert!(added.contains("wheel: installed"), "{added}");
    let lines = told(&place);
    assert_eq!(
        verdicts(&lines),
        [
            "approval approved",
            "installation installed",
            "approval accepted",
            "installation removed",
            "approval approved",
            "installation installed",
        ]
    );
    for (_, line) in lines {
        assert_eq!(
            (&line["what"]["server"], &line["who"]["principal"]),
            (&json!("wheel"), &json!("owner"))
        );
    }
}

#[test]
fn where_it_has_to_be_recorded_and_cannot_be_nothing_is_installed() {
    let (place, _sources) = recorded(&json!({ "required": true }));
    let log = place.folder.path().join(".metamcp/audit");
    fs::create_dir_all(log.parent().unwrap()).unwrap();
    fs::write(&log, "in the way").unwrap();
    let client = place.client(yes().0, &able());
    let refused = provision(&client, NEED);
    assert_eq!(refused["structuredContent"]["code"], "audit_unavailable", "{refused:#}");
    let left: Vec<_> = fs::read_dir(place.installed()).into_iter().flatten().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
    let by_command = place.run(&["add", "@honest/wheel", "--yes"]);
    assert!(by_command.contains("nothing that cannot be recorded is done"), "{by_command}");
    // As soon as there is room, it is done, and recorded once.
    fs::remove_file(&log).unwrap();
    let installed = provision(&client, NEED);
    assert_eq!(installed["_meta"]["metamcp/provision"]["status"], "installed", "{installed:#}");
    end(client);
    assert_eq!(verdicts(&told(&place)), ["approval approved", "installation installed"]);
}
