//! Every call from arrival to outcome: breaker, pool, deadlines, one retry, as one state machine without I/O.
//! Owns: calls, and which server each waits for.      Never: knows MCP, moves bytes, starts processes, reads a clock.
//! In: calls, and what happened to connections.  Out: `Effect`s for the engine to carry out, in order.
//! Tests: `dispatch/tests.rs`; `tests/sim.rs` runs it against a faulty world for many seeds.

use std::sync::Arc;
use std::time::Duration;

use crate::breaker::{self, Breaker, Outcome, Permit};
use crate::failure::{Fact, Failure};
use crate::lifecycle::State;
use crate::pool::{self, ConnId, Keep, Order, Pool, ServerId};
use crate::replay::{self, Budget, Delivery};
use crate::restart_backoff::{Backoff, RestartBackoff};
use crate::siblings::Load;
use crate::state_change::StateChange;
use crate::turns::{self, Ticket};
use metamcp_types::moment::Moment;
use metamcp_types::slab::{Key, Slab};

mod connecting;
mod ending;
mod error;
mod probing;
mod reload;
mod server;

pub use error::DispatchError;
use server::{Server, Servers};
pub use server::{ServerPolicy, ServerView};

/// A call under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub Key);

/// The limits that are not any one server's.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The pool's bounds.
    pub pool: pool::Limits,
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

/// Calls that may wait for a slot, over all servers; three quarters of them of one lane. More would only time out.
pub const SLOT_QUEUE: usize = 2048;
/// Calls that may wait for one server that is starting or busy, three quarters of them of one lane: a burst of ten
/// thousand fits, a leak does not.
pub const SERVER_QUEUE: usize = 16_384;
/// A call's deadline may be pushed out by progress up to this many times its timeout.
pub const PROGRESS_CAP: u32 = 10;
/// The lane in which a shared server is restarted after a crash.
const NOBODY: u64 = 0;
/// How long after a sign of life a starting server is given for the next.
const LIFE_GRACE: Duration = Duration::from_secs(30);
/// How long a connection has to show life after it let a call time out. One that works answers a ping in milliseconds,
/// one under heavy load in a second or two.
pub const PROBE: Duration = Duration::from_secs(5);

/// What a call asks for beyond its server.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions {
    /// How long the server has to answer once the call is sent; `None` takes the server's own.
    pub timeout: Option<Duration>,
    /// Whether running it twice is harmless.
    pub harmless: bool,
    /// Whose call it is: where calls wait, lanes are served in turns. Usually a session.
    pub lane: u64,
}

/// How a connection is to be shut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseMode {
    /// With shutdown escalation.
    Graceful,
    /// With a short one: nothing is left after a second. It may follow a graceful one that is under way.
    Brisk,
    /// At once: what is left of it is of no use.
    Immediate,
}

/// What becomes of what a removed server has under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removal {
    /// Calls that were sent may finish.
    Finish,
    /// Nobody waits for it any more: calls are given up, and its processes end within a second.
    AtOnce,
}

/// What the engine has to do.
#[derive(Debug, PartialEq)]
pub enum Effect<T> {
    /// Start a process and shake hands.
    Connect {
        /// The connection to make.
        conn: ConnId,
        server: ServerId,
    },
    /// Ask for its list of tools; answer with `listed`.
    List {
        /// The connection to ask.
        conn: ConnId,
        server: ServerId,
    },
    /// Put a call on the wire.
    Send { conn: ConnId, call: CallId },
    /// Ask the connection for a sign of life; answer with `alive`.
    Probe { conn: ConnId },
    /// Send the server a cancellation for this call.
    Abandon {
        /// Where it was sent.
        conn: ConnId,
        call: CallId,
        /// Which of its sendings.
        attempt: u32,
    },
    /// End a connection and its process; answer with `gone`.
    Close { conn: ConnId, mode: CloseMode },
    /// The call ended without an answer from its server.
    Answer {
        server: ServerId,
        /// What the caller handed in.
        payload: T,
        error: DispatchError,
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
    lane: u64,
    /// Its place in the queue of its server, while it waits there.
    ticket: Option<Ticket>,
    /// When it was first put on a wire.
    sent: Option<Moment>,
    /// How often it was put on a wire.
    attempts: u32,
    /// What broke an earlier sending that may have been executed: whatever ends the call now, that has to be said.
    maybe_ran: Option<Arc<Failure>>,
    /// The end of the time the caller agreed to, fixed when it is first sent: a replay never extends it.
    agreed: Option<Moment>,
    permit: Permit,
    payload: T,
}

#[derive(Debug)]
pub struct Dispatch<T> {
    limits: Limits,
    servers: Servers,
    calls: Slab<Call<T>>,
    pool: Pool,
    budget: Budget,
    /// Connections whose tools are being listed.
    listing: Vec<ConnId>,
    /// Connections on which a call timed out and that are being pinged, with the deadline of the ping.
    probing: Vec<(ConnId, Moment)>,
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
            servers: Servers::default(),
            calls: Slab::default(),
            pool: Pool::new(limits.pool),
            budget: Budget::default(),
            listing: Vec::new(),
            probing: Vec::new(),
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
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Calls that have no verdict yet.
    pub fn open_calls(&self) -> usize {
        self.calls.len()
    }

