//! The chaos child as told: that each misbehaviour really is one, seen without a gateway in between.

use std::fs;
use std::time::Duration;

use metamcp_testkit::chaos::MISBEHAVIOURS;
use metamcp_testkit::{What, census, eventually};
use serde_json::json;

use super::{Direct, PATIENCE, direct, greeted};

/// Calls `effect` and waits for an answer, if one comes before the process ends.
fn effect(child: &Direct, key: &str) -> anyhow::Result<metamcp_testkit::Answer> {
    let id = child.client.call_tool("effect", &json!({"key": key}))?;
    child.client.wait(id, PATIENCE)
}

#[test]
fn items_that_end_the_process_after_the_effect_have_journalled_it() {
    for (item, code) in [("37", Some(1)), ("57", Some(0)), ("58", None), ("41=1", Some(1))] {
        let mut child = greeted(&["--do", item]);
        assert!(effect(&child, "k").is_err(), "item {item}");
        assert_eq!(child.client.wait_exit(PATIENCE).unwrap().code(), code, "item {item}");
        assert_eq!(child.journal.executions("k").unwrap(), 1, "item {item}");
    }
}

#[test]
fn items_that_end_the_handshake() {
    for item in ["1", "3"] {
        let child = direct(&["--do", item]);
        assert!(child.client.initialize(&json!({}), PATIENCE).is_err(), "item {item}");
        assert!(eventually(PATIENCE, || child.client.has_ended()));
    }
    let mut child = direct(&["--do", "2=1"]);
    assert_eq!(child.client.wait_exit(PATIENCE).unwrap().code(), Some(1));
    let child = direct(&["--do", "4"]);
    assert!(child.client.initialize(&json!({}), Duration::ZERO).is_err());
    assert!(eventually(PATIENCE, || child.journal.count(What::Initialize).unwrap() == 1));
}

#[test]
fn a_reply_may_come_before_the_death_and_the_next_process_may_be_honest() {
    let mut child = greeted(&["--do", "39"]);
    assert_eq!(effect(&child, "k").unwrap().text(), Some("done k"));
    assert_eq!(child.client.wait_exit(PATIENCE).unwrap().code(), Some(1));

    let once = child.workspace.file("once").to_string_lossy().into_owned();
    assert!(effect(&greeted(&["--do", "37", "--once", &once]), "k").is_err());
    assert!(effect(&greeted(&["--do", "37", "--once", &once]), "k").is_ok());
}

#[test]
fn only_some_calls_may_be_mistreated() {
    let child = greeted(&["--do", "37", "--only", "bad", "--after", "1"]);
    assert!(effect(&child, "bad-1").is_ok(), "the first call is spared");
    assert!(effect(&child, "good").is_ok());
    assert!(effect(&child, "bad-2").is_err());
}

#[test]
fn items_that_leave_a_call_unanswered_but_the_process_alive() {
    for item in ["38", "42", "44", "48"] {
        let child = greeted(&["--do", item]);
        let id = child.client.call_tool("effect", &json!({"key": "k"})).unwrap();
        assert!(
            eventually(PATIENCE, || child.journal.executions("k").unwrap() == 1),
            "item {item}"
        );
        let stopped = || {
            census::all()
                .iter()
                .any(|process| process.pid == child.client.pid() && process.state == 'T')
        };
        match item {
            "42" => assert!(eventually(PATIENCE, || child.client.has_ended()), "stdout is closed"),
            "48" => assert!(eventually(PATIENCE, stopped), "stopped by itself"),
            _ => {}
        }
        assert!(child.client.wait(id, Duration::ZERO).is_err());
        assert_eq!(child.workspace.processes().len(), 1, "item {item} lives on");
    }
}

#[test]
fn a_closed_stdin_is_seen_by_the_writer() {
    let child = greeted(&["--do", "43"]);
    assert!(effect(&child, "k").is_ok());
    assert!(
        eventually(PATIENCE, || child.client.send("{}").is_err()),
        "writing fails once stdin is closed"
    );
    assert_eq!(child.workspace.processes().len(), 1);
}

#[test]
fn items_that_only_look_wrong_still_answer() {
    for item in
        ["5=1", "7", "9", "10", "11=1", "12", "20", "21", "22", "24", "30", "31", "35", "36", "59"]
    {
        let child = greeted(&["--do", item]);
        assert_eq!(effect(&child, "k").unwrap().text(), Some("done k"), "item {item}");
        assert!(child.client.ask("tools/list", &json!({}), PATIENCE).is_ok(), "item {item}");
    }
}

#[test]
fn items_that_a_strict_client_objects_to() {
    for (item, complaint) in [
        ("7", "answer 2 to"),
        ("9", "unusable"),
        ("10", "unusable"),
        ("13", "unusable"),
        ("14", "unusable"),
        ("15", "unusable"),
        ("19", "unusable"),
        ("20", "asked 0 times"),
        ("21", "answer 2 to"),
        ("22", "asked 0 times"),
        ("23=1", "asked 0 times"),
        ("23=2", "asked 0 times"),
        ("23=3", "asked 0 times"),
        ("24", "unusable"),
        ("25", "unusable"),
    ] {
        let child = direct(&["--do", item]);
        // Not waited for: item 13 makes even this answer unusable.
        child.client.request("initialize", &json!({})).unwrap();
        child.client.notify("notifications/initialized", &json!({})).unwrap();
        child.client.call_tool("effect", &json!({"key": "k"})).unwrap();
        let objected =
            || child.client.violations().iter().any(|violation| violation.contains(complaint));
        assert!(eventually(PATIENCE, objected), "item {item}: {:?}", child.client.violations());
    }
}

