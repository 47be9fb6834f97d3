//! What does not belong into a fleet: a wrong key, a wrong account, another version, a full stream, a node that owns
//! nothing and speaks for others. Each is refused, logged, and costs nobody anything.

use std::process::{Command, Stdio};
use std::sync::Arc;

use metamcp_testkit::nats::{Nats, Options};
use metamcp_testkit::{Workspace, chaos_server, eventually};
use serde_json::json;

use crate::PATIENCE;
use crate::messages::{KEYS, run};

/// The accounts and permissions that docs/fleet.md shows, which is where these lines come from.
fn documented(nodes: &[&str]) -> String {
    let page = include_str!("../../../../docs/fleet.md");
    let (_, after) = page.split_once("```nats\n").expect("docs/fleet.md shows permissions");
    let (block, _) = after.split_once("```").expect("the block ends");
    let mut block = block.to_owned();
    for (number, node) in nodes.iter().enumerate() {
        block = block.replace(&format!("metamcp-{number}"), node);
    }
    block
}

/// A gateway that says why it does not start.
fn refused(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn workspace() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.server("a", chaos_server(&[]).setting("share", json!("fleet")));
    for (number, key) in KEYS.iter().enumerate() {
        std::fs::write(workspace.file(&format!("key-{number}")), key).unwrap();
    }
    workspace
}

fn gateway(workspace: &Workspace, nats: &Nats, name: &str, key: usize) -> Command {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_metamcp"));
    let mut command = workspace.command(program).unwrap();
    let home = workspace.file(&format!("home-{name}"));
    std::fs::create_dir_all(&home).unwrap();
    command.env("HOME", home).args(["--surface", "direct", "--node-name", name]);
    command.args(["--cluster", &nats.url(), "--cluster-lease", "3000"]);
    command.arg("--cluster-key").arg(workspace.file(&format!("key-{key}")));
    command
}

fn with_password(mut command: Command, user: &str, password: &str) -> Command {
    command.args(["--cluster-user", user, "--cluster-password", "secretref:env:BUS_PASSWORD"]);
    command.env("BUS_PASSWORD", password);
    command
}

fn client(command: Command) -> metamcp_testkit::Client {
    let client = metamcp_testkit::Client::start(command).unwrap();
    client
        .initialize(&json!({}), PATIENCE)
        .unwrap_or_else(|error| panic!("{error:#}\n{}", client.stderr()));
    client
}

fn calls(client: &metamcp_testkit::Client, key: &str) {
    let id = client.call_tool("effect", &json!({"key": key})).unwrap();
    let answer =
        client.wait(id, PATIENCE).unwrap_or_else(|error| panic!("{error:#}\n{}", client.stderr()));
    assert_eq!(
        answer.text(),
        Some(format!("done {key}").as_str()),
        "{}\n{}",
        answer.value,
        client.stderr()
    );
}

#[test]
fn the_documented_permissions_let_nodes_work_and_nobody_speak_for_another() {
    let nodes = ["good", "other", "liar"];
    let security = documented(&nodes);
    let nats = Nats::start(Options { security, ..Options::default() }).unwrap();
    let workspace = workspace();
    let start =
        |name: &str| client(with_password(gateway(&workspace, &nats, name, 0), name, "change-me"));
    let (good, other) = (start("good"), start("other"));
    calls(&good, "first");
    calls(&other, "second");
    assert_eq!(workspace.journal("a").count(metamcp_testkit::EventKind::Start).unwrap(), 1);
    for client in [&good, &other] {
        assert!(!client.stderr().contains("ermissions"), "{}", client.stderr());
    }
    // A node with its own credentials cannot speak under another's name, nor register as it, nor order others about.
    run(async {
        let options =
            async_nats::ConnectOptions::with_user_and_password("liar".into(), "change-me".into());
        let (say, mut complaints) = tokio::sync::mpsc::channel(64);
        let options = options.event_callback(move |event| {
            say.try_send(event.to_string()).ok();
            std::future::ready(())
        });
        let liar = options.connect(nats.url()).await.unwrap();
        for subject in [
            "metamcp.to.good.node.other",
            "metamcp.all.node.other",
            "$KV.metamcp_leases.node.other",
            "metamcp.to.good.operator.liar",
        ] {
            liar.publish(subject, "x".into()).await.unwrap();
            liar.flush().await.unwrap();
            loop {
                let complaint = complaints.recv().await.unwrap();
                if complaint.to_lowercase().contains("permissions violation") {
                    assert!(complaint.contains(subject), "{complaint}");
                    break;
                }
            }
        }
    });
    calls(&good, "third");
    calls(&other, "fourth");
}

#[test]
fn a_wrong_account_does_not_start_and_says_why() {
    let security = documented(&["good"]);
    let nats = Nats::start(Options { security, ..Options::default() }).unwrap();
    let workspace = workspace();
    let told = refused(&mut with_password(gateway(&workspace, &nats, "good", 0), "good", "wrong"));
    assert!(told.contains("lets nobody in with these credentials"), "{told}");
    let told = refused(&mut gateway(&workspace, &nats, "good", 0));
    assert!(told.contains("lets nobody in with these credentials"), "{told}");
    assert!(!told.contains("wrong"), "{told}");
}

#[test]
fn a_gateway_with_another_key_is_heard_by_nobody_and_costs_nothing() {
    let nats = Nats::alone().unwrap();
    let workspace = workspace();
    let good = client(gateway(&workspace, &nats, "good", 0));
    calls(&good, "first");
    let told = refused(&mut gateway(&workspace, &nats, "stranger", 1));
    assert!(told.contains("key"), "{told}");
    calls(&good, "second");
    assert_eq!(workspace.journal("a").count(metamcp_testkit::EventKind::Start).unwrap(), 1);
}

#[test]
fn a_bus_without_room_is_named_and_what_runs_goes_on() {
    let nats = Nats::start(Options { max_store: Some(1 << 20), ..Options::default() }).unwrap();
    let workspace = workspace();
    let told = refused(&mut gateway(&workspace, &nats, "good", 0));
    assert!(told.contains("no room") || told.contains("insufficient storage"), "{told}");
}

#[test]
fn garbage_in_every_place_is_refused_and_logged() {
    let nats = Nats::alone().unwrap();
    let workspace = Arc::new(workspace());
    let mut command = gateway(&workspace, &nats, "good", 0);
    command.args(["--log-level", "info"]);
    let good = client(command);
    calls(&good, "first");
    run(async {
        let stranger = async_nats::connect(nats.url()).await.unwrap();
        for subject in [
            "metamcp.to.good.node.ghost",
            "metamcp.all.node.ghost",
            "metamcp.to.good.operator.ghost",
            "metamcp.all.operator.ghost",
            "$KV.metamcp_leases.i.00000000000000000000000000000001",
            "$KV.metamcp_leases.node.ghost",
            "$KV.metamcp_leases.nonsense",
        ] {
            for bytes in [vec![], vec![0], vec![0xff; 300], b"{}".to_vec(), vec![1; 60_000]] {
                stranger.publish(subject, bytes.into()).await.unwrap();
            }
        }
        stranger.flush().await.unwrap();
    });
    calls(&good, "second");
    let is_logged = || good.stderr().contains("is refused");
    assert!(eventually(PATIENCE, is_logged), "{}", good.stderr());
    calls(&good, "third");
    assert_eq!(workspace.journal("a").executions("third").unwrap(), 1);
}
