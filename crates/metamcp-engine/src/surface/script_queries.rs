//! A script's queries about servers, tools and stored results.

use metamcp_sandbox::host::CallError;
use metamcp_surface::discover::{DiscoverRequest, split_id};
use metamcp_surface::excerpt::Part;
use metamcp_surface::execution;
use metamcp_types::nearest::nearest;
use metamcp_types::text;
use serde_json::{Map, Value, json};

use super::reply::{Code, ErrorObject};
use super::script::{MAX_MESSAGE, MAX_NAME, refused};
use super::{Finished, View};
use crate::compute;
use crate::router::Entry;

/// Names suggested for one that is not there.
const NEAR: usize = 3;
/// Longest description of a tool in a list; a script prints lists.
const MAX_SENTENCE: usize = 200;
/// Most bytes of declarations in one response.
const MAX_TYPES: usize = 256 * 1024;
/// Longest name in a lookup; no tool has a longer one.
const MAX_LOOKUP: usize = 1024;
/// Longest query of a search; more words would not change the ranking.
const MAX_QUERY: usize = 2000;
/// The options of `results.get` that select a part.
const PARTS: [&str; 4] = ["pointer", "offset", "length", "grep"];

pub(super) async fn search(view: &View, params: &Value) -> Result<String, CallError> {
    let query = text::start(params["query"].as_str().unwrap_or_default(), MAX_QUERY);
    let options = &params["options"];
    let arguments = json!({
        "query": query,
        "server": options["server"],
        "limit": if options["limit"].is_number() { options["limit"].clone() } else { 10.into() },
        "detail": options["detail"],
    });
    found(view, &arguments, |found| listed(&found["tools"]).to_string()).await
}

/// Tools as a script lists them: what it needs to choose one and to call it. `tools.describe` has the rest.
fn listed(tools: &Value) -> Value {
    let tools = tools.as_array().map_or(&[][..], Vec::as_slice);
    tools.iter().map(short).collect()
}

fn short(tool: &Value) -> Value {
    let mut short = Map::new();
    for name in ["id", "server", "tool", "signature"] {
        short.insert(name.to_owned(), tool[name].clone());
    }
    let description = tool["description"].as_str().unwrap_or_default();
    short.insert("description".to_owned(), text::first_sentence(description, MAX_SENTENCE).into());
    for name in ["flagged", "inputSchema", "outputSchema"] {
        if !tool[name].is_null() {
            short.insert(name.to_owned(), tool[name].clone());
        }
    }
    if let Some(confidence) = tool["confidence"].as_f64() {
        short.insert("confidence".to_owned(), ((confidence * 100.0).round() / 100.0).into());
    }
    Value::Object(short)
}

/// The members of an object that hold something.
fn known_members(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(name, value)| {
                !value.is_null() && !["score", "confidence"].contains(&name.as_str())
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        other => other.clone(),
    }
}

/// Servers as a script lists them.
fn listed_servers(servers: &Value) -> Value {
    let servers = servers.as_array().map_or(&[][..], Vec::as_slice);
    let without_origin = |server: &Value| {
        let mut server = known_members(server);
        if let Some(members) = server.as_object_mut() {
            members.remove("origin");
        }
        server
    };
    servers.iter().map(without_origin).collect()
}

pub(super) async fn describe(view: &View, params: &Value) -> Result<String, CallError> {
    view.surface.catalog.loaded().await;
    let (server, tool) = server_and_tool(view, params);
    let entry = known(view, &server).await?;
    if tool.is_empty() {
        // A server alone: its description and its tools.
        let whole = |found: &Value| {
            let about = &found["servers"][0];
            json!({
                "server": about["name"],
                "state": about["state"],
                "description": about["description"],
                "tools": listed(&found["tools"]),
                "total": found["total"],
            })
            .to_string()
        };
        return found(view, &all_of(&entry), whole).await;
    }
    let tool = view.tool_meant(&server, &tool);
    let arguments = json!({ "server": server, "tool": tool, "detail": "schema" });
    found(view, &arguments, |found| known_members(&found["tools"][0]).to_string()).await
}

/// The server and the tool that are meant, none where it is empty: given apart, or as `server:tool` or `server.tool`.
fn server_and_tool(view: &View, params: &Value) -> (String, String) {
    let name_of = |name: &str| name_in(&params[name]).to_owned();
    match (name_of("server"), name_of("tool")) {
        (name, tool) if tool.is_empty() && view.server(&name).is_some() => (name, tool),
        (id, tool) if tool.is_empty() => {
            let parts = split_id(&id).or_else(|| id.split_once('.'));
            parts.map_or((id.clone(), String::new()), |(s, t)| (s.to_owned(), t.to_owned()))
        }
        both => both,
    }
}

pub(super) async fn list(view: &View, params: &Value) -> Result<String, CallError> {
    match params["server"].as_str() {
        None => {
            found(view, &json!({}), |found| listed_servers(&found["servers"]).to_string()).await
        }
        Some(server) => {
            let entry = known(view, server).await?;
            found(view, &all_of(&entry), |found| listed(&found["tools"]).to_string()).await
        }
    }
}

pub(super) fn name_in(value: &Value) -> &str {
    text::start(value.as_str().unwrap_or_default(), MAX_LOOKUP)
}

fn all_of(entry: &Entry) -> Value {
    json!({ "server": &*entry.name, "detail": "signature", "limit": 100 })
}

