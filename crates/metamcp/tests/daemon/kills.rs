//! kill -9 of daemons, connectors and servers under load: one verdict per request, nothing runs twice, nothing is left
//! behind, and every client goes on. `METAMCP_FULL=1` makes the promised thousand, `METAMCP_KILLS` any other number, and
//! `METAMCP_SEED` repeats a run.

mod load;

use std::collections::HashSet;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use metamcp_engine::runtime_folder::Places;
use metamcp_testkit::census::{self, ExitWatch, Process};
use metamcp_testkit::{
    CallOutcome, Client, EventKind, Workspace, chaos_server, eventually, programs,
};
use metamcp_wire::local::{Accepted, Reply};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use self::load::{Load, Scope};

/// However busy the machine is, exceeding this means a hang.
const PATIENCE: Duration = Duration::from_mins(2);

/// However busy the machine is, a survivor after this long was not ended.
const STRICTLY_GONE: Duration = Duration::from_secs(10);

/// Kills of the usual run, and those that are promised.
const KILLS: (usize, usize) = (40, 1000);

/// At most this many answers between two kills.
const ANSWERS_BETWEEN_KILLS: usize = 80;

#[test]
fn kills_at_random_moments_cost_calls_but_never_a_verdict() {
    let mut rng = SeededRng::of("kills");
    let kills = kills();
    let load = load();
    let connectors = Connectors::of(&load.workspace);
    let began = Instant::now();
    let mut killed = [0; 4];
    let mut clients: Vec<Client> = std::thread::scope(|scope| {
        let threads: Vec<_> = load
            .seats
            .iter()
            .map(|seat| {
                let (mut rng, load, connectors) = (rng.derived(), &load, &connectors);
                scope.spawn(move || load.sit(seat, connectors, &mut rng))
            })
            .collect();
        // Now and then there is nothing to kill at the moment.
        for _ in 0..2 * kills {
            if killed.iter().sum::<usize>() >= kills {
                break;
            }
            // Some come one right after the other.
            let most = *rng.pick(&[3, ANSWERS_BETWEEN_KILLS]);
            let due = load.answered.load(Ordering::Relaxed) + rng.below(most);
            let goes_on = || load.answered.load(Ordering::Relaxed) >= due;
            if !eventually(PATIENCE, goes_on) {
                load.fault("nothing was answered any more".to_owned());
                break;
            }
            let way = rng.below(killed.len());
            let is_done = match way {
                0 => kill_daemon(&load, &mut rng),
                1 => kill_connector(&load, &mut rng),
                _ => kill_server(&load, &mut rng, way == 3),
            };
            killed[way] += usize::from(is_done);
        }
        load.is_over.store(true, Ordering::Relaxed);
        threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    let [daemons, sessions, servers, keepers] = killed;
    tell(format_args!(
        "killed {daemons} daemons, {sessions} connectors, {servers} servers, {keepers} keepers of servers in {:.1?}: {:?}",
        began.elapsed(),
        load.tally()
    ));
    assert_faultless(&load.faults());
    assert!(killed.iter().sum::<usize>() >= kills, "{killed:?}; the test shows little");
    assert_eq!(clients.len(), load.seats.len());
    let only = |process: &Process| process.command.contains(DAEMON);
    let one_daemon = || load.workspace.processes().iter().filter(|one| only(one)).count() == 1;
    assert!(eventually(STRICTLY_GONE, one_daemon), "{:?}", load.workspace.processes());
    // Of sessions that were killed nothing is left, so each that lives has one process of each server of its own.
    for (server, _) in load.servers.iter().filter(|(_, scope)| *scope == Scope::Session) {
        let journal = load.workspace.journal(server).path().display().to_string();
        let count = || {
            let mut all = load.workspace.processes_of(&programs::chaos_child());
            all.retain(|one| one.command.contains(&journal) && !is_descendant(one));
            all.len()
        };
        assert!(eventually(STRICTLY_GONE, || count() <= clients.len()), "{} {server}", count());
    }
    for client in &mut clients {
        client.close_input();
        let status = client.wait_exit(PATIENCE).unwrap();
        assert!(status.success(), "{status}; stderr:\n{}", client.stderr());
        assert_eq!(client.violations(), Vec::<String>::new());
    }
    let folder = load.workspace.project();
    let stopped = connectors.command(&folder).args(["daemon", "stop"]).output().unwrap();
    assert!(stopped.status.success(), "{stopped:?}");
    assert_eq!(load.workspace.survivors(STRICTLY_GONE), []);
}

#[test]
fn a_killed_connector_takes_its_own_servers_along_and_no_others() {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    for scope in [Scope::Machine, Scope::Project, Scope::Session] {
        // Deaf to the end of its input, with a child of its own: only being killed ends it.
        let server = chaos_server(&["ignore-end-of-input", "session-grandchild"]);
        workspace.server(scope.word(), server.setting("share", json!(scope.word())));
    }
    let folder = workspace.project();
    let connectors = Connectors::of(&workspace);
    let mut clients = [connectors.start(&folder), connectors.start(&folder)];
    let mut places: Vec<Vec<String>> = Vec::new();
    for (number, client) in clients.iter().enumerate() {
        places.push(run_everywhere(&workspace, client, &format!("first {number}")));
    }
    let [machine, project, session] = [0, 1, 2].map(|at| (&places[0][at], &places[1][at]));
    assert_eq!((machine.0, project.0), (machine.1, project.1), "these are shared");
    assert_ne!(session.0, session.1, "each has its own");
    // Calls in flight of a client that is gone keep nothing alive.
    for server in ["machine", "session"] {
        clients[0].mcp_call(server, "slow", &json!({"key": "long", "ms": 120_000})).unwrap();
        let began = || journalled(&workspace, server, "long").len() == 1;
        assert!(eventually(PATIENCE, began), "{server}");
    }
    let mut own = census::all();
    own.retain(|one| census::input(one.pid).as_ref() == Some(session.0));
    let more: Vec<Process> = own.iter().flat_map(|one| census::descendants(one.pid)).collect();
    assert!(!own.is_empty() && !more.is_empty(), "{own:?} {more:?}");
    own.extend(more);
    let watch = ExitWatch::over(&own);
    let struck = Instant::now();
    clients[0].signal(Signal::SIGKILL).unwrap();
    assert!(watch.all_ended_within(STRICTLY_GONE), "{own:?}");
    tell(format_args!(
        "the servers of a killed connector were gone after {:.1?}",
        struck.elapsed()
    ));
    clients[0].wait_exit(PATIENCE).unwrap();
    assert_eq!(run_everywhere(&workspace, &clients[1], "second"), places[1]);
    for scope in [Scope::Machine, Scope::Project] {
        assert_eq!(workspace.journal(scope.word()).count(EventKind::Start).unwrap(), 1);
    }
    assert_eq!(clients[1].violations(), Vec::<String>::new());
}

#[test]
fn a_killed_daemon_takes_every_server_along_and_calls_in_flight_have_one_verdict() {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    for scope in [Scope::Machine, Scope::Project, Scope::Session] {
        let hazards =
            ["ignore-end-of-input", "ignore-signals", "session-grandchild", "hang-after-effect"];
        let server = chaos_server(&hazards).argument("--only").argument("hang");
        workspace.server(scope.word(), server.setting("share", json!(scope.word())));
    }
    let folder = workspace.project();
    let connectors = Connectors::of(&workspace);
    let clients = [connectors.start(&folder), connectors.start(&folder)];
    for round in 0..2 {
        let mut hanging = Vec::new();
        for (number, client) in clients.iter().enumerate() {
            run_everywhere(&workspace, client, &format!("before {number} {round}"));
            for server in ["machine", "project", "session"] {
                let key = format!("hang {number} {round}");
                let id = client.mcp_call(server, "effect", &json!({"key": key})).unwrap();
                let began = || journalled(&workspace, server, &key).len() == 1;
                assert!(eventually(PATIENCE, began), "{server} {key}");
                hanging.push((client, server, key, id));
            }
        }
        let [daemon] = &daemons(&workspace)[..] else { panic!("{:?}", workspace.processes()) };
        let servers = census::descendants(daemon.pid);
        // Four servers, and a child of each.
        assert!(servers.len() >= 8, "{servers:?}");
        let watch = ExitWatch::over(&servers);
        census::kill_all(std::slice::from_ref(daemon));
        assert!(watch.all_ended_within(STRICTLY_GONE), "{:?}", workspace.processes());
        for (client, server, key, id) in hanging {
            let outcome = CallOutcome::of(&client.wait(id, PATIENCE).unwrap().value);
            assert_eq!(outcome.code(), Some("outcome_unknown"), "{server} {key}: {outcome}");
            assert_eq!(journalled(&workspace, server, &key).len(), 1, "{server} {key}");
        }
        for (number, client) in clients.iter().enumerate() {
            run_everywhere(&workspace, client, &format!("after {number} {round}"));
        }
        assert!(eventually(STRICTLY_GONE, || orphans(&workspace).is_empty()));
    }
    for client in &clients {
        assert_eq!(client.violations(), Vec::<String>::new());
        assert!(!client.stderr().contains("without"), "{}", client.stderr());
    }
}

#[test]
fn a_daemon_that_is_killed_before_it_is_ready_is_started_again() {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    workspace.server("machine", chaos_server(&[]));
    let client = Client::start(Connectors::of(&workspace).command(&workspace.project())).unwrap();
    let mut seen = HashSet::new();
    assert!(eventually(PATIENCE, || {
        for daemon in daemons(&workspace) {
            seen.insert(daemon.pid);
            census::kill_all(&[daemon]);
        }
        seen.len() >= 3
    }));
    client.initialize(&json!({}), PATIENCE).unwrap();
    let outcome = call(&client, "machine", "effect", &json!({"key": "after"}));
    assert_eq!(outcome, CallOutcome::Success);
    assert!(!client.stderr().contains("without"), "{}", client.stderr());
}

#[test]
fn a_daemon_outlives_the_connector_that_started_it_and_never_heard_that_it_is_ready() {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    let connectors = Connectors::of(&workspace);
    let folder = workspace.project();
    let (reader, writer) = io::pipe().unwrap();
    drop(reader);
    let mut daemon = connectors.command(&folder);
    daemon.args(["daemon", "run", "--home"]).arg(workspace.home().join(".metamcp"));
    let mut daemon = daemon.stdin(Stdio::null()).stdout(writer).spawn().unwrap();
    assert!(eventually(PATIENCE, || !workspace.daemons().is_empty()), "it ended");
    connectors.start(&folder);
    assert_eq!(daemons(&workspace).iter().map(|one| one.pid).collect::<Vec<_>>(), [daemon.id()]);
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}

#[test]
fn what_a_daemon_said_before_it_died_is_heard_to_the_end() {
    /// More than a connector reads at once, less than a socket holds.
    const LENGTH: usize = 100_000;
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    let run = workspace.runtime_folder().display().to_string();
    let places = Places::find_in(&workspace.home().join(".metamcp"), Some(&run)).unwrap();
    let held = places.hold().unwrap().unwrap();
    let listener = places.bind(&held).unwrap();
    let client = Client::start(Connectors::of(&workspace).command(&workspace.project())).unwrap();
    let mut stream = listener.accept().unwrap().0;
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let mut hear = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    hear();
    let accepted = Accepted { version: env!("CARGO_PKG_VERSION").into(), ..Accepted::default() };
    stream.write_all(&Reply::Accepted(accepted).to_line()).unwrap();
    let mut answer = |id: &Value, result: Value| {
        writeln!(stream, "{}", json!({"jsonrpc": "2.0", "id": id, "result": result})).unwrap();
    };
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let handshake = client.request("initialize", &params).unwrap();
    answer(&hear()["id"], json!({"protocolVersion": "2025-11-25", "capabilities": {}}));
    client.wait(handshake, PATIENCE).unwrap();
    let call = client.call_tool("effect", &json!({})).unwrap();
    let asked = hear();
    // While it stands still the daemon answers and dies, and the client says something that it cannot be told any more.
    let connector = Process { pid: client.pid(), parent: 0, state: 'S', command: String::new() };
    assert!(census::freeze(&connector));
    answer(&asked["id"], json!({"content": [{"type": "text", "text": "x".repeat(LENGTH)}]}));
    let ping = client.request("ping", &json!({})).unwrap();
    drop((lines, stream, listener, held));
    client.signal(Signal::SIGCONT).unwrap();
    let told = client.wait(call, PATIENCE).unwrap();
    assert_eq!(told.text().map(str::len), Some(LENGTH), "{}", CallOutcome::of(&told.value));
    assert!(client.wait(ping, PATIENCE).unwrap().result().is_some());
    assert_eq!(client.violations(), Vec::<String>::new());
}

/// What a daemon's command line contains, and that of the process between it and a server.
const DAEMON: &str = " daemon run ";
const KEEPER: &str = "metamcp-shim";

/// How many are asked for.
fn kills() -> usize {
    let said = |name: &str| std::env::var(name).ok().filter(|said| said != "0");
    let is_long = said("METAMCP_FULL").or_else(|| said("METAMCP_NIGHTLY")).is_some();
    let number = said("METAMCP_KILLS").and_then(|said| said.parse().ok());
    number.unwrap_or(if is_long { KILLS.1 } else { KILLS.0 })
}

/// Six clients in two folders, over servers of every scope.
fn load() -> Load {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    workspace.setting("pool", json!({"poolSize": 64, "cooldownMs": 500}));
    let other = workspace.file("other");
    std::fs::create_dir(&other).unwrap();
    let mut load = Load::new(workspace);
    for scope in [Scope::Machine, Scope::Project, Scope::Session] {
        let word = scope.word();
        let deaf = chaos_server(&["ignore-end-of-input", "session-grandchild"]);
        load.server(&format!("{word}-deaf"), scope, deaf);
        load.server(&format!("{word}-late"), scope, chaos_server(&["reply-late=10"]));
    }
    for _ in 0..4 {
        load.seat(load.workspace.project());
    }
    for _ in 0..2 {
        load.seat(other.clone());
    }
    load
}

/// The daemon, or one that is about to become it. Nothing of it may be left.
fn kill_daemon(load: &Load, rng: &mut SeededRng) -> bool {
    let found = daemons(&load.workspace);
    if found.is_empty() {
        return false;
    }
    let daemon = rng.pick(&found).clone();
    if rng.below(2) == 0 {
        // It starts nothing more, so the list is whole, shims included.
        kill(Pid::from_raw(i32::try_from(daemon.pid).unwrap()), Signal::SIGSTOP).ok();
    }
    let servers = census::descendants(daemon.pid);
    let watch = ExitWatch::over(&servers);
    let pid = daemon.pid;
    load.daemons.fetch_add(1, Ordering::Relaxed);
    census::kill_all(&[daemon]);
    if rng.below(3) == 0 {
        // The next one too, before it is ready: as often as not it has no lock and no socket yet.
        let next = || daemons(&load.workspace).into_iter().find(|one| one.pid != pid);
        let mut starting = None;
        eventually(STRICTLY_GONE, || {
            starting = next();
            starting.is_some()
        });
        load.daemons.fetch_add(starting.iter().len(), Ordering::Relaxed);
        census::kill_all(starting.as_slice());
    }
    if !watch.all_ended_within(STRICTLY_GONE) {
        load.fault(format!("of {servers:?} some outlived their daemon"));
    }
    // Includes what was started between the listing and the kill.
    let mut left = Vec::new();
    let is_clean = eventually(STRICTLY_GONE, || {
        left = orphans(&load.workspace);
        left.is_empty()
    });
    if !is_clean {
        load.fault(format!("without a daemon there are {left:?}"));
    }
    true
}

/// A connector: what only its client used ends with it.
fn kill_connector(load: &Load, rng: &mut SeededRng) -> bool {
    let seat = rng.pick(&load.seats);
    let mut life = seat.life.lock();
    let Some(victim) = life.take() else { return false };
    let own = load.own_processes(&victim.name);
    let watch = ExitWatch::over(&own);
    let process = Process { pid: victim.pid, parent: 0, state: 'R', command: victim.name.clone() };
    census::kill_all(&[process]);
    drop(life);
    if !watch.all_ended_within(STRICTLY_GONE) {
        load.fault(format!("of {own:?} some outlived the connector of {}", victim.name));
    }
    true
}

/// A server's process, or the shim that keeps it.
fn kill_server(load: &Load, rng: &mut SeededRng, is_keeper: bool) -> bool {
    let mut found = load.workspace.processes_of(&programs::chaos_child());
    found.retain(|one| !is_descendant(one));
    if found.is_empty() {
        return false;
    }
    let mut victim = rng.pick(&found).clone();
    if is_keeper {
        // If the shim is gone already, the server is about to go, and its parent is somebody else.
        let is_shim = |one: &Process| one.pid == victim.parent && one.command.contains(KEEPER);
        let Some(keeper) = census::all().into_iter().find(is_shim) else { return false };
        victim = keeper;
    }
    census::kill_all(&[victim]);
    true
}

fn is_descendant(process: &Process) -> bool {
    process.command.contains("--descendant")
}

fn daemons(workspace: &Workspace) -> Vec<Process> {
    let mut all = workspace.processes();
    all.retain(|one| one.command.contains(DAEMON));
    // What a daemon starts looks like it until it is what was started.
    let pids: HashSet<u32> = all.iter().map(|one| one.pid).collect();
    all.retain(|one| !pids.contains(&one.parent));
    all
}

/// Processes of servers that no living daemon has started.
fn orphans(workspace: &Workspace) -> Vec<Process> {
    let all = census::all();
    let find = |pid: u32| all.iter().find(|one| one.pid == pid);
    let is_kept = |process: &Process| {
        let mut at = Some(process);
        while let Some(one) = at {
            if one.state != 'Z' && one.command.contains(DAEMON) {
                return true;
            }
            at = find(one.parent).filter(|parent| parent.pid != one.pid);
        }
        false
    };
    let mut found = workspace.processes();
    // Connectors are ours.
    found.retain(|one| one.parent != std::process::id() && !is_kept(one));
    found
}

/// Runs something on every server, and returns which processes did it, by their input.
fn run_everywhere(workspace: &Workspace, client: &Client, key: &str) -> Vec<String> {
    let run = |server: &str| {
        let outcome = call(client, server, "effect", &json!({"key": key}));
        assert_eq!(outcome, CallOutcome::Success, "{server} {key}");
        let ran = journalled(workspace, server, key);
        let [place] = &ran[..] else { panic!("{server} ran {key} in {ran:?}") };
        place.clone()
    };
    ["machine", "project", "session"].map(run).to_vec()
}

/// The processes that ran this, by their input, in order.
fn journalled(workspace: &Workspace, server: &str, key: &str) -> Vec<String> {
    let ran = workspace.journal(server).of(EventKind::Execute).unwrap();
    let of_key = ran.into_iter().filter(|one| one.key.as_deref() == Some(key));
    of_key.map(|one| one.input.unwrap()).collect()
}

fn call(client: &Client, server: &str, tool: &str, args: &Value) -> CallOutcome {
    CallOutcome::of(&client.mcp_call_now(server, tool, args, PATIENCE).unwrap().value)
}

/// Commands of connectors. The config is written once: a file that is being written is another test's matter.
struct Connectors(Command);

impl Connectors {
    fn of(workspace: &Workspace) -> Connectors {
        let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
        command.env("METAMCP_HOME", workspace.home().join(".metamcp"));
        Connectors(command)
    }

    fn command(&self, folder: &Path) -> Command {
        let mut command = Command::new(self.0.get_program());
        command.env_clear().current_dir(folder);
        let set = self.0.get_envs().filter_map(|(name, value)| Some((name, value?)));
        command.envs(set);
        command
    }

    /// A client after its handshake.
    fn start(&self, folder: &Path) -> Client {
        let client = Client::start(self.command(folder)).unwrap();
        client.initialize(&json!({}), PATIENCE).unwrap();
        client
    }
}

/// Fails with the first few faults.
fn assert_faultless(faults: &[String]) {
    let shown: Vec<&String> = faults.iter().take(10).collect();
    assert!(faults.is_empty(), "{} faults, such as {shown:#?}", faults.len());
}

/// A figure for people; the assertions are separate.
fn tell(what: impl Display) {
    // A closed stderr loses a figure and nothing else.
    writeln!(io::stderr(), "[kills] {what}").ok();
}

/// A pseudo-random generator, repeatable by its seed.
struct SeededRng(u64);

impl SeededRng {
    fn of(test: &str) -> SeededRng {
        let given = std::env::var("METAMCP_SEED").ok().and_then(|seed| seed.parse().ok());
        let by_name = test.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let seed = given.unwrap_or(by_name);
        tell(format_args!("{test}: METAMCP_SEED={seed}"));
        SeededRng(seed)
    }

    fn derived(&mut self) -> SeededRng {
        SeededRng(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("it is below a usize")
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
