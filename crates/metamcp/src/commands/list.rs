//! `metamcp list` and `metamcp search`: what `mcp_discover` would say.

use std::io::Write;

use metamcp_core::discover::Request;
use metamcp_engine::config::Loaded;

use super::{call, gateway};
use crate::args::{ListArgs, SearchArgs};
use crate::exit::Exit;

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
    discover(loaded, request, args.json, out)
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
            gateway.surface.make_known(server).await;
        }
        gateway.surface.discover(request).await
    })?;
    match found {
        Ok(found) if json => writeln!(out, "{:#}", found.json)?,
        Ok(found) => writeln!(out, "{}", found.text.trim_end())?,
        Err(finished) => return call::show(&gateway::result(finished)?, json, out),
    }
    Ok(Exit::Success)
}
