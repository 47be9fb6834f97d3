//! What searches cost a single call: sequential calls without and with concurrent searches, in alternation.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{FIRST, Load, Route, find, id_of, message, percentile, tail};

/// Repetitions of each measurement; the best value counts, since noise only adds.
const TURNS: usize = 5;
/// How long searches alone are measured, after a warm-up of the same length.
const COUNTED: Duration = Duration::from_millis(700);
/// Ids of searches start here, above those of calls.
const FIRST_SEARCH: usize = 5_000_000;
/// Used in rotation, so that nothing is answered from a cache; each matches every synthetic tool.
const QUERIES: [&str; 4] = [
    "files topic under heading",
    "synthetic tool, what to file",
    "file a topic under heading 4",
    "heading for topic 11",
];

/// The result of one run.
#[derive(Debug, Clone, Copy)]
struct Latency {
    p50: f64,
    p99: f64,
    /// Searches answered per second meanwhile.
    searches: f64,
}

/// The whole measurement, on one gateway with all its servers running.
pub(super) fn run(route: &mut Route, load: &Load) -> Result<Value> {
    let echo = json!({ "text": "x".repeat(load.payload) });
    for child in 0..load.children {
        let call = tail(load, "echo", &echo, child);
        route.input.write_all(&message(child + 1, &call))?;
        route.lines(|line| {
            assert!(find(line, b"\"isError\":true").is_none(), "{}", String::from_utf8_lossy(line));
            true
        })?;
    }
    let call = tail(load, "echo", &echo, 0);
    let mut searches = Searches { sent: 0, answered: 0 };
    let best = |best: Option<Latency>, new: Latency| match best {
        Some(best) => Some(Latency {
            p50: best.p50.min(new.p50),
            p99: best.p99.min(new.p99),
            searches: best.searches.max(new.searches),
        }),
        None => Some(new),
    };
    let (mut quiet, mut storm) = (None, None);
    for _ in 0..TURNS {
        quiet = best(quiet, calls(route, &mut searches, load.calls, &call, 0)?);
        storm = best(storm, calls(route, &mut searches, load.calls, &call, load.searches)?);
    }
    let alone = per_second(route, &mut searches, 1)?;
    let together = per_second(route, &mut searches, load.searches)?;
    let (quiet, storm) = (quiet.expect("measured"), storm.expect("measured"));
    Ok(json!({
        "quiet_p50_us": quiet.p50,
        "quiet_p99_us": quiet.p99,
        "storm_p50_us": storm.p50,
        "storm_p99_us": storm.p99,
        "searches_per_s_beside": storm.searches,
        "searches_per_s_alone": alone,
        "searches_per_s_together": together,
    }))
}

/// Searches in flight.
struct Searches {
    sent: usize,
    answered: usize,
}

impl Searches {
    fn in_flight(&self) -> usize {
        self.sent - self.answered
    }

    fn send(&mut self, route: &mut Route) -> Result<()> {
        let query = QUERIES[self.sent % QUERIES.len()];
        let params = json!({ "name": "mcp_discover", "arguments": { "query": query } });
        let rest = format!("\"method\":\"tools/call\",\"params\":{params}}}\n");
        self.sent += 1;
        route.input.write_all(&message(FIRST_SEARCH + self.sent, rest.as_bytes()))
    }

    /// Counts a response if it answers a search.
    fn hear(&mut self, line: &[u8]) -> bool {
        let is_own = id_of(line) >= FIRST_SEARCH;
        if is_own {
            assert!(find(line, b"\"isError\":true").is_none(), "{}", String::from_utf8_lossy(line));
            self.answered += 1;
        }
        is_own
    }

    /// Waits until no search is in flight.
    fn end(&mut self, route: &mut Route) -> Result<()> {
        while self.in_flight() > 0 {
            route.chunk(|line| {
                self.hear(line);
            })?;
        }
        Ok(())
    }
}

/// Sequential calls, with a constant number of searches in flight.
fn calls(
    route: &mut Route,
    searches: &mut Searches,
    calls: usize,
    call: &[u8],
    at_once: usize,
) -> Result<Latency> {
    let mut times = Vec::with_capacity(calls);
    let (began, before) = (Instant::now(), searches.answered);
    while searches.in_flight() < at_once {
        searches.send(route)?;
    }
    while times.len() < calls {
        let sent = Instant::now();
        route.input.write_all(&message(FIRST + times.len(), call))?;
        let mut taken = None;
        while taken.is_none() {
            route.chunk(|line| {
                if !searches.hear(line) {
                    taken = Some(sent.elapsed());
                }
            })?;
            while searches.in_flight() < at_once {
                searches.send(route)?;
            }
        }
        let taken = taken.unwrap_or_default();
        times.push(u64::try_from(taken.as_nanos())?);
    }
    let rate = (searches.answered - before) as f64 / began.elapsed().as_secs_f64();
    searches.end(route)?;
    times.sort_unstable();
    Ok(Latency { p50: percentile(&times, 50), p99: percentile(&times, 99), searches: rate })
}

/// Searches answered per second, with a constant number in flight.
fn per_second(route: &mut Route, searches: &mut Searches, at_once: usize) -> Result<f64> {
    let mut rate = 0.0;
    for _ in 0..2 {
        let (began, before) = (Instant::now(), searches.answered);
        while began.elapsed() < COUNTED {
            while searches.in_flight() < at_once {
                searches.send(route)?;
            }
            route.chunk(|line| {
                searches.hear(line);
            })?;
        }
        rate = (searches.answered - before) as f64 / began.elapsed().as_secs_f64();
    }
    searches.end(route)?;
    ensure!(rate > 0.0, "no search was answered");
    Ok(rate)
}
