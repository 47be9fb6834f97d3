//! Rows toward a server over HTTP: what a call costs metamcp, and what it costs a client of the official Rust SDK that
//! talks to the same server directly.

use std::fs;
use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use metamcp_testkit::DAEMON;
use serde_json::{Value, json};

use super::http::rust_sdk;
use super::{Programs, numbers};
use crate::workspace::Workspace;

/// Concurrent calls, and calls per row.
const ROWS: [(usize, usize); 3] = [(1, 10_000), (8, 20_000), (64, 40_000)];
/// Bytes per call.
const PAYLOAD: usize = 64;
/// The most CPU time that metamcp may use, as a multiple of the client's.
const GOAL: f64 = 1.5;
/// How long the server may take to start listening. Only a broken one takes that long.
const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn rows(
    workspace: &Workspace,
    programs: &Programs,
    folder: &Path,
    rounds: usize,
    page: &mut String,
) -> Result<()> {
    let built = rust_sdk(workspace)?;
    let server = Server::start(&built.join("rust-sdk-echo"))?;
    let config = folder.join("servers-remote.json");
    let servers = json!({ "s0": { "url": server.address } });
    fs::write(&config, json!({ "mcpServers": servers }).to_string())?;
    let goal = format!("Goal for the last column: at most {GOAL}.\n\n");
    page.push_str(concat!(
        "\n## Calling a remote server\n\n",
        "Calls of 64 B to a server built with the official Rust SDK: by metamcp's `mcp_call`, and by a client of the same ",
        "SDK with nothing in between.\nCPU is what metamcp, or that client, spends per call.\n",
    ));
    page.push_str(&goal);
    page.push_str(concat!(
        "| in flight | SDK client p50 | p99 | calls/s | CPU | metamcp p50 | p99 | calls/s | CPU | metamcp / client CPU |\n",
        "|---|---|---|---|---|---|---|---|---|---|\n",
    ));
    for (in_flight, calls) in ROWS {
        // Progress is for people; a closed stderr is no reason to stop measuring.
        drop(writeln!(io::stderr(), "bench: remote, {in_flight} in flight"));
        let mut best = [Value::Null, Value::Null];
        for _ in 0..rounds {
            for (route, best) in best.iter_mut().enumerate() {
                let (calls, in_flight) = (calls.to_string(), in_flight.to_string());
                let mut command = match route {
                    0 => {
                        let mut command = Command::new(built.join("rust-sdk-client"));
                        command.args([&server.address, &calls, &in_flight, &PAYLOAD.to_string()]);
                        command
                    }
                    _ => {
                        let mut command = Command::new(&programs.client);
                        command
                            .args(["--payload", &PAYLOAD.to_string(), "--gateway"])
                            .args(["--in-flight", &in_flight, "--calls", &calls, "--"])
                            .arg(&programs.metamcp)
                            .arg("--config")
                            .arg(&config);
                        command
                    }
                };
                command.current_dir(folder).env("METAMCP_HOME", folder.join("home"));
                command.env(DAEMON.0, DAEMON.1);
                let found = numbers(&mut command)?;
                let cost = |value: &Value| value["cpu_us_per_call"].as_f64().unwrap_or(f64::MAX);
                if cost(&found) < cost(best) {
                    *best = found;
                }
            }
        }
        page.push_str(&line(in_flight, &best));
    }
    Ok(())
}

fn line(in_flight: usize, best: &[Value; 2]) -> String {
    let of = |route: usize, name: &str| best[route][name].as_f64().unwrap_or(f64::NAN);
    let mut line = format!("| {in_flight} |");
    for route in 0..2 {
        line.push_str(&format!(
            " {:.0} | {:.0} | {:.0} | {:.1} |",
            of(route, "p50_us"),
            of(route, "p99_us"),
            of(route, "calls_per_s"),
            of(route, "cpu_us_per_call")
        ));
    }
    let ratio = of(1, "cpu_us_per_call") / of(0, "cpu_us_per_call");
    line.push_str(&format!(" **{ratio:.2}** |\n"));
    line
}

/// The server that both clients call; killed when dropped.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(program: &Path) -> Result<Server> {
        let workspace = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let process = Command::new(program)
            .arg(workspace.port().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let server = Server { process, address: format!("http://{workspace}/mcp") };
        let began = Instant::now();
        while TcpStream::connect(workspace).is_err() {
            ensure!(began.elapsed() < PATIENCE, "the server does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A process that is already gone is fine.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_as_many_columns_as_its_head() {
        let numbers =
            json!({"p50_us": 1.0, "p99_us": 2.0, "calls_per_s": 3.0, "cpu_us_per_call": 4.0});
        let line = line(8, &[numbers.clone(), numbers]);
        assert_eq!(line, "| 8 | 1 | 2 | 3 | 4.0 | 1 | 2 | 3 | 4.0 | **1.00** |\n");
    }
}
