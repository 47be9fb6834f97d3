//! Logins: who is prompted, what is trusted, what is refreshed, and what attackers cannot do.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use metamcp_testkit::site::honest::RemoteTransport;
use metamcp_testkit::site::{Exchange, ReceivedRequest, Site};
use metamcp_testkit::{CallOutcome, Workspace, eventually};
use serde_json::{Value, json};

use crate::auth_server::{AuthBehaviour, AuthServer, auth, browse, log_in, workspace};
use crate::world::{Gateway, HUNG, command};

#[test]
fn a_server_that_wants_a_login_says_where_and_works_after_it() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let well = crate::world::Remote::honest(RemoteTransport::NoSessions, false);
    let mut workspace = workspace(&auth_server, &json!({}));
    workspace.entry("well", json!({ "url": well.site.url("/mcp") }));
    let gateway = Gateway::start_as(workspace, |command| {
        command.args(["--log-level", "debug"]);
    });
    let mut addresses = BTreeSet::new();
    for _ in 0..20 {
        let error = gateway.refusal("echo", &json!({"text": "x"}));
        assert_eq!((error.code.as_str(), error.retryable), ("auth_required", false));
        assert_eq!(error.category.as_deref(), Some("auth"));
        assert_eq!(error.whole["details"]["login"], "metamcp auth login far");
        addresses.insert(error.whole["details"]["url"].as_str().unwrap().to_owned());
    }
    assert_eq!(addresses.len(), 1, "one visit is waited for: {addresses:?}");
    // It blocks no other server.
    let answer = gateway.mcp_call_now("well", "echo", &json!({"text": "x"}), HUNG).unwrap();
    assert_eq!(CallOutcome::of(&answer.value), CallOutcome::Success);
    let address = addresses.pop_first().unwrap();
    // Neither silent connections to the callback nor forged callbacks change anything.
    let callback = address.split("redirect_uri=").nth(1).unwrap().split('&').next().unwrap();
    let callback = callback.replace("%3A", ":").replace("%2F", "/");
    let place = callback.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let _silent: Vec<_> = (0..8).map(|_| std::net::TcpStream::connect(&place).unwrap()).collect();
    for number in 0..1000 {
        assert_eq!(browse(&format!("{callback}?code=evil&state=guess-{number}")), 400);
    }
    assert_eq!(browse(&address), 200);
    let fine = || gateway.call("echo", &json!({"text": "x"})) == CallOutcome::Success;
    assert!(eventually(HUNG, fine), "{}", gateway.stderr());
    // A server that repeats its token does not leak it to the model.
    let token = auth_server.records.lock().unwrap().good.keys().next().unwrap().clone();
    let echo = gateway.mcp_call_now("far", "echo", &json!({"text": format!("<{token}>")}), HUNG);
    assert_eq!(echo.unwrap().text(), Some("<[secret access_token]>"));
    // The log says what became of the login, and nothing that is secret about it.
    let steps = ["needs a person to sign in", "waiting for a person", "signed in at"];
    assert!(
        eventually(HUNG, || steps.iter().all(|step| gateway.stderr().contains(step))),
        "{}",
        gateway.stderr()
    );
    let said = gateway.stderr();
    for secret in ["access-", "refresh-", "code-"] {
        assert!(!said.contains(secret), "{secret} in {said}");
    }
    let records = auth_server.records.lock().unwrap();
    assert_eq!(records.authorizations.len(), 1);
    assert_eq!(
        records.authorizations[0].field("scope").as_deref(),
        Some("read"),
        "no more than was asked for"
    );
    assert_eq!(records.registrations[0]["application_type"], "native");
    drop(records);
    gateway.end();
}

