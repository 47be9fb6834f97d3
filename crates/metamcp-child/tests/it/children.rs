//! Starting, talking, ending.

use metamcp_child::{Containment, Exit, Ladder, SpawnError};

use crate::support::{habit, line, rest, shell, spawn, spawner, spec, within};

const BOTH: [Containment; 2] = [Containment::Shim, Containment::Namespace];

#[tokio::test]
async fn bytes_go_both_ways_and_the_end_of_input_is_seen() {
    for containment in BOTH {
        let child = spawn(&spawner(containment), spec("cat", &[])).await;
        let parts = child.into_parts();
        parts.stdin.writable().await.unwrap();
        assert_eq!(parts.stdin.try_write(b"hello\n").unwrap(), 6);
        assert_eq!(line(&parts.stdout).await, "hello");
        drop(parts.stdin);
        assert_eq!(rest(&parts.stdout).await, b"");
        let mut watch = parts.handle.watch();
        assert_eq!(within(watch.exited()).await, Exit { code: Some(0), signal: None });
        within(watch.empty()).await;
    }
}

#[tokio::test]
async fn code_and_signal_are_told() {
    for containment in BOTH {
        let spawner = spawner(containment);
        for (script, code, signal) in [
            ("exit 7", Some(7), None),
            ("kill -9 $$", None, Some(9)),
            ("kill -34 $$", None, Some(34)),
        ] {
            let child = spawn(&spawner, shell(script)).await;
            let exit = within(child.watch().exited()).await;
            assert_eq!(exit, Exit { code, signal }, "{script} under {containment:?}");
        }
    }
}

#[tokio::test]
async fn a_start_that_fails_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "text").unwrap();
    for containment in BOTH {
        let spawner = spawner(containment);
        let outcome = within(spawner.spawn(spec("no-such-program-anywhere", &[]))).await;
        assert!(matches!(outcome, Err(SpawnError::NotFound { .. })));
        let outcome = within(spawner.spawn(spec(plain.to_str().unwrap(), &[]))).await;
        assert!(matches!(outcome, Err(SpawnError::NotExecutable { .. })));
        let mut lost = spec("cat", &[]);
        lost.cwd = Some(directory.path().join("missing"));
        let outcome = within(spawner.spawn(lost)).await;
        assert!(matches!(outcome, Err(SpawnError::BadDirectory { .. })));
        let long = "x".repeat(3_000_000);
        let outcome = within(spawner.spawn(spec("cat", &[&long]))).await;
        assert!(matches!(outcome, Err(SpawnError::BadCommand { .. })));
    }
}

#[tokio::test]
async fn a_deaf_child_is_killed_at_the_end_of_the_ladder() {
    for containment in BOTH {
        let child = spawn(&spawner(containment), habit(&["deaf"])).await;
        assert_eq!(line(&child.stdout).await, "ready");
        let parts = child.into_parts();
        drop(parts.stdin);
        within(parts.handle.stop(Ladder::polite())).await;
        assert_eq!(parts.handle.watch().exit(), Some(Exit { code: None, signal: Some(9) }));
    }
}
