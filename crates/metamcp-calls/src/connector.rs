//! One client between daemons: what a connector forwards, and what it does when the daemon behind it is gone.
//! Owns: requests in flight both ways, the client's handshake and what came of it, which the next daemon hears.      Never: reads or writes a byte, starts a daemon.
//! In: messages as seen at a glance, connections made and lost.  Out: verdicts on messages, `Effect`s, what to do `Next`.
//! Tests: `connector/tests.rs`, `tests/connector_sim.rs`, `metamcp/tests/daemon/`.
//!
//! A request counts as sent once all of its line was written: before that it cannot have run, and the line simply goes to
//! the next daemon. Of what was sent, only the harmless is sent again; everything else is answered once, by us.

mod in_flight;
mod memory;

use std::collections::{HashMap, HashSet};

use in_flight::{InFlight, Request};
use memory::Memory;

pub use in_flight::{MAX_IN_FLIGHT, Purpose};

/// Daemons lost in a row without an answer in between, before the connector serves by itself: something in this session
/// may be what ends them.
const MAX_LOSSES: u32 = 5;
/// Server requests of lost daemons whose answers are still recognized.
const MAX_FORGOTTEN: usize = 1024;

/// A message at a glance; ids are JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message<'a> {
    Request {
        id: &'a [u8],
        method: &'a str,
        /// The tool of a call, or the address of a subscription, as JSON text.
        subject: Option<&'a [u8]>,
    },
    Notification {
        method: &'a str,
        /// The request that `notifications/cancelled` is about.
        cancels: Option<&'a [u8]>,
    },
    Response {
        id: &'a [u8],
        is_error: bool,
    },
    Batch(Vec<Message<'a>>),
    /// Anything else: the other side says what is wrong with it.
    Other,
}

/// What becomes of a line of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToDaemon {
    Forward,
    /// Forwarded with another id: the one by which the daemon knows its own request.
    Rename(Box<[u8]>),
    /// It answers a daemon that is gone.
    Drop,
    /// Too many requests are in flight.
    Refuse,
}

/// What becomes of a line of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToClient {
    Forward,
    /// Forwarded with another id: the client still has a request of that id, of a daemon that is gone.
    Rename(Box<[u8]>),
    /// The cancellation of a request that the client knows by this id.
    CancelAs(Box<[u8]>),
    /// The response to a request of our own.
    Swallow,
}

/// Something to be done, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// To the daemon.
    Send { line: Box<[u8]> },
    /// To the daemon, with another id.
    SendAs { line: Box<[u8]>, id: Box<[u8]> },
    /// To the client: the request was sent to a daemon that is gone.
    OutcomeUnknown { id: Box<[u8]>, answer: Answer },
    /// To the client: nobody waits for its answer to this request any more.
    Cancel { id: Box<[u8]> },
    /// The daemon refuses the client's handshake, which another one took: it is of no use.
    Leave,
}

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The result of a tool call, with `isError`.
    CallResult,
    /// The same for a client without a handshake.
    StatelessCallResult,
    /// A JSON-RPC error.
    Error,
}

/// What follows when a daemon is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Find or start another one.
    Reconnect,
    /// Serve without one.
    ServeAlone,
    /// The session is over.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// No daemon.
    Away,
    /// The handshake is repeated, and nothing else is sent before its response.
    Greeting,
    Live,
}

#[derive(Debug)]
enum Own {
    Initialize,
    Level,
    Subscription(Box<[u8]>),
}

/// The state of one connector.
#[derive(Debug)]
pub struct Connector {
    phase: Phase,
    in_flight: InFlight,
    memory: Memory,
    /// Requests of our own that the daemon has not answered.
    own: HashMap<Box<[u8]>, Own>,
    /// Part of every id of ours, so that no client chooses the same.
    nonce: u64,
    made: u64,
    /// Server requests that the client has not answered.
    asked: HashSet<Box<[u8]>>,
    /// Those that the daemon took back: the client's answer may be under way.
    withdrawn: HashSet<Box<[u8]>>,
    /// Both kinds, of daemons that are gone.
    forgotten: HashSet<Box<[u8]>>,
    /// Server requests that the client knows by another id: its id to the daemon's.
    renamed: HashMap<Box<[u8]>, Box<[u8]>>,
    effects: Vec<Effect>,
    losses: u32,
    has_ended: bool,
    is_alone: bool,
}

impl Connector {
    /// `nonce` is random: ids of our own contain it.
    pub fn new(nonce: u64) -> Connector {
        Connector {
            phase: Phase::Away,
            in_flight: InFlight::default(),
            memory: Memory::default(),
            own: HashMap::new(),
            nonce,
            made: 0,
            asked: HashSet::new(),
            withdrawn: HashSet::new(),
            forgotten: HashSet::new(),
            renamed: HashMap::new(),
            effects: Vec::new(),
            losses: 0,
            has_ended: false,
            is_alone: false,
        }
    }

