//! A pool of two for many servers: never a third process, no starvation, first come first served.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use metamcp_testkit::{CallOutcome, EventKind, Journal, Server, Workspace, programs};
use serde_json::json;

use crate::world::{PATIENCE, SeededRng, call, size, start, stop, tell, timed};

const POOL: usize = 2;

#[test]
fn a_pool_of_two_never_holds_a_third_and_forgets_nobody() {
    let mut rng = SeededRng::of("pool");
    let (workspace, servers, _) = crowded(size(40, 200, 200));
    let client = start(&workspace);
    let (over, samples, most) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let calls = size(150, 800, 3000);
    let ((), took) = thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                most.fetch_max(alive(&workspace), Ordering::Relaxed);
                samples.fetch_add(1, Ordering::Relaxed);
            }
        });
        let result = timed(|| {
            let callers: Vec<_> = (0..16)
                .map(|caller| {
                    let mut own = rng.derived();
                    let (client, servers) = (&client, &servers);
                    scope.spawn(move || {
                        for n in 0..calls / 16 {
                            let text = format!("{caller}-{n}");
                            let server = own.pick(servers);
                            let answer = client
                                .mcp_call_now(server, "echo", &json!({"text": text}), PATIENCE)
                                .unwrap();
                            assert_eq!(answer.text(), Some(text.as_str()), "{}", answer.value);
                        }
                    })
                })
                .collect();
            for caller in callers {
                // The sampler must be stopped before the panic unwinds.
                if let Err(panic) = caller.join() {
                    over.store(true, Ordering::Relaxed);
                    std::panic::resume_unwind(panic);
                }
            }
        });
        over.store(true, Ordering::Relaxed);
        result
    });
    let (samples, most) = (samples.into_inner(), most.into_inner());
    tell(format_args!(
        "{calls} calls to {} servers through a pool of {POOL} in {took:.1?}: never more than {most} alive in {samples} looks",
        servers.len()
    ));
    assert!(most <= POOL, "{most} alive");
    assert!(most > 0 && samples > 20, "the test looked too little to see anything");
    stop(client, &workspace);
}

#[test]
fn those_who_wait_for_a_slot_are_served_in_the_order_they_came() {
    let (workspace, servers, journal) = crowded(size(16, 64, 64));
    let client = start(&workspace);
    let ids: Vec<u64> = servers
        .iter()
        .map(|server| client.mcp_call(server, "echo", &json!({"text": server})).unwrap())
        .collect();
    for (server, id) in servers.iter().zip(ids) {
        let answer = client.wait(id, PATIENCE).unwrap();
        assert_eq!(answer.text(), Some(server.as_str()), "{}", answer.value);
    }
    // One journal for all, so its order is the order of the starts.
    let records = journal.records().unwrap();
    let order: Vec<usize> = records
        .iter()
        .filter(|record| record.what == EventKind::Execute)
        .map(|record| {
            let key = record.key.as_deref().unwrap_or_default();
            servers.iter().position(|server| server == key).expect("only our calls run")
        })
        .collect();
    for (rank, server) in order.iter().enumerate() {
        // Two run at a time and either may be faster; nobody is overtaken by more than that.
        assert!(
            rank.abs_diff(*server) <= POOL,
            "call {server} was served as number {rank}: {order:?}"
        );
    }
    let starts = records.iter().filter(|record| record.what == EventKind::Start).count();
    tell(format_args!("{} first calls through a pool of {POOL}: {starts} starts", servers.len()));
    assert_eq!(starts, servers.len(), "no server is started, thrown out unused and started again");
    assert_eq!(call(&client, &servers[0], "echo", &json!({"text": "again"})), CallOutcome::Success);
    stop(client, &workspace);
}

/// Many servers that share one journal, and a pool of two.
fn crowded(count: usize) -> (Workspace, Vec<String>, Journal) {
    let mut workspace = Workspace::new().unwrap();
    workspace.setting("pool", json!({"poolSize": POOL, "poolWaitTimeoutMs": 120_000}));
    let journal = workspace.journal("all");
    let servers: Vec<String> = (0..count).map(|n| format!("server-{n}")).collect();
    for server in &servers {
        let path = journal.path().to_string_lossy().into_owned();
        workspace.server(server, Server::new(programs::chaos_child(), &["--journal", &path]));
    }
    (workspace, servers, journal)
}

/// Running server processes, without zombies.
fn alive(workspace: &Workspace) -> usize {
    let program = programs::chaos_child().to_string_lossy().into_owned();
    workspace.processes().iter().filter(|one| one.command.starts_with(&program)).count()
}
