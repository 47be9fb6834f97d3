//! Clients that call without a pause, and what each of them was told, compared with what was really run.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use metamcp_testkit::census::{Process, input};
use metamcp_testkit::{CallOutcome, Client, EventKind, Server, Workspace, eventually, programs};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Connectors, PATIENCE, SeededRng};

/// A connector sends a harmless request to so many daemons, and then takes it for what ends them.
const MOST_DAEMONS: usize = 3;

/// Requests of one client at a time.
const WINDOW: usize = 4;

/// What a client asks for.
#[derive(Clone, Debug)]
enum Asked {
    /// A tool of a server, with a key that is in its arguments, in the journal and in the right answer.
    Tool { server: String, tool: &'static str, key: String, ms: usize },
    /// What the connector may ask again: it is answered even though a daemon dies meanwhile.
    Harmless { method: &'static str, params: Value },
}

impl Asked {
    fn any(rng: &mut SeededRng, servers: &[(String, Scope)], key: String) -> Asked {
        let harmless = |method, params| Asked::Harmless { method, params };
        match rng.below(16) {
            0 => harmless("ping", json!({})),
            1 => harmless("tools/list", json!({})),
            2 => {
                let arguments = json!({"query": "change the world"});
                harmless("tools/call", json!({"name": "mcp_discover", "arguments": arguments}))
            }
            _ => {
                let server = rng.pick(servers).0.clone();
                let tool = *rng.pick(&["effect", "effect", "effect_idempotent", "echo", "slow"]);
                Asked::Tool { server, tool, key, ms: rng.below(30) }
            }
        }
    }

    fn send(&self, client: &Client) -> anyhow::Result<u64> {
        match self {
            Asked::Harmless { method, params } => client.request(method, params),
            Asked::Tool { server, tool, key, ms } => {
                let arguments = match *tool {
                    "echo" => json!({"text": key}),
                    "slow" => json!({"key": key, "ms": ms}),
                    _ => json!({"key": key}),
                };
                client.mcp_call(server, tool, &arguments)
            }
        }
    }

    /// Compares what the client was told with how often the tool ran.
    fn judge(&self, told: Option<&Told>, times: usize, daemons: usize) -> Result<(), String> {
        let Asked::Tool { tool, key, ms, .. } = self else {
            return match told {
                None | Some(Told { outcome: CallOutcome::Success, .. }) => Ok(()),
                Some(Told { outcome, .. })
                    if daemons >= MOST_DAEMONS && outcome.code() == Some("outcome_unknown") =>
                {
                    Ok(())
                }
                Some(told) => Err(format!("ended with {}", told.outcome)),
            };
        };
        // What reads only, or is idempotent by its own word, may be run again once.
        let most = if *tool == "effect" { 1 } else { 2 };
        if times > most {
            return Err(format!("more than {most}"));
        }
        let Some(Told { outcome, text }) = told else { return Ok(()) };
        match outcome {
            CallOutcome::Success => {
                let right = match *tool {
                    "echo" => key.clone(),
                    "slow" => format!("waited {ms} ms"),
                    _ => format!("done {key}"),
                };
                if text.as_deref() != Some(right.as_str()) {
                    return Err(format!("answered with {text:?}, which is another call's"));
                }
            }
            CallOutcome::GatewayError(error) => match error.code.as_str() {
                "outcome_unknown" | "server_unavailable" | "circuit_open" => {}
                other => return Err(format!("an unexpected {other}: {}", error.message)),
            },
            CallOutcome::Protocol { .. } | CallOutcome::ToolError => {
                return Err(format!("ended with {outcome}"));
            }
        }
        outcome.check_executions(times)
    }
}

/// What a client was told.
#[derive(Debug)]
struct Told {
    outcome: CallOutcome,
    text: Option<String>,
}

/// One request, by whom, and its end; `None` if its connector was killed first.
#[derive(Debug)]
struct Made {
    asked: Asked,
    told: Option<Told>,
    /// How many daemons were killed meanwhile.
    daemons: usize,
}

/// Who shares a process of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Machine,
    Project,
    Session,
}

impl Scope {
    pub(super) fn word(self) -> &'static str {
        match self {
            Scope::Machine => "machine",
            Scope::Project => "project",
            Scope::Session => "session",
        }
    }
}

/// A place from which one client after the other calls; a new one comes when the connector of the last was killed.
pub(super) struct Seat {
    pub(super) name: String,
    pub(super) folder: PathBuf,
    /// The client there now, as long as it may be killed.
    pub(super) life: Mutex<Option<Life>>,
}

