//! A naive model of the pool, with plain lists and no regard for speed, and random operations on both.

use std::time::Duration;

use metamcp_calls::lifecycle::State;
use metamcp_calls::pool::{
    CONNECT_BURST, CONNECT_BURST_WINDOW, ConnId, Keep, Limits, Order, Pool, ServerId, Terms,
};
use metamcp_types::moment::Moment;

use crate::rng::Rng;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    Connecting,
    Active(u32),
    Idle,
    Failed,
    Closed,
}

#[derive(Clone, Debug)]
struct Slot {
    conn: ConnId,
    server: ServerId,
    is: Is,
    since: Moment,
    /// Incremented whenever a connection becomes idle: the smallest is the least recently used.
    stamp: u64,
    terms: Terms,
    draining: bool,
    leaving: bool,
}

#[derive(Clone, Debug)]
struct Waiter {
    server: ServerId,
    terms: Terms,
    since: Moment,
}

#[derive(Clone, Debug)]
pub(crate) struct Model {
    limits: Limits,
    slots: Vec<Slot>,
    waiters: Vec<Waiter>,
    /// Which lane wants which server, in the order they came, and the lanes in the order of their turns.
    places: Vec<(u64, ServerId)>,
    turns: Vec<u64>,
    stamp: u64,
}

/// An order before the pool has assigned the connection id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnnamedOrder {
    Connect(ServerId),
    Close(ConnId),
}