    /// Whether lines of the client may be forwarded now; otherwise they wait, unread.
    pub fn is_live(&self) -> bool {
        self.phase == Phase::Live
    }

    /// Whether every line of the client would be forwarded, so that none needs a look before.
    pub fn trusts_client(&self) -> bool {
        self.forgotten.is_empty() && self.renamed.is_empty() && !self.in_flight.is_nearly_full()
    }

    /// The same for lines of the daemon.
    pub fn trusts_daemon(&self) -> bool {
        self.own.is_empty() && self.forgotten.is_empty() && self.renamed.is_empty()
    }

    /// Whether a daemon is needed before the client says something: it waits for an answer, or for news.
    pub fn needs_daemon(&self) -> bool {
        self.in_flight.len() > 0 || self.memory.has_subscriptions()
    }

    /// How many requests of the client have no answer yet.
    pub fn waiting(&self) -> usize {
        self.in_flight.len()
    }

    /// What is to be done, since this was last called.
    pub fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// What to do with a line of the client. It is written first and noted by [`Connector::sent`] when all of it is.
    pub fn from_client(&self, message: &Message<'_>) -> ToDaemon {
        match message {
            Message::Request { .. } if self.in_flight.is_full() => ToDaemon::Refuse,
            Message::Response { id, .. } => match self.renamed.get(*id) {
                Some(original) => ToDaemon::Rename(original.clone()),
                None if self.forgotten.contains(*id) => ToDaemon::Drop,
                None => ToDaemon::Forward,
            },
            _ => ToDaemon::Forward,
        }
    }

    /// A line of the client was written to the daemon, or dropped.
    pub fn sent(&mut self, message: &Message<'_>, line: &[u8]) {
        match message {
            Message::Request { id, method, subject } => {
                let purpose = Purpose::of(method, *subject);
                if purpose == Purpose::Initialize {
                    self.memory.begins();
                }
                self.in_flight.add(id, purpose, Some(line));
            }
            Message::Notification { method: "notifications/initialized", .. } => {
                self.memory.initialized(line);
            }
            // Nobody answers it any more, and if somebody does, that is forwarded.
            Message::Notification { cancels: Some(id), .. } => self.in_flight.cancel(id),
            Message::Response { id, .. } => {
                let _known = self.asked.remove(*id)
                    || self.withdrawn.remove(*id)
                    || self.forgotten.remove(*id)
                    || self.renamed.remove(*id).is_some();
            }
            Message::Batch(messages) => {
                for message in messages {
                    self.sent_in_batch(message);
                }
            }
            Message::Notification { .. } | Message::Other => {}
        }
    }

    /// Batches are not sent again: nobody could say where one of them begins and another ends.
    fn sent_in_batch(&mut self, message: &Message<'_>) {
        match message {
            Message::Request { id, method, subject } => {
                self.in_flight.add(id, Purpose::of(method, *subject), None);
            }
            Message::Notification { cancels: Some(_), .. } | Message::Response { .. } => {
                self.sent(message, &[]);
            }
            _ => {}
        }
    }

    /// What to do with a line of the daemon.
    pub fn from_daemon(&mut self, message: &Message<'_>) -> ToClient {
        match message {
            Message::Response { id, is_error } => match self.own.remove(*id) {
                Some(own) => {
                    self.answered(own, *is_error);
                    ToClient::Swallow
                }
                None => {
                    self.answers_client(id, *is_error);
                    ToClient::Forward
                }
            },
            Message::Request { id, .. } => {
                if self.forgotten.contains(*id) || self.renamed.contains_key(*id) {
                    let name = self.own_id();
                    self.renamed.insert(name.clone(), (*id).into());
                    return ToClient::Rename(name);
                }
                self.asked.insert((*id).into());
                ToClient::Forward
            }
            Message::Notification { cancels: Some(id), .. } => {
                if self.asked.remove(*id) && self.withdrawn.len() < MAX_FORGOTTEN {
                    self.withdrawn.insert((*id).into());
                }
                let name = self.renamed.iter().find(|(_, original)| ***original == **id);
                match name.map(|(name, _)| name.clone()) {
                    Some(name) => {
                        self.renamed.remove(&name);
                        ToClient::CancelAs(name)
                    }
                    None => ToClient::Forward,
                }
            }
            Message::Batch(messages) => {
                for message in messages {
                    match message {
                        Message::Response { id, is_error } => self.answers_client(id, *is_error),
                        Message::Request { id, .. } => drop(self.asked.insert((*id).into())),
                        _ => {}
                    }
                }
                ToClient::Forward
            }
            Message::Notification { .. } | Message::Other => ToClient::Forward,
        }
    }