#[test]
fn the_command_logs_in_says_so_and_logs_out() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let workspace = workspace(&auth_server, &json!({}));
    let status = |workspace: &Workspace| -> Value {
        let output = auth(workspace, &["status", "far", "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    // Doctor reports the same, with the fix.
    let login = |workspace: &Workspace| -> Value {
        let output = command(workspace).args(["doctor", "--json"]).output().unwrap();
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = told["findings"].as_array().unwrap();
        all.iter().find(|finding| finding["area"] == "logins").unwrap().clone()
    };
    assert_eq!(status(&workspace)[0]["logged_in"], false);
    let open = login(&workspace);
    assert_eq!(open["message"], "far: no token", "{open}");
    assert!(open["cure"].as_str().unwrap().contains("metamcp auth login far"), "{open}");
    log_in(&workspace);
    assert_eq!(status(&workspace)[0]["refreshes"], true);
    let fine = login(&workspace);
    assert_eq!(fine["level"], "good", "{fine}");
    assert!(fine["message"].as_str().unwrap().contains("is refreshed automatically"), "{fine}");
    let gateway = Gateway::start(workspace);
    gateway.echo("x");
    let workspace = gateway.workspace_after_end();
    assert!(auth(&workspace, &["logout", "far"]).output().unwrap().status.success());
    assert_eq!(status(&workspace)[0]["logged_in"], false);
    let output = auth(&workspace, &["login", "nowhere"]).output().unwrap();
    assert!(!output.status.success());
}

#[test]
fn a_login_by_command_is_noticed_by_a_gateway_that_runs() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let gateway = Gateway::start(workspace(&auth_server, &json!({})));
    assert_eq!(gateway.refusal("echo", &json!({"text": "x"})).code, "auth_required");
    log_in(&gateway.workspace);
    gateway.echo("x");
    auth_server.expire();
    gateway.echo("y");
    assert_eq!(auth_server.refreshes(), 1);
    gateway.end();
}

#[test]
fn a_logout_by_command_is_noticed_by_a_gateway_that_runs() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let gateway = Gateway::start(workspace(&auth_server, &json!({})));
    log_in(&gateway.workspace);
    gateway.echo("x");
    let output = auth(&gateway.workspace, &["logout", "far"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let is_refused = || {
        let args = json!({"text": "y"});
        let answer = gateway.mcp_call_now("far", "echo", &args, HUNG).unwrap();
        answer.value.to_string().contains("auth_required")
    };
    assert!(eventually(HUNG, is_refused), "it still shows the token");
    gateway.end();
}

#[test]
fn a_client_with_url_elicitation_is_asked_once() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let questions: Arc<Mutex<Vec<Value>>> = Arc::default();
    let seen = Arc::clone(&questions);
    let able = json!({"elicitation": {"url": {}}});
    let gateway = Gateway::start_answering(
        workspace(&auth_server, &json!({})),
        &able,
        move |method, params| {
            assert_eq!(method, "elicitation/create");
            seen.lock().unwrap().push(params.clone());
            metamcp_testkit::client::Reply::Result(json!({"action": "accept"}))
        },
    );
    for _ in 0..5 {
        assert_eq!(gateway.refusal("echo", &json!({"text": "x"})).code, "auth_required");
    }
    let asked = questions.lock().unwrap().clone();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(asked[0]["mode"], "url");
    assert_eq!(browse(asked[0]["url"].as_str().unwrap()), 200);
    gateway.echo("x");
    auth_server.records.lock().unwrap().refresh.clear();
    auth_server.expire();
    // Its tools are cached, so the next call goes straight to the server.
    assert_eq!(gateway.refusal("echo", &json!({"text": "x"})).code, "auth_required");
    assert!(eventually(HUNG, || questions.lock().unwrap().len() == 2));
    gateway.end();
}

#[test]
fn a_stateless_client_gets_input_required_and_retries() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let gateway = Gateway::start(workspace(&auth_server, &json!({})));
    let able = json!({"elicitation": {"url": {}}});
    let params = json!({
        "name": "mcp_call", "arguments": {"server": "far", "tool": "echo", "args": {"text": "x"}},
    });
    let send = |params: &Value, able: &Value| {
        gateway.stateless("tools/call", params, able, &json!({})).unwrap()
    };
    let answer = |call: u64| gateway.wait(call, HUNG).unwrap().value["result"].clone();
    // The retry with the response to the one input request in a result, and the URL of that request.
    let again = |asked: &Value, action: &str| {
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let (key, question) = asked["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(question["method"], "elicitation/create");
        assert_eq!(question["params"]["mode"], "url");
        let mut retry = params.clone();
        retry["requestState"] = asked["requestState"].clone();
        retry["inputResponses"] = json!({ key: { "action": action } });
        (retry, question["params"]["url"].as_str().unwrap().to_owned())
    };

    let (declined, address) = again(&answer(send(&params, &able)), "decline");
    let refused = answer(send(&declined, &able));
    assert_eq!(refused["structuredContent"]["code"], "auth_required", "{refused}");
    assert_eq!(refused["structuredContent"]["details"]["url"], address);

    // A client that cannot open URLs gets it in the error.
    let refused = answer(send(&params, &json!({"elicitation": {}})));
    assert_eq!(refused["structuredContent"]["details"]["url"], address, "{refused}");

    // After consent the gateway waits for the login, and then makes the call.
    let (agreed, address) = again(&answer(send(&params, &able)), "accept");
    let call = send(&agreed, &able);
    assert_eq!(browse(&address), 200);
    let result = answer(call);
    assert_eq!(result["content"][0]["text"], "x", "{result}");
    assert_eq!(result["resultType"], "complete");
    assert_eq!(auth_server.honest.executed().len(), 1);
    assert_eq!(auth_server.records.lock().unwrap().authorizations.len(), 1);
    gateway.end();
}

#[test]
fn the_browser_is_a_program_with_one_argument() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let workspace = workspace(&auth_server, &json!({}));
    let tools = workspace.file("tools");
    std::fs::create_dir(&tools).unwrap();
    let seen = workspace.file("seen");
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$#\" \"$1\" > {}\n", seen.display());
    std::fs::write(tools.join("xdg-open"), script).unwrap();
    std::fs::set_permissions(
        tools.join("xdg-open"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    let mut child = auth(&workspace, &["login", "far"])
        .env("PATH", path)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let read = || std::fs::read_to_string(&seen).unwrap_or_default();
    assert!(eventually(HUNG, || read().lines().count() == 2));
    let text = read();
    let (count, address) = text.split_once('\n').unwrap();
    assert_eq!(count, "1");
    assert_eq!(browse(address.trim()), 200);
    assert!(child.wait().unwrap().success());
}

#[test]
fn hostile_answers_let_nobody_in() {
    let auth_server =
        AuthServer::start(AuthBehaviour { wrong_issuer: true, ..AuthBehaviour::default() });
    let gateway = Gateway::start(workspace(&auth_server, &json!({})));
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert_eq!(browse(error.whole["details"]["url"].as_str().unwrap()), 400);
    assert_eq!(gateway.refusal("echo", &json!({"text": "x"})).code, "auth_required");
    assert!(auth_server.records.lock().unwrap().good.is_empty(), "no code was exchanged");
    gateway.end();

    let auth_server = AuthServer::start(AuthBehaviour { closed: true, ..AuthBehaviour::default() });
    let gateway = Gateway::start(workspace(&auth_server, &json!({})));
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert!(error.message.contains("clientId"), "{}", error.message);
    gateway.end();
    let gateway = Gateway::start(workspace(&auth_server, &json!({"oauth": {"clientId": "known"}})));
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert!(error.whole["details"]["url"].as_str().unwrap().contains("client_id=known"));
    gateway.end();
}

#[test]
fn addresses_refused_by_the_ssrf_guard_are_not_contacted() {
    let secret = crate::world::Remote::honest(RemoteTransport::NoSessions, false);
    for target in [
        "http://169.254.169.254/prm".to_owned(),
        "http://10.0.0.1/prm".to_owned(),
        "http://metadata.invalid/prm".to_owned(),
        "file:///etc/passwd".to_owned(),
        "https://[::ffff:169.254.169.254]/".to_owned(),
    ] {
        let site =
            Site::start(Arc::new(move |_: &ReceivedRequest, exchange: &mut Exchange<'_>| {
                let challenge = format!("Bearer resource_metadata=\"{target}\"");
                exchange.respond(401, &[("www-authenticate", &challenge)], b"")
            }))
            .unwrap();
        let gateway = Gateway::to(&site.url("/mcp"));
        let error = gateway.refusal("echo", &json!({"text": "x"}));
        assert_eq!(error.code, "auth_required", "{}", error.whole);
        assert_eq!(error.whole["details"]["url"], Value::Null);
        gateway.end();
    }
    assert!(secret.site.requests().is_empty());
}

#[test]
fn new_scopes_are_requested_together_with_the_granted_ones() {
    let auth_server =
        AuthServer::start(AuthBehaviour { needs: Some("write"), ..AuthBehaviour::default() });
    let workspace = workspace(&auth_server, &json!({}));
    log_in(&workspace);
    let gateway = Gateway::start(workspace);
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert_eq!(error.code, "auth_required", "{}", error.whole);
    assert_eq!(browse(error.whole["details"]["url"].as_str().unwrap()), 200);
    let fine = || gateway.call("echo", &json!({"text": "x"})) == CallOutcome::Success;
    assert!(eventually(HUNG, fine), "{}", gateway.stderr());
    let records = auth_server.records.lock().unwrap();
    let scopes = records.authorizations.last().unwrap().field("scope");
    assert_eq!(scopes.as_deref(), Some("read write"));
    drop(records);
    gateway.end();
}

#[test]
fn a_server_that_is_never_satisfied_with_scopes_does_not_loop() {
    let auth_server = AuthServer::start(AuthBehaviour {
        needs: Some("write"),
        stingy: true,
        ..AuthBehaviour::default()
    });
    let workspace = workspace(&auth_server, &json!({}));
    log_in(&workspace);
    let gateway = Gateway::start(workspace);
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert_eq!(browse(error.whole["details"]["url"].as_str().unwrap()), 200);
    let error = gateway.refusal("echo", &json!({"text": "x"}));
    assert_eq!(
        (error.code.as_str(), &error.whole["details"]["url"]),
        ("auth_required", &Value::Null)
    );
    assert_eq!(auth_server.records.lock().unwrap().authorizations.len(), 2);
    gateway.end();
}

#[test]
fn a_server_that_takes_no_token_is_not_shown_one_after_the_other() {
    for kind in ["http", "sse"] {
        let auth_server =
            AuthServer::start(AuthBehaviour { blind: true, ..AuthBehaviour::default() });
        let workspace = workspace(&auth_server, &json!({ "type": kind }));
        log_in(&workspace);
        let gateway = Gateway::start(workspace);
        for call in 1..=3 {
            let error = gateway.refusal("echo", &json!({"text": "x"}));
            assert_eq!(error.code, "auth_required", "{kind}: {}", error.whole);
            assert!(
                auth_server.refreshes() <= call,
                "{kind}: {} for {call} calls",
                auth_server.refreshes()
            );
        }
        assert_eq!(auth_server.records.lock().unwrap().reused, 0, "{kind}");
        gateway.end();
    }
}

#[test]
fn a_machine_logs_in_by_itself() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let oauth =
        json!({"clientId": "machine", "clientSecret": "${SECRET}", "grant": "client_credentials"});
    let gateway =
        Gateway::start_as(workspace(&auth_server, &json!({ "oauth": oauth })), |command| {
            command.env("SECRET", "s3cret-s3cret");
        });
    gateway.echo("x");
    auth_server.records.lock().unwrap().refresh.clear();
    auth_server.expire();
    gateway.echo("y");
    gateway.end();
}

