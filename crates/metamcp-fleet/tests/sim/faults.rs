//! What goes wrong, how it ends, and what is checked all the time.

use metamcp_fleet::directory::{About, Heartbeat, PROTOCOL};
use metamcp_fleet::drain::Target;
use metamcp_fleet::identity::{NodeName, NodeRef, Stamp};
use metamcp_fleet::message::{Message, Part, Refusal};
use metamcp_fleet::node::Readiness;

use crate::books::body;
use crate::plan::{Fault, MS, SECOND};
use crate::world::{Event, Slot, World};

/// After the last fault, everything is over within this time: leases of the dead run out, calls are placed or given up.
const SETTLES: u64 = 120 * SECOND;
/// A process of an epoch that is over is told to end at the next look at the clock, which may just have been.
const FENCING: u64 = 250 * MS;

impl World {
    pub(crate) fn fault(&mut self, fault: Fault) -> Result<(), String> {
        if self.finishing {
            return Ok(());
        }
        self.tell(|| format!("fault: {fault:?}"));
        match fault {
            Fault::Crash { node, back_after } => {
                if let Some(slot) = self.slot_of(node) {
                    self.crash(slot);
                    self.after(back_after, Event::Start { name: node });
                }
            }
            Fault::Supersede { node } => {
                if self.slot_of(node).is_some() {
                    self.books.sights.superseded += 1;
                    self.start(node);
                }
            }
            Fault::Pause { node, length } => {
                if let Some(slot) = self.slot_of(node) {
                    self.pause(slot, length);
                }
            }
            Fault::Cut { node, outward, inward, length } => {
                if let Some(slot) = self.slot_of(node) {
                    self.cut(slot, outward, inward, length);
                }
            }
            Fault::BusGone { length } => {
                for slot in 0..self.slots.len() {
                    self.cut(slot, true, true, length);
                }
                self.bus.down_until = self.bus.down_until.max(self.t + length);
            }
            Fault::Failover { length, offset } => {
                self.bus.offset = offset;
                self.bus.down_until = self.bus.down_until.max(self.t + length);
            }
            Fault::Amnesia => {
                self.books.sights.amnesia += 1;
                self.bus.keys.clear();
                self.bus.bucket += 1;
                self.bus.revision = 0;
                self.bus.is_ready = false;
                self.amnesia_at = self.t;
                self.tell_bucket();
            }
            Fault::Upgrade { node } => {
                let slot = self.slot_of(node);
                if let Some(slot) = slot.filter(|slot| self.slots[*slot].paused_until <= self.t) {
                    // Where nothing fails, an operator upgrades one after the other.
                    let calm = self.plan.is_calm;
                    let is_busy = |this: &Slot| this.is_alive && this.is_upgrading;
                    let living = self.slots.iter().filter(|this| this.is_alive).count();
                    let is_rolling =
                        calm && (self.slots.iter().any(is_busy) || living < self.plan.nodes);
                    if self.slots[slot].is_upgrading || is_rolling {
                        return Ok(());
                    }
                    self.books.sights.upgrades += 1;
                    self.slots[slot].is_upgrading = true;
                    let now = self.now(slot);
                    let limit = if self.plan.is_calm { 60_000 } else { self.rng.below(5000) };
                    let until = now + std::time::Duration::from_millis(limit);
                    self.slots[slot].node.drain(until, now);
                    self.act(slot)?;
                }
            }
            Fault::Leave { instance, to } => self.leave(instance, to)?,
            Fault::Hostile { node } => self.hostile(node),
        }
        Ok(())
    }

    /// The latest live process of a name.
    fn slot_of(&self, name: usize) -> Option<usize> {
        self.slots.iter().rposition(|slot| slot.is_alive && slot.name == name)
    }

    fn leave(&mut self, index: usize, to: Option<usize>) -> Result<(), String> {
        let instance = self.plan.instances[index];
        for slot in 0..self.slots.len() {
            let this = &self.slots[slot];
            let now = self.now(slot);
            if this.is_alive
                && this.paused_until <= self.t
                && this.node.serving(instance, now).is_some()
            {
                let to = to.map(|name| Target {
                    node: NodeName::parse(&format!("n{name}")).expect("it is one token"),
                    requirements: self.requirements(index),
                });
                self.books.sights.hand_overs += u64::from(to.is_some());
                let limit = if self.plan.is_calm { 60_000 } else { self.rng.below(8000) };
                let until = now + std::time::Duration::from_millis(limit);
                self.slots[slot].node.leave(instance, to, until, now);
                return self.act(slot);
            }
        }
        Ok(())
    }

    /// Says things that are not so, as a node that owns nothing.
    fn hostile(&mut self, name: usize) {
        let Some(slot) = self.slot_of(name) else { return };
        let incarnation = Stamp { bucket: 1, revision: u64::MAX };
        let liar = NodeName::parse("liar").expect("it is one token");
        let from = NodeRef { name: liar, incarnation };
        let number = self.rng.between(1, 5);
        let instance = self.rng.pick(&self.plan.instances.clone());
        let epoch = Stamp { bucket: self.bus.bucket, revision: self.rng.between(1, 40) };
        let labels = (0..40).map(|n| (n.to_string().into(), "x".into())).collect();
        let about = std::sync::Arc::new(About { protocol: PROTOCOL, labels, capacity: u32::MAX });
        let heartbeat = Heartbeat { about, beat: 1, instances: 0, calls: 0, is_draining: false };
        for message in [
            Message::Heartbeat(heartbeat),
            Message::Refused { number, why: Refusal::NotMine },
            Message::Output { number, sequence: 0, part: Part::Last(body(0, 0)) },
            Message::OutputSeen { number, next: 1 },
            Message::Accepted { number },
            Message::Cancel { number },
            Message::Call { number, instance, epoch, body: body(0, 0) },
        ] {
            self.after(0, Event::Hear { slot, from: from.clone(), message });
        }
    }