    /// A daemon took the session.
    pub fn connected(&mut self) {
        if let Some(line) = self.memory.handshake() {
            self.phase = Phase::Greeting;
            let id = self.own_id();
            self.own.insert(id.clone(), Own::Initialize);
            self.effects.push(Effect::SendAs { line, id });
        } else if let Some(line) = self.in_flight.handshake() {
            // The client still waits for this one, so it gets the response.
            self.phase = Phase::Greeting;
            self.effects.push(Effect::Send { line });
        } else {
            self.go_on();
        }
    }

    /// The same, where the daemon is this process.
    pub fn connected_alone(&mut self) {
        self.is_alone = true;
        self.connected();
    }

    /// The connection has held for a while: what was lost before has nothing to do with this session.
    pub fn steady(&mut self) {
        self.losses = 0;
    }

    /// The client's last line was forwarded, and the daemon told that there are no more.
    pub fn ended(&mut self) {
        self.has_ended = true;
    }

    /// The connection broke.
    pub fn lost(&mut self) -> Next {
        self.phase = Phase::Away;
        self.own.clear();
        self.losses += 1;
        let next = if self.has_ended || self.is_alone || self.memory.is_incomplete() {
            Next::End
        } else if self.losses > MAX_LOSSES {
            Next::ServeAlone
        } else {
            Next::Reconnect
        };
        self.forget_questions();
        for (id, request) in self.in_flight.lost(next == Next::End) {
            self.answer(id, &request);
        }
        next
    }

    /// There is no daemon and will be none: what is in flight is answered.
    pub fn give_up(&mut self) {
        self.phase = Phase::Away;
        self.forget_questions();
        for (id, request) in self.in_flight.lost(true) {
            self.answer(id, &request);
        }
    }

    fn forget_questions(&mut self) {
        let known = self.asked.drain().chain(self.renamed.drain().map(|(name, _)| name));
        let mut open: Vec<Box<[u8]>> = known.collect();
        open.sort();
        for id in open {
            self.effects.push(Effect::Cancel { id: id.clone() });
            self.forgotten.insert(id);
        }
        self.forgotten.extend(self.withdrawn.drain());
        if self.forgotten.len() > MAX_FORGOTTEN {
            // A client that answers none of a thousand questions answers no old one either.
            self.forgotten.clear();
        }
    }

    fn answer(&mut self, id: Box<[u8]>, request: &Request) {
        let answer = match request.purpose {
            Purpose::Call | Purpose::Search if self.memory.is_stateless() => {
                Answer::StatelessCallResult
            }
            Purpose::Call | Purpose::Search => Answer::CallResult,
            _ => Answer::Error,
        };
        self.effects.push(Effect::OutcomeUnknown { id, answer });
    }

    /// The daemon answered a request of ours.
    fn answered(&mut self, own: Own, is_error: bool) {
        match own {
            Own::Initialize if is_error => self.effects.push(Effect::Leave),
            Own::Initialize => self.go_on(),
            Own::Subscription(subject) if is_error => self.memory.unsubscribed(&subject),
            Own::Level | Own::Subscription(_) => {}
        }
    }

    /// The daemon answered the client.
    fn answers_client(&mut self, id: &[u8], is_error: bool) {
        let Some(request) = self.in_flight.answered(id) else { return };
        self.losses = 0;
        let Request { purpose, line, .. } = request;
        let is_handshake = purpose == Purpose::Initialize;
        if !is_error {
            match purpose {
                Purpose::Initialize => self.memory.shook_hands(line),
                Purpose::Level => self.memory.level(line),
                Purpose::Subscribe(subject) => self.memory.subscribed(subject, line),
                Purpose::Unsubscribe(subject) => self.memory.unsubscribed(&subject),
                _ => {}
            }
        }
        if is_handshake && self.phase == Phase::Greeting {
            self.go_on();
        }
    }

    /// Repeats what followed the handshake, and what was in flight.
    fn go_on(&mut self) {
        self.phase = Phase::Live;
        let repeated = self.memory.after_handshake();
        if let Some(line) = repeated.initialized {
            self.effects.push(Effect::Send { line });
        }
        if let Some(line) = repeated.level {
            let id = self.own_id();
            self.own.insert(id.clone(), Own::Level);
            self.effects.push(Effect::SendAs { line, id });
        }
        for (subject, line) in repeated.subscriptions {
            let id = self.own_id();
            self.own.insert(id.clone(), Own::Subscription(subject));
            self.effects.push(Effect::SendAs { line, id });
        }
        let again = self.in_flight.again();
        self.effects.extend(again.into_iter().map(|line| Effect::Send { line }));
    }

    fn own_id(&mut self) -> Box<[u8]> {
        self.made += 1;
        format!("\"metamcp-{:016x}-{}\"", self.nonce, self.made).into_bytes().into()
    }
}

#[cfg(test)]
mod tests;
