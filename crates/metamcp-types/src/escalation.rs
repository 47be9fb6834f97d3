//! Shutdown escalation of one child: close its input, then SIGTERM, then SIGKILL; console events and a job on Windows.
//! Owns: the steps and their times.      Never: sends a signal, reads a clock.
//! In: time elapsed since the stop began.  Out: the step due now, or how long until the next.
//! Tests: below.

use std::time::Duration;

/// One thing done to a child that has to end, in order of rudeness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Close the child's stdin: the only request every platform knows.
    CloseStdin,
    /// SIGTERM to the leader alone, so that it may end its own children in order.
    TerminateLeader,
    /// SIGTERM to all, then SIGCONT, because a stopped process cannot act on SIGTERM.
    TerminateAndResumeAll,
    /// SIGINT to all: what some runtimes clean up on when they ignore SIGTERM.
    InterruptAll,
    /// SIGTERM to all once more, for those that were busy the first time.
    TerminateAll,
    /// SIGKILL to everything in the container, until nothing is left.
    KillAll,
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Take this step, then ask again.
    Take(Step),
    /// Nothing is due for this long.
    Wait(Duration),
    /// Every step was taken; what remains is waiting for the kernel.
    Finished,
}

/// The rungs of a polite stop: waits of 50, 100, 200, 400 and 800 ms between them.
const GRACEFUL: [(u64, Step); 6] = [
    (0, Step::CloseStdin),
    (50, Step::TerminateLeader),
    (150, Step::TerminateAndResumeAll),
    (350, Step::InterruptAll),
    (750, Step::TerminateAll),
    (1550, Step::KillAll),
];

/// The rungs of a stop that is over within a second: nobody waits for what the child does.
const BRISK: [(u64, Step); 3] =
    [(0, Step::CloseStdin), (200, Step::TerminateAndResumeAll), (600, Step::KillAll)];

/// The single rung of a stop that waits for nobody.
const IMMEDIATE: [(u64, Step); 1] = [(0, Step::KillAll)];

/// A position on the ladder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Escalation {
    schedule: &'static [(u64, Step)],
    taken: usize,
}

impl Escalation {
    /// Ask first: stdin, then signals of growing weight, SIGKILL after 1,550 ms.
    pub fn graceful() -> Escalation {
        Escalation { schedule: &GRACEFUL, taken: 0 }
    }

    /// Ask briefly: SIGKILL after 600 ms.
    pub fn brisk() -> Escalation {
        Escalation { schedule: &BRISK, taken: 0 }
    }

    /// SIGKILL everything now.
    pub fn immediate() -> Escalation {
        Escalation { schedule: &IMMEDIATE, taken: 0 }
    }

    /// A ladder of one's own: milliseconds since the beginning, in order.
    pub fn of(schedule: &'static [(u64, Step)]) -> Escalation {
        Escalation { schedule, taken: 0 }
    }

    /// What is due when `elapsed` has passed since the stop began.
    ///
    /// A late caller gets every missed step in order, one per call, so a machine that slept through
    /// the ladder still sends each signal.
    pub fn next(&mut self, elapsed: Duration) -> Next {
        let Some(&(at, step)) = self.schedule.get(self.taken) else { return Next::Finished };
        match Duration::from_millis(at).checked_sub(elapsed) {
            Some(left) if !left.is_zero() => Next::Wait(left),
            _ => {
                self.taken += 1;
                Next::Take(step)
            }
        }
    }

    /// When the last step is due, counted from the beginning.
    pub fn length(&self) -> Duration {
        self.schedule.last().map_or(Duration::ZERO, |&(at, _)| Duration::from_millis(at))
    }
}

#[cfg(test)]
mod tests {
    use super::{Escalation, Next, Step};
    use std::time::Duration;

    fn walk(
        mut escalation: Escalation,
        instants: impl IntoIterator<Item = u64>,
    ) -> Vec<(u64, Step)> {
        let mut taken = Vec::new();
        for at in instants {
            while let Next::Take(step) = escalation.next(Duration::from_millis(at)) {
                taken.push((at, step));
            }
        }
        taken
    }

    #[test]
    fn each_step_is_taken_once_at_its_instant() {
        let expected = [
            (0, Step::CloseStdin),
            (50, Step::TerminateLeader),
            (150, Step::TerminateAndResumeAll),
            (350, Step::InterruptAll),
            (750, Step::TerminateAll),
            (1550, Step::KillAll),
        ];
        assert_eq!(walk(Escalation::graceful(), 0..3000), expected);
        assert_eq!(Escalation::graceful().length(), Duration::from_millis(1550));
    }

    #[test]
    fn following_the_waits_reaches_the_end_without_polling() {
        let (mut escalation, mut now, mut calls) = (Escalation::graceful(), Duration::ZERO, 0);
        let mut steps = Vec::new();
        loop {
            calls += 1;
            match escalation.next(now) {
                Next::Take(step) => steps.push(step),
                Next::Wait(left) => now += left,
                Next::Finished => break,
            }
        }
        assert_eq!((steps.len(), steps.last(), calls), (6, Some(&Step::KillAll), 12));
        assert_eq!(now, Duration::from_millis(1550));
    }

    #[test]
    fn a_late_caller_skips_nothing() {
        assert_eq!(walk(Escalation::graceful(), [10_000]).len(), 6);
        let mut escalation = Escalation::graceful();
        assert_eq!(escalation.next(Duration::from_millis(1)), Next::Take(Step::CloseStdin));
        assert_eq!(
            escalation.next(Duration::from_millis(1)),
            Next::Wait(Duration::from_millis(49))
        );
    }

    #[test]
    fn a_brisk_stop_asks_once_and_is_over_within_a_second() {
        let expected =
            [(0, Step::CloseStdin), (200, Step::TerminateAndResumeAll), (600, Step::KillAll)];
        assert_eq!(walk(Escalation::brisk(), 0..1000), expected);
    }

    #[test]
    fn at_once_kills_and_ends() {
        assert_eq!(walk(Escalation::immediate(), [0]), [(0, Step::KillAll)]);
        let mut escalation = Escalation::immediate();
        escalation.next(Duration::ZERO);
        assert_eq!(escalation.next(Duration::ZERO), Next::Finished);
    }
}
