//! Dispatch: connections that open, become ready, break and close.

use super::*;

impl<T> Dispatch<T> {
    /// A connection is ready. Its tools are listed, and what waited for it is sent.
    pub fn connected(&mut self, conn: ConnId, now: Moment, effects: &mut Effects<T>) {
        let Some(server) = self.pool.slot(conn).map(|slot| slot.server) else { return };
        if !self.pool.connected(conn) {
            return;
        }
        let entry = &mut self.servers[server];
        entry.restart_backoff.started();
        entry.ready_at = now;
        entry.retried_start = false;
        entry.list_due = false;
        entry.start_deadline = Moment::NEVER;
        self.listing.push(conn);
        effects.push(Effect::List { conn, server });
        self.feed(server, now, effects);
        self.servers[server].owed = false;
        // One start less under way: the next may begin.
        self.pump(now, effects);
        self.rearm(now);
    }

    /// A server that is starting shows that it is alive, so it gets more time.
    pub fn life_sign(&mut self, conn: ConnId, now: Moment) {
        let Some(slot) = self.pool.slot(conn).filter(|slot| slot.state == State::Connecting) else {
            return;
        };
        let last = slot.since + self.limits.install_timeout;
        let entry = &mut self.servers[slot.server];
        if entry.conn == Some(conn) {
            entry.start_deadline = entry.start_deadline.max((now + LIFE_GRACE).min(last));
        }
    }

