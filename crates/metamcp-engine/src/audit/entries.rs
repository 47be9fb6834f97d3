//! Events as entries of the audit log, on their way to the writer.
//! Owns: what is recorded of an event, which bytes are held until they are digested.      Never: writes a value that nobody asked for, or one with a secret.
//! In: events, on the thread that relays calls.  Out: owned items, cheap to make; entries, on the writer's thread.
//! Tests: `audit/tests.rs`, `metamcp/tests/audit/`.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use metamcp_audit::{Digest, Entry, Fact, Kind, Part, Who, digest};
use metamcp_types::text;

use super::folder::{AuditError, Put};
use crate::clock::unix_millis;
use crate::observe::{Action, CallRecord, Identity, LoginChange, Origin, Subject};

/// Longest value that is recorded, in bytes.
const MAX_VALUE: usize = 16 * 1024;
/// Longest name or reason.
const MAX_TEXT: usize = 500;
/// Longest name and version of a client, which are in each line.
const MAX_CLIENT: usize = 100;
/// Most names of servers in one line.
const MAX_NAMES: usize = 1000;
/// Arguments and results up to this length are copied: holding them would keep a server's whole read buffer from being
/// used again, and have the writer's thread free what the relaying one allocated.
const MAX_COPIED: usize = 2 * 1024;

/// Asked for once: it is in each line, and the system is called for it.
static PID: LazyLock<u32> = LazyLock::new(std::process::id);

/// Redacts a value before it is recorded.
pub(super) type Redact = dyn Fn(&str) -> String + Send + Sync;

/// Something to record. Calls stand in the list itself: most of it is calls, and boxes would cross threads one by one.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all items are calls")]
pub(super) enum Item {
    Call(CallItem),
    Other(Box<OtherItem>),
}

/// Items on their way, and the short values that they refer to.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) items: Vec<Item>,
    copied: Vec<u8>,
}

impl Batch {
    /// Digests what the items hold or refer to, and lets go of it.
    pub(super) fn read(&mut self, redact: &Redact, has_values: bool) {
        for item in &mut self.items {
            item.read(&self.copied, redact, has_values);
        }
        self.copied.clear();
    }

    /// Bytes that are held or copied.
    pub(super) fn held(&self) -> usize {
        self.items.iter().map(Item::held).sum()
    }

    /// Forgets what it has, and keeps its memory unless that is much.
    pub(super) fn clear(&mut self) {
        self.items.clear();
        self.items.shrink_to(MAX_KEPT_ITEMS);
        self.copied.clear();
        self.copied.shrink_to(MAX_KEPT_ITEMS * 256);
    }
}

/// Items whose memory is kept for the next batch.
const MAX_KEPT_ITEMS: usize = 4_096;

/// A call that ended, or is about to be sent.
#[derive(Debug)]
pub(super) struct CallItem {
    at_ms: u64,
    identity: Arc<Identity>,
    origin: Origin,
    server: Arc<str>,
    tool: Arc<str>,
    method: &'static str,
    id: u64,
    micros: u64,
    queued_micros: u64,
    attempts: u32,
    verdict: &'static str,
    arguments: Side,
    result: Side,
    /// Who waits for it to be recorded, before it is sent.
    ticket: Option<u64>,
}

/// Arguments or a result.
#[derive(Debug)]
pub(super) enum Side {
    None,
    /// A short one: where it stands in the batch.
    Copied(std::ops::Range<usize>),
    Held(Bytes),
    /// Too much was held already.
    Skipped(usize),
    Read {
        digest: Digest,
        bytes: usize,
        value: Option<(String, bool)>,
    },
}

impl Side {
    /// Keeps the bytes until the writer comes, unless too many are kept.
    fn of(bytes: Option<&Bytes>, batch: &mut Batch, may_hold: bool) -> Side {
        match bytes {
            None => Side::None,
            Some(bytes) if !may_hold => Side::Skipped(bytes.len()),
            Some(bytes) if bytes.len() <= MAX_COPIED => {
                let begin = batch.copied.len();
                batch.copied.extend_from_slice(bytes);
                Side::Copied(begin..batch.copied.len())
            }
            Some(bytes) => Side::Held(bytes.clone()),
        }
    }

    fn held(&self) -> usize {
        match self {
            Side::Copied(place) => place.len(),
            Side::Held(bytes) => bytes.len(),
            Side::Read { value: Some((value, _)), .. } => value.len(),
            _ => 0,
        }
    }

    /// Reads what is held, and lets go of it.
    fn read(&mut self, copied: &[u8], redact: Option<&Redact>) {
        let bytes = match self {
            Side::Copied(place) => &copied[place.clone()],
            Side::Held(bytes) => &bytes[..],
            _ => return,
        };
        let value = redact.map(|redact| {
            // Redacted before it is cut, with a margin: half a secret at the end of it is one too many.
            let begin = &bytes[..bytes.len().min(4 * MAX_VALUE)];
            let (value, is_cut) = cut(redact(&String::from_utf8_lossy(begin)));
            (value, is_cut || begin.len() < bytes.len())
        });
        *self = Side::Read { digest: digest(bytes), bytes: bytes.len(), value };
    }

