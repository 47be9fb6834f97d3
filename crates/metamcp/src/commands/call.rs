//! `metamcp call`: one call through the same router as any other, its result on stdout.
//! Owns: resolving a bare tool name, the exit code of a result.      Never: guesses between two tools, prints a secret.
//! In: a tool and its arguments as typed.  Out: the result, or what is wrong with the call.
//! Tests: `tests/config/tools.rs`; arguments in `call/pairs.rs`.

mod pairs;

use std::io::{self, Write};

use anyhow::Context;
use metamcp_config::settings::ToolSurface;
use metamcp_engine::config::Loaded;
use metamcp_engine::gateway::Gateway;
use metamcp_engine::surface::reply::Code;
use metamcp_engine::surface::{Finished, View};
use metamcp_surface::discover::split_id;
use metamcp_types::nearest::nearest;
use metamcp_types::text;
use serde_json::{Map, Value, json};

use self::pairs::Pairs;
use super::{gateway, list};
use crate::args::CallArgs;
use crate::exit::{Exit, OrMisuse, misuse};
use crate::{console, render};

pub(crate) fn run(loaded: &Loaded, args: &CallArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let given = arguments(args.arguments.as_deref().unwrap_or("{}"))?;
    let pairs = Pairs::read(&args.pairs)?;
    let mut loaded = loaded.clone();
    // A person prefers waiting for servers that start for the first time to repeating the command.
    let budget = &mut loaded.config.settings.timeouts.discover_budget;
    *budget = (*budget).max(gateway::PATIENCE);
    let finished = gateway::with(&loaded, async |gateway| {
        let tool = whole_id(gateway, &args.tool).await?;
        let mut arguments = given;
        if !pairs.is_empty() {
            let (signature, schema) = takes(gateway, &tool).await.unzip();
            let signature =
                signature.map(|said| gateway.view.surface.clean_text(&said).into_owned());
            let read = pairs.into_object(schema.as_ref(), &mut arguments);
            read.map_err(|error| match signature {
                Some(signature) => misuse(format!("{error:#}\nsignature: {signature}")),
                None => error,
            })?;
        }
        let params = json!({ "tool": tool, "args": arguments });
        anyhow::Ok(make(gateway, "mcp_call", &params).await)
    })??;
    let result = gateway::result(finished)?;
    show(&result, args.json, out)
}

/// Reads what a call takes from files and stdin, so that it can be handed on.
pub(crate) fn read_inputs(args: &CallArgs) -> anyhow::Result<()> {
    if args.arguments.as_deref() == Some("-") {
        console::read_stdin()?;
    }
    Pairs::read(&args.pairs).map(drop)
}

/// Resolves a bare tool name to an id with its server. A name that is ambiguous, or unknown and close to none, is
/// returned unchanged: the call then reports why.
async fn whole_id(gateway: &Gateway, tool: &str) -> anyhow::Result<String> {
    let servers = gateway.servers();
    if tool.contains(':') || tool.starts_with('@') || servers.named(tool).is_some() {
        return Ok(tool.to_owned());
    }
    gateway.catalog.loaded().await;
    if gateway.view.owners(tool).is_empty() {
        // It may be a tool of a server that has never listed its tools.
        list::first_lists(gateway, &|_| true).await;
    }
    match gateway.view.owners(tool).as_slice() {
        [id] => return Ok(id.clone()),
        [_, _, ..] => return Ok(tool.to_owned()),
        [] => {}
    }
    if let Some(id) = gateway.view.id_meant(tool) {
        return Ok(id);
    }
    let snapshot = gateway.catalog.snapshot();
    let known: Vec<String> = servers
        .iter()
        .filter_map(|entry| snapshot.known(entry.definition))
        .flat_map(|known| known.tools.tools.iter())
        .map(|tool| tool.name.to_string())
        .collect();
    let near = nearest(tool, known.iter().map(String::as_str), 1);
    let Some(near) = near.first() else { return Ok(tool.to_owned()) };
    let ids = gateway.view.owners(near);
    Err(misuse(format!(
        "no server has a tool `{}`; did you mean `{}`?",
        render::visible(tool),
        render::visible(&ids.join("` or `"))
    )))
}

