//! Dispatch: calls that end from our side by deadline, rejection or shutdown; and when to wake next.

use super::*;

impl<T> Dispatch<T> {
    /// No new calls from now on; those that were not sent yet are answered.
    pub fn stop(&mut self, now: Moment, effects: &mut Effects<T>) {
        self.stopping = true;
        for server in self.servers.ids() {
            self.refuse_queue(
                server,
                &DispatchError::ShuttingDown { sent: false },
                Outcome::Neutral,
                now,
                effects,
            );
            self.pool.withdraw(server);
        }
        self.rearm(now);
    }

    /// The drain is over: every call left is answered and every connection shut.
    pub fn stop_now(&mut self, now: Moment, effects: &mut Effects<T>) {
        self.stop(now, effects);
        let open: Vec<CallId> = self.calls.iter().map(|(key, _)| CallId(key)).collect();
        for call in open {
            let error = DispatchError::ShuttingDown { sent: true };
            self.end_early(call, error, Outcome::Neutral, now, effects);
        }
        let conns: Vec<ConnId> = self.pool.all().map(|(conn, _)| conn).collect();
        let mut orders = Vec::new();
        for conn in conns {
            self.pool.close(conn, &mut orders);
        }
        self.carry(&orders, now, effects);
        self.rearm(now);
    }

