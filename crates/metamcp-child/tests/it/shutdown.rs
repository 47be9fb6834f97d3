//! The shutdown escalation on servers that will not exit.

use std::time::Duration;

use metamcp_child::{Containment, Escalation, Exit};

use crate::support::{
    BOTH, assert_gone, behaviour, line, mark, marked, rest, shell, spawn, spawner, spec, until,
    within,
};

#[tokio::test]
async fn a_polite_child_ends_on_the_end_of_input() {
    for containment in BOTH {
        let parts = spawn(&spawner(containment), spec("cat", &[])).await.into_parts();
        drop(parts.stdin);
        within(parts.handle.stop(Escalation::graceful())).await;
        assert_eq!(parts.handle.watch().exit(), Some(Exit { code: Some(0), signal: None }));
    }
}

#[tokio::test]
async fn a_child_that_waits_for_a_signal_gets_one() {
    for containment in BOTH {
        let script = "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done";
        let parts = spawn(&spawner(containment), shell(script)).await.into_parts();
        assert_eq!(line(&parts.stdout).await, "ready");
        within(parts.handle.stop(Escalation::graceful())).await;
        assert_eq!(parts.handle.watch().exit(), Some(Exit { code: Some(3), signal: None }));
    }
}

#[tokio::test]
async fn a_child_that_only_heeds_interrupts_gets_one() {
    for containment in BOTH {
        let script = "trap '' TERM; trap 'exit 4' INT; echo ready; while :; do sleep 0.01; done";
        let parts = spawn(&spawner(containment), shell(script)).await.into_parts();
        assert_eq!(line(&parts.stdout).await, "ready");
        within(parts.handle.stop(Escalation::graceful())).await;
        assert_eq!(parts.handle.watch().exit(), Some(Exit { code: Some(4), signal: None }));
    }
}

#[tokio::test]
async fn a_deaf_tree_is_killed_to_the_last_process() {
    for containment in BOTH {
        let mark = mark();
        let parts = spawn(&spawner(containment), behaviour(&["tree", &mark])).await.into_parts();
        assert_eq!(line(&parts.stdout).await, "ready");
        assert!(marked(&mark).len() >= 5, "{:?}", marked(&mark));
        within(parts.handle.stop(Escalation::graceful())).await;
        assert_gone(&mark);
        assert_eq!(parts.handle.watch().exit(), Some(Exit { code: None, signal: Some(9) }));
    }
}

#[tokio::test]
async fn a_child_that_ignores_signals_gets_the_whole_escalation() {
    for containment in BOTH {
        let script = "trap 'echo TERM >&2' TERM; trap 'echo INT >&2' INT; echo ready; \
                      read line || echo END >&2; while :; do sleep 0.01; done";
        let parts = spawn(&spawner(containment), shell(script)).await.into_parts();
        assert_eq!(line(&parts.stdout).await, "ready");
        drop(parts.stdin);
        until("the end of input", || parts.handle.stderr().total() > 0).await;
        within(parts.handle.stop(Escalation::graceful())).await;
        let heard = parts.handle.stderr().last_lines(99);
        let first = |word: &str| heard.iter().position(|line| line == word);
        let asked = ["END", "TERM", "INT"].map(first);
        assert!(asked.is_sorted() && asked.iter().all(Option::is_some), "{heard:?}");
        assert_eq!(parts.handle.watch().exit(), Some(Exit { code: None, signal: Some(9) }));
    }
}

#[tokio::test]
async fn a_stopped_child_is_woken_to_hear_the_signal() {
    for containment in BOTH {
        let parts = spawn(&spawner(containment), behaviour(&["stop-self"])).await.into_parts();
        assert_eq!(line(&parts.stdout).await, "ready");
        let pid = parts.handle.pid().cast_signed();
        until("stopped", || crate::support::state(pid) == Some('T')).await;
        let stop = parts.handle.stop(Escalation::graceful());
        within(stop).await;
        assert_eq!(parts.handle.watch().exit(), Some(Exit { code: None, signal: Some(15) }));
    }
}

#[tokio::test]
async fn what_outlives_the_leader_keeps_the_container_full() {
    for containment in BOTH {
        let mark = mark();
        let child = spawn(&spawner(containment), behaviour(&["tree-then-exit", &mark])).await;
        let watch = child.watch();
        assert_eq!(within(watch.exited()).await, Exit { code: Some(0), signal: None });
        assert!(!watch.is_empty());
        assert!(!marked(&mark).is_empty());
        child.handle().kill_now();
        within(watch.empty()).await;
        assert_gone(&mark);
    }
}

