//! The gallery as a model meets it: what it covers is answered while nobody can be reached, what it does not is not.

use serde_json::{Value, json};

use crate::provision::{Place, able, yes};

/// Nothing listens there.
const NOBODY: &str = "http://127.0.0.1:9";
/// Roughly what three candidates may cost a model.
const MOST_BYTES: usize = 6_000;

fn answer(place: &Place, arguments: &Value) -> Value {
    let client = place.client(yes().0, &able());
    let params = json!({ "name": "mcp_provision", "arguments": arguments });
    let hung = std::time::Duration::from_mins(2);
    client.ask("tools/call", &params, hung).unwrap().value["result"].clone()
}

#[test]
fn a_model_is_answered_while_no_registry_can_be_reached() {
    let mut place = Place::new();
    place.registries = NOBODY.to_owned();
    place.npm = Some(NOBODY.to_owned());
    let found = answer(&place, &json!({ "intent": "remember facts between conversations" }));
    let told = &found["_meta"]["metamcp/provision"];
    assert_eq!(told["status"], "candidates", "{found:#}");
    let first = &told["candidates"][0];
    assert_eq!(first["package"], "@modelcontextprotocol/server-memory", "{found:#}");
    assert!(first["integrity"].as_str().unwrap().starts_with("sha512-"));
    let said = found["content"][0]["text"].as_str().unwrap();
    assert!(!said.contains("does not respond"), "a registry was asked: {said}");
    assert!(said.len() <= MOST_BYTES, "{} bytes: {said}", said.len());
    let none = answer(&place, &json!({ "intent": "unlock my car" }));
    assert_eq!(none["_meta"]["metamcp/provision"]["status"], "nothing", "{none:#}");
    // Whoever wants more than the gallery says so, and hears who could not be asked.
    let more = json!({ "intent": "remember facts between conversations", "force": true });
    let said = answer(&place, &more)["content"][0]["text"].as_str().unwrap().to_owned();
    assert!(said.contains("@modelcontextprotocol/server-memory"), "{said}");
    assert!(said.contains("does not respond"), "{said}");
    // Approval is of what a client says now, so without one nothing is planned.
    let wanted = json!({ "intent": "remember facts between conversations", "autoProvision": true });
    let failed = answer(&place, &wanted);
    assert_eq!(failed["isError"], true, "{failed:#}");
    assert!(!place.installed().exists());
}