    fn part(&self) -> Option<Part<'_>> {
        match self {
            Side::None => None,
            Side::Copied(place) => Some(Part { digest: None, bytes: place.len(), value: None }),
            Side::Held(bytes) => Some(Part { digest: None, bytes: bytes.len(), value: None }),
            Side::Skipped(bytes) => Some(Part { digest: None, bytes: *bytes, value: None }),
            Side::Read { digest, bytes, value } => {
                let value = value.as_ref().map(|(value, is_cut)| (value.as_str(), *is_cut));
                Some(Part { digest: Some(*digest), bytes: *bytes, value })
            }
        }
    }
}

fn cut(mut value: String) -> (String, bool) {
    let kept = clip(&value, MAX_VALUE).len();
    let is_cut = kept < value.len();
    value.truncate(kept);
    (value, is_cut)
}

impl CallItem {
    pub(super) fn new(
        record: &CallRecord,
        (arguments, result): (Option<&Bytes>, Option<&Bytes>),
        batch: &mut Batch,
        may_hold: bool,
    ) -> CallItem {
        let micros = |from, to: metamcp_types::moment::Moment| {
            u64::try_from(to.since(from).as_micros()).unwrap_or(u64::MAX)
        };
        CallItem {
            at_ms: unix_millis(),
            identity: Arc::clone(&record.identity),
            origin: record.origin,
            server: Arc::clone(&record.server),
            tool: Arc::clone(&record.tool),
            method: record.method,
            id: record.id,
            micros: micros(record.arrived, record.ended),
            queued_micros: record.sent.map_or(0, |sent| micros(record.arrived, sent)),
            attempts: record.attempts,
            verdict: record.verdict.word(),
            arguments: Side::of(arguments, batch, may_hold),
            result: Side::of(result, batch, may_hold),
            ticket: None,
        }
    }

    /// The same for a call that waits for it under this ticket.
    pub(super) fn begun(self, ticket: u64) -> CallItem {
        CallItem { ticket: Some(ticket), ..self }
    }

    fn put(&self, put: &mut Put<'_>) -> Result<(), AuditError> {
        let mut what = [("", Fact::Is(true)); 10];
        let mut count = 0;
        let mut add = |name, fact| {
            what[count] = (name, fact);
            count += 1;
        };
        add("server", Fact::Text(clip(&self.server, MAX_TEXT)));
        add("tool", Fact::Text(clip(&self.tool, MAX_TEXT)));
        if self.method != "tools/call" {
            add("method", Fact::Text(self.method));
        }
        add("by", Fact::Text(self.origin.word()));
        if let Origin::Script(number) = self.origin {
            add("script", Fact::Number(number));
        }
        add("call", Fact::Number(self.id));
        if self.ticket.is_none() {
            add("ms", Fact::Micros(self.micros));
            if self.queued_micros >= 1000 {
                add("waited_ms", Fact::Micros(self.queued_micros));
            }
            add("attempts", Fact::Number(u64::from(self.attempts)));
        }
        let (kind, verdict) = match self.ticket {
            Some(_) => (Kind::Begun, "sending"),
            None => (Kind::Call, self.verdict),
        };
        put(&Entry {
            at_ms: self.at_ms,
            kind,
            who: who(Some(&self.identity)),
            what: &what[..count],
            verdict,
            arguments: self.arguments.part(),
            result: self.result.part(),
        })
    }
}

/// Anything else: rare, so it may cost more.
#[derive(Debug)]
pub(super) struct OtherItem {
    at_ms: u64,
    kind: Kind,
    identity: Option<Identity>,
    what: Vec<(&'static str, OwnedFact)>,
    verdict: &'static str,
}

#[derive(Debug)]
pub(super) enum OwnedFact {
    Text(String),
    Number(u64),
    Texts(Vec<String>),
    Is(bool),
}

impl OwnedFact {
    fn borrowed(&self) -> Fact<'_> {
        match self {
            OwnedFact::Text(fact) => Fact::Text(fact),
            OwnedFact::Number(fact) => Fact::Number(*fact),
            OwnedFact::Texts(facts) => Fact::Texts(facts),
            OwnedFact::Is(fact) => Fact::Is(*fact),
        }
    }
}

