//! A script's queries about servers, tools and stored results.

use metamcp_sandbox::host::CallError;
use metamcp_surface::discover::{DiscoverRequest, split_id};
use metamcp_surface::excerpt::Part;
use metamcp_surface::execution;
use metamcp_types::text;
use serde_json::{Value, json};

use super::reply::{Code, ErrorObject};
use super::script::{MAX_MESSAGE, MAX_NAME, refused};
use super::{Finished, View};
use crate::compute;
use crate::router::Entry;

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
    found(view, &arguments, |found| found["tools"].to_string()).await
}

pub(super) async fn describe(view: &View, params: &Value) -> Result<String, CallError> {
    let name_of = |name: &str| name_in(&params[name]).to_owned();
    view.surface.catalog.loaded().await;
    let (server, tool) = match (name_of("server"), name_of("tool")) {
        (name, tool) if tool.is_empty() && view.server(&name).is_some() => (name, tool),
        (id, tool) if tool.is_empty() => {
            let parts = split_id(&id).or_else(|| id.split_once('.'));
            parts.map_or((id.clone(), String::new()), |(s, t)| (s.to_owned(), t.to_owned()))
        }
        both => both,
    };
    let entry = known(view, &server).await?;
    if tool.is_empty() {
        // A server alone: its description and its tools.
        let whole = |found: &Value| {
            let about = &found["servers"][0];
            json!({
                "server": about["name"],
                "state": about["state"],
                "description": about["description"],
                "tools": found["tools"],
                "total": found["total"],
            })
            .to_string()
        };
        return found(view, &all_of(&entry), whole).await;
    }
    let tool = view.tool_meant(&server, &tool);
    let arguments = json!({ "server": server, "tool": tool, "detail": "schema" });
    found(view, &arguments, |found| found["tools"][0].to_string()).await
}

pub(super) async fn list(view: &View, params: &Value) -> Result<String, CallError> {
    match params["server"].as_str() {
        None => found(view, &json!({}), |found| found["servers"].to_string()).await,
        Some(server) => {
            let entry = known(view, server).await?;
            found(view, &all_of(&entry), |found| found["tools"].to_string()).await
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
    if view.snapshot().known(entry.id).is_none() {
        view.listed(&entry).await.map_err(|error| refused(view, &error))?;
    }
    if view.snapshot().known(entry.id).is_none() {
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
    let all: Vec<Entry> = match params["server"].as_str() {
        Some(name) => vec![known(view, name).await?],
        None => view.servers().iter().cloned().collect(),
    };
    let (own, snapshot) = (view.clone(), view.latest_snapshot().await);
    let page = computed(view, move || {
        let mut page = String::new();
        for entry in all {
            let bound = MAX_TYPES.saturating_sub(page.len());
            page.push_str(&own.declarations(&entry, &snapshot, bound));
        }
        Value::from(page).to_string()
    });
    page.await
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
        return Err(refused(view, &super::result_store::unknown(text::start(handle, MAX_NAME))));
    };
    if names.is_empty() {
        return Ok(String::from_utf8_lossy(&stored.value).into_owned());
    }
    let part = Part::decode(options).map_err(|bad| wrong(bad.to_string()))?;
    let length = options["length"].as_u64().and_then(|length| usize::try_from(length).ok());
    let cut =
        computed(view, move || part_of(&String::from_utf8_lossy(&stored.value), part, length));
    cut.await?.map_err(wrong)
}

/// A part of a stored value as JSON, or why there is none. Unlike an excerpt for a reader, it is cut only where the
/// script says so, and has no text around it.
fn part_of(json: &str, part: Part, length: Option<usize>) -> Result<String, String> {
    match &part {
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