#[test]
fn a_token_that_ends_soon_is_renewed_before_it_is_shown() {
    let auth_server =
        AuthServer::start(AuthBehaviour { lifetime: Some(10), ..AuthBehaviour::default() });
    let workspace = workspace(&auth_server, &json!({}));
    log_in(&workspace);
    let before = auth_server.site.requests().len();
    let gateway = Gateway::start(workspace);
    gateway.echo("x");
    let later = &auth_server.site.requests()[before..];
    let refused = later
        .iter()
        .filter(|asked| asked.path() == "/mcp" && asked.header("authorization").is_none());
    assert_eq!(refused.count(), 0);
    assert!(auth_server.refreshes() >= 1);
    gateway.end();
}

#[test]
fn a_server_that_differs_in_trifles_lets_people_in_and_renews_after_a_restart() {
    let auth_server = AuthServer::start(AuthBehaviour { odd: true, ..AuthBehaviour::default() });
    let workspace = workspace(&auth_server, &json!({}));
    log_in(&workspace);
    assert_eq!(auth_server.records.lock().unwrap().registrations.len(), 2);
    let output = auth(&workspace, &["status", "far", "--json"]).output().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let left = status[0]["expires_in_ms"].as_u64().unwrap();
    assert!((3_000_000..=3_600_000).contains(&left), "{status}");
    let gateway = Gateway::start(workspace);
    auth_server.expire();
    gateway.echo("x");
    assert_eq!(auth_server.refreshes(), 1);
    gateway.end();
}

