//! Which node is to own an instance.
//! Owns: the rule.      Never: asks a node, or decides for it: whoever is chosen claims by itself, or declines.
//! In: what the instance requires, the directory.  Out: a node, or why there is none.
//! Tests: below.
//!
//! The same directory gives the same choice, so that nodes that need an instance at the same time ask the same one.

use std::fmt;

use metamcp_types::moment::Moment;
use serde::{Deserialize, Serialize};

use crate::directory::{About, Directory, Heartbeat, Labels, PROTOCOL};
use crate::identity::{InstanceId, NodeName};

/// Where an instance may run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirements {
    /// Which definition it is an instance of, by a digest: a node that has none declines.
    pub definition: u128,
    /// Labels a node must have.
    pub labels: Labels,
    /// Files or devices of one machine: there or nowhere.
    pub pinned: Option<NodeName>,
    /// Chosen if it can: an operator moves the instance there.
    pub preferred: Option<NodeName>,
}

/// Why no node can own an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoNode {
    /// It is pinned to a node that is not there.
    PinnedAway,
    /// No node has the labels.
    Labels,
    /// Those that have them are draining, full, of another version, without a bus, or declined.
    Busy,
}

impl fmt::Display for NoNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoNode::PinnedAway => "the node it is pinned to is not there",
            NoNode::Labels => "no node has the labels it requires",
            NoNode::Busy => "every node that could run it is draining, full or of another version",
        })
    }
}

/// How we are ourselves.
#[derive(Debug, Clone, Copy)]
pub struct Here<'a> {
    pub name: &'a NodeName,
    pub now: &'a Heartbeat,
    /// Whether we can claim at all.
    pub may_claim: bool,
}

/// The node that is to own an instance, of those not tried before.
///
/// # Errors
/// Why there is none.
pub fn choose(
    instance: InstanceId,
    requirements: &Requirements,
    here: Here<'_>,
    directory: &Directory,
    tried: &[NodeName],
    now: Moment,
) -> Result<NodeName, NoNode> {
    let mut best: Option<(u64, u64, &NodeName)> = None;
    let mut reason =
        if requirements.pinned.is_some() { NoNode::PinnedAway } else { NoNode::Labels };
    let others = directory.alive(now).map(|peer| (&peer.node.name, &peer.last));
    let ourselves = std::iter::once((here.name, here.now));
    for (name, state) in others.filter(|(name, _)| *name != here.name).chain(ourselves) {
        if requirements.pinned.as_ref().is_some_and(|pinned| pinned != name)
            || !has(&state.about.labels, &requirements.labels)
        {
            continue;
        }
        reason = NoNode::Busy;
        if state.about.protocol != PROTOCOL
            || state.is_draining
            || state.instances >= state.about.capacity
            || tried.contains(name)
            || (name == here.name && !here.may_claim)
        {
            continue;
        }
        let cost = if requirements.preferred.as_ref() == Some(name) {
            0
        } else {
            1 + load(state) - if name == here.name { HERE } else { 0 }
        };
        let candidate = (cost, spread(instance, name), name);
        if best.is_none_or(|best| candidate < best) {
            best = Some(candidate);
        }
    }
    best.map(|(_, _, name)| name.clone()).ok_or(reason)
}

