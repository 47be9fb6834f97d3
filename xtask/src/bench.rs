//! The gateway's overhead compared with a direct call and a relay that only copies bytes, all in one run.
//! Owns: the rows and docs/benchmarks.md.      Never: fails because a number is bad; machines are shared and noisy.
//! In: release builds of the binary and the testkit's programs.  Out: a table on stdout and in docs/.
//! Tests: below; the measuring itself is in `metamcp-testkit/src/bench.rs`.

mod against;
mod clients;
mod fleet;
mod http;
mod observability;
pub(crate) mod packages;
mod remote;
mod search;
mod tool_surface;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use metamcp_testkit::DAEMON;
use serde_json::{Value, json};

use crate::run;
use crate::workspace::{FEATURES, Workspace};

/// Each route is measured this often, in turns, and the run with the lowest CPU time counts: noise only adds.
const ROUNDS: usize = 3;
/// The same with `--quick`.
const QUICK_ROUNDS: usize = 1;

/// One load, for all three routes.
struct Row {
    name: &'static str,
    payload: usize,
    in_flight: usize,
    children: usize,
    calls: usize,
    blob: bool,
}

const fn row(
    name: &'static str,
    payload: usize,
    in_flight: usize,
    children: usize,
    calls: usize,
) -> Row {
    Row { name, payload, in_flight, children, calls, blob: false }
}

const ROWS: &[Row] = &[
    row("64 B, 1 in flight", 64, 1, 1, 20_000),
    row("64 B, 8 in flight", 64, 8, 1, 60_000),
    row("64 B, 64 in flight", 64, 64, 1, 200_000),
    row("64 B, 64 in flight, 8 servers", 64, 64, 8, 200_000),
    row("4 KB, 1 in flight", 4096, 1, 1, 10_000),
    row("4 KB, 64 in flight", 4096, 64, 1, 50_000),
    row("64 KB, 1 in flight", 65_536, 1, 1, 2_000),
    row("64 KB, 8 in flight, 8 servers", 65_536, 8, 8, 4_000),
    row("1 MB, 1 in flight", 1_048_576, 1, 1, 100),
    Row {
        name: "10 MB result, 1 in flight",
        payload: 10_000_000,
        in_flight: 1,
        children: 1,
        calls: 20,
        blob: true,
    },
];

/// Paths of the built programs.
struct Programs {
    metamcp: PathBuf,
    client: PathBuf,
    echo: PathBuf,
    relay: PathBuf,
}

/// Appends rows to the page: the workspace, the programs, a folder, the rounds, the page.
type Section = fn(&Workspace, &Programs, &Path, usize, &mut String) -> Result<()>;

/// The sections after the loads, by the name `--only` takes.
const SECTIONS: &[(&str, Section)] = &[
    ("start", |_, programs, folder, rounds, page| small_rows(programs, folder, rounds, page)),
    ("code", |_, programs, folder, rounds, page| code_rows(programs, folder, rounds, page)),
    ("sandbox", |workspace, _, _, _, page| sandbox_rows(workspace, page)),
    ("vocabulary", |_, programs, folder, rounds, page| {
        tool_surface::rows(programs, folder, rounds, page)
    }),
    ("search", |_, programs, folder, rounds, page| search::rows(programs, folder, rounds, page)),
    ("tokens", |workspace, _, _, _, page| token_rows(workspace, page)),
    ("kill", |workspace, _, _, _, page| kill_rows(workspace, page)),
    ("http", http::rows),
    ("remote", remote::rows),
    ("observability", observability::rows),
    ("fleet", fleet::rows),
    ("clients", |workspace, programs, folder, _, page| {
        clients::rows(workspace, programs, folder, clients::Parts::Both, page)
    }),
    ("packages", |workspace, _, _, _, page| packages::rows(workspace, page)),
];

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let mut rounds = ROUNDS;
    let mut only: Vec<&str> = Vec::new();
    let (mut other, mut binary) = (None, None);
    let (mut clients, mut warm) = (false, false);
    let mut given = options.iter();
    while let Some(option) = given.next() {
        match option.as_str() {
            "--quick" => rounds = QUICK_ROUNDS,
            "--only" => only
                .push(given.next().context("--only needs part of a row's name, or a section's")?),
            "--against" => {
                other = Some(PathBuf::from(given.next().context("--against needs a binary")?));
            }
            "--binary" => {
                let path = given.next().context("--binary needs a binary")?;
                binary = Some(std::path::absolute(path)?);
            }
            "--fleet" => only.push("fleet"),
            "--clients" => clients = true,
            "--warm" => warm = true,
            other => bail!("bench does not know {other:?}"),
        }
    }
    // Of a build that is there already, with the programs beside it.
    let release = match binary.as_deref().and_then(Path::parent) {
        Some(folder) => folder.to_owned(),
        None => built(workspace)?,
    };
    let programs = Programs {
        metamcp: release.join("metamcp"),
        client: release.join("bench-client"),
        echo: release.join("echo-child"),
        relay: release.join("copy-relay"),
    };
    let folder = workspace.target.join("bench");
    std::fs::create_dir_all(&folder)?;
    let mut page = String::new();
    if clients || warm {
        let parts = if warm { clients::Parts::Warm } else { clients::Parts::Memory };
        let parts = if clients && warm { clients::Parts::Both } else { parts };
        clients::rows(workspace, &programs, &folder, parts, &mut page)?;
        io::stdout().write_all(page.as_bytes())?;
        return Ok(());
    }
    let is_wanted = |row: &&Row| only.is_empty() || only.iter().any(|part| row.name.contains(part));
    if let Some(other) = other {
        let rows: Vec<&Row> = ROWS.iter().filter(is_wanted).collect();
        against::rows(&programs, &other, &folder, &rows, &mut page)?;
        io::stdout().write_all(page.as_bytes())?;
        return Ok(());
    }
    head(&mut page);
    for row in ROWS.iter().filter(is_wanted) {
        // Progress is for people; a closed stderr is no reason to stop measuring.
        drop(writeln!(io::stderr(), "bench: {}", row.name));
        let routes = measure(&programs, &folder, row, rounds)?;
        page.push_str(&line(row, &routes));
    }
    for (name, rows) in SECTIONS {
        if only.is_empty() || only.contains(name) {
            drop(writeln!(io::stderr(), "bench: {name}"));
            rows(workspace, &programs, &folder, rounds, &mut page)?;
        }
    }
    if only.is_empty() {
        std::fs::write(workspace.root.join("docs/benchmarks.md"), &page)?;
    }
    io::stdout().write_all(page.as_bytes())?;
    Ok(())
}

