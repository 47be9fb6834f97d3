//! The chaos child as told: that each misbehaviour really is one, seen without a gateway in between.

use std::fs;
use std::time::Duration;

use metamcp_testkit::chaos::HAZARDS;
use metamcp_testkit::{EventKind, census, eventually};
use serde_json::json;

use super::{Direct, PATIENCE, direct, greeted};

/// Calls `effect` and waits for an answer, if one comes before the process ends.
fn effect(child: &Direct, key: &str) -> anyhow::Result<metamcp_testkit::Answer> {
    let id = child.client.call_tool("effect", &json!({"key": key}))?;
    child.client.wait(id, PATIENCE)
}

#[test]
fn hazards_that_end_the_process_after_the_effect_have_journalled_it() {
    for (hazard, code) in [
        ("die-before-reply", Some(1)),
        ("exit-politely", Some(0)),
        ("dump-core", None),
        ("die-on-nth-call=1", Some(1)),
    ] {
        let mut child = greeted(&["--do", hazard]);
        assert!(effect(&child, "k").is_err(), "{hazard}");
        assert_eq!(child.client.wait_exit(PATIENCE).unwrap().code(), code, "{hazard}");
        assert_eq!(child.journal.executions("k").unwrap(), 1, "{hazard}");
    }
}

#[test]
fn hazards_that_end_the_handshake() {
    for hazard in ["exit-at-start", "exit-on-initialize"] {
        let child = direct(&["--do", hazard]);
        assert!(child.client.initialize(&json!({}), PATIENCE).is_err(), "{hazard}");
        assert!(eventually(PATIENCE, || child.client.has_ended()));
    }
    let mut child = direct(&["--do", "exit-later=1"]);
    assert_eq!(child.client.wait_exit(PATIENCE).unwrap().code(), Some(1));
    let child = direct(&["--do", "never-initialize"]);
    assert!(child.client.initialize(&json!({}), Duration::ZERO).is_err());
    assert!(eventually(PATIENCE, || child.journal.count(EventKind::Initialize).unwrap() == 1));
}

#[test]
fn a_reply_may_come_before_the_death_and_the_next_process_may_be_honest() {
    let mut child = greeted(&["--do", "reply-then-die"]);
    assert_eq!(effect(&child, "k").unwrap().text(), Some("done k"));
    assert_eq!(child.client.wait_exit(PATIENCE).unwrap().code(), Some(1));

    let once = child.workspace.file("once").to_string_lossy().into_owned();
    assert!(effect(&greeted(&["--do", "die-before-reply", "--once", &once]), "k").is_err());
    assert!(effect(&greeted(&["--do", "die-before-reply", "--once", &once]), "k").is_ok());
}

#[test]
fn only_some_calls_may_be_mistreated() {
    let child = greeted(&["--do", "die-before-reply", "--only", "bad", "--after", "1"]);
    assert!(effect(&child, "bad-1").is_ok(), "the first call is spared");
    assert!(effect(&child, "good").is_ok());
    assert!(effect(&child, "bad-2").is_err());
}

#[test]
fn hazards_that_leave_a_call_unanswered_but_the_process_alive() {
    for hazard in ["hang-after-effect", "close-stdout", "stop-reading", "stop-itself"] {
        let child = greeted(&["--do", hazard]);
        let id = child.client.call_tool("effect", &json!({"key": "k"})).unwrap();
        assert!(eventually(PATIENCE, || child.journal.executions("k").unwrap() == 1), "{hazard}");
        let stopped = || {
            census::all()
                .iter()
                .any(|process| process.pid == child.client.pid() && process.state == 'T')
        };
        match hazard {
            "close-stdout" => {
                assert!(eventually(PATIENCE, || child.client.has_ended()), "stdout is closed");
            }
            "stop-itself" => assert!(eventually(PATIENCE, stopped), "stopped by itself"),
            _ => {}
        }
        assert!(child.client.wait(id, Duration::ZERO).is_err());
        assert_eq!(child.workspace.processes().len(), 1, "{hazard} lives on");
    }
}

#[test]
fn a_closed_stdin_is_seen_by_the_writer() {
    let child = greeted(&["--do", "close-stdin"]);
    assert!(effect(&child, "k").is_ok());
    assert!(
        eventually(PATIENCE, || child.client.send("{}").is_err()),
        "writing fails once stdin is closed"
    );
    assert_eq!(child.workspace.processes().len(), 1);
}

