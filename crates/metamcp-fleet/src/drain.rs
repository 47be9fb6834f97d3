//! What leaves this node on purpose: all of it before the node stops, or one instance that an operator moves.
//! Owns: which instances take nothing new, until when their calls have time.      Never: ends a call or a lease itself.
//! In: orders, how many calls are in flight.  Out: whether an instance may be closed now.
//! Tests: below; `tests/sim.rs` upgrades whole fleets without a lost call.

use std::collections::BTreeMap;
use std::sync::Arc;

use metamcp_types::moment::Moment;

use crate::identity::{InstanceId, NodeName};
use crate::placement::Requirements;

#[derive(Debug, Clone)]
struct Move {
    to: Option<Target>,
    until: Moment,
}

/// Where an instance is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub node: NodeName,
    /// What the instance requires: an operator may have chosen a node that lacks it, and that one then declines.
    pub requirements: Arc<Requirements>,
}

#[derive(Debug, Default)]
pub struct Drains {
    /// The node drains, and its calls have until then.
    node: Option<Moment>,
    moves: BTreeMap<InstanceId, Move>,
}

impl Drains {
    /// The node takes nothing new. A second order may only shorten the time.
    pub fn node(&mut self, until: Moment) {
        self.node = Some(self.node.map_or(until, |before| before.min(until)));
    }

    /// The instance leaves, to a node of choice if there is one.
    pub fn leave(&mut self, instance: InstanceId, to: Option<Target>, until: Moment) {
        self.moves.insert(instance, Move { to, until });
    }

    /// Whether everything stays.
    pub fn is_empty(&self) -> bool {
        self.node.is_none() && self.moves.is_empty()
    }

    pub fn is_node(&self) -> bool {
        self.node.is_some()
    }

    /// Whether the instance takes nothing new.
    pub fn is_moving(&self, instance: InstanceId) -> bool {
        self.node.is_some() || self.moves.contains_key(&instance)
    }

    /// Whether the instance's process may end now.
    pub fn is_due(&self, instance: InstanceId, in_flight: usize, now: Moment) -> bool {
        let of_move = self.moves.get(&instance).map(|this| this.until);
        match (self.node, of_move) {
            (None, None) => false,
            (node, of_move) => {
                let until = node.into_iter().chain(of_move).min().unwrap_or(Moment::NEVER);
                in_flight == 0 || now >= until
            }
        }
    }

    /// The instance has left. Returns where it is to go.
    pub fn left(&mut self, instance: InstanceId) -> Option<Target> {
        self.moves.remove(&instance).and_then(|this| this.to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_closes_when_its_calls_have_ended_or_their_time_has() {
        let (mut drains, a, b) = (Drains::default(), InstanceId(1), InstanceId(2));
        assert!(!drains.is_due(a, 0, Moment::NEVER));
        let node = NodeName::parse("x").unwrap();
        let to = Some(Target { node, requirements: Arc::default() });
        drains.leave(a, to.clone(), Moment::millis(100));
        assert!(drains.is_moving(a) && !drains.is_moving(b));
        assert!(!drains.is_due(a, 1, Moment::millis(99)));
        assert!(drains.is_due(a, 0, Moment::START) && drains.is_due(a, 1, Moment::millis(100)));
        drains.node(Moment::millis(50));
        drains.node(Moment::millis(80));
        assert!(drains.is_moving(b) && drains.is_due(b, 3, Moment::millis(50)));
        assert_eq!(drains.left(a), to);
        assert_eq!(drains.left(a), None);
    }
}
