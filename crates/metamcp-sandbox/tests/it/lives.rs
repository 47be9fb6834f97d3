//! The lifecycle of workers: what the kernel reports, how many there are, and with what they die.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use metamcp_sandbox::host::{Launch, Limits, Profile, ScriptOutcome, Status, Workers, run};

use crate::common::*;

/// Fails after a time no healthy machine needs.
fn eventually(what: &str, holds: impl FnMut() -> bool) {
    let held = metamcp_testkit::eventually(Duration::from_secs(30), holds);
    assert!(held, "{what} did not come true");
}

fn is_there(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn the_kernel_confirms_what_a_worker_says() {
    let worker = runtime().block_on(workers().take()).unwrap();
    let at = |name: &str| format!("/proc/{}/{name}", worker.id());
    let status = fs::read_to_string(at("status")).unwrap();
    let none = ["CapInh", "CapPrm", "CapEff", "CapAmb"].map(|set| format!("{set}:\t{:016x}", 0));
    let said = ["NoNewPrivs:\t1", "Seccomp:\t2", "Threads:\t1"];
    for line in said.into_iter().chain(none.iter().map(String::as_str)) {
        assert!(status.lines().any(|found| found == line), "no {line:?} in\n{status}");
    }
    let limits = fs::read_to_string(at("limits")).unwrap();
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(limit("Max open files"), ["1", "1"]);
    assert_eq!(limit("Max core file size"), ["0", "0"]);
    assert_eq!(limit("Max file size"), ["0", "0"]);
    assert_eq!(limit("Max processes"), ["0", "0"]);
    assert_eq!(limit("Max address space"), ["268435456", "268435456"]);
    // Permission denied, because the process is not dumpable, proves the same.
    match fs::read_dir(at("fd")) {
        Ok(entries) => {
            let open: Vec<_> =
                entries.flatten().map(|entry| fs::read_link(entry.path()).unwrap()).collect();
            assert_eq!(open.len(), 1, "{open:?}");
            assert!(open[0].to_string_lossy().starts_with("socket:"), "{open:?}");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
    }
    match fs::read(at("environ")) {
        Ok(bytes) => assert_eq!(bytes, b""),
        Err(error) => assert_eq!(error.kind(), ErrorKind::PermissionDenied),
    }
}

#[test]
fn no_worker_is_started_before_it_is_needed_and_then_they_wait() {
    let workers = Workers::new(launch(&["worker"]), Profile::Standard, 2);
    assert_eq!(workers.waiting(), 0);
    let worker = runtime().block_on(workers.take()).unwrap();
    eventually("two are waiting", || workers.waiting() == 2);
    let first = worker.id();
    let second = runtime().block_on(workers.take()).unwrap().id();
    assert_ne!(first, second, "one process, one run");
}

/// The parent of a process.
fn parent(pid: u32) -> u32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is there");
    let after = stat.rsplit(") ").next().expect("a name in brackets");
    after.split(' ').nth(1).and_then(|parent| parent.parse().ok()).expect("a number")
}

fn kill(pid: u32) {
    use rustix::process::{Pid, Signal, kill_process};
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process");
    kill_process(pid, Signal::KILL).expect("a process of ours");
}

async fn run_in(workers: &Workers, code: &str) -> ScriptOutcome {
    let worker = workers.take().await.expect("a worker");
    run(worker, job(code, small()), Arc::new(Table::default()), std::future::pending()).await
}

#[test]
fn workers_of_one_zygote_have_nothing_in_common() {
    let workers = workers();
    let both = runtime()
        .block_on(async { (workers.take().await.unwrap(), workers.take().await.unwrap()) });
    let zygote = parent(both.0.id());
    assert_eq!(zygote, parent(both.1.id()), "this is about two of one zygote");
    let called =
        [zygote, both.0.id()].map(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap());
    assert_eq!(called, ["metamcp-zygote\n", "metamcp-worker\n"]);
    drop(both);
    let code = "const seen = [globalThis.left, [].left, Math.random(), crypto.randomUUID()]; globalThis.left = Array.prototype.left = 1; Math.random = () => 0.5; return seen";
    let mut seen = Vec::new();
    for _ in 0..3 {
        let outcome = runtime().block_on(run_in(&workers, code));
        let value: serde_json::Value = serde_json::from_str(&outcome.value.unwrap()).unwrap();
        assert_eq!((&value[0], &value[1]), (&serde_json::Value::Null, &serde_json::Value::Null));
        let chance = value[2].as_f64().unwrap();
        assert!((0.0..1.0).contains(&chance) && chance != 0.5, "{value}");
        seen.push(value);
    }
    for at in [2, 3] {
        assert!(
            seen[0][at] != seen[1][at] && seen[1][at] != seen[2][at] && seen[0][at] != seen[2][at],
            "{seen:?}"
        );
    }
}

#[test]
fn a_zygote_that_is_killed_takes_its_workers_along_and_is_replaced() {
    let workers = workers();
    runtime().block_on(async {
        let worker = workers.take().await.unwrap();
        let (id, zygote) = (worker.id(), parent(worker.id()));
        let job = job("await sleep(20_000)", Limits::default());
        let running =
            tokio::spawn(run(worker, job, Arc::new(Table::default()), std::future::pending()));
        kill(zygote);
        let outcome = running.await.unwrap();
        assert_eq!(outcome.status, Status::Error, "{outcome:?}");
        assert_eq!(run_in(&workers, "return 7").await.value.as_deref(), Some("7"));
        eventually("both are gone", || !is_there(id) && !is_there(zygote));
    });
}

#[test]
fn a_zygote_ends_with_the_last_who_needs_it() {
    let workers = workers();
    let worker = runtime().block_on(workers.take()).unwrap();
    let (id, zygote) = (worker.id(), parent(worker.id()));
    drop(workers);
    assert!(is_there(zygote), "a worker is left");
    drop(worker);
    eventually("both are gone", || !is_there(id) && !is_there(zygote));
}

#[test]
fn whatever_is_given_up_a_zygote_keeps_no_dead() {
    let workers = Workers::new(launch(&["worker"]), Profile::Standard, 2);
    runtime().block_on(async {
        let first = workers.take().await.unwrap();
        let zygote = parent(first.id());
        for round in 0..20 {
            // Some are dropped before they are ready, some while they wait, some while they run.
            let job = job("for (;;) {}", small());
            let worker = workers.take().await.unwrap();
            let host = Arc::new(Table::default());
            let running = tokio::spawn(run(worker, job, host, std::future::pending()));
            let taking: Vec<_> = (0..6)
                .map(|_| {
                    let workers = workers.clone();
                    tokio::spawn(async move { run_in(&workers, "for (;;) {}").await })
                })
                .collect();
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            taking.iter().chain([&running]).for_each(tokio::task::JoinHandle::abort);
        }
        assert_eq!(run_in(&workers, "return 7").await.value.as_deref(), Some("7"));
        let children = || fs::read_to_string(format!("/proc/{zygote}/task/{zygote}/children"));
        let is_dead = |pid: &str| {
            fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
        };
        let own = children().expect("this kernel lists children");
        assert!(own.split_whitespace().any(|pid| pid == first.id().to_string()), "{own:?}");
        eventually("none of its dead is left", || {
            children().is_ok_and(|all| !all.split_whitespace().any(is_dead))
        });
        drop((first, workers));
        eventually("the zygote is gone, and with it all of its workers", || !is_there(zygote));
    });
}

/// The signals a process ignores, as a kernel bit mask.
fn ignored(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it is there");
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).expect("a line");
    u64::from_str_radix(line, 16).expect("a number")
}

