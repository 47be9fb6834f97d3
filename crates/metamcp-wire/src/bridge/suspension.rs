//! A call that is held open because its server asks in the middle of it, for a client that cannot be asked but comes
//! again: each of its requests waits until there is an answer, or something to ask.

use std::collections::BTreeMap;

use super::MAX_INPUT_ROUNDS;
use crate::modern::input::MAX_QUESTIONS;

/// What happens to a held call. Questions are known by numbers that whoever uses this gives out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server asks.
    Asked(u64),
    /// The server takes a question back.
    Withdrawn(u64),
    /// The call has its answer.
    Done,
    /// The client comes again, with answers to these.
    Retried {
        /// The round its ticket was made in.
        round: u32,
        /// The questions it answers, in the order of its answers.
        answers: Vec<u64>,
    },
    /// The client called the waiting request off.
    Cancelled,
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answer the waiting request: these questions are open, and a ticket of this round takes the answers.
    Respond {
        /// The round.
        round: u32,
        /// The questions.
        questions: Vec<u64>,
    },
    /// Answer the waiting request with the answer of the call.
    Deliver,
    /// Answer the waiting request: the call has asked too often.
    GiveUp,
    /// Pass the client's answer on to the server that asked.
    Forward(u64),
    /// Tell the server that its question will not be answered.
    Refuse(u64),
    /// Answer the request that just came: another one is waiting for this call, or its ticket was used before.
    Reject,
    /// Call off the call.
    Abandon,
    /// It is over: forget it.
    Forget,
}

/// See the module. Times are milliseconds of any clock.
#[derive(Clone, Debug)]
pub struct Suspension {
    /// Whether a request of the client waits for this call.
    waiting: bool,
    /// Open questions, and whether the client has been told of them.
    open: BTreeMap<u64, bool>,
    done: bool,
    over: bool,
    round: u32,
    patience: u64,
    /// Until when the client may come again; only while nobody waits.
    until: u64,
}

impl Suspension {
    /// A call whose first request waits. Between requests it is held for `patience`.
    pub fn new(patience: u64) -> Suspension {
        Suspension {
            waiting: true,
            open: BTreeMap::new(),
            done: false,
            over: false,
            round: 0,
            patience,
            until: u64::MAX,
        }
    }

    /// Whether a request of the client waits for an answer.
    pub fn is_waiting(&self) -> bool {
        self.waiting && !self.over
    }

    /// Whether it is held between two requests of the client.
    pub fn is_suspended(&self) -> bool {
        !self.waiting && !self.over
    }

    /// When it wants to be told the time.
    pub fn until(&self) -> u64 {
        if self.is_suspended() { self.until } else { u64::MAX }
    }

    /// One event, and what follows from it.
    pub fn take(&mut self, event: Event, now: u64) -> Vec<Effect> {
        if self.over {
            return match event {
                Event::Asked(question) => vec![Effect::Refuse(question)],
                Event::Retried { .. } => vec![Effect::Reject],
                _ => Vec::new(),
            };
        }
        let mut effects = Vec::new();
        match event {
            Event::Asked(question) => self.asked(question, now, &mut effects),
            Event::Withdrawn(question) => drop(self.open.remove(&question)),
            Event::Done => {
                self.done = true;
                // A server that was called several times does not say for which call it asks, so what is open here may be
                // another call's: the client, which knows of it, may still answer.
                if self.waiting {
                    self.refuse_all(&mut effects);
                    effects.push(Effect::Deliver);
                    self.end(&mut effects);
                }
            }
            Event::Retried { round, answers } => self.retried(round, answers, now, &mut effects),
            Event::Cancelled => {
                if self.waiting {
                    self.abandon(&mut effects);
                }
            }
            Event::Tick => {
                if !self.waiting && now >= self.until {
                    self.abandon(&mut effects);
                }
            }
        }
        effects
    }

    fn asked(&mut self, question: u64, now: u64, effects: &mut Vec<Effect>) {
        if self.done || self.open.len() >= MAX_QUESTIONS || self.open.contains_key(&question) {
            return effects.push(Effect::Refuse(question));
        }
        self.open.insert(question, false);
        if self.waiting {
            self.respond(now, effects);
        }
    }

    fn retried(&mut self, round: u32, answers: Vec<u64>, now: u64, effects: &mut Vec<Effect>) {
        if self.waiting || round != self.round {
            return effects.push(Effect::Reject);
        }
        self.waiting = true;
        self.until = u64::MAX;
        for question in answers {
            if self.open.get(&question) == Some(&true) {
                self.open.remove(&question);
                effects.push(Effect::Forward(question));
            }
        }
        // What the client was told of and did not answer keeps no answer from it, nor does what is too much to ask.
        let asks_on = self.round < MAX_INPUT_ROUNDS && self.open.values().any(|told| !told);
        if self.done && !asks_on {
            self.refuse_all(effects);
            effects.push(Effect::Deliver);
            self.end(effects);
        } else if !self.open.is_empty() {
            self.respond(now, effects);
        }
    }

    fn respond(&mut self, now: u64, effects: &mut Vec<Effect>) {
        if self.round == MAX_INPUT_ROUNDS {
            effects.push(Effect::GiveUp);
            return self.abandon(effects);
        }
        self.round += 1;
        self.open.values_mut().for_each(|told| *told = true);
        let questions = self.open.keys().copied().collect();
        effects.push(Effect::Respond { round: self.round, questions });
        self.waiting = false;
        self.until = now.saturating_add(self.patience);
    }

    fn abandon(&mut self, effects: &mut Vec<Effect>) {
        self.refuse_all(effects);
        if !self.done {
            effects.push(Effect::Abandon);
        }
        self.end(effects);
    }

    fn refuse_all(&mut self, effects: &mut Vec<Effect>) {
        effects.extend(std::mem::take(&mut self.open).into_keys().map(Effect::Refuse));
    }

    fn end(&mut self, effects: &mut Vec<Effect>) {
        self.over = true;
        effects.push(Effect::Forget);
    }
}
