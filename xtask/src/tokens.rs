//! What the tool surface costs a model, in tokens: lists, answers of searches, and whole conversations.
//! Owns: the recorded listings and docs/tokens.md.      Never: fails because a goal is missed, unless asked with --check.
//! In: recorded listings, real servers in target/real, one binary or two.  Out: tables on stdout and in docs/, or JSON.
//! Tests: below and beside the parts; budgets without a second binary are in `crates/metamcp/tests/surface/tokens.rs`.

mod conversation;
mod discover;
mod gateway;
mod listing;
mod page;
pub(crate) mod place;
pub(crate) mod servers;
pub(crate) mod tasks;

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use metamcp_testkit::{Workspace as Config, listings};
use serde_json::{Map, Value, json};

use crate::workspace::Workspace;
use crate::{real, run};
use gateway::Counter;
use servers::Servers;

/// The parts, by the name `--only` takes.
const PARTS: [&str; 3] = ["list", "discover", "conversations"];

struct Options {
    record: bool,
    json: bool,
    check: bool,
    /// Shows every turn of the conversations on stderr.
    transcript: bool,
    against: Option<PathBuf>,
    binary: Option<PathBuf>,
    /// How often each conversation is held with each binary.
    rounds: usize,
    /// Parts, or words in the name of a conversation.
    only: Vec<String>,
}

/// A part that needs no conversation: its numbers for one binary.
type Measure = fn(&Path, &Bench) -> Result<Value>;

/// What every part needs.
struct Bench {
    servers: Servers,
    counter: Counter,
    /// Where homes and files are while something is measured.
    folder: PathBuf,
}

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let options = parsed(options)?;
    let binary = match &options.binary {
        Some(binary) => binary.clone(),
        None => built(workspace)?,
    };
    if options.rounds == 0 {
        bail!("--rounds needs at least one");
    }
    if options.record || options.wants("conversations") {
        say(&real::install_listed(workspace)?);
    }
    let bench = Bench {
        servers: Servers::find(workspace)?,
        counter: Counter::new()?,
        folder: workspace.target.join("tokens"),
    };
    if options.record {
        let recorded = bench.servers.record(&bench.folder)?;
        let tools: usize = recorded.iter().map(|listing| listing.tools.len()).sum();
        say(&format!("recorded {} servers with {tools} tools", recorded.len()));
        return Ok(());
    }
    let mut binaries = vec![absolute(&binary)?];
    if let Some(other) = &options.against {
        binaries.push(absolute(other)?);
    }
    let mut measured = measured(&binaries, &options, &bench)?.into_iter();
    let this = measured.next().unwrap_or_default();
    let other = measured.next();
    let goals = page::goals(&this, other.as_ref());
    let mut out = io::stdout();
    if options.json {
        let all = json!({ "this": this, "other": other, "goals": goals });
        writeln!(out, "{all:#}")?;
    } else {
        out.write_all(page::tables(&this, other.as_ref(), &goals).as_bytes())?;
    }
    if options.only.is_empty() {
        let text = page::page(&this, other.as_ref(), &goals)?;
        std::fs::write(workspace.root.join("docs/tokens.md"), text)?;
    }
    let missed: Vec<&str> =
        goals.iter().filter(|goal| !goal.is_met).map(|goal| goal.what.as_str()).collect();
    if options.check && !missed.is_empty() {
        bail!("missed: {}", missed.join("; "));
    }
    Ok(())
}

fn parsed(options: &[String]) -> Result<Options> {
    let mut parsed = Options {
        record: false,
        json: false,
        check: false,
        transcript: false,
        against: None,
        binary: None,
        rounds: 1,
        only: Vec::new(),
    };
    let mut given = options.iter();
    while let Some(option) = given.next() {
        let mut value = |what: &str| given.next().with_context(|| format!("{option} needs {what}"));
        match option.as_str() {
            "--record" => parsed.record = true,
            "--json" => parsed.json = true,
            "--check" => parsed.check = true,
            "--transcript" => parsed.transcript = true,
            "--against" => parsed.against = Some(PathBuf::from(value("a binary")?)),
            "--binary" => parsed.binary = Some(PathBuf::from(value("a binary")?)),
            "--rounds" => {
                parsed.rounds = value("a number")?.parse().context("--rounds needs a number")?;
            }
            "--only" => parsed.only.push(value("a part, or words of a conversation")?.clone()),
            other => bail!("tokens does not know {other:?}"),
        }
    }
    Ok(parsed)
}

