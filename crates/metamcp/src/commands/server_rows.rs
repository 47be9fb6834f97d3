//! Servers as a table shows them: state, traffic and use of each, in the order of what a person should look at first.
//! Owns: how an overview becomes rows, orders, filters; rates between two overviews.      Never: renders, reads a clock.
//! In: overviews and names of disabled servers.  Out: rows.
//! Tests: below.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use metamcp_engine::serve::daemon_status::{InstanceStatus, Overview, ServerCalls, ServerStatus};
use metamcp_types::text;

/// Longest name in a row.
const MAX_NAME: usize = 100;

/// A server in a table.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ServerRow {
    pub(crate) name: String,
    pub(crate) state: RowState,
    /// Processes or connections.
    pub(crate) instances: usize,
    pub(crate) is_open: bool,
    pub(crate) is_probing: bool,
    pub(crate) in_flight: u32,
    pub(crate) queued: u32,
    pub(crate) calls: u64,
    pub(crate) per_second: f64,
    pub(crate) failed: u64,
    pub(crate) p50_us: Option<u64>,
    pub(crate) p99_us: Option<u64>,
    pub(crate) memory: Option<u64>,
    /// Of its oldest process.
    pub(crate) age_ms: Option<u64>,
    pub(crate) failure: Option<String>,
}

/// The state of a server: of its busiest instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowState {
    Failed,
    Starting,
    Active,
    Idle,
    #[default]
    Stopped,
    Disabled,
}

impl RowState {
    pub(crate) fn word(self) -> &'static str {
        match self {
            RowState::Failed => "failed",
            RowState::Starting => "starting",
            RowState::Active => "active",
            RowState::Idle => "idle",
            RowState::Stopped => "stopped",
            RowState::Disabled => "disabled",
        }
    }
}

impl ServerRow {
    fn of(server: &ServerStatus, calls: Option<&ServerCalls>) -> ServerRow {
        let running = server.instances.iter().filter(|one| is_running(one));
        let sum = |ask: fn(&InstanceStatus) -> Option<u64>| {
            let known: Vec<u64> = server.instances.iter().filter_map(ask).collect();
            (!known.is_empty()).then(|| known.iter().sum())
        };
        let calls = calls.cloned().unwrap_or_default();
        ServerRow {
            name: text::clean_line(&server.name, MAX_NAME).into_owned(),
            state: state(server),
            instances: running.count(),
            is_open: server.breaker == "open",
            is_probing: server.breaker == "probing",
            in_flight: server.instances.iter().map(|one| one.in_flight).sum(),
            queued: server.queued,
            calls: calls.calls,
            per_second: 0.0,
            failed: calls.failed,
            p50_us: calls.p50_us,
            p99_us: calls.p99_us,
            memory: sum(|one| one.memory_bytes),
            age_ms: server.instances.iter().filter_map(|one| one.age_ms).max(),
            failure: server.failure.as_deref().map(|why| text::clean_line(why, 500).into_owned()),
        }
    }

    /// What has to be looked at comes first, then what is busy.
    fn importance(&self) -> (bool, bool, bool, RowState, Reverse<u32>) {
        let is_broken = self.is_open || self.is_probing;
        let busy = self.in_flight.saturating_add(self.queued);
        (!is_broken, self.state != RowState::Failed, busy == 0, self.state, Reverse(busy))
    }
}

pub(crate) fn is_running(one: &InstanceStatus) -> bool {
    matches!(&*one.state, "active" | "idle" | "connecting")
}

fn state(server: &ServerStatus) -> RowState {
    let has = |word: &str| server.instances.iter().any(|one| one.state == word);
    if has("active") {
        RowState::Active
    } else if has("connecting") {
        RowState::Starting
    } else if has("idle") {
        RowState::Idle
    } else if has("failed") {
        RowState::Failed
    } else {
        RowState::Stopped
    }
}

/// Orders the servers of a status as the rows would be.
pub(crate) fn by_importance(servers: &mut [ServerStatus]) {
    servers.sort_by_cached_key(|server| {
        let row = ServerRow::of(server, None);
        (row.importance(), row.name)
    });
}

/// By what a table is sorted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Sort {
    #[default]
    Importance,
    Name,
    Calls,
    Rate,
    Failed,
    P99,
    Memory,
}

impl Sort {
    pub(crate) fn next(self) -> Sort {
        match self {
            Sort::Importance => Sort::Name,
            Sort::Name => Sort::Calls,
            Sort::Calls => Sort::Rate,
            Sort::Rate => Sort::Failed,
            Sort::Failed => Sort::P99,
            Sort::P99 => Sort::Memory,
            Sort::Memory => Sort::Importance,
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Sort::Importance => "importance",
            Sort::Name => "name",
            Sort::Calls => "calls",
            Sort::Rate => "calls per second",
            Sort::Failed => "failures",
            Sort::P99 => "p99",
            Sort::Memory => "memory",
        }
    }
}

/// Sorts rows; equal ones by name, so that a row stays where it is.
pub(crate) fn sort(rows: &mut [ServerRow], by: Sort) {
    rows.sort_by(|one, other| {
        let order = match by {
            Sort::Importance => one.importance().cmp(&other.importance()),
            Sort::Name => std::cmp::Ordering::Equal,
            Sort::Calls => other.calls.cmp(&one.calls),
            Sort::Rate => other.per_second.total_cmp(&one.per_second),
            Sort::Failed => other.failed.cmp(&one.failed),
            Sort::P99 => other.p99_us.cmp(&one.p99_us),
            Sort::Memory => other.memory.cmp(&one.memory),
        };
        order.then_with(|| one.name.cmp(&other.name))
    });
}

