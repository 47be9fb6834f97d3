//! Correct servers with every transport: detected, used, cached, closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use metamcp_testkit::client::Reply;
use metamcp_testkit::site::honest::RemoteTransport;
use metamcp_testkit::{CallOutcome, eventually};
use serde_json::json;

use crate::world::{Gateway, HUNG, Remote};

#[test]
fn every_speech_is_found_out_from_the_address_alone() {
    for (transport, streams, path) in [
        (RemoteTransport::Sessions, false, "/mcp"),
        (RemoteTransport::Sessions, true, "/mcp"),
        (RemoteTransport::NoSessions, false, "/mcp"),
        (RemoteTransport::NoSessions, true, "/mcp"),
        (RemoteTransport::Stateless, false, "/mcp"),
        (RemoteTransport::Stateless, true, "/mcp"),
        (RemoteTransport::Sse, false, "/sse"),
    ] {
        let remote = Remote::honest(transport, streams);
        let gateway = Gateway::to(&remote.site.url(path));
        for round in 0..3 {
            gateway.echo(&format!("{transport:?} {streams} {round}"));
        }
        assert_eq!(remote.honest.executed().len(), 3, "{transport:?}");
        gateway.end();
    }
}

#[test]
fn what_was_found_out_is_remembered() {
    for (transport, path) in [
        (RemoteTransport::Stateless, "/mcp"),
        (RemoteTransport::Sessions, "/mcp"),
        (RemoteTransport::Sse, "/sse"),
    ] {
        let remote = Remote::honest(transport, false);
        let gateway = Gateway::to(&remote.site.url(path));
        gateway.echo("first");
        let cache = gateway.workspace.home().join(".metamcp/cache/eras.json");
        assert!(eventually(HUNG, || cache.exists()));
        let first = remote.site.requests().len();
        let workspace = gateway.workspace_after_end();
        let gateway = Gateway::start(workspace);
        gateway.echo("second");
        let later = &remote.site.requests()[first..];
        let probes = later.iter().filter(|request| request.rpc() == "server/discover").count();
        let greetings = later.iter().filter(|request| request.rpc() == "initialize").count();
        let expected = if transport == RemoteTransport::Stateless { (1, 0) } else { (0, 1) };
        assert_eq!((probes, greetings), expected, "{transport:?}");
        gateway.end();
    }
}

#[test]
fn a_session_id_is_sent_and_deleted_at_the_end() {
    let remote = Remote::honest(RemoteTransport::Sessions, false);
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    gateway.echo("a");
    gateway.echo("b");
    assert!(eventually(HUNG, || remote.honest.listeners() == 1), "the general stream is open");
    gateway.end();
    let request = remote.site.requests();
    assert_eq!(remote.count("initialize"), 1);
    let mine = |request: &&metamcp_testkit::site::ReceivedRequest| {
        request.header("mcp-session-id").is_some_and(|id| id.starts_with("session-"))
    };
    let calls: Vec<_> = request.iter().filter(|request| request.rpc() == "tools/call").collect();
    assert_eq!(calls.len(), 2);
    assert!(calls.iter().all(mine));
    assert!(calls.iter().all(|call| call.header("mcp-protocol-version") == Some("2025-11-25")));
    assert!(calls.iter().all(|call| call.header("accept-encoding") == Some("identity")));
    let farewell: Vec<_> = request.iter().filter(|request| request.method == "DELETE").collect();
    assert_eq!(farewell.len(), 1);
    assert!(farewell.iter().all(mine));
    // Nothing overtook `initialized`.
    let order: Vec<String> =
        request.iter().map(metamcp_testkit::site::ReceivedRequest::rpc).collect();
    let place = |method: &str| order.iter().position(|known| known == method).unwrap();
    assert!(place("notifications/initialized") < place("tools/list"), "{order:?}");
}

#[test]
fn a_restarted_server_is_not_noticed() {
    let remote = Remote::honest(RemoteTransport::Sessions, true);
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    gateway.echo("before");
    remote.honest.forget();
    // Many calls detect concurrently; one performs the handshake for all.
    let calls: Vec<u64> = (0..16)
        .map(|number| {
            gateway.mcp_call("far", "echo", &json!({"text": number.to_string()})).unwrap()
        })
        .collect();
    for call in calls {
        assert_eq!(CallOutcome::of(&gateway.wait(call, HUNG).unwrap().value), CallOutcome::Success);
    }
    assert_eq!(remote.honest.executed().len(), 17);
    assert_eq!(remote.count("initialize"), 2);
    gateway.end();
}

