//! What passes through a connector.

use metamcp_testkit::{Client, eventually};
use nix::sys::signal::Signal;
use serde_json::json;

use crate::stand_in::{
    PATIENCE, StandIn, command, connect, obliging, shake_hands, silent, workspace,
};

#[test]
fn lines_pass_unchanged_and_the_hello_says_who_comes() {
    let workspace = workspace();
    let daemon = StandIn::start(&workspace, obliging);
    let mut command = command(&workspace);
    command.args(["serve", "--surface", "full", "--daemon", "auto"]).env("TOKEN", "geheim €");
    let client = Client::start(command).unwrap();
    shake_hands(&client);
    let odd = [
        r#"  {"id" : "\u00e4",  "method":"ping" , "params":{"x":1.0}}"#,
        "this is not JSON",
        r#"[{"jsonrpc":"2.0","id":77,"method":"ping"},{"jsonrpc":"2.0","method":"x"}]"#,
        "",
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
    ];
    for line in odd {
        client.send(line).unwrap();
    }
    daemon.wait_for("requestId");
    let heard = daemon.lines();
    assert_eq!(heard[heard.len() - odd.len()..], odd.map(str::to_owned));
    let hello = &daemon.hellos()[0];
    assert_eq!(hello.flags, ["--surface", "full"]);
    let project = workspace.project().canonicalize().unwrap();
    assert_eq!(hello.folder, project.to_str().unwrap());
    assert!(hello.env.contains(&("TOKEN".to_owned(), "geheim €".to_owned())));
    assert_eq!(hello.pid, client.pid());
    assert!(eventually(PATIENCE, || client.stderr().contains("a remark of the daemon")));
    let written = "{\"jsonrpc\" : \"2.0\",\"method\":\"notifications/odd\", \"params\":{}}\n";
    daemon.say(written);
    assert!(eventually(PATIENCE, || !client.notifications("notifications/odd").is_empty()));
}

#[test]
fn long_messages_pass_both_ways() {
    let workspace = workspace();
    let _daemon = StandIn::start(&workspace, obliging);
    let client = connect(&workspace);
    shake_hands(&client);
    for length in [1, 4_000, 70_000, 3_000_000] {
        let text = "ä".repeat(length);
        let answer = client.ask("tools/list", &json!({ "text": text }), PATIENCE).unwrap();
        assert_eq!(answer.result().unwrap()["heard"]["text"], text, "{length}");
    }
}

#[test]
fn a_client_that_writes_a_thousand_requests_before_it_reads_is_served() {
    let workspace = workspace();
    let _daemon = StandIn::start(&workspace, obliging);
    let client = connect(&workspace);
    shake_hands(&client);
    let params: Vec<_> =
        (0..1000).map(|number| json!({ "n": number, "text": "x".repeat(2000) })).collect();
    let ids = client.request_at_once("tools/list", &params).unwrap();
    for (number, id) in ids.into_iter().enumerate() {
        let answer = client.wait(id, PATIENCE).unwrap();
        assert_eq!(answer.result().unwrap()["heard"]["n"], number);
    }
}

#[test]
fn the_end_of_input_reaches_the_daemon_and_its_last_words_the_client() {
    let workspace = workspace();
    let daemon = StandIn::start(&workspace, silent);
    let mut client = connect(&workspace);
    shake_hands(&client);
    let id = client.request("tools/list", &json!({})).unwrap();
    client.close_input();
    assert!(eventually(PATIENCE, || daemon.ended() == 1));
    daemon.say(&format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": {} })));
    assert!(client.wait(id, PATIENCE).unwrap().result().is_some());
    daemon.close();
    assert!(client.wait_exit(PATIENCE).unwrap().success());
    assert_eq!(daemon.hellos().len(), 1);
}

#[test]
fn the_first_signal_ends_the_input_and_the_second_the_process() {
    for signals in [1, 2] {
        let workspace = workspace();
        let daemon = StandIn::start(&workspace, silent);
        let mut client = connect(&workspace);
        shake_hands(&client);
        let id = client.request("tools/list", &json!({})).unwrap();
        daemon.wait_for("tools/list");
        client.signal(Signal::SIGTERM).unwrap();
        assert!(eventually(PATIENCE, || daemon.ended() == 1));
        if signals == 2 {
            client.signal(Signal::SIGINT).unwrap();
        } else {
            daemon.say(&format!("{}\n", json!({ "jsonrpc": "2.0", "id": id, "result": {} })));
            assert!(client.wait(id, PATIENCE).unwrap().result().is_some());
            daemon.close();
        }
        assert!(client.wait_exit(PATIENCE).unwrap().success(), "{signals}");
    }
}
