//! Every hazard, with one call and with many concurrent ones, beside a bystander server that must not be affected.
//!
//! The expectations are the testkit's table. Amounts are scaled for two cores; `METAMCP_NIGHTLY=1` runs them in full.
//! `METAMCP_ITEMS=endless-line,long-line` runs only these.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use metamcp_testkit::expectations::{LONG_TIMEOUT_MS, MANY};
use metamcp_testkit::{
    CallOutcome, Client, EXPECTATIONS, Expectation, ExpectedOutcome, Workspace, census,
    chaos_server,
};
use serde_json::{Value, json};

use crate::gateway::{HUNG, command, end};

/// Concurrent cases in each of the two tests: most of them wait rather than work.
const WORKERS: usize = 2;

/// Hazards that use a whole core or much memory. They run one after another.
const HEAVY: [&str; 8] = [
    "endless-line",
    "long-line",
    "deep-json",
    "progress-flood",
    "many-tools",
    "monstrous-schema",
    "stderr-flood",
    "eat-memory",
];

/// How far peak memory may exceed that of a warm gateway: one line at the limit of 16 MiB, once more while its buffer
/// grows, and nothing for the rest.
const GROWTH: u64 = 32 << 20;

/// Factor on all timeouts for the full run.
const IN_FULL: u32 = 10;

/// Pause between two calls to the bystander, so that it does not use much CPU.
const BYSTANDER_PACE: Duration = Duration::from_millis(10);

/// Start timeout for a server that never completes the handshake; all others get `PATIENT_START`.
const HASTY_START: u64 = 2_000;
const PATIENT_START: u64 = 45_000;

#[test]
fn one_call() {
    run_all("1 call", |expectation| lonely_in(expectation, "auto").map(Some));
}

#[test]
fn many_calls_at_once() {
    run_all("64 calls", |expectation| crowded(expectation).map(Some));
}

/// Root gets namespaces, other users do not: process hazards are tried without them as well.
#[test]
fn one_call_without_namespaces() {
    run_all("1 call without namespaces", |expectation| match expectation.hazard {
        "ignore-end-of-input"
        | "ignore-signals"
        | "stop-itself"
        | "session-grandchild"
        | "daemon-holds-pipe"
        | "fork-bomb"
        | "kill-parent"
        | "zombies"
        | "exit-politely"
        | "dump-core" => lonely_in(expectation, "shim").map(Some),
        _ => Ok(None),
    });
}

/// The measurements of one case, for the summary.
struct Report {
    expectation: &'static Expectation,
    growth: u64,
    /// The slowest response of the bystander.
    slowest: Duration,
    took: Duration,
}

/// One hazard with one call that must not run twice, and with one that may: two servers, so that neither is affected
/// by the circuit breaker of the other.
fn lonely_in(expectation: &'static Expectation, containment: &str) -> Result<Report> {
    let mut case = Case::start(expectation, &["effect", "effect_idempotent"], containment)?;
    let outcomes = case.beside_a_bystander(|client_of_case| {
        let once = client_of_case.call("effect", "k")?;
        if HEAVY.contains(&expectation.hazard) {
            // The memory promise is for one such server; two at once take twice as much.
            client_of_case.check(once, "k", &expectation.one)?;
        }
        let again = client_of_case.call("effect_idempotent", "k")?;
        Ok([
            client_of_case.check(once, "k", &expectation.one)?,
            client_of_case.check(again, "k", &expectation.idempotent)?,
        ])
    });
    let report = case.finish();
    let [once, again] = outcomes?;
    let report = report?;
    for (server, outcome, allowed) in [
        ("effect", once, &expectation.executions),
        ("effect_idempotent", again, &expectation.idempotent_executions),
    ] {
        let ran = case.workspace.journal(server).executions("k")?;
        ensure!(allowed.contains(&ran), "{server} ran {ran} times, which should be {allowed:?}");
        outcome.check_executions(ran).map_err(anyhow::Error::msg)?;
    }
    Ok(report)
}

/// One hazard with many calls, none of which may run twice.
fn crowded(expectation: &'static Expectation) -> Result<Report> {
    let mut case = Case::start(expectation, &["effect"], "auto")?;
    let keys: Vec<String> = (0..MANY).map(|number| format!("k{number}")).collect();
    let outcomes = case.beside_a_bystander(|client_of_case| {
        let calls = client_of_case.call_at_once("effect", &keys)?;
        let (mut outcomes, mut faults) = (Vec::new(), BTreeSet::new());
        for (key, call) in keys.iter().zip(calls) {
            match client_of_case.check(call, key, &expectation.many) {
                Ok(outcome) => outcomes.push((key, outcome)),
                Err(fault) => drop(faults.insert(format!("{fault:#}"))),
            }
        }
        ensure!(faults.is_empty(), "{}", Vec::from_iter(faults).join("\n  "));
        Ok(outcomes)
    });
    let report = case.finish();
    let outcomes = outcomes?;
    let report = report?;
    let successes = outcomes.iter().filter(|(_, it)| *it == CallOutcome::Success).count();
    let allowed = &expectation.many_successes;
    ensure!(allowed.contains(&successes), "{successes} succeeded, which should be {allowed:?}");
    let journal = case.workspace.journal("effect").executions_by_key()?;
    for (key, outcome) in outcomes {
        let ran = journal.get(key).copied().unwrap_or(0);
        ensure!(ran <= 1, "{key} ran {ran} times");
        outcome.check_executions(ran).map_err(anyhow::Error::msg).context(key.clone())?;
    }
    Ok(report)
}