#[test]
fn floods_are_as_large_as_told_and_then_the_answer_comes() {
    for (item, method) in [
        ("26=1000", "notifications/tools/list_changed"),
        ("27=1000", "notifications/progress"),
        ("28=1000", "roots/list"),
        ("29=1000", "ping"),
    ] {
        let child = greeted(&["--do", item]);
        assert!(effect(&child, "k").is_ok(), "item {item}");
        let lines = child.client.lines();
        let count = lines
            .iter()
            .filter(|line| String::from_utf8_lossy(&line.bytes).contains(method))
            .count();
        assert_eq!(count, if item.starts_with("28") { 250 } else { 1000 }, "item {item}");
        assert!(effect(&child, "again").is_ok());
        assert_eq!(child.client.lines().len(), lines.len() + 1, "one flood per process");
    }
}

#[test]
fn long_lines_are_long() {
    let child = greeted(&["--do", "17=3000000"]);
    assert_eq!(effect(&child, "k").unwrap().text().unwrap().len(), 3_000_000);
    let child = greeted(&["--do", "16=3000000"]);
    assert_eq!(
        effect(&child, "k").unwrap().text(),
        Some("done k"),
        "the endless line has an end after all"
    );
    assert!(child.client.violations()[0].contains("(3000000 bytes)"));
    let child = greeted(&["--do", "18"]);
    let id = child.client.call_tool("effect", &json!({"key": "k"})).unwrap();
    // The client's own parser skips over it; building a value of it is what fails.
    let refusal = child.client.wait(id, PATIENCE).unwrap_err();
    assert!(format!("{refusal:#}").contains("recursion limit"), "{refusal:#}");
}

#[test]
fn stderr_is_filled_while_the_call_waits() {
    let child = greeted(&["--do", "45=5000000"]);
    assert!(effect(&child, "k").is_ok());
    assert!(eventually(PATIENCE, || child
        .client
        .stderr()
        .ends_with("the last words of chaos-child\n")));
}

#[test]
fn lists_are_as_monstrous_as_told() {
    let listed = |item: &str| {
        let child = greeted(&["--do", item]);
        let list = child.client.ask("tools/list", &json!({}), PATIENCE).unwrap();
        list.value["result"].clone()
    };
    assert!(listed("32=5000")["tools"].as_array().unwrap().len() > 5000);
    assert_eq!(listed("33")["nextCursor"], "second");
    let tools = listed("34=1000000")["tools"].clone();
    let schema = &tools.as_array().unwrap().last().unwrap()["inputSchema"];
    assert_eq!(schema["description"].as_str().unwrap().len(), 1_000_000);
    assert_ne!(listed("35"), listed("35"), "never the same twice");
    let names = listed("36")["tools"].to_string();
    assert!(names.contains("\u{435}cho") && names.contains("mcp_call"), "{names}");
}

#[test]
fn descendants_are_found_though_they_left_the_family() {
    for (item, count) in [("49", 1), ("50", 1), ("51", 32)] {
        let mut child = greeted(&["--do", item]);
        let id = child.client.call_tool("effect", &json!({"key": "k"})).unwrap();
        // Item 50 dies of its call, but the pipe it wrote to stays open: only its exit tells.
        if item == "50" {
            assert_eq!(child.client.wait_exit(PATIENCE).unwrap().code(), Some(1));
            assert!(!child.client.has_ended());
        } else {
            child.client.wait(id, PATIENCE).unwrap();
        }
        assert!(
            eventually(PATIENCE, || child.journal.count(What::Descendant).unwrap() == count),
            "item {item}"
        );
        child.client.close_input();
        child.client.wait_exit(PATIENCE).unwrap();
        assert_eq!(child.workspace.processes().len(), count, "item {item}: they outlive the child");
    }
}

#[test]
fn zombies_are_left_lying() {
    let child = greeted(&["--do", "55=5"]);
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

    let mut child = greeted(&["--do", "46,47"]);
    child.client.close_input();
    assert!(eventually(PATIENCE, || child.journal.count(What::EndOfInput).unwrap() == 1));
    child.client.signal(Signal::SIGTERM).unwrap();
    child.client.signal(Signal::SIGINT).unwrap();
    assert!(child.client.wait_exit(Duration::from_millis(50)).is_err());
    child.client.signal(Signal::SIGKILL).unwrap();
    child.client.wait_exit(PATIENCE).unwrap();
}

#[test]
fn resources_are_used_up_within_bounds() {
    let child = greeted(&["--do", "52=200000000"]);
    assert!(effect(&child, "k").is_ok());
    let peak = census::peak_resident_bytes(child.client.pid()).unwrap();
    assert!((180_000_000..300_000_000).contains(&peak), "{peak}");

    let child = greeted(&["--do", "53=3145728"]);
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
    for item in ["40=30", "56=30"] {
        let child = greeted(&["--do", item]);
        assert!(effect(&child, "k").is_ok(), "item {item}");
    }
}

#[test]
fn surroundings_are_journalled() {
    let child = greeted(&["--do", "60"]);
    let record = &child.journal.of(What::Surroundings).unwrap()[0];
    assert_eq!(record.detail["environment"]["TESTKIT_MARK"], child.workspace.mark());
}

#[test]
fn an_unknown_item_is_refused_with_the_way_to_learn_more() {
    let mut child = direct(&["--do", "61"]);
    assert_eq!(child.client.wait_exit(PATIENCE).unwrap().code(), Some(2));
    assert!(
        eventually(PATIENCE, || child.client.stderr().contains("see --list")),
        "{}",
        child.client.stderr()
    );
    assert_eq!(MISBEHAVIOURS.len(), 60);
}