impl OtherItem {
    pub(super) fn new(
        kind: Kind,
        verdict: &'static str,
        what: Vec<(&'static str, OwnedFact)>,
    ) -> OtherItem {
        OtherItem { at_ms: unix_millis(), kind, identity: None, what, verdict }
    }

    pub(super) fn of_login(server: &str, change: LoginChange) -> OtherItem {
        let verdict = match change {
            LoginChange::Needed => "needed",
            LoginChange::Started => "started",
            LoginChange::Granted => "granted",
            LoginChange::Refreshed => "refreshed",
            LoginChange::Failed => "failed",
            LoginChange::Forgotten => "forgotten",
        };
        OtherItem::new(Kind::Login, verdict, vec![("server", short(server))])
    }

    pub(super) fn of_action(action: &Action<'_>) -> OtherItem {
        let (kind, what) = match action.subject {
            Subject::Approval { server, package, plan } => (
                Kind::Approval,
                vec![("server", short(server)), ("package", short(package)), ("plan", short(plan))],
            ),
            Subject::Call { server, tool, arguments } => (
                Kind::Approval,
                vec![
                    ("server", short(server)),
                    ("tool", short(tool)),
                    ("arguments_sha256", short(arguments)),
                ],
            ),
            Subject::Installation { server, package, plan } => (
                Kind::Installation,
                vec![("server", short(server)), ("package", short(package)), ("plan", short(plan))],
            ),
            Subject::Trust { file, sha256 } => {
                let mut what = vec![("file", path(file))];
                if !sha256.is_empty() {
                    what.push(("sha256", short(sha256)));
                }
                (Kind::Trust, what)
            }
            Subject::Config { file, added, changed, removed, settings } => {
                let mut what: Vec<(&'static str, OwnedFact)> = Vec::new();
                if let Some(file) = file {
                    what.push(("file", path(file)));
                }
                for (name, servers) in
                    [("added", added), ("changed", changed), ("removed", removed)]
                {
                    if !servers.is_empty() {
                        what.push((name, names(servers)));
                    }
                }
                if settings {
                    what.push(("settings", OwnedFact::Is(true)));
                }
                (Kind::Config, what)
            }
            Subject::Refusal { at, reason } => {
                (Kind::Refusal, vec![("at", short(at)), ("reason", short(reason))])
            }
        };
        let identity = action.identity.cloned();
        OtherItem { identity, ..OtherItem::new(kind, action.verdict, what) }
    }

    pub(super) fn put(&self, put: &mut Put<'_>) -> Result<(), AuditError> {
        let what: Vec<(&'static str, Fact<'_>)> =
            self.what.iter().map(|(name, fact)| (*name, fact.borrowed())).collect();
        put(&Entry {
            at_ms: self.at_ms,
            kind: self.kind,
            who: who(self.identity.as_ref()),
            what: &what,
            verdict: self.verdict,
            arguments: None,
            result: None,
        })
    }
}

impl Item {
    /// Bytes that it holds.
    pub(super) fn held(&self) -> usize {
        match self {
            Item::Call(call) => call.arguments.held() + call.result.held(),
            Item::Other(_) => 0,
        }
    }

    pub(super) fn ticket(&self) -> Option<u64> {
        match self {
            Item::Call(call) => call.ticket,
            Item::Other(_) => None,
        }
    }

    fn read(&mut self, copied: &[u8], redact: &Redact, has_values: bool) {
        let Item::Call(call) = self else { return };
        let values = has_values.then_some(redact);
        call.arguments.read(copied, values);
        call.result.read(copied, values);
        // The subject of another request is an address, which may hold a key.
        if call.method != "tools/call" {
            let subject: String = call.tool.chars().take(4 * MAX_TEXT).collect();
            call.tool = clip(&redact(&subject), MAX_TEXT).into();
        }
    }

    pub(super) fn put(&self, put: &mut Put<'_>) -> Result<(), AuditError> {
        match self {
            Item::Call(call) => call.put(put),
            Item::Other(other) => other.put(put),
        }
    }
}

fn who(identity: Option<&Identity>) -> Who<'_> {
    let pid = *PID;
    match identity {
        None => Who { principal: "owner", pid, ..Who::default() },
        Some(identity) => Who {
            principal: clip(&identity.principal_name, MAX_TEXT),
            pid,
            session: Some(identity.session),
            client: identity
                .client
                .as_ref()
                .map(|one| (clip(&one.name, MAX_CLIENT), clip(&one.version, MAX_CLIENT))),
        },
    }
}

/// The beginning of a text, at most so many bytes.
fn clip(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

fn short(one: &str) -> OwnedFact {
    OwnedFact::Text(text::clean_line(one, MAX_TEXT).into_owned())
}

/// Not cleaned: what is invisible in a path has to be recorded, and a line of JSON can hold it.
fn path(one: &str) -> OwnedFact {
    OwnedFact::Text(one.chars().take(8 * MAX_TEXT).collect())
}

fn names(all: &[String]) -> OwnedFact {
    OwnedFact::Texts(
        all.iter()
            .take(MAX_NAMES)
            .map(|one| text::clean_line(one, MAX_TEXT).into_owned())
            .collect(),
    )
}
