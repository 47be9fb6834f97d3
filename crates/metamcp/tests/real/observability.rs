//! Metrics read by the parser of the Prometheus project, and telemetry decoded by the official packages of OpenTelemetry.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use metamcp_engine::metrics::METRICS;
use metamcp_testkit::{Client, EventKind, Workspace, chaos_server, eventually};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::{Value, json};

use crate::installed::{observability, sources, text};

const PATIENCE: Duration = Duration::from_mins(1);
/// What clients and servers of other traces send.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A gateway over HTTP; ended with this.
struct Serving(Child, String);

impl Serving {
    fn start(workspace: &Workspace) -> Serving {
        Serving::with(workspace, &[])
    }

    fn with(workspace: &Workspace, variables: &[(&str, &str)]) -> Serving {
        let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
        command.args(["--transport", "http", "--port", "0", "--code-profile", "off"]);
        command.envs(variables.iter().copied()).env("OTEL_BSP_SCHEDULE_DELAY", "50");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let listening = lines.find_map(|line| {
            let (_, url) =
                line.ok()?.split_once("listening on ").map(|(a, b)| (a.len(), b.to_owned()))?;
            Some(url)
        });
        let url = listening.expect("it listens");
        std::thread::spawn(move || lines.for_each(drop));
        Serving(process, url.trim_end_matches("/mcp").to_owned())
    }