/// A server whose tools are known, or why they are not.
async fn known(view: &View, name: &str) -> Result<Entry, CallError> {
    view.surface.catalog.loaded().await;
    let name = text::start(name, MAX_LOOKUP);
    let entry = view.server_meant(name).map_err(|error| refused(view, &error))?;
    if view.snapshot().known(entry.definition).is_none() {
        view.listed(&entry).await.map_err(|error| refused(view, &error))?;
    }
    if view.snapshot().known(entry.definition).is_none() {
        let message =
            format!("the tools of {} are not known: {}", entry.name, view.absence(&entry));
        let error = ErrorObject::new(Code::ServerUnavailable, message).at(&entry.name, None);
        return Err(refused(view, &error));
    }
    Ok(entry)
}

async fn found(
    view: &View,
    arguments: &Value,
    pick: impl Fn(&Value) -> String + Copy + Send + 'static,
) -> Result<String, CallError> {
    let request = DiscoverRequest::decode(Some(arguments))
        .map_err(|bad| refused(view, &ErrorObject::new(Code::ValidationInput, bad.to_string())))?;
    match view.discover_json(request, pick).await {
        Ok(found) => Ok(found),
        Err(Finished::Refused(object)) => Err(refused(view, &object)),
        Err(Finished::Result(result)) => {
            Ok(pick(&serde_json::from_slice(&result).unwrap_or_default()))
        }
        Err(Finished::Protocol { message, .. }) => {
            Err(refused(view, &ErrorObject::new(Code::ValidationInput, message)))
        }
        Err(Finished::Dispatched) => Ok(pick(&Value::Null)),
    }
}

pub(super) async fn types(view: &View, params: &Value) -> Result<String, CallError> {
    view.surface.catalog.loaded().await;
    let (server, tool) = server_and_tool(view, params);
    let all: Vec<Entry> = match params["server"].is_null() {
        true => view.servers().iter().cloned().collect(),
        false => vec![known(view, &server).await?],
    };
    let tool = match (&all[..], tool.is_empty()) {
        ([entry], false) => Some(listed_tool(view, entry, &tool)?),
        _ => None,
    };
    let (own, snapshot) = (view.clone(), view.latest_snapshot().await);
    let page = computed(view, move || {
        let mut page = String::new();
        for entry in all {
            let bound = MAX_TYPES.saturating_sub(page.len());
            page.push_str(&own.declarations_of(&entry, &snapshot, tool.as_deref(), bound));
        }
        Value::from(page).to_string()
    });
    page.await
}

/// The name under which a server lists a tool.
fn listed_tool(view: &View, entry: &Entry, written: &str) -> Result<String, CallError> {
    let meant = view.tool_meant(&entry.name, written);
    let snapshot = view.snapshot();
    let known = snapshot.known(entry.definition);
    if known.is_some_and(|known| known.tool(&meant).is_some()) {
        return Ok(meant);
    }
    let names = known.map_or(&[][..], |known| &known.tools.tools[..]);
    let near = nearest(written, names.iter().map(|tool| &*tool.name), NEAR);
    let written = text::clean_line(written, MAX_NAME);
    let message = format!("the server {:?} has no tool {written:?}", &*entry.name);
    let hint = match near.is_empty() {
        true => format!("tools.list({:?}) lists its tools", &*entry.name),
        false => format!("Did you mean {}?", near.join(" or ")),
    };
    Err(refused(view, &ErrorObject::new(Code::ToolNotFound, message).hint(hint)))
}

/// Runs slow work off the thread that relays calls.
async fn computed<T: Send + 'static>(
    view: &View,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CallError> {
    compute::run(work)
        .await
        .map_err(|failed| refused(view, &ErrorObject::new(Code::Internal, failed.to_string())))
}

pub(super) async fn stored_result(view: &View, params: &Value) -> Result<String, CallError> {
    let handle = params["handle"].as_str().unwrap_or_default();
    let options = &params["options"];
    let wrong = |what: String| {
        let usage = "results.get(handle) is the whole; results.get(handle, { pointer: \"/a/0\" }), { offset, length } or { grep } a part";
        refused(view, &ErrorObject::new(Code::ValidationInput, what).hint(usage))
    };
    let names: Vec<&String> = match options {
        Value::Null => Vec::new(),
        Value::Object(options) => options.keys().collect(),
        _ => return Err(wrong("the options of results.get must be an object".to_owned())),
    };
    if let Some(name) = names.iter().find(|name| !PARTS.contains(&name.as_str())) {
        return Err(wrong(format!("results.get has no option {:?}", text::start(name, MAX_NAME))));
    }
    let Some(stored) = view.surface.results.read(handle, &view.owner()).await else {
        return Err(refused(view, &view.no_result(text::start(handle, MAX_NAME))));
    };
    if names.is_empty() {
        return Ok(String::from_utf8_lossy(&stored.value).into_owned());
    }
    let part = Part::decode(options).map_err(|bad| wrong(bad.to_string()))?;
    let length = options["length"].as_u64().and_then(|length| usize::try_from(length).ok());
    let cut =
        computed(view, move || part_of(&String::from_utf8_lossy(&stored.value), &part, length));
    cut.await?.map_err(wrong)
}

/// A part of a stored value as JSON, or why there is none. Unlike an excerpt for a reader, it is cut only where the
/// script says so, and has no text around it.
fn part_of(json: &str, part: &Part, length: Option<usize>) -> Result<String, String> {
    match part {
        Part::Pointer { pointer, .. } => {
            let value: Value = serde_json::from_str(json).unwrap_or_default();
            let inner = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
            match inner.unwrap_or(value).pointer(pointer) {
                Some(found) => Ok(found.to_string()),
                None => Err(text::cut(&part.of(json), MAX_MESSAGE).into_owned()),
            }
        }
        &Part::Range { offset, .. } => {
            let length = length.unwrap_or(usize::MAX);
            let text = execution::value_text(json);
            Ok(Value::from(text.chars().skip(offset).take(length).collect::<String>()).to_string())
        }
        Part::Grep(_) => Ok(Value::from(part.of(json)).to_string()),
    }
}
