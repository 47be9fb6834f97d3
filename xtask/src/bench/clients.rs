//! Several clients at once: what they cost together with the daemon and without, and what its connector costs a call.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use metamcp_testkit::census::{self, Process};
use metamcp_testkit::workspace::Server;
use metamcp_testkit::{Client, Workspace as Folder};
use serde_json::{Value, json};

use super::{Programs, numbers};
use crate::real;
use crate::tokens::place::Place;
use crate::tokens::servers::Servers;
use crate::tokens::tasks::site;
use crate::workspace::Workspace;

const CLIENTS: usize = 5;
/// How long a real server may take to start and answer, with many others starting beside it.
const PATIENCE: Duration = Duration::from_mins(3);
/// Memory is read until it changes by less than this part of it in a second.
const SETTLED: f64 = 0.01;
const MOST_READINGS: usize = 20;

/// How often each way is measured, in turns: medians of fewer vary by more than the difference.
const TURNS: usize = 9;
const STARTS: usize = 30;

/// Ten servers from npm and `PyPI` that all clients of a project may share.
const SHARED: [&str; 10] = [
    "everything",
    "filesystem",
    "memory",
    "mapbox",
    "time",
    "git",
    "fetch",
    "calculator",
    "sqlite",
    "word",
];
/// Keeps a client's thoughts, so that each client has one of its own.
const STATEFUL: &str = "thinking";

/// The loads of a warm call: name, bytes, calls in flight, calls.
const LOADS: [(&str, usize, usize, usize); 3] = [
    ("64 B, 1 in flight", 64, 1, 10_000),
    ("4 KB, 1 in flight", 4_096, 1, 5_000),
    ("64 B, 8 in flight", 64, 8, 30_000),
];

/// Which of the two parts are measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Parts {
    Memory,
    Warm,
    Both,
}

/// Adds the tables to the page and writes the numbers beside them as JSON.
pub(super) fn rows(
    workspace: &Workspace,
    programs: &Programs,
    folder: &Path,
    parts: Parts,
    page: &mut String,
) -> Result<()> {
    page.push_str("\n## Several clients at once\n");
    let mut told = json!({ "clients": CLIENTS });
    if parts != Parts::Warm {
        told["memory"] = memory_rows(workspace, programs, page)?;
    }
    if parts != Parts::Memory {
        told["connector"] = connector_rows(programs, page)?;
        told["warm"] = warm_rows(programs, page)?;
    }
    let file = folder.join("clients.json");
    std::fs::write(&file, format!("{told:#}\n"))?;
    say(&format!("the numbers are in {}", file.display()));
    Ok(())
}

/// Processes and memory of all clients with all their servers, with the daemon and without.
fn memory_rows(workspace: &Workspace, programs: &Programs, page: &mut String) -> Result<Value> {
    say(&real::install_listed(workspace)?);
    let servers = Servers::find(workspace)?;
    writeln!(
        page,
        "\n{CLIENTS} clients in one project, over stdio, each of which has called one tool of each of ten real servers from npm and PyPI.\n\
         Memory is proportional (Pss): what processes share is divided among them.\n\n\
         | servers | | processes | memory MB | of that gateway and connectors |\n|---|---|---|---|---|"
    )?;
    let mut stateful = SHARED;
    stateful[3] = STATEFUL;
    let mut told = Vec::new();
    for (what, names) in [
        ("ten that clients may share", &SHARED),
        ("the same, one of them kept per client", &stateful),
    ] {
        let mut both = Vec::new();
        for has_daemon in [false, true] {
            let way = if has_daemon { "one daemon" } else { "`--daemon off`" };
            say(&format!("{what}, {way}"));
            let cost = together(&servers, names, programs, has_daemon)?;
            let megabytes = |bytes: u64| bytes as f64 / 1e6;
            writeln!(
                page,
                "| {what} | {way} | {} | {:.0} | {:.1} |",
                cost.processes,
                megabytes(cost.bytes),
                megabytes(cost.ours)
            )?;
            both.push(cost);
        }
        let ratio = |of: fn(&Cost) -> f64| of(&both[1]) / of(&both[0]);
        writeln!(
            page,
            "| | with / without | **{:.2}** | **{:.2}** | |",
            ratio(|cost| cost.processes as f64),
            ratio(|cost| cost.bytes as f64)
        )?;
        told.push(json!({
            "servers": names,
            "off": both[0].to_json(),
            "daemon": both[1].to_json(),
            "memory_ratio": ratio(|cost| cost.bytes as f64),
        }));
    }
    Ok(told.into())
}

struct Cost {
    processes: usize,
    bytes: u64,
    /// Of processes of our own binary.
    ours: u64,
}

