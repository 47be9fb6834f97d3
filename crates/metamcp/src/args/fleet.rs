//! The arguments of `metamcp fleet`.

use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};

pub(super) const FLEET_HELP: &str = "\
Many gateways that are one to their clients, on NATS (docs/fleet.md). These commands ask over the bus, so they run on any \
machine that reaches it and has the cluster's key; --cluster, --cluster-key and the credentials are settings, in a \
gateway's container those that the gateway has.

Examples:
  metamcp fleet status
  metamcp fleet drain gateway-2          before it is stopped by hand
  metamcp fleet move browser --to gateway-1
  kubectl exec metamcp-0 -- metamcp fleet status";

const STATUS_HELP: &str = "\
Each node says for itself how it is; those that others have heard of lately and that say nothing are listed as silent.

States: ready; no bus (it goes on with what it owns until its leases run out); waiting (the bus lost the leases, nothing is \
claimed before all old ones have run out); draining, and drained once nothing is left; superseded (a later process has its \
name).

Exits with 4 if the bus is not reached or no node answers.

Examples:
  metamcp fleet status
  metamcp fleet status --json | jq '.nodes[] | select(.readiness != \"ready\")'";

const DRAIN_HELP: &str = "\
The node takes nothing new, finishes the calls that run there, ends its processes, and they start on others by the next \
call. Its /readyz says 503, so that balancers pass it over. It goes on serving whoever is connected until it is stopped; to \
have it back, start it anew. A node that is stopped with SIGTERM drains by itself.

Exits with 0 once it has drained, with 1 if that takes longer than --wait, with 2 if there is no such node, with 4 if the \
bus is not reached.

Examples:
  metamcp fleet drain gateway-2
  metamcp fleet drain gateway-2 --wait 0s     only begin it
  metamcp fleet drain                         this one, as a preStop hook does";

const MOVE_HELP: &str = "\
The processes of the server finish their calls and end; the next call starts the server on the node that is named, or where \
it fits best. A node that lacks a label the server requires, or the server itself, is passed over.

Exits with 2 if no node owns a process of such a server, or there is no such node, with 4 if the bus is not reached.

Examples:
  metamcp fleet move browser
  metamcp fleet move browser --to gateway-1 --json";

/// The subcommands of `metamcp fleet`.
#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Show the nodes, and which of them owns which server
    #[command(after_help = STATUS_HELP)]
    Status(FleetStatusArgs),
    /// Have a node hand over what it owns, before it is stopped
    #[command(after_help = DRAIN_HELP)]
    Drain(FleetDrainArgs),
    /// Have a server start elsewhere
    #[command(after_help = MOVE_HELP)]
    Move(FleetMoveArgs),
}

impl FleetCommand {
    pub(crate) fn wants_json(&self) -> bool {
        match self {
            FleetCommand::Status(args) => args.json,
            FleetCommand::Drain(args) => args.json,
            FleetCommand::Move(args) => args.json,
        }
    }
}

/// Arguments of `metamcp fleet status`.
#[derive(Debug, ClapArgs)]
pub(crate) struct FleetStatusArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp fleet drain`.
#[derive(Debug, ClapArgs)]
pub(crate) struct FleetDrainArgs {
    /// Which node; without a name the one that the settings name, which is that of this machine
    #[arg(value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// How long to wait until it has drained, such as 30s or 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = super::observe::length)]
    pub(crate) wait: Duration,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `metamcp fleet move`.
#[derive(Debug, ClapArgs)]
pub(crate) struct FleetMoveArgs {
    /// Which server
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    /// The node where it is to start
    #[arg(long, value_name = "NODE")]
    pub(crate) to: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
