//! What happened lately: the last calls with their timelines, scripts, events, and how much is going on.
//! Owns: rings of bounded length, statistics of the last minutes.      Never: keeps an argument or a result of a call, waits, renders.
//! In: events.  Out: rows and numbers for `metamcp calls`, `top`, the page.
//! Tests: below, `history/*`, `metamcp/tests/daemon/calls.rs`.
//!
//! Only a daemon keeps a history: a gateway of one client has nobody who could look at it.

mod call;
mod event;
mod rates;
mod script;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use metamcp_types::moment::Moment;
use parking_lot::Mutex;

pub use call::{CallDetail, CallRow, Filter, Outcome, Step};
pub use event::{EventRow, Severity};
pub use rates::{Latencies, Rates, Second};
pub use script::{LogLine, ScriptDetail, ScriptRow};

use crate::clock::{Clock, unix_millis};
use crate::observe::{CallRecord, Event, Interest, Subscriber};

/// Calls that are kept: some seconds of the busiest gateway, days of a person's.
const MAX_CALLS: usize = 4_000;
/// Scripts that are kept, with their code.
const MAX_SCRIPTS: usize = 100;
/// Events that are kept.
const MAX_EVENTS: usize = 1_000;
/// Servers whose totals are kept; the calls of others count in the whole only.
const MAX_SERVERS: usize = 2_000;

/// See the module.
pub struct History {
    clock: Clock,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    calls: VecDeque<Kept>,
    /// How many calls were seen; the number of the newest.
    seen: u64,
    scripts: VecDeque<ScriptDetail>,
    events: VecDeque<EventRow>,
    events_seen: u64,
    rates: Rates,
    servers: HashMap<Arc<str>, ServerTotals>,
    searches: u64,
}

/// A call in the ring.
struct Kept {
    number: u64,
    record: CallRecord,
}

/// What is counted of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerTotals {
    pub calls: u64,
    pub failed: u64,
    pub latencies: Latencies,
    /// When it was last called.
    pub last: Moment,
}

/// Numbers of the whole.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    pub calls: u64,
    pub searches: u64,
    pub events: u64,
}

/// Some calls, and where to go on.
#[derive(Debug, Clone, Default)]
pub struct Page<T> {
    /// Oldest first.
    pub rows: Vec<T>,
    /// The number to ask after next time.
    pub last: u64,
    /// How many that fit were left out because they are gone or too many.
    pub skipped: u64,
}

impl History {
    pub fn new(clock: Clock) -> History {
        History { clock, inner: Mutex::default() }
    }

    /// The time of day of a moment, in milliseconds since 1970.
    pub fn unix_ms(&self, at: Moment) -> u64 {
        let age = self.clock.now().since(at).as_millis();
        unix_millis().saturating_sub(u64::try_from(age).unwrap_or(u64::MAX))
    }

    /// The newest `most` calls with a number above `after` that fit, oldest first.
    pub fn calls(&self, after: u64, most: usize, filter: &Filter) -> Page<CallRow> {
        let inner = self.inner.lock();
        let mut page = Page { last: inner.seen, ..Page::default() };
        let oldest = inner.calls.front().map_or(inner.seen, |one| one.number.saturating_sub(1));
        if after > 0 {
            page.skipped = oldest.saturating_sub(after);
        }
        let newer = inner.calls.iter().rev().take_while(|one| one.number > after);
        for one in newer.filter(|one| filter.fits(&one.record)) {
            if page.rows.len() < most {
                page.rows.push(CallRow::of(
                    one.number,
                    &one.record,
                    self.unix_ms(one.record.ended),
                ));
            } else if after == 0 {
                break;
            } else {
                page.skipped += 1;
            }
        }
        page.rows.reverse();
        page
    }

    /// One call, by its number.
    pub fn call(&self, number: u64) -> Option<CallDetail> {
        let inner = self.inner.lock();
        let first = inner.calls.front()?.number;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        let one = inner.calls.get(at)?;
        Some(CallDetail::of(number, &one.record, self.unix_ms(one.record.ended)))
    }

    /// The newest `most` scripts, oldest first.
    pub fn scripts(&self, most: usize) -> Vec<ScriptRow> {
        let inner = self.inner.lock();
        let left_out = inner.scripts.len().saturating_sub(most);
        inner.scripts.iter().skip(left_out).map(|one| one.script.clone()).collect()
    }

    /// One script, by its number.
    pub fn script(&self, number: u64) -> Option<ScriptDetail> {
        self.inner.lock().scripts.iter().find(|one| one.script.id == number).cloned()
    }

    /// The newest `most` events with a number above `after`, oldest first.
    pub fn events(&self, after: u64, most: usize, server: Option<&str>) -> Page<EventRow> {
        let inner = self.inner.lock();
        let fits = |one: &&EventRow| {
            one.number > after && server.is_none_or(|server| one.server.as_deref() == Some(server))
        };
        let mut rows: Vec<EventRow> =
            inner.events.iter().rev().filter(fits).take(most).cloned().collect();
        rows.reverse();
        Page { rows, last: inner.events_seen, skipped: 0 }
    }

    /// The last `count` seconds before this one, oldest first, and the latencies within them.
    pub fn seconds(&self, count: usize) -> (Vec<Second>, Latencies) {
        self.inner.lock().rates.last(count, self.clock.now())
    }

