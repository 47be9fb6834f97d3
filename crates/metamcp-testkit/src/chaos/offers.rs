//! What the child offers beside tools, if selected: resources, prompts and completions, valid or not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::message::{Request, error_line, notification_line, result_line};
use super::server_state::ServerState;
use super::stateless;

/// The selected offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offers {
    /// How its lists behave.
    pub manner: ListBehaviour,
    /// The prefix of its resource and prompt names.
    pub name: String,
}

/// How its lists behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListBehaviour {
    /// A few, on two pages.
    Some,
    /// Far too many on one page.
    Flood,
    /// Endless pages.
    Loop,
    /// Invalid resources, prompts and tools among valid ones.
    Wrong,
    /// Not a list at all.
    Nonsense,
    /// Nothing but errors, for tools too, which leak its password.
    Telling,
    /// Valid lists, but its password appears in its own description and in those of its tools.
    Showing,
}

impl Offers {
    /// Parses `some:NAME` and the like.
    pub(super) fn named(text: &str) -> Option<Offers> {
        let (manner, name) = text.split_once(':')?;
        let manner = match manner {
            "some" => ListBehaviour::Some,
            "flood" => ListBehaviour::Flood,
            "loop" => ListBehaviour::Loop,
            "wrong" => ListBehaviour::Wrong,
            "nonsense" => ListBehaviour::Nonsense,
            "telling" => ListBehaviour::Telling,
            "showing" => ListBehaviour::Showing,
            _ => return None,
        };
        Some(Offers { manner, name: name.to_owned() })
    }

    /// Adds the capabilities of the offer.
    pub(super) fn declare(&self, capabilities: &mut Value) {
        capabilities["resources"] = json!({"subscribe": true, "listChanged": true});
        capabilities["prompts"] = json!({"listChanged": true});
        capabilities["completions"] = json!({});
    }
}

/// Refuses a request with an error that leaks its password, if selected. True if it did.
pub(super) fn tells(server: &ServerState, request: &Request) -> bool {
    let is_telling = server
        .options
        .offers
        .as_ref()
        .is_some_and(|offers| offers.manner == ListBehaviour::Telling);
    if is_telling {
        let secret = &server.surroundings["environment"]["SERVICE_PASSWORD"];
        let message = format!("cannot sign in with {}", secret.as_str().unwrap_or_default());
        let error = json!({"code": -32050, "message": message, "data": {"used": secret}});
        server.send(&error_line(&request.id, &error));
    }
    is_telling
}

/// The description of the server or its tools, with the password in it if selected.
pub(super) fn shown(server: &ServerState, said: &Value) -> String {
    let said = said.to_string();
    if server.options.offers.as_ref().is_none_or(|offers| offers.manner != ListBehaviour::Showing) {
        return said;
    }
    let secret = &server.surroundings["environment"]["SERVICE_PASSWORD"];
    let secret = secret.as_str().unwrap_or_default();
    said.replace("Answers with", &format!("Answers ({secret}) with"))
        .replace("Call echo", &format!("Call ({secret}) echo"))
        .replace("Chaos child", &format!("Chaos child ({secret})"))
        .replace(r#"{"type":"string"}"#, &format!(r#"{{"type":"string","default":"{secret}"}}"#))
}

/// Handles a request for resources, prompts or completions. True if it was one.
pub(super) fn takes(
    server: &Arc<ServerState>,
    method: &str,
    request: &Request,
    typed: bool,
) -> bool {
    let Some(offers) = &server.options.offers else { return false };
    let name = &offers.name;
    let params = &request.params;
    if tells(server, request) {
        return true;
    }
    let result = match method {
        "resources/list" => {
            let own = [format!("memo://{name}/1"), format!("memo://{name}/2")];
            let one = |uri: &str| json!({"uri": uri, "name": uri, "futureField": [1.5, null]});
            let pages = [own.iter().map(|uri| one(uri)).collect(), vec![one("memo://same")]];
            page(offers.manner, "resources", pages, params, |n| one(&format!("memo://{name}/{n}")))
        }
        "resources/templates/list" => {
            json!({"resourceTemplates": [{"uriTemplate": format!("memo://{name}/{{id}}"), "name": "one"}]})
        }
        "resources/read" => {
            let uri = params["uri"].as_str().unwrap_or_default();
            if !uri.starts_with(&format!("memo://{name}/")) && uri != "memo://same" {
                let error = json!({"code": -32002, "message": "Resource not found", "data": {"uri": uri, "a": [null]}});
                server.send(&error_line(&request.id, &error));
                return true;
            }
            json!({"contents": [{"uri": uri, "text": format!("{name} says hello"), "futureField": 1.5}]})
        }
        "resources/subscribe" => {
            server.send(&result_line(&request.id, "{}"));
            let changed = json!({"uri": params["uri"]});
            server.send(&notification_line("notifications/resources/updated", &changed));
            return true;
        }
        "resources/unsubscribe" => json!({}),
        "prompts/list" => {
            let one =
                |name: &str| json!({"name": name, "description": "Asks.", "futureField": 1.5});
            let grown = server.grown.load(Ordering::Relaxed);
            let more = (1..=grown).map(|n| one(&format!("grown_{n}"))).collect();
            page(offers.manner, "prompts", [vec![one("greet")], more], params, |n| {
                one(&format!("prompt_{n}"))
            })
        }
        "prompts/get" if params["name"] == "grow" => {
            server.grown.fetch_add(1, Ordering::Relaxed);
            server.send(&notification_line("notifications/prompts/list_changed", &json!({})));
            json!({"messages": []})
        }
        "prompts/get" if params["name"] == "rumour" => {
            server.send(&notification_line("notifications/prompts/list_changed", &json!({})));
            json!({"messages": []})
        }
        "prompts/get" => {
            let text = format!("{name} asks {}", params["name"].as_str().unwrap_or_default());
            json!({"messages": [{"role": "user", "content": {"type": "text", "text": text}}]})
        }
        "completion/complete" => json!({"completion": {"values": [name, params["ref"]["name"]]}}),
        _ => return false,
    };
    let result = if typed { stateless::typed(result) } else { result };
    server.send(&result_line(&request.id, &result.to_string()));
    true
}

fn page(
    manner: ListBehaviour,
    member: &str,
    pages: [Vec<Value>; 2],
    params: &Value,
    one: impl Fn(u64) -> Value,
) -> Value {
    let [first, second] = pages;
    match manner {
        ListBehaviour::Showing => json!({member: first}),
        ListBehaviour::Some if params["cursor"] == "two" => json!({member: second}),
        ListBehaviour::Some if second.is_empty() => json!({member: first}),
        ListBehaviour::Some => json!({member: first, "nextCursor": "two"}),
        ListBehaviour::Flood => json!({member: (0..20_000).map(one).collect::<Vec<_>>()}),
        ListBehaviour::Loop => json!({member: [], "nextCursor": "again"}),
        ListBehaviour::Wrong => {
            json!({member: [7, null, [], {"uri": 7, "name": 7}, {"name": ""}, {"uri": "memo://unnamed", "title": 7}, first[0]], "nextCursor": 7})
        }
        ListBehaviour::Nonsense | ListBehaviour::Telling => json!({member: {"not": "a list"}}),
    }
}