    fn crash(&mut self, slot: usize) {
        let me = self.slots[slot].me.clone();
        self.tell(|| format!("{me:?} crashes"));
        self.books.sights.crashes += 1;
        self.drop_slot(slot);
        // Whoever waits for it knows within two seconds, where the network is quick and nobody sleeps.
        if self.plan.slowest <= 120 * MS {
            for other in 0..self.slots.len() {
                if !self.slots[other].is_alive {
                    continue;
                }
                let calls: Vec<u64> = self.books.calls.keys().copied().collect();
                for call in calls {
                    let at = self.slots[other].node.owner_of(metamcp_fleet::node::CallId(call));
                    if at == Some(&me) && self.slots[other].paused_until <= self.t {
                        let check = Event::CheckDeath { slot: other, call, owner: me.clone() };
                        self.after(2 * SECOND, check);
                    }
                }
            }
        }
    }

    /// The process ends after its drain.
    pub(crate) fn stop(&mut self, slot: usize) {
        let me = self.slots[slot].me.clone();
        self.tell(|| format!("{me:?} stops"));
        let name = self.slots[slot].name;
        self.drop_slot(slot);
        if !self.closing {
            let delay = self.rng.below(1500) * MS;
            self.after(delay, Event::Start { name });
        }
    }

    fn drop_slot(&mut self, slot: usize) {
        self.slots[slot].is_alive = false;
        self.slots[slot].processes = crate::processes::Processes::default();
        for id in self.calls_at(slot) {
            if let Some(call) = self.books.calls.get_mut(&id) {
                call.is_dropped = call.verdict.is_none();
            }
        }
    }

    fn calls_at(&self, slot: usize) -> Vec<u64> {
        let of = self.at_slot.iter().filter(|(_, at)| **at == slot);
        of.map(|(id, _)| *id).collect()
    }

    /// Looked at four times a second, and whenever somebody acts.
    pub(crate) fn check(&mut self) -> Result<(), String> {
        for slot in 0..self.slots.len() {
            let this = &self.slots[slot];
            if !this.is_alive || this.paused_until > self.t || this.has_backlog() {
                continue;
            }
            let now = self.now(slot);
            for instance in &self.plan.instances {
                if let Some(epoch) = this.node.serving(*instance, now) {
                    self.holds(slot, *instance, epoch)?;
                }
            }
            let has_settled = this.resumed_at + FENCING < self.t;
            for (instance, epoch) in this.processes.acting().filter(|_| has_settled) {
                // What ran under a stale view is found at the next look.
                if this.node.serving(instance, now) != Some(epoch) {
                    let is_old = this.stale_since.is_none_or(|since| since + FENCING < self.t);
                    let good = self.holds(slot, instance, epoch);
                    if is_old && good.is_err() {
                        return good.map_err(|error| format!("a stale process lives: {error}"));
                    }
                }
            }
        }
        Ok(())
    }

    /// Nothing more goes wrong: links are whole, everybody drains.
    pub(crate) fn finish(&mut self) -> Result<(), String> {
        if !self.finishing {
            self.finishing = true;
            self.tell(|| "the end begins".to_owned());
            self.finish_at = self.t + SETTLES;
        }
        let waiting = self.books.calls.values();
        let is_waiting = waiting
            .into_iter()
            .any(|call| call.verdict.is_none() && !call.is_cancelled && !call.is_dropped);
        if is_waiting {
            self.after(SECOND, Event::Finish);
            return if self.t > self.finish_at {
                Err("calls have no verdict".into())
            } else {
                Ok(())
            };
        }
        self.closing = true;
        for slot in 0..self.slots.len() {
            let this = &self.slots[slot];
            if this.is_alive
                && !this.is_upgrading
                && this.paused_until <= self.t
                && !this.has_backlog()
            {
                let now = self.now(slot);
                self.slots[slot].is_upgrading = true;
                self.slots[slot].node.drain(now, now);
                self.act(slot)?;
            }
        }
        self.after(SECOND, Event::Finish);
        if self.t > self.finish_at { Err("the fleet does not come to rest".into()) } else { Ok(()) }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.slots.iter().all(|slot| !slot.is_alive) && self.bus.keys.is_empty()
    }

    /// The last checks.
    pub(crate) fn close(&self) -> Result<(), String> {
        if self.slots.iter().any(|slot| !slot.processes.is_empty()) {
            return Err("a process lives".into());
        }
        let ready = self.slots.iter().map(|slot| slot.node.readiness());
        for (readiness, slot) in ready.zip(&self.slots) {
            if slot.is_upgrading && readiness == Readiness::Ready {
                return Err(format!("{:?} drained and says that it is ready", slot.me));
            }
        }
        self.books.close(self.plan.is_calm)
    }
}
