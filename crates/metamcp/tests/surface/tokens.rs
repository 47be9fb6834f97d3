//! What the compact surface costs over the recorded listings of real servers; `cargo xtask tokens` measures the rest.

use std::path::Path;

use metamcp_testkit::{Answer, Client, Workspace, eventually, listings};
use serde_json::{Value, json};

use crate::gateway::HUNG;

/// The most that `tools/list` and the instructions may take, and what each server may add.
const LIST: usize = 450;
const PER_SERVER: usize = 6;
/// The most that an answer of `mcp_discover` may take, at the median and at the 95th percentile.
const MEDIAN: usize = 350;
const P95: usize = 700;

#[test]
fn lists_and_searches_over_real_servers_stay_within_their_budgets() {
    let counter = tiktoken_rs::cl100k_base().unwrap();
    let tokens = |text: &str| counter.encode_ordinary(text).len();
    let mut workspace = Workspace::new().unwrap();
    let recorded = listings::recorded().unwrap();
    for listing in &recorded {
        workspace.server(&listing.name, listing.replayed());
    }
    let command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    let client = Client::start(command).unwrap();
    let begun = client.initialize(&json!({}), HUNG).unwrap();
    let discover = |arguments: &Value| -> Answer {
        client.wait(client.call_tool("mcp_discover", arguments).unwrap(), HUNG).unwrap()
    };

    let list = client.ask("tools/list", &json!({}), HUNG).unwrap();
    let instructions = begun["instructions"].as_str().unwrap_or_default();
    let listed = tokens(list.raw_result().unwrap()) + tokens(instructions);
    let budget = LIST + PER_SERVER * recorded.len();
    assert!(listed <= budget, "{listed} of {budget} tokens for {} servers", recorded.len());

    // Once every server is listed, answers no longer depend on the time.
    for listing in &recorded {
        let last = listing.tools.last().unwrap()["name"].as_str().unwrap();
        let arguments = json!({"server": listing.name, "limit": 100});
        let is_listed = eventually(HUNG, || {
            discover(&arguments).text().is_some_and(|text| text.contains(last))
        });
        assert!(is_listed, "{} was not listed", listing.name);
    }

    let mut costs: Vec<usize> = listings::questions()
        .unwrap()
        .iter()
        .map(|question| {
            let answer = discover(&json!({"query": question.words}));
            tokens(answer.text().unwrap())
        })
        .collect();
    costs.sort_unstable();
    let (median, p95) = (costs[costs.len() / 2], costs[costs.len() * 95 / 100]);
    assert!(median <= MEDIAN && p95 <= P95, "{median} at the median, {p95} at p95");
}
