//! How a fleet is, as its nodes say it.
//! Owns: the form that `metamcp fleet status --json` prints, what is believed of whom.      Never: asks.
//! In: what each node says of itself.  Out: the fleet.
//! Tests: below.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// Instances that one node tells of; it says how many there are.
const MOST_INSTANCES: usize = 1000;

/// Whether a node should be given new clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum NodeReadiness {
    #[default]
    Ready,
    /// The bus is gone.
    NoBus,
    /// The bus lost the leases; nothing is claimed yet.
    BucketTooNew,
    Draining,
    /// It drained, and nothing is left: it may be stopped.
    Drained,
    /// A later process has its name.
    Superseded,
}

/// A server instance at its owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceReport {
    pub server: String,
    /// Who shares it: `fleet`, `project`, `session` or a principal.
    pub scope: String,
    pub epoch: String,
    pub pid: Option<u32>,
}

/// Another node, as one sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PeerReport {
    pub name: String,
    pub is_alive: bool,
    pub heard_ms_ago: u64,
    pub protocol: u32,
}

/// What a node says of itself. What is not known is left out, so that either side may be newer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct NodeReport {
    pub version: String,
    pub protocol: u32,
    pub labels: BTreeMap<String, String>,
    pub readiness: NodeReadiness,
    pub up_ms: u64,
    /// Instances it takes, and has.
    pub capacity: u32,
    pub owned: usize,
    pub instances: Vec<InstanceReport>,
    /// Calls of its own clients that others run or that wait, and those of other nodes that run here.
    pub own_calls: usize,
    pub foreign_calls: usize,
    pub peers: Vec<PeerReport>,
    /// Messages that were refused, by reason.
    pub refused: BTreeMap<String, u64>,
}

/// All that answered, by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FleetReport {
    pub nodes: BTreeMap<String, NodeReport>,
}

impl FleetReport {
    /// A node's answer. The name is that of the message's sender, which the bus vouches for.
    pub(super) fn heard(&mut self, name: &str, mut status: NodeReport) {
        status.owned = status.owned.max(status.instances.len());
        status.instances.truncate(MOST_INSTANCES);
        self.nodes.insert(name.to_owned(), status);
    }

    /// Nodes that others have heard of lately and that say nothing.
    pub fn silent(&self) -> BTreeSet<&str> {
        let peers = self.nodes.values().flat_map(|node| &node.peers);
        let alive = peers.filter(|peer| peer.is_alive).map(|peer| peer.name.as_str());
        alive.filter(|name| !self.nodes.contains_key(*name)).collect()
    }

    /// Who owns instances of a server, and how many.
    pub fn owners(&self, server: &str) -> BTreeMap<&str, usize> {
        let count =
            |node: &NodeReport| node.instances.iter().filter(|one| one.server == server).count();
        let owners = self.nodes.iter().map(|(name, node)| (name.as_str(), count(node)));
        owners.filter(|(_, count)| *count > 0).collect()
    }

    /// All servers that have an instance.
    pub fn servers(&self) -> BTreeSet<&str> {
        let instances = self.nodes.values().flat_map(|node| &node.instances);
        instances.map(|instance| instance.server.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(instances: &[&str], peers: &[(&str, bool)]) -> NodeReport {
        let instance = |server: &&str| InstanceReport {
            server: (*server).to_owned(),
            ..InstanceReport::default()
        };
        let peer = |(name, is_alive): &(&str, bool)| PeerReport {
            name: (*name).to_owned(),
            is_alive: *is_alive,
            ..PeerReport::default()
        };
        NodeReport {
            instances: instances.iter().map(instance).collect(),
            peers: peers.iter().map(peer).collect(),
            ..NodeReport::default()
        }
    }

    #[test]
    fn who_was_heard_of_lately_and_says_nothing_is_silent() {
        let mut fleet = FleetReport::default();
        fleet.heard("a", node(&[], &[("b", true), ("c", true), ("d", false)]));
        assert_eq!(fleet.silent(), BTreeSet::from(["b", "c"]));
        fleet.heard("b", node(&[], &[("a", true)]));
        assert_eq!(fleet.silent(), BTreeSet::from(["c"]));
    }

    #[test]
    fn owners_of_a_server_are_found_and_a_node_cannot_fill_our_memory() {
        let mut fleet = FleetReport::default();
        fleet.heard("a", node(&["git", "git", "time"], &[]));
        fleet.heard("b", node(&["git"], &[]));
        assert_eq!(fleet.owners("git"), BTreeMap::from([("a", 2), ("b", 1)]));
        assert_eq!(fleet.servers(), BTreeSet::from(["git", "time"]));
        fleet.heard("c", node(&vec!["x"; 5000], &[]));
        assert_eq!((fleet.nodes["c"].instances.len(), fleet.nodes["c"].owned), (1000, 5000));
    }

    #[test]
    fn what_either_side_does_not_know_is_no_error() {
        let read: NodeReport =
            serde_json::from_str(r#"{"version": "9", "weather": 1, "readiness": "drained"}"#)
                .unwrap();
        assert_eq!((read.version.as_str(), read.readiness), ("9", NodeReadiness::Drained));
    }
}