fn built(workspace: &Workspace) -> Result<PathBuf> {
    let packages = ["build", "--release", "-p", "metamcp", "-p", "metamcp-testkit"];
    run::loud(workspace.cargo().args(packages).args(FEATURES))?;
    Ok(workspace.target.join("release"))
}

/// Best of several rounds for each route: direct, relay, metamcp.
fn measure(programs: &Programs, folder: &Path, row: &Row, rounds: usize) -> Result<[Value; 3]> {
    let config = servers(programs, folder, row.children, &[])?;
    let mut best = [Value::Null, Value::Null, Value::Null];
    for _ in 0..rounds {
        for (route, best) in best.iter_mut().enumerate() {
            let mut command = client(programs, folder, row);
            match route {
                0 => command.arg("--").arg(&programs.echo),
                1 => command.arg("--").arg(&programs.relay).arg(&programs.echo),
                _ => command
                    .args(["--gateway", "--children", &row.children.to_string(), "--"])
                    .arg(&programs.metamcp)
                    .args(["--config"])
                    .arg(&config),
            };
            let numbers = numbers(&mut command)?;
            let cost = |value: &Value| value["p50_us"].as_f64().unwrap_or(f64::MAX);
            if cost(&numbers) < cost(best) {
                *best = numbers;
            }
        }
    }
    Ok(best)
}

fn client(programs: &Programs, folder: &Path, row: &Row) -> Command {
    let mut command = Command::new(&programs.client);
    command
        .current_dir(folder)
        .env("METAMCP_HOME", folder.join("home"))
        .env(DAEMON.0, DAEMON.1)
        .args(["--payload", &row.payload.to_string()])
        .args(["--in-flight", &row.in_flight.to_string()])
        .args(["--calls", &row.calls.to_string()]);
    if row.blob {
        command.arg("--blob");
    }
    command
}

/// A configuration with this many echo servers.
fn servers(programs: &Programs, folder: &Path, count: usize, args: &[&str]) -> Result<PathBuf> {
    let entry = json!({ "command": programs.echo, "args": args });
    let servers: serde_json::Map<String, Value> =
        (0..count).map(|number| (format!("s{number}"), entry.clone())).collect();
    let path = folder.join(format!("servers-{count}-{}.json", args.len()));
    // All routes carry whole results; otherwise a long one would look cheap because only a part of it is sent.
    let config = json!({ "mcpServers": servers, "limits": { "maxResultBytes": 0 } });
    std::fs::write(&path, config.to_string())?;
    Ok(path)
}

fn numbers(command: &mut Command) -> Result<Value> {
    Ok(serde_json::from_str(run::quiet(command)?.trim())?)
}

