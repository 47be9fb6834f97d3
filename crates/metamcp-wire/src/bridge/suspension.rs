//! A suspended call: its server sent a request in the middle of it, and the stateless client can only be asked by
//! `input_required`. Each request of the client waits until there is a result, or something to ask.

use std::collections::BTreeMap;

use super::MAX_INPUT_ROUNDS;
use crate::modern::input::MAX_QUESTIONS;

/// What happens to a suspended call. Server requests have numbers given by the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A server request.
    Asked(u64),
    /// The server cancels a request.
    Withdrawn(u64),
    /// The call has its result.
    Done,
    /// The client retries, with these answers.
    Retried {
        /// The retry for which its resume token was made.
        round: u32,
        /// The server requests it answers, in the order of its answers.
        answers: Vec<u64>,
    },
    /// The client cancelled the waiting request.
    Cancelled,
    Tick,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answer the waiting request with `input_required`: these server requests are open, and a resume token of this retry
    /// accepts the answers.
    Respond {
        round: u32,
        questions: Vec<u64>,
    },
    /// Answer the waiting request with the result of the call.
    Deliver,
    /// Answer the waiting request with an error: too many retries.
    GiveUp,
    /// Pass the client's answer on to the server.
    Forward(u64),
    /// Refuse the server request.
    Refuse(u64),
    /// Answer the request that just came with an error: another one is waiting for this call, or its resume token was used.
    Reject,
    Abandon,
    /// It is over: drop it.
    Forget,
}

/// Times are milliseconds of any clock.
#[derive(Clone, Debug)]
pub struct Suspension {
    waiting: bool,
    /// Open server requests, and whether the client has been told of them.
    open: BTreeMap<u64, bool>,
    done: bool,
    over: bool,
    round: u32,
    patience: u64,
    /// Until when the client may retry; only while no request waits.
    until: u64,
}

impl Suspension {
    /// A call whose first request waits. Between requests it is suspended for `patience`.
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

    pub fn is_waiting(&self) -> bool {
        self.waiting && !self.over
    }

    /// Whether it is suspended between two requests of the client.
    pub fn is_suspended(&self) -> bool {
        !self.waiting && !self.over
    }

    /// When it needs the next time event.
    pub fn until(&self) -> u64 {
        if self.is_suspended() { self.until } else { u64::MAX }
    }

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
                // A server with several calls does not say for which one it asks, so a request that is open here may be
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
        // Neither a server request that the client left unanswered nor too many of them delay the result.
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
