//! kill -9 of the gateway, of children, of the shims between them: nothing survives, nothing runs twice, no file is
//! corrupted.

use std::io::PipeWriter;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};

use metamcp_engine::catalog::schema_cache::{Lookup, SchemaCache};
use metamcp_testkit::census::{self, ExitWatch, Process};
use metamcp_testkit::{CallOutcome, Server, Workspace, chaos_server, eventually, programs};
use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;

use crate::history::{History, assert_faultless};
use crate::world::{
    CONTAINMENTS, PATIENCE, SeededRng, Spread, call, home, size, start_holding, stop, tell,
};

/// The number of children in the promise.
const CHILDREN: usize = 20;

/// However busy the machine is, a survivor after this long was not killed. The benchmark measures how soon they are
/// gone: `cargo xtask bench --only kill`.
const STRICTLY_GONE: Duration = Duration::from_secs(10);

/// At most this many calls between two kills.
const CALLS_BETWEEN_KILLS: usize = 400;

/// The file that the benchmark reads the figures from.
const FIGURES: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/kill.md");

#[test]
fn killing_the_gateway_leaves_no_process_no_second_execution_and_no_spoilt_cache() {
    let mut rng = SeededRng::of("kill gateway");
    let mut workspace = Workspace::new().unwrap();
    let servers = hostile_twenty(&mut workspace);
    let rounds = size(30, 300, 1000);
    let mut history = History::default();
    let (mut deaths, mut controls) = ([Vec::new(), Vec::new()], Vec::new());
    let mut most = 0;
    for round in 0..rounds {
        let way = round % CONTAINMENTS.len();
        let mut client = start_holding(&workspace, CONTAINMENTS[way]);
        // Some rounds kill while children start, some when most of them run: each is two processes at least.
        let wanted = match round % 3 {
            0 => rng.below(CHILDREN / 2),
            1 => rng.below(CHILDREN),
            _ => CHILDREN + 1 + rng.below(CHILDREN / 2),
        };
        let calls = History::make_many(&client, &servers, &mut rng, (4, 16), &|| false, |_| {
            eventually(PATIENCE, || workspace.processes().len() >= wanted);
            controls.push(Control::start().end());
            let known = workspace.processes();
            most = most.max(known.len());
            // How long the gateway itself takes to free its memory does not count.
            let others: Vec<Process> =
                known.iter().filter(|one| one.pid != client.pid()).cloned().collect();
            let vigil = ExitWatch::over(&others);
            let struck = Instant::now();
            client.signal(Signal::SIGKILL).unwrap();
            vigil.all_ended_within(STRICTLY_GONE);
            deaths[way].push(struck.elapsed());
            // Includes what was started between the listing and the kill.
            let survivors = workspace.survivors(STRICTLY_GONE.saturating_sub(struck.elapsed()));
            assert_eq!(survivors, [], "round {round}, with {} processes", known.len());
        });
        history.extend(calls);
        client.wait_exit(PATIENCE).unwrap();
        assert_valid_caches(&workspace, &servers);
    }
    let controls = Spread::of(controls);
    tell(format_args!("control, {CHILDREN} processes that end when a pipe closes: {controls}"));
    tell(format_args!("{} calls: {:?}", history.calls.len(), history.tally()));
    assert_faultless(&history.faults(&workspace, &servers));
    assert!(most > CHILDREN, "never more than {most} processes; the test shows nothing");
    let mut figures = format!(
        "| {CHILDREN} processes that end when a pipe closes, for comparison | {controls} |\n"
    );
    for (way, deaths) in CONTAINMENTS.iter().zip(deaths) {
        let deaths = Spread::of(deaths);
        tell(format_args!("kill -9, held by {way}, up to {most} processes: gone after {deaths}"));
        figures.push_str(&format!(
            "| `kill -9` of the gateway, held by {way}, up to {most} processes: all gone after | {deaths} |\n"
        ));
    }
    std::fs::write(FIGURES, figures).unwrap();
    assert_eq!(quarantined(&workspace), Vec::<String>::new());
}

