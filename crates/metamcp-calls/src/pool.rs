//! The connection pool's state: a maximum of connections, idle ones reused first, waiters served by lanes in turns.
//! Owns: slots, the idle list (LRU), the queue of waiters, an owner's share, the reserve, the minimum.      Never: knows calls, starts or ends a process.
//! In: what connections do, `pump(now)`.  Out: `Order`s to connect or to close.
//! Tests: `pool/tests.rs`, and the simulation in `tests/sim.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::lifecycle::{Event, State};
use crate::state_change::{Changes, PoolChange, StateChange};
use crate::turns::{Ticket, Turns};
use metamcp_types::moment::Moment;
use metamcp_types::slab::{Key, Slab};

/// A server in the gateway's table: its place there and, in the upper bits, which of those that had it one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServerId(pub u32);

impl ServerId {
    /// Bits that hold the place: a million servers at once. A place is used four thousand times and then retired.
    const PLACE_BITS: u32 = 20;

    /// Its place in a table: never above the number of servers that there were at once, apart from retired places.
    pub fn place(self) -> usize {
        (self.0 & ((1 << Self::PLACE_BITS) - 1)) as usize
    }

    /// The first server at a place.
    pub(crate) fn first_at(place: usize) -> ServerId {
        let place = u32::try_from(place).ok().filter(|place| *place < 1 << Self::PLACE_BITS);
        ServerId(place.expect("servers are thousands, not millions"))
    }

    /// The one after this at its place; none where no more can be told apart.
    pub(crate) fn successor(self) -> Option<ServerId> {
        self.0.checked_add(1 << Self::PLACE_BITS).map(ServerId)
    }
}

/// A connection. Never reused: a server needed again after `Closed` gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub Key);

/// The bounds of the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at most.
    pub size: usize,
    /// Further ones, opened only for those who waited long.
    pub reserve: usize,
    /// How long one waits before the reserve opens; zero turns the reserve off.
    pub reserve_after: Duration,
    /// Connections the idle sweep leaves alone.
    pub minimum: usize,
    /// Idle timeout of a connection.
    pub idle_timeout: Duration,
    /// Connections that servers of one owner may have at once, dying ones included; zero for any number.
    pub per_owner: usize,
}

/// Connections that may be starting at once. More would make every start slow.
pub const CONNECT_BURST: usize = 4;
/// How long a starting connection counts against [`CONNECT_BURST`]. Past it the server is slow or hung, and must
/// not hold up the others.
pub const CONNECT_BURST_WINDOW: Duration = Duration::from_millis(750);

/// When an idle connection is closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// Until the idle timeout, the server's own or the pool's.
    #[default]
    UntilTimeout,
    /// For as long as the gateway lives, or until the server's own idle timeout.
    Alive,
    /// Not at all.
    Ephemeral,
}

/// What the engine has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Connect {
        /// The connection, already holding its slot.
        conn: ConnId,
        server: ServerId,
    },
    /// Shut a connection; its slot comes back with `gone`.
    Close { conn: ConnId, server: ServerId },
}

/// One slot and who has it.
#[derive(Clone, Debug)]
pub struct Slot {
    pub server: ServerId,
    pub state: State,
    /// Since when it is connecting, idle or broken.
    pub since: Moment,
    /// No new work goes to it; it closes when its last request ends.
    pub draining: bool,
    terms: Terms,
    /// Closing, or broken: its process is ending but still uses a slot.
    leaving: bool,
}

/// On which terms a server has a slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// When its idle connection is closed.
    pub keep: Keep,
    /// Its own idle timeout.
    pub idle_timeout: Option<Duration>,
    /// Whose share of the pool it takes; nobody's if it is shared.
    pub owner: Option<u64>,
}

#[derive(Debug)]
struct Waiter {
    terms: Terms,
    since: Moment,
    /// One for each lane that wants it: it gets its slot in the turn of whichever comes first.
    tickets: Vec<Ticket>,
}

/// The owners that have their whole share.
#[derive(Debug, Default)]
struct FullShares(BTreeMap<u64, usize>);

impl FullShares {
    fn holds_back(&self, owner: Option<u64>) -> bool {
        owner.is_some_and(|owner| self.0.contains_key(&owner))
    }
}

