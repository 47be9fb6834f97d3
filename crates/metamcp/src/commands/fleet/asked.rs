//! The questions and orders of `metamcp fleet`, and what became of them.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use metamcp_config::settings::ClusterSettings;
use metamcp_engine::cluster_key::Keyring;
use metamcp_engine::fleet::bus::{Bus, BusError};
use metamcp_engine::fleet::operator::{self, FleetReport, NodeReadiness, OperatorError, Order};
use metamcp_engine::fleet::{FleetConfig, FleetError, NodeName};
use metamcp_types::nearest::nearest;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::words;
use crate::args::{FleetCommand, FleetDrainArgs, FleetMoveArgs};
use crate::exit::{Exit, misuse};
use crate::render::visible;

/// How often a node that drains is asked how far it is.
const LOOK: Duration = Duration::from_millis(500);

pub(super) fn run(
    cluster: &ClusterSettings,
    command: &FleetCommand,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let bus = match connect(cluster).await {
            Ok(bus) => bus,
            Err(error) => return unreached(&error, command.wants_json(), out),
        };
        let ended = match command {
            FleetCommand::Status(args) => status(&bus, args.json, out).await,
            FleetCommand::Drain(args) => drain(&bus, args, out).await,
            FleetCommand::Move(args) => move_server(&bus, args, out).await,
        };
        bus.close().await;
        ended
    });
    runtime.shutdown_background();
    ended
}

async fn connect(cluster: &ClusterSettings) -> Result<Bus, FleetError> {
    let keyring = Keyring::load(cluster).await?;
    let config = FleetConfig::of(cluster, keyring).await?.ok_or(FleetError::NoKey)?;
    Ok(Bus::connect(config.bus).await?)
}

/// The bus is not reached, which is another thing than settings that cannot be right.
fn unreached(error: &FleetError, is_json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    match error {
        FleetError::Bus(_) if is_json => {
            writeln!(out, "{:#}", json!({ "error": error.to_string() }))?;
            Ok(Exit::Unavailable)
        }
        FleetError::Bus(_) => {
            writeln!(crate::console::stderr(), "error: {}", visible(&error.to_string()))?;
            Ok(Exit::Unavailable)
        }
        _ => Err(misuse(error.to_string())),
    }
}

async fn status(bus: &Bus, is_json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let fleet = operator::status(bus).await?;
    if is_json {
        writeln!(out, "{:#}", words::json(&fleet))?;
    } else {
        words::write(&fleet, out)?;
    }
    Ok(if fleet.nodes.is_empty() { Exit::Unavailable } else { Exit::Success })
}

#[expect(
    clippy::disallowed_methods,
    reason = "somebody waits at a terminal; nothing is decided by it"
)]
async fn drain(bus: &Bus, args: &FleetDrainArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let node = match &args.node {
        Some(name) => named(name)?,
        None => bus.node().clone(),
    };
    let leaving = told(operator::order(bus, &node, Order::Drain).await)?;
    let end = Instant::now() + args.wait;
    let mut is_drained = false;
    while Instant::now() < end && !is_drained {
        let fleet = operator::status(bus).await?;
        // One that is not there any more has nothing left either.
        is_drained = fleet
            .nodes
            .get(node.as_str())
            .is_none_or(|node| node.readiness == NodeReadiness::Drained);
        if !is_drained {
            sleep(LOOK).await;
        }
    }
    let name = visible(node.as_str());
    if args.json {
        let told = json!({ "node": node.as_str(), "instances": leaving, "isDrained": is_drained });
        writeln!(out, "{told:#}")?;
    } else if is_drained {
        writeln!(out, "{name} has drained; {} left it. Stop it now.", words::servers(leaving))?;
    } else if args.wait.is_zero() {
        writeln!(out, "{name} drains; {} leave it.", words::servers(leaving))?;
    } else {
        writeln!(
            out,
            "{name} drains, and is not done after {} s: calls are in flight. `metamcp fleet status` shows how far it is.",
            args.wait.as_secs()
        )?;
    }
    Ok(if is_drained || args.wait.is_zero() { Exit::Success } else { Exit::Failure })
}

async fn move_server(bus: &Bus, args: &FleetMoveArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let to = args.to.as_deref().map(named).transpose()?;
    let fleet = operator::status(bus).await?;
    if let Some(to) = &to
        && !fleet.nodes.contains_key(to.as_str())
    {
        return Err(misuse(words::no_node(to.as_str(), &fleet)));
    }
    let owners: Vec<String> = fleet.owners(&args.server).into_keys().map(str::to_owned).collect();
    if owners.is_empty() {
        return Err(misuse(unowned(&args.server, &fleet)));
    }
    let mut moved = Vec::new();
    for owner in &owners {
        let node = named(owner)?;
        if to.as_ref() == Some(&node) {
            continue;
        }
        let order = Order::Move { server: args.server.clone(), to: to.clone() };
        let instances = told(operator::order(bus, &node, order).await)?;
        moved.push((owner.clone(), instances));
    }
    if args.json {
        let from: Vec<_> = moved
            .iter()
            .map(|(node, instances)| json!({ "node": node, "instances": instances }))
            .collect();
        let told = json!({ "server": args.server, "to": args.to, "from": from });
        writeln!(out, "{told:#}")?;
    } else {
        let server = visible(&args.server);
        let place = args.to.as_deref().map_or_else(
            || "where it fits best".to_owned(),
            |node| format!("on {}", visible(node)),
        );
        if moved.is_empty() {
            writeln!(out, "{server} is {place} already.")?;
        }
        for (node, _) in &moved {
            let node = visible(node);
            writeln!(
                out,
                "{server} leaves {node} once its calls are finished; the next call starts it {place}."
            )?;
        }
    }
    Ok(Exit::Success)
}

fn named(text: &str) -> anyhow::Result<NodeName> {
    NodeName::parse(text).with_context(|| {
        format!("{:?} is no name of a node: 1 to 64 letters, digits, - and _", visible(text))
    })
}

/// A node that is not there is a mistake of who typed its name.
fn told(answer: Result<usize, OperatorError>) -> anyhow::Result<usize> {
    answer.map_err(|error| match error {
        OperatorError::NoNode { .. } => misuse(error.to_string()),
        OperatorError::Bus(BusError::NobodyThere) => misuse(error.to_string()),
        error => error.into(),
    })
}

fn unowned(server: &str, fleet: &FleetReport) -> String {
    let name = visible(server);
    let near = nearest(server, fleet.servers(), 1);
    let hint = near
        .first()
        .map_or_else(String::new, |near| format!("; did you mean `{}`?", visible(near)));
    format!("no node owns a process of {name}; the next call starts it where it fits best{hint}")
}
