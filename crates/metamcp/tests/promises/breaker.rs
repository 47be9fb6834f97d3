//! The circuit breaker end to end: it opens, it leaves the server alone, it lets exactly one probe call through.

use std::time::Duration;

use metamcp_testkit::{CallOutcome, Client, EventKind, Workspace, chaos_server, eventually};
use serde_json::json;

use crate::world::{PATIENCE, call, size, start, stop, tell};

/// Consecutive failures that open a server's circuit breaker.
const THRESHOLD: usize = 5;

/// Long enough to see that nothing happens in it, even if the machine stalls for a moment.
const COOLDOWN: Duration = Duration::from_secs(3);

/// The call timeout: longer than the probe call takes on a busy machine.
const TIMEOUT: u64 = 3_000;

#[test]
fn timeouts_open_it_one_call_tries_and_success_closes_it() {
    // Slow to start, so that the probe call is in flight for as long as the others keep coming.
    let workspace = workspace(&["hang-after-effect", "answer-initialize-late=1000"]);
    let client = start(&workspace);
    assert_eq!(effect(&client, "good-0"), CallOutcome::Success);
    open_by_timeouts(&client, &workspace, "bad");
    assert_backing_off(&client, &workspace);
    let said = "metamcp warn: the circuit breaker of the server \"one\" opened";
    assert!(eventually(PATIENCE, || client.stderr().contains(said)), "{}", client.stderr());

    // Calls arrive all the time, and many at once while the first one that was let through is in flight, which takes a
    // while: no other is let through.
    let before = executions(&workspace);
    let mut ids = Vec::new();
    let mut try_once = || {
        let key = format!("try-{}", ids.len());
        ids.push(client.mcp_call("one", "slow", &json!({"ms": 1_500, "key": key})).unwrap());
    };
    let tried = eventually(PATIENCE, || {
        try_once();
        executions(&workspace) > before
    });
    assert!(tried, "nobody was ever let through");
    for _ in 0..size(200, 500, 500) {
        try_once();
    }
    let callers = ids.len();
    let outcomes: Vec<CallOutcome> =
        ids.iter().map(|id| CallOutcome::of(&client.wait(*id, PATIENCE).unwrap().value)).collect();
    let fine = outcomes.iter().filter(|outcome| **outcome == CallOutcome::Success).count();
    let refused = outcomes.iter().filter(|outcome| outcome.code() == Some("circuit_open")).count();
    tell(format_args!(
        "{callers} callers at the end of a cooldown: {fine} let through, {refused} refused"
    ));
    assert_eq!((fine, refused), (1, callers - 1));
    assert_eq!(executions(&workspace) - before, 1, "the journal agrees");

    for n in 1..=20 {
        assert_eq!(
            effect(&client, &format!("good-{n}")),
            CallOutcome::Success,
            "it is closed again"
        );
    }
    stop(client, &workspace);
}

#[test]
fn a_failing_try_opens_it_again_at_once() {
    let workspace = workspace(&["hang-after-effect"]);
    let client = start(&workspace);
    assert_eq!(effect(&client, "good-0"), CallOutcome::Success);
    open_by_timeouts(&client, &workspace, "bad");
    // One failure is enough now, where it took five before.
    let mut tries = 0;
    let failed = eventually(PATIENCE, || {
        tries += 1;
        match effect(&client, &format!("bad-again-{tries}")).code() {
            Some("timeout") => true,
            Some("circuit_open") => false,
            other => panic!("neither left alone nor tried: {other:?}"),
        }
    });
    assert!(failed, "nobody was ever let through");
    assert_backing_off(&client, &workspace);
    let recovered = eventually(PATIENCE, || effect(&client, "good-1") == CallOutcome::Success);
    assert!(recovered, "the next try may succeed");
    assert_eq!(workspace.journal("one").executions("good-1").unwrap(), 1);
    stop(client, &workspace);
}