/// One client, from its connector's start to its end.
#[derive(Clone, Debug)]
pub(super) struct Life {
    /// The beginning of all its keys.
    pub(super) name: String,
    pub(super) pid: u32,
}

/// Everything that happens under load.
pub(super) struct Load {
    pub(super) workspace: Workspace,
    pub(super) servers: Vec<(String, Scope)>,
    pub(super) seats: Vec<Seat>,
    /// Requests answered so far.
    pub(super) answered: AtomicUsize,
    /// Daemons killed so far.
    pub(super) daemons: AtomicUsize,
    pub(super) is_over: AtomicBool,
    history: Mutex<Vec<Made>>,
    faults: Mutex<Vec<String>>,
}

impl Load {
    pub(super) fn new(workspace: Workspace) -> Load {
        Load {
            workspace,
            servers: Vec::new(),
            seats: Vec::new(),
            answered: AtomicUsize::new(0),
            daemons: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            history: Mutex::default(),
            faults: Mutex::default(),
        }
    }

    pub(super) fn server(&mut self, name: &str, scope: Scope, server: Server) {
        self.workspace.server(name, server.setting("share", json!(scope.word())));
        self.servers.push((name.to_owned(), scope));
    }

    pub(super) fn seat(&mut self, folder: PathBuf) {
        let name = format!("seat{}", self.seats.len());
        self.seats.push(Seat { name, folder, life: Mutex::default() });
    }

    /// Calls from one seat until the load is over; then the last client there goes on alone with each server.
    pub(super) fn sit(
        &self,
        seat: &Seat,
        connectors: &Connectors,
        rng: &mut SeededRng,
    ) -> Option<Client> {
        for number in 0.. {
            let client = Client::start(connectors.command(&seat.folder)).unwrap();
            let life = Life { name: format!("{}.{number}", seat.name), pid: client.pid() };
            *seat.life.lock() = Some(life.clone());
            self.live(&client, &life, rng);
            let is_alive = seat.life.lock().take().is_some();
            self.check(&client, is_alive);
            if is_alive {
                // Either it is over, or the client ended by itself, which is a fault.
                return Some(client);
            }
        }
        None
    }

    /// One client: its only handshake, and calls to the end.
    fn live(&self, client: &Client, life: &Life, rng: &mut SeededRng) {
        if let Err(error) = client.initialize(&json!({}), PATIENCE) {
            if !eventually(PATIENCE, || client.has_ended()) {
                self.fault(format!("{life:?} got no answer to its handshake: {error:#}"));
            }
            return;
        }
        let mut open: VecDeque<(u64, usize, Asked)> = VecDeque::new();
        let (mut count, mut is_gone) = (0_usize, false);
        while !self.is_over.load(Ordering::Relaxed) && !client.has_ended() && !is_gone {
            let asked = Asked::any(rng, &self.servers, format!("{}-{count}", life.name));
            count += 1;
            let before = self.daemons.load(Ordering::Relaxed);
            match asked.send(client) {
                Ok(id) => open.push_back((id, before, asked)),
                Err(_) => {
                    // Nobody knows whether the connector has read it.
                    self.note(Made { asked, told: None, daemons: 0 });
                    is_gone = true;
                }
            }
            if open.len() >= WINDOW
                && let Some((id, before, asked)) = open.pop_front()
            {
                self.finish(client, id, before, asked);
            }
        }
        for (id, before, asked) in open {
            self.finish(client, id, before, asked);
        }
        if client.has_ended() || is_gone {
            return;
        }
        for (server, _) in &self.servers {
            let went_on = eventually(PATIENCE, || {
                let key = format!("{}-{count}", life.name);
                count += 1;
                let asked = Asked::Tool { server: server.clone(), tool: "echo", key, ms: 0 };
                match asked.send(client) {
                    Ok(id) => self.finish(client, id, 0, asked),
                    Err(_) => false,
                }
            });
            if !went_on {
                self.fault(format!("{life:?} never reached {server} again"));
            }
        }
    }

    /// Waits for the answer; whether it was a result.
    fn finish(&self, client: &Client, id: u64, before: usize, asked: Asked) -> bool {
        let told = match client.wait(id, PATIENCE) {
            Ok(answer) => {
                let outcome = CallOutcome::of(&answer.value);
                Some(Told { outcome, text: answer.text().map(str::to_owned) })
            }
            Err(error) => {
                // Only its own end excuses a missing response.
                if !client.has_ended() {
                    self.fault(format!("{asked:?} was never answered: {error:#}"));
                }
                None
            }
        };
        self.answered.fetch_add(1, Ordering::Relaxed);
        let is_result = told.as_ref().is_some_and(|told| told.outcome == CallOutcome::Success);
        let daemons = self.daemons.load(Ordering::Relaxed) - before;
        self.note(Made { asked, told, daemons });
        is_result
    }

