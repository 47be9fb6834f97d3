//! The task that runs `Node`.
//! Owns: the state machine, the order of its inputs and effects.      Never: waits for the bus or a process.
//! In: inputs, the clock.  Out: orders to the host, the bucket and the bus; what this node may do, in grants.
//! Tests: `metamcp/tests/fleet`.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use metamcp_fleet::directory::{About, MAX_NODES, PROTOCOL};
use metamcp_fleet::identity::{InstanceId, NodeRef};
use metamcp_fleet::lease;
use metamcp_fleet::message::{Declined, Message, Part};
use metamcp_fleet::node::{Effect, Node, Readiness, Run};
use metamcp_fleet::serving::Limits;
use metamcp_fleet::timing::{TICK, Timing};
use metamcp_types::moment::Moment;
use tokio::time::MissedTickBehavior;

use super::grant::Grant;
use super::leases::Leases;
use super::mailbox::Input;
use super::outgoing::Outgoing;
use super::words::Body;
use super::{Fleet, FleetStatus, Host, NodeStatus};
use crate::clock::Clock;

/// How often it is looked for instances that nobody uses.
const LOOK: Duration = Duration::from_secs(5);
/// Without a call and a process for so long, an instance is given up.
const UNUSED: Duration = Duration::from_secs(30);

pub(super) struct Driver {
    fleet: Weak<Fleet>,
    host: Weak<dyn Host>,
    node: Node<Body>,
    clock: Clock,
    leases: Leases,
    outgoing: Outgoing,
    about: About,
    me: NodeRef,
    bucket: u64,
    grants: HashMap<InstanceId, Arc<Grant>>,
    /// What the node itself asks to be told next.
    again: Vec<Input>,
    told: Option<Readiness>,
    looked: Moment,
    /// Nodes of other versions that the log has.
    strangers: BTreeSet<NodeRef>,
}

impl Driver {
    pub(super) fn new(
        fleet: &Arc<Fleet>,
        host: Weak<dyn Host>,
        leases: Leases,
        me: NodeRef,
        about: About,
    ) -> Driver {
        let clock = fleet.clock;
        let timing = Timing { ttl: leases.ttl(), ..Timing::default() };
        Driver {
            node: Node::new(
                me.clone(),
                about.clone(),
                Limits::default(),
                timing,
                clock.with_pauses(),
            ),
            outgoing: Outgoing::spawn(fleet, me.clone()),
            fleet: Arc::downgrade(fleet),
            host,
            clock,
            leases,
            about,
            me,
            bucket: 0,
            grants: HashMap::new(),
            again: Vec::new(),
            told: None,
            looked: Moment::START,
            strangers: BTreeSet::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let Some(fleet) = self.fleet.upgrade() else { return };
            let is_tick = tokio::select! {
                _ = ticks.tick() => true,
                () = fleet.mailbox.arrived() => false,
            };
            let Some(host) = self.host.upgrade() else { return };
            if is_tick {
                self.node.tick(self.now());
                self.release_unused(&*host);
                self.carry_out(&fleet, &*host);
            }
            for input in fleet.mailbox.take() {
                self.hear(input, &fleet, &*host);
                self.carry_out(&fleet, &*host);
                while let Some(input) = self.again.pop() {
                    self.hear(input, &fleet, &*host);
                    self.carry_out(&fleet, &*host);
                }
            }
            self.update_grants(&fleet);
            self.tell(&fleet);
        }
    }

    fn now(&self) -> Moment {
        self.clock.with_pauses()
    }

