//! Remote servers that are hostile, or merely broken, each with its expected outcome, with one call and with many.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metamcp_testkit::site::honest::RemoteTransport;
use metamcp_testkit::site::{Exchange, HonestServer, ReceivedRequest, Site};
use metamcp_testkit::{CallOutcome, Workspace};
use serde_json::{Value, json};

use crate::world::{Gateway, HUNG, Remote};

/// The expected outcome of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedOutcome {
    /// Success, after one execution.
    Success,
    /// This error code; the tool was executed this often.
    Fails(&'static str, usize),
}

/// One misbehaviour.
struct Hazard {
    name: &'static str,
    /// Returns true if it responded itself.
    respond: fn(&HonestServer, &ReceivedRequest, &mut Exchange<'_>) -> io::Result<bool>,
    expected_outcome: ExpectedOutcome,
}

fn is_call(request: &ReceivedRequest) -> bool {
    request.rpc() == "tools/call"
}

const HAZARDS: &[Hazard] = &[
    Hazard {
        name: "forgets the session after each call",
        respond: |honest, request, exchange| {
            honest.answer(request, exchange)?;
            if is_call(request) {
                honest.forget();
            }
            Ok(true)
        },
        expected_outcome: ExpectedOutcome::Success,
    },
    Hazard {
        name: "answers 401 for ever",
        respond: |_, _, exchange| {
            exchange.respond(401, &[("www-authenticate", "Bearer realm=\"x\"")], b"").map(|()| true)
        },
        expected_outcome: ExpectedOutcome::Fails("auth_required", 0),
    },
    Hazard {
        name: "answers calls with 403",
        respond: |_, request, exchange| {
            if is_call(request) {
                exchange.respond(403, &[], b"no").map(|()| true)
            } else {
                Ok(false)
            }
        },
        expected_outcome: ExpectedOutcome::Fails("auth_required", 0),
    },
    Hazard {
        name: "answers calls with 429",
        respond: |_, request, exchange| match is_call(request) {
            true => exchange.respond(429, &[("retry-after", "7")], b"").map(|()| true),
            false => Ok(false),
        },
        expected_outcome: ExpectedOutcome::Fails("server_unavailable", 0),
    },
    Hazard {
        name: "executes and answers 503",
        respond: |honest, request, exchange| {
            if !is_call(request) {
                return Ok(false);
            }
            honest.execute(request);
            exchange.respond(503, &[], b"").map(|()| true)
        },
        expected_outcome: ExpectedOutcome::Fails("outcome_unknown", 1),
    },
    Hazard {
        name: "redirects to where clouds keep their secrets",
        respond: |_, request, exchange| match is_call(request) {
            true => {
                let place = ("location", "http://169.254.169.254/latest/meta-data/");
                exchange.respond(307, &[place], b"").map(|()| true)
            }
            false => Ok(false),
        },
        expected_outcome: ExpectedOutcome::Fails("outcome_unknown", 0),
    },
    Hazard {
        name: "sends a compressed body that was not requested",
        respond: |honest, request, exchange| {
            if !is_call(request) {
                return Ok(false);
            }
            honest.execute(request);
            let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
            exchange.respond(200, &headers, &[0x1f; 64 * 1024]).map(|()| true)
        },
        expected_outcome: ExpectedOutcome::Fails("outcome_unknown", 1),
    },
    Hazard {
        name: "answers in pieces without end",
        respond: |honest, request, exchange| {
            if !is_call(request) {
                return Ok(false);
            }
            honest.execute(request);
            exchange.over = true;
            exchange.raw(b"HTTP/1.1 200 x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")?;
            let piece = [b' '; 0x10000];
            loop {
                exchange.raw(b"10000\r\n")?;
                exchange.raw(&piece)?;
                exchange.raw(b"\r\n")?;
            }
        },
        expected_outcome: ExpectedOutcome::Fails("limit_exceeded", 1),
    },
    Hazard {
        name: "streams an event without an end",
        respond: |honest, request, exchange| {
            if !is_call(request) {
                return Ok(false);
            }
            honest.execute(request);
            exchange.begin_events(&[])?;
            exchange.raw(b"data: {\"jsonrpc\"\n")?;
            exchange.wait_for_hangup();
            Ok(true)
        },
        expected_outcome: ExpectedOutcome::Fails("timeout", 1),
    },
    Hazard {
        name: "streams fifty thousand frames of junk",
        respond: |honest, request, exchange| {
            if !is_call(request) {
                return Ok(false);
            }
            honest.execute(request);
            exchange.begin_events(&[])?;
            let junk = "data: junk\n\nevent: x\ndata: more\n\n".repeat(250);
            for _ in 0..100 {
                exchange.raw(junk.as_bytes())?;
            }
            Ok(true)
        },
        expected_outcome: ExpectedOutcome::Fails("outcome_unknown", 1),
    },
    Hazard {
        name: "answers with a web page",
        respond: |honest, request, exchange| {
            if !is_call(request) {
                return Ok(false);
            }
            honest.execute(request);
            let page = b"<html><script>alert(1)</script></html>";
            exchange.respond(200, &[("content-type", "text/html")], page).map(|()| true)
        },
        expected_outcome: ExpectedOutcome::Fails("outcome_unknown", 1),
    },
    Hazard {
        name: "resets the connection in the middle of its answer",
        respond: |honest, request, exchange| {
            if !is_call(request) {
                return Ok(false);
            }
            honest.execute(request);
            exchange.raw(b"HTTP/1.1 200 x\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"jsonrpc\"")?;
            exchange.reset();
            Ok(true)
        },
        expected_outcome: ExpectedOutcome::Fails("outcome_unknown", 1),
    },
    Hazard {
        name: "answers one byte at a time, for ever",
        respond: |honest, request, exchange| {
            if !is_call(request) {
                return Ok(false);
            }
            honest.execute(request);
            exchange.over = true;
            exchange.raw(b"HTTP/1.1 200 x\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n")?;
            loop {
                exchange.raw(b" ")?;
                // The slowness is the hazard.
                std::thread::sleep(Duration::from_millis(50));
            }
        },
        expected_outcome: ExpectedOutcome::Fails("timeout", 1),
    },
];

fn gateway(url: &str, neighbour: &str) -> Gateway {
    let mut workspace = Workspace::new().unwrap();
    workspace.entry("far", json!({ "url": url, "timeoutMs": 3000 }));
    workspace.entry("well", json!({ "url": neighbour }));
    workspace.setting("limits", json!({ "maxLineBytes": 1_048_576 }));
    // The test checks each call's outcome, and the circuit breaker would reject most of many.
    workspace.setting("pool", json!({ "failureThreshold": 1000 }));
    Gateway::start(workspace)
}

#[test]
fn every_hazard_alone() {
    let well = Remote::honest(RemoteTransport::NoSessions, false);
    for hazard in HAZARDS {
        let remote = Remote::with(RemoteTransport::Sessions, false, hazard.respond);
        let gateway = gateway(&remote.site.url("/mcp"), &well.site.url("/mcp"));
        let told = hazard.name;
        let outcome = gateway.call("echo", &json!({"text": "x"}));
        match hazard.expected_outcome {
            ExpectedOutcome::Success => {
                assert_eq!(outcome, CallOutcome::Success, "{told:?} {}", gateway.stderr());
                assert_eq!(remote.honest.executed().len(), 1, "{told:?}");
                for _ in 0..5 {
                    assert_eq!(
                        gateway.call("echo", &json!({"text": "x"})),
                        CallOutcome::Success,
                        "{told:?}"
                    );
                }
            }
            ExpectedOutcome::Fails(code, executions) => {
                assert_eq!(outcome.code(), Some(code), "{told:?}: {outcome}");
                assert_eq!(remote.honest.executed().len(), executions, "{told:?}");
            }
        }
        assert!(well_answers(&gateway), "{told:?}");
        gateway.end();
    }
}

#[test]
fn every_hazard_in_a_crowd() {
    let well = Remote::honest(RemoteTransport::NoSessions, false);
    for hazard in HAZARDS {
        let remote = Remote::with(RemoteTransport::Sessions, false, hazard.respond);
        let gateway = gateway(&remote.site.url("/mcp"), &well.site.url("/mcp"));
        let told = hazard.name;
        let calls: Vec<u64> = (0..64)
            .map(|number| {
                gateway.mcp_call("far", "echo", &json!({"text": number.to_string()})).unwrap()
            })
            .collect();
        let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
        for call in calls {
            let answer = gateway.wait(call, HUNG).unwrap();
            let outcome = CallOutcome::of(&answer.value);
            *outcomes.entry(outcome.code().unwrap_or("fine").to_owned()).or_default() += 1;
        }
        match hazard.expected_outcome {
            ExpectedOutcome::Success => {
                // A race: a session that each call ends is renewed once per call, and a call that loses it twice gets
                // an error.
                assert!(
                    outcomes.keys().all(|code| code == "fine" || code == "execution_failed"),
                    "{told:?} {outcomes:?}"
                );
            }
            ExpectedOutcome::Fails(code, executions) => {
                assert_eq!(outcomes.keys().collect::<Vec<_>>(), [code], "{told:?}");
                assert_eq!(remote.honest.executed().len(), executions * 64, "{told:?}");
            }
        }
        // Nothing ran twice.
        let mut seen: Vec<String> = remote.honest.executed().iter().map(Value::to_string).collect();
        let all = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), all, "{told:?}");
        assert!(well_answers(&gateway), "{told:?}");
        gateway.end();
    }
}

