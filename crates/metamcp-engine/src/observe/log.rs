//! Events as log lines. Only events of the enabled levels are subscribed to, so a disabled level costs nothing.

use metamcp_calls::breaker::Phase;
use metamcp_calls::lifecycle::State;
use metamcp_calls::state_change::{PoolChange, StateChange};
use metamcp_types::text::duration;
use tracing::level_filters::LevelFilter;

use super::{CallRecord, Event, Interest, LoginChange, Subscriber};

/// Writes events to the log.
#[derive(Debug)]
pub struct EventLog {
    level: LevelFilter,
}

impl EventLog {
    /// At the level that the log has now.
    pub fn new() -> EventLog {
        EventLog { level: LevelFilter::current() }
    }
}

impl Default for EventLog {
    fn default() -> EventLog {
        EventLog::new()
    }
}

impl Subscriber for EventLog {
    fn interest(&self) -> Interest {
        let mut interest = Interest::NOTHING;
        if self.level >= LevelFilter::WARN {
            interest = interest.and(Interest::STATES).and(Interest::LOGINS);
        }
        if self.level >= LevelFilter::DEBUG {
            interest = interest.and(Interest::CALLS).and(Interest::SEARCHES);
        }
        if self.level >= LevelFilter::TRACE {
            interest = interest.and(Interest::ACTIVITY);
        }
        interest
    }

    fn on_event(&self, event: &Event<'_>) {
        match event {
            Event::Call(record, _) => call(record),
            Event::Search { identity, ids, .. } => {
                tracing::debug!(session = identity.session, tools = ids.len(), "search answered");
            }
            Event::State { server, change } => state(server, change),
            Event::Login { server, change } => login(server, *change),
            Event::Redaction { .. } | Event::Script(..) | Event::Action(_) => {}
        }
    }
}

fn call(record: &CallRecord) {
    let queued = record.sent.map(|sent| duration(sent.since(record.arrived)));
    let client = record.identity.client.as_ref().map(|client| client.name.as_str());
    tracing::debug!(
        id = record.id,
        server = &*record.server,
        tool = &*record.tool,
        verdict = record.verdict.word(),
        took = duration(record.ended.since(record.arrived)),
        queued,
        attempts = record.attempts,
        bytes_in = record.bytes_in,
        bytes_out = record.bytes_out,
        by = record.origin.word(),
        session = record.identity.session,
        client,
        node = record.node.as_deref(),
        "{} ended",
        record.method,
    );
}

fn state(server: &str, change: &StateChange) {
    match change {
        StateChange::Breaker { to: Phase::Open { .. }, .. } => {
            tracing::warn!("the circuit breaker of the server {server:?} opened");
        }
        StateChange::Breaker { to: Phase::Probing { .. }, .. } => {
            tracing::info!("one call probes whether the server {server:?} is back");
        }
        StateChange::Breaker { to: Phase::Normal { .. }, .. } => {
            tracing::info!("the circuit breaker of the server {server:?} closed");
        }
        StateChange::Connection { from, to, .. } => {
            let word = |state: &Option<State>| {
                state.map_or_else(|| "none".to_owned(), |state| state.to_string())
            };
            if change.is_activity() {
                tracing::trace!(server, from = word(from), to = word(to), "connection");
            } else {
                tracing::debug!(server, from = word(from), to = word(to), "connection");
            }
        }
        StateChange::Pool { change, .. } => pool(server, change),
    }
}

fn pool(server: &str, change: &PoolChange) {
    match change {
        PoolChange::Granted { waited, from_reserve: true } => {
            tracing::info!(
                "the server {server:?} got a reserve slot of the pool after {}",
                duration(*waited)
            );
        }
        PoolChange::Granted { waited, .. } => {
            tracing::debug!(server, waited = duration(*waited), "pool slot granted");
        }
        PoolChange::Queued { ahead } => tracing::debug!(server, ahead, "waits for a pool slot"),
        PoolChange::Withdrawn => tracing::debug!(server, "no longer waits for a pool slot"),
        PoolChange::Evicted => tracing::debug!(server, "idle connection evicted"),
        PoolChange::IdleTimeout => tracing::debug!(server, "idle connection timed out"),
    }
}

fn login(server: &str, change: LoginChange) {
    match change {
        LoginChange::Needed => tracing::warn!("the server {server:?} needs a person to sign in"),
        LoginChange::Started => tracing::info!("signing in at {server:?}: waiting for a person"),
        LoginChange::Granted => tracing::info!("signed in at {server:?}"),
        LoginChange::Refreshed => tracing::info!("the token for {server:?} was refreshed"),
        LoginChange::Failed => tracing::warn!("signing in at {server:?} failed"),
        LoginChange::Forgotten => tracing::info!("signed out of {server:?}"),
    }
}
