//! The node as an owner: its leases, what runs under them, what leaves.

use metamcp_types::moment::Moment;

use super::{Effect, Node, Run};
use crate::drain::Target;
use crate::identity::{InstanceId, NodeRef, Stamp};
use crate::lease::{Context, Lease};
use crate::message::{Declined, Message, Part, Refusal};
use crate::placement::{self, Requirements};
use crate::serving::{ForeignCall, Step};

impl<B: Clone> Node<B> {
    /// Whether this node may act for an instance under that epoch at this very moment.
    pub fn may_act(&self, instance: InstanceId, epoch: Stamp, now: Moment) -> bool {
        let lease = self.leases.get(&instance);
        lease.is_some_and(|lease| lease.serving(now) == Some(epoch))
    }

    /// The epoch under which this node may act for an instance now, if it may.
    pub fn serving(&self, instance: InstanceId, now: Moment) -> Option<Stamp> {
        self.leases.get(&instance)?.serving(now)
    }

    /// Whether new calls of this node's clients may be given to the process directly, without [`Node::call`]: then they are
    /// in the hands of the engine, which ends the process only when they have ended.
    pub fn is_open(&self, instance: InstanceId, now: Moment) -> bool {
        self.serving(instance, now).is_some() && !self.drains.is_moving(instance)
    }

    /// Under which epoch this node has an instance, and how long it may act for it as it stands: also while the instance
    /// closes, for what its process was given before.
    pub fn holds(&self, instance: InstanceId) -> Option<(Stamp, Moment)> {
        let lease = self.leases.get(&instance)?;
        lease.owned().zip(lease.good_until())
    }

    /// Who owns an instance, as far as this node knows.
    pub fn owner(&self, instance: InstanceId) -> Option<(&NodeRef, Stamp)> {
        self.leases.get(&instance)?.owner()
    }

    /// Every instance that somebody owns, as far as this node knows.
    pub fn owners(&self) -> impl Iterator<Item = (InstanceId, &NodeRef, Stamp)> {
        let all = self.leases.iter();
        all.filter_map(|(id, lease)| lease.owner().map(|(node, epoch)| (*id, node, epoch)))
    }

    /// The process of an instance and epoch has ended, or there was none.
    pub fn ended(&mut self, instance: InstanceId, epoch: Stamp, now: Moment) {
        self.with_lease(instance, now, |lease, cx| lease.ended(epoch, cx));
    }

    /// A process said something about a call.
    pub fn output(&mut self, run: &Run, part: Part<B>, now: Moment) {
        match run {
            Run::Ours { call, epoch } => self.our_output(*call, *epoch, part),
            Run::Foreign(call) => self.serving.output(call, part, now),
        }
        self.served();
        self.close_what_is_due(now);
    }