#[tokio::test]
async fn a_full_stdout_does_not_hold_up_the_kill() {
    for containment in BOTH {
        let parts = spawn(&spawner(containment), shell("trap '' TERM INT; yes")).await.into_parts();
        within(parts.stdout.readable()).await.unwrap();
        parts.handle.kill_now();
        within(parts.handle.watch().empty()).await;
        assert!(!rest(&parts.stdout).await.is_empty());
    }
}

#[tokio::test]
async fn dropping_the_last_handle_is_a_kill() {
    for containment in BOTH {
        let mark = mark();
        let child = spawn(&spawner(containment), behaviour(&["tree", &mark])).await;
        assert_eq!(line(&child.stdout).await, "ready");
        let watch = child.watch();
        drop(child);
        within(watch.empty()).await;
        assert_gone(&mark);
    }
}

#[tokio::test]
async fn a_stop_goes_on_without_its_future_and_two_stops_are_one() {
    for containment in BOTH {
        let parts = spawn(&spawner(containment), behaviour(&["deaf"])).await.into_parts();
        assert_eq!(line(&parts.stdout).await, "ready");
        let first = tokio::time::timeout(
            Duration::from_millis(1),
            parts.handle.stop(Escalation::graceful()),
        );
        assert!(first.await.is_err());
        let second = parts.handle.clone();
        within(async {
            tokio::join!(
                second.stop(Escalation::graceful()),
                parts.handle.stop(Escalation::graceful())
            )
        })
        .await;
        assert_eq!(parts.handle.watch().exit(), Some(Exit { code: None, signal: Some(9) }));
    }
}

#[tokio::test]
async fn a_second_stop_does_not_begin_again() {
    for containment in BOTH {
        let script =
            "trap 'echo T >&2' TERM; trap '' INT; echo ready; while :; do sleep 0.01; done";
        let parts = spawn(&spawner(containment), shell(script)).await.into_parts();
        assert_eq!(line(&parts.stdout).await, "ready");
        let first = tokio::spawn({
            let handle = parts.handle.clone();
            async move { handle.stop(Escalation::graceful()).await }
        });
        until("the first signal", || parts.handle.stderr().total() > 0).await;
        within(parts.handle.stop(Escalation::graceful())).await;
        within(first).await.unwrap();
        let heard = parts.handle.stderr().last_lines(9).iter().filter(|line| *line == "T").count();
        assert!((1..=3).contains(&heard), "{heard} of three");
    }
}

/// The brisk escalation has no SIGINT, and is over before the graceful one would send its SIGKILL.
#[tokio::test]
async fn a_brisk_stop_overtakes_a_graceful_one() {
    for containment in BOTH {
        let script = "trap 'echo TERM >&2' TERM; trap 'echo INT >&2' INT; echo ready; \
                      while :; do sleep 0.01; done";
        let parts = spawn(&spawner(containment), shell(script)).await.into_parts();
        assert_eq!(line(&parts.stdout).await, "ready");
        within(async {
            tokio::join!(
                parts.handle.stop(Escalation::graceful()),
                parts.handle.stop(Escalation::brisk()),
                parts.handle.stop(Escalation::graceful())
            )
        })
        .await;
        let heard = parts.handle.stderr().last_lines(9);
        assert!(heard.iter().any(|line| line == "TERM"), "{heard:?}");
        assert!(!heard.iter().any(|line| line == "INT"), "{heard:?}");
        assert_eq!(parts.handle.watch().exit(), Some(Exit { code: None, signal: Some(9) }));
    }
}

#[tokio::test]
async fn twenty_deaf_children_end_together() {
    for containment in BOTH {
        let spawner = spawner(containment);
        let mark = mark();
        let mut children = Vec::new();
        for _ in 0..20 {
            let child = spawn(&spawner, behaviour(&["deaf", &mark])).await;
            assert_eq!(line(&child.stdout).await, "ready");
            children.push(child.into_parts());
        }
        let stops: Vec<_> = children
            .iter()
            .map(|child| {
                let handle = child.handle.clone();
                tokio::spawn(async move { handle.stop(Escalation::graceful()).await })
            })
            .collect();
        for stop in stops {
            within(stop).await.unwrap();
        }
        assert_gone(&mark);
    }
}

#[tokio::test]
async fn an_abandoned_spawn_leaves_nothing() {
    let mark = mark();
    let spawner = spawner(Containment::Auto);
    for _ in 0..10 {
        let spawn = spawner.spawn(behaviour(&["tree", &mark]));
        tokio::time::timeout(Duration::from_millis(2), spawn).await.ok();
    }
    drop(spawner);
    until("nothing is left", || marked(&mark).is_empty()).await;
}
