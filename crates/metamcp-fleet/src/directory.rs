//! The nodes of the fleet as one of them sees it.
//! Owns: who was heard of, when by our own clock, and what it said of itself.      Never: believes what is out of bounds.
//! In: heartbeats, the time.  Out: who lives, what each offers.
//! Tests: below.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metamcp_types::moment::Moment;
use serde::{Deserialize, Serialize};

use crate::identity::{NodeName, NodeRef};
use crate::timing::SILENCE;

/// The protocol between nodes that this build speaks; nodes with another one are seen and not spoken to.
pub const PROTOCOL: u32 = 1;
/// Nodes that are known at a time.
pub const MAX_NODES: usize = 1024;
const MAX_LABELS: usize = 32;
const MAX_LABEL: usize = 128;
/// A silent node is remembered for so long: for the page, and because copies of its messages may still be under way.
const REMEMBERED: Duration = Duration::from_mins(10);
/// Whoever looks at the clock so late was itself paused, which says nothing about others.
const PAUSED: Duration = Duration::from_millis(500);

pub type Labels = BTreeMap<Box<str>, Box<str>>;

/// What a node says of itself and does not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub protocol: u32,
    pub labels: Labels,
    /// How many instances it takes.
    pub capacity: u32,
}

/// What a node says again and again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    #[serde(with = "crate::identity::shared")]
    pub about: Arc<About>,
    /// Counts up, so that a delayed or repeated one is not taken for a sign of life.
    pub beat: u64,
    /// Instances it owns.
    pub instances: u32,
    /// Calls it runs.
    pub calls: u32,
    pub is_draining: bool,
}

/// Why a heartbeat was not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ignored {
    /// It is not newer than what is known.
    Stale,
    /// A later process took the name.
    Superseded,
    TooManyLabels,
    LabelTooLong,
    /// There are too many nodes.
    TooManyNodes,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ignored::Stale => "it is older than the last one",
            Ignored::Superseded => "a later process took the name of this node",
            Ignored::TooManyLabels => "it has more than 32 labels",
            Ignored::LabelTooLong => "a label is longer than 128 bytes",
            Ignored::TooManyNodes => "1024 nodes are known already",
        })
    }
}

/// A node that was heard of.
#[derive(Debug, Clone)]
pub struct Peer {
    pub node: NodeRef,
    pub last: Heartbeat,
    pub heard: Moment,
}

#[derive(Debug, Default)]
pub struct Directory {
    peers: BTreeMap<NodeName, Peer>,
    looked: Moment,
}

impl Directory {
    /// A heartbeat came. True if the node was not known in this incarnation.
    ///
    /// # Errors
    /// Why it is ignored.
    pub fn heard(
        &mut self,
        node: &NodeRef,
        heartbeat: Heartbeat,
        now: Moment,
    ) -> Result<bool, Ignored> {
        let labels = &heartbeat.about.labels;
        if labels.len() > MAX_LABELS {
            return Err(Ignored::TooManyLabels);
        }
        if labels.iter().any(|(key, value)| key.len() + value.len() > MAX_LABEL) {
            return Err(Ignored::LabelTooLong);
        }
        let is_full = self.peers.len() >= MAX_NODES;
        match self.peers.get_mut(&node.name) {
            Some(peer) if peer.node.incarnation > node.incarnation => Err(Ignored::Superseded),
            Some(peer) => {
                let is_new = peer.node.incarnation < node.incarnation;
                if !is_new && peer.last.beat >= heartbeat.beat {
                    return Err(Ignored::Stale);
                }
                *peer = Peer { node: node.clone(), last: heartbeat, heard: now };
                Ok(is_new)
            }
            None if is_full => Err(Ignored::TooManyNodes),
            None => {
                let peer = Peer { node: node.clone(), last: heartbeat, heard: now };
                self.peers.insert(node.name.clone(), peer);
                Ok(true)
            }
        }
    }

    /// A look at the clock. Returns the nodes that are forgotten now.
    pub fn tick(&mut self, now: Moment) -> Vec<NodeName> {
        let pause = now.since(self.looked);
        if pause > PAUSED && self.looked != Moment::START {
            for peer in self.peers.values_mut() {
                peer.heard = peer.heard + pause;
            }
        }
        self.looked = now;
        let is_over = |peer: &&Peer| now.since(peer.heard) > REMEMBERED;
        let gone: Vec<NodeName> =
            self.peers.values().filter(is_over).map(|peer| peer.node.name.clone()).collect();
        for name in &gone {
            self.peers.remove(name);
        }
        gone
    }

