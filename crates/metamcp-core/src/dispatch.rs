//! Every call from arrival to verdict: breaker, pool, deadlines, one retry, as one machine without I/O.
//! Owns: calls, and which server each waits for.      Never: knows MCP, moves bytes, starts processes, reads a clock.
//! In: calls, and what happened to connections.  Out: `Effect`s for the engine to carry out, in order.
//! Tests: `dispatch/tests.rs`; `tests/sim.rs` runs it against a faulty world for many seeds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::breaker::{self, Breaker, Outcome, Permit};
use crate::failure::{Fact, Failure};
use crate::ledger::{self, ConnId, Keep, Ledger, Order, ServerId};
use crate::lifecycle::State;
use crate::limiter::{Held, Limiter};
use crate::moment::Moment;
use crate::replay::{self, Budget, Delivery};
use crate::slab::{Key, Slab};

mod server;
mod verdict;

use server::Server;
pub use server::{ServerPolicy, ServerView};
pub use verdict::Verdict;

/// A call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub Key);

/// The limits that are not any one server's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The pool's bounds.
    pub pool: ledger::Limits,
    /// When breakers trip, and for how long.
    pub breaker_threshold: u32,
    /// How long they stay open.
    pub breaker_cooldown: Duration,
    /// How long a call waits for a slot.
    pub pool_wait: Duration,
    /// How long a server may take to be ready.
    pub connect_timeout: Duration,
    /// The same while its installer shows life.
    pub install_timeout: Duration,
}

/// Calls that may wait for a slot, over all servers. More would only time out.
pub const SLOT_QUEUE: usize = 1024;
/// Calls that may wait for one server that is starting or busy: a burst of ten thousand fits, a leak does not.
pub const SERVER_QUEUE: usize = 16_384;
/// A call's deadline may be pushed out by progress up to this many times its timeout.
pub const PROGRESS_CAP: u32 = 10;
/// How long after a sign of life a starting server is given for the next.
const LIFE_GRACE: Duration = Duration::from_secs(30);

/// What a call asks for beyond its server.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// How long the server has to answer once the call is sent; `None` takes the server's own.
    pub timeout: Option<Duration>,
    /// Whether running it twice is harmless.
    pub harmless: bool,
}

/// How a connection is to be shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shut {
    /// Politely, by the ladder.
    Gently,
    /// At once: what is left of it is of no use.
    Now,
}

/// What the engine has to do.
#[derive(Debug, PartialEq)]
pub enum Effect<T> {
    /// Start a process and shake hands.
    Connect {
        /// The connection to make.
        conn: ConnId,
        /// Its server.
        server: ServerId,
    },
    /// Ask for its list of tools; answer with `listed`.
    List {
        /// The connection to ask.
        conn: ConnId,
        /// Its server.
        server: ServerId,
    },
    /// Put a call on the wire.
    Send {
        /// Where.
        conn: ConnId,
        /// Which call.
        call: CallId,
    },
    /// Tell the child that nobody waits for this call any more.
    Abandon {
        /// Where it was sent.
        conn: ConnId,
        /// Which call.
        call: CallId,
        /// Which of its sendings.
        attempt: u32,
    },
    /// End a connection and its process; answer with `gone`.
    Close {
        /// Which connection.
        conn: ConnId,
        /// How.
        shut: Shut,
    },
    /// The call ended without an answer from its server.
    Answer {
        /// Its server.
        server: ServerId,
        /// What the caller handed in.
        payload: T,
        /// Why.
        verdict: Verdict,
    },
}

/// Effects in the order they are to be carried out.
pub type Effects<T> = Vec<Effect<T>>;

#[derive(Debug)]
enum Stage {
    Waiting,
    InFlight { conn: ConnId, deadline: Moment, cap: Moment },
}

#[derive(Debug)]
struct Call<T> {
    server: ServerId,
    stage: Stage,
    arrived: Moment,
    timeout: Duration,
    harmless: bool,
    /// How often it was put on a wire.
    attempts: u32,
    /// What broke an earlier sending that may have been executed: whatever ends the call now, that has to be said.
    maybe_ran: Option<Arc<Failure>>,
    /// The end of the time the caller agreed to, fixed when it is first sent: a replay never extends it.
    agreed: Option<Moment>,
    permit: Permit,
    payload: T,
}

/// See the module.
#[derive(Debug)]
pub struct Dispatch<T> {
    limits: Limits,
    servers: Vec<Server>,
    calls: Slab<Call<T>>,
    ledger: Ledger,
    budget: Budget,
    /// Connections whose tools are being listed.
    listing: Vec<ConnId>,
    wake: Moment,
    stopping: bool,
    /// Thousandths, from outside: what chance adds to pauses and cooldowns.
    jitter: u32,
}

impl<T> Dispatch<T> {
    /// A gateway without servers.
    pub fn new(limits: Limits) -> Dispatch<T> {
        Dispatch {
            limits,
            servers: Vec::new(),
            calls: Slab::default(),
            ledger: Ledger::new(limits.pool),
            budget: Budget::default(),
            listing: Vec::new(),
            wake: Moment::NEVER,
            stopping: false,
            jitter: 0,
        }
    }

