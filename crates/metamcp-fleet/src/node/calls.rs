//! The node as a caller: calls of its clients, on their way to whoever owns their instance.

use std::sync::Arc;
use std::time::Duration;

use metamcp_types::moment::Moment;

use super::{CallId, Effect, Node, Request, Run, Verdict, WhyNot};
use crate::identity::{InstanceId, NodeName, NodeRef, Stamp};
use crate::lease::Lease;
use crate::message::{Declined, Message, Part, Refusal};
use crate::placement::{self, Here, NoNode, Requirements};
use crate::routing::{Ending, Forwarded, NotRun, Step, Unknown};
use crate::timing::{ASK, RETRY};

/// How often a call is refused before its caller hears of it. One that finds its instance moving waits for as long as
/// calls wait.
const MAX_REFUSALS: u32 = 8;
/// How often a harmless call whose outcome is unknown is made again.
const MAX_RERUNS: u32 = 2;
/// For how long a node that has what an instance requires may come: the fleet, or this node, may just have started.
const NODE_COMES: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct Call<B> {
    request: Request<B>,
    phase: Phase<B>,
    began: Moment,
    refusals: u32,
    reruns: u32,
    /// What the last owner said that did not run it.
    refused: Option<NotRun>,
    /// Whether a part of its result, or a request, went to the client.
    is_begun: bool,
}

#[derive(Debug)]
enum Phase<B> {
    /// For an owner, and at least until then.
    Waiting {
        until: Moment,
    },
    /// It runs here.
    Here {
        epoch: Stamp,
    },
    Forwarded(Box<Forwarded<B>>),
}

/// The search for an owner of one instance.
#[derive(Debug)]
pub(super) struct Placing {
    tried: Vec<NodeName>,
    asked: Option<(NodeName, Moment)>,
    again: Moment,
    /// Since when there is no node that has what the instance requires.
    lacking: Option<Moment>,
}

impl<B: Clone> Node<B> {
    /// A client calls. It gets one verdict, unless it takes the call back.
    pub fn call(&mut self, id: CallId, request: Request<B>, now: Moment) {
        let instance = request.instance;
        let call = Call {
            request,
            phase: Phase::Waiting { until: now },
            began: now,
            refusals: 0,
            reruns: 0,
            refused: None,
            is_begun: false,
        };
        self.calls.insert(id, call);
        self.by_instance.insert((instance, id));
        if self.is_superseded {
            self.verdict(id, Verdict::NotRun(WhyNot::NotInFleet));
        } else {
            self.advance_call(id, now);
            self.place(instance, now);
        }
    }

    /// The client takes its call back, and hears nothing more of it.
    pub fn cancel(&mut self, id: CallId, now: Moment) {
        let Some(call) = self.remove(id) else { return };
        match call.phase {
            Phase::Waiting { .. } => {}
            Phase::Here { epoch } => {
                self.effects.push(Effect::Abort { run: Run::Ours { call: id, epoch } });
            }
            Phase::Forwarded(forwarded) => self.take_back(&forwarded),
        }
        self.close_what_is_due(now);
    }

    /// The client answers a request of the server, which came with that `rerun`: another process may have asked another
    /// question by the same name since.
    pub fn input(&mut self, id: CallId, rerun: u32, body: B, now: Moment) {
        let call = self.calls.get_mut(&id).filter(|call| call.reruns == rerun);
        match call.map(|call| &mut call.phase) {
            Some(Phase::Here { epoch }) => {
                let run = Run::Ours { call: id, epoch: *epoch };
                self.effects.push(Effect::Input { run, body });
            }
            Some(Phase::Forwarded(forwarded)) => {
                let steps = forwarded.input(body, now);
                self.routed(id, steps, now);
            }
            Some(Phase::Waiting { .. }) | None => {}
        }
    }

    /// The node that was sent a call and has not answered.
    pub fn owner_of(&self, id: CallId) -> Option<&NodeRef> {
        match &self.calls.get(&id)?.phase {
            Phase::Forwarded(forwarded) => Some(&forwarded.owner),
            _ => None,
        }
    }

    /// How many calls of clients have no verdict.
    pub fn waiting(&self) -> usize {
        self.calls.len()
    }

    pub(super) fn forwarded(&mut self, id: CallId) -> Option<&mut Forwarded<B>> {
        match self.calls.get_mut(&id).map(|call| &mut call.phase) {
            Some(Phase::Forwarded(forwarded)) => Some(forwarded),
            _ => None,
        }
    }

