//! The session table: owners, last use, and what is kept of a session while it is idle.
//! Pure: given the time and the ids.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use metamcp_types::moment::Moment;
use metamcp_wire::era::{Era, Revision};
use metamcp_wire::handshake::{Peer, relayed_capabilities};

use super::access::Principal;
use super::guard::Endpoint;

/// Idle sessions take about a hundred bytes each; this is far more than one gateway has clients.
const MAX_SESSIONS: usize = 250_000;
/// Memory of all sessions, whatever their clients declared; above it the oldest are evicted.
const MAX_BYTES: usize = 40 * 1024 * 1024;
/// Sessions that are not at rest although nothing happens in them: enough for every client that is really there.
const MAX_AWAKE: usize = 1024;
/// Sessions checked for idleness each time another becomes active.
const LOOKED_AT: usize = 8;
/// Sessions that would lose something by resting are let rest as well where there are so many times too many.
const FAR_TOO_MANY: usize = 4;
/// Room is made for so large a part at once, so that it is not looked for with every new session.
const MADE_AT_ONCE: usize = 16;
/// What clients declare is mostly the same; this many different declarations are kept once for all.
const CARDS: usize = 32;
/// A place in the table with its share of empty ones, and an allocation's own.
const ENTRY_BYTES: usize = 112;

/// What names a session: nothing but randomness.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId([u8; 16]);

impl SessionId {
    /// Takes random bytes.
    pub fn new(random: [u8; 16]) -> SessionId {
        SessionId(random)
    }

    /// Reads 32 lower-case hexadecimal digits.
    pub fn parse(text: &str) -> Option<SessionId> {
        let text = text.as_bytes();
        if text.len() != 32 {
            return None;
        }
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let mut id = [0; 16];
        for (byte, pair) in id.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(pair[0])? << 4 | digit(pair[1])?;
        }
        Some(SessionId(id))
    }

    /// Its random bytes.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// As clients send it.
    pub fn text(&self) -> String {
        use std::fmt::Write;
        self.0.iter().fold(String::with_capacity(32), |mut text, byte| {
            let _infallible = write!(text, "{byte:02x}");
            text
        })
    }
}

impl std::fmt::Debug for SessionId {
    /// Not printed: it is a credential.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionId")
    }
}

/// What is kept of a client while its session is idle.
#[derive(Debug, PartialEq, Eq)]
struct Card {
    revision: Revision,
    /// The capabilities relayed to servers, as JSON.
    capabilities: Box<str>,
}

impl Card {
    fn of(peer: &Peer) -> Card {
        let capabilities = relayed_capabilities(&peer.capabilities).to_string();
        Card {
            revision: peer.era.revision().unwrap_or(Revision::LATEST),
            capabilities: capabilities.into(),
        }
    }

    fn peer(&self) -> Peer {
        Peer {
            era: Era::Initialize(self.revision),
            name: String::new(),
            title: None,
            version: String::new(),
            capabilities: serde_json::from_str(&self.capabilities).unwrap_or_default(),
            description: None,
            instructions: None,
        }
    }
}

/// Who began a session, and at which endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner {
    /// By token.
    pub principal: Principal,
    /// By path.
    pub endpoint: Endpoint,
}

struct Entry<L> {
    card: Arc<Card>,
    awake: Option<L>,
    owner: Owner,
    /// In a fleet: this is the gateway where processes of its own are, and none of them was lost.
    is_home: bool,
    /// Last use, in ticks since the start.
    used: u32,
    bytes: u32,
}

/// See the module. `L` is a session that is awake.
pub struct Sessions<L> {
    timeout: Duration,
    most: SessionLimits,
    table: HashMap<SessionId, Entry<L>>,
    /// How many each owner has.
    held: HashMap<Owner, usize>,
    bytes: usize,
    /// Awake ones with when they were last used as far as was looked, longest unused first; ids of those that are gone may
    /// still be among them.
    awake: VecDeque<(SessionId, u32)>,
    cards: VecDeque<Arc<Card>>,
}

#[derive(Clone, Copy)]
struct SessionLimits {
    sessions: usize,
    bytes: usize,
    awake: usize,
}

/// A session that was asked for.
#[derive(Debug, PartialEq)]
pub enum Found<L> {
    /// It is awake.
    Awake(L),
    /// It rests; its client was this one.
    Resting(Peer),
}

/// A session that is awake.
pub trait ActiveSession: Clone {
    /// Whether nothing is under way in it.
    fn is_quiet(&self) -> bool;
    /// Whether it holds what a rest would lose.
    fn is_attached(&self) -> bool;
}

impl<L: ActiveSession> Sessions<L> {
    /// No sessions yet; those idle for so long will be forgotten.
    pub fn new(timeout: Duration) -> Sessions<L> {
        let most = SessionLimits { sessions: MAX_SESSIONS, bytes: MAX_BYTES, awake: MAX_AWAKE };
        Sessions {
            timeout,
            most,
            table: HashMap::new(),
            held: HashMap::new(),
            bytes: 0,
            awake: VecDeque::new(),
            cards: VecDeque::new(),
        }
    }

