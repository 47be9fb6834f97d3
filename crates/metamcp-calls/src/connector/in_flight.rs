//! Requests of the client that no daemon has answered yet.
//! Owns: which of them may be sent again, and their lines.      Never: writes an answer.
//! In: requests and responses.  Out: what is to be sent again, what is to be answered.
//! Tests: `connector/tests.rs`.

use std::collections::HashMap;

/// Most requests in flight. The daemon has its own limit, which is lower; this one bounds our memory.
pub const MAX_IN_FLIGHT: usize = 10_000;
/// A read may contain many lines that are not looked at before they are written.
const MARGIN: usize = 2_000;
/// Longest line kept to be sent again; requests that may be are short.
const MAX_LINE: usize = 256 * 1024;
/// Most bytes kept in all.
const MAX_KEPT: usize = 4 * 1024 * 1024;
/// How often a request is sent again: one that ends every daemon must not go on doing so.
const MAX_RESENDS: u32 = 2;

/// What a request is, as far as it decides what happens when its daemon is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// A tool, which may have run.
    Call,
    /// A search among tools, which changes nothing.
    Search,
    Initialize,
    Level,
    Subscribe(Box<[u8]>),
    Unsubscribe(Box<[u8]>),
    /// A stream of notifications without an end.
    Listen,
    /// Something that only reads.
    Read,
    /// Unknown, so it may have had an effect.
    Unknown,
}

impl Purpose {
    /// `subject` is JSON text: the tool's name, or the address of a subscription.
    pub fn of(method: &str, subject: Option<&[u8]>) -> Purpose {
        match method {
            "tools/call" if subject == Some(b"\"mcp_discover\"") => Purpose::Search,
            "tools/call" => Purpose::Call,
            "initialize" => Purpose::Initialize,
            "logging/setLevel" => Purpose::Level,
            "resources/subscribe" => Purpose::Subscribe(subject.unwrap_or_default().into()),
            "resources/unsubscribe" => Purpose::Unsubscribe(subject.unwrap_or_default().into()),
            "subscriptions/listen" => Purpose::Listen,
            "ping" | "prompts/get" | "completion/complete" | "server/discover" => Purpose::Read,
            _ if method.ends_with("/list") || method.ends_with("/read") => Purpose::Read,
            _ => Purpose::Unknown,
        }
    }

    /// Whether a second daemon may get it too. What a session is told is told to each of them anyway.
    fn is_repeatable(&self) -> bool {
        !matches!(self, Purpose::Call | Purpose::Unknown)
    }
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) purpose: Purpose,
    /// Kept only for what may be sent again.
    pub(super) line: Option<Box<[u8]>>,
    order: u64,
    resends: u32,
}

impl Request {
    fn may_go_again(&self) -> bool {
        // Without its handshake a session is nothing, and a subscription is in flight for as long as the session: how many
        // daemons these have seen says nothing. `MAX_LOSSES` bounds them.
        let is_bounded = !matches!(self.purpose, Purpose::Initialize | Purpose::Listen);
        self.line.is_some() && (!is_bounded || self.resends < MAX_RESENDS)
    }
}

#[derive(Debug, Default)]
pub(super) struct InFlight {
    /// Some clients use an id twice, so one may stand for several requests; the oldest comes first.
    requests: HashMap<Box<[u8]>, Vec<Request>>,
    count: usize,
    kept: usize,
    arrived: u64,
}

impl InFlight {
    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn is_full(&self) -> bool {
        self.count >= MAX_IN_FLIGHT
    }

    pub(super) fn is_nearly_full(&self) -> bool {
        self.count >= MAX_IN_FLIGHT - MARGIN
    }

    pub(super) fn add(&mut self, id: &[u8], purpose: Purpose, line: Option<&[u8]>) {
        let fits = |line: &&[u8]| {
            purpose.is_repeatable() && line.len() <= MAX_LINE && self.kept + line.len() <= MAX_KEPT
        };
        let line: Option<Box<[u8]>> = line.filter(fits).map(Into::into);
        self.kept += line.as_ref().map_or(0, |line| line.len());
        self.count += 1;
        self.arrived += 1;
        let request = Request { purpose, line, order: self.arrived, resends: 0 };
        match self.requests.get_mut(id) {
            Some(others) => others.push(request),
            None => drop(self.requests.insert(id.into(), vec![request])),
        }
    }

    /// The oldest request of this id, which is in flight no longer.
    pub(super) fn answered(&mut self, id: &[u8]) -> Option<Request> {
        let others = self.requests.get_mut(id)?;
        let request = others.remove(0);
        if others.is_empty() {
            self.requests.remove(id);
        }
        self.count -= 1;
        self.kept -= request.line.as_ref().map_or(0, |line| line.len());
        Some(request)
    }

    pub(super) fn cancel(&mut self, id: &[u8]) {
        while self.answered(id).is_some() {}
    }

    /// The handshake that the client waits for.
    pub(super) fn handshake(&mut self) -> Option<Box<[u8]>> {
        let all = self.requests.values_mut().flatten();
        let handshake = all.filter(|request| request.purpose == Purpose::Initialize);
        let first = handshake.min_by_key(|request| request.order)?;
        first.resends += 1;
        first.line.clone()
    }

    /// Takes out what cannot be sent again, in the order it came.
    pub(super) fn lost(&mut self, is_over: bool) -> Vec<(Box<[u8]>, Request)> {
        let mut gone = Vec::new();
        for (id, requests) in std::mem::take(&mut self.requests) {
            let (stay, go): (Vec<_>, Vec<_>) =
                requests.into_iter().partition(|request| !is_over && request.may_go_again());
            gone.extend(go.into_iter().map(|request| (id.clone(), request)));
            if !stay.is_empty() {
                self.requests.insert(id, stay);
            }
        }
        self.count -= gone.len();
        let freed: usize =
            gone.iter().filter_map(|(_, request)| Some(request.line.as_ref()?.len())).sum();
        self.kept -= freed;
        gone.sort_by_key(|(_, request)| request.order);
        gone
    }

    /// The lines to be sent again after the handshake, in the order they came.
    pub(super) fn again(&mut self) -> Vec<Box<[u8]>> {
        let mut due: Vec<&mut Request> = self.requests.values_mut().flatten().collect();
        due.sort_by_key(|request| request.order);
        due.into_iter()
            .filter_map(|request| {
                request.resends += 1;
                request.line.clone()
            })
            .collect()
    }
}
