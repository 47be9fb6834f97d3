//! What an operator sees of this node, and can have it do.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Router;
use crate::fleet::bus::Refused;
use crate::fleet::operator::{
    InstanceReport, NodeReadiness, NodeReport, Operated, PeerReport, Reporting,
};
use crate::fleet::{Fleet, NodeName, NodeStatus, Readiness, Target};

/// Of the router, which may end first.
struct Operating {
    router: Weak<Router>,
    /// How long calls in flight have when a node drains or a server moves.
    drain: Duration,
}

/// What is counted of this gateway in its fleet.
#[derive(Debug, Clone, Copy)]
pub struct FleetCounts {
    /// Servers of the fleet that it owns.
    pub servers: usize,
    /// Calls of other gateways that run here.
    pub calls_for_others: usize,
    /// Its own that run elsewhere or wait for an owner.
    pub calls_elsewhere: usize,
    pub is_ready: bool,
}

impl Router {
    /// This node, for operators.
    pub fn operated(self: &Arc<Self>, drain: Duration) -> Arc<dyn Operated> {
        Arc::new(Operating { router: Arc::downgrade(self), drain })
    }

    /// What is counted of its part in the fleet.
    pub fn fleet_counts(&self) -> Option<FleetCounts> {
        let fleet = self.fleet()?;
        let readiness = *fleet.readiness().borrow();
        Some(FleetCounts {
            servers: fleet.owned(),
            calls_for_others: self.fleet.foreign.lock().len(),
            calls_elsewhere: self.fleet.waiting.lock().len(),
            is_ready: matches!(readiness, Readiness::Ready | Readiness::NoBus { .. }),
        })
    }

    async fn report(&self, fleet: &Fleet) -> NodeReport {
        let mut report = NodeReport {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            up_ms: u64::try_from(self.clock.now().elapsed().as_millis()).unwrap_or(u64::MAX),
            foreign_calls: self.fleet.foreign.lock().len(),
            refused: refused(fleet),
            ..NodeReport::default()
        };
        let Some(known) = fleet.status().await else { return report };
        report.readiness = readiness(known.readiness, fleet.is_idle());
        report.own_calls = known.waiting;
        let mine = known.owners.iter().filter(|(_, owner, _)| *owner == known.me);
        report.instances = mine
            .map(|(instance, _, epoch)| {
                let placed = self.placed_by(|placed| placed.instance == *instance);
                InstanceReport {
                    server: placed.as_ref().map_or_else(
                        || format!("{:032x}", instance.0),
                        |placed| self.name_of(placed.server).to_string(),
                    ),
                    scope: "fleet".to_owned(),
                    epoch: format!("{epoch:?}"),
                    pid: placed.and_then(|placed| self.pid_of(placed.server)),
                }
            })
            .collect();
        report.owned = report.instances.len();
        for node in known.nodes {
            if node.name == known.me {
                report.protocol = node.protocol;
                report.capacity = node.capacity;
                let labels = node.labels.into_iter();
                report.labels = labels.map(|(k, v)| (k.into(), v.into())).collect();
            } else {
                report.peers.push(peer(&node));
            }
        }
        report
    }
}

impl Operated for Operating {
    fn status(&self) -> Reporting<'_> {
        Box::pin(async {
            let Some(router) = self.router.upgrade() else { return NodeReport::default() };
            let Some(fleet) = router.fleet().cloned() else { return NodeReport::default() };
            router.report(&fleet).await
        })
    }

    fn drain(&self) -> usize {
        let Some(router) = self.router.upgrade() else { return 0 };
        let Some(fleet) = router.fleet() else { return 0 };
        fleet.drain(self.drain);
        fleet.owned()
    }

    fn move_server(&self, server: &str, to: Option<&NodeName>) -> Result<usize, String> {
        let none = || format!("it owns no process of {server:?}");
        let router = self.router.upgrade().ok_or_else(none)?;
        let fleet = router.fleet().ok_or_else(none)?;
        let all: Vec<_> = router.fleet.placed.read().values().cloned().collect();
        let mut moved = 0;
        for placed in all {
            let is_it = &*router.name_of(placed.server) == server;
            if !is_it || fleet.grant(placed.instance).is_none() {
                continue;
            }
            let target = to.map(|node| Target {
                node: node.clone(),
                requirements: Arc::clone(&placed.requirements),
            });
            fleet.leave(placed.instance, target, self.drain);
            moved += 1;
        }
        if moved == 0 { Err(none()) } else { Ok(moved) }
    }
}

fn readiness(readiness: Readiness, is_idle: bool) -> NodeReadiness {
    match readiness {
        Readiness::Ready => NodeReadiness::Ready,
        Readiness::NoBus { .. } => NodeReadiness::NoBus,
        Readiness::BucketTooNew => NodeReadiness::BucketTooNew,
        Readiness::Draining if is_idle => NodeReadiness::Drained,
        Readiness::Draining => NodeReadiness::Draining,
        Readiness::Superseded => NodeReadiness::Superseded,
    }
}

fn peer(node: &NodeStatus) -> PeerReport {
    PeerReport {
        name: node.name.as_str().to_owned(),
        is_alive: node.is_alive,
        heard_ms_ago: u64::try_from(node.silent.as_millis()).unwrap_or(u64::MAX),
        protocol: node.protocol,
    }
}

fn refused(fleet: &Fleet) -> BTreeMap<String, u64> {
    let word = |why: Refused| match why {
        Refused::Forged => "forged",
        Refused::OtherKey => "otherKey",
        Refused::Version => "version",
        Refused::Name => "name",
        Refused::Content => "content",
    };
    fleet.bus.refused().into_iter().map(|(why, count)| (word(why).to_owned(), count)).collect()
}