#[test]
fn restarts_under_load_cost_one_handshake_each_and_no_call() {
    let full = std::env::var_os("METAMCP_FULL").is_some_and(|value| value == "1");
    let restarts = if full { 1000 } else { 25 };
    let remote = Remote::honest(RemoteTransport::Sessions, false);
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    gateway.echo("first");
    for restart in 1..=restarts {
        let call = |number: usize| {
            let text = format!("{restart}-{number}");
            gateway.mcp_call("far", "echo", &json!({ "text": text })).unwrap()
        };
        let mut calls: Vec<u64> = (0..4).map(call).collect();
        remote.honest.forget();
        calls.extend((4..8).map(call));
        for call in calls {
            let answer = gateway.wait(call, HUNG).unwrap();
            assert_eq!(CallOutcome::of(&answer.value), CallOutcome::Success, "{}", answer.value);
        }
    }
    assert_eq!(remote.count("initialize"), restarts + 1);
    // Each ran once, whichever session it was sent in.
    let mut ran: Vec<String> =
        remote.honest.executed().iter().map(serde_json::Value::to_string).collect();
    ran.sort();
    ran.dedup();
    assert_eq!((ran.len(), remote.honest.executed().len()), (restarts * 8 + 1, restarts * 8 + 1));
    gateway.end();
}

#[test]
fn a_lost_session_is_renewed_with_its_subscriptions() {
    let remote = Remote::honest(RemoteTransport::Sessions, false);
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    gateway.request("logging/setLevel", &json!({"level": "error"})).unwrap();
    gateway.echo("before");
    assert!(eventually(HUNG, || remote.count("logging/setLevel") == 1));
    remote.honest.forget();
    gateway.echo("after");
    assert!(eventually(HUNG, || remote.count("logging/setLevel") == 2));
    let levels: Vec<_> = remote
        .site
        .requests()
        .iter()
        .filter(|request| request.rpc() == "logging/setLevel")
        .map(|request| request.json()["params"]["level"].clone())
        .collect();
    assert_eq!(levels, ["error", "error"]);
    gateway.end();
}

#[test]
fn changes_of_tools_reach_the_catalog() {
    for transport in [RemoteTransport::Sessions, RemoteTransport::Stateless, RemoteTransport::Sse] {
        let path = if transport == RemoteTransport::Sse { "/sse" } else { "/mcp" };
        let remote = Remote::honest(transport, false);
        let gateway = Gateway::to(&remote.site.url(path));
        gateway.echo("x");
        assert!(eventually(HUNG, || remote.honest.listeners() == 1), "{transport:?}");
        let lists = remote.count("tools/list");
        remote.honest.learn(json!({"name": "fresh", "inputSchema": {"type": "object"}}));
        assert!(eventually(HUNG, || remote.count("tools/list") > lists), "{transport:?}");
        let known = || gateway.call("fresh", &json!({})) == CallOutcome::Success;
        assert!(eventually(HUNG, known), "{transport:?}");
        gateway.end();
    }
}

#[test]
fn parameters_that_a_schema_wants_in_headers_are_there() {
    let remote = Remote::honest(RemoteTransport::Stateless, false);
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    for place in ["eu", "ü"] {
        let outcome = gateway.call("region", &json!({"where": place}));
        if place == "eu" {
            assert_eq!(outcome, CallOutcome::Success);
        }
    }
    let request = remote.site.requests();
    let values: Vec<_> =
        request.iter().filter_map(|request| request.header("mcp-param-region")).collect();
    assert_eq!(values, ["eu", "=?base64?w7w=?="]);
    gateway.end();
}

#[test]
fn a_dropped_stream_is_resumed_where_the_server_gives_ids() {
    let drops = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&drops);
    let remote =
        Remote::with(RemoteTransport::Sessions, false, move |honest, request, exchange| {
            if request.rpc() == "tools/call" {
                honest.execute(request);
                seen.fetch_add(1, Ordering::SeqCst);
                exchange.begin_events(&[])?;
                exchange.raw(b"retry: 10\n")?;
                exchange.event_as(&format!("at-{}", request.json()["id"]), "")?;
                return Ok(true);
            }
            if let Some(last) = request.header("last-event-id") {
                let id: u64 = last.strip_prefix("at-").unwrap().parse().unwrap();
                exchange.begin_events(&[])?;
                let result = json!({"content": [{"type": "text", "text": "resumed"}]});
                exchange.event(&json!({"jsonrpc": "2.0", "id": id, "result": result}))?;
                return Ok(true);
            }
            Ok(false)
        });
    let gateway = Gateway::to(&remote.site.url("/mcp"));
    let answer = gateway.mcp_call_now("far", "echo", &json!({"text": "x"}), HUNG).unwrap();
    assert_eq!(answer.value["result"]["content"][0]["text"], "resumed", "{}", answer.value);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    gateway.end();
}