    /// The call that a message of this node is about, if that node is its owner.
    pub(super) fn answer_from(&mut self, from: &NodeRef, number: u64) -> Option<CallId> {
        let id = *self.numbers.get(&number)?;
        self.forwarded(id).is_some_and(|forwarded| forwarded.owner == *from).then_some(id)
    }

    pub(super) fn output_came(
        &mut self,
        from: &NodeRef,
        number: u64,
        (sequence, part): (u64, Part<B>),
        now: Moment,
    ) {
        if let Some(id) = self.answer_from(from, number) {
            if let Some(forwarded) = self.forwarded(id) {
                let steps = forwarded.output(sequence, part, now);
                self.routed(id, steps, now);
            }
        } else if !self.numbers.contains_key(&number) {
            // Its verdict was given. Of what is complete the acknowledgement was lost; the rest is not wanted.
            let message = if part.is_last() {
                Message::OutputSeen { number, next: sequence + 1 }
            } else {
                Message::Cancel { number }
            };
            self.effects.push(Effect::Send { to: from.clone(), message });
        }
    }

    pub(super) fn our_output(&mut self, id: CallId, epoch: Stamp, part: Part<B>) {
        let runs = |call: &Call<B>| matches!(call.phase, Phase::Here { epoch: of } if of == epoch);
        if self.calls.get(&id).is_some_and(runs) {
            let is_last = part.is_last();
            self.part(id, part);
            if is_last {
                self.verdict(id, Verdict::Answered);
            }
        }
    }

    /// Carries out what a forwarded call needs.
    pub(super) fn routed(&mut self, id: CallId, steps: Vec<Step<B>>, now: Moment) {
        for step in steps {
            match step {
                Step::Send(message) => {
                    if let Some(to) = self.forwarded(id).map(|forwarded| forwarded.owner.clone()) {
                        self.effects.push(Effect::Send { to, message });
                    }
                }
                Step::Part(part) => self.part(id, part),
                Step::Over(ending) => self.call_ended(id, ending, now),
            }
        }
    }

    /// A forwarded call ended where it was.
    pub(super) fn call_ended(&mut self, id: CallId, ending: Ending, now: Moment) {
        match ending {
            Ending::Answered => self.verdict(id, Verdict::Answered),
            Ending::Unknown(why) => {
                if let Some(call) = self.calls.get(&id)
                    && let Phase::Forwarded(forwarded) = &call.phase
                {
                    let message = Message::Cancel { number: forwarded.number };
                    let to = forwarded.owner.clone();
                    self.effects.push(Effect::Send { to, message });
                }
                self.unknown(id, why, now);
            }
            Ending::NotRun(why) => {
                let Some(call) = self.calls.get_mut(&id) else { return };
                call.refused = Some(why);
                // One who is not the owner any more, or not yet, will not be for long.
                if !matches!(why, NotRun::Refused(Refusal::Moving | Refusal::NotMine)) {
                    call.refusals += 1;
                }
                let refusals = call.refusals;
                if refusals >= MAX_REFUSALS {
                    self.give_up(id, WhyNot::NotTaken(why));
                } else {
                    self.wait(id, now + RETRY * (1 << refusals.min(3)));
                }
            }
        }
    }

