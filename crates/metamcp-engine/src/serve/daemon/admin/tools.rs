//! Requests about tools: lists, one tool with its schema, a search as a model gets it, and running one.

use metamcp_config::settings::ToolSurface;
use metamcp_search::search::{
    FEATURE_NAMES, NEAR_NAMES, parts, parts_of_nearness, parts_with_nearness,
};
use metamcp_surface::discover::split_id;
use metamcp_tools::tool::Tool;
use metamcp_types::text;
use serde_json::{Value, json};

use super::AdminError;
use super::contextual::{Asking, number, text_of};
use crate::compute;
use crate::observe::{ClientInfo, Identity};
use crate::surface::discover::Why;
use crate::surface::{Finished, View};

/// Most tools on a page.
const MAX_PAGE: usize = 200;
/// Longest first sentence in a list.
const MAX_ABOUT: usize = 240;
/// Most hits that are explained.
const EXPLAINED: usize = 20;
/// Longest query, in characters.
const MAX_QUERY: usize = 1_000;

/// A page of the tools that are known, of one server or of all; `filter` is part of a name.
pub(super) async fn list(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let server = text_of(params, "server").map(str::to_owned);
    let filter = text_of(params, "filter").unwrap_or_default().to_lowercase();
    let offset = number(params, "offset").unwrap_or(0);
    let limit = number(params, "limit").unwrap_or(MAX_PAGE).min(MAX_PAGE);
    let gateway = asking.gateway();
    gateway.catalog.loaded().await;
    let (servers, snapshot) = (gateway.servers(), gateway.catalog.snapshot());
    let wanted = move || {
        let mut total = 0;
        let mut shown = Vec::new();
        for entry in
            servers.iter().filter(|one| server.as_ref().is_none_or(|name| **name == *one.name))
        {
            let Some(known) = snapshot.known(entry.definition) else { continue };
            let prefix_fits = entry.name.to_lowercase().contains(&filter);
            for tool in &known.tools.tools {
                if !prefix_fits && !tool.name.to_lowercase().contains(&filter) {
                    continue;
                }
                if total >= offset && shown.len() < limit {
                    shown.push(brief(&entry.name, tool));
                }
                total += 1;
            }
        }
        json!({ "total": total, "offset": offset, "tools": shown })
    };
    compute::run(wanted).await.map_err(|error| AdminError::failed(error.to_string()))
}

fn brief(server: &str, tool: &Tool) -> Value {
    json!({
        "id": format!("{server}:{}", tool.name),
        "server": server,
        "name": tool.name,
        "signature": tool.signature(),
        "about": text::first_sentence(&tool.description, MAX_ABOUT),
        "flag": tool.flag(),
        "readOnly": tool.hints.read_only,
        "destructive": tool.hints.destructive,
    })
}

/// One tool, with its schemas as the server wrote them.
pub(super) async fn one(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let id = text_of(params, "id").unwrap_or_default();
    let Some((server, name)) = split_id(id) else { return Err(AdminError::wanted("id")) };
    let gateway = asking.gateway();
    let servers = gateway.servers();
    let entry = servers.named(server);
    let entry =
        entry.ok_or_else(|| AdminError::missing(format!("there is no server {server:?}")))?;
    gateway.view.make_known(server).await;
    let snapshot = gateway.catalog.snapshot();
    let tool = snapshot.known(entry.definition).and_then(|known| known.any_tool(name));
    let tool = tool.ok_or_else(|| {
        if gateway.catalog.is_blocked(entry.definition, name) {
            let words = format!(
                "{name:?} of {server:?} cannot be run: it changed, and is blocked until somebody accepts that"
            );
            return AdminError::refused(words).hint("the page of approvals shows what changed");
        }
        AdminError::missing(format!("{server:?} has no tool {name:?}"))
    })?;
    let schema = |raw: Option<&str>| raw.and_then(|raw| serde_json::from_str::<Value>(raw).ok());
    let mut told = brief(server, tool);
    told["description"] = json!(tool.description);
    told["title"] = json!(tool.title);
    told["idempotent"] = json!(tool.hints.idempotent);
    told["openWorld"] = json!(tool.hints.open_world);
    told["inputSchema"] = json!(schema(tool.input_schema()));
    told["outputSchema"] = json!(schema(tool.output_schema()));
    told["blocked"] = json!(gateway.catalog.is_blocked(entry.definition, name));
    Ok(told)
}