/// What one overview after the other says of rates.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trend {
    /// The daemon, its age, and the calls of each server then.
    before: Option<(u32, u64, HashMap<String, u64>)>,
    rates: HashMap<String, f64>,
}

impl Trend {
    /// Takes the next overview in.
    pub(crate) fn add(&mut self, overview: &Overview) {
        let (pid, now) = (overview.status.pid, overview.status.uptime_ms);
        let calls: HashMap<String, u64> =
            overview.server_calls.iter().map(|one| (one.name.clone(), one.calls)).collect();
        let elapsed = match &self.before {
            Some((before, at, _)) if *before == pid => now.saturating_sub(*at),
            _ => 0,
        };
        // Two that follow at once would say too little.
        if elapsed > 0 && elapsed < 200 {
            return;
        }
        self.rates.clear();
        if let Some((_, _, before)) = self.before.as_ref().filter(|_| elapsed > 0) {
            for (name, count) in &calls {
                let new = count.saturating_sub(before.get(name).copied().unwrap_or(0));
                self.rates.insert(name.clone(), new as f64 * 1000.0 / elapsed as f64);
            }
        }
        self.before = Some((pid, now, calls));
    }

    /// The servers of an overview, and those that are disabled and therefore not in it.
    pub(crate) fn rows(&self, overview: &Overview, disabled: &BTreeSet<String>) -> Vec<ServerRow> {
        let calls: HashMap<&str, &ServerCalls> =
            overview.server_calls.iter().map(|one| (&*one.name, one)).collect();
        let mut rows: Vec<ServerRow> = overview
            .status
            .servers
            .iter()
            .map(|server| {
                let row = ServerRow::of(server, calls.get(&*server.name).copied());
                let per_second = self.rates.get(&server.name).copied().unwrap_or(0.0);
                ServerRow { per_second, ..row }
            })
            .collect();
        let known: BTreeSet<String> = rows.iter().map(|row| row.name.clone()).collect();
        rows.extend(disabled.iter().filter(|name| !known.contains(*name)).map(|name| ServerRow {
            name: name.clone(),
            state: RowState::Disabled,
            ..ServerRow::default()
        }));
        rows
    }
}

/// Whether a name has all the words of a filter in it.
pub(crate) fn fits(name: &str, filter: &str) -> bool {
    let name = name.to_lowercase();
    filter.to_lowercase().split_whitespace().all(|word| name.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(name: &str, state: &str, in_flight: u32, breaker: &str) -> ServerStatus {
        let instance = InstanceStatus {
            state: state.to_owned(),
            in_flight,
            memory_bytes: Some(5),
            ..InstanceStatus::default()
        };
        ServerStatus {
            name: name.to_owned(),
            breaker: breaker.to_owned(),
            instances: if state.is_empty() { Vec::new() } else { vec![instance] },
            ..ServerStatus::default()
        }
    }

    fn overview(uptime_ms: u64, calls: u64) -> Overview {
        let mut overview = Overview::default();
        overview.status.pid = 7;
        overview.status.uptime_ms = uptime_ms;
        overview.status.servers = vec![
            server("calm", "idle", 0, "normal"),
            server("away", "", 0, "normal"),
            server("busy", "active", 3, "normal"),
            server("open", "", 0, "open"),
            server("dead", "failed", 0, "normal"),
        ];
        overview.server_calls =
            vec![ServerCalls { name: "busy".to_owned(), calls, ..ServerCalls::default() }];
        overview
    }

    fn names(rows: &[ServerRow]) -> Vec<&str> {
        rows.iter().map(|row| &*row.name).collect()
    }

    #[test]
    fn what_needs_somebody_is_on_top_and_what_is_off_at_the_end() {
        let disabled = ["off".to_owned(), "busy".to_owned()].into();
        let mut rows = Trend::default().rows(&overview(0, 3), &disabled);
        sort(&mut rows, Sort::Importance);
        assert_eq!(names(&rows), ["open", "dead", "busy", "calm", "away", "off"]);
        sort(&mut rows, Sort::Name);
        assert_eq!(names(&rows), ["away", "busy", "calm", "dead", "off", "open"]);
        sort(&mut rows, Sort::Calls);
        assert_eq!(names(&rows)[0], "busy");
        let mut servers = overview(0, 3).status.servers;
        by_importance(&mut servers);
        assert_eq!(servers[0].name, "open");
    }

    #[test]
    fn every_order_comes_around() {
        let mut by = Sort::default();
        let mut seen = Vec::new();
        while !seen.contains(&by.word()) {
            seen.push(by.word());
            by = by.next();
        }
        assert_eq!((seen.len(), by), (7, Sort::Importance));
    }

    #[test]
    fn rates_are_between_two_overviews_of_one_daemon() {
        let mut trend = Trend::default();
        let rate = |trend: &Trend, overview: &Overview| {
            let rows = trend.rows(overview, &BTreeSet::new());
            rows.iter().find(|row| row.name == "busy").unwrap().per_second
        };
        let first = overview(1_000, 10);
        trend.add(&first);
        assert_eq!(rate(&trend, &first), 0.0);
        let second = overview(3_000, 30);
        trend.add(&second);
        assert_eq!(rate(&trend, &second), 10.0);
        // Asked again at once, the rate stays.
        trend.add(&overview(3_050, 30));
        assert_eq!(rate(&trend, &second), 10.0);
        let mut other = overview(9_000, 900);
        other.status.pid = 8;
        trend.add(&other);
        assert_eq!(rate(&trend, &other), 0.0);
    }

    #[test]
    fn a_filter_is_words_in_any_order() {
        assert!(fits("GitHub-issues", "issues git") && fits("x", ""));
        assert!(!fits("github", "git lab"));
    }
}
