//! Names that a hostile client invents cost a bounded number of series.

use metamcp_testkit::{Workspace, chaos_server};
use serde_json::{Value, json};

use crate::status::metrics;
use crate::{PATIENCE, client};

/// Five times as many as have labels of their own.
const INVENTED: usize = 10_000;

#[test]
fn ten_thousand_invented_tools_are_other() {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    workspace.server("a", chaos_server(&[]));
    let client = client(&workspace, &["--surface", "direct"], &[]);
    let call = |name: &str| json!({"name": name, "arguments": {"text": "x"}});
    let all = |calls: &[Value]| {
        for id in client.request_at_once("tools/call", calls).unwrap() {
            client.wait(id, PATIENCE).unwrap();
        }
    };
    all(&[call("echo")]);
    for start in (0..INVENTED).step_by(200) {
        let calls: Vec<Value> =
            (start..start + 200).map(|at| call(&format!("invented_{at}"))).collect();
        all(&calls);
    }
    all(&[call("echo"), call(&"long".repeat(10_000))]);
    let text = metrics(&workspace);
    let series: Vec<&str> =
        text.lines().filter(|line| line.starts_with("metamcp_calls_total{")).collect();
    assert!(series.len() <= 2_010, "{}", series.len());
    let echo = r#"metamcp_calls_total{server="a",tool="echo",verdict="ok"} 2"#;
    assert!(series.contains(&echo), "{series:?}");
    assert!(text.len() < 1024 * 1024, "{}", text.len());
    assert!(!text.contains("longlong"));
}
