//! `metamcp fleet`: the nodes of a fleet, a drain, a move.
//! Owns: its words and exit codes.      Never: decides what a node does; keeps a connection to the bus.
//! In: the settings of the cluster.  Out: what the nodes say, as text or JSON.
//! Tests: below, `tests/fleet/upgrade.rs`.

#[cfg(feature = "fleet")]
mod asked;
#[cfg(feature = "fleet")]
mod words;

use std::io::Write;

use metamcp_engine::config::Loaded;

use crate::args::FleetCommand;
use crate::exit::{Exit, misuse};

pub(crate) fn run(
    loaded: &Loaded,
    command: &FleetCommand,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let cluster = &loaded.config.settings.cluster;
    if cluster.servers.trim().is_empty() {
        return Err(misuse(
            "there is no fleet here: --cluster is not set (METAMCP_CLUSTER, \"cluster\": { \"servers\": … }), so the bus is not \
             known; docs/fleet.md shows a first fleet"
                .to_owned(),
        ));
    }
    #[cfg(feature = "fleet")]
    return asked::run(cluster, command, out);
    #[cfg(not(feature = "fleet"))]
    {
        let _unused = (command, out);
        anyhow::bail!(
            "this build has no fleet; install a package of metamcp, or build with --features fleet"
        )
    }
}
