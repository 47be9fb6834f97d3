//! The caller's side of a call that runs on another node: published, accepted, answered in parts.
//! Owns: one call on its way to one owner: what may be said of it when something goes wrong.      Never: chooses the owner, sends a message.
//! In: messages of the owner, what became of its lease, the time.  Out: `Step`s, the last of which is how it ended.
//! Tests: `routing/tests.rs`, `tests/sim.rs`.
//!
//! Until the owner says that it accepted the call, the same message is sent again: the owner knows it by its number. Only
//! the owner can say that a call was not run, or the bus, if nobody was there to hear the only copy. Everything else that
//! goes wrong leaves it unknown.

use metamcp_types::moment::Moment;

use crate::identity::{InstanceId, NodeRef, Stamp};
use crate::message::{Message, Part, Refusal};
use crate::ordered::{Incoming, Outgoing};
use crate::timing::{POLL, RESEND, SILENCE, STRAGGLER};

/// How a forwarded call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All of the result has arrived.
    Answered,
    /// It was not run there and will not be.
    NotRun(NotRun),
    /// It may have run.
    Unknown(Unknown),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotRun {
    Refused(Refusal),
    /// It never left this node, or nobody was there to take it.
    NotDelivered,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unknown {
    /// The owner is not heard of any more.
    OwnerSilent,
    /// The owner's lease is over.
    LeaseGone,
    /// The owner does not say whether it accepted the call.
    NotAccepted,
    /// The owner does not know the call any more.
    Forgotten,
    /// This node's own lease was lost while the call ran here.
    Fenced,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Step<B> {
    Send(Message<B>),
    /// For the client, in order.
    Part(Part<B>),
    Over(Ending),
}

/// One call with one owner.
#[derive(Debug)]
pub struct Forwarded<B> {
    pub owner: NodeRef,
    pub epoch: Stamp,
    pub number: u64,
    instance: InstanceId,
    body: B,
    began: Moment,
    published: u32,
    touched: Moment,
    is_accepted: bool,
    /// When the owner last said something about this call.
    heard: Moment,
    polled: Moment,
    /// When it ends as unknown, because the lease is gone.
    ends: Moment,
    output: Incoming<Part<B>>,
    input: Outgoing<B>,
}

impl<B: Clone> Forwarded<B> {
    pub fn new(
        owner: NodeRef,
        epoch: Stamp,
        number: u64,
        instance: InstanceId,
        body: B,
        now: Moment,
    ) -> Forwarded<B> {
        Forwarded {
            owner,
            epoch,
            number,
            instance,
            body,
            began: now,
            published: 0,
            touched: now,
            is_accepted: false,
            heard: now,
            polled: now,
            ends: Moment::NEVER,
            output: Incoming::default(),
            input: Outgoing::default(),
        }
    }

    /// The message itself; again if no acceptance comes.
    pub fn publish(&mut self, now: Moment) -> Message<B> {
        self.published += 1;
        self.touched = now;
        let (number, instance, epoch, body) =
            (self.number, self.instance, self.epoch, self.body.clone());
        Message::Call { number, instance, epoch, body }
    }

    pub fn accepted(&mut self, now: Moment) {
        self.is_accepted = true;
        self.heard = now;
    }

    pub fn refused(&mut self, why: Refusal) -> Ending {
        // An owner that says both is not to be believed in either.
        if self.is_accepted {
            Ending::Unknown(Unknown::Forgotten)
        } else {
            Ending::NotRun(NotRun::Refused(why))
        }
    }

    /// The bus could not deliver a copy, or this node could not send it. That says something only of the sole copy.
    pub fn not_delivered(&mut self) -> Option<Ending> {
        (self.published == 1 && !self.is_accepted).then_some(Ending::NotRun(NotRun::NotDelivered))
    }

    /// The watch shows that the owner does not own the instance under this epoch any more.
    pub fn lease_gone(&mut self, now: Moment) {
        self.ends = self.ends.min(now + STRAGGLER);
    }

    pub fn output(&mut self, sequence: u64, part: Part<B>, now: Moment) -> Vec<Step<B>> {
        self.accepted(now);
        let parts = self.output.arrived(sequence, part);
        let is_over = parts.iter().any(Part::is_last);
        let mut steps: Vec<Step<B>> = parts.into_iter().map(Step::Part).collect();
        steps.extend(self.acknowledgement(is_over));
        if is_over {
            steps.push(Step::Over(Ending::Answered));
        }
        steps
    }

    /// An answer of the client to a request of the server.
    pub fn input(&mut self, body: B, now: Moment) -> Vec<Step<B>> {
        self.input.push(body, false);
        let ready = self.input.ready(now);
        self.inputs(ready)
    }

    pub fn input_seen(&mut self, next: u64, now: Moment) -> Vec<Step<B>> {
        self.accepted(now);
        self.input.acknowledged(next, now);
        let ready = self.input.ready(now);
        self.inputs(ready)
    }

    /// A look at the clock. `is_alive` says whether the owner, in this incarnation, was heard of lately.
    pub fn tick(&mut self, is_alive: bool, now: Moment) -> Vec<Step<B>> {
        if now >= self.ends {
            return vec![Step::Over(Ending::Unknown(Unknown::LeaseGone))];
        }
        if !is_alive {
            return vec![Step::Over(Ending::Unknown(Unknown::OwnerSilent))];
        }
        let mut steps = Vec::new();
        if self.is_accepted {
            if now.since(self.heard) >= POLL + SILENCE {
                return vec![Step::Over(Ending::Unknown(Unknown::Forgotten))];
            }
            if now.since(self.heard.max(self.polled)) >= POLL {
                self.polled = now;
                steps.push(Step::Send(Message::Poll { number: self.number }));
            }
        } else if now.since(self.began) >= SILENCE {
            return vec![Step::Over(Ending::Unknown(Unknown::NotAccepted))];
        } else if now.since(self.touched) >= RESEND {
            let again = self.publish(now);
            steps.push(Step::Send(again));
        }
        steps.extend(self.acknowledgement(true));
        let overdue = self.input.overdue(now);
        steps.extend(self.inputs(overdue));
        steps
    }

    fn acknowledgement(&mut self, at_once: bool) -> Option<Step<B>> {
        let number = self.number;
        let next = self.output.acknowledge(at_once)?;
        Some(Step::Send(Message::OutputSeen { number, next }))
    }

    fn inputs(&self, items: Vec<(u64, B)>) -> Vec<Step<B>> {
        let number = self.number;
        let message = |(sequence, body)| Step::Send(Message::Input { number, sequence, body });
        items.into_iter().map(message).collect()
    }
}

#[cfg(test)]
mod tests;