    /// Replaces the part of pauses and cooldowns that is left to chance: 0 to 1000 thousandths.
    pub fn set_jitter(&mut self, thousandths: u32) {
        self.jitter = thousandths.min(1000);
    }

    /// The moment by which `tick` wants to be called.
    pub fn wake(&self) -> Moment {
        self.wake
    }

    /// The pool's books, to look at.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Calls that have no verdict yet.
    pub fn open_calls(&self) -> usize {
        self.calls.len()
    }

    /// What an operator may see of a server.
    pub fn view(&self, server: ServerId) -> Option<ServerView> {
        let entry = self.servers.get(server.0 as usize)?;
        Some(entry.view(self.ledger_state(entry), self.ledger.waits_since(server)))
    }

    /// What the caller handed in, while the call is open.
    pub fn payload(&self, call: CallId) -> Option<&T> {
        self.calls.get(call.0).map(|call| &call.payload)
    }

    /// What the caller handed in, to change it.
    pub fn payload_mut(&mut self, call: CallId) -> Option<&mut T> {
        self.calls.get_mut(call.0).map(|call| &mut call.payload)
    }

    /// The open calls that `wanted` is true of.
    pub fn find(&self, wanted: impl Fn(&T) -> bool) -> Vec<CallId> {
        self.calls
            .iter()
            .filter(|(_, call)| wanted(&call.payload))
            .map(|(key, _)| CallId(key))
            .collect()
    }

    /// How often the call was put on a wire.
    pub fn attempts(&self, call: CallId) -> u32 {
        self.calls.get(call.0).map_or(0, |call| call.attempts)
    }

    /// The calls on a connection, oldest first.
    pub fn calls_on(&self, conn: ConnId) -> Vec<CallId> {
        let mut on: Vec<(Moment, CallId)> = self
            .calls
            .iter()
            .filter(
                |(_, call)| matches!(call.stage, Stage::InFlight { conn: at, .. } if at == conn),
            )
            .map(|(key, call)| (call.arrived, CallId(key)))
            .collect();
        on.sort();
        on.into_iter().map(|(_, call)| call).collect()
    }

    /// Whether a call is under way on this connection: what a response has to match.
    pub fn is_on(&self, call: CallId, conn: ConnId) -> bool {
        matches!(
            self.calls.get(call.0),
            Some(Call { stage: Stage::InFlight { conn: at, .. }, .. }) if *at == conn
        )
    }