    /// Those that wait come first: what ends on a connection would send them, overdue as they are.
    pub(super) fn end_overdue_calls(&mut self, now: Moment, effects: &mut Effects<T>) {
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
            let entry = &mut self.servers[server];
            let attached = entry.conn == Some(conn);
            let one_pipe = entry.policy.one_pipe;
            if attached {
                let fact = Fact::CallTimedOut { after: timeout };
                entry.last_failure = Some(Arc::new(Failure::new(fact)));
            }
            // Before its place goes to the next, who would only wait as long for nothing.
            if attached && one_pipe && !self.is_probed(conn) && !self.stopping {
                self.probe(server, conn, now, effects);
            }
            // A process that was replaced was judged when that happened; what it still owes says nothing about the
            // one in its place.
            let outcome = if attached { Outcome::Failure } else { Outcome::Neutral };
            let error = DispatchError::TimedOut { after: timeout, sent: true };
            self.end_early(id, error, outcome, now, effects);
        }
    }

    /// The time of a call is over before it was sent, or sent again.
    pub(super) fn end_waiting(&mut self, id: CallId, now: Moment, effects: &mut Effects<T>) {
        let Some(call) = self.calls.get(id.0) else { return };
        let (server, arrived, sent) = (call.server, call.arrived, call.maybe_ran.is_some());
        let owes = call.attempts > 0 && self.servers[server].owed;
        let outcome = if owes { Outcome::Failure } else { Outcome::Neutral };
        let over = call.agreed.is_some_and(|end| now >= end);
        let error = if self.pool.waits_since(server).is_some() && !sent && !over {
            let holders = self.pool.all().map(|(_, slot)| slot.server).collect();
            DispatchError::PoolExhausted { waited: now.since(arrived), holders }
        } else {
            DispatchError::TimedOut { after: now.since(arrived), sent }
        };
        if self.end_early(id, error, outcome, now, effects) && owes {
            self.servers[server].owed = false;
        }
    }

    /// When a call's time is up: the call's own deadline once sent; before that, what it waits for decides.
    pub(super) fn deadline_of(&self, id: CallId) -> Moment {
        match self.calls.get(id.0) {
            Some(Call { stage: Stage::InFlight { deadline, .. }, .. }) => *deadline,
            Some(_) => self.waiting_deadline(id),
            None => Moment::NEVER,
        }
    }

    pub(super) fn waiting_deadline(&self, id: CallId) -> Moment {
        let Some(call) = self.calls.get(id.0) else { return Moment::NEVER };
        let agreed = call.agreed.unwrap_or(Moment::NEVER);
        let entry = &self.servers[call.server];
        let own = match self.pool_state(entry) {
            None => call.arrived.max(entry.in_line_since) + self.limits.pool_wait,
            // Bounded by the deadline of the start itself.
            Some(State::Connecting) => Moment::NEVER,
            Some(State::Failed | State::Closed) => {
                let broke = entry.conn.and_then(|conn| Some(self.pool.slot(conn)?.since));
                call.arrived.max(broke.unwrap_or(call.arrived)) + self.limits.connect_timeout
            }
            Some(State::Idle | State::Active { .. }) => {
                let probed = entry.conn.and_then(|conn| self.probed_until(conn));
                let ready = entry.ready_at.max(probed.unwrap_or(Moment::START));
                call.arrived.max(ready) + call.timeout
            }
        };
        own.min(agreed)
    }

    /// Ends a call from our side, wherever it is. Says whether the breaker took notice.
    pub(super) fn end_early(
        &mut self,
        id: CallId,
        error: DispatchError,
        outcome: Outcome,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> bool {
        let Some(call) = self.calls.get(id.0) else { return false };
        let (server, lane, ticket) = (call.server, call.lane, call.ticket);
        if let Stage::InFlight { conn, .. } = call.stage {
            effects.push(Effect::Abandon { conn, call: id, attempt: call.attempts });
            let noticed = self.answer(id, error, outcome, now, effects);
            self.finish_on(conn, now, effects);
            return noticed;
        }
        let noticed = self.answer(id, error, outcome, now, effects);
        let entry = &mut self.servers[server];
        if let Some(ticket) = ticket {
            entry.queue.remove(ticket);
        }
        if entry.conn.is_none() {
            if entry.queue.is_empty() && entry.wanted.is_none() {
                entry.retried_start = false;
                self.pool.withdraw(server);
            } else if entry.queue.waiting_of(lane) == 0 && entry.wanted != Some(lane) {
                self.pool.leave(server, lane);
            }
        }
        noticed
    }

    /// Answers all that wait for a server. The outcome counts once, for the first whose permit still counts.
    pub(super) fn refuse_queue(
        &mut self,
        server: ServerId,
        error: &DispatchError,
        outcome: Outcome,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        let mut queue = std::mem::take(&mut self.servers[server].queue);
        let mut outcome = outcome;
        while let Some(call) = queue.pop() {
            if self.answer(call, error.clone(), outcome, now, effects) {
                outcome = Outcome::Neutral;
            }
        }
    }

    /// Ends a call without an answer of its server. Says whether the breaker took notice.
    pub(super) fn answer(
        &mut self,
        id: CallId,
        error: DispatchError,
        outcome: Outcome,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> bool {
        let Some(call) = self.calls.remove(id.0) else { return false };
        let noticed = self.settle(call.server, call.permit, outcome, now);
        let error = match &call.maybe_ran {
            Some(failure) => error.or_outcome_unknown(failure),
            None => error,
        };
        effects.push(Effect::Answer { server: call.server, payload: call.payload, error });
        noticed
    }

    pub(super) fn settle(
        &mut self,
        server: ServerId,
        permit: Permit,
        outcome: Outcome,
        now: Moment,
    ) -> bool {
        let jitter = self.limits.breaker_cooldown / 10_000 * self.jitter;
        let breaker = &mut self.servers[server].breaker;
        let changes = &mut self.pool.changes;
        changes.of_breaker(server, breaker, |breaker| breaker.settle(permit, outcome, now, jitter))
    }

    /// Works out anew when `tick` is next needed. Linear in what is open; called when something rare happened.
    pub(super) fn rearm(&mut self, now: Moment) {
        let calls = self.calls.iter().map(|(key, _)| self.deadline_of(CallId(key))).min();
        let servers = self
            .servers
            .iter()
            .map(|entry| entry.start_deadline.min(entry.breaker.deadline()))
            .min();
        let probes = self.probing.iter().map(|probed| probed.1).min();
        let pool = Some(self.pool.deadline(now));
        let next = [calls, servers, probes, pool].into_iter().flatten().min();
        self.wake = next.unwrap_or(Moment::NEVER);
    }
}
