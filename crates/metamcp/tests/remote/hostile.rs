//! Remote servers that mean harm, or are merely broken, item by item with their verdicts, alone and in a crowd.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use metamcp_testkit::site::honest::Speech;
use metamcp_testkit::site::{Asked, Honest, Site, Talk};
use metamcp_testkit::{Outcome, Workspace};
use serde_json::{Value, json};

use crate::world::{Gateway, HUNG, Remote};

/// What one call comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Its answer, after one execution.
    Fine,
    /// This code; the tool was executed at most so often.
    Fails(&'static str, usize),
}

/// One misbehaviour.
struct Item {
    number: u32,
    name: &'static str,
    /// True if it answered itself.
    acts: fn(&Honest, &Asked, &mut Talk<'_>) -> io::Result<bool>,
    verdict: Verdict,
    /// Whether the breaker may have taken notice in a crowd.
    counts: bool,
}

fn is_call(asked: &Asked) -> bool {
    asked.rpc() == "tools/call"
}

const ITEMS: &[Item] = &[
    Item {
        number: 61,
        name: "forgets the session after each call",
        acts: |honest, asked, talk| {
            honest.answer(asked, talk)?;
            if is_call(asked) {
                honest.forget();
            }
            Ok(true)
        },
        verdict: Verdict::Fine,
        counts: false,
    },
    Item {
        number: 62,
        name: "answers 401 for ever",
        acts: |_, _, talk| {
            talk.respond(401, &[("www-authenticate", "Bearer realm=\"x\"")], b"").map(|()| true)
        },
        verdict: Verdict::Fails("auth_required", 0),
        counts: false,
    },
    Item {
        number: 63,
        name: "answers calls with 403",
        acts: |_, asked, talk| {
            if is_call(asked) { talk.respond(403, &[], b"no").map(|()| true) } else { Ok(false) }
        },
        verdict: Verdict::Fails("auth_required", 0),
        counts: false,
    },
    Item {
        number: 64,
        name: "answers calls with 429",
        acts: |_, asked, talk| match is_call(asked) {
            true => talk.respond(429, &[("retry-after", "7")], b"").map(|()| true),
            false => Ok(false),
        },
        verdict: Verdict::Fails("server_unavailable", 0),
        counts: false,
    },
    Item {
        number: 65,
        name: "executes and answers 503",
        acts: |honest, asked, talk| {
            if !is_call(asked) {
                return Ok(false);
            }
            honest.execute(asked);
            talk.respond(503, &[], b"").map(|()| true)
        },
        verdict: Verdict::Fails("outcome_unknown", 1),
        counts: true,
    },
    Item {
        number: 66,
        name: "redirects to where clouds keep their secrets",
        acts: |_, asked, talk| match is_call(asked) {
            true => {
                let place = ("location", "http://169.254.169.254/latest/meta-data/");
                talk.respond(307, &[place], b"").map(|()| true)
            }
            false => Ok(false),
        },
        verdict: Verdict::Fails("outcome_unknown", 0),
        counts: true,
    },
    Item {
        number: 67,
        name: "answers with compressed bytes that nobody asked for",
        acts: |honest, asked, talk| {
            if !is_call(asked) {
                return Ok(false);
            }
            honest.execute(asked);
            let headers = [("content-type", "application/json"), ("content-encoding", "gzip")];
            talk.respond(200, &headers, &[0x1f; 64 * 1024]).map(|()| true)
        },
        verdict: Verdict::Fails("outcome_unknown", 1),
        counts: true,
    },
    Item {
        number: 68,
        name: "answers in pieces without end",
        acts: |honest, asked, talk| {
            if !is_call(asked) {
                return Ok(false);
            }
            honest.execute(asked);
            talk.over = true;
            talk.raw(b"HTTP/1.1 200 x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")?;
            let piece = [b' '; 0x10000];
            loop {
                talk.raw(b"10000\r\n")?;
                talk.raw(&piece)?;
                talk.raw(b"\r\n")?;
            }
        },
        verdict: Verdict::Fails("limit_exceeded", 1),
        counts: false,
    },
    Item {
        number: 69,
        name: "streams an event without an end",
        acts: |honest, asked, talk| {
            if !is_call(asked) {
                return Ok(false);
            }
            honest.execute(asked);
            talk.begin_events(&[])?;
            talk.raw(b"data: {\"jsonrpc\"\n")?;
            while talk.is_open() {
                std::thread::sleep(Duration::from_millis(5));
            }
            Ok(true)
        },
        verdict: Verdict::Fails("timeout", 1),
        counts: true,
    },
    Item {
        number: 70,
        name: "streams fifty thousand frames of junk",
        acts: |honest, asked, talk| {
            if !is_call(asked) {
                return Ok(false);
            }
            honest.execute(asked);
            talk.begin_events(&[])?;
            let junk = "data: junk\n\nevent: x\ndata: more\n\n".repeat(250);
            for _ in 0..100 {
                talk.raw(junk.as_bytes())?;
            }
            Ok(true)
        },
        verdict: Verdict::Fails("outcome_unknown", 1),
        counts: true,
    },
    Item {
        number: 71,
        name: "answers with a web page",
        acts: |honest, asked, talk| {
            if !is_call(asked) {
                return Ok(false);
            }
            honest.execute(asked);
            let page = b"<html><script>alert(1)</script></html>";
            talk.respond(200, &[("content-type", "text/html")], page).map(|()| true)
        },
        verdict: Verdict::Fails("outcome_unknown", 1),
        counts: true,
    },
    Item {
        number: 73,
        name: "resets the connection in the middle of its answer",
        acts: |honest, asked, talk| {
            if !is_call(asked) {
                return Ok(false);
            }
            honest.execute(asked);
            talk.raw(b"HTTP/1.1 200 x\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"jsonrpc\"")?;
            talk.reset();
            Ok(true)
        },
        verdict: Verdict::Fails("outcome_unknown", 1),
        counts: true,
    },
    Item {
        number: 74,
        name: "answers one byte at a time, for ever",
        acts: |honest, asked, talk| {
            if !is_call(asked) {
                return Ok(false);
            }
            honest.execute(asked);
            talk.over = true;
            talk.raw(b"HTTP/1.1 200 x\r\ncontent-type: application/json\r\ncontent-length: 1000000\r\n\r\n")?;
            loop {
                talk.raw(b" ")?;
                std::thread::sleep(Duration::from_millis(50));
            }
        },
        verdict: Verdict::Fails("timeout", 1),
        counts: true,
    },
];

fn gateway(url: &str, neighbour: &str) -> Gateway {
    let mut workspace = Workspace::new().unwrap();
    workspace.entry("far", json!({ "url": url, "timeoutMs": 3000 }));
    workspace.entry("well", json!({ "url": neighbour }));
    workspace.setting("limits", json!({ "maxLineBytes": 1_048_576 }));
    Gateway::start(workspace)
}

#[test]
fn every_item_alone() {
    let well = Remote::honest(Speech::NoSessions, false);
    for item in ITEMS {
        let remote = Remote::with(Speech::Sessions, false, item.acts);
        let gateway = gateway(&remote.site.url("/mcp"), &well.site.url("/mcp"));
        let told = (item.number, item.name);
        let outcome = gateway.call("echo", &json!({"text": "x"}));
        match item.verdict {
            Verdict::Fine => {
                assert_eq!(outcome, Outcome::Fine, "{told:?} {}", gateway.stderr());
                assert_eq!(remote.honest.executed().len(), 1, "{told:?}");
                for _ in 0..5 {
                    assert_eq!(
                        gateway.call("echo", &json!({"text": "x"})),
                        Outcome::Fine,
                        "{told:?}"
                    );
                }
            }
            Verdict::Fails(code, most) => {
                assert_eq!(outcome.code(), Some(code), "{told:?}: {outcome}");
                assert!(remote.honest.executed().len() <= most, "{told:?}");
            }
        }
        assert!(well_answers(&gateway), "{told:?}");
        gateway.end();
    }
}

#[test]
fn every_item_in_a_crowd() {
    let well = Remote::honest(Speech::NoSessions, false);
    for item in ITEMS {
        let remote = Remote::with(Speech::Sessions, false, item.acts);
        let gateway = gateway(&remote.site.url("/mcp"), &well.site.url("/mcp"));
        let told = (item.number, item.name);
        let calls: Vec<u64> = (0..64)
            .map(|number| {
                gateway.mcp_call("far", "echo", &json!({"text": number.to_string()})).unwrap()
            })
            .collect();
        let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
        for call in calls {
            let answer = gateway.wait(call, HUNG).unwrap();
            let outcome = Outcome::of(&answer.value);
            *outcomes.entry(outcome.code().unwrap_or("fine").to_owned()).or_default() += 1;
        }
        match item.verdict {
            Verdict::Fine => {
                // A session that each call ends is renewed once for each; who loses that race twice is told so.
                assert!(
                    outcomes.keys().all(|code| code == "fine" || code == "execution_failed"),
                    "{told:?} {outcomes:?}"
                );
            }
            Verdict::Fails(code, most) => {
                let expected = |found: &String| {
                    found == code
                        || (item.counts && found == "circuit_open")
                        || (item.number == 64 && found == "server_unavailable")
                };
                assert!(outcomes.keys().all(expected), "{told:?} {outcomes:?}");
                assert!(remote.honest.executed().len() <= most * 64, "{told:?}");
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
    Outcome::of(&answer.value) == Outcome::Fine
}

#[test]
fn a_pause_is_kept_and_the_breaker_stays_out_of_it() {
    let refused = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&refused);
    let remote = Remote::with(Speech::NoSessions, false, move |_, asked, talk| {
        if is_call(asked) && seen.fetch_add(1, Ordering::SeqCst) == 0 {
            return talk.respond(429, &[("retry-after", "2")], b"").map(|()| true);
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
    let fine = || gateway.call("echo", &json!({"text": "x"})) == Outcome::Fine;
    assert!(metamcp_testkit::eventually(HUNG, fine));
    gateway.end();
}

#[test]
fn a_pause_may_be_named_by_its_end() {
    // The first moment of a year that nobody here will see; then ends that say nothing, so that we choose the pause.
    for (end, is_told) in [
        ("Fri, 01 Jan 2100 00:00:00 GMT", true),
        ("Friday, 01-Jan-99 00:00:00 GMT", false),
        ("Thu Jan  1 00:00:00 1970", false),
        ("0", false),
    ] {
        let refused = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&refused);
        let remote = Remote::with(Speech::NoSessions, false, move |_, asked, talk| {
            if is_call(asked) && seen.fetch_add(1, Ordering::SeqCst) == 0 {
                return talk.respond(429, &[("retry-after", end)], b"").map(|()| true);
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
            let fine = || gateway.call("echo", &json!({"text": "x"})) == Outcome::Fine;
            assert!(metamcp_testkit::eventually(HUNG, fine), "{end}");
        }
        gateway.end();
    }
}

#[test]
fn a_server_that_is_not_there_is_offline_and_comes_back_unnoticed() {
    let speech = || Remote::honest(Speech::Sessions, false);
    let remote = speech();
    let place = remote.site.address();
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    gateway.echo("x");
    drop(remote);
    let mut error = gateway.refusal("echo", &json!({"text": "x"}));
    if error.code == "outcome_unknown" {
        // The connection that was kept broke only when the call was on it: nobody can know. The next one knows.
        error = gateway.refusal("echo", &json!({"text": "x"}));
    }
    assert_eq!(error.code, "server_unavailable", "{}", error.whole);
    assert_eq!(error.category.as_deref(), Some("offline"));
    let honest = Arc::new(Honest::new(Speech::Sessions, false));
    let inner = Arc::clone(&honest);
    let answerer: Arc<metamcp_testkit::site::Answerer> =
        Arc::new(move |asked, talk| inner.answer(asked, talk));
    let plain = Arc::new(|socket| Ok(Box::new(socket) as Box<dyn metamcp_testkit::site::Wire>));
    let _site = Site::start_on(&place.to_string(), answerer, plain).unwrap();
    let fine = || gateway.call("echo", &json!({"text": "back"})) == Outcome::Fine;
    assert!(metamcp_testkit::eventually(HUNG, fine), "{}", gateway.stderr());
    assert_eq!(honest.executed(), [json!({"text": "back"})]);
    gateway.end();
}

#[test]
fn a_harmless_call_is_sent_once_more_and_another_is_not() {
    let failed = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&failed);
    let remote = Remote::with(Speech::NoSessions, false, move |honest, asked, talk| {
        if is_call(asked) && seen.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) {
            honest.execute(asked);
            return talk.respond(502, &[], b"").map(|()| true);
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
    let thief = Remote::honest(Speech::NoSessions, false);
    let target = thief.site.url("/mcp");
    let remote = Remote::with(Speech::NoSessions, false, move |_, asked, talk| {
        if asked.path() == "/mcp" {
            return talk.respond(308, &[("location", "/moved")], b"").map(|()| true);
        }
        if asked.rpc() == "tools/list" {
            return talk.respond(307, &[("location", &target)], b"").map(|()| true);
        }
        Ok(false)
    });
    let entry = json!({
        "url": remote.site.url("/mcp"), "headers": {"X-Key": "k3y-k3y", "Authorization": "Bearer t0ken-t0ken"},
    });
    let gateway = Gateway::of(&entry);
    gateway.echo("here");
    let kept: Vec<_> =
        remote.site.asked().into_iter().filter(|asked| asked.path() == "/moved").collect();
    assert!(!kept.is_empty() && kept.iter().all(|asked| asked.header("x-key") == Some("k3y-k3y")));
    let taken = thief.site.asked();
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
    let elsewhere = Remote::honest(Speech::NoSessions, false);
    let places = ["/mcp".to_owned(), "/other".to_owned(), refused, elsewhere.site.url("/mcp")];
    for status in [301, 302, 303, 307, 308] {
        for place in &places {
            let place = place.clone();
            let remote = Remote::with(Speech::NoSessions, false, move |honest, asked, talk| {
                if !is_call(asked) {
                    return Ok(false);
                }
                honest.execute(asked);
                talk.respond(status, &[("location", &place)], b"").map(|()| true)
            });
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
    // As frameworks do who want a slash at the end, and as sites do who moved.
    let new = Remote::honest(Speech::NoSessions, false);
    for there in ["/mcp/".to_owned(), new.site.url("/mcp")] {
        for status in [301, 302, 307, 308] {
            let place = there.clone();
            let remote = Remote::with(Speech::NoSessions, false, move |_, asked, talk| {
                if asked.path() == "/mcp" {
                    return talk.respond(status, &[("location", &place)], b"").map(|()| true);
                }
                Ok(false)
            });
            let gateway = Gateway::to(&remote.site.url("/mcp"));
            gateway.echo("a");
            gateway.echo("b");
            let calls =
                |remote: &Remote| remote.site.asked().iter().filter(|asked| is_call(asked)).count();
            assert_eq!(calls(&remote) + calls(&new), 2, "each went there at once");
            assert!(
                remote.site.asked().iter().all(|asked| asked.path() != "/mcp" || !is_call(asked))
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
    let remote = Remote::with(Speech::NoSessions, false, move |_, asked, talk| {
        if !is_call(asked) {
            return Ok(false);
        }
        match asked.json()["params"]["arguments"]["text"].as_str() {
            Some("long") => talk.respond(429, &[("retry-after", "99999999")], b""),
            Some("busy") => talk.respond(503, &[("retry-after", "120")], b""),
            _ => talk.respond(429, &[], b""),
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
            assert!(next.message.contains("is not asked again for another"), "{}", next.message);
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
    // Without a wish the pause begins with a second, so the first is measured alone.
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    let first = gateway.refusal("echo", &json!({ "text": "x" }));
    assert!(first.whole["retry_after_ms"].as_u64().is_some_and(|left| left > 0), "{}", first.whole);
    gateway.end();
}

#[test]
fn redirects_lead_nowhere_for_ever() {
    let hops = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&hops);
    let remote = Remote::with(Speech::NoSessions, false, move |_, asked, talk| {
        if asked.rpc() != "initialize" {
            return Ok(false);
        }
        let hop = seen.fetch_add(1, Ordering::SeqCst);
        let place = if asked.path() == "/mail" {
            "mailto:you@example.com".to_owned()
        } else {
            format!("/mcp?hop={hop}")
        };
        talk.respond(307, &[("location", &place)], b"").map(|()| true)
    });
    for (path, most) in [("/mcp", 4), ("/mail", 5)] {
        let entry = json!({ "url": remote.site.url(path), "transport": "http" });
        let gateway = Gateway::of(&entry);
        let error = gateway.refusal("echo", &json!({ "text": "x" }));
        assert_eq!(error.code, "server_unavailable", "{}", error.whole);
        assert!(error.message.contains("sends us elsewhere"), "{}", error.whole);
        assert_eq!(hops.load(Ordering::SeqCst), most, "{path}");
        gateway.end();
    }
    assert!(remote.honest.executed().is_empty());
}

#[test]
fn the_place_to_post_to_must_be_at_home() {
    let thief = Remote::honest(Speech::NoSessions, false);
    let target = thief.site.url("/messages");
    let remote = Remote::with(Speech::Older, false, move |_, asked, talk| {
        if asked.method == "GET" {
            talk.begin_events(&[])?;
            talk.raw(format!("event: endpoint\ndata: {target}\n\n").as_bytes())?;
            while talk.is_open() {
                std::thread::sleep(Duration::from_millis(5));
            }
            return Ok(true);
        }
        Ok(false)
    });
    let gateway = Gateway::of(&json!({"type": "sse", "url": remote.site.url("/sse")}));
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert_eq!(error.code, "server_unavailable", "{}", error.whole);
    assert!(thief.site.asked().is_empty());
    gateway.end();
}