    /// One step of a lease, and what follows from it for calls.
    pub(super) fn with_lease(
        &mut self,
        instance: InstanceId,
        now: Moment,
        step: impl FnOnce(&mut Lease, &mut Context<'_>),
    ) {
        let mut effects = Vec::new();
        let mut cx = Context {
            me: &self.me,
            timing: &self.timing,
            now,
            attempts: &mut self.attempts,
            effects: &mut effects,
        };
        let lease = self.leases.entry(instance).or_default();
        let due = lease.due(&self.timing);
        let is_here = |lease: &Lease| {
            lease.epoch().is_some() || lease.owner().is_some_and(|(owner, _)| *owner == self.me)
        };
        let was_here = is_here(lease);
        let (owned, owner) = (lease.owned(), lease.owner().map(|(_, epoch)| epoch));
        step(lease, &mut cx);
        let (owned_now, owner_now) = (lease.owned(), lease.owner().map(|(_, epoch)| epoch));
        let has_left = was_here && !is_here(lease);
        if lease.epoch().is_some() {
            self.owned.insert(instance);
        } else {
            self.owned.remove(&instance);
        }
        let next = lease.due(&self.timing);
        if lease.is_idle() {
            self.leases.remove(&instance);
        }
        if due != next {
            self.due.remove(&(due, instance));
        }
        if next != Moment::NEVER {
            self.due.insert((next, instance));
        }
        self.effects.extend(effects.into_iter().map(|effect| Effect::Lease { instance, effect }));
        if let Some(epoch) = owned.filter(|_| owned != owned_now) {
            self.lost(instance, epoch, now);
        }
        if has_left && let Some(to) = self.drains.left(instance) {
            self.hand_over(instance, to, now);
        }
        if owner != owner_now {
            self.owner_changed(instance, now);
        }
        if owner != owner_now || owned != owned_now || has_left {
            self.advance(instance, now);
        }
    }

    /// This node does not act under that epoch any more.
    fn lost(&mut self, instance: InstanceId, epoch: Stamp, now: Moment) {
        self.serving.fence(instance, epoch);
        self.ours_lost(instance, epoch, now);
    }

    /// Another node was chosen for an instance that has left this one. It may decline: the next need places it then.
    fn hand_over(&mut self, instance: InstanceId, target: Target, now: Moment) {
        let Target { node, requirements } = target;
        let Some(peer) = self.directory.peer(&node).filter(|_| node != self.me.name) else {
            return;
        };
        let to = peer.node.clone();
        if self.speaks_with(&to, now) {
            let message = Message::Own { instance, requirements };
            self.effects.push(Effect::Send { to, message });
            self.asked(instance, node, now);
        }
    }

    /// Somebody needs an instance and chose this node.
    pub(super) fn asked_to_own(
        &mut self,
        from: &NodeRef,
        instance: InstanceId,
        requirements: &Requirements,
        now: Moment,
    ) {
        let is_here = requirements.pinned.as_ref().is_none_or(|pinned| *pinned == self.me.name);
        let lease = self.leases.get(&instance);
        let why = if lease.is_some_and(|lease| lease.owner().is_some()) {
            Some(Declined::Owned)
        } else if self.drains.is_moving(instance) {
            Some(Declined::Draining)
        } else if !self.may_claim() {
            Some(Declined::NotReady)
        } else if !is_here || !placement::has(&self.about.labels, &requirements.labels) {
            Some(Declined::Labels)
        } else if self.owned.len() >= self.about.capacity as usize {
            Some(Declined::Full)
        } else {
            None
        };
        match why {
            Some(why) => {
                let message = Message::Declined { instance, why };
                self.effects.push(Effect::Send { to: from.clone(), message });
            }
            None => self.with_lease(instance, now, Lease::need),
        }
    }

    /// A call of another node.
    pub(super) fn foreign_call(
        &mut self,
        from: &NodeRef,
        number: u64,
        (instance, epoch): (InstanceId, Stamp),
        body: B,
        now: Moment,
    ) {
        let refusal = if !self.may_act(instance, epoch, now) {
            let closes = self.leases.get(&instance).and_then(Lease::owned) == Some(epoch);
            Some(if closes { Refusal::Moving } else { Refusal::NotMine })
        } else if self.drains.is_moving(instance) {
            Some(Refusal::Moving)
        } else if self.serving.is_full() {
            Some(Refusal::Full)
        } else {
            None
        };
        let call = ForeignCall { caller: from.clone(), number };
        self.serving.call(call, (instance, epoch), body, refusal);
    }

    /// Carries out what the calls of others need.
    pub(super) fn served(&mut self) {
        for step in self.serving.steps() {
            self.effects.push(match step {
                Step::Send { to, message } => Effect::Send { to, message },
                Step::Run { call, instance, epoch, body } => {
                    Effect::Run { run: Run::Foreign(call), instance, epoch, body }
                }
                Step::Input { call, body } => Effect::Input { run: Run::Foreign(call), body },
                Step::Abort { call } => Effect::Abort { run: Run::Foreign(call) },
            });
        }
    }

    /// Closes instances that leave and have no calls left, or no time.
    pub(super) fn close_what_is_due(&mut self, now: Moment) {
        if self.drains.is_empty() {
            return;
        }
        let is_due = |instance: &InstanceId| {
            self.serving(*instance, now).filter(|_| self.drains.is_moving(*instance))?;
            let in_flight = self.serving.in_flight(*instance) + self.ours_in_flight(*instance);
            self.drains.is_due(*instance, in_flight, now).then_some(*instance)
        };
        let due: Vec<InstanceId> = self.owned.iter().filter_map(is_due).collect();
        for instance in due {
            if let Some(epoch) = self.serving(instance, now) {
                // Past their time, the calls are given up.
                self.lost(instance, epoch, now);
            }
            self.with_lease(instance, now, Lease::close);
        }
    }
}
