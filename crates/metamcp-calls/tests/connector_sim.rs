//! Clients, their connectors and daemons that die, hand over and refuse at random moments, by seed.
//!
//! Checked throughout: every request has one answer, nothing with an effect runs twice, the client sees its own handshake
//! and nothing of ours, an answer reaches only the question it answers, a new daemon knows what the session knew, and
//! everything ends. `SIM_SEEDS=`, `SIM_START=` and `SIM_SEED=` as in `tests/sim.rs`.

#![expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]

use std::panic::{AssertUnwindSafe, catch_unwind};

#[path = "connector_sim/client.rs"]
mod client;
#[path = "connector_sim/daemon.rs"]
mod daemon;
#[expect(dead_code, reason = "the other simulation needs more of it")]
#[path = "sim/rng.rs"]
mod rng;
#[path = "connector_sim/world.rs"]
mod world;

use world::{Sights, World};

/// Seeds of an ordinary run.
const SEEDS: u64 = 2_000;
/// How many trace lines of a failed run are printed.
const LAST_LINES: usize = 80;

fn run(seed: u64) -> (World, Option<String>) {
    let mut world = World::new(seed);
    let ended = catch_unwind(AssertUnwindSafe(|| world.run()));
    let failure = match ended {
        Ok(ended) => ended.err(),
        Err(panic) => Some(match panic.downcast::<String>() {
            Ok(words) => format!("panic: {words}"),
            Err(panic) => format!("panic: {:?}", panic.downcast_ref::<&str>()),
        }),
    };
    (world, failure)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn many_seeds() {
    let start = number("SIM_START").unwrap_or(0);
    let count = number("SIM_SEEDS").unwrap_or(SEEDS);
    let mut sights = Sights::default();
    for seed in start..start + count {
        let (world, failure) = run(seed);
        if let Some(failure) = failure {
            let skipped = world.story.len().saturating_sub(LAST_LINES);
            panic!(
                "seed {seed}: {failure}\n{}\nto see all of it: SIM_SEED={seed} cargo test -p metamcp-calls --test \
                 connector_sim one_seed -- --nocapture",
                world.story[skipped..].join("\n")
            );
        }
        sights.join(&world.sights);
    }
    if count >= SEEDS {
        let missed = sights.missed();
        assert!(missed.is_empty(), "none of the runs came by: {missed:?}");
    }
}

#[test]
fn one_seed() {
    use std::io::Write;
    let Some(seed) = number("SIM_SEED") else { return };
    let (world, failure) = run(seed);
    let mut err = std::io::stderr().lock();
    writeln!(err, "{}", world.story.join("\n")).expect("stderr takes it");
    if let Some(failure) = failure {
        panic!("{failure}");
    }
}
