//! Dispatch: reload of the configuration; servers added, changed, removed.

use super::*;

impl<T> Dispatch<T> {
    pub fn add_server(&mut self, policy: ServerPolicy) -> ServerId {
        let server = server_id(self.servers.len());
        let breaker = Breaker::new(self.breaker_policy(&policy));
        self.servers.push(Server::new(policy, breaker));
        server
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
        let entry = &mut self.servers[server.0 as usize];
        entry.policy = policy;
        entry.removed = false;
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
        if !self.servers[server.0 as usize].queue.is_empty() {
            self.reopen(server, now, effects);
        }
        self.pump(now, effects);
        self.rearm(now);
    }

    /// A server is gone from the configuration: new and waiting calls are refused, those sent may finish.
    pub fn remove_server(&mut self, server: ServerId, now: Moment, effects: &mut Effects<T>) {
        self.servers[server.0 as usize].removed = true;
        self.pool.withdraw(server);
        self.refuse_queue(server, &DispatchError::Removed, Outcome::Neutral, now, effects);
        self.let_go(server, now, effects);
        self.pump(now, effects);
        self.rearm(now);
    }

    /// Detaches the current connection of a server and lets it finish.
    pub(super) fn let_go(&mut self, server: ServerId, now: Moment, effects: &mut Effects<T>) {
        let Some(conn) = self.servers[server.0 as usize].conn else { return };
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
