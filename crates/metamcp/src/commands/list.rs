//! `metamcp list` and `metamcp search`: what `mcp_discover` would say.

use std::io::{IsTerminal, Write};

use metamcp_core::discover::Request;
use metamcp_core::search::{
    FEATURE_NAMES, NEAR_NAMES, parts, parts_of_nearness, parts_with_nearness,
};
use metamcp_engine::config::Loaded;
use metamcp_engine::gateway::Gateway;
use metamcp_engine::surface::discover::Why;
use metamcp_engine::task;
use serde_json::{Value, json};

use super::{call, gateway};
use crate::args::{ListArgs, SearchArgs};
use crate::exit::{Exit, misuse};
use crate::render;

/// Servers, or the tools of one.
pub(crate) fn run(loaded: &Loaded, args: &ListArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    // A person who wants the next page would have to be told how.
    let request = Request { server: args.server.clone(), limit: usize::MAX, ..Request::default() };
    let exit = discover(loaded, request, args.json, out)?;
    if let Some(hidden) = loaded.hidden.as_ref().filter(|_| !args.json) {
        out.flush()?;
        render::remarks(&mut anstream::stderr(), std::slice::from_ref(hidden))?;
    }
    Ok(exit)
}

/// Tools by what they do.
pub(crate) fn search(
    loaded: &Loaded,
    args: &SearchArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let query = args.query.join(" ");
    if query.trim().is_empty() {
        return Err(misuse("say in a few words what the tool should do"));
    }
    let request = Request {
        query: Some(query),
        server: args.server.clone(),
        limit: args.limit as usize,
        ..Request::default()
    };
    if args.why {
        return why(loaded, request, args.json, out);
    }
    discover(loaded, request, args.json, out)
}

/// The hits with what speaks for each, as the strategy `hybrid` sees it, or `transformer` where that is at work.
fn why(loaded: &Loaded, request: Request, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (query, server) = (request.query.clone().unwrap_or_default(), request.server.clone());
    let limit = request.limit;
    let found = gateway::with(loaded, async |gateway| {
        first_lists(gateway, &request).await;
        // Whatever it finds, it makes the servers known.
        let found = gateway.view.discover(request).await?;
        Ok((found, gateway.view.why(&query, server.as_deref(), limit).await))
    })?;
    let (mut found, reasons) = match found {
        Ok(found) => found,
        Err(finished) => return call::show(&gateway::result(finished)?, json, out),
    };
    if json {
        // What the search answers, and beside each hit what speaks for it.
        for tool in found.json["tools"].as_array_mut().into_iter().flatten() {
            let reason = reasons.iter().find(|reason| tool["id"] == reason.id.as_str());
            tool["why"] = reason.map(reason_json).unwrap_or_default();
        }
        writeln!(out, "{:#}", found.json)?;
        return Ok(Exit::Success);
    }
    for reason in &reasons {
        let id = render::visible(&reason.id);
        let sure = reason.confidence.map(|chance| format!("  {:.0}% sure", chance * 100.0));
        writeln!(out, "{}{}", render::styled(render::BOLD, &id), sure.unwrap_or_default())?;
        let words: Vec<String> =
            reason.words.iter().map(|(word, rarity)| format!("{word} ({rarity:.1})")).collect();
        let words = if words.is_empty() { "none".to_owned() } else { words.join(", ") };
        writeln!(out, "  words in common, by rarity: {}", render::visible(&words))?;
        let Some(numbers) = numbers(reason) else {
            writeln!(out, "  not among the best fifty, so no close look")?;
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

/// What the close look saw, each number with what it adds to the score.
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
    request: Request,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let is_of_one = request.server.is_some();
    let found = gateway::with(loaded, async |gateway| {
        first_lists(gateway, &request).await;
        gateway.view.discover(request).await
    })?;
    let found = match found {
        Ok(found) => found,
        Err(finished) => return call::show(&gateway::result(finished)?, json, out),
    };
    if json {
        writeln!(out, "{:#}", found.json)?;
    } else {
        writeln!(out, "{}", found.text.trim_end())?;
    }
    // The one server that was asked about is not there to answer.
    let has = |name: &str| found.json[name].as_array().is_some_and(|all| !all.is_empty());
    Ok(if is_of_one && has("failed") && !has("tools") { Exit::Unavailable } else { Exit::Success })
}

/// Waits for servers that never listed their tools, as far as the request is about them, and says so on a terminal.
async fn first_lists(gateway: &Gateway, request: &Request) {
    if request.is_overview() {
        return;
    }
    gateway.catalog.loaded().await;
    let (servers, snapshot) = (gateway.router.servers(), gateway.catalog.snapshot());
    let mut waiting: Vec<_> = servers
        .iter()
        .filter(|entry| entry.config.is_enabled() && snapshot.known(entry.id).is_none())
        .filter(|entry| request.server.as_deref().is_none_or(|name| name == &*entry.name))
        .map(|entry| {
            let (view, name) = (gateway.view.clone(), entry.name.to_string());
            let shown = render::visible(&name);
            (shown, task::spawn("list", async move { view.make_known(&name).await }))
        })
        .collect();
    let mut terminal = Some(std::io::stderr()).filter(IsTerminal::is_terminal);
    let mut show = |line: &str| {
        if let Some(terminal) = &mut terminal {
            // A terminal that went away is no reason to stop.
            let _nobody_looks = terminal.write_all(line.as_bytes()).and_then(|()| terminal.flush());
        }
    };
    let limit = tokio::time::Instant::now() + gateway::PATIENCE;
    while let Some((name, listing)) = waiting.pop() {
        let others = waiting.iter().filter(|(_, listing)| !listing.is_finished()).count();
        let others = if others == 0 { String::new() } else { format!(" and {others} more") };
        show(&format!("\r\x1b[Kwaiting for {name}{others}, started for the first time"));
        if tokio::time::timeout_at(limit, listing).await.is_err() {
            break;
        }
    }
    show("\r\x1b[K");
}
