//! What a client hands its model before the first turn: `tools/list` and the instructions, with every recorded server.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use metamcp_testkit::listings;
use serde_json::{Map, Value, json};

use super::gateway::Gateway;
use super::place::Place;
use super::{Bench, replayed};

/// The goal for the compact surface: so many tokens, and so many more a server.
pub(super) const GOAL: usize = 450;
pub(super) const GOAL_PER_SERVER: usize = 6;

/// Tokens of the list and of the instructions, by surface.
pub(super) fn measure(binary: &Path, bench: &Bench) -> Result<Value> {
    let servers = replayed()?;
    let mut surfaces = Map::new();
    for surface in ["compact", "full", "direct"] {
        super::say(&format!("tools/list, {surface}"));
        let place = Place::new(&bench.folder)?;
        let gateway = Gateway::start(binary, &place, &servers, &["--surface", surface])?;
        let list = if surface == "direct" { whole(&gateway)? } else { gateway.list()? };
        let instructions = &gateway.instructions;
        let tokens = [bench.counter.tokens(&list), bench.counter.tokens(instructions)];
        surfaces.insert(
            surface.to_owned(),
            json!({ "list": tokens[0], "instructions": tokens[1], "all": tokens[0] + tokens[1] }),
        );
    }
    Ok(json!({
        "servers": servers.len(),
        "goal": GOAL + GOAL_PER_SERVER * servers.len(),
        "surfaces": surfaces,
    }))
}

/// The list of the direct surface once every server is in it: those that are late are in the next one.
fn whole(gateway: &Gateway) -> Result<String> {
    let tools: usize = listings::recorded()?.iter().map(|listing| listing.tools.len()).sum();
    let mut found = 0;
    for _ in 0..60 {
        let list = gateway.list()?;
        let parsed: Value = serde_json::from_str(&list)?;
        found = parsed["tools"].as_array().map_or(0, Vec::len);
        if found >= tools {
            return Ok(list);
        }
        thread::sleep(Duration::from_millis(500));
    }
    ensure!(found >= tools, "direct mode lists {found} of {tools} tools");
    gateway.list()
}