struct Case {
    // Declared first, so the gateway is gone before the workspace kills the remaining processes.
    client: Client,
    workspace: Workspace,
    expectation: &'static Expectation,
    started: Instant,
    /// Memory when warm.
    resident: u64,
    bystander: Bystander,
}

/// The correct server behind the same gateway.
#[derive(Default)]
struct Bystander {
    calls: usize,
    slowest: Duration,
}

impl Bystander {
    /// One call, whose response must be its own text.
    fn watch(&mut self, client: &Client) -> Result<()> {
        self.calls += 1;
        let (key, asked) = (format!("b{}", self.calls), Instant::now());
        let answer = client
            .mcp_call_now("bystander", "effect", &json!({"key": key}), hung())
            .context("calling the bystander")?;
        let own = format!("done {key}");
        ensure!(answer.text() == Some(&own), "the bystander answered {key} with {}", answer.value);
        self.slowest = self.slowest.max(asked.elapsed());
        Ok(())
    }
}

impl Case {
    fn start(
        expectation: &'static Expectation,
        hostile: &[&str],
        containment: &str,
    ) -> Result<Case> {
        let started = Instant::now();
        let mut workspace = Workspace::new()?;
        for name in hostile {
            let server = chaos_server(&[&expectation.selection(in_full())]);
            workspace.server(name, server.setting("timeoutMs", json!(timeout_ms(expectation))));
        }
        workspace.server("bystander", chaos_server(&[]));
        let patience =
            if expectation.hazard == "never-initialize" { HASTY_START } else { PATIENT_START };
        workspace.setting("timeouts", json!({"connectTimeoutMs": patience}));
        workspace.setting("containment", json!(containment));
        let client = Client::start(command(&workspace))?;
        client.initialize(&json!({}), hung())?;
        let mut bystander = Bystander::default();
        bystander.watch(&client)?;
        // Warm now; a higher peak is caused by the hostile server.
        let resident = census::peak_resident_bytes(client.pid()).context("no gateway")?;
        bystander.slowest = Duration::ZERO;
        Ok(Case { client, workspace, expectation, started, resident, bystander })
    }

    /// Runs `work` while the bystander is called over and over.
    fn beside_a_bystander<T>(
        &mut self,
        work: impl FnOnce(&CaseClient<'_>) -> Result<T>,
    ) -> Result<T> {
        let (over, until_over) = mpsc::channel::<()>();
        let (client, bystander) = (&self.client, &mut self.bystander);
        let client_of_case = CaseClient { client, own_text: self.expectation.own_text };
        let (worked, watched) = thread::scope(|scope| {
            let watching = scope.spawn(move || {
                while until_over.recv_timeout(BYSTANDER_PACE) == Err(RecvTimeoutError::Timeout) {
                    bystander.watch(client)?;
                }
                bystander.watch(client)
            });
            let worked = work(&client_of_case);
            drop(over);
            (worked, watching.join().expect("the bystander's thread only returns"))
        });
        worked.and_then(|worked| watched.map(|()| worked))
    }

    /// Ends the gateway and checks everything that holds for every hazard.
    fn finish(&mut self) -> Result<Report> {
        let pong = self.client.ask("ping", &json!({}), hung())?;
        ensure!(pong.result() == Some(&json!({})), "ping was answered with {}", pong.value);
        let peak = census::peak_resident_bytes(self.client.pid()).context("no gateway")?;
        let growth = peak.saturating_sub(self.resident);
        // Otherwise the check for survivors would find nothing either.
        ensure!(self.workspace.processes().len() >= 2, "the census sees no children");
        let complaints = end(&mut self.client, &self.workspace);
        ensure!(complaints.is_empty(), "{}", complaints.join("\n  "));
        ensure!(growth <= GROWTH, "the gateway grew by {} KiB", growth >> 10);
        // A core file contains everything the process knew, including its secrets.
        let left = fs::read_dir(self.workspace.project())?.flatten().map(|entry| entry.file_name());
        let cores: Vec<_> =
            left.filter(|name| name.as_encoded_bytes().starts_with(b"core")).collect();
        ensure!(cores.is_empty(), "{cores:?} was left behind");
        let watched = self.workspace.journal("bystander").executions_by_key()?;
        ensure!(
            watched.len() == self.bystander.calls && watched.values().all(|&ran| ran == 1),
            "the bystander ran {watched:?} for {} calls",
            self.bystander.calls
        );
        let (slowest, took) = (self.bystander.slowest, self.started.elapsed());
        Ok(Report { expectation: self.expectation, growth, slowest, took })
    }
}

/// The client's side of a case.
struct CaseClient<'a> {
    client: &'a Client,
    own_text: bool,
}