#[derive(Debug)]
pub struct Pool {
    limits: Limits,
    slots: Slab<Slot>,
    leaving: usize,
    /// Most recently used first.
    idle: VecDeque<ConnId>,
    waiting: BTreeMap<ServerId, Waiter>,
    turns: Turns<ServerId>,
    /// What changed since somebody last asked; the dispatch adds its breakers', so that all are in order.
    pub(crate) changes: Changes,
}

impl Pool {
    pub fn new(limits: Limits) -> Pool {
        Pool {
            limits,
            slots: Slab::default(),
            leaving: 0,
            idle: VecDeque::new(),
            waiting: BTreeMap::new(),
            turns: Turns::default(),
            changes: Changes::default(),
        }
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Replaces the bounds. Connections above a smaller size go as they become idle.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Slots in use, those of dying processes included.
    pub fn count(&self) -> usize {
        self.slots.len()
    }

    /// A slot's state.
    pub fn slot(&self, conn: ConnId) -> Option<&Slot> {
        self.slots.get(conn.0)
    }

    /// Every slot in use.
    pub fn all(&self) -> impl Iterator<Item = (ConnId, &Slot)> {
        self.slots.iter().map(|(key, slot)| (ConnId(key), slot))
    }

    /// Idle connections, most recently used first.
    pub fn idle(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.idle.iter().copied()
    }

    /// Whether a server waits for a slot, and since when.
    pub fn waits_since(&self, server: ServerId) -> Option<Moment> {
        self.waiting.get(&server).map(|waiter| waiter.since)
    }

    /// Servers waiting for a slot, in no particular order.
    pub fn waiting(&self) -> impl Iterator<Item = ServerId> + '_ {
        self.waiting.keys().copied()
    }

    /// Servers waiting for a slot, in the order in which they would get one if nothing else came.
    pub fn line(&self) -> Vec<ServerId> {
        let mut turns = self.turns.clone();
        let mut line = Vec::with_capacity(self.waiting.len());
        while let Some(server) = turns.pop() {
            for ticket in self.waiting.get(&server).iter().flat_map(|waiter| &waiter.tickets) {
                turns.remove(*ticket);
            }
            line.push(server);
        }
        line
    }

    /// Puts a server at the end of a lane, unless it stands there already. `pump` serves the lanes in turns.
    pub fn want(&mut self, server: ServerId, lane: u64, terms: Terms, now: Moment) {
        if !self.waiting.contains_key(&server) {
            self.note(server, PoolChange::Queued { ahead: self.waiting.len() });
        }
        let waiter = self.waiting.entry(server).or_insert_with(|| Waiter {
            terms,
            since: now,
            tickets: Vec::new(),
        });
        if waiter.tickets.iter().all(|ticket| ticket.lane() != lane) {
            waiter.tickets.push(self.turns.push(lane, server));
        }
    }

    /// Changes what a server that waits gets when its turn comes.
    pub fn amend(&mut self, server: ServerId, terms: Terms) {
        if let Some(waiter) = self.waiting.get_mut(&server) {
            waiter.terms = terms;
        }
    }

    /// Takes a server out of the line: nobody wants it any more.
    pub fn withdraw(&mut self, server: ServerId) {
        if self.forget_waiter(server).is_some() {
            self.note(server, PoolChange::Withdrawn);
        }
    }

    /// Takes a server out of one lane: of that one nobody wants it any more.
    pub fn leave(&mut self, server: ServerId, lane: u64) {
        let Some(waiter) = self.waiting.get_mut(&server) else { return };
        if let Some(place) = waiter.tickets.iter().position(|ticket| ticket.lane() == lane) {
            self.turns.remove(waiter.tickets.swap_remove(place));
        }
        if waiter.tickets.is_empty() {
            self.withdraw(server);
        }
    }