#[test]
fn headers_carry_variables_and_connections_are_used_again() {
    let remote = Remote::honest(RemoteTransport::NoSessions, false);
    let mut workspace = metamcp_testkit::Workspace::new().unwrap();
    let entry = json!({
        "type": "http", "url": remote.site.url("/mcp"),
        "headers": {"X-Team": "${TEAM}"}, "bearerToken": "${THE_TOKEN}",
    });
    workspace.entry("far", entry);
    let gateway = Gateway::start_as(workspace, |command| {
        command.env("TEAM", "blue").env("THE_TOKEN", "s3cret-t0ken");
    });
    for _ in 0..20 {
        gateway.echo("x");
    }
    let request = remote.site.requests();
    assert!(request.iter().all(|request| request.header("x-team") == Some("blue")));
    assert!(
        request
            .iter()
            .all(|request| request.header("authorization") == Some("Bearer s3cret-t0ken"))
    );
    assert!(remote.site.connections() <= 4, "{} connections", remote.site.connections());
    gateway.end();
}

#[test]
fn progress_comes_before_the_answer_and_a_cancelled_call_is_called_off() {
    for (transport, told) in
        [(RemoteTransport::Sessions, true), (RemoteTransport::Stateless, false)]
    {
        let gone = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&gone);
        let remote = Remote::with(transport, true, move |_, request, exchange| {
            let message = request.json();
            if message["method"] != "tools/call" {
                return Ok(false);
            }
            exchange.begin_events(&[])?;
            if message["params"]["arguments"]["text"] == "wait" {
                exchange.wait_for_hangup();
                seen.fetch_add(1, Ordering::SeqCst);
                return Ok(true);
            }
            let token = &message["params"]["_meta"]["progressToken"];
            for step in 0..20 {
                exchange.event(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": step}}))?;
            }
            exchange.event(&json!({"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", "content": []}}))?;
            Ok(true)
        });
        let gateway = Gateway::to(&remote.site.url("/mcp"));
        let params = json!({
            "name": "mcp_call", "arguments": {"tool": "far:echo", "args": {}},
            "_meta": {"progressToken": "p"},
        });
        let call = gateway.request("tools/call", &params).unwrap();
        gateway.wait(call, HUNG).unwrap();
        let mut steps = gateway.notifications("notifications/progress");
        // The gateway reports the start of a call if the server is slow to send progress itself.
        steps.retain(|step| step["message"] != "far:echo");
        assert_eq!(steps.len(), 20, "{transport:?} {}", gateway.stderr());
        let call = gateway.mcp_call("far", "echo", &json!({"text": "wait"})).unwrap();
        let count = |method: &str| remote.count(method);
        assert!(eventually(HUNG, || count("tools/call") == 2));
        gateway.notify("notifications/cancelled", &json!({"requestId": call})).unwrap();
        assert!(eventually(HUNG, || gone.load(Ordering::SeqCst) == 1), "{transport:?}");
        if told {
            assert!(eventually(HUNG, || count("notifications/cancelled") == 1));
        } else {
            assert_eq!(count("notifications/cancelled"), 0);
        }
        gateway.end();
    }
}

#[test]
fn a_server_request_on_the_stream_of_a_call_reaches_its_client() {
    let answers = Arc::new(std::sync::Mutex::new(Vec::new()));
    let heard = Arc::clone(&answers);
    let remote = Remote::with(RemoteTransport::Sessions, true, move |_, request, exchange| {
        let message = request.json();
        if message.get("method").is_none() && message.get("result").is_some() {
            heard.lock().unwrap().push(message);
            return exchange.respond(202, &[], b"").map(|()| true);
        }
        if message["method"] != "tools/call" {
            return Ok(false);
        }
        exchange.begin_events(&[])?;
        let name = message["params"]["arguments"]["text"].as_str().unwrap_or_default().to_owned();
        let question =
            json!({"message": "who?", "requestedSchema": {"type": "object", "properties": {}}});
        exchange.event(&json!({"jsonrpc": "2.0", "id": "q1", "method": "elicitation/create", "params": question}))?;
        assert!(eventually(HUNG, || !heard.lock().unwrap().is_empty()));
        let result = json!({"content": [{"type": "text", "text": name}]});
        exchange.event(&json!({"jsonrpc": "2.0", "id": message["id"], "result": result}))?;
        Ok(true)
    });
    let mut workspace = metamcp_testkit::Workspace::new().unwrap();
    workspace.entry("far", json!({ "url": remote.site.url("/mcp") }));
    let gateway = Gateway::start_answering(workspace, &json!({"elicitation": {}}), |method, _| {
        assert_eq!(method, "elicitation/create");
        Reply::Result(json!({"action": "accept", "content": {"name": "ada"}}))
    });
    gateway.echo("asked");
    let answers = answers.lock().unwrap().clone();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0]["id"], "q1");
    assert_eq!(answers[0]["result"]["content"]["name"], "ada");
    gateway.end();
}
