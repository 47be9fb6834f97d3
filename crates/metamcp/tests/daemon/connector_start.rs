//! Who starts the daemon, and what may be in its place.

use metamcp_testkit::{Client, eventually};
use serde_json::json;

use crate::stand_in::{
    PATIENCE, StandIn, accepted, command, connect, home, obliging, places, shake_hands, workspace,
};

#[test]
fn fifty_connectors_at_once_make_one_daemon() {
    let workspace = workspace();
    // Each command writes the config, which nobody should read meanwhile.
    let commands: Vec<_> = (0..50).map(|_| command(&workspace)).collect();
    let clients: Vec<Client> =
        commands.into_iter().map(|command| Client::start(command).unwrap()).collect();
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let ids: Vec<u64> =
        clients.iter().map(|client| client.request("initialize", &params).unwrap()).collect();
    for (client, id) in clients.iter().zip(ids) {
        let answer = client.wait(id, PATIENCE).unwrap();
        assert!(answer.result().is_some(), "{}", client.stderr());
        assert!(!client.stderr().contains("without the daemon"), "{}", client.stderr());
    }
    assert_eq!(workspace.daemons().len(), 1, "{:?}", workspace.daemons());
}

#[test]
fn a_stale_socket_is_replaced() {
    let workspace = workspace();
    let places = places(&workspace);
    let held = places.hold().unwrap().unwrap();
    drop(places.bind(&held).unwrap());
    drop(held);
    assert!(places.socket().exists());
    let client = connect(&workspace);
    shake_hands(&client);
    assert!(!client.stderr().contains("without the daemon"), "{}", client.stderr());
    assert_eq!(workspace.daemons().len(), 1);
}

#[test]
fn the_daemon_is_not_of_the_clients_session_and_outlives_it() {
    let workspace = workspace();
    let mut client = connect(&workspace);
    shake_hands(&client);
    let daemon = workspace.daemons()[0].pid;
    let session = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let rest = stat.rsplit(')').next().unwrap().to_owned();
        rest.split_whitespace().nth(3).unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(session(daemon), daemon);
    client.close_input();
    assert!(client.wait_exit(PATIENCE).unwrap().success());
    assert_eq!(workspace.daemons().first().map(|found| found.pid), Some(daemon));
}

#[test]
fn a_log_that_cannot_be_written_does_not_keep_it_from_starting() {
    let workspace = workspace();
    std::fs::create_dir_all(home(&workspace)).unwrap();
    std::os::unix::fs::symlink("/dev/full", home(&workspace).join("daemon.log")).unwrap();
    let client = connect(&workspace);
    shake_hands(&client);
    assert!(!client.stderr().contains("without the daemon"), "{}", client.stderr());
}

#[test]
fn a_newer_daemon_serves_an_older_connector() {
    let workspace = workspace();
    let daemon = StandIn::replying(&workspace, accepted("99.0.0"), obliging);
    let client = connect(&workspace);
    shake_hands(&client);
    assert_eq!(daemon.hellos().len(), 1);
}

#[test]
fn two_homes_have_two_daemons() {
    let workspace = workspace();
    let one = connect(&workspace);
    let mut other = command(&workspace);
    other.env("METAMCP_HOME", workspace.home().join("other"));
    let other = Client::start(other).unwrap();
    shake_hands(&one);
    shake_hands(&other);
    assert!(eventually(PATIENCE, || workspace.daemons().len() == 2), "{:?}", workspace.daemons());
}