/// A tool's input schema. A server that has never listed its tools is started, as the call would do next.
async fn takes(gateway: &Gateway, id: &str) -> Option<(String, Value)> {
    let (server, _) = split_id(id)?;
    gateway.view.make_known(server).await;
    let id = gateway.view.id_meant(id)?;
    let (server, tool) = split_id(&id)?;
    gateway.view.takes(server, tool)
}

fn arguments(given: &str) -> anyhow::Result<Map<String, Value>> {
    let mut text = given.to_owned();
    if given == "-" {
        text = console::read_stdin().context("cannot read the arguments from stdin")?;
    }
    let value: Value = serde_json::from_str(&text).context("--args is not JSON").or_misuse()?;
    let Value::Object(arguments) = value else {
        let example = "'{\"path\": \"README.md\"}'";
        return Err(misuse(format!("--args must be a JSON object, such as {example}")));
    };
    Ok(arguments)
}

/// Calls one of the gateway's own tools, as a client would.
pub(crate) async fn make(gateway: &Gateway, name: &str, arguments: &Value) -> Finished {
    gateway::clean(gateway, made(gateway, name, arguments).await)
}

async fn made(gateway: &Gateway, name: &str, arguments: &Value) -> Finished {
    // This means the gateway's own tools, whichever tool surface clients see.
    let view = View { tool_surface: ToolSurface::Both, ..gateway.view.clone() };
    view.call_for_command(&json!({ "name": name, "arguments": arguments })).await
}

/// Prints a tool result: its text, or all of it as JSON. The exit code reflects the outcome. Errors from the gateway
/// itself are not results, so they go to stderr.
pub(crate) fn show(result: &Value, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let code = result["structuredContent"]["code"].as_str().unwrap_or_default();
    let is_ours =
        result["isError"] == true && Code::ALL.iter().any(|(known, _)| known.word() == code);
    if is_ours && !json {
        failure(&mut console::stderr(), &result["structuredContent"])?;
    } else if json {
        writeln!(out, "{result:#}")?;
    } else {
        for content in result["content"].as_array().into_iter().flatten() {
            writeln!(out, "{}", shown(content))?;
        }
        let empty = result["content"].as_array().is_none_or(Vec::is_empty);
        if empty && !result["structuredContent"].is_null() {
            writeln!(out, "{:#}", result["structuredContent"])?;
        }
    }
    if result["isError"] != true {
        return Ok(Exit::Success);
    }
    let unavailable = [
        "server_unavailable",
        "circuit_open",
        "auth_required",
        "pool_exhausted",
        "overloaded",
        "timeout",
        "outcome_unknown",
        "shutting_down",
        "audit_unavailable",
    ];
    let misnamed = ["server_not_found", "tool_not_found", "validation_input"];
    // These never reached the tool.
    let kept_off = ["denied", "approval_required", "cancelled", "limit_exceeded", "internal"];
    Ok(if unavailable.contains(&code) {
        Exit::Unavailable
    } else if is_ours && misnamed.contains(&code) {
        Exit::Usage
    } else if is_ours && kept_off.contains(&code) {
        Exit::Failure
    } else {
        Exit::ToolError
    })
}

/// Prints a gateway error and its hint.
pub(crate) fn failure(out: &mut dyn Write, error: &Value) -> io::Result<()> {
    let said = |name: &str| error[name].as_str().map(|said| text::clean(said, usize::MAX));
    let label = render::styled(render::RED, "error");
    writeln!(out, "{label}: {}", said("message").unwrap_or_default())?;
    render::hint(out, said("hint").as_deref())
}

/// One content block on a terminal: text without control characters, anything else by kind and size.
fn shown(content: &Value) -> String {
    let kind = content["type"].as_str().unwrap_or("?");
    match kind {
        "text" => {
            text::clean(content["text"].as_str().unwrap_or_default(), usize::MAX).into_owned()
        }
        _ => {
            let data = content["data"]
                .as_str()
                .or(content["resource"]["blob"].as_str())
                .map_or(0, str::len);
            let mime = content["mimeType"]
                .as_str()
                .or(content["resource"]["mimeType"].as_str())
                .unwrap_or("?");
            let uri =
                content["uri"].as_str().or(content["resource"]["uri"].as_str()).unwrap_or_default();
            let line = format!("[{kind} {mime} {uri} {data} bytes of base64; --json shows all]");
            text::clean_line(&line, 300).into_owned()
        }
    }
}
