//! Whether a word of the other side is looked for or slept for: whichever was sooner of late.
//! Owns: what was learnt of both ways.      Never: waits, reads a clock.
//! In: how long each wait took.  Out: how to wait next.
//! Tests: beside.
//!
//! On a machine with a core to spare, waking a process that sleeps takes longer than most answers, and one that keeps
//! looking has them sooner. On a busy one it keeps the core from whoever is to answer, who then has to be woken on
//! another, and has them later, by several times. Neither can be known but by trying. A worker tries it with answers,
//! the gateway with questions, each for itself: what either saves is its own waking up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The one switch: whether anybody in this process busy-polls. The gateway and a worker are two processes.
static ENABLED: AtomicBool = AtomicBool::new(true);

/// Turns busy-polling of this process on or off, for runs and workers that begin later.
pub fn set_enabled(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// How long a word is looked for before it is slept for.
const SPIN: Duration = Duration::from_micros(50);

/// Answers that take longer than this are not worth looking for: being woken is little beside it.
const WORTH_SPINNING: Duration = Duration::from_micros(200);

/// Both for the first word of a script, before which a worker wakes up and reads it. Most scripts that call nothing
/// are over by then.
const FIRST_SPIN: Duration = Duration::from_micros(250);
const FIRST_WORTH_SPINNING: Duration = Duration::from_micros(300);

/// The first so many are slept for; the very first ones wait for a server to start and for memory that is touched anew.
const ALWAYS_SLEEP: u32 = 8;

/// The next ones are looked for up to this one, and then it is known which is better.
const ALWAYS_SPIN: u32 = 12;

/// After so many waits one is done the other way, to see whether that has become better.
const TRIAL_INTERVAL: u32 = 32;

/// As long as it has not, twice as many pass before the next trial, up to this. A core that is looked on while others
/// want it may be taken away for milliseconds afterwards, as long as a hundred answers.
const MAX_TRIAL_INTERVAL: u32 = 256;

/// An average moves by one part in so many with each wait.
const WEIGHT: u32 = 4;

/// How long answers took, for each way of waiting.
#[derive(Debug)]
pub(crate) struct AdaptiveSpin {
    is_enabled: bool,
    spin_time: Duration,
    worth_spinning: Duration,
    spinning: Duration,
    sleeping: Duration,
    waits: u32,
    /// Which way was the better one at the last wait.
    spun: bool,
    /// The wait that is done the other way, and how many pass until the next such.
    trial: u32,
    trial_interval: u32,
}

impl Default for AdaptiveSpin {
    fn default() -> AdaptiveSpin {
        AdaptiveSpin {
            is_enabled: ENABLED.load(Ordering::Relaxed),
            spin_time: SPIN,
            worth_spinning: WORTH_SPINNING,
            spinning: Duration::ZERO,
            sleeping: Duration::ZERO,
            waits: 0,
            spun: false,
            trial: 0,
            trial_interval: 0,
        }
    }
}

impl AdaptiveSpin {
    /// For the first words of scripts, each of another one.
    pub(crate) fn for_first_messages() -> AdaptiveSpin {
        AdaptiveSpin {
            spin_time: FIRST_SPIN,
            worth_spinning: FIRST_WORTH_SPINNING,
            ..AdaptiveSpin::default()
        }
    }

    /// How long the next answer is to be looked for; none is slept for at once.
    pub(crate) fn spin_time(&mut self) -> Option<Duration> {
        (self.is_enabled && self.should_spin()).then_some(self.spin_time)
    }

    fn should_spin(&mut self) -> bool {
        self.waits = self.waits.saturating_add(1);
        if self.waits <= ALWAYS_SLEEP || self.sleeping >= self.worth_spinning {
            return false;
        }
        let is_better = self.waits <= ALWAYS_SPIN || self.spinning < self.sleeping;
        if self.trial_interval == 0 || self.spun != is_better {
            self.spun = is_better;
            self.trial_interval = TRIAL_INTERVAL;
            self.trial = self.waits.saturating_add(TRIAL_INTERVAL);
        }
        let tries = self.waits >= self.trial;
        if tries {
            self.trial_interval = (self.trial_interval * 2).min(MAX_TRIAL_INTERVAL);
            self.trial = self.waits.saturating_add(self.trial_interval);
        }
        is_better != tries
    }

    /// An answer came.
    pub(crate) fn record(&mut self, spun: bool, took: Duration) {
        let average = if spun { &mut self.spinning } else { &mut self.sleeping };
        // A longer one counts as this, so that a single one says little.
        let took = took.min(self.worth_spinning + self.worth_spinning / 4);
        *average = match average.is_zero() {
            true => took,
            false => (*average * (WEIGHT - 1) + took) / WEIGHT,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of a thousand answers are looked for, if they come after so many microseconds.
    fn spun_for(spinning: u64, sleeping: u64) -> usize {
        let mut adaptive_spin = AdaptiveSpin::default();
        let mut wait = || {
            let should_spin = adaptive_spin.should_spin();
            adaptive_spin.record(
                should_spin,
                Duration::from_micros(if should_spin { spinning } else { sleeping }),
            );
            should_spin
        };
        (0..1000).filter(|_| wait()).count()
    }

    #[test]
    fn the_sooner_way_is_taken_and_the_other_one_tried() {
        assert!((950..1000).contains(&spun_for(40, 120)));
        assert!((1..15).contains(&spun_for(80, 20)));
    }

    #[test]
    fn slow_answers_are_slept_for() {
        assert_eq!(spun_for(5_000, 5_010), 0);
    }

    #[test]
    fn one_slow_answer_changes_nothing() {
        let micros = Duration::from_micros;
        let mut adaptive_spin = AdaptiveSpin {
            spinning: micros(100),
            sleeping: micros(45),
            waits: ALWAYS_SPIN,
            ..AdaptiveSpin::default()
        };
        adaptive_spin.record(false, Duration::from_secs(1));
        assert!(!adaptive_spin.should_spin());
    }

    #[test]
    fn a_script_of_a_hundred_calls_finds_out_in_time() {
        // The first call waits for its server; looking for answers keeps the core from whoever has to give them.
        let (mut adaptive_spin, mut spun) = (AdaptiveSpin::default(), 0);
        for call in 0..100 {
            let should_spin = adaptive_spin.should_spin();
            spun += usize::from(should_spin);
            let took = if call == 0 {
                5_000
            } else if should_spin {
                100
            } else {
                45
            };
            adaptive_spin.record(should_spin, Duration::from_micros(took));
        }
        assert!(spun < 10, "{spun}");
    }

    #[test]
    fn what_has_changed_is_noticed() {
        let mut adaptive_spin = AdaptiveSpin::default();
        let micros = Duration::from_micros;
        for (spinning, sleeping, expected) in [(40, 120, true), (90, 20, false), (40, 120, true)] {
            for _ in 0..2000 {
                let should_spin = adaptive_spin.should_spin();
                adaptive_spin
                    .record(should_spin, micros(if should_spin { spinning } else { sleeping }));
            }
            // Two in a row, since one may be a trial.
            assert!(
                adaptive_spin.should_spin() == expected || adaptive_spin.should_spin() == expected
            );
        }
    }
}