#[test]
fn hazards_that_only_look_wrong_still_answer() {
    for hazard in [
        "answer-initialize-late=1",
        "initialize-twice",
        "banner",
        "log-lines",
        "partial-line=1",
        "one-byte-writes",
        "unknown-id",
        "answer-twice",
        "foreign-id",
        "answer-notification",
        "reuse-our-id",
        "cancel-unknown",
        "rug-pull",
        "confusing-names",
        "move-away",
    ] {
        let child = greeted(&["--do", hazard]);
        assert_eq!(effect(&child, "k").unwrap().text(), Some("done k"), "{hazard}");
        assert!(child.client.ask("tools/list", &json!({}), PATIENCE).is_ok(), "{hazard}");
    }
}

#[test]
fn hazards_that_a_strict_client_objects_to() {
    for (hazard, complaint) in [
        ("initialize-twice", "answer 2 to"),
        ("banner", "unusable"),
        ("log-lines", "unusable"),
        ("odd-line-ends", "unusable"),
        ("invalid-utf8", "unusable"),
        ("nul-bytes", "unusable"),
        ("duplicate-keys", "unusable"),
        ("unknown-id", "asked 0 times"),
        ("answer-twice", "answer 2 to"),
        ("foreign-id", "asked 0 times"),
        ("bent-id=1", "asked 0 times"),
        ("bent-id=2", "asked 0 times"),
        ("bent-id=3", "asked 0 times"),
        ("answer-notification", "unusable"),
        ("result-and-error", "unusable"),
    ] {
        let child = direct(&["--do", hazard]);
        // Not waited for: `odd-line-ends` makes even this answer unusable.
        child.client.request("initialize", &json!({})).unwrap();
        child.client.notify("notifications/initialized", &json!({})).unwrap();
        child.client.call_tool("effect", &json!({"key": "k"})).unwrap();
        let objected =
            || child.client.violations().iter().any(|violation| violation.contains(complaint));
        assert!(eventually(PATIENCE, objected), "{hazard}: {:?}", child.client.violations());
    }
}

#[test]
fn floods_are_as_large_as_told_and_then_the_answer_comes() {
    for (hazard, method) in [
        ("list-changed-flood=1000", "notifications/tools/list_changed"),
        ("progress-flood=1000", "notifications/progress"),
        ("request-flood=1000", "roots/list"),
        ("ping-flood=1000", "ping"),
    ] {
        let child = greeted(&["--do", hazard]);
        assert!(effect(&child, "k").is_ok(), "{hazard}");
        let lines = child.client.lines();
        let count = lines
            .iter()
            .filter(|line| String::from_utf8_lossy(&line.bytes).contains(method))
            .count();
        assert_eq!(count, if hazard.starts_with("request-flood") { 250 } else { 1000 }, "{hazard}");
        assert!(effect(&child, "again").is_ok());
        assert_eq!(child.client.lines().len(), lines.len() + 1, "one flood per process");
    }
}

#[test]
fn long_lines_are_long() {
    let child = greeted(&["--do", "long-line=3000000"]);
    assert_eq!(effect(&child, "k").unwrap().text().unwrap().len(), 3_000_000);
    let child = greeted(&["--do", "endless-line=3000000"]);
    assert_eq!(
        effect(&child, "k").unwrap().text(),
        Some("done k"),
        "the endless line has an end after all"
    );
    assert!(child.client.violations()[0].contains("(3000000 bytes)"));
    let child = greeted(&["--do", "deep-json"]);
    let id = child.client.call_tool("effect", &json!({"key": "k"})).unwrap();
    // The client's own parser skips over it; building a value of it is what fails.
    let refusal = child.client.wait(id, PATIENCE).unwrap_err();
    assert!(format!("{refusal:#}").contains("recursion limit"), "{refusal:#}");
}

#[test]
fn stderr_is_filled_while_the_call_waits() {
    let child = greeted(&["--do", "stderr-flood=5000000"]);
    assert!(effect(&child, "k").is_ok());
    assert!(eventually(PATIENCE, || child
        .client
        .stderr()
        .ends_with("the last words of chaos-child\n")));
}

