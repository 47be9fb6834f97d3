//! Metrics and telemetry where nobody else has to be installed: bounds, collectors that do not answer, the documentation.
//! Owns: what an operator sees, and what that may cost.      Never: decodes telemetry (`real/observability.rs` does).
//! In: real gateways, hostile names, dead and slow collectors.  Out: text, exit codes, times that are bounds.
//! Tests: these.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in what it calls as well")]

mod collectors;
mod documented;
mod names;
mod remote;
mod status;

use std::path::Path;
use std::time::Duration;

use metamcp_testkit::{Client, Workspace};
use serde_json::json;

/// A limit for what must happen but may be late on a busy machine: exceeding it means a hang, not slowness.
const PATIENCE: Duration = Duration::from_mins(1);

/// A client of a gateway with these flags and variables.
fn client(workspace: &Workspace, flags: &[&str], variables: &[(&str, &str)]) -> Client {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    command.args(flags).envs(variables.iter().copied());
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), PATIENCE).unwrap();
    client
}
