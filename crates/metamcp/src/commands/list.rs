//! `metamcp list`, `tools` and `search`: the output of `mcp_discover`, in columns on a terminal.
//! Owns: which servers to wait for, the exit code.      Never: starts a server to list servers, knows other gateways.
//! In: a query or names.  Out: text, columns or JSON.
//! Tests: `tests/config/tools.rs`, `tests/config/screen.rs`; columns in `list/screen.rs`.

mod screen;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use metamcp_engine::clock;
use metamcp_engine::config::Loaded;
use metamcp_engine::gateway::Gateway;
use metamcp_engine::router::Definition;
use metamcp_engine::surface::discover::Why;
use metamcp_engine::task;
use metamcp_search::search::{
    FEATURE_NAMES, NEAR_NAMES, parts, parts_of_nearness, parts_with_nearness,
};
use metamcp_surface::discover::{DiscoverRequest, Operation, split_id};
use metamcp_types::nearest::nearest;
use serde_json::{Value, json};

use super::{call, gateway};
use crate::args::{ListArgs, SearchArgs, ToolsArgs};
use crate::exit::{Exit, misuse};
use crate::{console, render, terminal};

pub(crate) fn run(loaded: &Loaded, args: &ListArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if args.why {
        return scopes(loaded, args, out);
    }
    // No paging: a person would need to know how to get the next page.
    let request = DiscoverRequest {
        server: args.server.clone(),
        limit: usize::MAX,
        ..DiscoverRequest::default()
    };
    discover(loaded, request, args.json, out)
}

/// Who shares the processes of each server, and why.
fn scopes(loaded: &Loaded, args: &ListArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let all = gateway::with(loaded, async |gateway| {
        // What a server said of itself, and its tools, may decide.
        gateway.catalog.loaded().await;
        let members = gateway.context.members();
        let told = |one: &Arc<Definition>| {
            let (scope, why) = gateway.context.scope_of(one);
            let misfits = gateway.catalog.misfits(one.id);
            (one.name.to_string(), scope.as_str(), why.to_string(), misfits)
        };
        members.iter().map(told).collect::<Vec<_>>()
    })?;
    if let Some(name) = args.server.as_ref()
        && !all.iter().any(|(known, ..)| known == name)
    {
        let near = nearest(name, all.iter().map(|(known, ..)| known.as_str()), 1);
        return Err(no_server(name, near.first().copied()));
    }
    let is_wanted = |name: &str| args.server.as_ref().is_none_or(|wanted| wanted == name);
    let chosen = all.iter().filter(|(name, ..)| is_wanted(name));
    if args.json {
        let servers: Vec<Value> = chosen
            .map(|(name, scope, why, misfits)| {
                // The sentence begins with the scope, which has a member of its own here.
                let why = why.split_once(": ").map_or(why.as_str(), |(_, why)| why);
                let mut told = json!({ "name": name, "scope": scope, "why": why });
                if !misfits.is_empty() {
                    told["misfits"] = json!(misfits);
                }
                told
            })
            .collect();
        writeln!(out, "{:#}", json!({ "servers": servers }))?;
        return Ok(Exit::Success);
    }
    let rows: Vec<(&str, String)> = chosen
        .map(|(name, _, why, misfits)| {
            let all = [why].into_iter().chain(misfits).cloned().collect::<Vec<_>>();
            (name.as_str(), render::visible(&all.join("; ")))
        })
        .collect();
    render::facts(out, &rows, terminal::width())?;
    Ok(Exit::Success)
}

fn no_server(name: &str, near: Option<&str>) -> anyhow::Error {
    let near = near.map(|near| format!("; did you mean `{}`?", render::visible(near)));
    misuse(format!(
        "there is no server `{}`{}",
        render::visible(name),
        near.unwrap_or_else(|| "; `metamcp list` lists the servers".to_owned())
    ))
}

pub(crate) fn tools(
    loaded: &Loaded,
    args: &ToolsArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if let [server] = args.servers.as_slice() {
        let request = DiscoverRequest {
            server: Some(server.clone()),
            limit: usize::MAX,
            ..DiscoverRequest::default()
        };
        return discover(loaded, request, args.json, out);
    }
    let request = DiscoverRequest {
        operation: Operation::List,
        limit: usize::MAX,
        ..DiscoverRequest::default()
    };
    let is_wanted =
        |name: &str| args.servers.is_empty() || args.servers.iter().any(|it| it == name);
    let found = gateway::with(loaded, async |gateway| {
        for name in &args.servers {
            if gateway.servers().named(name).is_none() {
                let known = gateway.servers();
                let near = nearest(name, known.iter().map(|entry| &*entry.name), 1);
                return Err(no_server(name, near.first().copied()));
            }
        }
        first_lists(gateway, &is_wanted).await;
        Ok(gateway::discover(gateway, request).await)
    })??;
    let mut found = match found {
        Ok(found) => found,
        Err(finished) => return call::show(&gateway::result(finished)?, args.json, out),
    };
    if !args.servers.is_empty() {
        narrow(&mut found.json, &is_wanted);
    }
    let named = |list: &str| found.json[list].as_array().map_or(0, Vec::len);
    // A server that was named and did not answer is a failure.
    let is_missing = !args.servers.is_empty() && named("failed") > 0;
    if args.json {
        writeln!(out, "{:#}", found.json)?;
    } else {
        screen::tools(out, &found.json, terminal::width())?;
    }
    Ok(if is_missing { Exit::Unavailable } else { Exit::Success })
}