    /// A call arrives. It is refused at once, put on a live connection, or waits. `None` means it was refused;
    /// the verdict is among the effects.
    pub fn call(
        &mut self,
        server: ServerId,
        ask: Ask,
        payload: T,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> Option<CallId> {
        let refuse = |payload, verdict, effects: &mut Effects<T>| {
            effects.push(Effect::Answer { server, payload, verdict });
            None
        };
        if self.stopping {
            return refuse(payload, Verdict::ShuttingDown { sent: false }, effects);
        }
        let Some(entry) = self.servers.get_mut(server.0 as usize).filter(|entry| !entry.removed)
        else {
            return refuse(payload, Verdict::Removed, effects);
        };
        let permit = match entry.breaker.admit(now) {
            Ok(permit) => permit,
            Err(refused) => {
                let verdict = Verdict::CircuitOpen {
                    retry_after: refused.retry_after,
                    failure: entry.last_failure.clone(),
                };
                return refuse(payload, verdict, effects);
            }
        };
        // A probe that hangs is found by `tick`, not by the next caller.
        self.wake = self.wake.min(entry.breaker.deadline());
        self.budget.called(now);
        let timeout = ask.timeout.unwrap_or(entry.policy.timeout);
        let (queued, live) = (entry.waiting(), entry.conn);
        let live = live.and_then(|conn| Some((conn, self.ledger.held(conn)?.state)));
        let verdict = if queued >= SERVER_QUEUE || self.calls.len() >= Key::CAPACITY {
            Some(Verdict::Overloaded)
        } else if live.is_none() {
            self.open(server, now).err()
        } else {
            None
        };
        if let Some(verdict) = verdict {
            self.settle(server, permit, Outcome::Neutral, now);
            return refuse(payload, verdict, effects);
        }
        let call = CallId(self.calls.insert(Call {
            server,
            stage: Stage::Waiting,
            arrived: now,
            timeout,
            harmless: ask.harmless,
            attempts: 0,
            maybe_ran: None,
            agreed: None,
            permit,
            payload,
        }));
        let capacity = self.servers[server.0 as usize].policy.max_in_flight;
        match live {
            Some((conn, state))
                if queued == 0 && state.is_live() && state.in_flight() < capacity =>
            {
                self.send(call, conn, now, effects);
            }
            _ => {
                self.servers[server.0 as usize].queue.push_back(call);
                self.wake = self.wake.min(self.waiting_deadline(call));
                if live.is_none() {
                    self.pump(now, effects);
                }
            }
        }
        Some(call)
    }

    /// A connection is ready. Its tools are listed, and what waited for it is sent.
    pub fn connected(&mut self, conn: ConnId, now: Moment, effects: &mut Effects<T>) {
        let Some(server) = self.ledger.held(conn).map(|held| held.server) else { return };
        if !self.ledger.connected(conn) {
            return;
        }
        let entry = &mut self.servers[server.0 as usize];
        entry.limiter.started();
        entry.ready_at = now;
        entry.retried_start = false;
        entry.list_due = false;
        entry.start_deadline = Moment::NEVER;
        self.listing.push(conn);
        effects.push(Effect::List { conn, server });
        self.feed(server, now, effects);
        self.servers[server.0 as usize].owed = false;
        // One start less under way: the next may begin.
        self.pump(now, effects);
        self.rearm(now);
    }

    /// A server that is starting shows that it is alive, so it gets more time.
    pub fn life_sign(&mut self, conn: ConnId, now: Moment) {
        let Some(held) = self.ledger.held(conn).filter(|held| held.state == State::Connecting)
        else {
            return;
        };
        let last = held.since + self.limits.install_timeout;
        let entry = &mut self.servers[held.server.0 as usize];
        if entry.conn == Some(conn) {
            entry.start_deadline = entry.start_deadline.max((now + LIFE_GRACE).min(last));
        }
    }

    /// The listing that began with `List` ended, well or not. One that ended with its connection is over already.
    pub fn listed(&mut self, conn: ConnId, now: Moment, effects: &mut Effects<T>) {
        if let Some(place) = self.listing.iter().position(|&listing| listing == conn) {
            self.listing.swap_remove(place);
            self.finish_on(conn, now, effects);
        }
    }

    /// A listing is wanted on a live connection; it counts as work, so that the connection is not idle meanwhile.
    /// False where there is no such connection, and where it has as much to do as it can take: then `List` follows
    /// as soon as there is room.
    pub fn list_again(&mut self, conn: ConnId) -> bool {
        let Some(held) =
            self.ledger.held(conn).filter(|held| held.state.is_live() && !held.draining)
        else {
            return false;
        };
        let entry = &mut self.servers[held.server.0 as usize];
        if held.state.in_flight() >= entry.policy.max_in_flight {
            entry.list_due = true;
            return false;
        }
        let began = self.ledger.begin(conn);
        if began {
            self.listing.push(conn);
        }
        began
    }

    /// A listing is wanted but there is no connection: one is opened, and lists by itself. The error says why not.
    pub fn wake_server(
        &mut self,
        server: ServerId,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> Result<(), Verdict> {
        if self.stopping {
            return Err(Verdict::ShuttingDown { sent: false });
        }
        let entry = self
            .servers
            .get_mut(server.0 as usize)
            .filter(|entry| !entry.removed)
            .ok_or(Verdict::Removed)?;
        if entry.conn.is_some() {
            return Ok(());
        }
        let permit = entry.breaker.admit(now).map_err(|refused| Verdict::CircuitOpen {
            retry_after: refused.retry_after,
            failure: entry.last_failure.clone(),
        })?;
        // Listing is no verdict on the server's health; a probe is left to a call.
        self.settle(server, permit, Outcome::Neutral, now);
        self.open(server, now)?;
        self.servers[server.0 as usize].wanted = true;
        self.pump(now, effects);
        Ok(())
    }

    /// The server answered: what the caller handed in comes back, unless nobody waits any more.
    /// `rpc_error` is an answer too, but says nothing about the server's health.
    pub fn answered(
        &mut self,
        call: CallId,
        conn: ConnId,
        rpc_error: bool,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> Option<T> {
        if !self.is_on(call, conn) {
            return None;
        }
        let call = self.calls.remove(call.0)?;
        let neutral = rpc_error && !call.permit.is_probe();
        let outcome = if neutral { Outcome::Neutral } else { Outcome::Success };
        self.settle(call.server, call.permit, outcome, now);
        self.finish_on(conn, now, effects);
        Some(call.payload)
    }

    /// The server made progress on a call: it gets its timeout again, up to a cap.
    pub fn progressed(&mut self, call: CallId, now: Moment) {
        if let Some(call) = self.calls.get_mut(call.0)
            && let Stage::InFlight { deadline, cap, .. } = &mut call.stage
        {
            *deadline = (now + call.timeout).min(*cap).max(*deadline);
        }
    }

    /// The server asked the client something on behalf of a call: the client's thinking is not the server's.
    pub fn paused(&mut self, call: CallId) {
        if let Some(call) = self.calls.get_mut(call.0)
            && let Stage::InFlight { deadline, cap, .. } = &mut call.stage
        {
            *deadline = *cap;
        }
    }

    /// The client has answered what `paused` was about.
    pub fn resumed(&mut self, call: CallId, now: Moment) {
        if let Some(call) = self.calls.get_mut(call.0)
            && let Stage::InFlight { deadline, cap, .. } = &mut call.stage
        {
            *deadline = (now + call.timeout).min(*cap);
            self.wake = self.wake.min(*deadline);
        }
    }

    /// The caller does not want the answer any more.
    pub fn cancel(&mut self, call: CallId, now: Moment, effects: &mut Effects<T>) {
        self.end_early(call, Verdict::Cancelled, Outcome::Neutral, now, effects);
    }

    /// A call that was to be sent cannot be: its connection has too much to read already.
    pub fn refuse(
        &mut self,
        call: CallId,
        verdict: Verdict,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        self.end_early(call, verdict, Outcome::Neutral, now, effects);
    }

    /// A process or its transport broke. `delivery` says of each call on it how far it got.
    pub fn lost(
        &mut self,
        conn: ConnId,
        failure: Failure,
        delivery: &dyn Fn(CallId) -> Delivery,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        let Some((server, state)) = self.ledger.held(conn).map(|held| (held.server, held.state))
        else {
            return;
        };
        let failure = Arc::new(failure);
        self.listing.retain(|&listing| listing != conn);
        match state {
            State::Connecting => return self.start_failed(conn, server, failure, now, effects),
            State::Idle => {
                if self.servers[server.0 as usize].conn == Some(conn) {
                    self.servers[server.0 as usize].last_failure = Some(failure);
                }
                self.detach(server, conn);
                self.ledger.broke(conn, now);
                effects.push(Effect::Close { conn, shut: Shut::Now });
                return;
            }
            State::Active { .. } => {}
            State::Failed | State::Closed => return,
        }
        self.ledger.broke(conn, now);
        effects.push(Effect::Close { conn, shut: Shut::Now });
        let attached = self.servers[server.0 as usize].conn == Some(conn);
        let removed = self.servers[server.0 as usize].removed;
        if attached {
            self.servers[server.0 as usize].last_failure = Some(Arc::clone(&failure));
        }
        let mut again = Vec::new();
        // However many calls it took with it, one crash is one failure: of the first whose permit still counts.
        let mut charge = outcome_of(&failure);
        for call in self.calls_on(conn) {
            let delivered = delivery(call);
            let Some(entry) = self.calls.get_mut(call.0) else { continue };
            let may = replay::may_replay(delivered, entry.harmless, entry.attempts)
                && entry.agreed.is_none_or(|end| now < end)
                && !self.stopping
                && !removed
                && (delivered == Delivery::NotSent || self.budget.take(now));
            if may {
                entry.stage = Stage::Waiting;
                entry.arrived = now;
                if delivered == Delivery::Sent {
                    entry.maybe_ran = Some(Arc::clone(&failure));
                }
                again.push(call);
                continue;
            }
            let failure = Arc::clone(&failure);
            let verdict = match delivered {
                Delivery::NotSent => Verdict::Unavailable { failure, retry_after: None },
                Delivery::Sent => Verdict::OutcomeUnknown { failure },
            };
            if self.answer(call, verdict, charge, now, effects) {
                charge = Outcome::Neutral;
            }
        }
        let entry = &mut self.servers[server.0 as usize];
        let fresh_start = attached && entry.crashed(now);
        entry.owed = attached && !again.is_empty() && charge == Outcome::Failure;
        for call in again.into_iter().rev() {
            entry.queue.push_front(call);
        }
        if attached {
            // Kept attached while somebody waits for it, or for the one respawn a crash earns.
            entry.wanted = fresh_start && !self.stopping;
            if entry.queue.is_empty() && !entry.wanted {
                entry.conn = None;
            }
        } else if entry.conn.is_some() {
            self.feed(server, now, effects);
        } else if !entry.queue.is_empty() {
            self.reopen(server, now, effects);
        }
        self.rearm(now);
    }

    /// Nothing is left of a process.
    pub fn gone(&mut self, conn: ConnId, now: Moment, effects: &mut Effects<T>) {
        let Some(held) = self.ledger.held(conn).cloned() else { return };
        self.listing.retain(|&listing| listing != conn);
        let server = held.server;
        let entry = &mut self.servers[server.0 as usize];
        if held.state == State::Failed && entry.conn == Some(conn) {
            let wanted = std::mem::take(&mut entry.wanted);
            let needed = wanted || !entry.queue.is_empty();
            let may = entry.limiter.check_burst(now);
            let starts = needed && may.is_ok() && !self.stopping && !entry.removed;
            if starts && self.ledger.reconnect(conn, now) {
                entry.starting(now, self.limits.connect_timeout);
                effects.push(Effect::Connect { conn, server });
                // The line had counted on its slot.
                self.pump(now, effects);
                return self.rearm(now);
            }
            entry.conn = None;
            entry.retried_start &= starts;
            if let Err(held) = may {
                let verdict = entry.held_back(held, now);
                let charge = entry.owed_outcome();
                self.refuse_queue(server, &verdict, charge, now, effects);
            } else if starts {
                entry.wanted = wanted;
                entry.in_line_since = now;
                let ServerPolicy { keep, idle_timeout, .. } = entry.policy;
                self.ledger.want(server, keep, idle_timeout, now);
            }
        } else {
            self.detach(server, conn);
        }
        self.ledger.gone(conn);
        self.pump(now, effects);
        self.rearm(now);
    }

    /// Time has passed: deadlines, the reserve, the idle sweep.
    pub fn tick(&mut self, now: Moment, effects: &mut Effects<T>) {
        for entry in &mut self.servers {
            entry.breaker.expire(now);
        }
        self.end_overdue_starts(now, effects);
        self.end_overdue_calls(now, effects);
        let mut orders = Vec::new();
        self.ledger.sweep(now, &mut orders);
        self.carry(&orders, now, effects);
        self.pump(now, effects);
        self.rearm(now);
    }

    /// No new calls from now on; those that were not sent yet are answered.
    pub fn stop(&mut self, now: Moment, effects: &mut Effects<T>) {
        self.stopping = true;
        for index in 0..self.servers.len() {
            let server = server_id(index);
            self.refuse_queue(
                server,
                &Verdict::ShuttingDown { sent: false },
                Outcome::Neutral,
                now,
                effects,
            );
            self.ledger.withdraw(server);
        }
        self.rearm(now);
    }

    /// The drain is over: every call left is answered and every connection shut.
    pub fn stop_now(&mut self, now: Moment, effects: &mut Effects<T>) {
        self.stop(now, effects);
        let open: Vec<CallId> = self.calls.iter().map(|(key, _)| CallId(key)).collect();
        for call in open {
            let verdict = Verdict::ShuttingDown { sent: true };
            self.end_early(call, verdict, Outcome::Neutral, now, effects);
        }
        let conns: Vec<ConnId> = self.ledger.all().map(|(conn, _)| conn).collect();
        let mut orders = Vec::new();
        for conn in conns {
            self.ledger.close(conn, &mut orders);
        }
        self.carry(&orders, now, effects);
        self.rearm(now);
    }

    /// A new server.
    pub fn add_server(&mut self, policy: ServerPolicy) -> ServerId {
        let server = server_id(self.servers.len());
        let breaker = Breaker::new(self.breaker_policy(&policy));
        self.servers.push(Server::new(policy, breaker));
        server
    }

    /// A server is configured differently: its connection finishes what it does and closes, the next call gets a
    /// new one. What was learnt of the old configuration's failures is forgotten.
    pub fn change_server(
        &mut self,
        server: ServerId,
        policy: ServerPolicy,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        let breaker_policy = self.breaker_policy(&policy);
        let entry = &mut self.servers[server.0 as usize];
        entry.policy = policy;
        entry.breaker.reset(breaker_policy);
        entry.limiter = Limiter::default();
        entry.last_failure = None;
        entry.owed = false;
        entry.retried_start = false;
        // Those who wait will be served by the new configuration, and speak for it.
        for call in &entry.queue {
            if let Some(call) = self.calls.get_mut(call.0)
                && let Ok(permit) = entry.breaker.admit(now)
            {
                call.permit = permit;
            }
        }
        self.ledger.amend(server, policy.keep, policy.idle_timeout);
        self.let_go(server, now, effects);
        if !self.servers[server.0 as usize].queue.is_empty() {
            self.reopen(server, now, effects);
        }
        self.pump(now, effects);
        self.rearm(now);
    }

    /// A server is gone from the configuration: new and waiting calls are refused, those sent may finish.
    pub fn remove_server(&mut self, server: ServerId, now: Moment, effects: &mut Effects<T>) {
        self.servers[server.0 as usize].removed = true;
        self.ledger.withdraw(server);
        self.refuse_queue(server, &Verdict::Removed, Outcome::Neutral, now, effects);
        self.let_go(server, now, effects);
        self.pump(now, effects);
        self.rearm(now);
    }

    // -- the parts --

    /// Detaches the current connection of a server and lets it finish.
    fn let_go(&mut self, server: ServerId, now: Moment, effects: &mut Effects<T>) {
        let Some(conn) = self.servers[server.0 as usize].conn else { return };
        self.detach(server, conn);
        let mut orders = Vec::new();
        match self.ledger.held(conn).map(|held| held.state) {
            Some(State::Connecting | State::Failed) => self.ledger.close(conn, &mut orders),
            _ => self.ledger.drain(conn, &mut orders),
        }
        self.carry(&orders, now, effects);
    }

    /// Makes sure a connection to the server is on its way.
    fn open(&mut self, server: ServerId, now: Moment) -> Result<(), Verdict> {
        if self.ledger.waits_since(server).is_none() {
            let entry = &mut self.servers[server.0 as usize];
            if let Err(held) = entry.limiter.check(now) {
                entry.wanted = false;
                return Err(entry.held_back(held, now));
            }
            entry.in_line_since = now;
        }
        let waiting =
            self.ledger.line().map(|s| self.servers[s.0 as usize].waiting()).sum::<usize>();
        if waiting >= SLOT_QUEUE && self.ledger.count() >= self.ledger.limits().size {
            return Err(Verdict::Overloaded);
        }
        let policy = &self.servers[server.0 as usize].policy;
        self.ledger.want(server, policy.keep, policy.idle_timeout, now);
        Ok(())
    }

    /// The same for calls that already wait: if it cannot be, they are answered.
    fn reopen(&mut self, server: ServerId, now: Moment, effects: &mut Effects<T>) {
        match self.open(server, now) {
            Ok(()) => self.pump(now, effects),
            Err(verdict) => self.refuse_queue(server, &verdict, Outcome::Neutral, now, effects),
        }
    }

    fn pump(&mut self, now: Moment, effects: &mut Effects<T>) {
        let mut orders = Vec::new();
        self.ledger.pump(now, &mut orders);
        self.carry(&orders, now, effects);
        self.wake = self.wake.min(self.ledger.deadline(now));
    }

    fn carry(&mut self, orders: &[Order], now: Moment, effects: &mut Effects<T>) {
        for &order in orders {
            match order {
                Order::Connect { conn, server } => {
                    let entry = &mut self.servers[server.0 as usize];
                    entry.conn = Some(conn);
                    entry.wanted = false;
                    entry.starting(now, self.limits.connect_timeout);
                    self.wake = self.wake.min(entry.start_deadline);
                    effects.push(Effect::Connect { conn, server });
                }
                Order::Close { conn, server } => {
                    self.detach(server, conn);
                    effects.push(Effect::Close { conn, shut: Shut::Gently });
                }
            }
        }
    }

    fn detach(&mut self, server: ServerId, conn: ConnId) {
        let entry = &mut self.servers[server.0 as usize];
        if entry.conn == Some(conn) {
            entry.conn = None;
            entry.start_deadline = Moment::NEVER;
        }
    }

    fn send(&mut self, id: CallId, conn: ConnId, now: Moment, effects: &mut Effects<T>) {
        if !self.ledger.begin(conn) {
            return;
        }
        let Some(call) = self.calls.get_mut(id.0) else { return };
        let agreed = *call.agreed.get_or_insert(now + call.timeout);
        call.attempts += 1;
        let cap = agreed + call.timeout.saturating_mul(PROGRESS_CAP - 1);
        call.stage = Stage::InFlight { conn, deadline: agreed, cap };
        self.wake = self.wake.min(agreed);
        effects.push(Effect::Send { conn, call: id });
    }

    /// Sends what waits for a live connection, as far as it can take more.
    fn feed(&mut self, server: ServerId, now: Moment, effects: &mut Effects<T>) {
        loop {
            let entry = &mut self.servers[server.0 as usize];
            let Some(conn) = entry.conn else { return };
            let Some(state) = self.ledger.held(conn).map(|held| held.state) else { return };
            if !state.is_live() || state.in_flight() >= entry.policy.max_in_flight {
                return;
            }
            let Some(call) = self.next_waiting(server, now, effects) else { return };
            self.send(call, conn, now, effects);
        }
    }

    /// Takes the first out of a server's queue that still waits. One whose agreed time is over is answered instead:
    /// there is no use in sending it again.
    fn next_waiting(
        &mut self,
        server: ServerId,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> Option<CallId> {
        loop {
            let entry = &mut self.servers[server.0 as usize];
            let &id = entry.queue.front()?;
            let found = self.calls.get(id.0);
            if found.is_some_and(|call| call.agreed.is_some_and(|end| now >= end)) {
                self.end_waiting(id, now, effects);
                continue;
            }
            entry.queue.pop_front();
            if found.is_some() {
                return Some(id);
            }
            entry.dead_in_queue = entry.dead_in_queue.saturating_sub(1);
        }
    }

    /// One request on a connection ended: the next one goes out before the connection could count as idle.
    fn finish_on(&mut self, conn: ConnId, now: Moment, effects: &mut Effects<T>) {
        let Some((server, busy)) =
            self.ledger.held(conn).map(|held| (held.server, held.state.in_flight()))
        else {
            return;
        };
        if busy == 0 {
            return;
        }
        let entry = &mut self.servers[server.0 as usize];
        if entry.conn == Some(conn) && busy <= entry.policy.max_in_flight {
            // At the limit of what it takes at once, one has to end before the next begins; a connection kept
            // busy by its queue never looks idle, so an ephemeral one is not closed between two waiting calls.
            if std::mem::take(&mut entry.list_due) && self.ledger.begin(conn) {
                self.listing.push(conn);
                effects.push(Effect::List { conn, server });
            } else if let Some(call) = self.next_waiting(server, now, effects) {
                self.send(call, conn, now, effects);
            }
        }
        let mut orders = Vec::new();
        self.ledger.finish(conn, now, &mut orders);
        if !orders.is_empty() {
            self.carry(&orders, now, effects);
        }
        if let Some(held) = self.ledger.held(conn)
            && held.state == State::Idle
        {
            let open = matches!(
                self.servers[server.0 as usize].breaker.phase(),
                breaker::Phase::Open { .. }
            );
            if open {
                // It was the process that failed its calls: the probe shall meet a fresh one.
                let mut orders = Vec::new();
                self.ledger.close(conn, &mut orders);
                self.carry(&orders, now, effects);
            }
            self.wake = self.wake.min(self.ledger.deadline(now));
        }
    }

    fn start_failed(
        &mut self,
        conn: ConnId,
        server: ServerId,
        failure: Arc<Failure>,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        self.ledger.broke(conn, now);
        effects.push(Effect::Close { conn, shut: Shut::Now });
        let jitter = self.jitter;
        let entry = &mut self.servers[server.0 as usize];
        if entry.conn != Some(conn) {
            return;
        }
        entry.last_failure = Some(Arc::clone(&failure));
        entry.start_deadline = Moment::NEVER;
        let fresh_start = entry.crashed(now);
        let retry = failure.fact.may_pass() && fresh_start && !entry.retried_start;
        if retry && !entry.queue.is_empty() && !self.stopping {
            // Stays attached: `gone` starts it once more.
            entry.retried_start = true;
            self.pump(now, effects);
            return self.rearm(now);
        }
        entry.retried_start = false;
        entry.owed = false;
        entry.wanted = false;
        entry.limiter.start_failed(now, jitter);
        entry.conn = None;
        let retry_after = match entry.limiter.check(now) {
            Err(Held::Pausing { until } | Held::CrashLoop { until }) => Some(until.since(now)),
            Ok(()) => None,
        };
        let outcome = outcome_of(&failure);
        self.refuse_queue(
            server,
            &Verdict::Unavailable { failure, retry_after },
            outcome,
            now,
            effects,
        );
        self.pump(now, effects);
        self.rearm(now);
    }

    fn end_overdue_starts(&mut self, now: Moment, effects: &mut Effects<T>) {
        for index in 0..self.servers.len() {
            let entry = &self.servers[index];
            let (Some(conn), deadline) = (entry.conn, entry.start_deadline) else { continue };
            if now < deadline {
                continue;
            }
            let after = self.ledger.held(conn).map_or(Duration::ZERO, |held| now.since(held.since));
            let failure = Failure::new(Fact::StartTimedOut { after });
            self.lost(conn, failure, &|_| Delivery::NotSent, now, effects);
        }
    }

    /// Those that wait come first: what ends on a connection would send them, overdue as they are.
    fn end_overdue_calls(&mut self, now: Moment, effects: &mut Effects<T>) {
        let (waiting, sent): (Vec<CallId>, Vec<CallId>) = self
            .calls
            .iter()
            .map(|(key, _)| CallId(key))
            .filter(|&call| now >= self.deadline_of(call))
            .partition(|call| {
                self.calls.get(call.0).is_some_and(|call| matches!(call.stage, Stage::Waiting))
            });
        for id in waiting {
            self.end_waiting(id, now, effects);
        }
        for id in sent {
            let Some(&Call { server, timeout, stage: Stage::InFlight { conn, .. }, .. }) =
                self.calls.get(id.0)
            else {
                continue;
            };
            let entry = &mut self.servers[server.0 as usize];
            if entry.conn == Some(conn) {
                let fact = Fact::CallTimedOut { after: timeout };
                entry.last_failure = Some(Arc::new(Failure::new(fact)));
            }
            let verdict = Verdict::TimedOut { after: timeout, sent: true };
            self.end_early(id, verdict, Outcome::Failure, now, effects);
        }
    }

    /// The time of a call is over before it was sent, or sent again.
    fn end_waiting(&mut self, id: CallId, now: Moment, effects: &mut Effects<T>) {
        let Some(call) = self.calls.get(id.0) else { return };
        let (server, arrived, sent) = (call.server, call.arrived, call.maybe_ran.is_some());
        let owes = call.attempts > 0 && self.servers[server.0 as usize].owed;
        let outcome = if owes { Outcome::Failure } else { Outcome::Neutral };
        let over = call.agreed.is_some_and(|end| now >= end);
        let verdict = if self.ledger.waits_since(server).is_some() && !sent && !over {
            let holders = self.ledger.all().map(|(_, held)| held.server).collect();
            Verdict::PoolExhausted { waited: now.since(arrived), holders }
        } else {
            Verdict::TimedOut { after: now.since(arrived), sent }
        };
        if self.end_early(id, verdict, outcome, now, effects) && owes {
            self.servers[server.0 as usize].owed = false;
        }
    }

    /// When a call's time is up: the call's own deadline once sent; before that, what it waits for decides.
    fn deadline_of(&self, id: CallId) -> Moment {
        match self.calls.get(id.0) {
            Some(Call { stage: Stage::InFlight { deadline, .. }, .. }) => *deadline,
            Some(_) => self.waiting_deadline(id),
            None => Moment::NEVER,
        }
    }

    fn waiting_deadline(&self, id: CallId) -> Moment {
        let Some(call) = self.calls.get(id.0) else { return Moment::NEVER };
        let agreed = call.agreed.unwrap_or(Moment::NEVER);
        let entry = &self.servers[call.server.0 as usize];
        let own = match self.ledger_state(entry) {
            None => call.arrived.max(entry.in_line_since) + self.limits.pool_wait,
            // Bounded by the deadline of the start itself.
            Some(State::Connecting) => Moment::NEVER,
            Some(State::Failed | State::Closed) => {
                let broke = entry.conn.and_then(|conn| Some(self.ledger.held(conn)?.since));
                call.arrived.max(broke.unwrap_or(call.arrived)) + self.limits.connect_timeout
            }
            Some(State::Idle | State::Active { .. }) => {
                call.arrived.max(entry.ready_at) + call.timeout
            }
        };
        own.min(agreed)
    }

    fn ledger_state(&self, entry: &Server) -> Option<State> {
        entry.conn.and_then(|conn| Some(self.ledger.held(conn)?.state))
    }

    /// Ends a call from our side, wherever it is. Says whether the breaker took notice.
    fn end_early(
        &mut self,
        id: CallId,
        verdict: Verdict,
        outcome: Outcome,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> bool {
        let Some(call) = self.calls.get(id.0) else { return false };
        let server = call.server;
        if let Stage::InFlight { conn, .. } = call.stage {
            effects.push(Effect::Abandon { conn, call: id, attempt: call.attempts });
            let noticed = self.answer(id, verdict, outcome, now, effects);
            self.finish_on(conn, now, effects);
            return noticed;
        }
        let noticed = self.answer(id, verdict, outcome, now, effects);
        let calls = &self.calls;
        let entry = &mut self.servers[server.0 as usize];
        entry.dead_in_queue += 1;
        if entry.dead_in_queue * 2 >= entry.queue.len() {
            entry.queue.retain(|call| calls.get(call.0).is_some());
            entry.dead_in_queue = 0;
        }
        if entry.queue.is_empty() && entry.conn.is_none() && !entry.wanted {
            entry.retried_start = false;
            self.ledger.withdraw(server);
        }
        noticed
    }

    /// Answers all that wait for a server. The outcome counts once, for the first whose permit still counts.
    fn refuse_queue(
        &mut self,
        server: ServerId,
        verdict: &Verdict,
        outcome: Outcome,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        let queue: VecDeque<CallId> = std::mem::take(&mut self.servers[server.0 as usize].queue);
        self.servers[server.0 as usize].dead_in_queue = 0;
        let mut outcome = outcome;
        for call in queue {
            if self.answer(call, verdict.clone(), outcome, now, effects) {
                outcome = Outcome::Neutral;
            }
        }
    }

    /// Ends a call without an answer of its server. Says whether the breaker took notice.
    fn answer(
        &mut self,
        id: CallId,
        verdict: Verdict,
        outcome: Outcome,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> bool {
        let Some(call) = self.calls.remove(id.0) else { return false };
        let noticed = self.settle(call.server, call.permit, outcome, now);
        let verdict = match &call.maybe_ran {
            Some(failure) => verdict.of_one_that_may_have_run(failure),
            None => verdict,
        };
        effects.push(Effect::Answer { server: call.server, payload: call.payload, verdict });
        noticed
    }

    fn settle(&mut self, server: ServerId, permit: Permit, outcome: Outcome, now: Moment) -> bool {
        let jitter = self.limits.breaker_cooldown / 10_000 * self.jitter;
        self.servers[server.0 as usize].breaker.settle(permit, outcome, now, jitter)
    }

    fn breaker_policy(&self, policy: &ServerPolicy) -> breaker::Policy {
        breaker::Policy {
            threshold: self.limits.breaker_threshold.max(1),
            cooldown: self.limits.breaker_cooldown,
            probe_limit: self.limits.install_timeout.saturating_add(policy.timeout),
        }
    }

    /// Works out anew when `tick` is next needed. Linear in what is open; called when something rare happened.
    fn rearm(&mut self, now: Moment) {
        let calls = self.calls.iter().map(|(key, _)| self.deadline_of(CallId(key))).min();
        let servers = self
            .servers
            .iter()
            .map(|entry| entry.start_deadline.min(entry.breaker.deadline()))
            .min();
        let next = [calls, servers, Some(self.ledger.deadline(now))].into_iter().flatten().min();
        self.wake = next.unwrap_or(Moment::NEVER);
    }
}

/// What a failure tells the breaker.
fn outcome_of(failure: &Failure) -> Outcome {
    if failure.fact.category().counts() { Outcome::Failure } else { Outcome::Neutral }
}

fn server_id(index: usize) -> ServerId {
    ServerId(u32::try_from(index).expect("servers are a few, not billions"))
}

/// The pool's default for a server without a lifecycle of its own.
impl Default for ServerPolicy {
    fn default() -> Self {
        ServerPolicy {
            timeout: Duration::from_secs(60),
            max_in_flight: 64,
            vital: false,
            keep: Keep::UntilTimeout,
            idle_timeout: None,
        }
    }
}

#[cfg(test)]
mod tests;