#[test]
fn killing_children_and_their_keepers_costs_calls_but_never_an_answer() {
    let mut rng = SeededRng::of("kill children");
    for containment in CONTAINMENTS {
        kill_children(&mut rng, containment);
    }
}

fn kill_children(rng: &mut SeededRng, containment: &str) {
    let mut workspace = Workspace::new().unwrap();
    workspace.setting("pool", json!({"cooldownMs": 500}));
    // Each has a grandchild in a session of its own, which only its shim knows.
    let servers: Vec<String> = (0..8).map(|n| format!("server-{n}")).collect();
    for server in &servers {
        workspace.server(server, chaos_server(&["session-grandchild"]));
    }
    let client = start_holding(&workspace, containment);
    for server in &servers {
        assert_eq!(call(&client, server, "echo", &json!({"text": "warm"})), CallOutcome::Success);
    }
    let (over, made) = (AtomicBool::new(false), AtomicUsize::new(0));
    let until = || {
        made.fetch_add(1, Ordering::Relaxed);
        over.load(Ordering::Relaxed)
    };
    let mut kills = [0; 3];
    let mut history = History::make_many(&client, &servers, rng, (4, 8), &until, |rng| {
        // Few enough that no server counts as crash-looping.
        for _ in 0..size(12, 24, 24) {
            let due = made.load(Ordering::Relaxed) + rng.below(CALLS_BETWEEN_KILLS);
            assert!(eventually(PATIENCE, || made.load(Ordering::Relaxed) >= due));
            let leaders = leaders(&workspace);
            if leaders.is_empty() {
                continue;
            }
            let leader = rng.pick(&leaders).clone();
            let keeper = Process { pid: leader.parent, ..leader.clone() };
            // The gateway itself is never the parent: there is a shim in between.
            assert_ne!(keeper.pid, client.pid());
            let way = rng.below(3);
            kills[way] += 1;
            match way {
                0 => census::kill_all(&[leader]),
                1 => census::kill_all(&[keeper]),
                _ => census::kill_all(&[keeper, leader]),
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    tell(format_args!(
        "held by {containment}, killed {} children, {} keepers, {} pairs under {} calls: {:?}",
        kills[0],
        kills[1],
        kills[2],
        history.calls.len(),
        history.tally()
    ));
    history.calls.retain(|made| made.outcome().is_some());
    let warm = |fault: &String| !fault.contains("\"warm\"");
    let faults: Vec<String> =
        history.faults(&workspace, &servers).into_iter().filter(warm).collect();
    assert_faultless(&faults);
    // A crash may delay a server for the length of the restart window, and no longer.
    for server in &servers {
        let recovered = eventually(PATIENCE, || {
            call(&client, server, "echo", &json!({"text": "warm"})) == CallOutcome::Success
        });
        assert!(recovered, "{server} never came back");
    }
    // Every leader has one grandchild; more would be orphans of killed servers.
    let orphans = || {
        let all = workspace.processes();
        let descendants = all.iter().filter(|one| one.command.contains("--descendant")).count();
        descendants.saturating_sub(leaders(&workspace).len())
    };
    assert!(eventually(STRICTLY_GONE, || orphans() == 0), "{} orphans", orphans());
    stop(client, &workspace);
}

/// Twenty children of every kind that outlives its parent without containment.
pub(crate) fn hostile_twenty(workspace: &mut Workspace) -> Vec<String> {
    let never = |server: Server| server.argument("--only").argument("no such key");
    let hasty = |server: Server| server.setting("timeoutMs", json!(1000));
    let rarely = |server: Server| server.argument("--odds").argument("20");
    let mut add = |name: String, server: Server| {
        workspace.server(&name, server);
        name
    };
    let mut names = Vec::new();
    for n in 0..2 {
        let mut more = vec![
            add(format!("honest-{n}"), chaos_server(&[])),
            add(format!("setsid-{n}"), chaos_server(&["session-grandchild"])),
            // The hazard would end it in calls; only the daemon is wanted.
            add(format!("daemon-{n}"), never(chaos_server(&["daemon-holds-pipe"]))),
            add(format!("eof-deaf-{n}"), chaos_server(&["ignore-end-of-input"])),
            add(format!("term-deaf-{n}"), chaos_server(&["ignore-end-of-input", "ignore-signals"])),
            add(
                format!("all-deaf-{n}"),
                never(chaos_server(&[
                    "ignore-end-of-input",
                    "ignore-signals",
                    "session-grandchild",
                    "daemon-holds-pipe",
                ])),
            ),
            add(format!("stopped-{n}"), hasty(rarely(chaos_server(&["stop-itself"])))),
            add(format!("bomb-{n}"), chaos_server(&["fork-bomb=4"])),
            add(format!("dying-{n}"), rarely(chaos_server(&["die-before-reply"]))),
        ];
        names.append(&mut more);
    }
    for n in 0..2 {
        let name = format!("shell-{n}");
        let journal = workspace.journal(&name);
        // The shell stays, because there is another command after the server.
        let server = Server::new("/bin/sh", &["-c", "\"$0\" \"$@\"; exit 7"])
            .argument(&programs::chaos_child().to_string_lossy())
            .argument("--do")
            .argument("ignore-end-of-input,session-grandchild")
            .argument("--journal")
            .argument(&journal.path().to_string_lossy());
        workspace.server(&name, server);
        names.push(name);
    }
    assert_eq!(names.len(), CHILDREN);
    names
}

/// The servers' own processes, without what they started.
fn leaders(workspace: &Workspace) -> Vec<Process> {
    let program = programs::chaos_child().to_string_lossy().into_owned();
    let mut all = workspace.processes();
    all.retain(|one| one.command.starts_with(&program) && !one.command.contains("--descendant"));
    all
}

fn assert_valid_caches(workspace: &Workspace, servers: &[String]) {
    let cache = SchemaCache::new(&home(workspace));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis();
    for server in servers {
        match cache.read(server.as_str(), u64::try_from(now).unwrap()) {
            Ok(Lookup::Found(cached)) => assert!(!cached.tools.tools.is_empty(), "{server}"),
            Ok(Lookup::Missing) => {}
            Ok(Lookup::Quarantined { to, reason }) => {
                panic!("the cache of {server} was spoilt: {reason}; now at {}", to.display())
            }
            Err(error) => panic!("the cache of {server} cannot be read: {error:?}"),
        }
    }
}

/// Files in the home that the gateway quarantined as corrupt.
pub(crate) fn quarantined(workspace: &Workspace) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![home(workspace)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().contains(".corrupt-") {
                found.push(entry.path().display().to_string());
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
    }
    found
}

/// As many processes as the gateway has children, each exiting when a pipe closes: the time this machine needs at the
/// moment to wake and reap twenty processes, measured the same way.
struct Control {
    pipes: Vec<PipeWriter>,
    processes: Vec<Child>,
    directory: TempDir,
}

impl Control {
    fn start() -> Control {
        let directory = tempfile::tempdir().unwrap();
        let (mut pipes, mut processes) = (Vec::new(), Vec::new());
        for _ in 0..CHILDREN {
            let (reader, writer) = std::io::pipe().unwrap();
            let mut cat = Command::new("cat");
            cat.stdin(reader).stdout(Stdio::null()).current_dir(directory.path());
            processes.push(cat.spawn().unwrap());
            pipes.push(writer);
        }
        Control { pipes, processes, directory }
    }

    fn end(mut self) -> Duration {
        let known = census::of_test("no mark", self.directory.path());
        assert_eq!(known.len(), CHILDREN);
        let vigil = ExitWatch::over(&known);
        let began = Instant::now();
        self.pipes.clear();
        assert!(vigil.all_ended_within(PATIENCE));
        let took = began.elapsed();
        for process in &mut self.processes {
            process.wait().unwrap();
        }
        took
    }
}