/// Restricts a result to some servers.
fn narrow(found: &mut Value, is_wanted: &dyn Fn(&str) -> bool) {
    for (list, key) in [("servers", "name"), ("tools", "server"), ("failed", "server")] {
        if let Some(list) = found[list].as_array_mut() {
            list.retain(|item| item[key].as_str().is_some_and(is_wanted));
        }
    }
    if let Some(pending) = found["pending"].as_array_mut() {
        pending.retain(|name| name.as_str().is_some_and(is_wanted));
    }
    found["total"] = found["tools"].as_array().map_or(0, Vec::len).into();
}

pub(crate) fn search(
    loaded: &Loaded,
    args: &SearchArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let query = args.query.join(" ");
    if query.trim().is_empty() {
        return Err(misuse("describe in a few words what the tool should do"));
    }
    let request = DiscoverRequest {
        query: Some(query),
        server: args.server.clone(),
        limit: args.limit as usize,
        ..DiscoverRequest::default()
    };
    if args.why {
        return why(loaded, request, args.json, out);
    }
    discover(loaded, request, args.json, out)
}

/// The hits with the reasons for their rank, as seen by the strategy `hybrid`, or `transformer` if that is in use.
fn why(
    loaded: &Loaded,
    request: DiscoverRequest,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let (query, server) = (request.query.clone().unwrap_or_default(), request.server.clone());
    let limit = request.limit;
    let found = gateway::with(loaded, async |gateway| {
        wait_for_lists(gateway, &request).await;
        // Whatever it finds, it loads the servers' tool lists.
        let found = gateway::discover(gateway, request).await?;
        let reasons = gateway.view.why(&query, server.as_deref(), limit).await;
        let overrides: Vec<Option<String>> =
            reasons.iter().map(|reason| overridden(gateway, &reason.id)).collect();
        Ok((found, reasons, overrides))
    })?;
    let (mut found, reasons, overrides) = match found {
        Ok(found) => found,
        Err(finished) => return call::show(&gateway::result(finished)?, json, out),
    };
    if json {
        // The search result, with the reasons beside each hit.
        for tool in found.json["tools"].as_array_mut().into_iter().flatten() {
            let reason = reasons.iter().find(|reason| tool["id"] == reason.id.as_str());
            tool["why"] = reason.map(reason_json).unwrap_or_default();
            let at = reasons.iter().position(|reason| tool["id"] == reason.id.as_str());
            if let Some(of) = at.and_then(|at| overrides[at].as_ref()) {
                tool["override"] = of.as_str().into();
            }
        }
        writeln!(out, "{:#}", found.json)?;
        return Ok(Exit::Success);
    }
    for (reason, of) in reasons.iter().zip(&overrides) {
        let id = render::visible(&reason.id);
        let sure = reason.confidence.map(|chance| format!("  {:.0}% sure", chance * 100.0));
        writeln!(out, "{}{}", render::styled(render::BOLD, &id), sure.unwrap_or_default())?;
        if let Some(of) = of {
            writeln!(out, "  shown by your override of {}", render::visible(of))?;
        }
        let words: Vec<String> =
            reason.words.iter().map(|(word, rarity)| format!("{word} ({rarity:.1})")).collect();
        let words = if words.is_empty() { "none".to_owned() } else { words.join(", ") };
        writeln!(out, "  words in common, by rarity: {}", render::visible(&words))?;
        let Some(numbers) = numbers(reason) else {
            writeln!(out, "  not among the best fifty, so not re-ranked")?;
            continue;
        };
        let row = |(name, value, adds): (&str, f32, f32)| {
            vec![String::new(), name.to_owned(), format!("{value:.2}"), format!("{adds:+.2}")]
        };
        let rows: Vec<Vec<String>> = numbers.into_iter().map(row).collect();
        render::table(out, &rows)?;
    }
    if reasons.is_empty() {
        writeln!(out, "{}", found.text.trim_end())?;
    }
    Ok(Exit::Success)
}