impl Model {
    fn slot(&mut self, conn: ConnId) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.conn == conn)
    }

    fn want(&mut self, server: ServerId, lane: u64, terms: Terms, since: Moment) {
        if !self.waiters.iter().any(|waiter| waiter.server == server) {
            self.waiters.push(Waiter { server, terms, since });
        }
        if !self.places.contains(&(lane, server)) {
            self.places.push((lane, server));
        }
        if !self.turns.contains(&lane) {
            self.turns.push(lane);
        }
    }

    /// Drops the places that `gone` is true of, and what nobody wants any more.
    fn forget(&mut self, gone: impl Fn(u64, ServerId) -> bool) {
        self.places.retain(|&(lane, server)| !gone(lane, server));
        self.turns.retain(|lane| self.places.iter().any(|place| place.0 == *lane));
        self.waiters.retain(|waiter| self.places.iter().any(|place| place.1 == waiter.server));
    }

    /// Whether a server that waits has room in its owner's share.
    fn has_room(&self, server: ServerId) -> bool {
        let waiter = self.waiters.iter().find(|waiter| waiter.server == server);
        let Some(owner) = waiter.and_then(|waiter| waiter.terms.owner) else { return true };
        let held = self.slots.iter().filter(|slot| slot.terms.owner == Some(owner)).count();
        self.limits.per_owner == 0 || held < self.limits.per_owner
    }

    /// Takes the server whose turn it is, among those that `can_go` is true of.
    fn next(&mut self, can_go: impl Fn(&Model, ServerId) -> bool) -> Option<Waiter> {
        let place = |lane: &u64| {
            self.places.iter().find(|place| place.0 == *lane && can_go(self, place.1)).copied()
        };
        let (lane, server) = self.turns.iter().find_map(place)?;
        let waiter = self.waiters.iter().find(|waiter| waiter.server == server).cloned();
        self.forget(|_, other| other == server);
        if let Some(at) = self.turns.iter().position(|other| *other == lane) {
            self.turns.remove(at);
            self.turns.push(lane);
        }
        waiter
    }

    fn staying(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.leaving).count()
    }

    fn fresh(&self, now: Moment) -> usize {
        let fresh =
            |slot: &&Slot| slot.is == Is::Connecting && now < slot.since + CONNECT_BURST_WINDOW;
        self.slots.iter().filter(fresh).count()
    }

    fn close(&mut self, conn: ConnId, wishes: &mut Vec<UnnamedOrder>) {
        if let Some(slot) = self.slot(conn)
            && slot.is != Is::Closed
        {
            slot.is = Is::Closed;
            if !std::mem::replace(&mut slot.leaving, true) {
                wishes.push(UnnamedOrder::Close(conn));
            }
        }
    }

    /// Evicts until staying and waiting servers fit, the least recently used first, never one with keep-alive.
    fn make_room(&mut self, wishes: &mut Vec<UnnamedOrder>) {
        let mut waiting = self.waiters.len();
        let owners = if self.limits.per_owner > 0 { 0..3 } else { 0..0 };
        for owner in owners {
            // Beyond its share an owner's servers wait for its own connections only.
            let theirs = |terms: &Terms| terms.owner == Some(owner);
            let wanted = self.waiters.iter().filter(|waiter| theirs(&waiter.terms)).count();
            let beyond = |model: &Model| {
                let staying = model.slots.iter().filter(|s| theirs(&s.terms) && !s.leaving);
                (staying.count() + wanted).saturating_sub(model.limits.per_owner)
            };
            while wanted > 0 && beyond(self) > 0 && self.evict(theirs, wishes) {}
            waiting -= beyond(self).min(wanted);
        }
        let mut missing = (self.staying() + waiting).saturating_sub(self.limits.size);
        while missing > 0 && self.evict(|_| true, wishes) {
            missing -= 1;
        }
    }

    fn evict(&mut self, of: impl Fn(&Terms) -> bool, wishes: &mut Vec<UnnamedOrder>) -> bool {
        let idle = self.slots.iter().filter(|slot| slot.is == Is::Idle && of(&slot.terms));
        let idle = idle.filter(|slot| slot.terms.keep != Keep::Alive);
        let victim = idle.min_by_key(|slot| slot.stamp).map(|slot| slot.conn);
        victim.inspect(|conn| self.close(*conn, wishes)).is_some()
    }

    /// `names` supplies the connection ids of the grants, in order; made-up ones in a dry run.
    fn pump(
        &mut self,
        now: Moment,
        names: &mut dyn FnMut() -> ConnId,
        wishes: &mut Vec<UnnamedOrder>,
    ) {
        let mut reserve_used = false;
        while !self.waiters.is_empty() && self.fresh(now) < CONNECT_BURST {
            if self.slots.len() >= self.limits.size {
                let long = self.limits.reserve_after > Duration::ZERO
                    && self.waiters.iter().any(|waiter| {
                        self.has_room(waiter.server)
                            && now >= waiter.since + self.limits.reserve_after
                    });
                let room = self.slots.len() < self.limits.size + self.limits.reserve;
                if reserve_used || !long || !room {
                    break;
                }
                reserve_used = true;
            }
            let Some(first) = self.next(Model::has_room) else { break };
            wishes.push(UnnamedOrder::Connect(first.server));
            self.slots.push(Slot {
                conn: names(),
                server: first.server,
                is: Is::Connecting,
                since: now,
                stamp: 0,
                terms: first.terms,
                draining: false,
                leaving: false,
            });
        }
        self.make_room(wishes);
    }

    fn finish(&mut self, conn: ConnId, now: Moment, wishes: &mut Vec<UnnamedOrder>) {
        self.stamp += 1;
        let (stamp, crowded) = (self.stamp, self.staying() > self.limits.size);
        let waited_for = !self.waiters.is_empty();
        let Some(slot) = self.slot(conn) else { return };
        match slot.is {
            Is::Active(1) => {
                (slot.is, slot.since, slot.stamp) = (Is::Idle, now, stamp);
                if slot.terms.keep == Keep::Ephemeral || slot.draining {
                    self.close(conn, wishes);
                } else if waited_for || crowded {
                    self.make_room(wishes);
                }
            }
            Is::Active(more) => slot.is = Is::Active(more - 1),
            _ => {}
        }
    }

    fn sweep(&mut self, now: Moment, wishes: &mut Vec<UnnamedOrder>) {
        let mut overdue: Vec<(u64, ConnId)> = self
            .slots
            .iter()
            .filter(|slot| slot.is == Is::Idle)
            .filter(|slot| {
                let usual = (slot.terms.keep != Keep::Alive).then_some(self.limits.idle_timeout);
                slot.terms.idle_timeout.or(usual).is_some_and(|limit| now >= slot.since + limit)
            })
            .map(|slot| (slot.stamp, slot.conn))
            .collect();
        overdue.sort_unstable();
        for (_, conn) in overdue {
            if self.staying() > self.limits.minimum {
                self.close(conn, wishes);
            }
        }
    }

    /// Whether the mere passing of time until `at` triggers an action.
    fn would_act(&self, at: Moment) -> bool {
        let mut rehearsal = self.clone();
        let mut wishes = Vec::new();
        let nobody = self.slots.first().map(|slot| slot.conn);
        rehearsal.sweep(at, &mut wishes);
        if wishes.is_empty() {
            // An id that is already in use does no harm in a dry run.
            let mut names = || nobody.expect("a pool with a line and no slots would act at once");
            if !rehearsal.waiters.is_empty() && nobody.is_none() {
                return true;
            }
            rehearsal.pump(at, &mut names, &mut wishes);
        }
        !wishes.is_empty()
    }

    fn idle(&self) -> Vec<ConnId> {
        let mut idle: Vec<&Slot> = self.slots.iter().filter(|slot| slot.is == Is::Idle).collect();
        idle.sort_by_key(|slot| std::cmp::Reverse(slot.stamp));
        idle.iter().map(|slot| slot.conn).collect()
    }
}

