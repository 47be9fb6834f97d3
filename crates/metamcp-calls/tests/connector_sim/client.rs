//! A client: says what it likes, and checks what it hears.

use std::collections::{BTreeMap, BTreeSet};

use crate::rng::Rng;
use crate::world::{Line, Sights};

#[derive(Default)]
pub(crate) struct Client {
    pub(crate) is_stateless: bool,
    /// Sends its first requests along with the handshake.
    is_hasty: bool,
    has_begun: bool,
    is_greeted: bool,
    /// How much it still wants to say.
    pub(crate) left: u32,
    ids: u64,
    /// Requests without an answer: id to what each was.
    open: BTreeMap<String, Vec<Line>>,
    /// What it cancelled: an answer may have been under way.
    cancelled: BTreeSet<String>,
    /// Questions without an answer, and those that were taken back: id to what the right answer says.
    questions: BTreeMap<String, u64>,
    late: Vec<(String, u64)>,
    pub(crate) level: Option<u64>,
    pub(crate) subscriptions: BTreeSet<u64>,
    pub(crate) is_initialized: bool,
}

impl Client {
    pub(crate) fn new(rng: &mut Rng) -> Client {
        Client {
            is_stateless: rng.chance(250),
            is_hasty: rng.chance(300),
            left: rng.between(3, 40) as u32,
            ..Client::default()
        }
    }

    pub(crate) fn waiting(&self) -> usize {
        self.open.values().map(Vec::len).sum()
    }

    /// The next line it writes, if it wants to now.
    pub(crate) fn speak(&mut self, rng: &mut Rng, keys: &mut u64) -> Option<Line> {
        if self.left == 0 {
            return None;
        }
        if !self.is_stateless && !self.has_begun {
            self.has_begun = true;
            return Some(self.request("initialize", None, keys));
        }
        let may_go_on = self.is_stateless || self.is_greeted || self.is_hasty;
        if !may_go_on {
            return None;
        }
        self.left -= 1;
        if !self.is_stateless && !self.is_initialized {
            self.is_initialized = true;
            let method = "notifications/initialized".to_owned();
            return Some(Line::Notification { method, cancels: None });
        }
        let line = match rng.below(20) {
            0..=5 => self.request("tools/call", Some(rng.between(10, 20)), keys),
            6 => self.request("tools/call", Some(Line::SEARCH), keys),
            7 | 8 => self.request("tools/list", None, keys),
            9 => self.request("x/unknown", None, keys),
            10 => self.request("ping", None, keys),
            11 if !self.is_stateless => self.request("logging/setLevel", Some(rng.below(8)), keys),
            12 | 13 if !self.is_stateless => {
                self.request("resources/subscribe", Some(rng.below(4)), keys)
            }
            14 if !self.is_stateless => {
                self.request("resources/unsubscribe", Some(rng.below(4)), keys)
            }
            15 => {
                let ids: Vec<String> = self.open.keys().cloned().collect();
                if ids.is_empty() {
                    return None;
                }
                let id = ids[rng.size(0, ids.len() - 1)].clone();
                if self.is_about_session(&id) {
                    return None;
                }
                self.open.remove(&id);
                self.cancelled.insert(id.clone());
                let method = "notifications/cancelled".to_owned();
                Line::Notification { method, cancels: Some(id) }
            }
            16 => {
                let lines = (0..rng.between(1, 3)).map(|_| self.request("tools/call", None, keys));
                Line::Batch(lines.collect())
            }
            17 => Line::Garbage,
            // The same id twice.
            18 if self.ids > 0 && !self.is_about_session(&self.ids.to_string()) => {
                self.ids -= 1;
                self.request("tools/call", None, keys)
            }
            _ => self.request("resources/read", None, keys),
        };
        Some(line)
    }

    /// A handshake must not be cancelled, and whether a cancelled subscription holds is not known; nor which of two
    /// requests with one id failed.
    fn is_about_session(&self, id: &str) -> bool {
        let told =
            ["initialize", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"];
        let is_one = |line: &Line| told.iter().any(|method| line.is(method));
        self.open.get(id).is_some_and(|open| open.iter().any(is_one))
    }

    fn request(&mut self, method: &str, subject: Option<u64>, keys: &mut u64) -> Line {
        self.ids += 1;
        *keys += 1;
        let id = self.ids.to_string();
        let line = Line::Request { id: id.clone(), method: method.into(), subject, key: *keys };
        self.open.entry(id).or_default().push(line.clone());
        line
    }

    /// Answers a question, perhaps one that was taken back meanwhile.
    pub(crate) fn reply(&mut self, rng: &mut Rng, sights: &mut Sights) -> Option<Line> {
        if rng.chance(300)
            && let Some((id, key)) = self.late.pop()
        {
            sights.late_answers += 1;
            return Some(Line::Response { id, is_error: false, key });
        }
        let (id, key) = self.questions.pop_first()?;
        Some(Line::Response { id, is_error: false, key })
    }

    pub(crate) fn hear(&mut self, line: &Line, sights: &mut Sights) -> Result<(), String> {
        match line {
            Line::Response { id, is_error, key } => {
                if id.contains("metamcp") {
                    return Err(format!("the client sees an id of ours: {id}"));
                }
                let Some(open) = self.open.get_mut(id) else {
                    return if self.cancelled.contains(id) {
                        Ok(())
                    } else {
                        Err(format!("{id} is answered and was not open"))
                    };
                };
                // Of two requests with one id, either may be meant.
                let at = open.iter().position(|line| line.key() == Some(*key)).unwrap_or(0);
                let request = open.remove(at);
                if open.is_empty() {
                    self.open.remove(id);
                }
                let Line::Request { method, subject, .. } = &request else { return Ok(()) };
                if *key == Line::UNKNOWN {
                    sights.unknown += 1;
                    if method == "initialize" {
                        // Without a session there is nothing more to say.
                        self.left = 0;
                    }
                    return Ok(());
                }
                if !is_error {
                    match method.as_str() {
                        "initialize" => self.is_greeted = true,
                        "logging/setLevel" => self.level = *subject,
                        "resources/subscribe" => self.subscriptions.extend(*subject),
                        "resources/unsubscribe" => {
                            self.subscriptions.retain(|uri| Some(*uri) != *subject);
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            Line::Request { id, key, .. } => {
                sights.questions += 1;
                if let Some(other) = self.questions.insert(id.clone(), *key) {
                    return Err(format!("two questions of the id {id}: {other} and {key}"));
                }
                if self.late.iter().any(|(late, _)| late == id) {
                    return Err(format!(
                        "a question has the id {id} of one that may be answered yet"
                    ));
                }
                Ok(())
            }
            Line::Notification { cancels: Some(id), .. } => {
                if let Some(key) = self.questions.remove(id) {
                    self.late.push((id.clone(), key));
                }
                Ok(())
            }
            Line::Notification { .. } | Line::Garbage | Line::Batch(_) => Ok(()),
        }
    }
}