impl Cost {
    fn to_json(&self) -> Value {
        json!({ "processes": self.processes, "pss_bytes": self.bytes, "own_pss_bytes": self.ours })
    }
}

/// Starts the clients, lets each call each server, and looks at all processes.
fn together(
    servers: &Servers,
    names: &[&str],
    programs: &Programs,
    has_daemon: bool,
) -> Result<Cost> {
    let mut folder = Folder::new()?;
    if has_daemon {
        folder.with_daemon();
    }
    let place = Place::new(&folder.file("place"))?;
    place.commit("notes.txt", "one\n", "first")?;
    let address = site::serve("<html><body><p>One page.</p></body></html>")?;
    for name in names {
        folder.entry(name, servers.config(name, &place)?);
    }
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let client = Client::start(folder.command(&programs.metamcp)?)?;
        client.initialize(&json!({}), PATIENCE)?;
        for name in names {
            let (tool, args) = call(name, &place, &address)?;
            let answer = client.mcp_call_now(name, tool, &args, PATIENCE)?;
            let is_good = answer.result().is_some_and(|result| result["isError"] != true);
            ensure!(is_good, "client {number}, {name}: {}\n{}", answer.value, client.stderr());
        }
        clients.push(client);
    }
    let mut roots: Vec<u32> = clients.iter().map(Client::pid).collect();
    roots.extend(folder.daemons().iter().map(|daemon| daemon.pid));
    ensure!(!has_daemon || roots.len() > CLIENTS, "no daemon was started");
    Ok(settled(&folder, &roots, &programs.metamcp))
}

/// One tool of a server that works without a network and a key.
fn call(server: &str, place: &Place, address: &str) -> Result<(&'static str, Value)> {
    Ok(match server {
        "everything" => ("echo", json!({ "message": "hello" })),
        "filesystem" => ("list_directory", json!({ "path": place.files() })),
        "memory" => ("read_graph", json!({})),
        "mapbox" => {
            let at = |longitude: f64, latitude: f64| json!({ "longitude": longitude, "latitude": latitude });
            ("distance_tool", json!({ "from": at(13.4, 52.5), "to": at(2.35, 48.9) }))
        }
        "thinking" => (
            "sequentialthinking",
            json!({ "thought": "First.", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1 }),
        ),
        "time" => ("get_current_time", json!({ "timezone": "UTC" })),
        "git" => ("git_status", json!({ "repo_path": place.repository() })),
        "fetch" => ("fetch", json!({ "url": address })),
        "calculator" => ("calculate", json!({ "expression": "6*7" })),
        "sqlite" => ("list_tables", json!({})),
        "word" => ("list_available_documents", json!({ "directory": place.files() })),
        _ => return Err(anyhow::anyhow!("no call is known for {server:?}")),
    })
}

/// The cost once servers have stopped working off their start.
fn settled(folder: &Folder, roots: &[u32], program: &Path) -> Cost {
    let mut cost = cost(folder, roots, program);
    for _ in 0..MOST_READINGS {
        thread::sleep(Duration::from_secs(1));
        let before = std::mem::replace(&mut cost, self::cost(folder, roots, program)).bytes as f64;
        if (cost.bytes as f64 - before).abs() < before * SETTLED {
            return cost;
        }
    }
    cost
}

/// All processes below these roots, and those with the folder's mark or directory, wherever they were adopted.
fn cost(folder: &Folder, roots: &[u32], program: &Path) -> Cost {
    let below = roots.iter().flat_map(|root| census::descendants(*root));
    let mut all: Vec<Process> = folder.processes();
    all.extend(below);
    all.extend(census::all().into_iter().filter(|one| roots.contains(&one.pid)));
    all.sort_by_key(|one| one.pid);
    all.dedup_by_key(|one| one.pid);
    let mut cost = Cost { processes: 0, bytes: 0, ours: 0 };
    for process in all {
        // One that has exited and waits to be reaped has no memory.
        let Some(bytes) = census::proportional_bytes(process.pid) else { continue };
        cost.processes += 1;
        cost.bytes += bytes;
        let runs = std::fs::read_link(format!("/proc/{}/exe", process.pid));
        if runs.is_ok_and(|runs| runs == program) {
            cost.ours += bytes;
        }
    }
    cost
}

/// A folder with the trivial server, for each of the two ways.
fn ways(programs: &Programs) -> Result<[Folder; 2]> {
    let mut ways = [Folder::new()?, Folder::new()?];
    ways[1].with_daemon();
    for way in &mut ways {
        way.server("s0", Server::new(&programs.echo, &[]));
    }
    Ok(ways)
}