#[test]
fn many_gateways_refresh_once_for_each_expiry() {
    let full = std::env::var_os("METAMCP_FULL").is_some_and(|value| value == "1");
    let (gateways, expiries) = if full { (64, 200) } else { (6, 8) };
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let workspace = workspace(&auth_server, &json!({}));
    log_in(&workspace);
    let crowd: Vec<_> = (0..gateways)
        .map(|_| {
            let client = metamcp_testkit::Client::start(command(&workspace)).unwrap();
            client.initialize(&json!({}), HUNG).unwrap();
            client
        })
        .collect();
    let ask_all = |round: usize| {
        let calls: Vec<_> = crowd
            .iter()
            .map(|client| {
                client.mcp_call("far", "echo", &json!({"text": round.to_string()})).unwrap()
            })
            .collect();
        for (client, call) in crowd.iter().zip(calls) {
            let answer = client.wait(call, HUNG).unwrap();
            assert_eq!(CallOutcome::of(&answer.value), CallOutcome::Success, "{}", answer.value);
        }
    };
    ask_all(0);
    for round in 1..=expiries {
        auth_server.expire();
        ask_all(round);
    }
    let records = auth_server.records.lock().unwrap();
    assert_eq!((records.refreshes, records.reused), (expiries, 0));
    assert_eq!(records.authorizations.len(), 1, "nobody had to log in again");
    drop(records);
    assert_eq!(auth_server.honest.executed().len(), gateways * (expiries + 1));
    let ended = AtomicUsize::new(0);
    for mut client in crowd {
        client.close_input();
        assert!(client.wait_exit(HUNG).unwrap().success());
        ended.fetch_add(1, Ordering::Relaxed);
    }
    assert_eq!(ended.into_inner(), gateways);
}