#[test]
fn a_gateway_whose_children_were_to_be_forgotten_buries_its_workers() {
    const CHILDREN: u64 = 1 << 16;
    let code = "trap '' CHLD; exec /usr/bin/env -i \"$0\" \"$@\"";
    let own = launch(&["worker"]);
    let args = ["-c".into(), code.into(), own.program.into(), "worker".into()];
    let launch = Launch { program: "/bin/sh".into(), args: args.into(), ..launch(&["worker"]) };
    let workers = Workers::new(launch, Profile::Standard, 0);
    let worker = runtime().block_on(workers.take()).unwrap();
    let zygote = parent(worker.id());
    assert_eq!(ignored(zygote) & CHILDREN, 0, "{:x}", ignored(zygote));
    let dead = worker.id();
    drop(worker);
    eventually("it is buried", || !is_there(dead));
    assert!(is_there(zygote));
}

#[test]
fn a_zygote_is_replaced_after_some_hundred_workers() {
    let workers = workers();
    runtime().block_on(async {
        let first = workers.take().await.unwrap();
        let zygote = parent(first.id());
        let mut last = zygote;
        for _ in 0..256 {
            last = parent(workers.take().await.unwrap().id());
        }
        assert_ne!(zygote, last);
        // The first one still works.
        let job = job("return 7", Limits::default());
        let outcome = run(first, job, Arc::new(Table::default()), std::future::pending()).await;
        assert_eq!(outcome.value.as_deref(), Some("7"));
        eventually("the old one is gone", || !is_there(zygote));
    });
}