/// What a client's own process costs when a daemon runs, next to one that serves by itself.
fn connector_rows(programs: &Programs, page: &mut String) -> Result<Value> {
    say("the connector");
    let ways = ways(programs)?;
    // The daemon runs as long as this one is there.
    let first = Client::start(ways[1].command(&programs.metamcp)?)?;
    first.initialize(&json!({}), PATIENCE)?;
    let (mut starts, mut sizes) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..STARTS {
        for (at, way) in ways.iter().enumerate() {
            let command = way.command(&programs.metamcp)?;
            let begun = Instant::now();
            let client = Client::start(command)?;
            client.initialize(&json!({}), PATIENCE)?;
            starts[at].push(begun.elapsed().as_secs_f64() * 1e3);
            sizes[at]
                .push(census::proportional_bytes(client.pid()).context("it runs")? as f64 / 1e6);
        }
    }
    let [off, connector] = starts.map(median);
    let [own, thin] = sizes.map(median);
    writeln!(
        page,
        "\n| a client's process | `--daemon off` | connector to a running daemon |\n|---|---|---|\n\
         | start to the response to `initialize`, p50 | {off:.1} ms | **{connector:.1} ms** |\n\
         | its own memory (Pss) | {own:.1} MB | **{thin:.1} MB** |"
    )?;
    Ok(json!({
        "start_ms": { "off": off, "daemon": connector },
        "pss_mb": { "off": own, "daemon": thin },
    }))
}

/// A warm `mcp_call` through the connector and in a process of its own, in turns.
fn warm_rows(programs: &Programs, page: &mut String) -> Result<Value> {
    let ways = ways(programs)?;
    let first = Client::start(ways[1].command(&programs.metamcp)?)?;
    first.initialize(&json!({}), PATIENCE)?;
    writeln!(
        page,
        "\n| a warm `mcp_call` | `--daemon off` p50 | through the connector p50 | ratio | p99 ratio |\n|---|---|---|---|---|"
    )?;
    let mut told = Vec::new();
    for (name, payload, in_flight, calls) in LOADS {
        say(&format!("{name}, in turns"));
        let one = |way: &Folder| -> Result<Value> {
            let mut command: Command = way.command(&programs.client)?;
            command.args(["--payload", &payload.to_string()]);
            command.args(["--in-flight", &in_flight.to_string(), "--calls", &calls.to_string()]);
            numbers(command.args(["--gateway", "--"]).arg(&programs.metamcp))
        };
        let mut turns = Vec::new();
        for turn in 0..TURNS {
            // Alternate the order, because the first of two is often the slower one.
            turns.push(if turn % 2 == 0 {
                let off = one(&ways[0])?;
                [off, one(&ways[1])?]
            } else {
                let through = one(&ways[1])?;
                [one(&ways[0])?, through]
            });
        }
        let of = |value: &Value, name: &str| value[name].as_f64().unwrap_or(f64::NAN);
        let of_way = |at: usize| median(turns.iter().map(|turn| of(&turn[at], "p50_us")).collect());
        let ratio = |name: &str| {
            median(turns.iter().map(|[off, through]| of(through, name) / of(off, name)).collect())
        };
        let (off, through) = (of_way(0), of_way(1));
        let (p50, p99) = (ratio("p50_us"), ratio("p99_us"));
        writeln!(page, "| {name} | {off:.1} us | {through:.1} us | **{p50:.2}** | {p99:.2} |")?;
        told.push(json!({
            "load": name,
            "p50_us": { "off": off, "daemon": through },
            "p50_ratio": p50,
            "p99_ratio": p99,
        }));
    }
    Ok(told.into())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Progress is for people; a closed stderr is no reason to stop measuring.
fn say(what: &str) {
    drop(writeln!(io::stderr(), "bench: {what}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_call_for_every_server() {
        let folder = Folder::new().unwrap();
        let place = Place::new(&folder.file("place")).unwrap();
        for name in SHARED.iter().chain([&STATEFUL]) {
            assert!(call(name, &place, "http://127.0.0.1:9/").is_ok(), "{name}");
        }
        assert!(call("other", &place, "").is_err());
    }

    #[test]
    fn memory_is_that_of_the_whole_tree() {
        let folder = Folder::new().unwrap();
        let shell = "sleep 60 & sleep 60 & wait";
        let mut child = folder.command(Path::new("sh")).unwrap();
        let mut child = child.args(["-c", shell]).spawn().unwrap();
        let of_tree = || cost(&folder, &[child.id()], Path::new("/nowhere"));
        assert!(metamcp_testkit::eventually(PATIENCE, || of_tree().processes == 3));
        let cost = of_tree();
        assert!(cost.bytes > 0 && cost.ours == 0);
        drop(folder);
        child.wait().unwrap();
    }
}