fn head(page: &mut String) {
    page.push_str(concat!(
        "# Benchmarks\n\n",
        "Generated by `cargo xtask bench`, which measures three ways to call the same trivial server in one run: directly, ",
        "through a relay that only copies bytes, and through metamcp's `mcp_call`.\n",
        "Times are in microseconds, the best of several rounds, since noise only adds.\n",
        "Look at the ratios: machines differ, and this one is shared.\n",
        "CPU is metamcp's own CPU time per call, over all threads.\n\n",
        "| load | direct p50 | relay p50 | metamcp p50 | metamcp / relay | metamcp / direct | direct p99 | relay p99 | metamcp p99 | direct calls/s | relay calls/s | metamcp calls/s | relay CPU | metamcp CPU | metamcp RSS MB |\n",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    ));
}

fn line(row: &Row, [direct, relay, metamcp]: &[Value; 3]) -> String {
    let of = |value: &Value, name: &str| value[name].as_f64().unwrap_or(f64::NAN);
    format!(
        "| {} | {:.1} | {:.1} | {:.1} | **{:.2}** | {:.2} | {:.1} | {:.1} | {:.1} | {:.0} | {:.0} | {:.0} | {:.2} | {:.2} | {:.1} |\n",
        row.name,
        of(direct, "p50_us"),
        of(relay, "p50_us"),
        of(metamcp, "p50_us"),
        of(metamcp, "p50_us") / of(relay, "p50_us"),
        of(metamcp, "p50_us") / of(direct, "p50_us"),
        of(direct, "p99_us"),
        of(relay, "p99_us"),
        of(metamcp, "p99_us"),
        of(direct, "calls_per_s"),
        of(relay, "calls_per_s"),
        of(metamcp, "calls_per_s"),
        of(relay, "cpu_us_per_call"),
        of(metamcp, "cpu_us_per_call"),
        of(metamcp, "rss_kib") / 1024.0,
    )
}

/// Start-up, discovery and size: numbers without a relay to compare with.
fn small_rows(programs: &Programs, folder: &Path, rounds: usize, page: &mut String) -> Result<()> {
    let fifty = servers(programs, folder, 50, &[])?;
    let best = |name: &str, runs: &[Value]| {
        runs.iter().filter_map(|run| run[name].as_f64()).fold(f64::INFINITY, f64::min)
    };
    let (mut gateway, mut echo) = (Vec::new(), Vec::new());
    for _ in 0..rounds.max(3) * 2 {
        gateway.push(numbers(
            route(programs, folder, &["--startup"])
                .arg(&programs.metamcp)
                .arg("--config")
                .arg(&fifty),
        )?);
        echo.push(numbers(route(programs, folder, &["--startup"]).arg(&programs.echo))?);
    }
    let forty = servers(programs, folder, 10, &["--tools", "38"])?;
    let found = numbers(
        route(programs, folder, &["--discover", "--calls", "500"])
            .arg(&programs.metamcp)
            .arg("--config")
            .arg(&forty),
    )?;
    let size = std::fs::metadata(&programs.metamcp)?.len();
    page.push_str("\n| what | number |\n|---|---|\n");
    let startup = best("startup_us", &gateway);
    writeln!(
        page,
        "| start to the response to `initialize`, 50 servers configured | {:.1} ms ({:.1}x that of the trivial server) |",
        startup / 1000.0,
        startup / best("startup_us", &echo)
    )?;
    writeln!(
        page,
        "| resident memory at that point | {:.1} MB |",
        best("idle_rss_kib", &gateway) / 1024.0
    )?;
    writeln!(
        page,
        "| `mcp_discover` with a query over 400 tools of 10 servers, warm, p50 / p99 | {:.0} us / {:.0} us |",
        found["p50_us"].as_f64().unwrap_or(f64::NAN),
        found["p99_us"].as_f64().unwrap_or(f64::NAN)
    )?;
    writeln!(page, "| release binary | {:.1} MB |", size as f64 / 1e6)?;
    Ok(())
}

