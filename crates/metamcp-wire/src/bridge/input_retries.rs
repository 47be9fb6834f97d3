//! A call to a server that keeps nothing, for a client that is asked in the middle of a call: the server's questions go
//! to the client one by one, and when all are answered the call is made again.

use super::MAX_INPUT_ROUNDS;
use crate::modern::input::{Question, Required, Responses};

/// What happens to such a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server answered that it needs this first.
    Required(Required),
    /// The client answered the question with this key: with a result, or not at all.
    Answered {
        /// The question's key.
        key: String,
        /// The result, raw.
        result: Option<Vec<u8>>,
    },
    /// Nobody wants the answer of the call any more.
    Cancelled,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Ask the client.
    Ask(Question),
    /// Take the question with this key back.
    Withdraw(String),
    /// Make the call again.
    Retry {
        /// With these answers.
        responses: Responses,
        /// And what the server wants back.
        state: Option<String>,
    },
    /// The call has failed.
    Fail(RetryError),
}

/// Why a call of this kind fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryError {
    /// The client did not answer something that only it can answer.
    Unanswered,
    /// The server asks again and again.
    TooOften,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct InputRetries {
    /// Questions of this round, each with its answer once there is one.
    asked: Vec<(Question, Option<Vec<u8>>)>,
    state: Option<String>,
    round: u32,
    /// Whether the client is being asked.
    asking: bool,
    over: bool,
}

impl InputRetries {
    /// A call that was made once.
    pub fn new() -> InputRetries {
        InputRetries::default()
    }

    /// Whether the client is being asked right now.
    pub fn is_asking(&self) -> bool {
        self.asking && !self.over
    }

    /// One event, and what follows from it.
    pub fn take(&mut self, event: Event) -> Vec<Effect> {
        if self.over {
            return Vec::new();
        }
        match event {
            Event::Required(required) => self.required(required),
            Event::Answered { key, result } => self.answered(&key, result),
            Event::Cancelled => {
                self.over = true;
                self.withdrawn(None)
            }
        }
    }

    fn required(&mut self, required: Required) -> Vec<Effect> {
        // A second answer to one request cannot come; if it does, it changes nothing.
        if self.asking {
            return Vec::new();
        }
        if self.round == MAX_INPUT_ROUNDS {
            self.over = true;
            return vec![Effect::Fail(RetryError::TooOften)];
        }
        self.round += 1;
        self.state = required.state;
        if required.questions.is_empty() {
            return vec![Effect::Retry { responses: Vec::new(), state: self.state.take() }];
        }
        self.asking = true;
        let effects = required.questions.iter().cloned().map(Effect::Ask).collect();
        self.asked = required.questions.into_iter().map(|question| (question, None)).collect();
        effects
    }

    fn answered(&mut self, key: &str, result: Option<Vec<u8>>) -> Vec<Effect> {
        if !self.asking {
            return Vec::new();
        }
        let open = self
            .asked
            .iter_mut()
            .find(|(question, answer)| question.key == key && answer.is_none());
        let Some((question, answer)) = open else { return Vec::new() };
        let elicitation = question.method == "elicitation/create";
        *answer = match result {
            Some(result) => Some(result),
            // A form that nobody filled in is a word of this protocol; a model or a folder that was not there is not.
            None if elicitation => Some(br#"{"action":"cancel"}"#.to_vec()),
            None => {
                self.over = true;
                let key = key.to_owned();
                let mut effects = self.withdrawn(Some(&key));
                effects.push(Effect::Fail(RetryError::Unanswered));
                return effects;
            }
        };
        if self.asked.iter().any(|(_, answer)| answer.is_none()) {
            return Vec::new();
        }
        self.asking = false;
        let responses = std::mem::take(&mut self.asked)
            .into_iter()
            .filter_map(|(question, answer)| Some((question.key, answer?)))
            .collect();
        vec![Effect::Retry { responses, state: self.state.take() }]
    }

    /// Takes back what is still open, except for the question that has just ended.
    fn withdrawn(&mut self, except: Option<&str>) -> Vec<Effect> {
        std::mem::take(&mut self.asked)
            .into_iter()
            .filter(|(question, answer)| {
                answer.is_none() && except.is_none_or(|except| question.key != except)
            })
            .map(|(question, _)| Effect::Withdraw(question.key))
            .collect()
    }
}
