//! Starting, exchanging messages, exiting.

use metamcp_child::{Exit, SpawnError, Spec};

use crate::support::{BOTH, behaviour, line, rest, shell, spawn, spawner, spec, until, within};

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
        let watch = parts.handle.watch();
        assert_eq!(within(watch.exited()).await, Exit { code: Some(0), signal: None });
        within(watch.empty()).await;
    }
}

#[tokio::test]
async fn exit_code_and_signal_are_reported() {
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
async fn a_command_that_cannot_be_expressed_is_refused() {
    let spawner = spawner(BOTH[0]);
    let with_env = |name: &str| Spec { env: vec![(name.into(), "".into())], ..spec("cat", &[]) };
    for bad in
        [spec("ca\0t", &[]), spec("cat", &["\0"]), with_env("A=B"), with_env(""), with_env("\0")]
    {
        let outcome = within(spawner.spawn(bad)).await;
        assert!(matches!(outcome, Err(SpawnError::BadCommand { .. })));
    }
}

#[tokio::test]
async fn stderr_is_captured_and_never_blocks() {
    for containment in BOTH {
        let spawner = spawner(containment);
        let child = spawn(&spawner, shell("echo one >&2; echo two >&2; exit 1")).await;
        within(child.watch().empty()).await;
        assert_eq!(child.stderr().last_lines(9), ["one", "two"]);
        let noisy = spawn(&spawner, behaviour(&["flood"])).await;
        assert_eq!(line(&noisy.stdout).await, "ready");
        until("a hundred megabytes went by", || noisy.stderr().total() > 100 << 20).await;
        assert!(noisy.stderr().last_lines(1)[0].starts_with("xxx"));
    }
}

#[tokio::test]
async fn life_is_seen_while_there_is_some() {
    for containment in BOTH {
        let spawner = spawner(containment);
        let busy = spawn(&spawner, shell("while :; do :; done")).await;
        let at_first = busy.activity();
        until("a busy child moves", || busy.activity() > at_first + 1).await;
        let dots = spawn(&spawner, shell("read x; echo . >&2; cat")).await;
        until("the start is over", || dots.activity() == dots.activity()).await;
        let before = dots.activity();
        within(dots.stdin.writable()).await.unwrap();
        dots.stdin.try_write(b"\n").unwrap();
        until("a dot moves", || dots.activity() > before).await;
    }
}