    /// Whether this very process was heard of recently.
    pub fn is_alive(&self, node: &NodeRef, now: Moment) -> bool {
        self.peers.get(&node.name).is_some_and(|peer| peer.node == *node && lives(peer, now))
    }

    /// Since when nothing was heard of it; `NEVER` if another process took its name.
    pub fn peer(&self, name: &NodeName) -> Option<&Peer> {
        self.peers.get(name)
    }

    /// All that live, by name.
    pub fn alive(&self, now: Moment) -> impl Iterator<Item = &Peer> {
        self.peers.values().filter(move |peer| lives(peer, now))
    }

    /// All that are remembered, by name.
    pub fn known(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values()
    }
}

fn lives(peer: &Peer, now: Moment) -> bool {
    now.since(peer.heard) < SILENCE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Stamp;

    fn node(name: &str, revision: u64) -> NodeRef {
        let name = NodeName::parse(name).unwrap();
        NodeRef { name, incarnation: Stamp { bucket: 1, revision } }
    }

    fn beat(beat: u64, labels: Labels) -> Heartbeat {
        let about = Arc::new(About { protocol: PROTOCOL, labels, capacity: 8 });
        let (instances, calls) = (0, 0);
        Heartbeat { about, beat, instances, calls, is_draining: false }
    }

    #[test]
    fn a_node_lives_while_it_is_heard_of() {
        let mut directory = Directory::default();
        let (a, now) = (node("a", 1), Moment::millis(1000));
        assert_eq!(directory.heard(&a, beat(1, Labels::new()), now), Ok(true));
        assert!(directory.is_alive(&a, now + SILENCE / 2));
        assert!(!directory.is_alive(&a, now + SILENCE));
        let later = now + SILENCE;
        assert_eq!(directory.heard(&a, beat(1, Labels::new()), later), Err(Ignored::Stale));
        assert!(!directory.is_alive(&a, later), "a repeated heartbeat is no sign of life");
        assert_eq!(directory.heard(&a, beat(2, Labels::new()), later), Ok(false));
        assert!(directory.is_alive(&a, later));
    }

    #[test]
    fn the_latest_incarnation_counts() {
        let (mut directory, now) = (Directory::default(), Moment::millis(1000));
        directory.heard(&node("a", 2), beat(9, Labels::new()), now).unwrap();
        let old = directory.heard(&node("a", 1), beat(99, Labels::new()), now);
        assert_eq!(old, Err(Ignored::Superseded));
        assert_eq!(directory.heard(&node("a", 3), beat(1, Labels::new()), now), Ok(true));
        assert!(!directory.is_alive(&node("a", 2), now));
    }

    #[test]
    fn our_own_pause_kills_nobody() {
        let (mut directory, a) = (Directory::default(), node("a", 1));
        let mut now = Moment::millis(1000);
        directory.tick(now);
        directory.heard(&a, beat(1, Labels::new()), now).unwrap();
        now = now + Duration::from_mins(1);
        directory.tick(now);
        assert!(directory.is_alive(&a, now));
        for _ in 0..20 {
            now = now + Duration::from_millis(100);
            directory.tick(now);
        }
        assert!(!directory.is_alive(&a, now));
    }

    #[test]
    fn what_is_out_of_bounds_is_ignored_with_a_reason() {
        let (mut directory, now) = (Directory::default(), Moment::START);
        let many = (0..40).map(|n| (n.to_string().into(), "x".into())).collect();
        let found = directory.heard(&node("a", 1), beat(1, many), now);
        assert_eq!(found, Err(Ignored::TooManyLabels));
        let long = [("k".into(), "x".repeat(200).into())].into();
        let found = directory.heard(&node("a", 1), beat(1, long), now);
        assert_eq!(found, Err(Ignored::LabelTooLong));
        for n in 0..MAX_NODES {
            directory.heard(&node(&format!("n{n}"), 1), beat(1, Labels::new()), now).unwrap();
        }
        let found = directory.heard(&node("a", 1), beat(1, Labels::new()), now);
        assert_eq!(found, Err(Ignored::TooManyNodes));
        assert_eq!(directory.tick(now + REMEMBERED + SILENCE).len(), MAX_NODES);
    }
}
