//! A daemon with its sessions: reads, runs, answers and asks at random.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::rng::Rng;
use crate::world::{Line, Sights};

#[derive(Default)]
pub(crate) struct Daemon {
    pub(crate) is_alive: bool,
    /// Takes no new sessions.
    pub(crate) is_draining: bool,
    pub(crate) sessions: Vec<Session>,
    /// As in the gateway: one counter per process, from the beginning.
    questions: u64,
}

#[derive(Default)]
pub(crate) struct Session {
    pub(crate) inbox: VecDeque<Line>,
    pub(crate) input_ended: bool,
    pub(crate) working: Vec<Line>,
    pub(crate) outbox: VecDeque<Line>,
    pub(crate) closed: bool,
    /// Whether the connector repeats a handshake here, so that nothing may come before its response.
    is_repeated: bool,
    has_begun: bool,
    is_greeted: bool,
    pub(crate) is_initialized: bool,
    pub(crate) level: Option<u64>,
    pub(crate) subscriptions: BTreeSet<u64>,
    /// Open questions: id to what a right answer says.
    asked: BTreeMap<String, u64>,
}

impl Session {
    pub(crate) fn taken(is_repeated: bool) -> Session {
        Session { is_repeated, ..Session::default() }
    }
}

impl Daemon {
    pub(crate) fn started() -> Daemon {
        Daemon { is_alive: true, ..Daemon::default() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.sessions.iter().all(|session| session.closed)
    }

    /// Reads one line. Whatever it asks for runs now, if it has an effect: `ran` gets its key.
    pub(crate) fn read(
        &mut self,
        session: usize,
        stateless: bool,
        ran: &mut Vec<u64>,
    ) -> Result<(), String> {
        let session = &mut self.sessions[session];
        let Some(line) = session.inbox.pop_front() else { return Ok(()) };
        if session.is_repeated && session.has_begun && !session.is_greeted {
            return Err(format!("{line:?} before the response to the repeated handshake"));
        }
        match line {
            Line::Request { ref method, key, .. } => {
                if method == "initialize" {
                    session.has_begun = true;
                } else if !stateless && !session.has_begun {
                    return Err(format!("{method} before the handshake"));
                }
                if matches!(method.as_str(), "tools/call" | "x/unknown") && !line.is_search() {
                    ran.push(key);
                }
                session.working.push(line);
            }
            Line::Batch(lines) => {
                for line in lines {
                    if let Line::Request { key, .. } = &line {
                        ran.push(*key);
                        session.working.push(line);
                    }
                }
            }
            Line::Notification { method, cancels } => {
                if method == "notifications/initialized" {
                    if !session.has_begun {
                        return Err("initialized before the handshake".into());
                    }
                    session.is_initialized = true;
                }
                if let Some(cancels) = cancels {
                    session.working.retain(|line| line.id() != Some(cancels.as_str()));
                }
            }
            Line::Response { id, key, .. } => match session.asked.remove(&id) {
                Some(expected) if expected != key => {
                    return Err(format!("the answer {key} came to the question {expected} ({id})"));
                }
                _ => {}
            },
            Line::Garbage => session.outbox.push_back(Line::Garbage),
        }
        Ok(())
    }

    /// Answers one of the requests, in any order.
    pub(crate) fn answer(&mut self, session: usize, rng: &mut Rng, sights: &mut Sights) {
        let session = &mut self.sessions[session];
        if session.working.is_empty() {
            return;
        }
        // A handshake is answered before what was sent along with it.
        let at = session.working.iter().position(|line| line.is("initialize"));
        let at = at.unwrap_or_else(|| rng.size(0, session.working.len() - 1));
        // What changes the session is done in the order it came, as in the gateway.
        let told = ["logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
        let changes = |line: &Line| told.iter().any(|method| line.is(method));
        let first = session.working.iter().position(changes);
        let at = first.filter(|_| changes(&session.working[at])).unwrap_or(at);
        let line = session.working.remove(at);
        let Line::Request { id, method, subject, key } = line else { return };
        let is_ours = id.contains("metamcp");
        // One daemon in a hundred refuses what another one accepted.
        let mut is_error = !is_ours && method != "initialize" && rng.chance(80);
        if is_ours && method == "initialize" && rng.chance(10) {
            sights.refused_handshake += 1;
            is_error = true;
        }
        if !is_error {
            match method.as_str() {
                "initialize" => session.is_greeted = true,
                "logging/setLevel" => session.level = subject,
                "resources/subscribe" => session.subscriptions.extend(subject),
                "resources/unsubscribe" => {
                    session.subscriptions.retain(|uri| Some(*uri) != subject);
                }
                _ => {}
            }
        }
        session.outbox.push_back(Line::Response { id, is_error, key });
    }

    /// Asks the client something, takes a question back, or tells it something.
    pub(crate) fn speak(&mut self, session: usize, rng: &mut Rng, keys: &mut u64) {
        let number = &mut self.questions;
        let session = &mut self.sessions[session];
        if !session.is_greeted || session.closed {
            return;
        }
        match rng.below(4) {
            0 | 1 => {
                *number += 1;
                *keys += 1;
                let id = number.to_string();
                session.asked.insert(id.clone(), *keys);
                let method = "sampling/createMessage".to_owned();
                session.outbox.push_back(Line::Request { id, method, subject: None, key: *keys });
            }
            2 => {
                if let Some((id, _)) = session.asked.pop_first() {
                    let method = "notifications/cancelled".to_owned();
                    session.outbox.push_back(Line::Notification { method, cancels: Some(id) });
                }
            }
            _ => {
                let method = "notifications/message".to_owned();
                session.outbox.push_back(Line::Notification { method, cancels: None });
            }
        }
    }
}
