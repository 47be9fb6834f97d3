//! A call to a stateless server for a client with a handshake: the server's input requests are sent to the client one by
//! one, and when all are answered the call is retried.

use super::MAX_INPUT_ROUNDS;
use crate::modern::input::{Question, Required, Responses};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server returned `input_required`.
    Required(Required),
    /// The client answered the input request with this key: with a result, or not at all.
    Answered { key: String, result: Option<Vec<u8>> },
    /// The caller cancelled the call.
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Send the input request to the client.
    Ask(Question),
    /// Cancel the input request with this key.
    Withdraw(String),
    /// Retry the call.
    Retry {
        responses: Responses,
        /// The server's `requestState`.
        state: Option<String>,
    },
    Fail(RetryError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryError {
    /// The client did not answer something that only it can answer.
    Unanswered,
    /// Too many retries.
    TooOften,
}

#[derive(Clone, Debug, Default)]
pub struct InputRetries {
    /// Input requests of this retry, each with its answer once there is one.
    asked: Vec<(Question, Option<Vec<u8>>)>,
    state: Option<String>,
    round: u32,
    /// Whether the client is being asked.
    asking: bool,
    over: bool,
}

impl InputRetries {
    /// A call that was sent once.
    pub fn new() -> InputRetries {
        InputRetries::default()
    }

    pub fn is_asking(&self) -> bool {
        self.asking && !self.over
    }

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
        // A second response to one request cannot come; if it does, it changes nothing.
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
            // "cancelled" is a valid answer to a form; for sampling and roots there is no such answer.
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

    /// Cancels what is still open, except for the input request that has just ended.
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
