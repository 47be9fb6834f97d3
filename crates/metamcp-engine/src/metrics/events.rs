//! Everything but calls: searches, scripts, logins, starts and failures of servers, the pool, redactions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use metamcp_calls::breaker::Phase;
use metamcp_calls::lifecycle::State;
use metamcp_calls::state_change::{PoolChange, StateChange};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::calls::{OfServer, SECONDS};
use super::names::{self, MAX_NAME, MAX_SERVERS, OTHER};
use crate::observe::{Event, LoginChange};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfScript {
    verdict: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLogin {
    server: Arc<str>,
    change: &'static str,
}

/// See the module.
pub(super) struct Events {
    searches: Counter,
    redactions: Counter,
    scripts: Family<OfScript, Counter>,
    script_duration: Histogram,
    script_calls: Counter,
    starts: Family<OfServer, Counter>,
    restarts: Family<OfServer, Counter>,
    failures: Family<OfServer, Counter>,
    breakers: Family<OfServer, Counter>,
    pool_wait: Histogram,
    evictions: Counter,
    logins: Family<OfLogin, Counter>,
    servers: Mutex<Servers>,
}

/// The labels of servers, and which of them failed last. All of this is rare.
#[derive(Default)]
struct Servers {
    labels: HashMap<Box<str>, Arc<str>>,
    failed: HashSet<Arc<str>>,
}

impl Servers {
    fn label(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.labels.get(name) {
            return Arc::clone(known);
        }
        let has_room = self.labels.len() < MAX_SERVERS && name.len() <= 4 * MAX_NAME;
        let name = if has_room { name } else { OTHER };
        let label = names::label(name);
        self.labels.insert(name.into(), Arc::clone(&label));
        label
    }
}

impl Events {
    pub(super) fn register(registry: &mut Registry) -> Events {
        let events = Events {
            searches: Counter::default(),
            redactions: Counter::default(),
            scripts: Family::default(),
            script_duration: Histogram::new(SECONDS),
            script_calls: Counter::default(),
            starts: Family::default(),
            restarts: Family::default(),
            failures: Family::default(),
            breakers: Family::default(),
            pool_wait: Histogram::new(SECONDS),
            evictions: Counter::default(),
            logins: Family::default(),
            servers: Mutex::default(),
        };
        names::register(registry, "searches", events.searches.clone());
        names::register(registry, "redactions", events.redactions.clone());
        names::register(registry, "scripts", events.scripts.clone());
        names::register(registry, "script_duration", events.script_duration.clone());
        names::register(registry, "script_calls", events.script_calls.clone());
        names::register(registry, "server_starts", events.starts.clone());
        names::register(registry, "server_restarts", events.restarts.clone());
        names::register(registry, "server_failures", events.failures.clone());
        names::register(registry, "breaker_openings", events.breakers.clone());
        names::register(registry, "pool_wait", events.pool_wait.clone());
        names::register(registry, "pool_evictions", events.evictions.clone());
        names::register(registry, "logins", events.logins.clone());
        events
    }

    pub(super) fn count(&self, event: &Event<'_>) {
        match event {
            Event::Search { .. } => {
                self.searches.inc();
            }
            Event::Redaction { removed } => {
                self.redactions.inc_by(*removed);
            }
            Event::Script(record, _) => {
                self.scripts.get_or_create(&OfScript { verdict: record.verdict }).inc();
                let took = record.ended.since(record.began);
                self.script_duration.observe(took.as_secs_f64());
                self.script_calls.inc_by(record.calls as u64);
            }
            Event::State { server, change } => self.changed(server, change),
            Event::Login { server, change } => {
                let server = self.servers.lock().label(server);
                self.logins.get_or_create(&OfLogin { server, change: word(*change) }).inc();
            }
            // Calls are counted by `calls`, what people decided by nobody.
            Event::Call(..) | Event::Action(_) => {}
        }
    }

    fn changed(&self, server: &str, change: &StateChange) {
        let mut servers = self.servers.lock();
        let server = servers.label(server);
        let labels = OfServer { server: Arc::clone(&server) };
        match change {
            StateChange::Connection { to: Some(State::Connecting), .. } => {
                self.starts.get_or_create(&labels).inc();
                if servers.failed.remove(&server) {
                    self.restarts.get_or_create(&labels).inc();
                }
            }
            StateChange::Connection { to: Some(State::Failed), .. } => {
                self.failures.get_or_create(&labels).inc();
                servers.failed.insert(server);
            }
            StateChange::Breaker { to: Phase::Open { .. }, .. } => {
                self.breakers.get_or_create(&labels).inc();
            }
            StateChange::Pool { change: PoolChange::Granted { waited, .. }, .. } => {
                self.pool_wait.observe(waited.as_secs_f64());
            }
            StateChange::Pool { change: PoolChange::Evicted, .. } => {
                self.evictions.inc();
            }
            _ => {}
        }
    }
}

fn word(change: LoginChange) -> &'static str {
    match change {
        LoginChange::Needed => "needed",
        LoginChange::Started => "started",
        LoginChange::Granted => "granted",
        LoginChange::Refreshed => "refreshed",
        LoginChange::Failed => "failed",
        LoginChange::Forgotten => "forgotten",
    }
}