    fn hear(&mut self, input: Input, fleet: &Arc<Fleet>, host: &dyn Host) {
        let now = self.now();
        let node = &mut self.node;
        match input {
            Input::Call { id, request } => node.call(id, request, now),
            Input::Cancel(call) => node.cancel(call, now),
            Input::Answer { call, rerun, body } => node.input(call, rerun, body, now),
            Input::Output { run, part } => node.output(&run, part, now),
            Input::Ended { instance, epoch } => node.ended(instance, epoch, now),
            Input::Written { instance, attempt, answer } => {
                node.answered(instance, attempt, answer, now);
                self.update_grant(fleet, instance, now);
            }
            Input::Key { instance, revision, entry } => {
                node.entry(instance, revision, entry, now);
                self.update_grant(fleet, instance, now);
            }
            Input::Absent { instance, attempt } => node.absent(instance, attempt, now),
            Input::Bucket { bucket, is_ready } => {
                self.bucket = bucket;
                node.bucket(bucket, is_ready, now);
            }
            Input::Heard { from, message: Message::Own { instance, requirements } }
                if !host.knows(requirements.definition) =>
            {
                let message = Message::Declined { instance, why: Declined::Unknown };
                self.outgoing.send(Some(from), message);
            }
            Input::Heard { from, message } => {
                if let Message::Heartbeat(heartbeat) = &message
                    && heartbeat.about.protocol != PROTOCOL
                    && self.strangers.len() < MAX_NODES
                    && self.strangers.insert(from.clone())
                {
                    tracing::warn!(
                        "the gateway {:?} speaks another protocol of the fleet ({}, not {PROTOCOL}): no calls go to it or come from it; upgrade the older one",
                        from.name,
                        heartbeat.about.protocol
                    );
                }
                node.heard(&from, message, now);
            }
            Input::NotDelivered(number) => node.not_delivered(number, now),
            Input::Link { is_up: true } => node.bus_back(now),
            Input::Link { is_up: false } => node.bus_lost(),
            Input::Drain { within } => node.drain(now + within, now),
            Input::Leave { instance, to, within } => {
                node.leave(instance, to, now + within, now);
            }
            Input::Status(done) => drop(done.send(self.status(now))),
            Input::Stop(done) => self.outgoing.flush(done),
        }
    }