#[test]
fn a_worker_that_was_not_forked_does_the_same() {
    let launch = Launch { forks: false, ..launch(&["worker"]) };
    let workers = Workers::new(launch, Profile::Standard, 1);
    let worker = runtime().block_on(workers.take()).unwrap();
    assert_eq!(parent(worker.id()), std::process::id());
    let outcome =
        runtime().block_on(run_in(&workers, "return await github.echo({ a: Math.random() < 1 })"));
    assert_eq!(outcome.value.as_deref(), Some("{\"a\":true}"));
}

/// The second and the third worker to be started run the given commands first; every other one is normal.
fn workers_with(place: &Path, second: &str, third: &str) -> Workers {
    use std::os::unix::fs::PermissionsExt;
    let (program, worker) = (place.join("program"), env!("CARGO_BIN_EXE_sandbox-worker"));
    let place = place.display();
    let code = format!(
        "#!/bin/sh\nif mkdir {place}/1; then :; elif mkdir {place}/2; then {second}; elif mkdir {place}/3; then {third}; fi\n\
         exec /usr/bin/env -i {worker} worker\n"
    );
    fs::write(&program, code).expect("a folder to write in");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("a file of our own");
    let launch = Launch { program, args: Vec::new(), env: Vec::new(), forks: false };
    Workers::new(launch, Profile::Standard, 1)
}

#[test]
fn who_comes_while_a_worker_is_being_started_gets_that_one() {
    let place = tempfile::tempdir().unwrap();
    let (begun, go) = (place.path().join("2"), place.path().join("go"));
    // The second one is ready on request, the third one never.
    let wait = format!("until test -e {}; do :; done", go.display());
    let workers = workers_with(place.path(), &wait, "exec cat");
    drop(runtime().block_on(workers.take()).unwrap());
    eventually("the second is being started", || begun.exists());
    runtime().block_on(async {
        let (second, ()) = tokio::join!(workers.take(), async { fs::write(&go, "").unwrap() });
        second.expect("the one that was coming, not a third");
    });
}

#[test]
fn who_waits_for_a_worker_that_does_not_come_gets_another() {
    let place = tempfile::tempdir().unwrap();
    let workers = workers_with(place.path(), "exit 1", ":");
    runtime().block_on(async {
        drop(workers.take().await.unwrap());
        workers.take().await.expect("the third one");
    });
}

