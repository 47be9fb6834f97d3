//! The official SDKs through two gateways behind a load balancer that sends each request to the next one: gateways that
//! share a key, the tokens and the configuration, and nothing else.

use std::fs;
use std::net::SocketAddr;
use std::time::Duration;

use metamcp_testkit::balancer::Balancer;
use metamcp_testkit::eventually;
use serde_json::{Value, json};

use crate::http::Serving;
use crate::installed::{Start, text};
use crate::plan::{Client, Plan, Remote};
use crate::world::World;

/// However busy the machine is.
const PATIENCE: Duration = Duration::from_mins(1);
const KEY: &str = "u8uBlFpHbYuV6J1m0bD2cQ3nS8X7kZ5yTqWvEo4fGhI=";
const TOKEN: &str = "the-token-of-the-fleet";

/// A gateway of the fleet, in a home of its own.
fn gateway(world: &World, number: usize) -> (Serving, SocketAddr) {
    let (key, tokens) = (world.path().join("cluster-key"), world.path().join("tokens"));
    fs::write(&key, KEY).unwrap();
    fs::write(&tokens, TOKEN).unwrap();
    let home = world.path().join(format!("home-{number}"));
    fs::create_dir(&home).unwrap();
    let everything = world.direct("everything");
    let server = json!({ "command": everything.command, "args": everything.args });
    let config = world.path().join("fleet.json");
    fs::write(&config, json!({ "mcpServers": { "everything": server } }).to_string()).unwrap();
    let mut args = vec!["--config".to_owned(), text(&config)];
    args.extend(["--home".to_owned(), text(&home), "--cluster-key".to_owned(), text(&key)]);
    args.extend(["--token-file".to_owned(), text(&tokens)]);
    args.extend(["--transport", "http", "--port", "0"].map(str::to_owned));
    let Start { command, env, .. } = world.gateway();
    let serving = Serving::listening(world, &Start { command, args, env });
    let address = serving.remote.url.split('/').nth(2).unwrap().parse().unwrap();
    (serving, address)
}

fn through(tool: &str, args: &Value) -> Value {
    json!({ "server": "everything", "tool": tool, "args": args })
}

/// Several of everything that any gateway can answer.
fn many(mut plan: Plan) -> Plan {
    plan = plan.list("list").call_until(
        "find",
        "mcp_discover",
        &json!({ "query": "echo back a message" }),
        "everything:echo",
    );
    for number in 0..6 {
        let echo = through("echo", &json!({ "message": format!("hi {number}") }));
        plan = plan.call(&format!("echo {number}"), "mcp_call", &echo);
    }
    let long = through("trigger-long-running-operation", &json!({ "duration": 0.4, "steps": 4 }));
    plan.call_with_progress("long", "mcp_call", &long)
}

fn goes_on(clients: &[Client], plan: impl Fn() -> Plan) {
    let world = World::new();
    let ((one, first), (two, second)) = (gateway(&world, 1), gateway(&world, 2));
    let balancer = Balancer::start("127.0.0.1:0".parse().unwrap(), &[first, second]).unwrap();
    assert!(eventually(PATIENCE, || balancer.ready() == 2));
    let remote = Remote {
        url: format!("http://{}/mcp", balancer.address()),
        over: "http",
        token: TOKEN.to_owned(),
        trust: Vec::new(),
    };
    for &client in clients {
        let before = balancer.served();
        let report = many(plan()).run_at(&world, client, &remote);
        assert!(report.tools("list").contains(&"mcp_call".to_owned()), "{client:?}");
        for number in 0..6 {
            let said = report.step(&format!("echo {number}")).text().to_owned();
            assert_eq!(said, format!("Echo: hi {number}"), "{client:?}");
        }
        assert!(report.step("long").text().contains("completed"), "{client:?}");
        let after = balancer.served();
        for (before, after) in before.iter().zip(&after) {
            assert!(
                after - before >= 4,
                "{client:?}: each gateway had its turns: {before} {after}"
            );
        }
    }
    drop((one, two));
    world.nothing_is_left();
}

#[test]
fn sessions_go_on_when_each_request_reaches_another_gateway() {
    let all = [Client::TypescriptV1, Client::TypescriptV2, Client::PythonV1, Client::PythonV2];
    goes_on(&all, Plan::new);
}

#[test]
fn the_newest_revision_needs_no_gateway_in_particular() {
    goes_on(&[Client::TypescriptV2, Client::PythonV2], || Plan::new().asking_the_era());
}