    /// Whether somebody waits for something with a limit: a call, a start, a list.
    pub fn is_waited_for(&self) -> bool {
        !self.calls.is_empty()
            || !self.listing.is_empty()
            || !self.probing.is_empty()
            || self.servers.iter().any(|entry| entry.start_deadline != Moment::NEVER)
    }

    /// What changed since this was last asked, in order. To be taken after every event, or it piles up.
    pub fn take_changes(&mut self) -> std::vec::Drain<'_, StateChange> {
        self.pool.changes.drain()
    }

    /// What an operator may see of a server.
    pub fn view(&self, server: ServerId) -> Option<ServerView> {
        let entry = self.servers.get(server)?;
        Some(entry.view(self.pool_state(entry), self.pool.waits_since(server)))
    }

    /// How busy a server is, for the choice among its siblings.
    pub fn load(&self, server: ServerId, now: Moment) -> Option<Load> {
        let entry = self.servers.get(server).filter(|entry| !entry.removed)?;
        let state = self.pool_state(entry);
        let is_up = state.is_some_and(|state| state == State::Connecting || state.is_live());
        let may_start = is_up
            || self.pool.waits_since(server).is_some()
            || entry.restart_backoff.check(now).is_ok();
        Some(Load {
            is_up,
            // One that still has to show that it lives has no room.
            in_flight: match entry.conn {
                Some(conn) if self.is_probed(conn) => entry.policy.max_in_flight,
                _ => state.map_or(0, State::in_flight),
            },
            queued: u32::try_from(entry.queue.len()).unwrap_or(u32::MAX),
            max_in_flight: entry.policy.max_in_flight,
            admits: may_start
                && !self.stopping
                && entry.left_alone(now).is_none()
                && entry.breaker.would_admit(now),
        })
    }

