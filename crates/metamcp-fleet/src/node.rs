//! One gateway of a fleet: composes the rooms of this crate.
//! Owns: this node's leases, its clients' calls, the calls of others that run here.      Never: sends, waits, or looks at a clock.
//! In: what the bus, the clients, the processes and the operator say, with the time.  Out: `Effect`s, in order.
//! Tests: `tests/sim.rs`.
//!
//! The caller of every method carries out [`Node::effects`] before it calls the next one, and calls [`Node::tick`] every
//! [`crate::timing::TICK`].

mod calls;
mod owning;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use metamcp_types::moment::Moment;

use crate::directory::{About, Directory, Heartbeat, Ignored, PROTOCOL};
use crate::drain::{Drains, Target};
use crate::identity::{InstanceId, NodeRef, Stamp};
use crate::lease::{self, Answer, Entry, Lease};
use crate::message::{Message, Part};
use crate::placement::{NoNode, Requirements};
use crate::routing::{NotRun, Unknown};
use crate::serving::{ForeignCall, Limits, Serving};
use crate::timing::{HEARTBEAT_EVERY, RETRY, Timing};

use calls::{Call, Placing};

/// A call of a client of this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A call as a process of this node sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Run {
    /// With the epoch, because a harmless call may run here again.
    Ours {
        call: CallId,
        epoch: Stamp,
    },
    Foreign(ForeignCall),
}

/// What a client asks for.
#[derive(Debug, Clone)]
pub struct Request<B> {
    pub instance: InstanceId,
    pub requirements: Arc<Requirements>,
    /// Running it twice does no harm: the tool or the operator says so.
    pub is_harmless: bool,
    pub body: B,
}

/// How a call ended. Each gets one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Answered,
    /// It may have run.
    OutcomeUnknown(Unknown),
    /// It was not run and will not be.
    NotRun(WhyNot),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhyNot {
    /// No node can own the instance.
    NoNode(NoNode),
    /// Those that were asked would not take the call; this is what the last one said.
    NotTaken(NotRun),
    /// Nobody owned the instance, or its owner could not be reached, for as long as a call waits.
    NoOwner,
    /// This node has no part in the fleet any more.
    NotInFleet,
}

/// What is to be done, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect<B> {
    /// A write or a read of an instance's key, or the end of its process. The engine says what came of it by
    /// [`Node::answered`], [`Node::entry`] or [`Node::absent`], and [`Node::ended`].
    Lease {
        instance: InstanceId,
        effect: lease::Effect,
    },
    /// Write down in the bucket that it is old enough for claims.
    MarkReady,
    Broadcast(Heartbeat),
    /// If `Message::Call` cannot be delivered, the engine says so by [`Node::not_delivered`].
    Send {
        to: NodeRef,
        message: Message<B>,
    },
    /// To the process of that instance and epoch, which is started if need be. Right before the bytes leave, the engine
    /// asks [`Node::may_act`] with a fresh look at the clock.
    Run {
        run: Run,
        instance: InstanceId,
        epoch: Stamp,
        body: B,
    },
    /// The client's answer to a request of the server.
    Input {
        run: Run,
        body: B,
    },
    /// Nobody waits for that call any more.
    Abort {
        run: Run,
    },
    /// To the client. `rerun` counts how often the call was made again; an answer to a request of the server repeats it.
    Part {
        call: CallId,
        rerun: u32,
        part: Part<B>,
    },
    /// The call is made again elsewhere: what came of its result so far is void, and nobody waits for the client's answers.
    Discard {
        call: CallId,
    },
    Verdict {
        call: CallId,
        verdict: Verdict,
    },
    /// For the log.
    Ignored {
        from: NodeRef,
        why: Ignored,
    },
}

/// Whether this node should be given new clients, and why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// The bus is gone: what this node owns goes on, the last of it until then.
    NoBus {
        until: Option<Moment>,
    },
    /// The bus lost the leases; nothing is claimed before every old one has run out.
    BucketTooNew,
    Draining,
    /// A later process has this node's name.
    Superseded,
}