#[test]
fn lists_are_as_monstrous_as_told() {
    let listed = |hazard: &str| {
        let child = greeted(&["--do", hazard]);
        let list = child.client.ask("tools/list", &json!({}), PATIENCE).unwrap();
        list.value["result"].clone()
    };
    assert!(listed("many-tools=5000")["tools"].as_array().unwrap().len() > 5000);
    assert_eq!(listed("looping-cursor")["nextCursor"], "second");
    let tools = listed("monstrous-schema=1000000")["tools"].clone();
    let schema = &tools.as_array().unwrap().last().unwrap()["inputSchema"];
    assert_eq!(schema["description"].as_str().unwrap().len(), 1_000_000);
    assert_ne!(listed("rug-pull"), listed("rug-pull"), "never the same twice");
    let names = listed("confusing-names")["tools"].to_string();
    assert!(names.contains("\u{435}cho") && names.contains("mcp_call"), "{names}");
}

#[test]
fn descendants_are_found_though_they_left_the_family() {
    for (hazard, count) in [("session-grandchild", 1), ("daemon-holds-pipe", 1), ("fork-bomb", 32)]
    {
        let mut child = greeted(&["--do", hazard]);
        let id = child.client.call_tool("effect", &json!({"key": "k"})).unwrap();
        // `daemon-holds-pipe` dies of its call, but the pipe it wrote to stays open: only its exit tells.
        if hazard == "daemon-holds-pipe" {
            assert_eq!(child.client.wait_exit(PATIENCE).unwrap().code(), Some(1));
            assert!(!child.client.has_ended());
        } else {
            child.client.wait(id, PATIENCE).unwrap();
        }
        assert!(
            eventually(PATIENCE, || child.journal.count(EventKind::Descendant).unwrap() == count),
            "{hazard}"
        );
        child.client.close_input();
        child.client.wait_exit(PATIENCE).unwrap();
        assert_eq!(child.workspace.processes().len(), count, "{hazard}: they outlive the child");
    }
}

#[test]
fn zombies_are_left_lying() {
    let child = greeted(&["--do", "zombies=5"]);
    assert!(effect(&child, "k").is_ok());
    let zombies = || {
        census::descendants(child.client.pid())
            .iter()
            .filter(|process| process.state == 'Z')
            .count()
    };
    assert!(eventually(PATIENCE, || zombies() == 5), "{}", zombies());
}

#[test]
fn a_deaf_child_outlives_polite_signals_and_the_end_of_input() {
    use nix::sys::signal::Signal;

    let mut child = greeted(&["--do", "ignore-end-of-input,ignore-signals"]);
    child.client.close_input();
    assert!(eventually(PATIENCE, || child.journal.count(EventKind::EndOfInput).unwrap() == 1));
    child.client.signal(Signal::SIGTERM).unwrap();
    child.client.signal(Signal::SIGINT).unwrap();
    assert!(child.client.wait_exit(Duration::from_millis(50)).is_err());
    child.client.signal(Signal::SIGKILL).unwrap();
    child.client.wait_exit(PATIENCE).unwrap();
}

#[test]
fn resources_are_used_up_within_bounds() {
    let child = greeted(&["--do", "eat-memory=200000000"]);
    assert!(effect(&child, "k").is_ok());
    let peak = census::peak_resident_bytes(child.client.pid()).unwrap();
    assert!((180_000_000..300_000_000).contains(&peak), "{peak}");

    let child = greeted(&["--do", "fill-directory=3145728"]);
    assert!(effect(&child, "k").is_ok());
    let filled: u64 = fs::read_dir(child.workspace.project())
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("chaos-fill-"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum();
    assert_eq!(filled, 3_145_728);
}

#[test]
fn a_late_child_answers_all_the_same() {
    for hazard in ["reply-late=30", "slow-installer=30"] {
        let child = greeted(&["--do", hazard]);
        assert!(effect(&child, "k").is_ok(), "{hazard}");
    }
}

#[test]
fn surroundings_are_journalled() {
    let child = greeted(&["--do", "look-around"]);
    let record = &child.journal.of(EventKind::Surroundings).unwrap()[0];
    assert_eq!(record.detail["environment"]["TESTKIT_MARK"], child.workspace.mark());
}

#[test]
fn an_unknown_hazard_is_refused_with_the_way_to_learn_more() {
    let mut child = direct(&["--do", "no-such-hazard"]);
    assert_eq!(child.client.wait_exit(PATIENCE).unwrap().code(), Some(2));
    assert!(
        eventually(PATIENCE, || child.client.stderr().contains("see --list")),
        "{}",
        child.client.stderr()
    );
    assert_eq!(HAZARDS.len(), 60);
}
