//! Sign-ins in the audit log: by the command and by the gateway, renewed, failed, and ended.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use metamcp_testkit::{Workspace, eventually};
use serde_json::{Value, json};

use crate::auth_server::{AuthBehaviour, AuthServer, auth, browse, log_in, workspace};
use crate::world::{Gateway, HUNG, command};

fn recorded(auth_server: &AuthServer) -> Workspace {
    let mut workspace = workspace(auth_server, &json!({}));
    workspace.setting("audit", json!({ "enabled": true }));
    workspace
}

/// What became of sign-ins, in order.
fn verdicts(workspace: &Workspace, auth_server: &AuthServer) -> Vec<String> {
    let mut command = command(workspace);
    let output = command.args(["audit", "query", "--kind", "login", "--json"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    for secret in ["access-", "refresh-", "code-"] {
        assert!(!said.contains(secret), "{secret} in {said}");
    }
    let lines = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| {
            let server = line["what"]["server"].as_str().unwrap();
            assert!(auth_server.site.url("/mcp").starts_with(server), "{server}");
            line["verdict"].as_str().unwrap().to_owned()
        })
        .collect()
}

#[test]
fn a_sign_in_by_the_command_its_renewal_and_its_end() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let workspace = recorded(&auth_server);
    log_in(&workspace);
    assert_eq!(verdicts(&workspace, &auth_server), ["started", "granted"]);
    let gateway = Gateway::start(workspace);
    gateway.echo("x");
    auth_server.expire();
    gateway.echo("y");
    let workspace = gateway.workspace_after_end();
    assert_eq!(verdicts(&workspace, &auth_server), ["started", "granted", "refreshed"]);
    assert!(auth(&workspace, &["logout", "far"]).output().unwrap().status.success());
    let all = verdicts(&workspace, &auth_server);
    assert_eq!(all, ["started", "granted", "refreshed", "forgotten"]);
}

#[test]
fn a_sign_in_that_the_gateway_asks_for() {
    let auth_server = AuthServer::start(AuthBehaviour::default());
    let gateway = Gateway::start(recorded(&auth_server));
    let refused = gateway.refusal("echo", &json!({"text": "x"}));
    assert_eq!(browse(refused.whole["details"]["url"].as_str().unwrap()), 200);
    let works = || {
        let args = json!({"text": "y"});
        let answer = gateway.mcp_call_now("far", "echo", &args, HUNG).unwrap();
        answer.text() == Some("y")
    };
    assert!(eventually(HUNG, works), "{}", gateway.stderr());
    let workspace = gateway.workspace_after_end();
    let mut all = verdicts(&workspace, &auth_server);
    all.sort();
    assert_eq!(all, ["granted", "needed", "started"]);
}

#[test]
fn a_sign_in_by_the_command_that_leads_to_no_token() {
    let behaviour = AuthBehaviour { wrong_issuer: true, ..AuthBehaviour::default() };
    let auth_server = AuthServer::start(behaviour);
    let workspace = recorded(&auth_server);
    let mut command = auth(&workspace, &["login", "far", "--no-browser", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    browse(first["url"].as_str().unwrap());
    assert!(!child.wait().unwrap().success());
    assert_eq!(verdicts(&workspace, &auth_server), ["started", "failed"]);
}

#[test]
fn a_sign_in_that_leads_to_no_token() {
    let behaviour = AuthBehaviour { wrong_issuer: true, ..AuthBehaviour::default() };
    let auth_server = AuthServer::start(behaviour);
    let gateway = Gateway::start(recorded(&auth_server));
    let refused = gateway.refusal("echo", &json!({"text": "x"}));
    browse(refused.whole["details"]["url"].as_str().unwrap());
    let failed = || {
        let all = verdicts(&gateway.workspace, &auth_server);
        all.iter().any(|one| one == "failed") && !all.iter().any(|one| one == "granted")
    };
    assert!(eventually(HUNG, failed), "{}", gateway.stderr());
    gateway.end();
}