#[derive(Debug)]
pub struct Node<B> {
    me: NodeRef,
    timing: Timing,
    about: Arc<About>,
    beat: u64,
    beat_at: Moment,
    directory: Directory,
    leases: BTreeMap<InstanceId, Lease>,
    /// Those of which this node has, or may have, the process.
    owned: BTreeSet<InstanceId>,
    /// When each lease wants a look at the clock: there are as many as the fleet has instances, and few that do.
    due: BTreeSet<(Moment, InstanceId)>,
    attempts: u64,
    drains: Drains,
    serving: Serving<B>,
    calls: BTreeMap<CallId, Call<B>>,
    by_instance: BTreeSet<(InstanceId, CallId)>,
    /// Forwarded calls by their numbers.
    numbers: BTreeMap<u64, CallId>,
    last_number: u64,
    placings: BTreeMap<InstanceId, Placing>,
    has_bus: bool,
    is_superseded: bool,
    bucket: u64,
    bucket_seen: Moment,
    bucket_is_ready: bool,
    marked_at: Moment,
    effects: Vec<Effect<B>>,
}

impl<B: Clone> Node<B> {
    /// A node that has registered: its incarnation is the revision of that. Before [`Node::bucket`] it claims nothing.
    pub fn new(me: NodeRef, about: About, limits: Limits, timing: Timing, now: Moment) -> Node<B> {
        Node {
            me,
            timing,
            about: Arc::new(about),
            beat: 0,
            beat_at: now,
            directory: Directory::default(),
            leases: BTreeMap::new(),
            owned: BTreeSet::new(),
            due: BTreeSet::new(),
            attempts: 0,
            drains: Drains::default(),
            serving: Serving::new(limits),
            calls: BTreeMap::new(),
            by_instance: BTreeSet::new(),
            numbers: BTreeMap::new(),
            last_number: 0,
            placings: BTreeMap::new(),
            has_bus: true,
            is_superseded: false,
            bucket: 0,
            bucket_seen: now,
            bucket_is_ready: false,
            marked_at: Moment::START,
            effects: Vec::new(),
        }
    }

    /// What is to be done since this was last called.
    pub fn effects(&mut self) -> Vec<Effect<B>> {
        std::mem::take(&mut self.effects)
    }

    pub fn me(&self) -> &NodeRef {
        &self.me
    }

    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    pub fn readiness(&self) -> Readiness {
        if self.is_superseded {
            Readiness::Superseded
        } else if self.drains.is_node() {
            Readiness::Draining
        } else if !self.has_bus {
            let leases = self.owned.iter().filter_map(|instance| self.leases.get(instance));
            let until = leases.filter_map(Lease::good_until).max();
            Readiness::NoBus { until }
        } else if !self.bucket_is_ready {
            Readiness::BucketTooNew
        } else {
            Readiness::Ready
        }
    }

