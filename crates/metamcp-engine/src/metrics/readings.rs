//! What is the case at the moment: instances, queues, breakers, the pool, memory.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use metamcp_calls::lifecycle::State;
use metamcp_child::memory;
use parking_lot::Mutex;

use super::names::{MAX_SERVERS, OTHER, label};
use crate::clock;
use crate::observe::TokenTotals;
use crate::router::Router;

/// What was read is shown for so long: reading the memory of hundreds of processes must not become a load by itself.
const FRESH: Duration = Duration::from_secs(1);

/// Everything that is read and not counted.
#[derive(Debug, Clone, Default)]
pub struct Readings {
    pub servers: Vec<ServerReading>,
    pub pool: PoolReading,
    pub calls_open: usize,
    pub sessions: usize,
    /// Of the gateway itself.
    pub memory: Option<u64>,
    pub uptime: Duration,
    pub tokens: TokenTotals,
    /// Where it is one gateway of many.
    pub fleet: Option<FleetReading>,
}

/// This gateway's part in a fleet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FleetReading {
    /// Servers of the fleet that it owns.
    pub servers: usize,
    /// Calls of other gateways that run here, and its own that run elsewhere or wait.
    pub calls_for_others: usize,
    pub calls_elsewhere: usize,
    pub is_ready: bool,
}

/// One server, all its instances together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerReading {
    pub name: Arc<str>,
    pub in_flight: u32,
    pub queued: usize,
    /// How many instances are in each state.
    pub states: Vec<(&'static str, u32)>,
    /// How many breakers are in each phase.
    pub phases: Vec<(&'static str, u32)>,
    pub memory: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolReading {
    pub size: usize,
    pub used: usize,
    pub waiting: usize,
}

/// Where readings come from.
pub(super) struct Source {
    router: Weak<Router>,
    started: Instant,
    last: Mutex<Option<(Instant, Readings)>>,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Source")
    }
}

impl Source {
    pub(super) fn new(router: &Arc<Router>) -> Source {
        let (router, started) = (Arc::downgrade(router), clock::std_instant());
        Source { router, started, last: Mutex::default() }
    }

    /// The present, or what it was a moment ago. One at a time; the others wait for it.
    pub(super) fn read(&self) -> Readings {
        let mut last = self.last.lock();
        let now = clock::std_instant();
        if let Some((at, readings)) = last.as_ref()
            && now.duration_since(*at) < FRESH
        {
            return readings.clone();
        }
        let readings = self.router.upgrade().map(|router| self.now(&router)).unwrap_or_default();
        *last = Some((now, readings.clone()));
        readings
    }

    fn now(&self, router: &Router) -> Readings {
        let mut servers: Vec<ServerReading> = Vec::new();
        let mut places: HashMap<Arc<str>, usize> = HashMap::new();
        for (id, instance) in router.instances() {
            let Some(view) = router.view(id) else { continue };
            let name = &instance.definition.name;
            let is_known = places.contains_key(&**name);
            let name = if is_known || places.len() < MAX_SERVERS { &**name } else { OTHER };
            let at = *places.entry(Arc::from(name)).or_insert_with(|| {
                servers.push(ServerReading { name: label(name), ..ServerReading::default() });
                servers.len() - 1
            });
            let server = &mut servers[at];
            server.queued += view.queued;
            add(&mut server.phases, view.breaker.word());
            if let Some(state) = view.state {
                add(&mut server.states, state.word());
                if let State::Active { in_flight } = state {
                    server.in_flight += in_flight.get();
                }
            }
            if let Some(bytes) = router.pid_of(id).and_then(memory::of_tree) {
                *server.memory.get_or_insert(0) += bytes;
            }
        }
        let (pool, calls_open) = router.pool_and_calls();
        Readings {
            servers,
            pool,
            calls_open,
            sessions: router.attached().len(),
            memory: memory::of_process(std::process::id()),
            uptime: self.started.elapsed(),
            tokens: router.observer.totals().snapshot(),
            #[cfg(feature = "fleet")]
            fleet: router.fleet_counts().map(|counts| FleetReading {
                servers: counts.servers,
                calls_for_others: counts.calls_for_others,
                calls_elsewhere: counts.calls_elsewhere,
                is_ready: counts.is_ready,
            }),
            #[cfg(not(feature = "fleet"))]
            fleet: None,
        }
    }
}

impl Router {
    fn pool_and_calls(&self) -> (PoolReading, usize) {
        let state = self.lock();
        let pool = state.dispatch.pool();
        let reading = PoolReading {
            size: pool.limits().size,
            used: pool.count(),
            waiting: pool.waiting().count(),
        };
        (reading, state.dispatch.open_calls())
    }
}

fn add(counts: &mut Vec<(&'static str, u32)>, word: &'static str) {
    match counts.iter_mut().find(|(known, _)| *known == word) {
        Some((_, count)) => *count += 1,
        None => counts.push((word, 1)),
    }
}