/// Runs this many operations on both; panics at the first difference, with the end of the history.
pub(crate) fn compare(seed: u64, operations: u64) {
    let mut rng = Rng::of(seed, 11, 0);
    let mut limits = some_limits(&mut rng);
    let mut pool = Pool::new(limits);
    let mut model = Model {
        limits,
        slots: Vec::new(),
        waiters: Vec::new(),
        places: Vec::new(),
        turns: Vec::new(),
        stamp: 0,
    };
    let mut now = Moment::START;
    let (mut orders, mut wishes) = (Vec::new(), Vec::new());
    let mut last = Vec::new();
    let mut crowded = true;
    for number in 0..operations {
        if number % 100 == 0 {
            // Under contention nothing stays idle; with nobody waiting, idle connections accumulate.
            crowded = rng.chance(500);
        }
        let server = ServerId(u32::try_from(rng.below(12)).expect("below twelve"));
        let conn =
            (!model.slots.is_empty()).then(|| model.slots[rng.size(0, model.slots.len() - 1)].conn);
        let keep =
            rng.pick(&[Keep::UntilTimeout, Keep::UntilTimeout, Keep::Alive, Keep::Ephemeral]);
        let idle_timeout = rng.chance(200).then(|| rng.span(1, 400));
        let owner = rng.chance(600).then(|| rng.below(3));
        let terms = Terms { keep, idle_timeout, owner };
        let lane = rng.below(4);
        let operation = rng.below(100);
        last.push((operation, server, conn, now));
        let (mut said, mut expected) = (true, true);
        let mut pumped = false;
        match (operation, conn) {
            (0..20, _) if !crowded && rng.chance(800) => {}
            (0..20, _) => {
                pool.want(server, lane, terms, now);
                model.want(server, lane, terms, now);
            }
            (20..22, _) => {
                pool.withdraw(server);
                model.forget(|_, other| other == server);
            }
            (22, _) => {
                pool.leave(server, lane);
                model.forget(|one, other| (one, other) == (lane, server));
            }
            (23..25, _) => {
                pool.amend(server, terms);
                for waiter in model.waiters.iter_mut().filter(|waiter| waiter.server == server) {
                    waiter.terms = terms;
                }
            }
            (25, _) if rng.chance(100) => {
                limits = some_limits(&mut rng);
                pool.set_limits(limits);
                model.limits = limits;
            }
            (25..45, _) => {
                // As the dispatch does it: overdue connections are closed, then the queue is served.
                pool.sweep(now, &mut orders);
                pool.pump(now, &mut orders);
                model.sweep(now, &mut wishes);
                let mut granted = orders.iter().filter_map(|order| match order {
                    Order::Connect { conn, .. } => Some(*conn),
                    Order::Close { .. } => None,
                });
                let mut names =
                    || granted.next().unwrap_or_else(|| panic!("a grant is missing: {last:?}"));
                model.pump(now, &mut names, &mut wishes);
                pumped = true;
            }
            (45..60, Some(conn)) => {
                said = pool.connected(conn);
                let slot = model.slot(conn).expect("it was taken from there");
                expected = slot.is == Is::Connecting;
                if expected {
                    slot.is = Is::Active(1);
                }
            }
            (60..68, Some(conn)) => {
                said = pool.begin(conn);
                let slot = model.slot(conn).expect("it was taken from there");
                let next = match slot.is {
                    Is::Idle | Is::Connecting => Some(Is::Active(1)),
                    Is::Active(more) => Some(Is::Active(more + 1)),
                    Is::Failed | Is::Closed => None,
                };
                expected = next.is_some();
                slot.is = next.unwrap_or(slot.is);
            }
            (68..82, Some(conn)) => {
                pool.finish(conn, now, &mut orders);
                model.finish(conn, now, &mut wishes);
            }
            (82..85, Some(conn)) => {
                pool.broke(conn, now);
                let slot = model.slot(conn).expect("it was taken from there");
                slot.is = match slot.is {
                    Is::Connecting | Is::Active(_) => Is::Failed,
                    Is::Idle => Is::Closed,
                    over => over,
                };
                (slot.leaving, slot.since) = (true, now);
            }
            (85..88, Some(conn)) => {
                said = pool.reconnect(conn, now);
                let free = model.fresh(now) < CONNECT_BURST;
                let slot = model.slot(conn).expect("it was taken from there");
                expected = free && slot.is == Is::Failed;
                if expected {
                    (slot.is, slot.since, slot.leaving) = (Is::Connecting, now, false);
                }
            }
            (88..91, Some(conn)) => {
                pool.close(conn, &mut orders);
                model.close(conn, &mut wishes);
            }
            (91..93, Some(conn)) => {
                pool.drain(conn, &mut orders);
                let slot = model.slot(conn).expect("it was taken from there");
                slot.draining = true;
                if slot.is == Is::Idle {
                    model.close(conn, &mut wishes);
                }
            }
            (93..98, Some(conn)) => {
                if model.slot(conn).is_some_and(|slot| slot.leaving) {
                    pool.gone(conn);
                    model.slots.retain(|slot| slot.conn != conn);
                }
            }
            _ => now = now + rng.span(1, 1000),
        }
        if last.len() > 12 {
            last.remove(0);
        }
        let told = || format!("operation {number} of seed {seed}, after {last:?}");
        assert_eq!(said, expected, "{}", told());
        let given: Vec<UnnamedOrder> = orders
            .drain(..)
            .map(|order| match order {
                Order::Connect { server, .. } => UnnamedOrder::Connect(server),
                Order::Close { conn, .. } => UnnamedOrder::Close(conn),
            })
            .collect();
        assert_eq!(given, wishes, "{}", told());
        wishes.clear();
        same(&pool, &model, &told);
        if pumped {
            check_deadline(&pool, &model, now, &told);
        }
    }
}

