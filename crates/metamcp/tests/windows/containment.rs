//! A gateway that is killed takes everything along that it started, however hostile.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use crate::world::{PATIENCE, User, program, said};

/// How often without the test command, which asks for 300.
const KILLS: usize = 20;

/// The misbehaving servers: beside the program, where the test command built both.
fn hostile() -> PathBuf {
    let beside = program().with_file_name("child-host.exe");
    let found = said("TEST_HOSTILE").unwrap_or(beside);
    assert!(found.is_file(), "build it first: cargo build -p metamcp-child --bin child-host");
    found
}

/// The processes that wrote themselves down in a folder and still run.
fn marked(mark: &Path) -> Vec<Pid> {
    let names = fs::read_dir(mark).unwrap().flatten().map(|entry| entry.file_name());
    let pids: Vec<Pid> =
        names.filter_map(|name| name.to_str()?.parse().ok()).map(Pid::from_u32).collect();
    if pids.is_empty() {
        return pids;
    }
    let mut system = System::new();
    let kind = ProcessRefreshKind::nothing();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
    // A pid may be another's by now.
    let is_ours = |pid: &Pid| {
        let name = system.process(*pid).map(|one| one.name().to_string_lossy().into_owned());
        name.is_some_and(|name| name.starts_with("child-host"))
    };
    pids.into_iter().filter(is_ours).collect()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "never happened: {what}");
        std::thread::yield_now();
    }
}

#[test]
fn nothing_survives_a_hard_kill() {
    let kills = said("TEST_KILLS").map_or(KILLS, |kills| {
        kills.to_str().and_then(|kills| kills.parse().ok()).expect("a number")
    });
    let hostile = hostile();
    let mut most = 0;
    let mut total = 0;
    for round in 0..kills {
        let mark = tempfile::tempdir().unwrap();
        let server =
            |behaviour: &str| json!({ "command": hostile, "args": [behaviour, mark.path()] });
        let is_tree = round % 25 == 0;
        let behaviour = if is_tree { "tree" } else { "pair" };
        let user = User::with_servers(&json!({ "one": server(behaviour), "two": server("pair") }));
        let mut client = user.client();
        client.initialize();
        client.begin_call("one", "x", &json!({}));
        client.begin_call("two", "x", &json!({}));
        // Some when everything runs, some while servers start, some before any does.
        let wanted = if is_tree { 8 } else { round % 4 };
        until("servers that run", || marked(mark.path()).len() >= wanted);
        let ran = marked(mark.path()).len();
        (most, total) = (most.max(ran), total + ran);
        client.child.kill().unwrap();
        client.child.wait().unwrap();
        until("the end of all", || marked(mark.path()).is_empty());
    }
    let counted = "gateways killed with their servers running, none of which survived";
    writeln!(io::stdout(), "counted: {kills} {counted} ({total} processes, {most} at most)").ok();
    assert!(most >= 8, "never more than {most} processes; the test shows nothing");
}