    /// Serves the line as far as the bounds allow, and makes room where they do not.
    pub fn pump(&mut self, now: Moment, orders: &mut Vec<Order>) {
        let mut reserve_used = false;
        while let Some((ticket, server)) = self.next_in_turn() {
            if self.fresh_connecting(now).count() >= CONNECT_BURST {
                break;
            }
            let from_reserve = self.count() >= self.limits.size;
            if from_reserve {
                let may_reserve = !reserve_used && self.reserve_opens().is_some_and(|at| now >= at);
                if !may_reserve {
                    break;
                }
                reserve_used = true;
            }
            self.turns.take(ticket);
            let Some(head) = self.forget_waiter(server) else { continue };
            self.note(server, PoolChange::Granted { waited: now.since(head.since), from_reserve });
            let conn = ConnId(self.slots.insert(Slot {
                server,
                state: State::Connecting,
                since: now,
                draining: false,
                terms: head.terms,
                leaving: false,
            }));
            self.changes.of_connection(server, conn, None, Some(State::Connecting));
            orders.push(Order::Connect { conn, server });
        }
        self.make_room(orders);
    }

    /// The handshake is done; the listing of its tools is its first request.
    pub fn connected(&mut self, conn: ConnId) -> bool {
        self.slot(conn).is_some_and(|slot| slot.state == State::Connecting)
            && self.advance(conn, Event::Begin).is_some()
    }

    /// Puts a request on a connection.
    pub fn begin(&mut self, conn: ConnId) -> bool {
        let was_idle = self.slot(conn).is_some_and(|slot| slot.state == State::Idle);
        let began = self.advance(conn, Event::Begin).is_some();
        if was_idle && began {
            self.forget_idle(conn);
        }
        began
    }

    /// A request on a connection ended. Orders follow from `pump`, except that of an ephemeral or draining one.
    pub fn finish(&mut self, conn: ConnId, now: Moment, orders: &mut Vec<Order>) {
        if self.advance(conn, Event::Finish) != Some(State::Idle) {
            return;
        }
        let Some(slot) = self.slots.get_mut(conn.0) else { return };
        slot.since = now;
        if slot.terms.keep == Keep::Ephemeral || slot.draining {
            self.close(conn, orders);
        } else {
            self.idle.push_front(conn);
            if !self.waiting.is_empty() || self.count() - self.leaving > self.limits.size {
                self.make_room(orders);
            }
        }
    }

    /// Its process or transport broke. The slot stays taken until `gone`.
    pub fn broke(&mut self, conn: ConnId, now: Moment) {
        self.forget_idle(conn);
        self.advance(conn, Event::Break);
        self.mark_leaving(conn);
        if let Some(slot) = self.slots.get_mut(conn.0) {
            slot.since = now;
        }
    }

    /// A broken connection starts again, keeping its slot, unless too many are starting: then it has to give the
    /// slot up and take its turn, or one event that breaks many connections would start them all at once.
    pub fn reconnect(&mut self, conn: ConnId, now: Moment) -> bool {
        if self.slot(conn).is_none_or(|slot| slot.state != State::Failed)
            || self.fresh_connecting(now).count() >= CONNECT_BURST
            || self.advance(conn, Event::Connect).is_none()
        {
            return false;
        }
        if let Some(slot) = self.slots.get_mut(conn.0) {
            slot.since = now;
            if std::mem::take(&mut slot.leaving) {
                self.leaving -= 1;
            }
        }
        true
    }

    /// Shuts a connection. A broken one is on its way out already, and is not ordered out twice.
    pub fn close(&mut self, conn: ConnId, orders: &mut Vec<Order>) {
        self.forget_idle(conn);
        if self.advance(conn, Event::Close).is_some()
            && self.mark_leaving(conn)
            && let Some(slot) = self.slot(conn)
        {
            orders.push(Order::Close { conn, server: slot.server });
        }
    }

    /// Gives a connection no new work; it closes once its last request ended.
    pub fn drain(&mut self, conn: ConnId, orders: &mut Vec<Order>) {
        let Some(slot) = self.slots.get_mut(conn.0) else { return };
        slot.draining = true;
        if slot.state == State::Idle {
            self.close(conn, orders);
        }
    }

    /// Nothing of its process is left: the slot is free.
    pub fn gone(&mut self, conn: ConnId) {
        self.forget_idle(conn);
        if let Some(slot) = self.slots.remove(conn.0) {
            self.changes.of_connection(slot.server, conn, Some(slot.state), None);
            self.leaving -= usize::from(slot.leaving);
        }
    }