/// Whether a node has all the labels.
pub fn has(labels: &Labels, required: &Labels) -> bool {
    required.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// What an instance that runs where it is asked for saves, in hundredths of a node's capacity: calls of that node need no
/// bus, but one busy node is not to own everything.
const HERE: u64 = 25;

/// In hundredths of its capacity, never less than [`HERE`] in all.
fn load(state: &Heartbeat) -> u64 {
    let About { capacity, .. } = *state.about;
    HERE + u64::from(state.instances) * 100 / u64::from(capacity.max(1))
}

/// Between nodes with the same load: another order for each instance, so that they do not all go to the first name.
fn spread(instance: InstanceId, name: &NodeName) -> u64 {
    let mut hash = (instance.0 as u64) ^ ((instance.0 >> 64) as u64) ^ 0xcbf2_9ce4_8422_2325;
    for byte in name.as_str().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    // A finalizer: without it the last letter of a name decides too much.
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::identity::{NodeRef, Stamp};

    fn name(text: &str) -> NodeName {
        NodeName::parse(text).unwrap()
    }

    fn labels(gpu: bool) -> Labels {
        gpu.then(|| ("gpu".into(), "true".into())).into_iter().collect()
    }

    fn state(instances: u32, gpu: bool, is_draining: bool) -> Heartbeat {
        let about = Arc::new(About { protocol: PROTOCOL, labels: labels(gpu), capacity: 10 });
        Heartbeat { about, beat: 1, instances, calls: 0, is_draining }
    }

    fn fleet(of: &[(&str, Heartbeat)]) -> Directory {
        let mut directory = Directory::default();
        for (node, state) in of {
            let node = NodeRef { name: name(node), incarnation: Stamp::default() };
            directory.heard(&node, state.clone(), Moment::START).unwrap();
        }
        directory
    }

    fn chosen(
        requirements: &Requirements,
        own: &Heartbeat,
        others: &[(&str, Heartbeat)],
        tried: &[&str],
    ) -> Result<String, NoNode> {
        let me = name("me");
        let here = Here { name: &me, now: own, may_claim: true };
        let tried: Vec<_> = tried.iter().map(|node| name(node)).collect();
        choose(InstanceId(7), requirements, here, &fleet(others), &tried, Moment::START)
            .map(|node| node.as_str().to_owned())
    }

    #[test]
    fn the_table() {
        let any = Requirements::default();
        let gpu = Requirements { labels: labels(true), ..any.clone() };
        let pinned = Requirements { pinned: Some(name("b")), ..any.clone() };
        let moved = Requirements { preferred: Some(name("b")), ..any.clone() };
        let idle = || state(0, false, false);
        for (what, requirements, own, others, tried, expected) in [
            ("here if all are alike", &any, idle(), vec![("b", idle())], vec![], Ok("me")),
            ("the idle one", &any, state(9, false, false), vec![("b", idle())], vec![], Ok("b")),
            (
                "nobody full",
                &any,
                state(10, false, false),
                vec![("b", state(9, false, false))],
                vec![],
                Ok("b"),
            ),
            ("by label", &gpu, idle(), vec![("b", state(8, true, false))], vec![], Ok("b")),
            ("no such label", &gpu, idle(), vec![("b", idle())], vec![], Err(NoNode::Labels)),
            ("pinned", &pinned, idle(), vec![("b", state(9, false, false))], vec![], Ok("b")),
            (
                "pinned to nobody",
                &pinned,
                idle(),
                vec![("c", idle())],
                vec![],
                Err(NoNode::PinnedAway),
            ),
            ("moved", &moved, idle(), vec![("b", state(9, false, false))], vec![], Ok("b")),
            ("not where it declined", &moved, idle(), vec![("b", idle())], vec!["b"], Ok("me")),
            (
                "draining",
                &gpu,
                idle(),
                vec![("b", state(0, true, true))],
                vec![],
                Err(NoNode::Busy),
            ),
        ] {
            let found = chosen(requirements, &own, &others, &tried);
            assert_eq!(found, expected.map(str::to_owned), "{what}");
        }
    }

    #[test]
    fn instances_spread_over_equal_nodes() {
        let nodes: Vec<_> = ["a", "b", "c", "d"].map(|node| (node, state(0, false, false))).into();
        let directory = fleet(&nodes);
        let (me, own) = (name("me"), state(10, false, false));
        let here = Here { name: &me, now: &own, may_claim: true };
        let mut counts = std::collections::BTreeMap::new();
        for id in 0..400_u128 {
            let id = InstanceId(id.wrapping_mul(0x9E37_79B9_7F4A_7C15_D1B5_4A32_D192_ED03));
            let found = choose(id, &Requirements::default(), here, &directory, &[], Moment::START);
            *counts.entry(found.unwrap()).or_insert(0) += 1;
        }
        assert!(counts.len() == 4 && counts.values().all(|count| *count > 50), "{counts:?}");
    }

    #[test]
    fn another_version_is_not_asked() {
        let mut other = state(0, false, false);
        other.about = Arc::new(About { protocol: 9, labels: Labels::new(), capacity: 10 });
        let found =
            chosen(&Requirements::default(), &state(10, false, false), &[("b", other)], &[]);
        assert_eq!(found, Err(NoNode::Busy));
    }
}