    /// The answer to a stateless request with these headers; chunked where they say so.
    fn post(&self, token: &str, more: &str, body: &str) -> String {
        let host = self.1.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (length, body) = match more.contains("chunked") {
            true => (String::new(), format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len())),
            false => (format!("Content-Length: {}\r\n", body.len()), body.to_owned()),
        };
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: mcp_call\r\nConnection: close\r\n{length}{more}\r\n"
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn the_parser_of_prometheus_reads_both_forms() {
    for (form, kind) in [
        ("openmetrics", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ("prometheus", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("odd \"name\"", chaos_server(&[]));
        let serving = Serving::start(&workspace);
        let token = fs::read_to_string(workspace.home().join(".metamcp/http-token")).unwrap();
        let output = Command::new(observability())
            .arg(sources().join("read_metrics.py"))
            .args([&serving.1, token.trim(), form])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(read["type"], kind);
        let families = read["families"].as_array().unwrap();
        let samples: Vec<&Value> =
            families.iter().flat_map(|one| one["samples"].as_array().unwrap()).collect();
        let of = |name: &str, labels: Value| {
            let found = samples.iter().find(|one| one[0] == name && one[1] == labels);
            found.map(|one| one[2].as_f64().unwrap())
        };
        let server = "odd \"name\"";
        let call = |tool: &str, verdict: &str| {
            let labels = json!({"server": server, "tool": tool, "verdict": verdict});
            of("metamcp_calls_total", labels)
        };
        assert_eq!((call("echo", "ok"), call("fail", "tool_error")), (Some(2.0), Some(1.0)));
        let count = of("metamcp_call_duration_seconds_count", json!({"server": server}));
        assert_eq!(count, Some(3.0));
        let infinite = json!({"server": server, "le": "+Inf"});
        assert_eq!(of("metamcp_call_duration_seconds_bucket", infinite), Some(3.0));
        assert_eq!(of("metamcp_calls_open", json!({})), Some(0.0));
        if form == "openmetrics" {
            are_in_the_table(families);
        }
    }
}

/// Each family is one of the table, with its kind, its unit and its labels.
fn are_in_the_table(families: &[Value]) {
    for family in families {
        let name = family["name"].as_str().unwrap().strip_prefix("metamcp_").expect("our prefix");
        let metric = METRICS.iter().find(|metric| match metric.unit {
            "" => metric.name == name,
            unit => {
                name.strip_suffix(unit).and_then(|rest| rest.strip_suffix('_')) == Some(metric.name)
            }
        });
        let metric = metric.unwrap_or_else(|| panic!("{name} is not in the table"));
        assert_eq!(family["type"], metric.kind, "{name}");
        assert_eq!(family["unit"], metric.unit, "{name}");
        let known: BTreeSet<&str> = metric.labels.iter().copied().chain(["le"]).collect();
        for sample in family["samples"].as_array().unwrap() {
            let labels = sample[1].as_object().unwrap();
            let unknown = labels.keys().find(|label| !known.contains(label.as_str()));
            assert_eq!(unknown, None, "{name}");
        }
    }
}

/// A collector; ended with this.
struct Collector {
    process: Child,
    said: std::path::PathBuf,
    ports: Value,
}

impl Collector {
    fn start(workspace: &Workspace) -> Collector {
        Collector::with(workspace, &[])
    }

    /// The same with these arguments.
    fn with(workspace: &Workspace, args: &[&Path]) -> Collector {
        let said = workspace.file("collected");
        let mut process = Command::new(observability())
            .arg(sources().join("otlp_receiver.py"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(File::create(&said).unwrap())
            .spawn()
            .unwrap();
        let mut ports = Value::Null;
        let is_up = eventually(PATIENCE, || {
            let first = fs::read_to_string(&said).unwrap();
            let line = first.lines().next().filter(|_| first.contains('\n'));
            ports = line.map(|line| serde_json::from_str(line).unwrap()).unwrap_or_default();
            !ports.is_null() || process.try_wait().unwrap().is_some()
        });
        assert!(is_up && !ports.is_null(), "the collector does not start");
        Collector { process, said, ports }
    }

    /// Everything of one signal so far.
    fn of(&self, signal: &str) -> Vec<Value> {
        let said = fs::read_to_string(&self.said).unwrap();
        let whole = said.rfind('\n').map_or("", |end| &said[..end]);
        let all = whole.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        all.filter(|one| one["signal"] == signal).collect()
    }

    /// Waits until there is one like that.
    fn until(&self, signal: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut found = None;
        eventually(PATIENCE, || {
            found = self.of(signal).into_iter().find(&is_it);
            found.is_some()
        });
        found.unwrap_or_else(|| panic!("no {what} among {:#?}", self.of(signal)))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn traced(name: &str, arguments: &Value, flags: &str) -> Value {
    json!({"name": name, "arguments": arguments, "_meta": {
        "traceparent": format!("00-{TRACE}-{PARENT}-{flags}"),
        "tracestate": "vendor=1",
        "baggage": "user=x",
    }})
}

fn gateway(workspace: &Workspace, endpoint: &str, more: &[(&str, &str)]) -> Client {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    command.args(["--daemon", "off", "--log-level", "info"]);
    command.envs([
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-test-key=told"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=tests"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
        ("OTEL_BLRP_SCHEDULE_DELAY", "50"),
    ]);
    command.envs(more.iter().copied());
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), PATIENCE).unwrap();
    client
}

#[test]
fn the_official_packages_decode_what_is_sent_over_grpc_and_over_http() {
    for via in ["grpc", "http"] {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("a", chaos_server(&[]));
        let collector = Collector::start(&workspace);
        let endpoint = format!("http://127.0.0.1:{}", collector.ports[via]);
        let protocol = if via == "grpc" { "grpc" } else { "http/protobuf" };
        let client = gateway(&workspace, &endpoint, &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
        let echo = json!({"server": "a", "tool": "echo", "args": {"text": "hi"}});
        client.ask("tools/call", &traced("mcp_call", &echo, "01"), PATIENCE).unwrap();
        client.mcp_call_now("a", "fail", &json!({}), PATIENCE).unwrap();

        // The client's trace goes through the gateway into the server.
        let is_of = |kind: u64| {
            move |span: &Value| span["name"] == "tools/call echo" && span["kind"] == kind
        };
        let whole = collector.until("span", "span of the call", is_of(2));
        let sent = collector.until("span", "span of its sending", is_of(3));
        for span in [&whole, &sent] {
            assert_eq!((&span["trace"], &span["via"]), (&json!(TRACE), &json!(via)));
            assert_eq!(span["resource"]["service.name"], "metamcp");
            assert_eq!(span["resource"]["deployment.environment"], "tests");
            assert_eq!(span["attributes"]["gen_ai.tool.name"], "echo");
            assert_eq!(span["attributes"]["gen_ai.operation.name"], "execute_tool");
            assert_eq!(span["attributes"]["mcp.method.name"], "tools/call");
            assert_eq!((&span["state"], &span["status"]), (&json!("vendor=1"), &json!(0)));
            assert!(span["end"].as_u64() >= span["start"].as_u64());
        }
        assert_eq!((&whole["parent"], &sent["parent"]), (&json!(PARENT), &whole["span"]));
        assert_eq!(whole["attributes"]["metamcp.server"], "a");
        assert_eq!(whole["attributes"]["metamcp.client.name"], "testkit");
        for span in [&whole, &sent] {
            assert_eq!(span["attributes"]["network.transport"], "pipe");
            assert_eq!(span["attributes"]["mcp.protocol.version"], "2025-11-25");
            assert_eq!(span["attributes"]["rpc.response.status_code"], Value::Null);
        }
        let asked = client.ask("tools/call", &traced("mcp_call", &echo, "01"), PATIENCE).unwrap();
        let id = asked.value["id"].to_string();
        collector.until("span", "id of the client's request", |span| {
            span["kind"] == 2 && span["attributes"]["jsonrpc.request.id"] == id
        });
        assert_ne!(sent["attributes"]["jsonrpc.request.id"], Value::Null);
        let executed = workspace.journal("a").of(EventKind::Execute).unwrap();
        let span = sent["span"].as_str().unwrap();
        assert_eq!(executed[0].trace["traceparent"], format!("00-{TRACE}-{span}-01"));
        assert_eq!(executed[0].trace["tracestate"], "vendor=1");
        assert_eq!(executed[0].trace["baggage"], "user=x");
        let started = collector.until("span", "start", |span| span["name"] == "start a");
        assert_eq!(started["parent"], whole["span"]);

        // A call without a context begins a trace of its own.
        let failed = collector.until("span", "failed call", |span| {
            span["name"] == "tools/call fail" && span["kind"] == 2
        });
        assert_eq!((&failed["parent"], &failed["status"]), (&json!(""), &json!(2)));
        assert_eq!(failed["attributes"]["error.type"], "tool_error");
        assert_ne!(failed["trace"], TRACE);

        // An error of the protocol has its code on the span of who got it: here the gateway, whose client gets a result.
        client.mcp_call_now("a", "rpc_error", &json!({"code": -32050}), PATIENCE).unwrap();
        let is_error = |kind: u64| {
            move |span: &Value| span["name"] == "tools/call rpc_error" && span["kind"] == kind
        };
        let (got, gave) = (
            collector.until("span", "error of the server", is_error(3)),
            collector.until("span", "error of the gateway", is_error(2)),
        );
        for name in ["rpc.response.status_code", "error.type"] {
            assert_eq!(got["attributes"][name], "-32050");
        }
        assert_eq!(gave["attributes"]["error.type"], "rpc_error");
        assert_eq!(gave["attributes"]["rpc.response.status_code"], Value::Null);

        for (name, kind) in [
            ("mcp.server.operation.duration", "histogram"),
            ("mcp.client.operation.duration", "histogram"),
            ("metamcp.pool.slots.used", "gauge"),
            ("metamcp.server.memory", "gauge"),
            ("metamcp.tokens.shown", "sum"),
        ] {
            let is_it = |one: &Value| one["name"] == name && one["points"] != json!([]);
            assert_eq!(collector.until("metric", name, is_it)["kind"], kind);
        }
        collector.until("metric", "duration of an echo", |one| {
            let mut points = one["points"].as_array().unwrap().iter();
            one["name"] == "mcp.server.operation.duration"
                && points.any(|point| {
                    point["attributes"]["gen_ai.tool.name"] == "echo"
                        && point["value"].as_u64() >= Some(1)
                })
        });
        if via == "http" {
            collector.until("header", "header", |one| one["value"] == "told");
        }
        assert_eq!(collector.of("wrong"), Vec::<Value>::new());
    }
}

#[test]
fn warnings_arrive_as_log_records_and_the_last_spans_at_the_end() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    workspace.entry("broken", json!({"command": "/bin/false"}));
    let collector = Collector::start(&workspace);
    let endpoint = format!("http://127.0.0.1:{}", collector.ports["http"]);
    // Nothing is due before the end.
    let late = [("OTEL_BSP_SCHEDULE_DELAY", "600000"), ("OTEL_METRIC_EXPORT_INTERVAL", "600000")];
    let mut client = gateway(&workspace, &endpoint, &late);
    client.mcp_call_now("a", "echo", &json!({"text": "x"}), PATIENCE).unwrap();
    client.mcp_call_now("broken", "x", &json!({}), PATIENCE).unwrap();
    collector.until("log", "warning", |line| {
        let body = line["body"].as_str();
        line["severity"] == "WARN" && body.is_some_and(|body| body.contains("server \"broken\""))
    });
    client.close_input();
    client.wait_exit(PATIENCE).unwrap();
    collector.until("span", "last span", |span| span["name"] == "tools/call echo");
    collector.until("metric", "last metrics", |one| one["name"] == "mcp.server.operation.duration");
}

#[test]
fn what_a_client_does_not_sample_is_not_recorded_and_goes_on_unchanged() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let collector = Collector::start(&workspace);
    let endpoint = format!("http://127.0.0.1:{}", collector.ports["http"]);
    let client = gateway(&workspace, &endpoint, &[]);
    for (number, flags) in [(1, "00"), (2, "01")] {
        let args = json!({"text": number.to_string()});
        let call = json!({"server": "a", "tool": "echo", "args": args});
        client.ask("tools/call", &traced("mcp_call", &call, flags), PATIENCE).unwrap();
    }
    // A context that is none is as good as none.
    let nonsense = json!({"name": "mcp_call", "_meta": {"traceparent": "x".repeat(100_000)},
        "arguments": {"server": "a", "tool": "echo", "args": {"text": "3"}}});
    client.ask("tools/call", &nonsense, PATIENCE).unwrap();
    let is_call = |span: &Value| span["kind"] == 2;
    collector.until("span", "third call", |span| is_call(span) && span["parent"] == "");
    collector.until("span", "second call", |span| is_call(span) && span["trace"] == TRACE);
    let calls: Vec<Value> = collector.of("span").into_iter().filter(is_call).collect();
    assert_eq!(calls.len(), 2, "{calls:#?}");
    let executed = workspace.journal("a").of(EventKind::Execute).unwrap();
    let parents: Vec<&str> = executed.iter().map(|one| &*one.trace["traceparent"]).collect();
    assert_eq!(parents[0], format!("00-{TRACE}-{PARENT}-00"));
    assert!(parents[1].starts_with(&format!("00-{TRACE}-")) && !parents[1].contains(PARENT));
    assert!(parents[2].len() == 55 && !parents[2].contains(TRACE));
}

#[test]
fn a_script_is_a_span_of_its_clients_trace_with_its_calls_below_it() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let collector = Collector::start(&workspace);
    let endpoint = format!("http://127.0.0.1:{}", collector.ports["http"]);
    let client = gateway(&workspace, &endpoint, &[]);
    let code = "await a.echo({text: 'one'}); return await a.echo({text: 'two'});";
    let call = traced("mcp_execute", &json!({"code": code}), "01");
    let answer = client.ask("tools/call", &call, PATIENCE).unwrap();
    let spans = || -> Vec<Value> {
        let is_its =
            |span: &Value| span["kind"] == 1 && span["attributes"]["metamcp.origin"] == "script";
        collector.of("span").into_iter().filter(is_its).collect()
    };
    assert!(eventually(PATIENCE, || spans().len() == 2), "{answer:?}");
    let script = collector.until("span", "script", |span| {
        span["name"] == "tools/call mcp_execute" && span["kind"] == 2
    });
    assert_eq!((&script["trace"], &script["parent"]), (&json!(TRACE), &json!(PARENT)));
    let about = &script["attributes"];
    assert_eq!(
        (&about["metamcp.script.calls"], &about["metamcp.verdict"]),
        (&json!(2), &json!("ok"))
    );
    for span in spans() {
        assert_eq!((&span["trace"], &span["parent"]), (&json!(TRACE), &script["span"]));
        assert_eq!(span["attributes"]["metamcp.script"], about["metamcp.script"]);
        assert!(span["start"].as_u64() >= script["start"].as_u64());
    }
    let last = text(&collector.said);
    assert!(!fs::read_to_string(last).unwrap().contains("\"two\""), "arguments are not sent");
}

#[test]
fn in_direct_mode_both_sides_have_the_code_of_an_error() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let collector = Collector::start(&workspace);
    let endpoint = format!("http://127.0.0.1:{}", collector.ports["http"]);
    let client = gateway(&workspace, &endpoint, &[("METAMCP_SURFACE", "direct")]);
    client
        .ask("tools/call", &traced("rpc_error", &json!({"code": -32050}), "01"), PATIENCE)
        .unwrap();
    for kind in [2, 3] {
        let span = collector.until("span", "call that failed", |span| {
            span["name"] == "tools/call rpc_error" && span["kind"] == kind
        });
        for name in ["rpc.response.status_code", "error.type"] {
            assert_eq!(span["attributes"][name], "-32050", "{span:#}");
        }
    }
}

#[test]
fn a_context_in_http_headers_is_the_parent_of_the_call() {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]));
    let collector = Collector::start(&workspace);
    let endpoint = format!("http://127.0.0.1:{}", collector.ports["http"]);
    let serving = Serving::with(&workspace, &[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint)]);
    let token = fs::read_to_string(workspace.home().join(".metamcp/http-token")).unwrap();
    // Once on the path of short requests, and once on hyper's; `_meta` is stronger than the headers.
    let other = "11111111111111111111111111111111";
    for (text, more, meta, trace) in [
        ("fast", "", Value::Null, TRACE),
        ("slow", "Transfer-Encoding: chunked\r\n", Value::Null, TRACE),
        ("meta", "", json!({"traceparent": format!("00-{other}-{PARENT}-01")}), other),
    ] {
        let args = json!({"server": "a", "tool": "echo", "args": {"text": text}});
        let mut params = json!({"name": "mcp_call", "arguments": args});
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "testkit", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        for (name, value) in meta.as_object().into_iter().flatten() {
            params["_meta"][name] = value.clone();
        }
        let body = json!({"jsonrpc": "2.0", "id": text, "method": "tools/call", "params": params});
        let answer = serving.post(
            token.trim(),
            &format!("traceparent: 00-{TRACE}-{PARENT}-01\r\ntracestate: vendor=1\r\n{more}"),
            &body.to_string(),
        );
        assert!(answer.contains(&format!("\"{text}\"")), "{answer}");
        let span = collector.until("span", text, |span| {
            span["kind"] == 2 && span["attributes"]["jsonrpc.request.id"] == text
        });
        assert_eq!((&span["trace"], &span["parent"]), (&json!(trace), &json!(PARENT)), "{text}");
        assert_eq!(span["attributes"]["network.transport"], "tcp");
        assert_eq!(span["attributes"]["mcp.protocol.version"], "2026-07-28");
    }
    let executed = workspace.journal("a").of(EventKind::Execute).unwrap();
    assert!(executed[0].trace["traceparent"].starts_with(&format!("00-{TRACE}-")));
    assert_eq!(executed[0].trace["tracestate"], "vendor=1");
}