    /// Whether this node has nothing left that keeps it from stopping: after a drain. The engine then stops listening on
    /// the bus, so that whoever sends a call is told that nobody is there, answers what came before, and ends.
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty()
            && self.serving.is_empty()
            && self.leases.values().all(|lease| {
                let is_ours = lease.owner().is_some_and(|(owner, _)| *owner == self.me);
                lease.epoch().is_none() && !lease.is_claiming() && !is_ours
            })
    }

    // -- the bus --

    /// The bucket of leases, when the bus is reached: which one, and whether it says that it is ready for claims. One
    /// that was lost and made again has other revisions, and holders that do not know of it.
    pub fn bucket(&mut self, bucket: u64, is_ready: bool, now: Moment) {
        if bucket != self.bucket {
            self.bucket = bucket;
            self.bucket_seen = now;
            self.bucket_is_ready = false;
            for instance in self.instances() {
                self.with_lease(instance, now, Lease::abandon);
            }
        }
        self.bucket_is_ready |= is_ready;
    }

    pub fn bus_lost(&mut self) {
        self.has_bus = false;
    }

    pub fn bus_back(&mut self, now: Moment) {
        self.has_bus = true;
        self.beat_at = now;
        for instance in self.owned.clone() {
            self.with_lease(instance, now, Lease::renew_soon);
        }
        self.tick(now);
    }

    /// The key of an instance, from the watch or a look.
    pub fn entry(
        &mut self,
        instance: InstanceId,
        revision: Stamp,
        entry: Option<Entry>,
        now: Moment,
    ) {
        if revision.bucket == self.bucket {
            self.with_lease(instance, now, |lease, cx| lease.seen(revision, entry, cx));
        }
    }

    /// A look found no key.
    pub fn absent(&mut self, instance: InstanceId, attempt: u64, now: Moment) {
        self.with_lease(instance, now, |lease, cx| lease.absent(attempt, cx));
    }

    /// The bus answered a write. The stamp of a claim has the bucket as it is after the claim.
    pub fn answered(&mut self, instance: InstanceId, attempt: u64, answer: Answer, now: Moment) {
        let answer = match answer {
            Answer::Done(stamp) if stamp.bucket != self.bucket || !self.bucket_is_ready => {
                Answer::Conflict
            }
            other => other,
        };
        self.with_lease(instance, now, |lease, cx| lease.answered(attempt, answer, cx));
    }

    /// A copy of a call, the number of which is this, could not be sent, or nobody was there to take it.
    pub fn not_delivered(&mut self, number: u64, now: Moment) {
        if let Some(&id) = self.numbers.get(&number)
            && let Some(forwarded) = self.forwarded(id)
            && let Some(ending) = forwarded.not_delivered()
        {
            self.call_ended(id, ending, now);
        }
    }

    /// Another node said something.
    pub fn heard(&mut self, from: &NodeRef, message: Message<B>, now: Moment) {
        if from.name == self.me.name {
            if from.incarnation > self.me.incarnation && !self.is_superseded {
                self.is_superseded = true;
                for instance in self.instances() {
                    self.with_lease(instance, now, Lease::abandon);
                }
            }
            return;
        }
        match message {
            Message::Heartbeat(heartbeat) => self.heartbeat(from, heartbeat, now),
            Message::Own { instance, requirements } => {
                if self.speaks_with(from, now) {
                    self.asked_to_own(from, instance, &requirements, now);
                }
            }
            Message::Declined { instance, why } => self.declined(from, instance, why, now),
            Message::Call { number, instance, epoch, body } => {
                // Without a heartbeat it may be a late copy of one who is long gone. Somebody who lives says it again.
                if self.speaks_with(from, now) {
                    self.foreign_call(from, number, (instance, epoch), body, now);
                }
            }
            Message::Accepted { number } => {
                if let Some(id) = self.answer_from(from, number)
                    && let Some(forwarded) = self.forwarded(id)
                {
                    forwarded.accepted(now);
                }
            }
            Message::Refused { number, why } => {
                if let Some(id) = self.answer_from(from, number)
                    && let Some(forwarded) = self.forwarded(id)
                {
                    let ending = forwarded.refused(why);
                    self.call_ended(id, ending, now);
                }
            }
            Message::Forgotten { number } => {
                if let Some(id) = self.answer_from(from, number) {
                    self.call_ended(id, crate::routing::Ending::Unknown(Unknown::Forgotten), now);
                }
            }
            Message::Output { number, sequence, part } => {
                self.output_came(from, number, (sequence, part), now);
            }
            Message::InputSeen { number, next } => {
                if let Some(id) = self.answer_from(from, number)
                    && let Some(forwarded) = self.forwarded(id)
                {
                    let steps = forwarded.input_seen(next, now);
                    self.routed(id, steps, now);
                }
            }
            Message::OutputSeen { number, next } => {
                self.serving.output_seen(&foreign(from, number), next, now);
            }
            Message::Input { number, sequence, body } => {
                self.serving.input(&foreign(from, number), sequence, body);
            }
            Message::Poll { number } => self.serving.poll(&foreign(from, number)),
            Message::Cancel { number } => self.serving.cancel(foreign(from, number)),
        }
        self.served();
        self.close_what_is_due(now);
    }

    /// A look at the clock.
    pub fn tick(&mut self, now: Moment) {
        for name in self.directory.tick(now) {
            self.serving.forget(&name);
        }
        if now >= self.beat_at && !self.is_superseded {
            self.beat_at = now + HEARTBEAT_EVERY;
            let heartbeat = self.next_heartbeat();
            self.effects.push(Effect::Broadcast(heartbeat));
        }
        if !self.bucket_is_ready
            && self.bucket != 0
            && now.since(self.bucket_seen) >= self.timing.surely_over()
            && now >= self.marked_at
        {
            self.marked_at = now + RETRY * 5;
            self.effects.push(Effect::MarkReady);
        }
        let until = (now, InstanceId(u128::MAX));
        let due: Vec<InstanceId> =
            self.due.range(..=until).map(|(_, instance)| *instance).collect();
        for instance in due {
            self.with_lease(instance, now, Lease::tick);
        }
        let directory = &self.directory;
        self.serving.tick(|node| directory.is_alive(node, now), now);
        self.served();
        self.tick_calls(now);
        self.close_what_is_due(now);
    }

    // -- the operator --

    /// The node is to stop: it takes nothing new, and calls in flight have until then.
    pub fn drain(&mut self, until: Moment, now: Moment) {
        self.drains.node(until);
        self.beat_at = now;
        self.tick(now);
    }

    /// An instance is to leave this node: nobody uses it, or an operator moves it.
    pub fn leave(&mut self, instance: InstanceId, to: Option<Target>, until: Moment, now: Moment) {
        if self.leases.get(&instance).is_some_and(|lease| lease.owned().is_some()) {
            self.drains.leave(instance, to, until);
            self.close_what_is_due(now);
        }
    }

    // -- below --

    fn heartbeat(&mut self, from: &NodeRef, heartbeat: Heartbeat, now: Moment) {
        match self.directory.heard(from, heartbeat, now) {
            Ok(is_new) => {
                if is_new && !self.is_superseded {
                    // It may be new here and wait for somebody to know.
                    let message = Message::Heartbeat(self.next_heartbeat());
                    self.effects.push(Effect::Send { to: from.clone(), message });
                }
            }
            Err(Ignored::Stale) => {}
            Err(why) => self.effects.push(Effect::Ignored { from: from.clone(), why }),
        }
    }

    fn next_heartbeat(&mut self) -> Heartbeat {
        self.beat += 1;
        self.own_heartbeat()
    }

    fn own_heartbeat(&self) -> Heartbeat {
        Heartbeat {
            about: self.about.clone(),
            beat: self.beat,
            instances: u32::try_from(self.owned.len()).unwrap_or(u32::MAX),
            calls: u32::try_from(self.serving.len()).unwrap_or(u32::MAX),
            is_draining: self.drains.is_node(),
        }
    }

    /// Whether that process lives and speaks our protocol.
    fn speaks_with(&self, node: &NodeRef, now: Moment) -> bool {
        self.directory.is_alive(node, now)
            && self
                .directory
                .peer(&node.name)
                .is_some_and(|peer| peer.last.about.protocol == PROTOCOL)
    }

    fn may_claim(&self) -> bool {
        self.has_bus && self.bucket_is_ready && !self.is_superseded && !self.drains.is_node()
    }

    fn instances(&self) -> Vec<InstanceId> {
        self.leases.keys().copied().collect()
    }
}

fn foreign(caller: &NodeRef, number: u64) -> ForeignCall {
    ForeignCall { caller: caller.clone(), number }
}