/// The server's own name of a tool that is shown by an override.
fn overridden(gateway: &Gateway, id: &str) -> Option<String> {
    let (server, tool) = split_id(id)?;
    let servers = gateway.servers();
    let overrides = &servers.named(server)?.config.overrides;
    let original = overrides.original(tool);
    overrides.for_tool(original).map(|_| original.to_owned())
}

/// The features of the re-ranking, each with what it adds to the score.
fn numbers(reason: &Why) -> Option<Vec<(&'static str, f32, f32)>> {
    let features = reason.features?;
    let adds = match reason.nearness {
        Some(_) => parts_with_nearness(&features),
        None => parts(&features),
    };
    let own = FEATURE_NAMES.into_iter().zip(features).zip(adds);
    let near = reason
        .nearness
        .into_iter()
        .flat_map(|near| NEAR_NAMES.into_iter().zip(near).zip(parts_of_nearness(&near)));
    Some(own.chain(near).map(|((name, value), adds)| (name, value, adds)).collect())
}

fn reason_json(reason: &Why) -> Value {
    let close = numbers(reason).map(|numbers| {
        let named = numbers
            .into_iter()
            .map(|(name, value, adds)| (name.to_owned(), json!({ "value": value, "adds": adds })));
        Value::Object(named.collect())
    });
    json!({
        "score": reason.score,
        "confidence": reason.confidence,
        "words": reason.words.iter().map(|(word, rarity)| json!({ "word": word, "rarity": rarity })).collect::<Vec<_>>(),
        "close_look": close,
    })
}

fn discover(
    loaded: &Loaded,
    request: DiscoverRequest,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let asked = request.clone();
    let found = gateway::with(loaded, async |gateway| {
        wait_for_lists(gateway, &request).await;
        gateway::discover(gateway, request).await
    })?;
    let found = match found {
        Ok(found) => found,
        Err(finished) => return call::show(&gateway::result(finished)?, json, out),
    };
    let has = |name: &str| found.json[name].as_array().is_some_and(|all| !all.is_empty());
    if json {
        writeln!(out, "{:#}", found.json)?;
    } else if let Some(width) = terminal::width() {
        // The text of an empty result says what to do, in whole sentences.
        match &asked.query {
            Some(_) if !has("tools") => writeln!(out, "{}", found.text.trim_end())?,
            Some(_) => screen::hits(out, &found, width)?,
            None if asked.server.is_some() => screen::tools(out, &found.json, Some(width))?,
            None => screen::servers(out, &found.json, width, console::is_remote())?,
        }
    } else {
        writeln!(out, "{}", found.text.trim_end())?;
    }
    // The one server that was named did not answer.
    let is_missing = asked.server.is_some() && has("failed") && !has("tools");
    Ok(if is_missing { Exit::Unavailable } else { Exit::Success })
}

async fn wait_for_lists(gateway: &Gateway, request: &DiscoverRequest) {
    if !request.is_overview() {
        let server = request.server.as_deref();
        first_lists(gateway, &|name| server.is_none_or(|server| server == name)).await;
    }
}

/// How long to wait for each further server without a tool list once there is anything to search: a server that hangs
/// must not hold up the results of the others.
const NEXT_LIST: Duration = Duration::from_secs(3);

/// Waits for the wanted servers that have never listed their tools.
pub(super) async fn first_lists(gateway: &Gateway, is_wanted: &dyn Fn(&str) -> bool) {
    gateway.catalog.loaded().await;
    let (servers, snapshot) = (gateway.servers(), gateway.catalog.snapshot());
    let wanted =
        || servers.iter().filter(|entry| entry.config.is_enabled() && is_wanted(&entry.name));
    let (done, mut finished) = tokio::sync::mpsc::channel(servers.iter().count().max(1));
    for entry in wanted().filter(|entry| snapshot.known(entry.definition).is_none()) {
        let (view, name, done) = (gateway.view.clone(), entry.name.to_string(), done.clone());
        task::spawn("list", async move {
            view.make_known(&name).await;
            // The receiver may be gone.
            let _nobody_waits = done.send(()).await;
        });
    }
    drop(done);
    let limit = clock::instant() + gateway::PATIENCE;
    loop {
        let snapshot = gateway.catalog.snapshot();
        let until = match wanted().any(|entry| snapshot.known(entry.definition).is_some()) {
            true => limit.min(clock::instant() + NEXT_LIST),
            false => limit,
        };
        // The channel closes when all have answered.
        if !matches!(tokio::time::timeout_at(until, finished.recv()).await, Ok(Some(()))) {
            return;
        }
    }
}