    /// Its process was replaced by a fresh one, which has all the time that the first one had.
    pub fn started_again(&mut self, conn: ConnId, now: Moment) {
        let Some(slot) = self.pool.slot(conn).filter(|slot| slot.state == State::Connecting) else {
            return;
        };
        let entry = &mut self.servers[slot.server];
        if entry.conn == Some(conn) {
            entry.start_deadline = entry.start_deadline.max(now + self.limits.connect_timeout);
            // The second process is the second try: one that dies too is not started a third time.
            entry.retried_start = true;
            entry.restart_backoff.spawned(now);
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
        let Some(slot) = self.pool.slot(conn).filter(|slot| slot.state.is_live() && !slot.draining)
        else {
            return false;
        };
        let entry = &mut self.servers[slot.server];
        if slot.state.in_flight() >= entry.policy.max_in_flight {
            entry.list_due = true;
            return false;
        }
        let began = self.pool.begin(conn);
        if began {
            self.listing.push(conn);
        }
        began
    }

    /// A listing is wanted but there is no connection: one is opened in the turn of that lane, and lists by itself. The
    /// error says why not.
    pub fn wake_server(
        &mut self,
        server: ServerId,
        lane: u64,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> Result<(), DispatchError> {
        if self.stopping {
            return Err(DispatchError::ShuttingDown { sent: false });
        }
        let entry = self
            .servers
            .get_mut(server)
            .filter(|entry| !entry.removed)
            .ok_or(DispatchError::Removed)?;
        if entry.conn.is_some() {
            return Ok(());
        }
        if let Some(error) = entry.left_alone(now) {
            return Err(error);
        }
        let changes = &mut self.pool.changes;
        let admitted = changes.of_breaker(server, &mut entry.breaker, |breaker| breaker.admit(now));
        let permit = admitted.map_err(|refused| DispatchError::CircuitOpen {
            retry_after: refused.retry_after,
            failure: entry.last_failure.clone(),
        })?;
        // Listing is no verdict on the server's health; a probe is left to a call.
        self.settle(server, permit, Outcome::Neutral, now);
        self.open(server, lane, now)?;
        self.servers[server].wanted.get_or_insert(lane);
        self.pump(now, effects);
        Ok(())
    }

    /// Why a server that was to be started is not there, without trying again: many may have waited for one start,
    /// and all of them are to hear the same.
    pub fn why_not(&self, server: ServerId, now: Moment) -> Option<DispatchError> {
        if self.stopping {
            return Some(DispatchError::ShuttingDown { sent: false });
        }
        let entry = self.servers.get(server).filter(|entry| !entry.removed);
        let Some(entry) = entry else { return Some(DispatchError::Removed) };
        if let Err(backoff) = entry.restart_backoff.check(now) {
            // Calls that waited for the start get its failure, not that the server was not contacted.
            return Some(match entry.held_back(backoff, now) {
                DispatchError::Paused { failure, retry_after } => {
                    DispatchError::Unavailable { failure, retry_after: Some(retry_after) }
                }
                other => other,
            });
        }
        let failure = entry.last_failure.clone()?;
        Some(DispatchError::Unavailable { failure, retry_after: None })
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
        let Some((server, state)) = self.pool.slot(conn).map(|slot| (slot.server, slot.state))
        else {
            return;
        };
        let failure = Arc::new(failure);
        self.listing.retain(|&listing| listing != conn);
        self.probing.retain(|probed| probed.0 != conn);
        match state {
            State::Connecting => return self.start_failed(conn, server, failure, now, effects),
            State::Idle => {
                if self.servers[server].conn == Some(conn) {
                    self.servers[server].last_failure = Some(failure);
                }
                self.detach(server, conn);
                self.pool.broke(conn, now);
                effects.push(Effect::Close { conn, mode: CloseMode::Immediate });
                return;
            }
            State::Active { .. } => {}
            State::Failed | State::Closed => return,
        }
        self.pool.broke(conn, now);
        effects.push(Effect::Close { conn, mode: CloseMode::Immediate });
        let attached = self.servers[server].conn == Some(conn);
        let removed = self.servers[server].removed;
        if attached {
            self.servers[server].last_failure = Some(Arc::clone(&failure));
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
            let pause = failure.fact.pause();
            let error = DispatchError::for_broken_call(Arc::clone(&failure), delivered, pause);
            if self.answer(call, error, charge, now, effects) {
                charge = Outcome::Neutral;
            }
        }
        let entry = &mut self.servers[server];
        let fresh_start = attached && entry.crashed(now);
        if attached {
            entry.owed = !again.is_empty() && charge == Outcome::Failure;
        }
        for id in again {
            if let Some(call) = self.calls.get_mut(id.0) {
                call.ticket = Some(entry.queue.push_ahead(call.lane, id));
            }
        }
        if attached {
            // Kept attached while somebody waits for it, or for the one respawn a crash earns.
            entry.wanted =
                (fresh_start && !self.stopping).then_some(entry.policy.owner.unwrap_or(NOBODY));
            if entry.queue.is_empty() && entry.wanted.is_none() {
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
        let Some(slot) = self.pool.slot(conn).cloned() else { return };
        self.listing.retain(|&listing| listing != conn);
        self.probing.retain(|probed| probed.0 != conn);
        let server = slot.server;
        let entry = &mut self.servers[server];
        if slot.state == State::Failed && entry.conn == Some(conn) {
            let wanted = std::mem::take(&mut entry.wanted);
            let needed = wanted.is_some() || !entry.queue.is_empty();
            let may = entry.restart_backoff.check_burst(now);
            let starts = needed && may.is_ok() && !self.stopping && !entry.removed;
            if starts && self.pool.reconnect(conn, now) {
                entry.starting(now, self.limits.connect_timeout);
                effects.push(Effect::Connect { conn, server });
                // The line had counted on its slot.
                self.pump(now, effects);
                return self.rearm(now);
            }
            entry.conn = None;
            entry.retried_start &= starts;
            if let Err(backoff) = may {
                let error = entry.held_back(backoff, now);
                let charge = entry.owed_outcome();
                self.refuse_queue(server, &error, charge, now, effects);
            } else if starts {
                entry.wanted = wanted;
                entry.in_line_since = now;
                self.line_up(server, now);
            }
        } else {
            self.detach(server, conn);
        }
        self.pool.gone(conn);
        self.pump(now, effects);
        self.rearm(now);
    }

    /// Makes sure a connection to the server is on its way, in the turn of that lane.
    pub(super) fn open(
        &mut self,
        server: ServerId,
        lane: u64,
        now: Moment,
    ) -> Result<(), DispatchError> {
        self.may_line_up(server, now)?;
        if self.pool.count() >= self.pool.limits().size {
            let queues = self.pool.waiting().map(|server| &self.servers[server].queue);
            let (waiting, own) = queues.fold((0, 0), |(waiting, own), queue| {
                (waiting + queue.len(), own + queue.waiting_of(lane))
            });
            if !turns::has_room(SLOT_QUEUE, waiting, own) {
                return Err(DispatchError::Overloaded);
            }
        }
        let terms = self.servers[server].policy.terms();
        self.pool.want(server, lane, terms, now);
        Ok(())
    }

    /// The same for calls that already wait: if it cannot be, they are answered.
    pub(super) fn reopen(&mut self, server: ServerId, now: Moment, effects: &mut Effects<T>) {
        match self.may_line_up(server, now) {
            Ok(()) => {
                self.line_up(server, now);
                self.pump(now, effects);
            }
            Err(error) => self.refuse_queue(server, &error, Outcome::Neutral, now, effects),
        }
    }

    /// Whether a server may be started; one that stands in line already has been asked about.
    fn may_line_up(&mut self, server: ServerId, now: Moment) -> Result<(), DispatchError> {
        if self.pool.waits_since(server).is_some() {
            return Ok(());
        }
        let entry = &mut self.servers[server];
        if let Err(backoff) = entry.restart_backoff.check(now) {
            entry.wanted = None;
            return Err(entry.held_back(backoff, now));
        }
        entry.in_line_since = now;
        Ok(())
    }

    /// Puts a server into the lane of everybody who wants it.
    fn line_up(&mut self, server: ServerId, now: Moment) {
        let entry = &self.servers[server];
        let terms = entry.policy.terms();
        for lane in entry.queue.lanes().chain(entry.wanted) {
            self.pool.want(server, lane, terms, now);
        }
    }

    pub(super) fn pump(&mut self, now: Moment, effects: &mut Effects<T>) {
        let mut orders = Vec::new();
        self.pool.pump(now, &mut orders);
        self.carry(&orders, now, effects);
        self.wake = self.wake.min(self.pool.deadline(now));
    }

    pub(super) fn carry(&mut self, orders: &[Order], now: Moment, effects: &mut Effects<T>) {
        for &order in orders {
            match order {
                Order::Connect { conn, server } => {
                    let entry = &mut self.servers[server];
                    entry.conn = Some(conn);
                    entry.wanted = None;
                    entry.starting(now, self.limits.connect_timeout);
                    self.wake = self.wake.min(entry.start_deadline);
                    effects.push(Effect::Connect { conn, server });
                }
                Order::Close { conn, server } => {
                    let entry = &mut self.servers[server];
                    if entry.conn == Some(conn) {
                        entry.restart_backoff.retired();
                    }
                    let in_a_hurry = entry.in_a_hurry;
                    self.detach(server, conn);
                    let mode = if in_a_hurry { CloseMode::Brisk } else { CloseMode::Graceful };
                    effects.push(Effect::Close { conn, mode });
                }
            }
        }
    }

    pub(super) fn detach(&mut self, server: ServerId, conn: ConnId) {
        let entry = &mut self.servers[server];
        if entry.conn == Some(conn) {
            entry.conn = None;
            entry.start_deadline = Moment::NEVER;
        }
    }

    pub(super) fn start_failed(
        &mut self,
        conn: ConnId,
        server: ServerId,
        failure: Arc<Failure>,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        self.pool.broke(conn, now);
        effects.push(Effect::Close { conn, mode: CloseMode::Immediate });
        let jitter = self.jitter;
        let entry = &mut self.servers[server];
        if entry.conn != Some(conn) {
            return;
        }
        let rest = entry.failed_with(&failure, now);
        entry.start_deadline = Moment::NEVER;
        // One that only wants a login or a pause is well: it may be tried as often as somebody asks.
        let well = !failure.fact.counts();
        let fresh_start = !well && entry.crashed(now);
        let retry = failure.fact.may_pass() && fresh_start && !entry.retried_start;
        if retry && !self.stopping {
            // Stays attached: `gone` starts it once more, also where it was only to list its tools, because a call
            // waits for that list.
            entry.retried_start = true;
            entry.wanted = Some(entry.policy.owner.unwrap_or(NOBODY));
            self.pump(now, effects);
            return self.rearm(now);
        }
        entry.retried_start = false;
        entry.owed = false;
        entry.wanted = None;
        if well {
            entry.restart_backoff.retired();
        } else {
            entry.restart_backoff.start_failed(now, jitter);
        }
        entry.conn = None;
        let retry_after = match entry.restart_backoff.check(now) {
            Err(Backoff::Pausing { until } | Backoff::CrashLoop { until }) => {
                Some(until.since(now))
            }
            Ok(()) => rest,
        };
        let outcome = outcome_of(&failure);
        let for_nobody = self.servers[server].queue.is_empty();
        self.refuse_queue(
            server,
            &DispatchError::Unavailable { failure, retry_after },
            outcome,
            now,
            effects,
        );
        let breaker = &mut self.servers[server].breaker;
        let changes = &mut self.pool.changes;
        if for_nobody
            && let Ok(permit) = changes.of_breaker(server, breaker, |breaker| breaker.admit(now))
        {
            // A start that was to list tools failed like any other.
            self.settle(server, permit, outcome, now);
        }
        self.pump(now, effects);
        self.rearm(now);
    }

    /// Connections whose start takes too long, and for how long it took: whoever knows what their processes said ends them
    /// with `lost` before the next `tick` does.
    pub fn overdue_starts(&self, now: Moment) -> Vec<(ConnId, Duration)> {
        let overdue = self.servers.iter().filter(|entry| now >= entry.start_deadline);
        overdue
            .filter_map(|entry| {
                let conn = entry.conn?;
                Some((conn, now.since(self.pool.slot(conn)?.since)))
            })
            .collect()
    }

    pub(super) fn end_overdue_starts(&mut self, now: Moment, effects: &mut Effects<T>) {
        for server in self.servers.ids() {
            let entry = &self.servers[server];
            let (Some(conn), deadline) = (entry.conn, entry.start_deadline) else { continue };
            if now < deadline {
                continue;
            }
            let after = self.pool.slot(conn).map_or(Duration::ZERO, |slot| now.since(slot.since));
            let failure = Failure::new(Fact::StartTimedOut { after });
            self.lost(conn, failure, &|_| Delivery::NotSent, now, effects);
        }
    }
}