#[test]
fn crashes_open_it_and_the_server_is_not_even_started() {
    let workspace = workspace(&["die-before-reply"]);
    let client = start(&workspace);
    assert_eq!(effect(&client, "good-0"), CallOutcome::Success);
    for n in 0..THRESHOLD {
        assert_eq!(
            effect(&client, &format!("bad-{n}")).code(),
            Some("outcome_unknown"),
            "crash {n}"
        );
    }
    let starts = workspace.journal("one").count(EventKind::Start).unwrap();
    assert_backing_off(&client, &workspace);
    assert_eq!(workspace.journal("one").count(EventKind::Start).unwrap(), starts);
    stop(client, &workspace);
}

#[test]
fn what_is_not_the_servers_fault_does_not_open_it() {
    let workspace = workspace(&[]);
    let client = start(&workspace);
    for _ in 0..3 * THRESHOLD {
        assert_eq!(call(&client, "one", "fail", &json!({})), CallOutcome::ToolError);
        assert_eq!(call(&client, "one", "rpc_error", &json!({})).code(), Some("execution_failed"));
        assert_eq!(call(&client, "one", "effect", &json!({})).code(), Some("validation_input"));
        assert_eq!(call(&client, "one", "no_such", &json!({})).code(), Some("tool_not_found"));
    }
    assert_eq!(effect(&client, "good"), CallOutcome::Success);
    assert_eq!(workspace.journal("one").count(EventKind::Start).unwrap(), 1);
    stop(client, &workspace);
}

/// A server that misbehaves in calls whose key begins with `bad`.
fn workspace(items: &[&str]) -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    let cooldown = u64::try_from(COOLDOWN.as_millis()).unwrap();
    workspace.setting("pool", json!({"failureThreshold": THRESHOLD, "cooldownMs": cooldown}));
    let server = chaos_server(items).argument("--only").argument("bad");
    workspace.server("one", server.setting("timeoutMs", json!(TIMEOUT)));
    workspace
}

fn effect(client: &Client, key: &str) -> CallOutcome {
    call(client, "one", "effect", &json!({"key": key}))
}

/// Five concurrent calls that are never answered; they time out, and then the breaker is open.
fn open_by_timeouts(client: &Client, workspace: &Workspace, prefix: &str) {
    let before = executions(workspace);
    let ids: Vec<u64> = (0..THRESHOLD)
        .map(|n| {
            client.mcp_call("one", "effect", &json!({"key": format!("{prefix}-{n}")})).unwrap()
        })
        .collect();
    for id in ids {
        let outcome = CallOutcome::of(&client.wait(id, PATIENCE).unwrap().value);
        assert_eq!(outcome.code(), Some("timeout"), "{outcome}");
    }
    assert_eq!(executions(workspace) - before, THRESHOLD);
}

/// Rejected at once, with the time left, and without contacting the server.
fn assert_backing_off(client: &Client, workspace: &Workspace) {
    let before = touches(workspace);
    // Few enough that a busy machine does not run into the end of the cooldown.
    for refused in 0..20 {
        match effect(client, &format!("good-refused-{refused}")) {
            CallOutcome::GatewayError(error) => {
                assert_eq!(error.code, "circuit_open", "{}", error.message);
                let left =
                    error.whole["retry_after_ms"].as_u64().expect("it says when to try again");
                // A tenth is jitter, so that many gateways do not retry at the same time.
                assert!(u128::from(left) <= COOLDOWN.as_millis() * 11 / 10, "{left}");
            }
            other => panic!("not rejected: {other}"),
        }
    }
    assert_eq!(touches(workspace), before, "the server was touched");
}

/// Journal entries that a call would cause. The failed process is being shut down meanwhile, which does not count.
fn touches(workspace: &Workspace) -> usize {
    let mut records = workspace.journal("one").records().unwrap();
    records.retain(|record| !matches!(record.what, EventKind::Cancelled | EventKind::EndOfInput));
    records.len()
}

fn executions(workspace: &Workspace) -> usize {
    workspace.journal("one").count(EventKind::Execute).unwrap()
}