/// The very answer of `mcp_discover`, and why the hits rank where they do.
pub(super) async fn search(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let query = text_of(params, "query").unwrap_or_default();
    let query: String = query.chars().take(MAX_QUERY).collect();
    if query.trim().is_empty() {
        return Err(AdminError::wanted("query"));
    }
    let mut arguments = json!({ "query": query });
    let server = text_of(params, "server").filter(|server| !server.is_empty());
    if let Some(server) = server {
        arguments["server"] = server.into();
    }
    let result = called(asking, "mcp_discover", &arguments).await?;
    let why = asking.gateway().view.why(&query, server, EXPLAINED).await;
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    Ok(json!({
        "text": text,
        "isError": result["isError"] == true,
        "hits": why.iter().map(explained).collect::<Vec<_>>(),
    }))
}

fn explained(why: &Why) -> Value {
    let words = why.words.iter().map(|(word, rarity)| json!({ "word": word, "rarity": rarity }));
    let own = why.features.map(|features| {
        let adds = match why.nearness {
            Some(_) => parts_with_nearness(&features),
            None => parts(&features),
        };
        let near = why.nearness.map(|near| (near, parts_of_nearness(&near)));
        let near = near.iter().flat_map(|(near, adds)| {
            NEAR_NAMES.into_iter().zip(near.iter().copied()).zip(adds.iter().copied())
        });
        let own = FEATURE_NAMES.into_iter().zip(features).zip(adds).chain(near);
        let told =
            own.map(|((name, value), adds)| json!({ "name": name, "value": value, "adds": adds }));
        told.collect::<Vec<_>>()
    });
    json!({
        "id": why.id,
        "score": why.score,
        "confidence": why.confidence,
        "words": words.collect::<Vec<_>>(),
        "features": own,
    })
}

/// Calls a tool through the one path of every call, in a session of its own.
pub(super) async fn run(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let tool = text_of(params, "tool").ok_or_else(|| AdminError::wanted("tool"))?;
    let arguments = params.get("args").cloned().unwrap_or_else(|| json!({}));
    if !arguments.is_object() {
        return Err(AdminError::wanted("args"));
    }
    let clock = asking.daemon.machine.router.clock;
    let began = clock.now();
    let result = called(asking, "mcp_call", &json!({ "tool": tool, "args": arguments })).await?;
    let took = u64::try_from(clock.now().since(began).as_millis()).unwrap_or(u64::MAX);
    Ok(json!({ "result": result, "tookMs": took }))
}

/// One call of a tool of ours, as a client with the compact surface would make it.
async fn called(asking: &Asking, name: &str, arguments: &Value) -> Result<Value, AdminError> {
    let client =
        ClientInfo { name: "page".to_owned(), version: crate::serve::daemon::VERSION.to_owned() };
    let identity = Identity { client: Some(client), ..Identity::owner() };
    let view = asking.gateway().session_view_of(identity.session);
    let view = View { tool_surface: ToolSurface::Both, ..view };
    let finished = view.call_as(identity, &json!({ "name": name, "arguments": arguments })).await;
    match finished.in_words() {
        Finished::Result(result) => serde_json::from_slice(&view.surface.clean(&result))
            .map_err(|error| AdminError::failed(format!("the result cannot be read: {error}"))),
        Finished::Protocol { message, .. } => {
            Err(AdminError::refused(view.surface.clean_text(&message)))
        }
        Finished::Refused(_) | Finished::Dispatched => {
            Err(AdminError::failed("the call was given up before it had a result"))
        }
    }
}