impl CaseClient<'_> {
    /// Makes a call with a progress token, and returns its id.
    fn call(&self, server: &str, key: &str) -> Result<u64> {
        self.client.request("tools/call", &asking_for_progress(server, key))
    }

    /// Makes calls in one write, so that all of them are in flight when the hazard takes effect.
    fn call_at_once(&self, server: &str, keys: &[String]) -> Result<Vec<u64>> {
        let calls: Vec<Value> = keys.iter().map(|key| asking_for_progress(server, key)).collect();
        self.client.request_at_once("tools/call", &calls)
    }

    /// Waits for the response and checks it against the expectation.
    fn check(&self, call: u64, key: &str, expected: &ExpectedOutcome) -> Result<CallOutcome> {
        let answer = self.client.wait(call, hung())?;
        let outcome = CallOutcome::of(&answer.value);
        expected.check(&outcome).map_err(anyhow::Error::msg)?;
        if outcome == CallOutcome::Success && self.own_text {
            let own = format!("done {key}");
            ensure!(answer.text() == Some(&own), "the answer to {key} is {}", answer.value);
        }
        Ok(outcome)
    }
}

fn asking_for_progress(server: &str, key: &str) -> Value {
    json!({
        "name": "mcp_call",
        "arguments": {"server": server, "tool": server, "args": {"key": key}},
        "_meta": {"progressToken": format!("{server} {key}")},
    })
}

/// Runs a kind of case for every expectation, and fails with all faults.
fn run_all(kind: &str, run: fn(&'static Expectation) -> Result<Option<Report>>) {
    let started = Instant::now();
    let wanted = std::env::var("METAMCP_ITEMS").unwrap_or_default();
    let wanted: Vec<&str> = wanted.split(',').filter(|name| !name.is_empty()).collect();
    let (heavy, light): (Vec<_>, Vec<_>) = EXPECTATIONS
        .iter()
        .filter(|expectation| wanted.is_empty() || wanted.contains(&expectation.hazard))
        .partition(|expectation| HEAVY.contains(&expectation.hazard));
    let queues = [Mutex::new(heavy.into_iter()), Mutex::new(light.into_iter())];
    let (reports, faults) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            // The first worker takes the heavy ones, and then helps with the others.
            let queues = if worker == 0 { &queues[..] } else { &queues[1..] };
            let (reports, faults) = (&reports, &faults);
            scope.spawn(move || {
                for queue in queues {
                    loop {
                        let next = queue.lock().unwrap().next();
                        let Some(expectation) = next else { break };
                        match run(expectation) {
                            Ok(report) => reports.lock().unwrap().extend(report),
                            Err(fault) => faults.lock().unwrap().push(format!(
                                "{} ({}), which shall: {}\n  {fault:#}",
                                expectation.selection(in_full()),
                                kind,
                                expectation.why,
                            )),
                        }
                    }
                }
            });
        }
    });
    summarize(kind, &reports.into_inner().unwrap(), started.elapsed());
    let faults = faults.into_inner().unwrap();
    assert!(faults.is_empty(), "{} cases failed:\n{}", faults.len(), faults.join("\n"));
}

/// Timings that no assertion can require on a busy machine, for the reader of the log.
fn summarize(kind: &str, reports: &[Report], took: Duration) {
    let Some(longest) = reports.iter().max_by_key(|report| report.took) else { return };
    let Some(largest) = reports.iter().max_by_key(|report| report.growth) else { return };
    let Some(slowest) = reports.iter().max_by_key(|report| report.slowest) else { return };
    let text = format!(
        "{} cases with {kind} took {took:.1?}; the longest was {} ({:.1?}). \
         The gateway grew most in {} ({} KiB). \
         The bystander waited longest in {} ({:.0?}).",
        reports.len(),
        longest.expectation.hazard,
        longest.took,
        largest.expectation.hazard,
        largest.growth >> 10,
        slowest.expectation.hazard,
        slowest.slowest,
    );
    // A failed write does not matter.
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// In full, a million lines of one call precede the responses of the others.
fn timeout_ms(expectation: &Expectation) -> u64 {
    let patient = in_full() && expectation.timeout_ms == LONG_TIMEOUT_MS;
    if patient { expectation.timeout_ms * u64::from(IN_FULL) } else { expectation.timeout_ms }
}

fn hung() -> Duration {
    if in_full() { HUNG * IN_FULL } else { HUNG }
}

fn in_full() -> bool {
    std::env::var_os("METAMCP_NIGHTLY").is_some_and(|value| value == "1")
}
