//! The owner's side of forwarded calls: taken once, run here, answered in parts.
//! Owns: the calls of other nodes that run here, what each said and has not been acknowledged.      Never: decides whether this node owns an instance.
//! In: messages of callers, what processes say, the time.  Out: `Step`s.
//! Tests: `serving/tests.rs`, `tests/sim.rs`.

use std::collections::BTreeMap;

use metamcp_types::moment::Moment;

use crate::identity::{InstanceId, NodeRef, Stamp};
use crate::message::{Message, Part, Refusal};
use crate::ordered::{Incoming, Outgoing};
use crate::window::{Seen, Windows};

/// How much of others a node takes.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Calls that run at a time.
    pub calls: usize,
    /// Numbers of each caller that are remembered.
    pub window: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { calls: 1024, window: 1024 }
    }
}

/// A call of another node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ForeignCall {
    pub caller: NodeRef,
    pub number: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Step<B> {
    Send {
        to: NodeRef,
        message: Message<B>,
    },
    /// To the process.
    Run {
        call: ForeignCall,
        instance: InstanceId,
        epoch: Stamp,
        body: B,
    },
    Input {
        call: ForeignCall,
        body: B,
    },
    /// Nobody waits for it any more.
    Abort {
        call: ForeignCall,
    },
}

#[derive(Debug)]
struct Running<B> {
    instance: InstanceId,
    epoch: Stamp,
    output: Outgoing<Part<B>>,
    input: Incoming<B>,
    /// The last part is in `output`.
    is_finished: bool,
    /// Its caller was told that it is here, by an acceptance or by anything else.
    is_told: bool,
}

#[derive(Debug)]
pub struct Serving<B> {
    windows: Windows,
    limits: Limits,
    running: BTreeMap<ForeignCall, Running<B>>,
    in_flight: BTreeMap<InstanceId, usize>,
    steps: Vec<Step<B>>,
}

impl<B: Clone> Serving<B> {
    pub fn new(limits: Limits) -> Serving<B> {
        Serving {
            windows: Windows::new(limits.window),
            limits,
            running: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            steps: Vec::new(),
        }
    }

    /// Whether no more calls are taken.
    pub fn is_full(&self) -> bool {
        self.running.len() >= self.limits.calls
    }

    /// What is to be done since this was last called.
    pub fn steps(&mut self) -> Vec<Step<B>> {
        std::mem::take(&mut self.steps)
    }

    /// Calls that run here, or whose answers are not acknowledged.
    pub fn len(&self) -> usize {
        self.running.len()
    }

    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// The same of one instance.
    pub fn in_flight(&self, instance: InstanceId) -> usize {
        self.in_flight.get(&instance).copied().unwrap_or(0)
    }

    /// A call came. `refusal` is what is said to it if it is new.
    pub fn call(
        &mut self,
        call: ForeignCall,
        (instance, epoch): (InstanceId, Stamp),
        body: B,
        refusal: Option<Refusal>,
    ) {
        let number = call.number;
        match self.windows.look(&call.caller, number) {
            Seen::New => {
                self.windows.remember(&call.caller, number, refusal);
                if let Some(why) = refusal {
                    let message = Message::Refused { number, why };
                    self.steps.push(Step::Send { to: call.caller, message });
                } else {
                    // Most calls end before the next look at the clock, and an answer says all that an acceptance would.
                    let running = Running {
                        instance,
                        epoch,
                        output: Outgoing::default(),
                        input: Incoming::default(),
                        is_finished: false,
                        is_told: false,
                    };
                    self.running.insert(call.clone(), running);
                    *self.in_flight.entry(instance).or_default() += 1;
                    self.steps.push(Step::Run { call, instance, epoch, body });
                }
            }
            Seen::Taken => self.poll(&call),
            Seen::Refused(why) => {
                let message = Message::Refused { number, why };
                self.steps.push(Step::Send { to: call.caller, message });
            }
            Seen::TooOld => self.forgot(call),
        }
    }

    /// Whether the call is still here.
    pub fn poll(&mut self, call: &ForeignCall) {
        if let Some(running) = self.running.get_mut(call) {
            running.is_told = true;
            let message = Message::Accepted { number: call.number };
            self.steps.push(Step::Send { to: call.caller.clone(), message });
        } else {
            self.forgot(call.clone());
        }
    }