    fn carry_out(&mut self, fleet: &Arc<Fleet>, host: &dyn Host) {
        loop {
            let effects = self.node.effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                self.effect(effect, fleet, host);
            }
        }
    }

    fn effect(&mut self, effect: Effect<Body>, fleet: &Arc<Fleet>, host: &dyn Host) {
        match effect {
            Effect::Lease { instance, effect: lease::Effect::End { epoch, at_once } } => {
                if let Some(grant) = self.grants.get(&instance).filter(|one| one.epoch == epoch) {
                    if at_once {
                        grant.lose();
                    } else {
                        grant.close();
                    }
                }
                if at_once {
                    tracing::warn!(
                        "the lease of {instance:?} is lost: its process is ended, and nothing is answered for it"
                    );
                }
                host.end(instance, epoch, at_once);
            }
            Effect::Lease { instance, effect } => {
                self.leases.carry_out(fleet, &self.me, instance, effect);
            }
            Effect::MarkReady => self.leases.mark_ready(fleet, self.bucket),
            Effect::Broadcast(heartbeat) => {
                self.outgoing.send(None, Message::Heartbeat(heartbeat));
            }
            Effect::Send { to, message } => {
                let number = match &message {
                    Message::Call { number, .. } => Some(*number),
                    _ => None,
                };
                if !self.outgoing.send(Some(to), message)
                    && let Some(number) = number
                {
                    self.again.push(Input::NotDelivered(number));
                }
            }
            Effect::Run { run, instance, epoch, body } => {
                let now = self.now();
                self.update_grant(fleet, instance, now);
                let grant = self.grants.get(&instance).filter(|grant| grant.epoch == epoch);
                // What may not run any more is fenced by the next look at the clock.
                let Some(grant) = grant.filter(|grant| grant.may_act()) else { return };
                match &run {
                    Run::Ours { call, .. } => {
                        host.run_ours(*call, grant);
                        // From here on it is a call like any other of this gateway.
                        self.again.push(Input::Output { run, part: Part::Last(Body::default()) });
                    }
                    Run::Foreign(_) => host.run(run, grant, &body),
                }
            }
            Effect::Input { run, body } => host.input(&run, &body),
            Effect::Abort { run } => host.abort(&run),
            Effect::Part { call, rerun, part } => {
                let owner = self.node.owner_of(call).map(|node| node.name.clone());
                host.part(call, rerun, owner.as_ref(), part);
            }
            Effect::Discard { call } => host.discard(call),
            Effect::Verdict { call, verdict } => host.verdict(call, verdict),
            Effect::Ignored { from, why } => {
                tracing::warn!("a heartbeat of the node {from:?} is ignored: {why}");
            }
        }
    }

    /// What this node may do for an instance, as its lease stands.
    fn update_grant(&mut self, fleet: &Fleet, instance: InstanceId, now: Moment) {
        let held = self.node.holds(instance);
        match (self.grants.get(&instance), held) {
            (Some(grant), Some((epoch, until))) if grant.epoch == epoch => {
                grant.prolong(until);
                if !self.node.is_open(instance, now) {
                    grant.close();
                }
            }
            (known, Some((epoch, until))) => {
                if let Some(known) = known {
                    known.lose();
                }
                let grant = Arc::new(Grant::new(instance, epoch, until, self.clock));
                self.grants.insert(instance, Arc::clone(&grant));
                fleet.grants.write().insert(instance, grant);
            }
            (Some(known), None) => {
                known.lose();
                self.grants.remove(&instance);
                fleet.grants.write().remove(&instance);
            }
            (None, None) => {}
        }
    }

    fn update_grants(&mut self, fleet: &Fleet) {
        let now = self.now();
        let all: Vec<InstanceId> = self.grants.keys().copied().collect();
        for instance in all {
            self.update_grant(fleet, instance, now);
        }
    }

    /// Gives up what nobody uses and what has no process any more: another node may be a better place for the next need.
    fn release_unused(&mut self, host: &dyn Host) {
        let now = self.now();
        if now.since(self.looked) < LOOK {
            return;
        }
        self.looked = now;
        for grant in self.grants.values() {
            if grant.unused() >= UNUSED && !host.is_running(grant.instance) {
                self.node.leave(grant.instance, None, now + LOOK, now);
            }
        }
    }

    fn tell(&mut self, fleet: &Fleet) {
        let readiness = self.node.readiness();
        let word = |readiness: Readiness| std::mem::discriminant(&readiness);
        if self.told.map(word) != Some(word(readiness)) {
            match readiness {
                Readiness::Ready => tracing::info!("this gateway is ready for the fleet"),
                Readiness::Superseded => tracing::error!(
                    "another gateway has this one's name: it gives up what it owns; give each its own --node-name"
                ),
                Readiness::NoBus { .. } => tracing::warn!(
                    "the bus is away: this gateway goes on with what it owns until its leases run out"
                ),
                Readiness::BucketTooNew => tracing::info!(
                    "the bucket of leases is new: nothing is claimed before every old lease has run out"
                ),
                Readiness::Draining => tracing::info!("this gateway is leaving the fleet"),
            }
        }
        if self.told != Some(readiness) {
            self.told = Some(readiness);
            fleet.readiness.send_replace(readiness);
        }
        let is_idle = self.node.is_idle();
        fleet.is_idle.send_if_modified(|known| std::mem::replace(known, is_idle) != is_idle);
    }

    fn status(&self, now: Moment) -> FleetStatus {
        let directory = self.node.directory();
        let own = NodeStatus {
            name: self.me.name.clone(),
            incarnation: self.me.incarnation,
            silent: std::time::Duration::ZERO,
            is_alive: true,
            is_draining: self.node.readiness() == Readiness::Draining,
            labels: self.about.labels.clone(),
            capacity: self.about.capacity,
            instances: u32::try_from(self.grants.len()).unwrap_or(u32::MAX),
            calls: 0,
            protocol: self.about.protocol,
        };
        let others = directory.known().map(|peer| NodeStatus {
            name: peer.node.name.clone(),
            incarnation: peer.node.incarnation,
            silent: now.since(peer.heard),
            is_alive: directory.is_alive(&peer.node, now),
            is_draining: peer.last.is_draining,
            labels: peer.last.about.labels.clone(),
            capacity: peer.last.about.capacity,
            instances: peer.last.instances,
            calls: peer.last.calls,
            protocol: peer.last.about.protocol,
        });
        let mut nodes: Vec<NodeStatus> = std::iter::once(own).chain(others).collect();
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        let owners = self.node.owners();
        FleetStatus {
            me: self.me.name.clone(),
            readiness: self.node.readiness(),
            nodes,
            owners: owners.map(|(id, node, epoch)| (id, node.name.clone(), epoch)).collect(),
            waiting: self.node.waiting(),
        }
    }
}