    /// A new session. False if there is no room, which takes a quarter of a million clients at work.
    pub fn insert(
        &mut self,
        id: SessionId,
        owner: Owner,
        peer: &Peer,
        awake: L,
        now: Moment,
    ) -> bool {
        let (card, own) = self.card(Card::of(peer));
        let bytes = ENTRY_BYTES + if own { card.capabilities.len() + 64 } else { 0 };
        if !self.has_room(bytes) {
            self.make_room();
        }
        if !self.has_room(bytes) {
            return false;
        }
        self.bytes += bytes;
        *self.held.entry(owner).or_default() += 1;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let used = ticks(now.elapsed());
        let entry = Entry { card, awake: Some(awake), owner, is_home: false, used, bytes };
        self.table.insert(id, entry);
        self.woke(id);
        true
    }

    /// A process of its own is here, if it has one.
    pub fn settle(&mut self, id: SessionId) {
        if let Some(entry) = self.table.get_mut(&id) {
            entry.is_home = true;
        }
    }

    /// Whether a process of its own can only be here.
    pub fn is_home(&self, id: SessionId) -> bool {
        self.table.get(&id).is_some_and(|entry| entry.is_home)
    }

    /// The session of that id, if it is that owner's.
    pub fn find(&mut self, id: SessionId, owner: Owner, now: Moment) -> Option<Found<L>> {
        let entry = self.table.get_mut(&id).filter(|entry| entry.owner == owner)?;
        entry.used = ticks(now.elapsed());
        Some(match &entry.awake {
            Some(awake) => Found::Awake(awake.clone()),
            None => Found::Resting(entry.card.peer()),
        })
    }

    /// A session that rested is awake.
    pub fn wake(&mut self, id: SessionId, awake: L) {
        if let Some(entry) = self.table.get_mut(&id) {
            entry.awake = Some(awake);
            self.woke(id);
        }
    }

    /// Takes a session out, if it is that owner's; the inner value is there if it was awake.
    pub fn remove(&mut self, id: SessionId, owner: Owner) -> Option<Option<L>> {
        self.table.get(&id).filter(|entry| entry.owner == owner)?;
        self.drop_entry(id).map(|entry| entry.awake)
    }

    /// Drops sessions unused for the timeout.
    pub fn sweep(&mut self, now: Moment) {
        let timeout = ticks(self.timeout);
        let present = ticks(now.elapsed());
        let mut gone = Vec::new();
        for (id, entry) in &mut self.table {
            let is_quiet = entry.awake.as_ref().is_none_or(ActiveSession::is_quiet);
            if !is_quiet {
                // A client listens or waits: in use.
                entry.used = present;
            } else if present.saturating_sub(entry.used) >= timeout {
                gone.push(*id);
            }
        }
        for id in gone {
            self.drop_entry(id);
        }
        let table = &self.table;
        self.awake.retain(|(id, _)| table.get(id).is_some_and(|entry| entry.awake.is_some()));
    }

    /// Every session that is awake.
    pub fn awake(&self) -> impl Iterator<Item = &L> {
        self.table.values().filter_map(|entry| entry.awake.as_ref())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Notes that a session is awake, and lets others rest in its place.
    fn woke(&mut self, id: SessionId) {
        let used = self.table.get(&id).map_or(0, |entry| entry.used);
        self.awake.push_back((id, used));
        for _ in 0..LOOKED_AT {
            let count = self.awake.len();
            if count <= self.most.awake {
                return;
            }
            let Some((oldest, seen)) = self.awake.pop_front() else { return };
            let Some(entry) = self.table.get_mut(&oldest) else { continue };
            let Some(awake) = &entry.awake else { continue };
            let far_too_many = count > self.most.awake * FAR_TOO_MANY;
            let stays = !awake.is_quiet()
                || oldest == id
                || (!far_too_many && (entry.used > seen || awake.is_attached()));
            if stays {
                self.awake.push_back((oldest, entry.used));
            } else {
                entry.is_home &= !awake.is_attached();
                entry.awake = None;
            }
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.table.len() < self.most.sessions && self.bytes + bytes <= self.most.bytes
    }

    /// Evicts the oldest quiet sessions of the owner that has most.
    fn make_room(&mut self) {
        let Some((&greedy, _)) = self.held.iter().max_by_key(|(_, count)| **count) else { return };
        let mut quiet: Vec<(u32, SessionId)> = self
            .table
            .iter()
            .filter(|(_, entry)| {
                entry.owner == greedy && entry.awake.as_ref().is_none_or(ActiveSession::is_quiet)
            })
            .map(|(id, entry)| (entry.used, *id))
            .collect();
        let count = quiet.len().div_ceil(MADE_AT_ONCE);
        if count == 0 {
            return;
        }
        quiet.select_nth_unstable_by_key(count - 1, |(used, _)| *used);
        for (_, id) in &quiet[..count] {
            self.drop_entry(*id);
        }
    }

    fn drop_entry(&mut self, id: SessionId) -> Option<Entry<L>> {
        let entry = self.table.remove(&id)?;
        self.bytes -= entry.bytes as usize;
        if let Some(count) = self.held.get_mut(&entry.owner) {
            *count -= 1;
            if *count == 0 {
                self.held.remove(&entry.owner);
            }
        }
        Some(entry)
    }

    /// The one copy of a card, and whether it is new.
    fn card(&mut self, card: Card) -> (Arc<Card>, bool) {
        if let Some(known) = self.cards.iter().find(|known| ***known == card) {
            return (Arc::clone(known), false);
        }
        let card = Arc::new(card);
        self.cards.truncate(CARDS - 1);
        self.cards.push_front(Arc::clone(&card));
        (card, true)
    }
}

/// Time in tenths of a second: four bytes of them last for thirteen years.
fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / 100).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
