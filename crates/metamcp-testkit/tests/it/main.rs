//! The testkit's programs, run as processes and spoken to by its client.
#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
#![expect(
    clippy::unwrap_used,
    reason = "the whole file is a test, which clippy cannot see outside test functions"
)]

mod hazards;
mod honest;
mod programs;

use std::path::Path;
use std::time::Duration;

use metamcp_testkit::client::Answerer;
use metamcp_testkit::{Client, Journal, Workspace};
use serde_json::json;

/// Long enough for a busy machine; nothing here waits this long unless it is broken.
const PATIENCE: Duration = Duration::from_secs(30);

/// A chaos child spoken to directly, in a world of its own.
struct Direct {
    // Declared first, so the process is gone before the workspace looks for survivors.
    client: Client,
    journal: Journal,
    workspace: Workspace,
}

fn direct(arguments: &[&str]) -> Direct {
    start(arguments, None)
}

fn start(arguments: &[&str], answerer: Option<Answerer>) -> Direct {
    let workspace = Workspace::new().unwrap();
    let journal = workspace.journal("child");
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_chaos-child"))).unwrap();
    command.args(arguments).arg("--journal").arg(journal.path());
    let client = match answerer {
        Some(answerer) => Client::start_answering(command, answerer).unwrap(),
        None => Client::start(command).unwrap(),
    };
    Direct { client, journal, workspace }
}

/// One that has shaken hands.
fn greeted(arguments: &[&str]) -> Direct {
    let direct = direct(arguments);
    direct.client.initialize(&json!({}), PATIENCE).unwrap();
    direct
}