    /// Closes what has been idle for too long, oldest first, leaving the minimum alone.
    pub fn sweep(&mut self, now: Moment, orders: &mut Vec<Order>) {
        let overdue: Vec<ConnId> = self
            .idle
            .iter()
            .rev()
            .copied()
            .filter(|&conn| self.slot(conn).is_some_and(|slot| now >= self.idle_deadline(slot)))
            .collect();
        for conn in overdue {
            if self.count() - self.leaving > self.limits.minimum {
                self.close_because(PoolChange::IdleTimeout, conn, orders);
            }
        }
    }

    /// The moment from which on `pump` or `sweep` has something to do, if nothing else happens before. One that has
    /// passed means at once.
    pub fn deadline(&self, now: Moment) -> Moment {
        let spare = self.count() - self.leaving > self.limits.minimum;
        let sweep = self
            .idle
            .iter()
            .filter(|_| spare)
            .filter_map(|&conn| self.slot(conn))
            .map(|slot| self.idle_deadline(slot))
            .min();
        sweep.unwrap_or(Moment::NEVER).min(self.next_grant(now))
    }

    /// Closes idle connections, least recently used first, until the line and the bounds will be served by what
    /// is on its way out. The minimum does not stand in the way: each one closed here makes room for one opened.
    fn make_room(&mut self, orders: &mut Vec<Order>) {
        let held_back = self.make_room_in_shares(orders);
        let staying = self.count() - self.leaving;
        let waiting = self.waiting.len() - held_back;
        let mut missing = (staying + waiting).saturating_sub(self.limits.size);
        while missing > 0 {
            let Some(victim) = self.least_needed(|_| true) else { return };
            self.close_because(PoolChange::Evicted, victim, orders);
            missing -= 1;
        }
    }

    /// The same within the share of each owner, who pays with connections of its own. Returns how many cannot be served
    /// for all that: nobody else's connection is to be closed for them.
    fn make_room_in_shares(&mut self, orders: &mut Vec<Order>) -> usize {
        if self.limits.per_owner == 0 {
            return 0;
        }
        let mut wanted: BTreeMap<u64, usize> = BTreeMap::new();
        for owner in self.waiting.values().filter_map(|waiter| waiter.terms.owner) {
            *wanted.entry(owner).or_default() += 1;
        }
        let mut held_back = 0;
        for (owner, wanted) in wanted {
            let is_theirs = |slot: &Slot| slot.terms.owner == Some(owner);
            let staying = self.slots.iter().filter(|(_, slot)| is_theirs(slot) && !slot.leaving);
            let mut missing = (staying.count() + wanted).saturating_sub(self.limits.per_owner);
            while missing > 0
                && let Some(victim) = self.least_needed(is_theirs)
            {
                self.close_because(PoolChange::Evicted, victim, orders);
                missing -= 1;
            }
            held_back += missing.min(wanted);
        }
        held_back
    }

    /// Closes up to so many idle connections, least recently used first, whatever the bounds say.
    pub fn shed(&mut self, most: usize, orders: &mut Vec<Order>) {
        for _ in 0..most {
            let Some(victim) = self.least_needed(|_| true) else { return };
            self.close_because(PoolChange::Evicted, victim, orders);
        }
    }

    fn close_because(&mut self, change: PoolChange, conn: ConnId, orders: &mut Vec<Order>) {
        if let Some(server) = self.slot(conn).map(|slot| slot.server) {
            self.note(server, change);
        }
        self.close(conn, orders);
    }

    fn note(&mut self, server: ServerId, change: PoolChange) {
        self.changes.note(StateChange::Pool { server, change });
    }

    /// The idle connection that was not used for the longest time, of those that need not be kept.
    fn least_needed(&self, of: impl Fn(&Slot) -> bool) -> Option<ConnId> {
        let may_go = |&conn: &ConnId| {
            self.slot(conn).is_some_and(|slot| slot.terms.keep != Keep::Alive && of(slot))
        };
        self.idle.iter().rev().copied().find(may_go)
    }

    fn idle_deadline(&self, slot: &Slot) -> Moment {
        match (slot.terms.idle_timeout, slot.terms.keep) {
            (Some(own), _) => slot.since + own,
            (None, Keep::Alive) => Moment::NEVER,
            (None, _) => slot.since + self.limits.idle_timeout,
        }
    }

