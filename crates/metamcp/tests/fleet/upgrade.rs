//! Operating a fleet of real gateways: its status, a drain, a move, and an upgrade of all of them under load.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use metamcp_testkit::network::{Entered, enter};
use metamcp_testkit::{Workspace, chaos_server, eventually};
use serde_json::{Value, json};

use crate::PATIENCE;
use crate::clients::{Client, Log};
use crate::world::World;

const SERVERS: [&str; 2] = ["one", "two"];

fn world(test: &str, gateways: usize) -> Option<World> {
    let network = match enter(test).unwrap() {
        Entered::Here(network) => network,
        Entered::Elsewhere(has_passed) => {
            assert!(has_passed, "see above");
            return None;
        }
    };
    let mut workspace = Workspace::new().unwrap();
    for server in SERVERS {
        workspace.server(server, chaos_server(&[]).setting("share", json!("fleet")));
    }
    Some(World::start(network, workspace, gateways, 1))
}

/// What a command prints, and its exit code.
fn ran(mut command: Command) -> (String, String, i32) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

fn status(world: &World) -> Value {
    let (out, err, code) = ran(world.operator(&["status", "--json"]));
    assert_eq!(code, 0, "{out}{err}");
    serde_json::from_str(&out).unwrap()
}

/// Which node owns a process of a server.
fn owner(world: &World, server: &str) -> Option<String> {
    let fleet = status(world);
    let owns = |node: &&Value| {
        node["instances"].as_array().unwrap().iter().any(|one| one["server"] == server)
    };
    let node = fleet["nodes"].as_array().unwrap().iter().find(owns)?;
    Some(node["name"].as_str().unwrap().to_owned())
}

#[test]
fn gateways_are_upgraded_one_after_the_other_and_no_call_fails() {
    let name = "upgrade::gateways_are_upgraded_one_after_the_other_and_no_call_fails";
    let Some(mut world) = world(name, 3) else { return };
    let log = Arc::new(Log::default());
    let mut clients: Vec<Client> =
        (0..4).map(|number| Client::own(&world, &log, &SERVERS, number)).collect();
    let more = |count: usize| {
        let due = log.answered.load(Ordering::Relaxed) + count;
        assert!(eventually(PATIENCE, || log.answered.load(Ordering::Relaxed) >= due));
    };
    more(40);
    for number in 0..world.gateways.len() {
        // What a preStop hook does: the balancer has to hear of it before the process goes.
        let name = world.gateways[number].name.clone();
        let (out, err, code) = ran(world.operator(&["drain", &name]));
        assert_eq!(code, 0, "{out}{err}");
        let is_passed_over = || world.balancer.ready() == world.gateways.len() - 1;
        assert!(eventually(PATIENCE, is_passed_over));
        more(20);
        let status = world.stop(number);
        assert!(status.success(), "{status}: {}", world.log(number));
        more(20);
        world.launch(number);
        world.all_are_ready();
        more(20);
    }
    for client in &mut clients {
        client.finish();
    }
    for client in clients {
        client.went_on(&log);
    }
    let faults = log.faults(&world, &SERVERS);
    assert!(faults.is_empty(), "{faults:#?}");
    let tally = log.tally();
    assert_eq!(tally.keys().collect::<Vec<_>>(), ["fine"], "{tally:?}");
}

#[test]
fn an_operator_sees_the_fleet_drains_a_node_and_moves_a_server() {
    let name = "upgrade::an_operator_sees_the_fleet_drains_a_node_and_moves_a_server";
    let Some(mut world) = world(name, 3) else { return };
    let log = Arc::new(Log::default());
    let mut client = Client::own(&world, &log, &SERVERS, 0);
    let both_run = || SERVERS.iter().all(|server| owner(&world, server).is_some());
    assert!(eventually(PATIENCE, both_run), "{:#}", status(&world));
    client.finish();
    client.went_on(&log);
    let (text, err, code) = ran(world.operator(&["status"]));
    assert_eq!(code, 0, "{err}");
    assert!(text.starts_with("3 of 3 nodes ready") && text.contains("g2"), "{text}");
    // A move to a node that does not own it.
    let before = owner(&world, "one").unwrap();
    let to = if before == "g0" { "g1" } else { "g0" };
    let (out, err, code) = ran(world.operator(&["move", "one", "--to", to]));
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains(&format!("one leaves {before}")), "{out}");
    let moved = || owner(&world, "one").as_deref() == Some(to);
    let mut client = Client::own(&world, &log, &["one"], 1);
    assert!(eventually(PATIENCE, moved), "{:#}", status(&world));
    client.finish();
    client.went_on(&log);
    // A drain: nothing is left there, it is not ready, and it may be stopped.
    let (out, err, code) = ran(world.operator(&["drain", to]));
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains(&format!("{to} has drained")), "{out}");
    let number = world.gateways.iter().position(|one| one.name == to).unwrap();
    let (ready, said) = world.readyz(number).unwrap();
    assert_eq!((ready, &said["status"]), (503, &json!("draining")));
    assert_ne!(owner(&world, "one").as_deref(), Some(to));
    assert!(world.stop(number).success());
    // What cannot be, with a word on what can.
    for (words, wanted, exit) in [
        (&["drain", "g7"][..], "the fleet has", 2),
        (&["move", "oen"], "no node owns a process of oen", 2),
        (&["move", "one", "--to", "nowhere"], "no node", 2),
    ] {
        let (out, err, code) = ran(world.operator(words));
        assert_eq!(code, exit, "{words:?}: {out}{err}");
        assert!(err.contains(wanted), "{words:?}: {err}");
    }
    let faults = log.faults(&world, &SERVERS);
    assert!(faults.is_empty(), "{faults:#?}");
}
