//! A collector that is absent, slow or hostile costs calls nothing: only telemetry is lost.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use metamcp_testkit::{Workspace, chaos_server, eventually};
use serde_json::{Value, json};

use crate::{PATIENCE, client};

/// More than the queue of the SDK holds.
const CALLS: usize = 3_000;

/// What a collector does with a connection.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// Nothing listens there.
    Absent,
    /// It reads, and never answers.
    Silent,
    /// It answers with what nobody can read, without end.
    Garbage,
}

/// Where it is, and how many connections it took.
fn collector(manner: Manner) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let taken = Arc::clone(&count);
    if !matches!(manner, Manner::Absent) {
        thread::spawn(move || {
            for mut socket in listener.incoming().flatten() {
                taken.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || {
                    let mut buffer = [0; 4096];
                    while matches!(socket.read(&mut buffer), Ok(1..)) {
                        if matches!(manner, Manner::Garbage)
                            && socket.write_all(&vec![b'\xff'; 100_000]).is_err()
                        {
                            return;
                        }
                    }
                });
            }
        });
    }
    (address, count)
}

#[test]
fn calls_go_on_and_the_process_ends_whatever_the_collector_does() {
    for manner in [Manner::Absent, Manner::Silent, Manner::Garbage] {
        for protocol in ["grpc", "http/protobuf"] {
            let mut workspace = Workspace::new().unwrap();
            workspace.server("a", chaos_server(&[]));
            let (address, taken) = collector(manner);
            let endpoint = format!("http://{address}");
            let variables = [
                ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
                ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
                ("OTEL_BSP_SCHEDULE_DELAY", "10"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "10"),
            ];
            let mut gateway = client(&workspace, &["--daemon", "off"], &variables);
            let call = json!({"name": "mcp_call", "arguments":
                {"server": "a", "tool": "echo", "args": {"text": "x"}}});
            for _ in 0..CALLS / 100 {
                let ids = gateway.request_at_once("tools/call", &vec![call.clone(); 100]).unwrap();
                for id in ids {
                    let answer = gateway.wait(id, PATIENCE).unwrap();
                    let text = format!("{answer:?}");
                    assert!(text.contains("\\\"x\\\"") || text.contains("\"x\""), "{text}");
                }
            }
            let was_asked = || taken.load(Ordering::Relaxed) > 0;
            assert!(matches!(manner, Manner::Absent) || eventually(PATIENCE, was_asked));
            // Once, however often it fails.
            let told = |signal: &str| {
                let words = format!("the collector at {address} takes no {signal}");
                gateway.stderr().matches(&words).count()
            };
            if matches!(manner, Manner::Absent) {
                assert!(eventually(PATIENCE, || told("traces") == 1), "{}", gateway.stderr());
            }
            assert!(told("traces") <= 1 && told("metrics") <= 1, "{}", gateway.stderr());
            gateway.close_input();
            let status = gateway.wait_exit(PATIENCE).unwrap();
            assert!(status.success(), "{manner:?} {protocol}: {}", gateway.stderr());
            assert_eq!(workspace.survivors(PATIENCE), []);
        }
    }
}

#[test]
fn an_address_that_is_none_is_told_and_the_gateway_serves() {
    for (variable, value, words) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317", "neither http:// nor https://"),
        ("METAMCP_OTEL_ENDPOINT", "ftp://c", "neither http:// nor https://"),
    ] {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("a", chaos_server(&[]));
        let gateway = client(&workspace, &["--daemon", "off"], &[(variable, value)]);
        gateway.mcp_call_now("a", "echo", &json!({"text": "x"}), PATIENCE).unwrap();
        assert!(eventually(PATIENCE, || gateway.stderr().contains(words)), "{}", gateway.stderr());
    }
}

#[test]
fn without_tracing_a_clients_context_passes_unchanged() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let gateway = client(&workspace, &["--daemon", "off"], &[]);
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (number, meta) in [(1, json!({"traceparent": parent})), (2, Value::Null)] {
        let args = json!({"text": number.to_string()});
        let mut call =
            json!({"name": "mcp_call", "arguments": {"server": "a", "tool": "echo", "args": args}});
        if !meta.is_null() {
            call["_meta"] = meta;
        }
        gateway.ask("tools/call", &call, PATIENCE).unwrap();
    }
    let executed = workspace.journal("a").of(metamcp_testkit::EventKind::Execute).unwrap();
    assert_eq!(executed[0].trace.get("traceparent").map(String::as_str), Some(parent));
    assert!(executed[1].trace.is_empty());
}