    /// Whether one more server of that owner could start at once, without anybody's connection being closed for it.
    pub fn has_free_slot(&self, owner: Option<u64>) -> bool {
        self.pool.has_free_slot(owner)
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

    /// When the call was first put on a wire, if it was.
    pub fn sent_at(&self, call: CallId) -> Option<Moment> {
        self.calls.get(call.0)?.sent
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

    /// The connection that has a call, if one has.
    pub fn conn_of(&self, call: CallId) -> Option<ConnId> {
        match self.calls.get(call.0)?.stage {
            Stage::InFlight { conn, .. } => Some(conn),
            Stage::Waiting => None,
        }
    }

    /// A call arrives. It is refused at once, put on a live connection, or waits. `None` means it was refused;
    /// the verdict is among the effects.
    pub fn call(
        &mut self,
        server: ServerId,
        options: CallOptions,
        payload: T,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> Option<CallId> {
        let refuse = |payload, error, effects: &mut Effects<T>| {
            effects.push(Effect::Answer { server, payload, error });
            None
        };
        if self.stopping {
            return refuse(payload, DispatchError::ShuttingDown { sent: false }, effects);
        }
        let Some(entry) = self.servers.get_mut(server).filter(|entry| !entry.removed) else {
            return refuse(payload, DispatchError::Removed, effects);
        };
        if let Some(error) = entry.left_alone(now) {
            return refuse(payload, error, effects);
        }
        let changes = &mut self.pool.changes;
        let admitted = changes.of_breaker(server, &mut entry.breaker, |breaker| breaker.admit(now));
        let permit = match admitted {
            Ok(permit) => permit,
            Err(refused) => {
                let error = DispatchError::CircuitOpen {
                    retry_after: refused.retry_after,
                    failure: entry.last_failure.clone(),
                };
                return refuse(payload, error, effects);
            }
        };
        // A probe that hangs is found by `tick`, not by the next caller.
        self.wake = self.wake.min(entry.breaker.deadline());
        self.budget.called(now);
        let timeout = options.timeout.unwrap_or(entry.policy.timeout);
        let (queued, live) = (entry.queue.len(), entry.conn);
        let has_room = queued == 0
            || turns::has_room(SERVER_QUEUE, queued, entry.queue.waiting_of(options.lane));
        let live = live.and_then(|conn| Some((conn, self.pool.slot(conn)?.state)));
        let error = if !has_room || self.calls.len() >= Key::CAPACITY {
            Some(DispatchError::Overloaded)
        } else if live.is_none() {
            self.open(server, options.lane, now).err()
        } else {
            None
        };
        if let Some(error) = error {
            self.settle(server, permit, Outcome::Neutral, now);
            return refuse(payload, error, effects);
        }
        let call = CallId(self.calls.insert(Call {
            server,
            stage: Stage::Waiting,
            arrived: now,
            timeout,
            harmless: options.harmless,
            lane: options.lane,
            ticket: None,
            sent: None,
            attempts: 0,
            maybe_ran: None,
            agreed: None,
            permit,
            payload,
        }));
        let capacity = self.servers[server].policy.max_in_flight;
        match live {
            Some((conn, state))
                if queued == 0
                    && state.is_live()
                    && state.in_flight() < capacity
                    && !self.is_probed(conn) =>
            {
                self.send(call, conn, now, effects);
            }
            _ => {
                let ticket = self.servers[server].queue.push(options.lane, call);
                if let Some(call) = self.calls.get_mut(call.0) {
                    call.ticket = Some(ticket);
                }
                self.wake = self.wake.min(self.waiting_deadline(call));
                if live.is_none() {
                    self.pump(now, effects);
                }
            }
        }
        Some(call)
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
        // Looked at first: a sign of life sends what waits, and no answer is to a call that was not sent before it.
        let is_expected = self.is_on(call, conn);
        // Even an answer that comes too late shows that somebody is there.
        self.alive(conn, now, effects);
        if !is_expected {
            return None;
        }
        let call = self.calls.remove(call.0)?;
        self.servers[call.server].answered();
        let neutral = rpc_error && !call.permit.is_probe();
        let outcome = if neutral { Outcome::Neutral } else { Outcome::Success };
        if self.settle(call.server, call.permit, outcome, now) && !neutral {
            self.servers[call.server].last_failure = None;
        }
        self.finish_on(conn, now, effects);
        Some(call.payload)
    }

    /// A call broke off while its connection goes on: over HTTP each fares on its own.
    pub fn broke_off(
        &mut self,
        id: CallId,
        conn: ConnId,
        failure: Failure,
        delivery: Delivery,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        if !self.is_on(id, conn) {
            return;
        }
        let Some(call) = self.calls.get_mut(id.0) else { return };
        let failure = Arc::new(failure);
        let entry = &mut self.servers[call.server];
        let mut pause = failure.fact.pause();
        if entry.conn == Some(conn) {
            pause = entry.failed_with(&failure, now);
        }
        let may = replay::may_replay(delivery, call.harmless, call.attempts)
            && call.agreed.is_none_or(|end| now < end)
            && !self.stopping
            && !entry.removed
            && (delivery == Delivery::NotSent || self.budget.take(now));
        if may {
            // It keeps its place on the connection, and the time that was agreed for it.
            call.attempts += 1;
            if delivery == Delivery::Sent {
                call.maybe_ran = Some(failure);
            }
            return effects.push(Effect::Send { conn, call: id });
        }
        let outcome = outcome_of(&failure);
        let error = DispatchError::for_broken_call(failure, delivery, pause);
        self.answer(id, error, outcome, now, effects);
        self.finish_on(conn, now, effects);
    }

    /// The server made progress on a call: it gets its timeout again, up to a cap.
    pub fn progressed(&mut self, call: CallId, now: Moment) {
        if let Some(call) = self.calls.get_mut(call.0)
            && let Stage::InFlight { deadline, cap, .. } = &mut call.stage
        {
            *deadline = (now + call.timeout).min(*cap).max(*deadline);
        }
    }

    /// A server request is pending for a call: the time the client takes does not count against the server.
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
        self.end_early(call, DispatchError::Cancelled, Outcome::Neutral, now, effects);
    }

    /// Closes up to so many idle connections, least recently used first, because what they hold is needed. Says which.
    pub fn shed(&mut self, most: usize, now: Moment, effects: &mut Effects<T>) -> Vec<ConnId> {
        let mut orders = Vec::new();
        self.pool.shed(most, &mut orders);
        self.carry(&orders, now, effects);
        self.rearm(now);
        let closed = |order: &Order| match order {
            Order::Close { conn, .. } => Some(*conn),
            Order::Connect { .. } => None,
        };
        orders.iter().filter_map(closed).collect()
    }

    /// A call that was to be sent cannot be: its connection has too much to read already.
    pub fn refuse(
        &mut self,
        call: CallId,
        error: DispatchError,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        self.end_early(call, error, Outcome::Neutral, now, effects);
    }

    /// Time has passed: deadlines, the reserve, the idle sweep.
    pub fn tick(&mut self, now: Moment, effects: &mut Effects<T>) {
        for entry in self.servers.iter_mut() {
            let changes = &mut self.pool.changes;
            changes.of_breaker(entry.id, &mut entry.breaker, |breaker| breaker.expire(now));
        }
        self.end_overdue_starts(now, effects);
        self.end_overdue_probes(now, effects);
        self.end_overdue_calls(now, effects);
        let mut orders = Vec::new();
        self.pool.sweep(now, &mut orders);
        self.carry(&orders, now, effects);
        self.pump(now, effects);
        self.rearm(now);
    }

    fn send(&mut self, id: CallId, conn: ConnId, now: Moment, effects: &mut Effects<T>) {
        if !self.pool.begin(conn) {
            return;
        }
        let Some(call) = self.calls.get_mut(id.0) else { return };
        let agreed = *call.agreed.get_or_insert(now + call.timeout);
        call.sent.get_or_insert(now);
        call.attempts += 1;
        let cap = agreed + call.timeout.saturating_mul(PROGRESS_CAP - 1);
        call.stage = Stage::InFlight { conn, deadline: agreed, cap };
        self.wake = self.wake.min(agreed);
        effects.push(Effect::Send { conn, call: id });
    }

    /// Sends what waits for a live connection, as far as it can take more.
    fn feed(&mut self, server: ServerId, now: Moment, effects: &mut Effects<T>) {
        loop {
            let entry = &mut self.servers[server];
            let Some(conn) = entry.conn else { return };
            let Some(state) = self.pool.slot(conn).map(|slot| slot.state) else { return };
            let full = state.in_flight() >= entry.policy.max_in_flight;
            if !state.is_live() || full || self.is_probed(conn) {
                return;
            }
            let Some(call) = self.next_waiting(server, now, effects) else { return };
            self.send(call, conn, now, effects);
        }
    }

    /// Takes the call whose turn it is out of a server's queue. One whose agreed time is over is answered instead: there
    /// is no use in sending it again.
    fn next_waiting(
        &mut self,
        server: ServerId,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> Option<CallId> {
        loop {
            let entry = &mut self.servers[server];
            let (ticket, &id) = entry.queue.next()?;
            let agreed = self.calls.get(id.0).and_then(|call| call.agreed);
            if agreed.is_some_and(|end| now >= end) {
                self.end_waiting(id, now, effects);
                continue;
            }
            entry.queue.take(ticket);
            if let Some(call) = self.calls.get_mut(id.0) {
                call.ticket = None;
                return Some(id);
            }
        }
    }

    /// One request on a connection ended: the next one goes out before the connection could count as idle.
    fn finish_on(&mut self, conn: ConnId, now: Moment, effects: &mut Effects<T>) {
        let Some((server, busy)) =
            self.pool.slot(conn).map(|slot| (slot.server, slot.state.in_flight()))
        else {
            return;
        };
        if busy == 0 {
            return;
        }
        let probed = self.is_probed(conn);
        let entry = &mut self.servers[server];
        if entry.conn == Some(conn) && busy <= entry.policy.max_in_flight && !probed {
            // At the limit of what it takes at once, one has to end before the next begins; a connection kept
            // busy by its queue never looks idle, so an ephemeral one is not closed between two waiting calls.
            if std::mem::take(&mut entry.list_due) && self.pool.begin(conn) {
                self.listing.push(conn);
                effects.push(Effect::List { conn, server });
            } else if let Some(call) = self.next_waiting(server, now, effects) {
                self.send(call, conn, now, effects);
            }
        }
        let mut orders = Vec::new();
        self.pool.finish(conn, now, &mut orders);
        if !orders.is_empty() {
            self.carry(&orders, now, effects);
        }
        if let Some(slot) = self.pool.slot(conn)
            && slot.state == State::Idle
        {
            let open = matches!(self.servers[server].breaker.phase(), breaker::Phase::Open { .. });
            if open {
                // It was the process that failed its calls: the probe shall meet a fresh one.
                let mut orders = Vec::new();
                self.pool.close(conn, &mut orders);
                self.carry(&orders, now, effects);
            }
            self.wake = self.wake.min(self.pool.deadline(now));
        }
    }

    fn pool_state(&self, entry: &Server) -> Option<State> {
        entry.conn.and_then(|conn| Some(self.pool.slot(conn)?.state))
    }
}

/// How the breaker counts a failure.
fn outcome_of(failure: &Failure) -> Outcome {
    if failure.fact.counts() { Outcome::Failure } else { Outcome::Neutral }
}

/// The pool's default for a server without a lifecycle of its own.
impl Default for ServerPolicy {
    fn default() -> Self {
        ServerPolicy {
            timeout: Duration::from_mins(1),
            max_in_flight: 64,
            vital: false,
            keep: Keep::UntilTimeout,
            idle_timeout: None,
            one_pipe: false,
            owner: None,
            instances: 1,
        }
    }
}

#[cfg(test)]
mod tests;
