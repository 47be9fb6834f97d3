//! `/metrics`: what is counted, in which form, and whose token reads it.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use metamcp_testkit::{EventKind, Workspace, chaos_server, eventually};
use serde_json::json;

use crate::served::{Served, call, initialize};
use crate::wire::{PATIENCE, Request, Response};

fn scrape(served: &Served) -> String {
    let mut response = Request::new("GET", "/metrics").send(served.address);
    assert_eq!(response.status, 200);
    response.text()
}

fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(&format!("{series} ")))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// What `metamcp token` prints with these arguments.
fn token(workspace: &Workspace, args: &[&str]) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_metamcp"));
    let mut command = workspace.command(program).unwrap();
    let output = command.arg("token").args(args).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn with(token: &str, method: &str, target: &str, served: &Served) -> Response {
    let request =
        Request::new(method, target).with("Accept", "application/json, text/event-stream");
    let body = initialize("2025-06-18", &json!({}));
    let request = match method {
        "POST" => request.with("Content-Type", "application/json").body(&body.to_string()),
        _ => request,
    };
    request.with("Authorization", &format!("Bearer {token}")).send(served.address)
}

#[test]
fn what_happens_is_counted_and_what_is_the_case_is_read() {
    let served = Served::start(&[]);
    let session = served.session(&json!({}));
    for id in 1..=3 {
        assert_eq!(session.text(id, "echo", &json!({"text": "x"})), "x");
    }
    session.call(4, "fail", &json!({})).text();
    session.call(5, "invented", &json!({})).text();
    let listed = session.post(&json!({"jsonrpc": "2.0", "id": 6, "method": "tools/list"})).json();
    assert!(listed["result"]["tools"].is_array());
    let text = scrape(&served);
    for (series, expected) in [
        (r#"metamcp_calls_total{server="a",tool="echo",verdict="ok"}"#, 3.0),
        (r#"metamcp_calls_total{server="a",tool="fail",verdict="tool_error"}"#, 1.0),
        (r#"metamcp_calls_total{server="a",tool="other",verdict="tool_not_found"}"#, 1.0),
        (r#"metamcp_call_duration_seconds_count{server="a"}"#, 5.0),
        (r#"metamcp_call_queue_seconds_count{server="a"}"#, 4.0),
        (r#"metamcp_server_starts_total{server="a"}"#, 1.0),
        (r#"metamcp_breakers{server="a",phase="normal"}"#, 1.0),
        ("metamcp_pool_slots_used", 1.0),
        ("metamcp_calls_open", 0.0),
        ("metamcp_sessions", 1.0),
    ] {
        assert_eq!(value(&text, series), Some(expected), "{series}\n{text}");
    }
    for series in [
        r#"metamcp_tokens_saved_total{by="lists"}"#,
        "metamcp_tokens_shown_total",
        "metamcp_memory_bytes",
        r#"metamcp_server_memory_bytes{server="a"}"#,
    ] {
        assert!(value(&text, series).is_some_and(|value| value > 10.0), "{series}\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    served.end();
}

#[test]
fn a_scraper_gets_the_form_it_asks_for() {
    let served = Served::start(&[]);
    for (accept, kind, ending) in [
        (
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            true,
        ),
        ("text/plain;version=0.0.4", "text/plain; version=0.0.4; charset=utf-8", false),
    ] {
        let mut response =
            Request::new("GET", "/metrics").with("Accept", accept).send(served.address);
        assert_eq!(response.header("content-type"), Some(kind));
        assert_eq!(response.header("cache-control"), Some("no-store"));
        let text = response.text();
        assert!(text.contains("metamcp_build_info"), "{text}");
        assert_eq!(text.ends_with("# EOF\n"), ending, "{text}");
    }
    assert_eq!(Request::new("POST", "/metrics").send(served.address).status, 405);
    served.end();
}

#[test]
fn the_token_for_metrics_reads_them_and_opens_nothing_else() {
    let served = Served::start(&[]);
    let own = served.token();
    let metrics = token(&served.workspace, &["--metrics"]);
    assert_ne!(metrics, own);
    assert_eq!(token(&served.workspace, &["--metrics"]), metrics, "it stays");
    let is_read = || with(&metrics, "GET", "/metrics", &served).status == 200;
    assert!(eventually(PATIENCE, is_read), "a token that is new is known within seconds");
    assert_eq!(with(&own, "GET", "/metrics", &served).status, 200);
    assert_eq!(Request::new("GET", "/metrics").anonymous().send(served.address).status, 401);
    for (method, target) in [
        ("POST", "/mcp"),
        ("GET", "/mcp"),
        ("DELETE", "/mcp"),
        ("POST", "/mcp/direct"),
        ("POST", "/mcp/full"),
    ] {
        let mut response = with(&metrics, method, target, &served);
        assert_eq!(response.status, 403, "{method} {target}");
        let text = response.text();
        assert!(text.contains("reads metrics and opens nothing else"), "{text}");
    }
    let steal = call(2, "effect", &json!({"key": "stolen"}));
    let stolen = Request::post(&steal).with("Authorization", &format!("Bearer {metrics}"));
    assert_eq!(stolen.send(served.address).status, 403);
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 0);
    let rotated = token(&served.workspace, &["--metrics", "--rotate"]);
    let is_replaced = || {
        with(&rotated, "GET", "/metrics", &served).status == 200
            && with(&metrics, "GET", "/metrics", &served).status == 401
    };
    assert!(eventually(PATIENCE, is_replaced));
    served.end();
}

#[test]
fn a_token_of_a_file_reads_metrics_only_by_its_role() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    workspace.setting("toolsets", json!({"docs": {"servers": ["a"]}}));
    let file = workspace.home().join("tokens");
    fs::write(&file, "plain-token name=ada\nbound-token toolset=docs\nmeter-token role=metrics\n")
        .unwrap();
    let served = Served::start_in(workspace, &["--token-file", file.to_str().unwrap()]);
    let status =
        |token: &str, method: &str, target: &str| with(token, method, target, &served).status;
    assert_eq!(status("plain-token", "POST", "/mcp"), 200);
    assert_eq!(status("plain-token", "GET", "/metrics"), 403);
    assert_eq!(status("bound-token", "GET", "/metrics"), 403);
    assert_eq!(status("meter-token", "GET", "/metrics"), 200);
    for target in ["/mcp", "/mcp/direct", "/mcp/toolsets/docs"] {
        assert_eq!(status("meter-token", "POST", target), 403, "{target}");
    }
    served.end();
}

#[test]
fn nothing_is_counted_where_that_is_switched_off() {
    let served = Served::start(&["--metrics-enabled", "false"]);
    let mut response = Request::new("GET", "/metrics").send(served.address);
    assert_eq!(response.status, 404);
    assert!(response.text().contains("metrics.enabled"));
    served.end();
}