fn same(pool: &Pool, model: &Model, told: &dyn Fn() -> String) {
    assert_eq!(pool.count(), model.slots.len(), "{}", told());
    for slot in &model.slots {
        let held = pool.slot(slot.conn).unwrap_or_else(|| panic!("no slot, {}", told()));
        let is = match held.state {
            State::Connecting => Is::Connecting,
            State::Active { in_flight } => Is::Active(in_flight.get()),
            State::Idle => Is::Idle,
            State::Failed => Is::Failed,
            State::Closed => Is::Closed,
        };
        assert_eq!(
            (held.server, is, held.since, held.draining),
            (slot.server, slot.is, slot.since, slot.draining),
            "{}",
            told()
        );
    }
    assert!(pool.idle().eq(model.idle()), "the idle list differs, {}", told());
    let mut rehearsal = model.clone();
    let line: Vec<ServerId> =
        std::iter::from_fn(|| rehearsal.next(|_, _| true)).map(|waiter| waiter.server).collect();
    assert_eq!(pool.line(), line, "{}", told());
    assert!(pool.waiting().count() == line.len(), "{}", told());
    for waiter in &model.waiters {
        assert_eq!(pool.waits_since(waiter.server), Some(waiter.since), "{}", told());
    }
}

/// Nothing happens before the deadline, and something does at the deadline.
fn check_deadline(pool: &Pool, model: &Model, now: Moment, told: &dyn Fn() -> String) {
    let deadline = pool.deadline(now);
    if deadline == Moment::NEVER {
        let late = now + Duration::from_secs(1 << 20);
        assert!(!model.would_act(late), "it waits for ever, {}", told());
        return;
    }
    assert!(model.would_act(deadline.max(now)), "at {deadline:?} nothing happens, {}", told());
    let just_before = deadline.elapsed().saturating_sub(Duration::from_micros(1));
    let just_before = Moment::after_start(just_before);
    if just_before > now {
        assert!(!model.would_act(just_before), "before {deadline:?} something does, {}", told());
    }
}

fn some_limits(rng: &mut Rng) -> Limits {
    let size = rng.size(1, 6);
    Limits {
        size,
        reserve: rng.size(0, 2),
        reserve_after: rng.pick(&[
            Duration::ZERO,
            Duration::from_millis(30),
            Duration::from_secs(1),
        ]),
        minimum: rng.size(0, size),
        idle_timeout: rng.span(1, 2000),
        per_owner: rng.pick(&[0, 0, 1, 2, 3]),
    }
}