    /// It may have run: that is the verdict, unless it is harmless to run it again.
    fn unknown(&mut self, id: CallId, why: Unknown, now: Moment) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if !call.request.is_harmless || call.reruns >= MAX_RERUNS {
            self.verdict(id, Verdict::OutcomeUnknown(why));
            return;
        }
        call.reruns += 1;
        if std::mem::take(&mut call.is_begun) {
            self.effects.push(Effect::Discard { call: id });
        }
        self.wait(id, now + RETRY);
    }

    fn wait(&mut self, id: CallId, until: Moment) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        if let Phase::Forwarded(forwarded) =
            std::mem::replace(&mut call.phase, Phase::Waiting { until })
        {
            self.numbers.remove(&forwarded.number);
        }
    }

    /// This node lost an instance: its own clients' calls there may have run.
    pub(super) fn ours_lost(&mut self, instance: InstanceId, epoch: Stamp, now: Moment) {
        for id in self.calls_of(instance) {
            let is_of =
                |call: &Call<B>| matches!(call.phase, Phase::Here { epoch: of } if of == epoch);
            if self.calls.get(&id).is_some_and(is_of) {
                self.unknown(id, Unknown::Fenced, now);
            }
        }
    }

    pub(super) fn ours_in_flight(&self, instance: InstanceId) -> usize {
        let of = self.by_instance.range((instance, CallId(0))..=(instance, CallId(u64::MAX)));
        let phases = of.filter_map(|(_, id)| self.calls.get(id).map(|call| &call.phase));
        phases.filter(|phase| matches!(phase, Phase::Here { .. })).count()
    }

    /// The watch shows another owner, or none.
    pub(super) fn owner_changed(&mut self, instance: InstanceId, now: Moment) {
        let owner = self.leases.get(&instance).and_then(Lease::owner);
        let owner = owner.map(|(node, epoch)| (node.clone(), epoch));
        for id in self.calls_of(instance) {
            if let Some(forwarded) = self.forwarded(id) {
                let is_same = owner.as_ref().is_some_and(|(node, epoch)| {
                    *node == forwarded.owner && *epoch == forwarded.epoch
                });
                if !is_same {
                    forwarded.lease_gone(now);
                }
            }
        }
    }

    /// Something changed about the owner of an instance: calls that wait for it go on.
    pub(super) fn advance(&mut self, instance: InstanceId, now: Moment) {
        for id in self.calls_of(instance) {
            if let Some(Call { phase: Phase::Waiting { until }, .. }) = self.calls.get_mut(&id) {
                *until = now;
            }
            self.advance_call(id, now);
        }
        self.place(instance, now);
    }

    pub(super) fn tick_calls(&mut self, now: Moment) {
        let ids: Vec<CallId> = self.calls.keys().copied().collect();
        for id in ids {
            let Some(call) = self.calls.get(&id) else { continue };
            match &call.phase {
                Phase::Waiting { .. } => {
                    let (began, refused) = (call.began, call.refused);
                    if self.is_superseded {
                        self.give_up(id, WhyNot::NotInFleet);
                    } else if now.since(began) >= self.timing.placing {
                        let why = refused.map_or(WhyNot::NoOwner, WhyNot::NotTaken);
                        self.give_up(id, why);
                    } else {
                        self.advance_call(id, now);
                    }
                }
                Phase::Here { .. } => {}
                Phase::Forwarded(forwarded) => {
                    let is_alive = self.directory.is_alive(&forwarded.owner, now);
                    let Some(forwarded) = self.forwarded(id) else { continue };
                    let steps = forwarded.tick(is_alive, now);
                    self.routed(id, steps, now);
                }
            }
        }
        let placings: Vec<InstanceId> = self.placings.keys().copied().collect();
        for instance in placings {
            self.place(instance, now);
        }
    }

    /// A call that waits goes where its instance is, if that is known.
    fn advance_call(&mut self, id: CallId, now: Moment) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        let Phase::Waiting { until } = call.phase else { return };
        if now < until {
            return;
        }
        let instance = call.request.instance;
        let lease = self.leases.get(&instance);
        if let Some(epoch) = lease.and_then(|lease| lease.serving(now)) {
            if !self.drains.is_moving(instance) {
                call.phase = Phase::Here { epoch };
                let body = call.request.body.clone();
                let run = Run::Ours { call: id, epoch };
                self.effects.push(Effect::Run { run, instance, epoch, body });
            }
            return;
        }
        let Some((owner, epoch)) = lease.and_then(Lease::owner) else {
            self.placings.entry(instance).or_insert_with(|| Placing::begun(now));
            return;
        };
        // One that is silent is waited for: it may be heard of again, or its lease ends.
        if owner.name == self.me.name || !self.directory.is_alive(owner, now) {
            return;
        }
        let body = call.request.body.clone();
        self.last_number += 1;
        let number = self.last_number;
        let mut forwarded = Forwarded::new(owner.clone(), epoch, number, instance, body, now);
        let (to, message) = (owner.clone(), forwarded.publish(now));
        call.phase = Phase::Forwarded(Box::new(forwarded));
        self.numbers.insert(number, id);
        self.effects.push(Effect::Send { to, message });
    }

    /// Looks for an owner, while calls wait for one.
    fn place(&mut self, instance: InstanceId, now: Moment) {
        if !self.placings.contains_key(&instance) {
            return;
        }
        let lease = self.leases.get(&instance);
        let waits = |id: &CallId| {
            let call = self.calls.get(id)?;
            matches!(call.phase, Phase::Waiting { .. }).then(|| call.request.requirements.clone())
        };
        let requirements = self.calls_of(instance).iter().find_map(waits);
        let is_owned = lease.is_some_and(|lease| lease.owner().is_some());
        let Some(requirements) = requirements.filter(|_| !is_owned) else {
            self.placings.remove(&instance);
            return;
        };
        // A claim of ours is under way, or a process of ours has to end first.
        if lease.is_some_and(|lease| !lease.is_free()) {
            return;
        }
        let Some(placing) = self.placings.get_mut(&instance) else { return };
        match placing.asked.take() {
            Some((name, since)) if now.since(since) < ASK => {
                placing.asked = Some((name, since));
                return;
            }
            Some((name, _)) => placing.tried.push(name),
            None => {}
        }
        if now < placing.again {
            return;
        }
        self.choose(instance, &requirements, now);
    }

    fn choose(&mut self, instance: InstanceId, requirements: &Arc<Requirements>, now: Moment) {
        let own = self.own_heartbeat();
        let here = Here { name: &self.me.name, now: &own, may_claim: self.may_claim() };
        let Some(placing) = self.placings.get_mut(&instance) else { return };
        let tried = &placing.tried;
        match placement::choose(instance, requirements, here, &self.directory, tried, now) {
            Ok(name) => {
                placing.asked = Some((name.clone(), now));
                placing.lacking = None;
                if name == self.me.name {
                    self.with_lease(instance, now, Lease::need);
                } else if let Some(peer) = self.directory.peer(&name) {
                    let requirements = requirements.clone();
                    let message = Message::Own { instance, requirements };
                    self.effects.push(Effect::Send { to: peer.node.clone(), message });
                }
            }
            Err(why) => {
                placing.tried.clear();
                placing.again = now + RETRY;
                if why == NoNode::Busy {
                    placing.lacking = None;
                } else if now.since(*placing.lacking.get_or_insert(now)) >= NODE_COMES {
                    for id in self.calls_of(instance) {
                        let waits = |call: &Call<B>| matches!(call.phase, Phase::Waiting { .. });
                        if self.calls.get(&id).is_some_and(waits) {
                            self.give_up(id, WhyNot::NoNode(why));
                        }
                    }
                }
            }
        }
    }

    /// A node that was asked does not want the instance.
    pub(super) fn declined(
        &mut self,
        from: &NodeRef,
        instance: InstanceId,
        why: Declined,
        now: Moment,
    ) {
        if why == Declined::Owned {
            self.with_lease(instance, now, Lease::look);
        } else if let Some(placing) = self.placings.get_mut(&instance)
            && placing.asked.as_ref().is_some_and(|(name, _)| *name == from.name)
        {
            placing.asked = None;
            placing.tried.push(from.name.clone());
            self.place(instance, now);
        }
    }

    /// That node was asked to own an instance.
    pub(super) fn asked(&mut self, instance: InstanceId, name: NodeName, now: Moment) {
        let placing = Placing { asked: Some((name, now)), ..Placing::begun(now) };
        self.placings.insert(instance, placing);
    }

    fn take_back(&mut self, forwarded: &Forwarded<B>) {
        let message = Message::Cancel { number: forwarded.number };
        self.effects.push(Effect::Send { to: forwarded.owner.clone(), message });
    }

    /// Nobody runs a call that waits. One that was made again may have run before.
    fn give_up(&mut self, id: CallId, why: WhyNot) {
        let has_run = self.calls.get(&id).is_some_and(|call| call.reruns > 0);
        let verdict = if has_run {
            Verdict::OutcomeUnknown(Unknown::OwnerSilent)
        } else {
            Verdict::NotRun(why)
        };
        self.verdict(id, verdict);
    }

    fn part(&mut self, id: CallId, part: Part<B>) {
        if let Some(call) = self.calls.get_mut(&id) {
            call.is_begun |= matches!(part, Part::Chunk(_) | Part::Request(_));
            let rerun = call.reruns;
            self.effects.push(Effect::Part { call: id, rerun, part });
        }
    }

    fn verdict(&mut self, id: CallId, verdict: Verdict) {
        if self.remove(id).is_some() {
            self.effects.push(Effect::Verdict { call: id, verdict });
        }
    }

    fn remove(&mut self, id: CallId) -> Option<Call<B>> {
        let call = self.calls.remove(&id)?;
        self.by_instance.remove(&(call.request.instance, id));
        if let Phase::Forwarded(forwarded) = &call.phase {
            self.numbers.remove(&forwarded.number);
        }
        Some(call)
    }

    fn calls_of(&self, instance: InstanceId) -> Vec<CallId> {
        let of = self.by_instance.range((instance, CallId(0))..=(instance, CallId(u64::MAX)));
        of.map(|(_, id)| *id).collect()
    }
}

impl Placing {
    fn begun(now: Moment) -> Placing {
        Placing { tried: Vec::new(), asked: None, again: now, lacking: None }
    }
}
