//! The engine replaced by a program that tries to escape, inside the same lockdown.

use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use metamcp_sandbox::host::{Limits, Profile, Status, WorkerError, Workers, run};
use metamcp_sandbox::limits::LOGS_TAIL;
use nix::sys::signal::Signal;

use crate::common::*;

/// Every escape that can be tried without unsafe code. The rest is in the unit test of the seccomp filter.
const WAYS: [&str; 34] = [
    "open-read",
    "open-write",
    "open-proc",
    "open-parent",
    "list",
    "stat",
    "unlink",
    "mkdir",
    "link",
    "chdir",
    "socket-tcp",
    "socket-listen",
    "socket-udp",
    "socket-unix",
    "socket-unix-listen",
    "socket-pair",
    "send-elsewhere",
    "exec",
    "exec-self",
    "thread",
    "kill-parent",
    "kill-all",
    "kill-group",
    "ptrace-parent",
    "dumpable",
    "regain-nothing",
    "raise-limits",
    "dup",
    "unshare",
    "setuid",
    "write-stdout",
    "read-stdin",
    "sleep",
    "nothing",
];

#[test]
fn every_way_out_fails_or_kills() {
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("made");
    for way in WAYS {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let status = Command::new(env!("CARGO_BIN_EXE_sandbox-worker"))
            .args([way.as_ref(), target.as_os_str()])
            .env_clear()
            .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        drop(ours);
        let killed = status.signal() == Some(Signal::SIGSYS as i32);
        if way == "nothing" {
            assert_eq!(status.code(), Some(10), "a program that tries nothing is not killed");
        } else {
            assert!(killed, "{way} came back: {status}");
        }
        assert!(!target.exists(), "{way} left something behind");
    }
}

fn refusal(word: &str, profile: Profile) -> WorkerError {
    let workers = Workers::new(launch(&[word]), profile, 0);
    runtime()
        .block_on(workers.take())
        .err()
        .unwrap_or_else(|| panic!("{word} was taken for a worker"))
}

#[test]
fn a_worker_without_its_layers_gets_no_code() {
    let is_layer = |refused: &WorkerError, name: &str| matches!(refused, WorkerError::Layer { layer, .. } if layer == name);
    let refused = refusal("claims", Profile::Standard);
    assert!(is_layer(&refused, "no_new_privs"), "{refused}");
    let refused = refusal("says-too-little", Profile::Standard);
    assert!(is_layer(&refused, "no_new_privs"), "{refused}");
    let refused = refusal("worker", Profile::Hardened);
    assert!(is_layer(&refused, "wasm"), "{refused}");
    let refused = refusal("worker", Profile::Docker);
    assert!(is_layer(&refused, "container"), "{refused}");
    for word in ["speaks-too-early", "noise", "dies", "no-such-word"] {
        let refused = refusal(word, Profile::Standard);
        assert!(matches!(refused, WorkerError::Start { .. }), "{word}: {refused}");
    }
}

#[test]
fn a_program_that_cannot_be_started_is_refused() {
    let mut launch = launch(&[]);
    launch.program = "/nonexistent/program".into();
    let refused =
        runtime().block_on(Workers::new(launch, Profile::Standard, 1).take()).err().unwrap();
    assert!(matches!(refused, WorkerError::Start { .. }), "{refused}");
}

#[test]
fn a_worker_that_breaks_the_protocol_ends_its_run_and_nothing_else() {
    for (word, status) in [
        ("garbled", Status::Error),
        ("huge", Status::Error),
        ("twice", Status::Error),
        ("ready-again", Status::Error),
        ("closes", Status::Error),
        ("flood", Status::CallLimit),
        ("log-flood", Status::Ok),
        ("not-json", Status::Error),
        ("skips", Status::Error),
        ("two-servers", Status::Error),
        ("more-members", Status::Error),
        ("no-object", Status::Error),
        ("value-not-json", Status::Error),
        ("endless-progress", Status::Error),
        ("empty-lines", Status::Ok),
        ("deaf", Status::Timeout),
    ] {
        let limits = Limits { wall: Duration::from_secs(2), ..small() };
        let logs = limits.logs;
        let workers = Workers::new(launch(&[word]), Profile::Standard, 0);
        let outcome = runtime().block_on(async {
            let worker = workers.take().await.unwrap();
            run(worker, job("return 1", limits), Arc::new(Table::default()), std::future::pending())
                .await
        });
        assert_eq!(outcome.status, status, "{word}: {outcome:?}");
        let kept: usize = outcome.logs.iter().map(|line| line.text.len()).sum();
        assert!(kept <= logs + LOGS_TAIL && outcome.logs.len() <= logs, "{word}");
        assert!(outcome.cpu <= outcome.wall, "{word}: {outcome:?}");
    }
}