impl Options {
    fn wants(&self, part: &str) -> bool {
        let all = self.only.is_empty();
        // A word that is no part is one of a conversation's name.
        let conversations =
            part == "conversations" && self.only.iter().any(|word| !PARTS.contains(&word.as_str()));
        all || conversations || self.only.iter().any(|word| word == part)
    }

    fn wants_conversation(&self, name: &str) -> bool {
        let mut words = self.only.iter().filter(|word| !PARTS.contains(&word.as_str())).peekable();
        words.peek().is_none() || words.any(|word| name.contains(word.as_str()))
    }
}

/// The debug builds of the gateway and of the program that replays listings.
fn built(workspace: &Workspace) -> Result<PathBuf> {
    run::loud(workspace.cargo().args(["build", "-p", "metamcp", "-p", "metamcp-testkit"]))?;
    Ok(workspace.target.join("debug/metamcp"))
}

/// All that is asked for, of each binary. They take turns, so that both meet the same noise of a shared machine.
fn measured(binaries: &[PathBuf], options: &Options, bench: &Bench) -> Result<Vec<Value>> {
    let mut all = vec![Map::new(); binaries.len()];
    let parts: [(&str, Measure); 2] = [("list", listing::measure), ("discover", discover::measure)];
    for (part, measure) in parts.into_iter().filter(|(part, _)| options.wants(part)) {
        for (binary, all) in binaries.iter().zip(&mut all) {
            all.insert(part.to_owned(), measure(binary, bench)?);
        }
    }
    if options.wants("conversations") {
        let mut rows = vec![Vec::new(); binaries.len()];
        for task in tasks::TASKS.iter().filter(|task| options.wants_conversation(task.name)) {
            let mut best = vec![Value::Null; binaries.len()];
            for _ in 0..options.rounds {
                for (binary, best) in binaries.iter().zip(&mut best) {
                    let row = tasks::run(task, binary, bench, options.transcript)?;
                    if best.is_null() || cost(&row) < cost(best) {
                        *best = row;
                    }
                }
            }
            rows.iter_mut().zip(best).for_each(|(rows, row)| rows.push(row));
        }
        for (rows, all) in rows.into_iter().zip(&mut all) {
            all.insert("conversations".to_owned(), Value::Array(rows));
        }
    }
    Ok(all.into_iter().map(Value::Object).collect())
}

/// Of several rounds the cheapest that did its task counts: a busy machine only adds questions while servers start.
fn cost(row: &Value) -> (bool, u64) {
    (row["done"] != true, row["tokens"].as_u64().unwrap_or(u64::MAX))
}

/// The gateway is started in a folder of its own.
fn absolute(binary: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(binary).with_context(|| format!("there is no {}", binary.display()))
}

/// A configuration with every recorded server, replayed.
fn replayed() -> Result<Map<String, Value>> {
    let mut config = Config::new()?;
    for listing in listings::recorded()? {
        config.server(&listing.name, listing.replayed());
    }
    let text = std::fs::read_to_string(config.write_config()?)?;
    let config: Value = serde_json::from_str(&text)?;
    config["mcpServers"].as_object().cloned().context("a configuration has servers")
}

/// Progress is for people; a closed stderr is no reason to stop.
fn say(text: &str) {
    drop(writeln!(io::stderr(), "tokens: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Options {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        parsed(&words).unwrap()
    }

    #[test]
    fn only_takes_parts_and_words_of_a_conversation() {
        let all = options(&[]);
        assert!(PARTS.iter().all(|part| all.wants(part)) && all.wants_conversation("weather"));
        let list = options(&["--only", "list"]);
        assert!(list.wants("list") && !list.wants("conversations"));
        let one = options(&["--only", "weather"]);
        assert!(one.wants("conversations") && !one.wants("discover"));
        assert!(one.wants_conversation("the weather") && !one.wants_conversation("a clock"));
        assert!(parsed(&["--agianst".to_owned()]).is_err());
    }
}
