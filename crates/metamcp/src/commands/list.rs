//! `metamcp list` and `metamcp search`: what `mcp_discover` would say.

use std::io::Write;

use metamcp_core::discover::Request;
use metamcp_core::search::{FEATURE_NAMES, parts};
use metamcp_engine::config::Loaded;
use metamcp_engine::surface::discover::Why;
use serde_json::{Value, json};

use super::{call, gateway};
use crate::args::{ListArgs, SearchArgs};
use crate::exit::Exit;
use crate::render;

/// Servers, or the tools of one.
pub(crate) fn run(loaded: &Loaded, args: &ListArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let request = Request { server: args.server.clone(), limit: 100, ..Request::default() };
    discover(loaded, request, args.json, out)
}

/// Tools by what they do.
pub(crate) fn search(
    loaded: &Loaded,
    args: &SearchArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let request = Request {
        query: Some(args.query.join(" ")),
        server: args.server.clone(),
        limit: args.limit as usize,
        ..Request::default()
    };
    if args.why {
        return why(loaded, request, args.json, out);
    }
    discover(loaded, request, args.json, out)
}

/// The hits with what speaks for each, as the strategy `hybrid` sees it.
fn why(loaded: &Loaded, request: Request, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (query, server) = (request.query.clone().unwrap_or_default(), request.server.clone());
    let limit = request.limit;
    let found = gateway::with(loaded, async |gateway| {
        // Whatever it finds, it makes the servers known.
        gateway.view.discover(request).await?;
        Ok(gateway.view.why(&query, server.as_deref(), limit))
    })?;
    let reasons = match found {
        Ok(reasons) => reasons,
        Err(finished) => return call::show(&gateway::result(finished)?, json, out),
    };
    if json {
        let all: Vec<Value> = reasons.iter().map(reason_json).collect();
        writeln!(out, "{:#}", Value::from(all))?;
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
        let Some(features) = &reason.features else {
            writeln!(out, "  not among the best fifty, so no close look")?;
            continue;
        };
        let rows: Vec<Vec<String>> = FEATURE_NAMES
            .iter()
            .zip(features)
            .zip(parts(features))
            .map(|((name, value), adds)| {
                vec![
                    String::new(),
                    (*name).to_owned(),
                    format!("{value:.2}"),
                    format!("{adds:+.2}"),
                ]
            })
            .collect();
        render::table(out, &rows)?;
    }
    if reasons.is_empty() {
        writeln!(out, "nothing matches")?;
    }
    Ok(Exit::Success)
}

fn reason_json(reason: &Why) -> Value {
    let close = reason.features.map(|features| {
        let numbers = FEATURE_NAMES.iter().zip(features).zip(parts(&features));
        let named = numbers.map(|((name, value), adds)| {
            ((*name).to_owned(), json!({ "value": value, "adds": adds }))
        });
        Value::Object(named.collect())
    });
    json!({
        "id": reason.id,
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
    let found = gateway::with(loaded, async |gateway| {
        // Asked for one server, a person waits; a model would not.
        if let Some(server) = &request.server {
            gateway.view.make_known(server).await;
        }
        gateway.view.discover(request).await
    })?;
    match found {
        Ok(found) if json => writeln!(out, "{:#}", found.json)?,
        Ok(found) => writeln!(out, "{}", found.text.trim_end())?,
        Err(finished) => return call::show(&gateway::result(finished)?, json, out),
    }
    Ok(Exit::Success)
}