#[test]
fn a_collector_with_a_certificate_of_an_own_authority_is_reached_if_that_is_trusted() {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &authority).unwrap();
    for via in ["grpc", "http"] {
        let mut workspace = Workspace::new().unwrap();
        workspace.server("a", chaos_server(&[]));
        let file = |name: &str, pem: String| {
            let path = workspace.file(name);
            fs::write(&path, pem).unwrap();
            path
        };
        let ca = file("ca.pem", authority.pem());
        let (own, secret) =
            (file("own.pem", certificate.pem()), file("own.key", key.serialize_pem()));
        let collector = Collector::with(&workspace, &[&own, &secret]);
        let endpoint = format!("https://localhost:{}", collector.ports[via]);
        let protocol = if via == "grpc" { "grpc" } else { "http/protobuf" };
        let protocol = ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol);

        let stranger = gateway(&workspace, &endpoint, &[protocol]);
        stranger.mcp_call_now("a", "echo", &json!({"text": "x"}), PATIENCE).unwrap();
        let refused = || stranger.stderr().contains("takes no traces");
        assert!(eventually(PATIENCE, refused), "{}", stranger.stderr());
        drop(stranger);
        assert_eq!(
            collector.of("span"),
            Vec::<Value>::new(),
            "an unknown authority is not trusted"
        );

        let trusting = [protocol, ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.to_str().unwrap())];
        let client = gateway(&workspace, &endpoint, &trusting);
        client.mcp_call_now("a", "echo", &json!({"text": "x"}), PATIENCE).unwrap();
        let span =
            collector.until("span", "span over TLS", |span| span["name"] == "tools/call echo");
        assert_eq!(span["via"], via);
        collector.until("metric", "metrics over TLS", |one| one["name"] == "metamcp.sessions");
        collector.until("log", "log over TLS", |one| one["severity"].is_string());
    }
}