    /// When the next in turn gets a slot by the mere passing of time.
    fn next_grant(&self, now: Moment) -> Moment {
        if self.next_in_turn().is_none() {
            return Moment::NEVER;
        }
        let slot = if self.count() < self.limits.size {
            Moment::START
        } else {
            match self.reserve_opens() {
                Some(at) => at,
                None => return Moment::NEVER,
            }
        };
        let turn = if self.fresh_connecting(now).count() >= CONNECT_BURST {
            self.fresh_connecting(now).min().unwrap_or(Moment::START)
        } else {
            Moment::START
        };
        slot.max(turn)
    }

    /// When somebody has waited for so long that the next in turn gets a slot of the reserve, if one is left.
    fn reserve_opens(&self) -> Option<Moment> {
        let limits = &self.limits;
        let has_left = self.count() < limits.size + limits.reserve;
        let full = self.full_shares();
        let can_go = self.waiting.values().filter(|waiter| !full.holds_back(waiter.terms.owner));
        let longest = can_go.map(|waiter| waiter.since).min()?;
        (has_left && limits.reserve_after > Duration::ZERO).then(|| longest + limits.reserve_after)
    }

    /// Whose turn it is among those that may have a slot as soon as there is one. One whose owner has its whole share
    /// waits until that has fewer, and nobody waits for it.
    fn next_in_turn(&self) -> Option<(Ticket, ServerId)> {
        let full = self.full_shares();
        let can_go = |server: &ServerId| {
            self.waiting.get(server).is_none_or(|waiter| !full.holds_back(waiter.terms.owner))
        };
        self.turns.next_where(can_go).map(|(ticket, server)| (ticket, *server))
    }

    fn full_shares(&self) -> FullShares {
        if self.limits.per_owner == 0 {
            return FullShares::default();
        }
        let mut held: BTreeMap<u64, usize> = BTreeMap::new();
        for owner in self.slots.iter().filter_map(|(_, slot)| slot.terms.owner) {
            *held.entry(owner).or_default() += 1;
        }
        held.retain(|_, count| *count >= self.limits.per_owner);
        FullShares(held)
    }

    /// Whether a server of that owner would get a slot at once, at nobody's cost.
    pub fn has_free_slot(&self, owner: Option<u64>) -> bool {
        let is_theirs = |terms: &Terms| owner.is_some() && terms.owner == owner;
        let held = self.slots.iter().filter(|(_, slot)| is_theirs(&slot.terms)).count();
        let wanted = self.waiting.values().filter(|waiter| is_theirs(&waiter.terms)).count();
        self.count() + self.waiting.len() < self.limits.size
            && (self.limits.per_owner == 0 || held + wanted < self.limits.per_owner)
    }

    fn forget_waiter(&mut self, server: ServerId) -> Option<Waiter> {
        let waiter = self.waiting.remove(&server)?;
        for &ticket in &waiter.tickets {
            self.turns.remove(ticket);
        }
        Some(waiter)
    }

    /// The starts that count against [`CONNECT_BURST`], as the moments at which each ceases to.
    fn fresh_connecting(&self, now: Moment) -> impl Iterator<Item = Moment> {
        self.slots
            .iter()
            .filter(|(_, slot)| slot.state == State::Connecting)
            .map(|(_, slot)| slot.since + CONNECT_BURST_WINDOW)
            .filter(move |&end| now < end)
    }

    /// The state after an event; `None` where the event is illegal, which changes nothing.
    fn advance(&mut self, conn: ConnId, event: Event) -> Option<State> {
        let slot = self.slots.get_mut(conn.0)?;
        let from = slot.state;
        slot.state = from.after(event).ok()?;
        let (server, to) = (slot.server, slot.state);
        self.changes.of_connection(server, conn, Some(from), Some(to));
        Some(to)
    }

    /// Whether it was not leaving before.
    fn mark_leaving(&mut self, conn: ConnId) -> bool {
        let Some(slot) = self.slots.get_mut(conn.0) else { return false };
        let fresh = !std::mem::replace(&mut slot.leaving, true);
        self.leaving += usize::from(fresh);
        fresh
    }

    fn forget_idle(&mut self, conn: ConnId) {
        if let Some(place) = self.idle.iter().position(|&other| other == conn) {
            self.idle.remove(place);
        }
    }
}

#[cfg(test)]
mod tests;
