//! How long a gateway needs until it can search what is cached: `cold_load write TOOLS.jsonl HOME` makes a cache of a
//! catalog, `cold_load read HOME` reads it as a start does and prints tools and microseconds. Run by `cargo xtask eval`.

#![expect(clippy::disallowed_methods, reason = "benchmarks start and measure for themselves")]

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use metamcp_config::config::ServerConfig;
use metamcp_engine::catalog::schema_cache::SchemaCache;
use metamcp_engine::catalog::{Catalog, DefinitionId};
use metamcp_search::search::Strategy;
use metamcp_tools::tool::Listing;
use metamcp_types::moment::Moment;
use serde_json::{Value, json};

/// The servers of the cache, a line each.
const NAMES: &str = "servers.txt";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["write", tools, home] => write(&std::fs::read_to_string(tools)?, Path::new(home)),
        ["read", home] => read(Path::new(home)),
        _ => Err("usage: cold_load write TOOLS.jsonl HOME | cold_load read HOME".into()),
    }
}

fn write(text: &str, home: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let mut servers: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in text.lines() {
        let tool: Value = serde_json::from_str(line)?;
        let server = tool["server"].as_str().unwrap_or("tools").to_owned();
        servers.entry(server).or_default().push(json!({
            "name": tool["name"], "description": tool["description"], "inputSchema": tool["input_schema"],
        }));
    }
    let names: Vec<String> = servers.keys().cloned().collect();
    let catalog = catalog(home, &names.join("\n"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for (number, tools) in (0..).zip(servers.into_values()) {
        let mut listing = Listing::new();
        listing.page(json!({ "tools": tools }).to_string().as_bytes())?;
        let tools = Arc::new(listing.finish(None, None));
        runtime.block_on(async {
            catalog.listed(DefinitionId(number), Ok(tools), None, Moment::millis(1)).await;
            catalog.written().await;
        });
    }
    Ok(std::fs::write(home.join(NAMES), names.join("\n"))?)
}

fn catalog(home: &Path, names: &str) -> Arc<Catalog> {
    let catalog = Catalog::new(Some(SchemaCache::new(home)), Duration::from_hours(1));
    for (number, name) in (0..).zip(names.lines()) {
        catalog.add(DefinitionId(number), Arc::new(ServerConfig::stdio(name, "none", &[])));
    }
    Arc::new(catalog)
}

fn read(home: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let names = std::fs::read_to_string(home.join(NAMES))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let began = Instant::now();
    let catalog = catalog(home, &names);
    runtime.block_on(async {
        catalog.load();
        catalog.loaded().await;
    });
    let snapshot = catalog.snapshot();
    let index = snapshot.index();
    // The first search is part of it: what is made on first use is made here.
    let found = index.page("list open issues", Strategy::Hybrid, 0, 5, None);
    let micros = began.elapsed().as_micros();
    writeln!(io::stdout(), "{} {micros} {}", index.tool_count(), found.hits.len())?;
    Ok(())
}