fn well_answers(gateway: &Gateway) -> bool {
    let answer = gateway.mcp_call_now("well", "echo", &json!({"text": "x"}), HUNG).unwrap();
    CallOutcome::of(&answer.value) == CallOutcome::Success
}

#[test]
fn retry_after_is_honoured_without_opening_the_breaker() {
    let refused = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&refused);
    let remote = Remote::with(RemoteTransport::NoSessions, false, move |_, request, exchange| {
        if is_call(request) && seen.fetch_add(1, Ordering::SeqCst) == 0 {
            return exchange.respond(429, &[("retry-after", "2")], b"").map(|()| true);
        }
        Ok(false)
    });
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    for _ in 0..20 {
        let error = gateway.refusal("echo", &json!({"text": "x"}));
        assert_eq!((error.code.as_str(), error.retryable), ("server_unavailable", true));
        assert!(error.whole["retry_after_ms"].as_u64().unwrap() <= 2000, "{}", error.whole);
    }
    assert_eq!(refused.load(Ordering::SeqCst), 1, "nothing is sent during the pause");
    let fine = || gateway.call("echo", &json!({"text": "x"})) == CallOutcome::Success;
    assert!(metamcp_testkit::eventually(HUNG, fine));
    gateway.end();
}

#[test]
fn a_pause_may_be_named_by_its_end() {
    // A date far in the future; then invalid dates, for which the gateway chooses the backoff.
    for (end, is_told) in [
        ("Fri, 01 Jan 2100 00:00:00 GMT", true),
        ("Friday, 01-Jan-99 00:00:00 GMT", false),
        ("Thu Jan  1 00:00:00 1970", false),
        ("0", false),
    ] {
        let refused = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&refused);
        let remote =
            Remote::with(RemoteTransport::NoSessions, false, move |_, request, exchange| {
                if is_call(request) && seen.fetch_add(1, Ordering::SeqCst) == 0 {
                    return exchange.respond(429, &[("retry-after", end)], b"").map(|()| true);
                }
                Ok(false)
            });
        let gateway = Gateway::to(&remote.site.url("/mcp"));
        let error = gateway.refusal("echo", &json!({"text": "x"}));
        assert_eq!((error.code.as_str(), error.retryable), ("server_unavailable", true));
        let pause = error.whole["retry_after_ms"].as_u64().unwrap();
        assert_eq!(pause == 300_000, is_told, "{end}: {}", error.whole);
        assert!(pause > 0, "{end}");
        assert_eq!(refused.load(Ordering::SeqCst), 1, "{end}");
        if !is_told {
            let fine = || gateway.call("echo", &json!({"text": "x"})) == CallOutcome::Success;
            assert!(metamcp_testkit::eventually(HUNG, fine), "{end}");
        }
        gateway.end();
    }
}

