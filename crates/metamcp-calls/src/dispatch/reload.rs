//! Dispatch: reload of the configuration; servers added, changed, removed.

use super::*;

impl<T> Dispatch<T> {
    pub fn add_server(&mut self, policy: ServerPolicy) -> ServerId {
        let breaker = Breaker::new(self.breaker_policy(&policy));
        self.servers.add(policy, breaker)
    }

    /// Takes back the places of removed servers of which nothing is left, for those that are added from now on. Returns
    /// their ids, which find nothing any more and are never given again: whoever still holds one hears that the server
    /// was removed. Without this a removed server keeps its place and may come back by `change_server`.
    pub fn reclaim(&mut self) -> Vec<ServerId> {
        // A call of a removed server is on a connection; those that waited were answered.
        let pool = &self.pool;
        let is_left = |server| pool.all().any(|(_, slot)| slot.server == server);
        let policy = self.breaker_policy(&ServerPolicy::default());
        self.servers.reclaim(is_left, || Breaker::new(policy))
    }

    /// A server is configured differently: its connection finishes what it does and closes, the next call gets a
    /// new one. What was learnt of the old configuration's failures is forgotten. One that was removed is back.
    pub fn change_server(
        &mut self,
        server: ServerId,
        policy: ServerPolicy,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        let breaker_policy = self.breaker_policy(&policy);
        if self.servers.get(server).is_none() {
            return;
        }
        self.servers.set_removed(server, false);
        let entry = &mut self.servers[server];
        entry.policy = policy;
        entry.in_a_hurry = false;
        let changes = &mut self.pool.changes;
        changes.of_breaker(server, &mut entry.breaker, |breaker| breaker.reset(breaker_policy));
        entry.restart_backoff = RestartBackoff::default();
        entry.last_failure = None;
        entry.owed = false;
        entry.retried_start = false;
        // Those who wait will be served by the new configuration, and speak for it.
        for call in entry.queue.iter() {
            if let Some(call) = self.calls.get_mut(call.0)
                && let Ok(permit) = entry.breaker.admit(now)
            {
                call.permit = permit;
            }
        }
        self.pool.amend(server, policy.terms());
        self.let_go(server, now, effects);
        if !self.servers[server].queue.is_empty() {
            self.reopen(server, now, effects);
        }
        self.pump(now, effects);
        self.rearm(now);
    }

    /// An operator wants a server started anew: as after a change to what it is already. False if it was removed.
    pub fn restart_server(
        &mut self,
        server: ServerId,
        now: Moment,
        effects: &mut Effects<T>,
    ) -> bool {
        let Some(policy) =
            self.servers.get(server).filter(|one| !one.removed).map(|one| one.policy)
        else {
            return false;
        };
        self.change_server(server, policy, now, effects);
        true
    }

    /// A server is gone from the configuration, or the session is gone that it belonged to: new and waiting calls are
    /// refused; what becomes of those sent is up to `removal`. One that was removed before may be removed at once now.
    pub fn remove_server(
        &mut self,
        server: ServerId,
        removal: Removal,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        if self.servers.get(server).is_none() {
            return;
        }
        self.servers.set_removed(server, true);
        self.servers[server].wanted = None;
        self.pool.withdraw(server);
        self.refuse_queue(server, &DispatchError::Removed, Outcome::Neutral, now, effects);
        match removal {
            Removal::Finish => self.let_go(server, now, effects),
            Removal::AtOnce => self.end_all(server, now, effects),
        }
        self.pump(now, effects);
        self.rearm(now);
    }

    /// Gives up every call on every connection of a server, and ends the connections in a hurry.
    fn end_all(&mut self, server: ServerId, now: Moment, effects: &mut Effects<T>) {
        self.servers[server].in_a_hurry = true;
        let all = self.pool.all().filter(|(_, slot)| slot.server == server);
        let conns: Vec<(ConnId, State)> = all.map(|(conn, slot)| (conn, slot.state)).collect();
        for (conn, state) in conns {
            if state == State::Closed {
                // It is on its way out, but may take its time.
                effects.push(Effect::Close { conn, mode: CloseMode::Brisk });
                continue;
            }
            self.detach(server, conn);
            for call in self.calls_on(conn) {
                self.end_early(call, DispatchError::Cancelled, Outcome::Neutral, now, effects);
            }
            let mut orders = Vec::new();
            self.pool.close(conn, &mut orders);
            self.carry(&orders, now, effects);
        }
    }

    /// Detaches the current connection of a server and lets it finish.
    pub(super) fn let_go(&mut self, server: ServerId, now: Moment, effects: &mut Effects<T>) {
        let Some(conn) = self.servers[server].conn else { return };
        self.detach(server, conn);
        let mut orders = Vec::new();
        match self.pool.slot(conn).map(|slot| slot.state) {
            Some(State::Connecting | State::Failed) => self.pool.close(conn, &mut orders),
            _ => self.pool.drain(conn, &mut orders),
        }
        self.carry(&orders, now, effects);
    }

    pub(super) fn breaker_policy(&self, policy: &ServerPolicy) -> breaker::Policy {
        breaker::Policy {
            threshold: self.limits.breaker_threshold.max(1),
            cooldown: self.limits.breaker_cooldown,
            probe_limit: self.limits.install_timeout.saturating_add(policy.timeout),
        }
    }
}