    /// What a client has seen beside its answers.
    fn check(&self, client: &Client, is_alive: bool) {
        if is_alive && client.has_ended() {
            self.fault(format!("a connector ended by itself; stderr:\n{}", client.stderr()));
        }
        for violation in client.violations() {
            // A kill may come in the middle of a line.
            if is_alive || !violation.contains("ended inside a line") {
                self.fault(violation);
            }
        }
        if client.stderr().contains("without") {
            self.fault(format!("a client was served without the daemon: {}", client.stderr()));
        }
    }

    fn note(&self, made: Made) {
        self.history.lock().push(made);
    }

    pub(super) fn fault(&self, fault: String) {
        self.faults.lock().push(fault);
    }

    /// Outcomes counted by code.
    pub(super) fn tally(&self) -> BTreeMap<String, usize> {
        let mut tally = BTreeMap::new();
        for made in self.history.lock().iter() {
            let word = match made.told.as_ref().map(|told| &told.outcome) {
                None => "lost".to_owned(),
                Some(CallOutcome::GatewayError(error)) => error.code.clone(),
                Some(outcome) => outcome.to_string(),
            };
            *tally.entry(word).or_insert(0) += 1;
        }
        tally
    }

    /// The processes that have run something for this client alone.
    pub(super) fn own_processes(&self, life: &str) -> Vec<Process> {
        let mut inputs = HashSet::new();
        for (server, _) in self.servers.iter().filter(|(_, scope)| *scope == Scope::Session) {
            for record in self.workspace.journal(server).of(EventKind::Execute).unwrap() {
                if life_of(record.key.as_deref()) == Some(life) {
                    inputs.extend(record.input);
                }
            }
        }
        let mut alive = self.workspace.processes_of(&programs::chaos_child());
        alive.retain(|process| input(process.pid).is_some_and(|input| inputs.contains(&input)));
        alive
    }

    /// Everything that went wrong, by what clients saw and what servers did.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = std::mem::take(&mut *self.faults.lock());
        let mut executed: HashMap<(String, String), usize> = HashMap::new();
        for (server, scope) in &self.servers {
            let mut users: HashMap<String, HashSet<String>> = HashMap::new();
            for record in self.workspace.journal(server).of(EventKind::Execute).unwrap() {
                if let Some(user) = self.user(*scope, record.key.as_deref()) {
                    users.entry(record.input.unwrap_or_default()).or_default().insert(user);
                }
                let key = record.key.unwrap_or_default();
                *executed.entry((server.clone(), key)).or_insert(0) += 1;
            }
            let mixed = users.into_iter().filter(|(_, users)| users.len() > 1);
            faults.extend(
                mixed.map(|(at, users)| format!("a process of {server} at {at} served {users:?}")),
            );
        }
        let mut made = HashSet::new();
        for call in self.history.lock().iter() {
            let times = match &call.asked {
                Asked::Harmless { .. } => 0,
                Asked::Tool { server, key, .. } => {
                    let place = (server.clone(), key.clone());
                    let times = executed.get(&place).copied().unwrap_or(0);
                    made.insert(place);
                    times
                }
            };
            if let Err(fault) = call.asked.judge(call.told.as_ref(), times, call.daemons) {
                faults.push(format!("{:?} ran {times} times: {fault}", call.asked));
            }
        }
        let unknown = executed.keys().filter(|place| !made.contains(*place));
        faults.extend(
            unknown.map(|(server, key)| format!("{server} ran {key:?}, which nobody called")),
        );
        faults
    }

    /// Who a process of this scope belongs to, if it belongs to anybody.
    fn user(&self, scope: Scope, key: Option<&str>) -> Option<String> {
        let life = life_of(key)?;
        match scope {
            Scope::Machine => None,
            Scope::Session => Some(life.to_owned()),
            Scope::Project => {
                let seat = life.split('.').next()?;
                let seat = self.seats.iter().find(|known| known.name == seat)?;
                Some(seat.folder.display().to_string())
            }
        }
    }
}

fn life_of(key: Option<&str>) -> Option<&str> {
    Some(key?.split_once('-')?.0)
}