#[test]
fn a_server_that_is_not_there_is_offline_and_comes_back_unnoticed() {
    let transport = || Remote::honest(RemoteTransport::Sessions, false);
    let remote = transport();
    let place = remote.site.address();
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    gateway.echo("x");
    drop(remote);
    let mut error = gateway.refusal("echo", &json!({"text": "x"}));
    if error.code == "outcome_unknown" {
        // The pooled connection broke only with the call on it: the outcome is unknown. The next call gets the right
        // error.
        error = gateway.refusal("echo", &json!({"text": "x"}));
    }
    assert_eq!(error.code, "server_unavailable", "{}", error.whole);
    assert_eq!(error.category.as_deref(), Some("offline"));
    let honest = Arc::new(HonestServer::new(RemoteTransport::Sessions, false));
    let inner = Arc::clone(&honest);
    let answerer: Arc<metamcp_testkit::site::Answerer> =
        Arc::new(move |request, exchange| inner.answer(request, exchange));
    let plain = Arc::new(|socket| Ok(Box::new(socket) as Box<dyn metamcp_testkit::site::Wire>));
    let _site = Site::start_on(&place.to_string(), answerer, plain).unwrap();
    let fine = || gateway.call("echo", &json!({"text": "back"})) == CallOutcome::Success;
    assert!(metamcp_testkit::eventually(HUNG, fine), "{}", gateway.stderr());
    assert_eq!(honest.executed(), [json!({"text": "back"})]);
    gateway.end();
}

