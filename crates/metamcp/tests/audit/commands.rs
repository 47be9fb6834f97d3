//! `metamcp audit` as its user sees it.

use std::fs;

use serde_json::{Value, json};

use crate::logged::{call, end, gateway, json_of, run, sha256, whole, workspace};

fn logged() -> metamcp_testkit::Workspace {
    let workspace = workspace(&json!({ "enabled": true }));
    let client = gateway(&workspace, &[]);
    for text in ["a", "b", "c"] {
        call(&client, "echo", &json!({"text": text}));
    }
    call(&client, "fail", &json!({}));
    end(client);
    workspace
}

#[test]
fn lines_are_found_by_what_they_say() {
    let workspace = logged();
    let count = |args: &[&str]| {
        let all = [&["audit", "query", "--json"][..], args].concat();
        let output = run(&workspace, &all);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert_eq!(count(&["--kind", "call"]), 4);
    assert_eq!(count(&["--kind", "call", "--failed"]), 1);
    assert_eq!(count(&["--tool", "ec*", "--server", "one", "--verdict", "ok"]), 3);
    assert_eq!(count(&["--client", "testkit", "--since", "1h"]), 4);
    assert_eq!(count(&["--until", "1h"]), 0);
    assert_eq!(count(&["--client", "nobody"]), 0);
    let tail = run(&workspace, &["audit", "tail", "-n", "2", "--kind", "call"]);
    let tail = String::from_utf8(tail.stdout).unwrap();
    assert_eq!(tail.lines().count(), 2);
    assert!(
        tail.contains("one:fail") && tail.contains("tool_error") && tail.contains("owner testkit"),
        "{tail}"
    );
    let wrong = run(&workspace, &["audit", "query", "--kind", "cal"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("did you mean call?"), "{wrong:?}");
    assert_eq!(run(&workspace, &["audit", "query", "--since", "soon"]).status.code(), Some(2));
}

#[test]
fn an_export_says_what_it_is_and_replaces_nothing() {
    let workspace = logged();
    let path = workspace.file("calls.jsonl");
    let file = path.to_str().unwrap();
    let args = ["audit", "export", "--kind", "call", "--output", file];
    assert!(run(&workspace, &args).status.success());
    let manifest = fs::read(workspace.file("calls.jsonl.manifest.json")).unwrap();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let exported = fs::read(&path).unwrap();
    assert_eq!((&manifest["lines"], &manifest["format"]), (&json!(4), &json!("jsonl")));
    assert_eq!(manifest["sha256"], sha256(&exported));
    let head = json_of(&workspace, &["audit", "head", "--json"]).0;
    assert_eq!(manifest["head"], head["head"]);
    assert!(!run(&workspace, &args).status.success());
    assert_eq!(fs::read(&path).unwrap(), exported);
    let table = run(&workspace, &["audit", "export", "--csv", "--kind", "call"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert_eq!(table.lines().count(), 5);
    assert!(table.starts_with("seq,time,kind,"), "{table}");
}

#[test]
fn verify_tells_a_change_from_a_cut_and_both_from_a_log_written_anew() {
    let workspace = logged();
    let report = whole(&workspace);
    let head = run(&workspace, &["audit", "head"]);
    let head = String::from_utf8(head.stdout).unwrap();
    assert_eq!(report["head"], head.trim());
    let expected = json_of(&workspace, &["audit", "verify", "--json", "--expect", head.trim()]);
    assert_eq!((&expected.0["expected"], expected.1), (&json!("found"), Some(0)));
    let file = workspace.home().join(".metamcp/audit/000001.jsonl");
    let log = fs::read(&file).unwrap();
    let kinds = |report: &Value| -> Vec<String> {
        let findings = report["findings"].as_array().unwrap().iter();
        findings.map(|one| one["kind"].as_str().unwrap().to_owned()).collect()
    };
    // A line more, cut as by a kill.
    fs::write(&file, [&log[..], b"{\"v\":1,\"seq\":8,\"time"].concat()).unwrap();
    assert_eq!(whole(&workspace)["cuts"].as_array().unwrap().len(), 1);
    // One word changed.
    let changed = String::from_utf8(log.clone()).unwrap().replacen("tool_error", "tool_errer", 1);
    fs::write(&file, changed).unwrap();
    let (report, code) = json_of(&workspace, &["audit", "verify", "--json"]);
    assert_eq!((kinds(&report), code), (vec!["changed".to_owned()], Some(6)), "{report:#}");
    assert_eq!(report["cuts"], json!([]));
    // A line removed from the middle, and one from the end.
    let lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
    for gone in [2, lines.len() - 1] {
        let mut left = lines.clone();
        left.remove(gone);
        fs::write(&file, left.concat()).unwrap();
        let (report, code) = json_of(&workspace, &["audit", "verify", "--json"]);
        assert_eq!((kinds(&report), code), (vec!["missing".to_owned()], Some(6)), "{report:#}");
        let told = run(&workspace, &["audit", "verify"]);
        assert!(String::from_utf8_lossy(&told.stdout).contains("missing"), "{told:?}");
    }
    // Another log altogether.
    fs::remove_dir_all(workspace.home().join(".metamcp/audit")).unwrap();
    let client = gateway(&workspace, &[]);
    for _ in 0..9 {
        call(&client, "echo", &json!({"text": "x"}));
    }
    end(client);
    whole(&workspace);
    let (report, code) =
        json_of(&workspace, &["audit", "verify", "--json", "--expect", head.trim()]);
    assert_eq!((kinds(&report), code), (vec!["not_expected".to_owned()], Some(6)));
}
