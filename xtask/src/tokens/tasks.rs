//! Runs a conversation against one binary and says what it cost.
//! Owns: the list of conversations, which are in `tasks/`.      Never: decides what the model does next.
//! In: a task, a binary, real and replayed servers.  Out: turns, tokens, and whether the task was done.
//! Tests: each conversation ends with a check of its own; the rules it follows are tested in `conversation.rs`.

mod across;
mod data;
mod nothing_fits;
mod single;
pub(crate) mod site;

use std::path::Path;

use anyhow::Result;
use metamcp_testkit::listings;
use serde_json::{Map, Value, json};

use super::conversation::{Model, Turn, start_of};
use super::gateway::Gateway;
use super::place::Place;
use super::servers::Servers;
use super::{Bench, replayed};

/// The servers that run for real; every other recorded one is replayed, so that a search has a crowd to find them in.
const REAL: [&str; 9] = [
    "calculator",
    "everything",
    "fetch",
    "filesystem",
    "git",
    "memory",
    "sqlite",
    "thinking",
    "time",
];

/// One conversation: what there is, what the model does, and whether it was done.
pub(super) struct Task {
    pub(super) name: &'static str,
    pub(super) kind: &'static str,
    prepare: fn(&Place, &Servers) -> Result<()>,
    /// Fails where the task was not done in the end.
    talk: fn(&mut Model<'_>, &Place) -> Result<()>,
}

pub(super) const TASKS: &[Task] = &[
    single::A_LINE_IN_A_NOTE,
    single::THE_LAST_COMMITS,
    single::A_TIME_ELSEWHERE,
    single::A_FACT_TO_REMEMBER,
    single::A_WEB_PAGE,
    across::A_REPORT_FROM_THE_DATABASE,
    across::A_COMMIT_TO_REMEMBER,
    across::A_PAGE_INTO_THE_DATABASE,
    across::FILES_FROM_ROWS,
    data::AN_ERROR_IN_A_LONG_LOG,
    data::ERRORS_IN_MANY_FILES,
    data::SALES_BY_REGION,
    data::ONE_FILE_IS_MISSING,
    nothing_fits::THE_WEATHER,
    nothing_fits::MUSIC,
];

/// Every conversation begins cold: with an empty home, in which no server has been listed yet.
pub(super) fn run(task: &Task, binary: &Path, bench: &Bench, transcript: bool) -> Result<Value> {
    super::say(&format!("{}: {}", task.kind, task.name));
    let place = Place::new(&bench.folder)?;
    (task.prepare)(&place, &bench.servers)?;
    let gateway = Gateway::start(binary, &place, &servers(bench, &place)?, &[])?;
    let mut model = Model::new(&gateway, &bench.counter);
    let talked = (task.talk)(&mut model, &place);
    if transcript {
        model.turns.iter().for_each(show);
    }
    let [text, structured] = model.tokens();
    let searches = model.turns.iter().filter(|turn| turn.tool == "mcp_discover");
    let searching: usize = searches.map(|turn| turn.tokens[0]).sum();
    if let Err(why) = &talked {
        super::say(&format!("{} was not done: {why:#}", task.name));
    }
    Ok(json!({
        "name": task.name,
        "kind": task.kind,
        "turns": model.turns.len(),
        "tokens": text,
        "structured": structured,
        "searching": searching,
        "done": talked.is_ok(),
        "why": talked.err().map(|why| format!("{why:#}")),
    }))
}

fn servers(bench: &Bench, place: &Place) -> Result<Map<String, Value>> {
    let mut servers = replayed()?;
    for listing in listings::recorded()? {
        if REAL.contains(&listing.name.as_str()) {
            let entry = bench.servers.config(&listing.name, place)?;
            servers.insert(listing.name, entry);
        }
    }
    Ok(servers)
}

fn show(turn: &Turn) {
    let [text, structured] = turn.tokens;
    super::say(&format!(
        "  {} {} ({text} tokens, {structured} structured)\n{}\n",
        turn.tool,
        turn.arguments,
        start_of(&turn.answer)
    ));
}
