//! Rows of a fleet: a call whose process is here, one whose process is on another gateway, and sessions after a kill.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use metamcp_testkit::bench::http::{bus_round_trip, continued, wait_for};
use metamcp_testkit::nats::Nats;
use metamcp_testkit::{DAEMON, census};
use serde_json::{Value, json};

use super::{Programs, numbers};
use crate::real;
use crate::workspace::Workspace;

/// Concurrent connections, and requests per row.
const ROWS: [(usize, usize); 3] = [(1, 5_000), (8, 20_000), (64, 50_000)];
/// Messages that measure the bus alone.
const MESSAGES: usize = 5_000;
/// Sessions that are continued after a kill.
const SESSIONS: usize = 5_000;
/// Who owns the process; the server is pinned to it.
const OWNER: &str = "owner";
const KEY: &str = "u8uBlFpHbYuV6J1m0bD2cQ3nS8X7kZ5yTqWvEo4fGhI=";
const TOKEN: &str = "a-token-for-measuring";

/// Where the measured gateway is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    /// It is no part of a fleet.
    Alone,
    /// It owns the process.
    Here,
    /// Another gateway owns it.
    There,
}

const ROUTES: [Route; 3] = [Route::Alone, Route::Here, Route::There];

/// What everything here needs.
struct Fleet<'a> {
    programs: &'a Programs,
    folder: &'a Path,
    nats: Nats,
    key: PathBuf,
    config: PathBuf,
}

pub(super) fn rows(
    workspace: &Workspace,
    programs: &Programs,
    folder: &Path,
    rounds: usize,
    page: &mut String,
) -> Result<()> {
    real::nats_server(workspace)?;
    let (key, config) = (folder.join("cluster-key"), folder.join("fleet.json"));
    std::fs::write(&key, KEY)?;
    let server = json!({ "command": programs.echo, "args": [], "share": "fleet", "pin": OWNER });
    std::fs::write(&config, json!({ "mcpServers": { "s0": server } }).to_string())?;
    let fleet = Fleet { programs, folder, nats: Nats::alone()?, key, config };
    let bus = bus_round_trip(fleet.nats.address(0), MESSAGES)?;
    page.push_str(concat!(
        "\n## A fleet\n\n",
        "`tools/call` of 64 B over HTTP, on keep-alive connections with one request in flight each: a gateway without a fleet, ",
        "one of a fleet that owns the server's process, and one whose calls travel to another that owns it.\n",
        "Three gateways and the bus share one machine; CPU is that of the gateway that was asked and of the one that ran the call.\n\n",
        "| connections | alone p50 | here p50 | here / alone | there p50 | there / (here + bus) | there calls/s | CPU alone | CPU here | CPU there: asked | CPU there: ran |\n",
        "|---|---|---|---|---|---|---|---|---|---|---|\n",
    ));
    for (connections, calls) in ROWS {
        // Progress is for people; a closed stderr is no reason to stop measuring.
        drop(writeln!(io::stderr(), "bench: fleet, {connections} connections"));
        let mut best = [Value::Null, Value::Null, Value::Null];
        for _ in 0..rounds {
            for (route, best) in ROUTES.into_iter().zip(best.iter_mut()) {
                let found = fleet.measure(route, connections, calls)?;
                let cost = |value: &Value| value["p50_us"].as_f64().unwrap_or(f64::MAX);
                if cost(&found) < cost(best) {
                    *best = found;
                }
            }
        }
        let of = |route: usize, name: &str| best[route][name].as_f64().unwrap_or(f64::NAN);
        let (alone, here, there) = (of(0, "p50_us"), of(1, "p50_us"), of(2, "p50_us"));
        writeln!(
            page,
            "| {connections} | {alone:.0} | {here:.0} | **{:.2}** | {there:.0} | **{:.2}** | {:.0} | {:.1} | {:.1} | {:.1} | {:.1} |",
            here / alone,
            there / (here + micros(bus)),
            of(2, "calls_per_s"),
            of(0, "cpu_us_per_call"),
            of(1, "cpu_us_per_call"),
            of(2, "cpu_us_per_call"),
            of(2, "owner_cpu_us_per_call"),
        )?;
    }
    writeln!(page, "\nThe bus alone: {:.0} us for 64 B there and back, p50.", micros(bus))?;
    let rate = (0..rounds.max(1)).map(|_| fleet.sessions()).collect::<Result<Vec<f64>>>()?;
    let rate = rate.into_iter().fold(0.0, f64::max);
    writeln!(
        page,
        "After a gateway was killed, another one continued {rate:.0} of its sessions a second (of {SESSIONS}, over 16 connections)."
    )?;
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl Fleet<'_> {
    fn measure(&self, route: Route, connections: usize, calls: usize) -> Result<Value> {
        let owner = match route {
            Route::There => Some(self.gateway(OWNER)?),
            Route::Alone | Route::Here => None,
        };
        let before = owner.as_ref().and_then(|owner| census::processor_time(owner.process.id()));
        let mut command = Command::new(&self.programs.client);
        command
            .current_dir(self.folder)
            .env("METAMCP_HOME", self.folder.join("home"))
            .env(DAEMON.0, DAEMON.1)
            .env("BENCH_TOKEN", TOKEN)
            .args(["--http", "/mcp", "--payload", "64"])
            .args(["--in-flight", &connections.to_string(), "--calls", &calls.to_string()])
            .args(["--gateway", "--"])
            .arg(&self.programs.metamcp)
            .args(["--transport", "http", "--port", "{port}", "--token-env", "BENCH_TOKEN"])
            .arg("--config")
            .arg(&self.config);
        match route {
            Route::Alone => {}
            Route::Here => self.member(&mut command, OWNER),
            Route::There => self.member(&mut command, "asked"),
        }
        let mut found = numbers(&mut command)?;
        if let (Some(owner), Some(before)) = (&owner, before)
            && let Some(after) = census::processor_time(owner.process.id())
        {
            found["owner_cpu_us_per_call"] =
                json!(micros(after.saturating_sub(before)) / calls as f64);
        }
        Ok(found)
    }

    /// What makes a gateway one of this fleet.
    fn member(&self, command: &mut Command, name: &str) {
        command.args(["--cluster", &self.nats.url(), "--cluster-lease", "3000"]);
        command.args(["--node-name", name]).arg("--cluster-key").arg(&self.key);
    }

    /// One that listens by itself.
    fn gateway(&self, name: &str) -> Result<Gateway> {
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = Command::new(&self.programs.metamcp);
        command
            .current_dir(self.folder)
            .env("METAMCP_HOME", self.folder.join(format!("home-{name}")))
            .env(DAEMON.0, DAEMON.1)
            .env("BENCH_TOKEN", TOKEN)
            .args(["--transport", "http", "--port", &address.port().to_string()])
            .args(["--token-env", "BENCH_TOKEN", "--config"])
            .arg(&self.config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.member(&mut command, name);
        let gateway = Gateway { process: command.spawn()?, address };
        wait_for(TOKEN, address)?;
        Ok(gateway)
    }

    /// Sessions continued a second.
    fn sessions(&self) -> Result<f64> {
        let (mut first, other) = (self.gateway("first")?, self.gateway("other")?);
        let address = first.address;
        continued(TOKEN, address, other.address, SESSIONS, || first.end())
    }
}

/// Killed on drop.
struct Gateway {
    process: Child,
    address: SocketAddr,
}

impl Gateway {
    fn end(&mut self) {
        // Both fail only if it has already exited.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.end();
    }
}