    pub fn totals(&self) -> Totals {
        let inner = self.inner.lock();
        Totals { calls: inner.seen, searches: inner.searches, events: inner.events_seen }
    }

    pub fn of_server(&self, server: &str) -> ServerTotals {
        self.inner.lock().servers.get(server).cloned().unwrap_or_default()
    }

    fn called(&self, record: &CallRecord) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.seen += 1;
        let took = record.ended.since(record.arrived);
        let failed = Outcome::of(record.verdict).is_failure();
        inner.rates.add(record.ended, took, failed);
        if let Some(totals) = totals_of(&mut inner.servers, &record.server) {
            totals.calls += 1;
            totals.failed += u64::from(failed);
            totals.latencies.add(took);
            totals.last = record.ended;
        }
        if inner.calls.len() >= MAX_CALLS {
            inner.calls.pop_front();
        }
        inner.calls.push_back(Kept { number: inner.seen, record: record.clone() });
    }

    fn ran(&self, script: ScriptDetail) {
        let mut inner = self.inner.lock();
        if inner.scripts.len() >= MAX_SCRIPTS {
            inner.scripts.pop_front();
        }
        inner.scripts.push_back(script);
    }

    fn happened(&self, mut row: EventRow) {
        let mut inner = self.inner.lock();
        inner.events_seen += 1;
        row.number = inner.events_seen;
        if inner.events.len() >= MAX_EVENTS {
            inner.events.pop_front();
        }
        inner.events.push_back(row);
    }
}

fn totals_of<'a>(
    servers: &'a mut HashMap<Arc<str>, ServerTotals>,
    name: &Arc<str>,
) -> Option<&'a mut ServerTotals> {
    if !servers.contains_key(name) {
        if servers.len() >= MAX_SERVERS {
            return None;
        }
        servers.insert(Arc::clone(name), ServerTotals::default());
    }
    servers.get_mut(name)
}

impl Subscriber for History {
    fn interest(&self) -> Interest {
        let happenings = Interest::STATES.and(Interest::LOGINS);
        Interest::CALLS.and(Interest::SEARCHES).and(Interest::SCRIPTS).and(happenings)
    }

    fn on_event(&self, event: &Event<'_>) {
        match event {
            Event::Call(record, _) => self.called(record),
            Event::Script(record, payload) => {
                self.ran(ScriptDetail::of(record, payload, unix_millis()));
            }
            Event::Search { .. } => self.inner.lock().searches += 1,
            event => {
                if let Some(row) = EventRow::of(event, unix_millis()) {
                    self.happened(row);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::observe::{Identity, LoginChange, Origin, Payload, Verdict};

    fn history(calls: u64) -> History {
        let history = History::new(Clock::start());
        for number in 1..=calls {
            let server = if number % 2 == 0 { "even" } else { "odd" };
            let names = (Arc::from(server), Arc::from("tool"));
            let at = Moment::millis(number * 10);
            let identity = Arc::new(Identity::owner());
            let mut record =
                CallRecord::arriving(identity, Origin::McpCall, names, "tools/call", None, at);
            record.ended = at + Duration::from_millis(number % 5);
            record.verdict = if number % 10 == 0 { Verdict::ToolError } else { Verdict::Ok };
            history.on_event(&Event::Call(&record, Payload::default()));
        }
        history
    }

    #[test]
    fn pages_go_on_where_the_last_one_ended_and_say_what_is_missing() {
        let history = history(100);
        let all = Filter::default();
        let first = history.calls(0, 10, &all);
        assert_eq!((first.rows.len(), first.last, first.skipped), (10, 100, 0));
        assert_eq!((first.rows[0].id, first.rows[9].id), (91, 100));
        assert!(history.calls(first.last, 10, &all).rows.is_empty());
        let next = history.calls(80, 10, &all);
        assert_eq!((next.rows[0].id, next.skipped), (91, 10));
        let even = Filter { server: Some("even".to_owned()), ..Filter::default() };
        assert!(history.calls(0, 5, &even).rows.iter().all(|one| one.id % 2 == 0));
        let failed = Filter { only_failed: true, ..Filter::default() };
        assert_eq!(history.calls(0, 50, &failed).rows.len(), 10);
        let slow = Filter { slower_than: Some(Duration::from_millis(4)), ..Filter::default() };
        assert_eq!(history.calls(0, 50, &slow).rows.len(), 20);
    }

    #[test]
    fn the_rings_are_bounded_and_numbers_go_on() {
        let history = history(MAX_CALLS as u64 + 50);
        assert!(history.call(50).is_none() && history.call(0).is_none());
        assert_eq!(history.call(51).unwrap().call.id, 51);
        let last = MAX_CALLS as u64 + 50;
        assert_eq!(history.call(last).unwrap().call.id, last);
        assert!(history.call(last + 1).is_none());
        let page = history.calls(1, 10, &Filter::default());
        assert_eq!(page.skipped, 49 + MAX_CALLS as u64 - 10);
        for _ in 0..MAX_EVENTS + 5 {
            history.on_event(&Event::Login { server: "a", change: LoginChange::Granted });
        }
        let events = history.events(0, 10_000, None);
        assert_eq!((events.rows.len(), events.last), (MAX_EVENTS, MAX_EVENTS as u64 + 5));
        assert!(history.events(0, 10, Some("b")).rows.is_empty());
        assert_eq!(history.of_server("even").calls, last / 2);
        assert_eq!(history.totals().calls, last);
    }
}
