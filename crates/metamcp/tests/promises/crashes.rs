//! Crashes after the effect: one outcome per call, no non-idempotent tool runs twice; and crash loops end.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use metamcp_testkit::chaos::fires_by_odds;
use metamcp_testkit::{CallOutcome, EventKind, Workspace, chaos_server, eventually};
use serde_json::json;

use crate::history::{History, Plan, Tool, assert_faultless};
use crate::world::{PATIENCE, SeededRng, call, size, start, stop, tell};

/// Calls and crashes of one round; the promise is ten rounds.
const CALLS: usize = 10_000;
const CRASHES: usize = 100;

/// Deadly calls among them: a few come so early in the life of a process that they have no effect yet.
const DEADLY: usize = 106;

/// A server may be started five times in thirty seconds: its first start and four crashes stay below that.
const CRASHES_PER_SERVER: usize = 3;

/// Of a thousand keys, how many are deadly.
const ODDS: u64 = 10;

/// How often a server may be started in how long.
const BURST: usize = 5;
const WINDOW: Duration = Duration::from_secs(30);

#[test]
fn thousands_of_calls_with_crashes_after_the_effect_have_one_verdict_each() {
    let mut rng = SeededRng::of("crashes");
    for round in 0..size(1, 10, 10) {
        let servers: Vec<String> =
            (0..DEADLY.div_ceil(CRASHES_PER_SERVER)).map(|n| format!("server-{n}")).collect();
        let seed = rng.next();
        let mut workspace = Workspace::new().unwrap();
        workspace.setting("pool", json!({"poolSize": servers.len()}));
        for server in &servers {
            // The first calls of each process are safe, so that a replay reaches a process that responds.
            let child = chaos_server(&["die-before-reply"])
                .argument("--odds")
                .argument(&ODDS.to_string())
                .argument("--seed")
                .argument(&seed.to_string())
                .argument("--after")
                .argument("8");
            workspace.server(server, child);
        }
        let client = start(&workspace);
        let plans = plans(&mut rng, &servers, seed);
        let began = Instant::now();
        let history = History::make(&client, plans.into_iter(), 128);
        let took = began.elapsed();
        let starts: usize = servers
            .iter()
            .map(|name| workspace.journal(name).count(EventKind::Start).unwrap())
            .sum();
        let crashes = starts - servers.len();
        tell(format_args!(
            "round {round}: {} calls with {crashes} crashes in {took:.1?}: {:?}",
            history.calls.len(),
            history.tally()
        ));
        assert_faultless(&history.faults(&workspace, &servers));
        assert_eq!(history.calls.len(), CALLS);
        assert!(crashes * 10 >= CRASHES * 9, "only {crashes} crashes; the test shows little");
        let fine = history.tally().get("fine").copied().unwrap_or(0);
        assert!(fine * 2 > CALLS, "most calls are not near a crash, and only {fine} were fine");
        stop(client, &workspace);
    }
}

/// Calls over all servers, some of them deadly, spread evenly over servers and time.
fn plans(rng: &mut SeededRng, servers: &[String], seed: u64) -> Vec<Plan> {
    let mut used = HashSet::new();
    let mut key = |deadly: bool, rng: &mut SeededRng| loop {
        let key = format!("{:x}", rng.next());
        if fires_by_odds(seed, &key, ODDS) == deadly && used.insert(key.clone()) {
            return key;
        }
    };
    let every = CALLS / DEADLY;
    (0..CALLS)
        .map(|n| {
            let deadly = n % every == every - 1 && n / every < DEADLY;
            let server = if deadly { n / every } else { n };
            let tool = if deadly { n / every } else { n / servers.len() };
            Plan {
                server: servers[server % servers.len()].clone(),
                tool: Tool::ALL[tool % Tool::ALL.len()],
                key: key(deadly, rng),
            }
        })
        .collect()
}

#[test]
fn a_server_that_crashes_at_start_is_started_five_times_in_half_a_minute() {
    let mut workspace = Workspace::new().unwrap();
    // The circuit breaker would open earlier; this test is about the restart limit.
    workspace.setting("pool", json!({"failureThreshold": 1000}));
    workspace.server("loop", chaos_server(&["exit-at-start"])).server("other", chaos_server(&[]));
    let client = start(&workspace);
    let starts = || workspace.journal("loop").count(EventKind::Start).unwrap();
    let began = Instant::now();
    let mut calls = 0;
    let mut refused = || {
        match call(&client, "loop", "effect", &json!({"key": format!("call-{calls}")})) {
            CallOutcome::GatewayError(error) => {
                assert_eq!(error.code, "server_unavailable", "{}", error.message);
                let words = error.whole["details"]["stderr"].to_string();
                assert!(words.contains("left-pad"), "no last words in {}", error.whole);
                assert!(error.message.contains("left-pad"), "{}", error.message);
                assert!(
                    error.retryable && error.whole["retry_after_ms"].is_u64(),
                    "{}",
                    error.whole
                );
            }
            other => panic!("a server that never starts answered: {other}"),
        }
        assert_eq!(call(&client, "other", "echo", &json!({"text": "hi"})), CallOutcome::Success);
        calls += 1;
    };
    // In longer runs, also the first start of the next window.
    for wanted in BURST..BURST + size(1, 2, 2) {
        let tried_again = eventually(PATIENCE, || {
            refused();
            starts() >= wanted
        });
        assert!(tried_again, "{} starts in the end", starts());
        // Further calls change nothing.
        (0..50).for_each(|_| refused());
        let made = starts();
        let windows = 1 + began.elapsed().as_secs() / WINDOW.as_secs();
        assert!(made as u64 <= BURST as u64 * windows, "{made} starts in {:?}", began.elapsed());
    }
    tell(format_args!(
        "{calls} calls in {:.1?} to a server that ends at once: {} starts",
        began.elapsed(),
        starts()
    ));
    stop(client, &workspace);
}

#[test]
fn frequent_evictions_are_no_crash_loop() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("brief", chaos_server(&[]).setting("lifecycle", json!("ephemeral")));
    let client = start(&workspace);
    for n in 0..12 {
        let key = format!("call-{n}");
        let outcome = call(&client, "brief", "effect", &json!({"key": key}));
        assert_eq!(outcome, CallOutcome::Success, "call {n}");
        // An immediate call may still find it alive, which is fine but proves nothing.
        assert!(
            eventually(PATIENCE, || workspace.processes().len() == 1),
            "only the gateway is left"
        );
    }
    assert_eq!(workspace.journal("brief").count(EventKind::Start).unwrap(), 12);
    stop(client, &workspace);
}
