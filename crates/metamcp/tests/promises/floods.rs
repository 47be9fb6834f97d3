//! Children that write without limit: memory stays bounded, and nobody else is affected.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use metamcp_testkit::census::peak_resident_bytes;
use metamcp_testkit::{
    CallOutcome, Client, EventKind, Server, Workspace, chaos_server, eventually,
};
use serde_json::json;

use crate::world::{PATIENCE, Spread, call, size, start, stop, tell};

/// How many list-changed notifications a server sends in one go.
const CHANGES: usize = 100_000;

/// Maximum memory growth by a flood.
const GROWTH: u64 = 32 << 20;

#[test]
fn an_endless_line_costs_little_memory_and_nobody_else_anything() {
    // Ten gigabytes are announced; the gateway has to give up on the child long before.
    let outcome = under_flood("endless line", chaos_server(&["endless-line"]), "effect");
    assert_eq!(outcome.code(), Some("outcome_unknown"), "{outcome}");
}

#[test]
fn one_very_long_line_costs_little_memory_and_fails_only_its_own_call() {
    let bytes = 200_000_000;
    let outcome =
        under_flood("long line", chaos_server(&[&format!("long-line={bytes}")]), "effect");
    assert_eq!(outcome.code(), Some("limit_exceeded"), "{outcome}");
}

#[test]
fn a_flood_on_stderr_costs_little_memory() {
    let bytes = size(200_000_000, 1_000_000_000, 1_000_000_000);
    let outcome =
        under_flood("stderr flood", chaos_server(&[&format!("stderr-flood={bytes}")]), "effect");
    assert_eq!(outcome, CallOutcome::Success);
}

#[test]
fn floods_of_progress_and_server_requests_cost_little_memory() {
    let progress = format!("progress-flood={}", size(100_000, 1_000_000, 1_000_000));
    for (what, item) in [
        ("progress flood", progress.as_str()),
        ("question flood", "request-flood"),
        ("ping flood", "ping-flood"),
    ] {
        let outcome = under_flood(what, chaos_server(&[item]), "effect");
        assert_eq!(outcome, CallOutcome::Success, "{what}");
    }
}

#[test]
fn a_child_that_does_not_read_costs_little_memory() {
    const CALLS: usize = 40;
    let mut workspace = Workspace::new().unwrap();
    let deaf = chaos_server(&["stop-reading"]).argument("--only").argument("deaf");
    workspace
        .server("flood", deaf.setting("timeoutMs", json!(5_000)))
        .server("other", chaos_server(&[]));
    let client = start(&workspace);
    warm(&client);
    let before = peak(&client);
    let stopper = client.mcp_call("flood", "effect", &json!({"key": "deaf"})).unwrap();
    // More than the memory limit, for a child that reads none of it: most are rejected, none is buffered.
    let padding = "p".repeat(1 << 20);
    let mut ids = vec![stopper];
    for n in 0..CALLS {
        let args = json!({"key": format!("call-{n}"), "padding": padding});
        ids.push(client.mcp_call("flood", "effect", &args).unwrap());
    }
    assert_eq!(call(&client, "other", "echo", &json!({"text": "hi"})), CallOutcome::Success);
    let mut codes: BTreeMap<String, usize> = BTreeMap::new();
    for id in ids {
        // On a machine so busy that the last are sent after the first have timed out, a new child reads them.
        let outcome = CallOutcome::of(&client.wait(id, PATIENCE).unwrap().value);
        *codes.entry(outcome.code().unwrap_or("fine").to_owned()).or_insert(0) += 1;
    }
    let growth = peak(&client) - before;
    tell(format_args!("{CALLS} MB for a child that does not read: {codes:?}, {} more", mb(growth)));
    // A race: where sending them takes longer than the first ones' timeout, the circuit breaker rejects the rest.
    let refused = ["overloaded", "circuit_open"].iter().filter_map(|code| codes.get(*code));
    assert!(refused.sum::<usize>() > 0, "something has to give");
    assert!(growth <= GROWTH, "{growth} bytes");
    stop(client, &workspace);
}