#[test]
fn a_harmless_call_is_sent_once_more_and_another_is_not() {
    let failed = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&failed);
    let remote =
        Remote::with(RemoteTransport::NoSessions, false, move |honest, request, exchange| {
            if is_call(request) && seen.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
                honest.execute(request);
                return exchange.respond(502, &[], b"").map(|()| true);
            }
            Ok(false)
        });
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    gateway.call("look", &json!({}));
    assert_eq!(failed.load(Ordering::SeqCst), 2, "the tool says that it only looks");
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert_eq!(error.code, "outcome_unknown");
    assert_eq!(failed.load(Ordering::SeqCst), 3);
    gateway.end();
}

#[test]
fn credentials_stay_within_their_origin() {
    let thief = Remote::honest(RemoteTransport::NoSessions, false);
    let target = thief.site.url("/mcp");
    let remote = Remote::with(RemoteTransport::NoSessions, false, move |_, request, exchange| {
        if request.path() == "/mcp" {
            return exchange.respond(308, &[("location", "/moved")], b"").map(|()| true);
        }
        if request.rpc() == "tools/list" {
            return exchange.respond(307, &[("location", &target)], b"").map(|()| true);
        }
        Ok(false)
    });
    let entry = json!({
        "url": remote.site.url("/mcp"), "headers": {"X-Key": "k3y-k3y", "Authorization": "Bearer t0ken-t0ken"},
    });
    let gateway = Gateway::of(&entry);
    gateway.echo("here");
    let kept: Vec<_> =
        remote.site.requests().into_iter().filter(|request| request.path() == "/moved").collect();
    assert!(
        !kept.is_empty() && kept.iter().all(|request| request.header("x-key") == Some("k3y-k3y"))
    );
    let taken = thief.site.requests();
    assert!(!taken.is_empty());
    for taken in taken {
        assert_eq!((taken.header("x-key"), taken.header("authorization")), (None, None));
    }
    gateway.end();
}

#[test]
fn a_call_is_never_sent_on_to_where_its_server_says() {
    let refused = {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}/mcp", gone.local_addr().unwrap())
    };
    let elsewhere = Remote::honest(RemoteTransport::NoSessions, false);
    let places = ["/mcp".to_owned(), "/other".to_owned(), refused, elsewhere.site.url("/mcp")];
    for status in [301, 302, 303, 307, 308] {
        for place in &places {
            let place = place.clone();
            let remote = Remote::with(
                RemoteTransport::NoSessions,
                false,
                move |honest, request, exchange| {
                    if !is_call(request) {
                        return Ok(false);
                    }
                    honest.execute(request);
                    exchange.respond(status, &[("location", &place)], b"").map(|()| true)
                },
            );
            let gateway = Gateway::to(&remote.site.url("/mcp"));
            let error = gateway.refusal("echo", &json!({ "text": "once" }));
            assert_eq!(error.code, "outcome_unknown", "{status}: {}", error.whole);
            assert_eq!(error.whole["details"]["sent"], true, "{}", error.whole);
            assert_eq!(remote.honest.executed().len(), 1, "{status}");
            gateway.end();
        }
    }
    assert!(elsewhere.honest.executed().is_empty());
}

#[test]
fn a_server_that_moved_is_found_before_it_is_called() {
    // As frameworks do that want a trailing slash, and as sites do that moved.
    let new = Remote::honest(RemoteTransport::NoSessions, false);
    for there in ["/mcp/".to_owned(), new.site.url("/mcp")] {
        for status in [301, 302, 307, 308] {
            let place = there.clone();
            let remote =
                Remote::with(RemoteTransport::NoSessions, false, move |_, request, exchange| {
                    if request.path() == "/mcp" {
                        return exchange
                            .respond(status, &[("location", &place)], b"")
                            .map(|()| true);
                    }
                    Ok(false)
                });
            let gateway = Gateway::to(&remote.site.url("/mcp"));
            gateway.echo("a");
            gateway.echo("b");
            let calls = |remote: &Remote| {
                remote.site.requests().iter().filter(|request| is_call(request)).count()
            };
            assert_eq!(calls(&remote) + calls(&new), 2, "each went there at once");
            assert!(
                remote
                    .site
                    .requests()
                    .iter()
                    .all(|request| request.path() != "/mcp" || !is_call(request))
            );
            gateway.end();
            if there != "/mcp/" {
                break;
            }
        }
    }
}

