//! Commands as a person types them.

use serde_json::{Value, json};

use crate::world::{User, program};

/// Two of the example servers.
fn examples(user: &User) -> Value {
    let program = program();
    let example = |args: &[&str]| json!({ "command": program, "args": args });
    let notes = user.path("notes.json");
    json!({
        "text": example(&["__example", "text"]),
        "notes": example(&["__example", "notes", notes.to_str().unwrap()]),
    })
}

fn user() -> User {
    let user = User::new();
    let servers = examples(&user);
    user.write(".metamcp/mcp.json", &json!({ "mcpServers": servers }).to_string());
    user
}

#[test]
fn the_demonstration_runs() {
    let user = User::new();
    let told = user.told(&["demo"]);
    assert!(told.contains("files") && !told.contains('\u{1b}'), "{told}");
    let left: Vec<_> = std::fs::read_dir(user.path("tmp")).unwrap().flatten().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn servers_are_listed_and_their_tools_called() {
    let user = user();
    let listed: Value = serde_json::from_str(&user.told(&["list", "--json"])).unwrap();
    assert_eq!(listed["servers"].as_array().unwrap().len(), 2, "{listed}");
    let told = user.told(&["call", "text/count_words", "text=eins zwei drei"]);
    assert!(told.contains('3'), "{told}");
    user.told(&["call", "notes/add_note", "title=Eins", "text=Grüße, 日本語 & 100%"]);
    user.told(&["call", "notes/search_notes", "words=Grüße"]);
    let told = user.told(&["call", "notes/read_note", "id:=1"]);
    assert!(told.contains("日本語 & 100%"), "{told}");
}

#[test]
fn doctor_knows_this_system() {
    let told = user().told(&["doctor", "--json"]);
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(told.to_string().contains("windows"), "{told}");
}

#[test]
fn a_client_calls_both_servers_and_the_gateway_ends_with_its_input() {
    let user = user();
    let mut client = user.client();
    assert_eq!(client.initialize()["result"]["serverInfo"]["name"], "metamcp");
    let counted = client.call("text", "count_words", &json!({ "text": "a b" }));
    assert!(counted.contains('2'), "{counted}");
    client.call("notes", "add_note", &json!({ "title": "a", "text": "one" }));
    client.close();
    assert_eq!(client.exit_code(), Some(0));
}
