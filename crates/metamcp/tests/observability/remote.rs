//! A trace goes on to a remote server: in `_meta`, and in the headers.

use std::sync::Arc;

use metamcp_testkit::Workspace;
use metamcp_testkit::site::Site;
use metamcp_testkit::site::honest::{HonestServer, RemoteTransport};
use serde_json::json;

use crate::{PATIENCE, client};

#[test]
fn a_remote_server_gets_the_context_in_its_headers_too() {
    let honest = Arc::new(HonestServer::new(RemoteTransport::Sessions, false));
    let answering = Arc::clone(&honest);
    let site = Site::start(Arc::new(move |request, exchange| answering.answer(request, exchange)))
        .unwrap();
    let mut workspace = Workspace::new().unwrap();
    workspace.entry("far", json!({"url": site.url("/mcp")}));
    // Recorded for a collector that is not there.
    let variables = [("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")];
    let gateway = client(&workspace, &["--daemon", "off"], &variables);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let call = json!({
        "name": "mcp_call",
        "arguments": {"server": "far", "tool": "echo", "args": {"text": "x"}},
        "_meta": {"traceparent": format!("00-{trace}-00f067aa0ba902b7-01"), "tracestate": "v=1"},
    });
    gateway.ask("tools/call", &call, PATIENCE).unwrap();
    let requests = site.requests();
    let called: Vec<_> = requests.iter().filter(|one| one.rpc() == "tools/call").collect();
    assert_eq!(called.len(), 1);
    let in_meta = called[0].json()["params"]["_meta"]["traceparent"].clone();
    let header = called[0].header("traceparent").expect("a header");
    assert_eq!(in_meta, header);
    assert!(header.contains(trace) && !header.contains("00f067aa0ba902b7"), "{header}");
    assert_eq!(called[0].header("tracestate"), Some("v=1"));
    let others = requests.iter().filter(|one| one.rpc() != "tools/call");
    assert!(others.clone().all(|one| one.header("traceparent").is_none()));
    gateway.close_input();
}