    fn forgot(&mut self, call: ForeignCall) {
        let message = Message::Forgotten { number: call.number };
        self.steps.push(Step::Send { to: call.caller, message });
    }

    /// The caller does not want it any more.
    pub fn cancel(&mut self, call: ForeignCall) {
        if self.remove(&call) {
            self.steps.push(Step::Abort { call });
        } else if self.windows.look(&call.caller, call.number) == Seen::New {
            // It overtook the call.
            self.windows.remember(&call.caller, call.number, Some(Refusal::Cancelled));
        }
    }

    /// The process said something.
    pub fn output(&mut self, call: &ForeignCall, part: Part<B>, now: Moment) {
        let Some(running) = self.running.get_mut(call) else { return };
        if running.is_finished {
            return;
        }
        running.is_finished = part.is_last();
        running.is_told = true;
        let may_be_dropped = matches!(part, Part::Notification(_));
        running.output.push(part, may_be_dropped);
        let ready = running.output.ready(now);
        self.outputs(call, ready);
    }

    pub fn output_seen(&mut self, call: &ForeignCall, next: u64, now: Moment) {
        let Some(running) = self.running.get_mut(call) else { return };
        running.output.acknowledged(next, now);
        if running.is_finished && running.output.is_empty() {
            self.remove(call);
            return;
        }
        let ready = running.output.ready(now);
        self.outputs(call, ready);
    }

    /// The client's answer to a request of the server.
    pub fn input(&mut self, call: &ForeignCall, sequence: u64, body: B) {
        let Some(running) = self.running.get_mut(call) else { return };
        for body in running.input.arrived(sequence, body) {
            self.steps.push(Step::Input { call: call.clone(), body });
        }
        if let Some(next) = running.input.acknowledge(true) {
            let message = Message::InputSeen { number: call.number, next };
            self.steps.push(Step::Send { to: call.caller.clone(), message });
        }
    }

    /// This node does not act under that epoch any more: nothing is said about its calls.
    pub fn fence(&mut self, instance: InstanceId, epoch: Stamp) {
        let is_of = |running: &Running<B>| running.instance == instance && running.epoch == epoch;
        let of: Vec<ForeignCall> = self
            .running
            .iter()
            .filter(|(_, running)| is_of(running))
            .map(|(call, _)| call.clone())
            .collect();
        for call in of {
            self.remove(&call);
        }
    }

    /// A look at the clock: accepts what has said nothing yet, sends again, and gives up calls whose caller is dead.
    pub fn tick(&mut self, is_alive: impl Fn(&NodeRef) -> bool, now: Moment) {
        let mut again = Vec::new();
        let (mut dead, mut accepted) = (Vec::new(), Vec::new());
        for (call, running) in &mut self.running {
            if !is_alive(&call.caller) {
                dead.push(call.clone());
                continue;
            }
            if !running.is_told {
                running.is_told = true;
                accepted.push(call.clone());
            }
            let overdue = running.output.overdue(now);
            if !overdue.is_empty() {
                again.push((call.clone(), overdue));
            }
        }
        for ForeignCall { caller, number } in accepted {
            self.steps.push(Step::Send { to: caller, message: Message::Accepted { number } });
        }
        for (call, overdue) in again {
            self.outputs(&call, overdue);
        }
        for call in dead {
            self.remove(&call);
            self.steps.push(Step::Abort { call });
        }
    }

    /// A node nobody has heard of for long.
    pub fn forget(&mut self, name: &crate::identity::NodeName) {
        self.windows.forget(name);
    }

    fn outputs(&mut self, call: &ForeignCall, items: Vec<(u64, Part<B>)>) {
        for (sequence, part) in items {
            let message = Message::Output { number: call.number, sequence, part };
            self.steps.push(Step::Send { to: call.caller.clone(), message });
        }
    }

    fn remove(&mut self, call: &ForeignCall) -> bool {
        let Some(running) = self.running.remove(call) else { return false };
        if let Some(count) = self.in_flight.get_mut(&running.instance) {
            *count -= 1;
            if *count == 0 {
                self.in_flight.remove(&running.instance);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