#[test]
fn a_flood_of_list_changed_is_answered_with_a_few_listings() {
    let mut workspace = Workspace::new().unwrap();
    // Triggered by the one call that is measured, not by the first that comes along.
    let flood = chaos_server(&[&format!("list-changed-flood={CHANGES}")])
        .argument("--only")
        .argument("flood");
    workspace.server("flood", flood).server("other", chaos_server(&[]));
    let client = start(&workspace);
    warm(&client);
    let before = (peak(&client), workspace.journal("flood").count(EventKind::List).unwrap());
    let id = client.mcp_call("flood", "effect", &json!({"key": "flood"})).unwrap();
    // All notifications were sent before the response.
    assert_eq!(CallOutcome::of(&client.wait(id, PATIENCE).unwrap().value), CallOutcome::Success);
    let lists = || workspace.journal("flood").count(EventKind::List).unwrap() - before.1;
    let looked = eventually(PATIENCE, || {
        assert_eq!(call(&client, "flood", "echo", &json!({"text": "hi"})), CallOutcome::Success);
        assert_eq!(call(&client, "other", "echo", &json!({"text": "hi"})), CallOutcome::Success);
        lists() > 0
    });
    // However busy the machine is, the change is not lost.
    assert!(looked, "the change was never looked at");
    let lists = lists();
    let growth = peak(&client) - before.0;
    tell(format_args!("{CHANGES} changes: {lists} listings, {} more", mb(growth)));
    assert!(lists <= CHANGES / 1000, "{lists} listings for {CHANGES} changes");
    assert!(growth <= GROWTH, "{growth} bytes");
    stop(client, &workspace);
}

/// One call that triggers the flood, beside calls to another server. Returns the outcome of that call.
fn under_flood(what: &str, flood: Server, tool: &str) -> CallOutcome {
    let mut workspace = Workspace::new().unwrap();
    let patient = |server: Server| server.setting("timeoutMs", json!(100_000));
    let flood = flood.argument("--only").argument("flood");
    workspace.server("flood", patient(flood)).server("other", patient(chaos_server(&[])));
    let client = start(&workspace);
    warm(&client);
    let before = peak(&client);
    let over = AtomicBool::new(false);
    let (outcome, others, took) = thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut times = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let text = format!("other-{}", times.len());
                let began = Instant::now();
                let answer = client.mcp_call_now("other", "echo", &json!({"text": text}), PATIENCE);
                let answer = answer.unwrap();
                assert_eq!(answer.text(), Some(text.as_str()), "{}", answer.value);
                times.push(began.elapsed());
            }
            times
        });
        let began = Instant::now();
        let id = client.mcp_call("flood", tool, &json!({"key": "flood"})).unwrap();
        let answer = client.wait(id, PATIENCE);
        let took = began.elapsed();
        over.store(true, Ordering::Relaxed);
        (CallOutcome::of(&answer.unwrap().value), others.join().expect("others are unharmed"), took)
    });
    let growth = peak(&client) - before;
    tell(format_args!(
        "{what} over {took:.1?}: {} more at its peak; other calls {}",
        mb(growth),
        Spread::of(others)
    ));
    assert!(growth <= GROWTH, "{what}: {growth} bytes more");
    // It is restarted if necessary, and works.
    assert_eq!(call(&client, "flood", "effect", &json!({"key": "after"})), CallOutcome::Success);
    assert_eq!(workspace.journal("flood").executions("flood").unwrap(), 1);
    stop(client, &workspace);
    outcome
}

/// Both servers are running and warm, so that the measurement excludes the cost of starting.
fn warm(client: &Client) {
    for n in 0..20 {
        for server in ["flood", "other"] {
            assert_eq!(
                call(client, server, "echo", &json!({"text": format!("warm-{n}")})),
                CallOutcome::Success
            );
        }
    }
}

fn peak(client: &Client) -> u64 {
    peak_resident_bytes(client.pid()).expect("the gateway is alive")
}

fn mb(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