/// Code mode, compared with the same calls made one by one.
fn code_rows(programs: &Programs, folder: &Path, rounds: usize, page: &mut String) -> Result<()> {
    const ONE: &str = "return 1";
    const HUNDRED: &str =
        "for (let i = 0; i < 100; i++) await s0.echo({ text: 'x'.repeat(64) }); return 1";
    const PARALLEL: &str = "await parallel([...Array(100).keys()], () => s0.echo({ text: 'x'.repeat(64) }), 16); return 1";
    let config = servers(programs, folder, 1, &[])?;
    let best = |options: &[&str], name: &str, highest: bool| -> Result<f64> {
        let mut found = if highest { 0.0 } else { f64::INFINITY };
        for _ in 0..rounds.max(3) {
            let mut command = route(programs, folder, options);
            command.arg(&programs.metamcp).arg("--config").arg(&config);
            let number = numbers(&mut command)?[name].as_f64().unwrap_or(f64::NAN);
            found = if highest { number.max(found) } else { number.min(found) };
        }
        Ok(found)
    };
    let script = |code: &'static str, calls: &'static str| {
        ["--one-by-one", "--script", code, "--calls", calls]
    };
    page.push_str("\n## Code mode\n\n| what | number |\n|---|---|\n");
    let cold = best(&script(ONE, "1"), "first_us", false)?;
    let (warm, tail) = (
        best(&script(ONE, "1000"), "p50_us", false)?,
        best(&script(ONE, "1000"), "p99_us", false)?,
    );
    let hundred = best(&script(HUNDRED, "50"), "p50_us", false)?;
    let parallel = best(&script(PARALLEL, "50"), "p50_us", false)?;
    let called = best(&["--gateway", "--calls", "2000"], "p50_us", false)? * 100.0;
    let at_once =
        best(&["--script", ONE, "--in-flight", "4", "--calls", "2000"], "calls_per_s", true)?;
    writeln!(page, "| first script of a gateway, no idle worker | {:.1} ms |", cold / 1000.0)?;
    writeln!(
        page,
        "| a script without calls, in sequence, p50 / p99 | {warm:.0} us / {tail:.0} us |"
    )?;
    writeln!(page, "| scripts per second, four concurrently | {at_once:.0} |")?;
    writeln!(
        page,
        "| 100 sequential calls in a script, p50 | {:.1} ms, {:.0} us per call |",
        hundred / 1000.0,
        (hundred - warm) / 100.0
    )?;
    writeln!(
        page,
        "| 100 calls in a script, 16 concurrently, p50 | {:.1} ms |",
        parallel / 1000.0
    )?;
    writeln!(
        page,
        "| the same 100 calls by `mcp_call`, in sequence | {:.1} ms ({:.2}x that of the script) |",
        called / 1000.0,
        called / hundred
    )?;
    Ok(())
}

/// Code mode alone, compared with what the machine needs to start and to wake a process.
fn sandbox_rows(workspace: &Workspace, page: &mut String) -> Result<()> {
    let example = ["run", "--release", "-q", "-p", "metamcp-sandbox", "--example", "sandbox-bench"];
    let rows = run::quiet(workspace.cargo().args(example))?;
    page.push_str("\nThe sandbox alone, next to what it takes to start or wake a process on this machine:\n\n| what | number |\n|---|---|\n");
    page.push_str(&rows);
    Ok(())
}

/// Tokens of three tasks on real servers, counted by the test that runs them both ways.
fn token_rows(workspace: &Workspace, page: &mut String) -> Result<()> {
    run::loud(workspace.cargo().args(["xtask", "test", "--only", "real"]))?;
    run::loud(workspace.cargo().args([
        "test",
        "-q",
        "-p",
        "metamcp",
        "--test",
        "real",
        "scripts::data_heavy",
    ]))?;
    let rows = std::fs::read_to_string(workspace.target.join("tmp/code-tokens.md"))?;
    page.push_str("\n## Tokens saved by code mode\n\nRequest plus response, cl100k.\n\n| task, with the filesystem server from npm | tokens with `mcp_call` | with `mcp_execute` | saved |\n|---|---|---|---|\n");
    page.push_str(&rows);
    Ok(())
}

/// How soon nothing is left of a killed gateway, measured by the test that checks for leftovers.
fn kill_rows(workspace: &Workspace, page: &mut String) -> Result<()> {
    let test = "kill::killing_the_gateway";
    run::loud(workspace.cargo().args(["test", "-q", "-p", "metamcp", "--test", "promises", test]))?;
    let rows = std::fs::read_to_string(workspace.target.join("tmp/kill.md"))?;
    page.push_str("\n## Killing the gateway\n\n| what | median and spread |\n|---|---|\n");
    page.push_str(&rows);
    Ok(())
}

fn route(programs: &Programs, folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(&programs.client);
    command.current_dir(folder).env("METAMCP_HOME", folder.join("home")).env(DAEMON.0, DAEMON.1);
    command.args(options).arg("--");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_as_many_columns_as_the_head() {
        let mut page = String::new();
        head(&mut page);
        let columns = |line: &str| line.matches('|').count();
        let numbers = json!({"p50_us": 1.0, "p99_us": 2.0, "calls_per_s": 3.0, "cpu_us_per_call": 4.0, "rss_kib": 5});
        let line = line(&ROWS[0], &[numbers.clone(), numbers.clone(), numbers]);
        let separator = page.lines().last().expect("the head ends with a separator");
        assert_eq!(columns(line.trim_end()), columns(separator));
    }
}
