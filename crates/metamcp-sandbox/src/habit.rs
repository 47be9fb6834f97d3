//! Whether a word of the other side is looked for or slept for: whichever was sooner of late.
//! Owns: what was learnt of both ways.      Never: waits, reads a clock.
//! In: how long each wait took.  Out: how to wait next.
//! Tests: beside.
//!
//! On a machine with a core to spare, waking a process that sleeps takes longer than most answers, and one that keeps
//! looking has them sooner. On a busy one it keeps the core from whoever is to answer, who then has to be woken on
//! another, and has them later, by several times. Neither can be known but by trying. A worker tries it with answers,
//! the gateway with questions, each for itself: what either saves is its own waking up.

use std::time::Duration;

/// How long a word is looked for before it is slept for.
const LOOK: Duration = Duration::from_micros(50);

/// Answers that take longer than this are not worth looking for: being woken is little beside it.
const SOON: Duration = Duration::from_micros(200);

/// Both for the first word of a script, before which a worker wakes up and reads it. Most scripts that call nothing
/// are over by then.
const FIRST_LOOK: Duration = Duration::from_micros(250);
const FIRST_SOON: Duration = Duration::from_micros(300);

/// The first so many are slept for; the very first ones wait for a server to start and for memory that is touched anew.
const SLEPT: u32 = 8;

/// The next ones are looked for up to this one, and then it is known which is better.
const LOOKED: u32 = 12;

/// After so many waits one is done the other way, to see whether that has become better.
const TRY: u32 = 32;

/// As long as it has not, twice as many pass before the next trial, up to this. A core that is looked on while others
/// want it may be taken away for milliseconds afterwards, as long as a hundred answers.
const SELDOM: u32 = 256;

/// An average moves by one part in so many with each wait.
const WEIGHT: u32 = 4;

/// How long answers took, for each way of waiting.
#[derive(Debug)]
pub(crate) struct Habit {
    look: Duration,
    soon: Duration,
    looking: Duration,
    sleeping: Duration,
    waits: u32,
    /// Which way was the better one at the last wait.
    looked: bool,
    /// The wait that is done the other way, and how many pass until the next such.
    trial: u32,
    pause: u32,
}

impl Default for Habit {
    fn default() -> Habit {
        Habit {
            look: LOOK,
            soon: SOON,
            looking: Duration::ZERO,
            sleeping: Duration::ZERO,
            waits: 0,
            looked: false,
            trial: 0,
            pause: 0,
        }
    }
}

impl Habit {
    /// For the first words of scripts, each of another one.
    pub(crate) fn of_first_words() -> Habit {
        Habit { look: FIRST_LOOK, soon: FIRST_SOON, ..Habit::default() }
    }

    /// How long the next answer is to be looked for; none is slept for at once.
    pub(crate) fn look(&mut self) -> Option<Duration> {
        self.looks().then_some(self.look)
    }

    fn looks(&mut self) -> bool {
        self.waits = self.waits.saturating_add(1);
        if self.waits <= SLEPT || self.sleeping >= self.soon {
            return false;
        }
        let is_better = self.waits <= LOOKED || self.looking < self.sleeping;
        if self.pause == 0 || self.looked != is_better {
            self.looked = is_better;
            self.pause = TRY;
            self.trial = self.waits.saturating_add(TRY);
        }
        let tries = self.waits >= self.trial;
        if tries {
            self.pause = (self.pause * 2).min(SELDOM);
            self.trial = self.waits.saturating_add(self.pause);
        }
        is_better != tries
    }

    /// An answer came.
    pub(crate) fn noted(&mut self, looked: bool, took: Duration) {
        let average = if looked { &mut self.looking } else { &mut self.sleeping };
        // A longer one counts as this, so that a single one says little.
        let took = took.min(self.soon + self.soon / 4);
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
    fn looked_for(looking: u64, sleeping: u64) -> usize {
        let mut habit = Habit::default();
        let mut wait = || {
            let looks = habit.looks();
            habit.noted(looks, Duration::from_micros(if looks { looking } else { sleeping }));
            looks
        };
        (0..1000).filter(|_| wait()).count()
    }

    #[test]
    fn the_sooner_way_is_taken_and_the_other_one_tried() {
        assert!((950..1000).contains(&looked_for(40, 120)));
        assert!((1..15).contains(&looked_for(80, 20)));
    }

    #[test]
    fn slow_answers_are_slept_for() {
        assert_eq!(looked_for(5_000, 5_010), 0);
    }

    #[test]
    fn one_slow_answer_changes_nothing() {
        let micros = Duration::from_micros;
        let mut habit =
            Habit { looking: micros(100), sleeping: micros(45), waits: LOOKED, ..Habit::default() };
        habit.noted(false, Duration::from_secs(1));
        assert!(!habit.looks());
    }

    #[test]
    fn a_script_of_a_hundred_calls_finds_out_in_time() {
        // The first call waits for its server; looking for answers keeps the core from whoever has to give them.
        let (mut habit, mut looked) = (Habit::default(), 0);
        for call in 0..100 {
            let looks = habit.looks();
            looked += usize::from(looks);
            let took = if call == 0 {
                5_000
            } else if looks {
                100
            } else {
                45
            };
            habit.noted(looks, Duration::from_micros(took));
        }
        assert!(looked < 10, "{looked}");
    }

    #[test]
    fn what_has_changed_is_noticed() {
        let mut habit = Habit::default();
        let micros = Duration::from_micros;
        for (looking, sleeping, expected) in [(40, 120, true), (90, 20, false), (40, 120, true)] {
            for _ in 0..2000 {
                let looks = habit.looks();
                habit.noted(looks, micros(if looks { looking } else { sleeping }));
            }
            // Two in a row, since one may be a trial.
            assert!(habit.looks() == expected || habit.looks() == expected);
        }
    }
}
