//! The lifecycle of workers that are connected by pipes: what they report, what stops them, and with what they die.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

#[cfg(not(target_os = "linux"))]
use metamcp_sandbox::host::Profile;
use metamcp_sandbox::host::{Launch, Limits, Status, WorkerError, Workers, run};
use metamcp_sandbox::layer;
use metamcp_sandbox::protocol::{Server, ToWorker, WorkerLimits};

use crate::common::*;

#[test]
fn a_worker_says_which_layers_hold() {
    let worker = runtime().block_on(workers().take()).unwrap();
    for demanded in PROFILE.demands().chain([layer::LIFELINE]) {
        assert!(worker.layers().iter().any(|held| held == demanded), "{:?}", worker.layers());
    }
}

#[test]
fn workers_are_kept_ready_and_run_one_script_each() {
    let workers = Workers::new(launch(&["worker"]), PROFILE, 2);
    let mut seen = Vec::new();
    for _ in 0..4 {
        let worker = runtime().block_on(workers.take()).unwrap();
        seen.push(worker.id());
        let code = "const left = globalThis.left; globalThis.left = 1; return [left ?? null, (await github.echo({ a: 1 })).a]";
        let job = job(code, Limits::default());
        let host = Arc::new(Table::default());
        let outcome = runtime().block_on(run(worker, job, host, std::future::pending()));
        assert_eq!(outcome.value.as_deref(), Some("[null,1]"), "{outcome:?}");
    }
    seen.dedup();
    assert_eq!(seen.len(), 4);
}

/// A worker that a test drives by hand.
fn alone() -> std::process::Child {
    let Launch { program, args, .. } = launch(&["worker"]);
    let mut command = Command::new(program);
    command.args(args).env_clear().stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_worker_whose_pipe_closes_ends_in_order() {
    let mut worker = alone();
    drop(worker.stdin.take());
    assert_eq!(worker.wait().unwrap().code(), Some(0), "no signal, no error");
}

#[test]
fn a_spinning_script_ends_with_its_gateway() {
    let mut worker = alone();
    let mut stdin = worker.stdin.take().unwrap();
    let limits = WorkerLimits {
        cpu: 60_000_000,
        heap: 64 << 20,
        stack: 512 << 10,
        sleep: 1000,
        logs: 1 << 20,
        result: 1 << 20,
        calls: 10,
    };
    let mut job = Vec::new();
    let server = Server { name: "s".into(), identifiers: Vec::new() };
    let code = "console.log('begun'); for (;;) {}".into();
    ToWorker::Job { code, limits, servers: vec![server] }.encode(&mut job);
    stdin.write_all(&job).unwrap();
    stdin.flush().unwrap();
    let mut said = Vec::new();
    let mut stdout = worker.stdout.take().unwrap();
    let mut piece = [0; 4096];
    while !said.windows(5).any(|bytes| bytes == b"begun") {
        let count = stdout.read(&mut piece).unwrap();
        assert!(count > 0, "it ended by itself");
        said.extend_from_slice(&piece[..count]);
    }
    drop(stdin);
    assert_eq!(worker.wait().unwrap().code(), Some(0));
}

#[test]
fn cancelling_and_the_wall_clock_end_a_spinning_worker() {
    let table = Arc::new(Table::default());
    let begun = Arc::clone(&table);
    let outcome = runtime().block_on(async {
        let worker = workers().take().await.unwrap();
        let job = job("console.log('begun'); github.never(); for (;;) {}", Limits::default());
        run(worker, job, table, async move { begun.heard.notified().await }).await
    });
    assert_eq!((outcome.status, outcome.logs.len()), (Status::Cancelled, 1));
    let limits = Limits {
        wall: Duration::from_millis(300),
        cpu: Duration::from_mins(1),
        ..Limits::default()
    };
    let outcome = runtime().block_on(crate::common::outcome("for (;;) {}", limits));
    assert_eq!(outcome.status, Status::Timeout, "{outcome:?}");
}

#[test]
fn large_requests_and_answers_cross_at_once() {
    // More than the pipes and the gateway's queues hold, in both directions at the same time.
    let code = "const big = [...Array(8)].map(() => github.big({ size: 6e6 })); const text = 'x'.repeat(1e6); const sizes = await Promise.all([...Array(8).keys()].map(async n => (await github.echo({ text, n })).text.length)); return [sizes, (await Promise.all(big)).map(text => text.length)]";
    let expected = format!("[[{}],[{}]]", ["1000000"; 8].join(","), ["6000000"; 8].join(","));
    let words: &[&str] = if cfg!(target_os = "linux") { &["worker", "piped"] } else { &["worker"] };
    for word in words {
        let limits = Limits {
            heap: 128 << 20,
            cpu: Duration::from_mins(1),
            in_flight: 64,
            per_server: 64,
            ..Limits::default()
        };
        let outcome = runtime().block_on(async {
            let worker = Workers::new(launch(&[word]), PROFILE, 0).take().await.unwrap();
            run(worker, job(code, limits), Arc::new(Table::default()), std::future::pending()).await
        });
        assert_eq!(
            outcome.value.as_deref(),
            Some(expected.as_str()),
            "{word}: {:?}",
            outcome.error
        );
    }
}

#[test]
fn what_this_build_or_system_does_not_have_is_refused() {
    let nothing = Launch { program: "".into(), ..launch(&["worker"]) };
    let refused = runtime().block_on(Workers::new(nothing, PROFILE, 0).take());
    assert_eq!(refused.err(), Some(WorkerError::Engine));
    #[cfg(not(target_os = "linux"))]
    for profile in [Profile::Standard, Profile::Dev, Profile::Hardened, Profile::Docker] {
        let refused = runtime().block_on(Workers::new(launch(&["worker"]), profile, 0).take());
        assert!(matches!(refused, Err(WorkerError::Platform { .. })), "{profile:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_lockdown_is_around_it_where_there_is_one() {
    let launch = launch(&["piped"]);
    let workers = Workers::new(launch, PROFILE, 0);
    let worker = runtime().block_on(workers.take()).unwrap();
    for held in [layer::WASM, layer::SECCOMP, layer::NO_NEW_PRIVILEGES, layer::LANDLOCK_FILES] {
        assert!(worker.layers().iter().any(|layer| layer == held), "{:?}", worker.missing());
    }
    let job = job("return (await github.echo({ a: 2 })).a", Limits::default());
    let host = Arc::new(Table::default());
    let outcome = runtime().block_on(run(worker, job, host, std::future::pending()));
    assert_eq!(outcome.value.as_deref(), Some("2"), "{outcome:?}");
}