#[test]
fn a_worker_that_died_while_waiting_is_passed_over() {
    // This one exits as soon as it has reported ready.
    let workers = Workers::new(launch(&["ready-then-gone"]), Profile::Standard, 1);
    let first = runtime().block_on(workers.take()).unwrap();
    eventually("one is waiting", || workers.waiting() == 1);
    let gone = first.id();
    eventually("the first is a corpse", || {
        fs::read_to_string(format!("/proc/{gone}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    });
    let outcome = runtime().block_on(run(
        first,
        job("return 7", Limits::default()),
        Arc::new(Table::default()),
        std::future::pending(),
    ));
    assert_eq!(outcome.status, Status::Error);
}

#[test]
fn nothing_is_left_of_a_worker_after_its_run() {
    let workers = Workers::new(launch(&["worker"]), Profile::Standard, 0);
    let mut ids = Vec::new();
    for code in ["return 1", "for (;;) {}", "await new Promise(() => {})", "throw 1"] {
        let worker = runtime().block_on(workers.take()).unwrap();
        ids.push(worker.id());
        let limits = Limits { cpu: Duration::from_millis(50), ..Limits::default() };
        runtime().block_on(run(
            worker,
            job(code, limits),
            Arc::new(Table::default()),
            std::future::pending(),
        ));
    }
    let idle = runtime().block_on(workers.take()).unwrap();
    ids.push(idle.id());
    drop(idle);
    eventually("they are gone", || !ids.iter().any(|&id| is_there(id)));
}

#[test]
fn a_worker_that_is_left_alone_ends_by_itself_and_in_order() {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};

    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_sandbox-worker"))
        .arg("worker")
        .env_clear()
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()
        .unwrap();
    drop(ours);
    assert_eq!(child.wait().unwrap().code(), Some(0), "no signal, no error");
}

#[test]
fn cancelling_and_dropping_end_a_spinning_worker() {
    let workers = Workers::new(launch(&["worker"]), Profile::Standard, 0);
    let worker = runtime().block_on(workers.take()).unwrap();
    let id = worker.id();
    let table = Arc::new(Table::default());
    let begun = Arc::clone(&table);
    let outcome = runtime().block_on(run(
        worker,
        job("console.log('begun'); github.never(); for (;;) {}", Limits::default()),
        table,
        async move { begun.heard.notified().await },
    ));
    assert_eq!(outcome.status, Status::Cancelled);
    assert_eq!(outcome.logs.len(), 1);
    eventually("it is gone", || !is_there(id));

    let worker = runtime().block_on(workers.take()).unwrap();
    let id = worker.id();
    let running = runtime().spawn(run(
        worker,
        job("for (;;) {}", Limits::default()),
        Arc::new(Table::default()),
        std::future::pending(),
    ));
    running.abort();
    eventually("it is gone", || !is_there(id));
}

#[test]
fn logs_and_calls_survive_a_kill() {
    // A builtin that never checks the clock: only the gateway's kill ends it.
    let code = "console.log('first'); await github.echo({}); console.log('second'); [].includes.call({ length: 2 ** 53 - 1 }, 1); return 1";
    let outcome = runtime().block_on(outcome(code, small()));
    assert_eq!(outcome.status, Status::CpuLimit, "{outcome:?}");
    let lines: Vec<_> = outcome.logs.iter().map(|line| line.text.as_str()).collect();
    assert_eq!(lines, ["first", "second"]);
    assert_eq!(outcome.calls.len(), 1);
    assert_eq!(outcome.limit.unwrap().name, "cpu");
}

#[test]
fn waiting_does_not_count_as_processor_time() {
    let limits = Limits { cpu: Duration::from_millis(200), ..Limits::default() };
    let outcome = runtime()
        .block_on(outcome("await sleep(600); return (await github.echo({ a: 1 })).a", limits));
    assert_eq!((outcome.status, outcome.value.as_deref()), (Status::Ok, Some("1")));
}

#[test]
fn the_wall_clock_ends_what_waits_for_ever() {
    let limits = Limits { wall: Duration::from_millis(300), ..Limits::default() };
    let outcome = runtime().block_on(outcome("await github.never()", limits));
    assert_eq!(outcome.status, Status::Timeout);
    assert_eq!(outcome.limit.unwrap().value, "300 ms");
}

#[test]
fn large_arguments_and_answers_pass_both_ways_at_once() {
    let limits = Limits { heap: 128 << 20, ..Limits::default() };
    let code = "const big = 'a'.repeat(3e6); const all = await Promise.all(Array.from({ length: 16 }, () => github.echo({ big }))); return all.map(r => r.big.length)";
    let outcome = runtime().block_on(outcome(code, limits));
    assert_eq!(outcome.status, Status::Ok, "{:?}", outcome.error);
    assert!(outcome.value.unwrap().starts_with("[3000000,3000000"));
}

#[test]
fn a_source_that_is_too_long_is_refused_before_it_runs() {
    let outcome = runs(&format!("return 1 //{}", "x".repeat(70_000)));
    assert_eq!(outcome.status, Status::Error);
    assert_eq!(outcome.limit.unwrap().name, "source");
}
