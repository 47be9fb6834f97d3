//! Deterministic simulation of a fleet, for many seeds: up to twelve nodes with clocks of different speed, a bus that
//! loses, repeats and delays, cuts, pauses in the middle of an act, crashes, drains. The invariants are checked when
//! somebody acts, four times a second, and at the end.
//!
//! `FLEET_SEEDS=100000 cargo test -p metamcp-fleet --test sim` runs more of them, `FLEET_START=` others, `FLEET_SEED=`
//! one of them with its story; a failure says how to reproduce it.

#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

#[path = "sim/acting.rs"]
mod acting;
#[path = "sim/books.rs"]
mod books;
#[path = "sim/bus.rs"]
mod bus;
#[path = "sim/faults.rs"]
mod faults;
#[path = "sim/plan.rs"]
mod plan;
#[path = "sim/processes.rs"]
mod processes;
// The same generator as the simulation of calls has.
#[path = "../../metamcp-calls/tests/sim/rng.rs"]
mod rng;
#[path = "sim/world.rs"]
mod world;

use books::Sights;
use world::World;

/// Seeds of an ordinary run.
const SEEDS: u64 = 2000;
/// How many lines of the story of a failed run are printed.
const LAST_LINES: usize = 80;

struct Outcome {
    failure: Option<String>,
    sights: Sights,
    events: u64,
    story: Vec<String>,
}

fn run(seed: u64, telling: bool) -> Outcome {
    let mut world = World::new(seed, telling);
    let failure = match catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(ended) => ended.err(),
        Err(panic) => Some(match panic.downcast::<String>() {
            Ok(words) => format!("panic: {words}"),
            Err(other) => format!("panic: {:?}", other.downcast_ref::<&str>()),
        }),
    };
    let mut sights = world.books.sights;
    sights.calm += u64::from(world.plan.is_calm);
    let story = world.story.unwrap_or_default();
    Outcome { failure, sights, events: world.handled, story }
}

fn report(seed: u64) -> String {
    let told = run(seed, true);
    let skipped = told.story.len().saturating_sub(LAST_LINES);
    format!(
        "seed {seed}:\n{}\n\n{}\nto see all of it: FLEET_SEED={seed} cargo test -p metamcp-fleet --test sim one_seed \
         -- --nocapture\n",
        told.story[skipped..].join("\n"),
        told.failure.unwrap_or_default(),
    )
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn many_seeds() {
    let start = number("FLEET_START").unwrap_or(0);
    let end = start + number("FLEET_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(start);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Each thread takes the next seed; the results are merged at the end.
    let work = || {
        let (mut failed, mut sights, mut events) = (Vec::new(), Sights::default(), 0);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end || failed.len() > 20 {
                return (failed, sights, events);
            }
            let outcome = run(seed, false);
            events += outcome.events;
            sights.join(outcome.sights);
            if let Some(failure) = outcome.failure {
                failed.push((seed, failure));
            }
        }
    };
    let (mut failed, mut sights, mut events) = (Vec::new(), Sights::default(), 0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let (more, seen, handled) = worker.join().expect("a failing run is caught");
            failed.extend(more);
            sights.join(seen);
            events += handled;
        }
    });
    failed.sort_unstable();
    if let Some((first, _)) = failed.first() {
        let some = &failed[..failed.len().min(10)];
        panic!("{} seeds failed: {some:#?}\n{}", failed.len(), report(*first));
    }
    if end - start >= SEEDS {
        let missed = sights.missed();
        assert!(missed.is_empty(), "none of the runs came by: {missed:?} ({sights:?})");
        assert!(events > (end - start) * 300, "the runs are short: {events} events in all");
    }
    if number("FLEET_SIGHTS").is_some() {
        use std::io::Write;
        writeln!(std::io::stderr(), "{events} events, {sights:#?}").expect("stderr takes it");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..20 {
        assert_eq!(run(seed, true).story, run(seed, true).story, "seed {seed}");
    }
}

#[test]
fn one_seed() {
    use std::io::Write;
    let Some(seed) = number("FLEET_SEED") else { return };
    let told = run(seed, true);
    let mut err = std::io::stderr().lock();
    writeln!(err, "{:#?}", plan::Plan::new(seed)).expect("stderr takes it");
    writeln!(err, "{}", told.story.join("\n")).expect("stderr takes it");
    if let Some(failure) = told.failure {
        panic!("{failure}");
    }
}