#[test]
fn a_server_that_wants_fewer_calls_gets_fewer() {
    let remote = Remote::with(RemoteTransport::NoSessions, false, move |_, request, exchange| {
        if !is_call(request) {
            return Ok(false);
        }
        match request.json()["params"]["arguments"]["text"].as_str() {
            Some("long") => exchange.respond(429, &[("retry-after", "99999999")], b""),
            Some("busy") => exchange.respond(503, &[("retry-after", "120")], b""),
            _ => exchange.respond(429, &[], b""),
        }
        .map(|()| true)
    });
    let refused = |text: &str| {
        let gateway = Gateway::to(&remote.site.url("/mcp"));
        let before = remote.count("tools/call");
        let first = gateway.refusal("echo", &json!({ "text": text }));
        for _ in 0..30 {
            let next = gateway.refusal("echo", &json!({ "text": text }));
            assert_eq!(next.code, "server_unavailable", "{}", next.whole);
            assert!(next.message.contains("is not contacted for another"), "{}", next.message);
            assert!(next.whole["retry_after_ms"].as_u64().is_some_and(|left| left > 0));
        }
        let made = remote.count("tools/call") - before;
        gateway.end();
        (first, made)
    };
    let (first, made) = refused("long");
    assert_eq!((first.code.as_str(), made), ("server_unavailable", 1));
    assert_eq!(first.whole["retry_after_ms"], 300_000, "{}", first.whole);
    assert!(
        first.message.contains("300.0 s") && !first.message.contains("99"),
        "{}",
        first.message
    );
    let (first, made) = refused("busy");
    assert_eq!((first.code.as_str(), made), ("outcome_unknown", 1));
    // Without `Retry-After` the backoff starts at one second, so only the first is checked.
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    let first = gateway.refusal("echo", &json!({ "text": "x" }));
    assert!(first.whole["retry_after_ms"].as_u64().is_some_and(|left| left > 0), "{}", first.whole);
    gateway.end();
}

#[test]
fn redirects_lead_nowhere_for_ever() {
    let hops = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&hops);
    let remote = Remote::with(RemoteTransport::NoSessions, false, move |_, request, exchange| {
        if request.rpc() != "initialize" {
            return Ok(false);
        }
        let hop = seen.fetch_add(1, Ordering::SeqCst);
        let place = if request.path() == "/mail" {
            "mailto:you@example.com".to_owned()
        } else {
            format!("/mcp?hop={hop}")
        };
        exchange.respond(307, &[("location", &place)], b"").map(|()| true)
    });
    for (path, most) in [("/mcp", 4), ("/mail", 5)] {
        let entry = json!({ "url": remote.site.url(path), "transport": "http" });
        let gateway = Gateway::of(&entry);
        let error = gateway.refusal("echo", &json!({ "text": "x" }));
        assert_eq!(error.code, "server_unavailable", "{}", error.whole);
        assert!(error.message.contains("redirects elsewhere"), "{}", error.whole);
        assert_eq!(hops.load(Ordering::SeqCst), most, "{path}");
        gateway.end();
    }
    assert!(remote.honest.executed().is_empty());
}

#[test]
fn the_place_to_post_to_must_be_at_home() {
    let thief = Remote::honest(RemoteTransport::NoSessions, false);
    let target = thief.site.url("/messages");
    let remote = Remote::with(RemoteTransport::Sse, false, move |_, request, exchange| {
        if request.method == "GET" {
            exchange.begin_events(&[])?;
            exchange.raw(format!("event: endpoint\ndata: {target}\n\n").as_bytes())?;
            exchange.wait_for_hangup();
            return Ok(true);
        }
        Ok(false)
    });
    let gateway = Gateway::of(&json!({"type": "sse", "url": remote.site.url("/sse")}));
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert_eq!(error.code, "server_unavailable", "{}", error.whole);
    assert!(thief.site.requests().is_empty());
    gateway.end();
}
