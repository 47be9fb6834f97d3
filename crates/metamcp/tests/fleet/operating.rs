//! What an operator asks of a fleet, against a real nats-server and nodes that only answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metamcp_engine::fleet::bus::NodeName;
use metamcp_engine::fleet::operator::{
    self, InstanceReport, NodeReadiness, NodeReport, Operated, OperatorError, Order, PeerReport,
    Reporting,
};
use metamcp_testkit::nats::Nats;

use crate::messages::{bus, run};

/// A node that owns one instance, knows the others, and does what it is told.
struct Stub {
    server: &'static str,
    peers: [&'static str; 3],
    is_draining: AtomicBool,
}

impl Stub {
    fn new(server: &'static str) -> Arc<Stub> {
        Arc::new(Stub { server, peers: ["a", "b", "stopped"], is_draining: AtomicBool::new(false) })
    }
}

impl Operated for Stub {
    fn status(&self) -> Reporting<'_> {
        let instance =
            InstanceReport { server: self.server.to_owned(), ..InstanceReport::default() };
        let is_draining = self.is_draining.load(Ordering::Relaxed);
        let peer = |name: &&str| PeerReport {
            name: (*name).to_owned(),
            is_alive: true,
            ..PeerReport::default()
        };
        let report = NodeReport {
            readiness: if is_draining { NodeReadiness::Draining } else { NodeReadiness::Ready },
            instances: vec![instance],
            peers: self.peers.iter().map(peer).collect(),
            ..NodeReport::default()
        };
        Box::pin(std::future::ready(report))
    }

    fn drain(&self) -> usize {
        self.is_draining.store(true, Ordering::Relaxed);
        1
    }

    fn move_server(&self, server: &str, to: Option<&NodeName>) -> Result<usize, String> {
        if server == self.server && to.is_some() { Ok(1) } else { Err("not mine".to_owned()) }
    }
}

#[test]
fn an_operator_sees_all_nodes_drains_one_and_moves_a_server() {
    let nats = Nats::alone().unwrap();
    run(async {
        let (a, b, me) =
            (bus(&nats, "a").await, bus(&nats, "b").await, bus(&nats, "operator").await);
        operator::serve(&a, Stub::new("git")).await.unwrap();
        operator::serve(&b, Stub::new("time")).await.unwrap();
        for node in [&a, &b] {
            node.settled().await.unwrap();
        }
        let fleet = operator::status(&me).await.unwrap();
        assert_eq!(fleet.nodes.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(fleet.silent().into_iter().collect::<Vec<_>>(), ["stopped"]);
        assert_eq!(operator::order(&me, b.node(), Order::Drain).await.unwrap(), 1);
        let fleet = operator::status(&me).await.unwrap();
        assert_eq!(fleet.nodes["a"].readiness, NodeReadiness::Ready);
        assert_eq!(fleet.nodes["b"].readiness, NodeReadiness::Draining);
        let go =
            |server: &str| Order::Move { server: server.to_owned(), to: Some(b.node().clone()) };
        assert_eq!(operator::order(&me, a.node(), go("git")).await.unwrap(), 1);
        let refused = operator::order(&me, a.node(), go("time")).await.unwrap_err();
        assert!(matches!(refused, OperatorError::Refused { .. }), "{refused}");
        let nobody = NodeName::parse("nobody").unwrap();
        let told = operator::order(&me, &nobody, Order::Drain).await.unwrap_err().to_string();
        assert_eq!(told, "no node \"nobody\" answers; the fleet has a, b");
    });
}
