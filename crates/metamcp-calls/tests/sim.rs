//! Deterministic simulation of the dispatch with injected faults, for many seeds; every invariant is checked after
//! every step.
//!
//! `SIM_SEEDS=100000 cargo test --release -p metamcp-calls --test sim` runs more of them, `SIM_START=` others, and
//! `SIM_SEED=` one of them with its trace; a failure says how to reproduce it. `tests/sim/seeds.txt` holds seeds that
//! failed once. The pool is also checked against a naive model (`SIM_OPERATIONS=`).

#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

#[path = "sim/books.rs"]
mod books;
#[path = "sim/check.rs"]
mod check;
#[path = "sim/effects.rs"]
mod effects;
#[path = "sim/fate.rs"]
mod fate;
#[path = "sim/plan.rs"]
mod plan;
#[path = "sim/pool_model.rs"]
mod pool_model;
#[path = "sim/retold.rs"]
mod retold;
#[path = "sim/rng.rs"]
mod rng;
#[path = "sim/sessions.rs"]
mod sessions;
#[path = "sim/world.rs"]
mod world;

use books::Sights;
use plan::{Cut, Plan};
use world::World;

/// Seeds of an ordinary run.
const SEEDS: u64 = 2000;
/// How many trace lines of a failed run are printed.
const LAST_LINES: usize = 60;

struct Run {
    failure: Option<String>,
    hash: u64,
    steps: u64,
    sights: Sights,
    callers: usize,
    actions: usize,
    story: Vec<String>,
}

fn run(seed: u64, cut: Cut, telling: bool) -> Run {
    let mut world = World::new(Plan::new(seed, cut), telling);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    let failure = match ended {
        Ok(ended) => ended.err(),
        Err(panic) => Some(match panic.downcast::<String>() {
            Ok(words) => format!("panic: {words}"),
            Err(_) => "panic".to_owned(),
        }),
    };
    Run {
        failure,
        hash: world.hash,
        steps: world.steps,
        sights: world.sights,
        callers: world.plan.callers.len(),
        actions: world.plan.actions.len(),
        story: world.trace.unwrap_or_default(),
    }
}

/// Shrinks a failing run by bisection, as long as it still fails.
fn shrink(seed: u64) -> Cut {
    let whole = run(seed, Cut::WHOLE, false);
    let mut cut = Cut { callers: whole.callers, actions: whole.actions };
    loop {
        let before = cut;
        for smaller in [
            Cut { callers: cut.callers / 2, ..cut },
            Cut { callers: cut.callers * 3 / 4, ..cut },
            Cut { callers: cut.callers.saturating_sub(1), ..cut },
            Cut { actions: cut.actions / 2, ..cut },
            Cut { actions: cut.actions.saturating_sub(1), ..cut },
        ] {
            if smaller != cut && run(seed, smaller, false).failure.is_some() {
                cut = smaller;
                break;
            }
        }
        if cut == before {
            return cut;
        }
    }
}

/// The report on a seed that failed.
fn report(seed: u64) -> String {
    let cut = shrink(seed);
    let told = run(seed, cut, true);
    let skipped = told.story.len().saturating_sub(LAST_LINES);
    format!(
        "seed {seed} with {} callers and {} actions:\n{}\n\n{}\nto see all of it: SIM_SEED={seed} \
         SIM_CALLERS={} SIM_ACTIONS={} cargo test -p metamcp-calls --test sim one_seed -- --nocapture\n",
        cut.callers,
        cut.actions,
        told.story[skipped..].join("\n"),
        told.failure.unwrap_or_default(),
        cut.callers,
        cut.actions,
    )
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn many_seeds() {
    let start = number("SIM_START").unwrap_or(0);
    let end = start + number("SIM_SEEDS").unwrap_or(SEEDS);
    let next = AtomicU64::new(start);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Each thread takes the next seed; the results are merged at the end.
    let work = || {
        let (mut failed, mut sights, mut steps) = (Vec::new(), Sights::default(), 0);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return (failed, sights, steps);
            }
            let run = run(seed, Cut::WHOLE, false);
            steps += run.steps;
            sights.join(run.sights);
            if run.failure.is_some() {
                failed.push(seed);
            }
        }
    };
    let (mut failed, mut sights, mut steps) = (Vec::new(), Sights::default(), 0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let (more, seen, taken) = worker.join().expect("a failing run is caught");
            failed.extend(more);
            sights.join(seen);
            steps += taken;
        }
    });
    failed.sort_unstable();
    if let Some(&first) = failed.first() {
        let some = &failed[..failed.len().min(10)];
        panic!("{} of {} seeds failed: {some:?}\n{}", failed.len(), end - start, report(first));
    }
    if end - start >= SEEDS {
        let missed = sights.missed();
        assert!(missed.is_empty(), "none of the runs came by: {missed:?}");
        assert!(steps > (end - start) * 50, "the runs are short: {steps} steps in all");
    }
}

#[test]
fn seeds_that_failed_once() {
    for line in include_str!("sim/seeds.txt").lines() {
        let seed = line.split('#').next().unwrap_or_default().trim();
        if !seed.is_empty() {
            let seed = seed.parse().expect("a seed and a comment");
            assert!(run(seed, Cut::WHOLE, false).failure.is_none(), "{}", report(seed));
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..50 {
        let first = run(seed, Cut::WHOLE, false);
        let second = run(seed, Cut::WHOLE, true);
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(second.story, run(seed, Cut::WHOLE, true).story, "seed {seed}");
    }
}

/// Operations on the pool, over all histories.
const OPERATIONS: u64 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };

#[test]
fn the_pools_books_agree_with_plain_lists() {
    let operations = number("SIM_OPERATIONS").unwrap_or(OPERATIONS);
    for seed in 0..20 {
        pool_model::compare(seed, operations / 20);
    }
}

#[test]
fn one_seed() {
    use std::io::Write;
    let Some(seed) = number("SIM_SEED") else { return };
    let size = |name| number(name).and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let cut = Cut { callers: size("SIM_CALLERS"), actions: size("SIM_ACTIONS") };
    let told = run(seed, cut, true);
    let mut err = std::io::stderr().lock();
    writeln!(err, "{:#?}", Plan::new(seed, cut)).expect("stderr takes it");
    writeln!(err, "{}", told.story.join("\n")).expect("stderr takes it");
    if let Some(failure) = told.failure {
        panic!("{failure}");
    }
}
