//! Rows over HTTP: metamcp's server and that of the official Rust SDK, under the same load in one run.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use metamcp_testkit::DAEMON;
use serde_json::Value;

use super::{Programs, numbers, servers};
use crate::run;
use crate::workspace::Workspace;

/// Concurrent connections, and requests per row.
const ROWS: [(usize, usize); 3] = [(1, 10_000), (8, 20_000), (64, 50_000)];

pub(super) fn rows(
    workspace: &Workspace,
    programs: &Programs,
    folder: &Path,
    rounds: usize,
    page: &mut String,
) -> Result<()> {
    let sdk = rust_sdk(workspace)?.join("rust-sdk-echo");
    let config = servers(programs, folder, 1, &[])?;
    page.push_str(concat!(
        "\n## Serving over HTTP\n\n",
        "`tools/call` of 64 B on keep-alive connections, each with its own session and one request in flight.\n",
        "metamcp forwards each to a server behind it, by `mcp_call`; the server built with the official Rust SDK answers itself.\n\n",
        "| connections | metamcp p50 | p99 | requests/s | CPU | Rust SDK p50 | p99 | requests/s | CPU | metamcp / SDK requests/s |\n",
        "|---|---|---|---|---|---|---|---|---|---|\n",
    ));
    for (connections, calls) in ROWS {
        // Progress is for people; a closed stderr is no reason to stop measuring.
        drop(writeln!(io::stderr(), "bench: HTTP, {connections} connections"));
        let load = |command: &mut Command| {
            command
                .current_dir(folder)
                .env("METAMCP_HOME", folder.join("home"))
                .env(DAEMON.0, DAEMON.1)
                .args(["--http", "/mcp", "--payload", "64"])
                .args(["--in-flight", &connections.to_string(), "--calls", &calls.to_string()]);
        };
        let mut best = [Value::Null, Value::Null];
        for _ in 0..rounds {
            for (route, best) in best.iter_mut().enumerate() {
                let mut command = Command::new(&programs.client);
                load(&mut command);
                if route == 0 {
                    command.args(["--gateway", "--"]).arg(&programs.metamcp);
                    command.arg("--config").arg(&config);
                    command.args(["--transport", "http", "--port", "{port}"]);
                    with_token(&mut command);
                } else {
                    command.arg("--").arg(&sdk).arg("{port}");
                }
                let found = numbers(&mut command)?;
                let speed = |value: &Value| value["calls_per_s"].as_f64().unwrap_or(0.0);
                if speed(&found) > speed(best) {
                    *best = found;
                }
            }
        }
        let of = |route: usize, name: &str| best[route][name].as_f64().unwrap_or(f64::NAN);
        let columns = |route: usize| {
            format!(
                "{:.0} | {:.0} | {:.0} | {:.1}",
                of(route, "p50_us"),
                of(route, "p99_us"),
                of(route, "calls_per_s"),
                of(route, "cpu_us_per_call")
            )
        };
        let ratio = of(0, "calls_per_s") / of(1, "calls_per_s");
        writeln!(page, "| {connections} | {} | {} | **{ratio:.2}** |", columns(0), columns(1))?;
    }
    let mut first = [f64::INFINITY; 2];
    for _ in 0..rounds.max(3) {
        for (first, form) in first.iter_mut().zip([None, Some("--events")]) {
            let mut command = Command::new(&programs.client);
            command.current_dir(folder).env("METAMCP_HOME", folder.join("home"));
            command.env(DAEMON.0, DAEMON.1);
            command.args(["--http", "/mcp", "--payload", "64", "--calls", "5000", "--gateway"]);
            command.args(form).arg("--").arg(&programs.metamcp).arg("--config").arg(&config);
            command.args(["--transport", "http", "--port", "{port}"]);
            with_token(&mut command);
            *first = first.min(numbers(&mut command)?["first_us"].as_f64().unwrap_or(f64::NAN));
        }
    }
    let [document, events] = first;
    writeln!(
        page,
        "\nFirst byte of a response, p50: {document:.0} us as a JSON document, {events:.0} us as an event stream."
    )?;
    Ok(())
}

/// Sets a token, as every client of a gateway sends one.
fn with_token(command: &mut Command) {
    command.env("BENCH_TOKEN", "a-token-for-measuring").args(["--token-env", "BENCH_TOKEN"]);
}

/// Where the SDK's server and client are built, in a target folder of their own.
pub(super) fn rust_sdk(workspace: &Workspace) -> Result<PathBuf> {
    let target = workspace.target.join("rust-sdk");
    run::loud(
        workspace
            .cargo()
            .args(["build", "--release", "--manifest-path", "bench/rust-sdk/Cargo.toml"])
            .arg("--target-dir")
            .arg(&target),
    )?;
    Ok(target.join("release"))
}
