//! The child without a handshake: revision 2026-07-28, where each request is self-contained and a server request is an
//! `input_required` result.

use std::sync::Arc;

use serde_json::{Value, json};

use super::message::{Call, Request, error_line, notification_line, result_line};
use super::offers;
use super::server_state::{ServerState, die};
use super::tasks;
use crate::journal::{EventKind, Record};

const VERSION: &str = "2026-07-28";
/// The `_meta` key with the protocol version of a request.
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// The protocol eras the child supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Era {
    /// Only with a handshake.
    #[default]
    Legacy,
    /// Only without a handshake.
    Modern,
    /// Either, per request.
    Both,
    /// Only with a handshake; refuses everything once probed with `server/discover`.
    Touchy,
    /// Only with a handshake; ignores `server/discover`.
    Silent,
    /// The same, and exits on the next request: the Python SDK before 1.9.2.
    Deaf,
    /// Only with a handshake; ignores `server/discover` and everything after it.
    Mute,
    /// Only with a handshake; exits on `server/discover`.
    Frail,
}

impl Era {
    pub(super) fn named(name: &str) -> Option<Era> {
        match name {
            "legacy" => Some(Era::Legacy),
            "modern" => Some(Era::Modern),
            "both" => Some(Era::Both),
            "touchy" => Some(Era::Touchy),
            "silent" => Some(Era::Silent),
            "deaf" => Some(Era::Deaf),
            "mute" => Some(Era::Mute),
            "frail" => Some(Era::Frail),
            _ => None,
        }
    }
}

/// Whether a request is stateless, for a child that supports that.
pub(super) fn is_stateless(server: &ServerState, params: &Value) -> bool {
    matches!(server.options.era, Era::Modern | Era::Both)
        && params["_meta"][PROTOCOL_VERSION] == VERSION
}

/// Handles requests specific to the era. True if nothing else is to be done.
pub(super) fn takes(server: &Arc<ServerState>, method: &str, request: &Request) -> bool {
    let refuse = |code: i64, message: &str| {
        server.send(&error_line(&request.id, &json!({"code": code, "message": message})));
        true
    };
    let probed = server.probed.load(std::sync::atomic::Ordering::Relaxed);
    if method == "server/discover" {
        server
            .record(&Record { detail: request.params.clone(), ..Record::new(EventKind::Discover) });
        server.probed.store(true, std::sync::atomic::Ordering::Relaxed);
    }
    match server.options.era {
        Era::Legacy => false,
        Era::Silent => method == "server/discover",
        Era::Deaf if probed => die(1),
        Era::Frail if method == "server/discover" => die(1),
        Era::Deaf | Era::Frail => method == "server/discover",
        Era::Mute => probed || method == "server/discover",
        Era::Touchy => {
            let probed = server.probed.load(std::sync::atomic::Ordering::Relaxed);
            probed && refuse(-32600, "this process has heard an unknown word and is done")
        }
        Era::Modern if !is_stateless(server, &request.params) => {
            refuse(-32602, "this server speaks 2026-07-28 and needs _meta")
        }
        Era::Modern | Era::Both if is_stateless(server, &request.params) => match method {
            "server/discover" => {
                let mut found = discovery();
                if server.options.tasks {
                    tasks::declare(&mut found["capabilities"], true);
                }
                if let Some(offers) = &server.options.offers {
                    offers.declare(&mut found["capabilities"]);
                }
                server.send(&result_line(&request.id, &offers::shown(server, &found)));
                true
            }
            "subscriptions/listen" => {
                listen(server, request);
                true
            }
            "initialize" | "ping" | "logging/setLevel" | "resources/subscribe" => {
                refuse(-32601, "no such method")
            }
            _ => false,
        },
        Era::Modern | Era::Both => false,
    }
}

fn discovery() -> Value {
    json!({
        "resultType": "complete",
        "supportedVersions": [VERSION],
        "capabilities": {"tools": {"listChanged": true}, "logging": {}},
        "instructions": "Call echo to be answered.",
        "ttlMs": 1000,
        "cacheScope": "public",
        "_meta": {"io.modelcontextprotocol/serverInfo": {
            "name": "chaos-child", "title": "Chaos child", "version": env!("CARGO_PKG_VERSION"),
        }},
    })
}

fn listen(server: &ServerState, request: &Request) {
    let id: Value = serde_json::from_str(&request.id).unwrap_or_default();
    let wanted = &request.params["notifications"];
    let granted = json!({"toolsListChanged": wanted["toolsListChanged"] == true});
    let params = json!({
        "_meta": {"io.modelcontextprotocol/subscriptionId": id},
        "notifications": granted,
    });
    server.send(&notification_line("notifications/subscriptions/acknowledged", &params));
    // Each subscribed resource changes at once.
    for uri in wanted["resourceSubscriptions"].as_array().into_iter().flatten() {
        let params = json!({"uri": uri, "_meta": params["_meta"]});
        server.send(&notification_line("notifications/resources/updated", &params));
    }
    if granted["toolsListChanged"] == true {
        server.subscribe(id);
    }
}

/// A list in the format of this era.
pub(super) fn list(tools: &[Value]) -> Value {
    json!({"resultType": "complete", "tools": tools, "ttlMs": 60_000, "cacheScope": "public"})
}

/// A result in the format of this era.
pub(super) fn typed(mut result: Value) -> Value {
    if let Some(result) = result.as_object_mut() {
        result.entry("resultType").or_insert_with(|| "complete".into());
    }
    result
}

/// Returns an `input_required` result, or uses the input response that came with the call.
pub(super) fn question(call: &Call, capability: &str, method: &str, params: &Value) -> Value {
    let able = &call.meta["io.modelcontextprotocol/clientCapabilities"];
    if able[capability].is_null() {
        return json!({
            "content": [{"type": "text", "text": format!("the client has no {capability}")}],
            "isError": true,
        });
    }
    let state = format!("state of {} \"{}\"", call.tool, call.key);
    let key = format!("the {capability}");
    let answer = &call.input[&key];
    if answer.is_null() {
        return json!({
            "resultType": "input_required",
            "inputRequests": {key: {"method": method, "params": params}},
            "requestState": state,
        });
    }
    if call.state != state {
        return json!({
            "content": [{"type": "text", "text": format!("wrong state {}", call.state)}],
            "isError": true,
        });
    }
    let answer = json!({"result": answer});
    json!({"content": [{"type": "text", "text": answer.to_string()}], "structuredContent": answer})
}
