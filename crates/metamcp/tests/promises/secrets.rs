//! Secret references in the config: resolved in the server's environment, and nowhere else.

use std::fs;

use metamcp_testkit::{CallOutcome, Client, Server, Workspace, chaos_server, programs};
use serde_json::json;

use crate::world::{PATIENCE, call, command, stop};

const SECRET: &str = "s3cret-value-of-this-test";

#[test]
fn a_secret_is_in_the_servers_environment_and_nowhere_else() {
    let mut workspace = Workspace::new().unwrap();
    let file = workspace.file("key");
    fs::write(&file, format!("{SECRET}\n")).unwrap();
    let file = file.display();
    let good = chaos_server(&[])
        .variable("FROM_FILE", &format!("file:{file}"))
        .variable("FROM_COMMAND", &format!("cmd:cat '{file}'"))
        .variable("FROM_VARIABLE", "secretref:env:TEST_SECRET");
    workspace.server("good", good);
    // It prints its secret to stderr, and exits.
    let talks = Server::new("/bin/sh", &["-c", "echo \"the key is $KEY\" >&2; exit 7"]);
    workspace.server("talks", talks.variable("KEY", &format!("file:{file}")));
    workspace.server("none", chaos_server(&[]).variable("KEY", "file:/nonexistent/key"));
    let mut command = command(&workspace);
    command.env("METAMCP_LOG_LEVEL", "trace").env("TEST_SECRET", SECRET);
    let client = Client::start(command).unwrap();
    client.initialize(&json!({}), PATIENCE).unwrap();

    let answer = client.mcp_call_now("good", "env", &json!({}), PATIENCE).unwrap();
    // The environment that the server reports reaches the model with the value redacted.
    assert!(!answer.value.to_string().contains(SECRET), "{}", answer.value);
    let children = workspace.processes_of(&programs::chaos_child());
    let given = children.iter().any(|child| {
        let given = fs::read(format!("/proc/{}/environ", child.pid)).unwrap_or_default();
        let given = String::from_utf8_lossy(&given).into_owned();
        let has = |name: &str| given.split('\0').any(|pair| pair == format!("{name}={SECRET}"));
        ["FROM_FILE", "FROM_COMMAND", "FROM_VARIABLE"].iter().all(|name| has(name))
    });
    assert!(given, "{children:?}");
    let processes = workspace.processes();
    assert!(processes.len() >= 2, "{processes:?}");
    for process in &processes {
        let words = fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&words).contains(SECRET), "{process:?}");
    }

    let told = call(&client, "talks", "x", &json!({})).to_string();
    assert!(told.contains("code 7") && !told.contains(SECRET), "{told}");
    match call(&client, "none", "echo", &json!({"text": "x"})) {
        CallOutcome::GatewayError(error) => {
            let says = |words: &str| error.message.contains(words);
            assert!(says("the secret for KEY") && says("/nonexistent/key"), "{}", error.message);
        }
        other => panic!("{other}"),
    }
    assert!(!client.stderr().contains(SECRET), "{}", client.stderr());
    stop(client, &workspace);
}
