//! Dispatch: liveness probes. After a call that timed out, a connection that does not answer a ping is replaced. Calls sent
//! on it are not sent again; queued ones get a fresh connection.

use super::*;

impl<T> Dispatch<T> {
    /// Something came over a connection: it lives.
    pub fn alive(&mut self, conn: ConnId, now: Moment, effects: &mut Effects<T>) {
        let Some(place) = self.probing.iter().position(|probed| probed.0 == conn) else { return };
        self.probing.swap_remove(place);
        let server = self.pool.slot(conn).map(|slot| slot.server);
        if let Some(server) = server
            && self.servers[server].conn == Some(conn)
        {
            // Those who wait still have their whole time from now on.
            self.servers[server].ready_at = now;
            self.feed(server, now, effects);
        }
        self.finish_on(conn, now, effects);
        // Those who wait have their own deadlines again.
        self.rearm(now);
    }

    /// The deadline of the ping.
    pub(super) fn probed_until(&self, conn: ConnId) -> Option<Moment> {
        self.probing.iter().find(|probed| probed.0 == conn).map(|probed| probed.1)
    }

    /// Whether a connection still has to show that it lives. Until then it gets nothing new.
    pub(super) fn is_probed(&self, conn: ConnId) -> bool {
        self.probed_until(conn).is_some()
    }

    /// A call timed out on a connection that all calls of its server share: asks it whether it lives. That counts as
    /// work of it, so that it is not idle meanwhile.
    pub(super) fn probe(
        &mut self,
        server: ServerId,
        conn: ConnId,
        now: Moment,
        effects: &mut Effects<T>,
    ) {
        let usable = |slot: &pool::Slot| slot.state.is_live() && !slot.draining;
        let attached = self.servers[server].conn == Some(conn);
        if attached && self.pool.slot(conn).is_some_and(usable) && self.pool.begin(conn) {
            self.probing.push((conn, now + PROBE));
            self.wake = self.wake.min(now + PROBE);
            effects.push(Effect::Probe { conn });
        }
    }

    /// Those that showed no life finish what they have, each call by its own deadline, and get nothing new.
    pub(super) fn end_overdue_probes(&mut self, now: Moment, effects: &mut Effects<T>) {
        let overdue = |probed: &(ConnId, Moment)| now >= probed.1;
        while let Some(place) = self.probing.iter().position(overdue) {
            let (conn, _) = self.probing.swap_remove(place);
            let Some(server) = self.pool.slot(conn).map(|slot| slot.server) else { continue };
            if self.servers[server].conn == Some(conn) {
                self.let_go(server, now, effects);
            }
            self.finish_on(conn, now, effects);
            let entry = &self.servers[server];
            if entry.conn.is_none() && !entry.queue.is_empty() {
                self.reopen(server, now, effects);
            }
        }
    }
}
