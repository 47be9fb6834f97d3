//! Every combination of headers a browser, a DNS rebinding attack or a careless program might send: only valid ones
//! run.

use metamcp_testkit::EventKind;
use serde_json::json;

use crate::served::{Served, call};
use crate::wire::Request;

/// A header value, and whether it is acceptable.
type Choice = (Option<&'static str>, bool);

const HOSTS: [Choice; 6] = [
    (Some("localhost"), true),
    (Some("127.0.0.1:8080"), true),
    (Some("evil.example.org"), false),
    (Some("localhost.evil.example.org:8080"), false),
    (Some("192.168.0.10"), false),
    (Some(""), false),
];
const ORIGINS: [Choice; 6] = [
    (None, true),
    (Some("http://localhost:6274"), true),
    (Some("https://evil.example.org"), false),
    (Some("http://localhost.evil.example.org"), false),
    (Some("null"), false),
    (Some("file://"), false),
];
const METHODS: [(&str, bool); 5] =
    [("POST", true), ("GET", false), ("PUT", false), ("OPTIONS", false), ("DELETE", false)];
const CONTENT_TYPES: [Choice; 4] = [
    (Some("application/json"), true),
    (Some("text/plain"), false),
    (Some("application/x-www-form-urlencoded"), false),
    (None, false),
];
const ACCEPTS: [Choice; 3] = [
    (Some("application/json, text/event-stream"), true),
    (Some("text/html"), false),
    (Some("*/*"), true),
];

#[test]
fn of_all_combinations_only_the_right_ones_run() {
    let served = Served::start(&[]);
    // The server is running, so that a call that slips through is sure to be recorded.
    let warm = served.session(&json!({}));
    assert_eq!(warm.text(1, "echo", &json!({"text": "warm"})), "warm");
    let (mut tried, mut expected) = (0_u64, Vec::new());
    for (host, host_fits) in HOSTS {
        for (origin, origin_fits) in ORIGINS {
            for (method, method_fits) in METHODS {
                for (content_type, content_fits) in CONTENT_TYPES {
                    for (accept, accept_fits) in ACCEPTS {
                        // Deleting ends a session and listening occupies it, so these two use one that does not exist.
                        let session = if matches!(method, "GET" | "DELETE") {
                            "0".repeat(32)
                        } else {
                            warm.id.clone()
                        };
                        tried += 1;
                        let key = format!("combination {tried}");
                        let body = call(1, "effect", &json!({"key": key}));
                        let mut request = Request::new(method, "/mcp").body(&body.to_string());
                        for (name, value) in [
                            ("Host", host),
                            ("Origin", origin),
                            ("Content-Type", content_type),
                            ("Accept", accept),
                            ("Mcp-Session-Id", Some(session.as_str())),
                        ] {
                            if let Some(value) = value {
                                request = request.with(name, value);
                            }
                        }
                        let runs =
                            host_fits && origin_fits && method_fits && content_fits && accept_fits;
                        let mut response = request.send(served.address);
                        let status = response.status;
                        assert_eq!(runs, status == 200, "{status} for {request:?}");
                        if !(host_fits && origin_fits) {
                            assert_eq!(status, 403, "{request:?}");
                            let why = response.text();
                            // A page with the origin `null` cannot be allowed by name.
                            let advises = why.contains("--allowed-");
                            let is_null = host_fits && origin == Some("null");
                            assert_eq!(advises, !is_null, "{why} for {request:?}");
                        }
                        assert_eq!(response.header("access-control-allow-origin"), None);
                        if runs {
                            expected.push(key);
                        }
                    }
                }
            }
        }
    }
    assert!(tried >= 500, "{tried}");
    expected.sort();
    let ran = served.workspace.journal("a").of(EventKind::Execute).unwrap();
    let mut ran: Vec<String> = ran.into_iter().filter_map(|record| record.key).collect();
    ran.retain(|key| key != "warm");
    ran.sort();
    assert_eq!(ran, expected);
    served.end();
}

#[test]
fn cors_headers_are_sent_to_allowed_origins_only() {
    let served = Served::start(&["--allowed-origins", "https://app.example.org"]);
    let preflight = |origin: &str| {
        Request::new("OPTIONS", "/mcp")
            .with("Origin", origin)
            .with("Access-Control-Request-Method", "POST")
            .send(served.address)
    };
    let told = preflight("https://app.example.org");
    assert_eq!(told.status, 204);
    assert_eq!(told.header("access-control-allow-origin"), Some("https://app.example.org"));
    assert!(told.header("access-control-allow-headers").unwrap().contains("Mcp-Session-Id"));
    let evil = preflight("https://evil.example.org");
    assert_eq!(evil.status, 403);
    assert_eq!(evil.header("access-control-allow-origin"), None);
    served.end();
}

#[test]
fn two_of_a_header_that_stands_once_are_refused() {
    let served = Served::start(&[]);
    let session = served.session(&json!({}));
    for (name, value) in [
        ("Host", "localhost"),
        ("Origin", "http://localhost"),
        ("Content-Type", "application/json"),
        ("Mcp-Session-Id", "x"),
    ] {
        let body = call(2, "effect", &json!({"key": "twice"}));
        let request = session.request(Request::post(&body)).with(name, value).with(name, value);
        let status = request.send(served.address).status;
        assert_eq!(status, 400, "{name}");
    }
    assert_eq!(served.workspace.journal("a").count(EventKind::Execute).unwrap(), 0);
    served.end();
}
