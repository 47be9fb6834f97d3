//! When an API is asked again after it failed: a small machine that is told the time.
//!
//! ready ── failed ──► pausing ── time ──► one request tries ── answered ──► ready
//!                        ▲                        └──────────── failed ──► a longer pause

use std::time::Duration;

use metamcp_types::moment::Moment;

use super::unavailable::Failure;

/// The pause after the first failure: a restart of a local server fits into it.
pub(super) const FIRST: Duration = Duration::from_secs(30);
/// The longest pause; also the most an API can ask for, so that it cannot switch itself off for a day.
pub(super) const LONGEST: Duration = Duration::from_mins(10);

/// Whether requests go out.
#[derive(Debug, Default)]
pub(super) struct Pause {
    /// Failures since the last answer.
    failures: u32,
    /// The last of them, until an answer comes.
    failure: Option<Failure>,
    until: Moment,
    /// One request is finding out whether the pause may end.
    trying: bool,
    /// Counts failures and answers after failures, so that what was sent before says nothing about after.
    epoch: u64,
}

/// Leave to send one request; to be handed back with its outcome.
#[derive(Debug)]
pub(super) struct Permit {
    epoch: u64,
    trying: bool,
}

/// No leave, why, and for how long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) failure: Failure,
    pub(super) retry_in: Duration,
}

impl Pause {
    /// May a request go out now?
    pub(super) fn admit(&mut self, now: Moment) -> Result<Permit, Refusal> {
        if let Some(refusal) = self.refusal(now) {
            return Err(refusal);
        }
        // After a failure one request finds out, and the others wait for what it finds.
        self.trying = self.failure.is_some();
        Ok(Permit { epoch: self.epoch, trying: self.trying })
    }

    /// Why a request would not be let out now.
    pub(super) fn refusal(&self, now: Moment) -> Option<Refusal> {
        let failure = self.failure.as_ref()?;
        let refused = now < self.until || self.trying;
        refused.then(|| Refusal { failure: failure.clone(), retry_in: self.until.since(now) })
    }

    /// A good answer came.
    pub(super) fn answered(&mut self, permit: &Permit) {
        if permit.epoch == self.epoch && self.failure.is_some() {
            let epoch = self.epoch + 1;
            *self = Pause { epoch, ..Pause::default() };
        }
    }

    /// The request failed; `wish` is how long the API asked to be left alone. Says how long the pause is.
    pub(super) fn failed(
        &mut self,
        permit: &Permit,
        failure: Failure,
        wish: Option<Duration>,
        now: Moment,
    ) -> Duration {
        // Of requests that fail together the first counts; the pause is not doubled for each.
        if permit.epoch == self.epoch {
            let doubled =
                FIRST.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
            let pause = doubled.max(wish.unwrap_or_default()).min(LONGEST);
            // Past this many the pause is the longest anyway, and the shift stays in range.
            self.failures = (self.failures + 1).min(16);
            self.failure = Some(failure);
            self.until = now + pause;
            self.trying = false;
            self.epoch += 1;
        }
        self.until.since(now)
    }

    /// Nobody waited for the outcome, or it says nothing about the API.
    pub(super) fn abandoned(&mut self, permit: &Permit) {
        if permit.epoch == self.epoch && permit.trying {
            self.trying = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::millis(seconds * 1000)
    }

    #[test]
    fn the_pause_doubles_up_to_its_longest_and_an_answer_ends_it() {
        let mut pause = Pause::default();
        let mut now = at(0);
        let mut lengths = Vec::new();
        for _ in 0..40 {
            let permit = pause.admit(now).unwrap();
            let length = pause.failed(&permit, Failure::Closed, None, now);
            assert_eq!(
                pause.admit(now).unwrap_err(),
                Refusal { failure: Failure::Closed, retry_in: length }
            );
            lengths.push(length.as_secs());
            now = now + length;
        }
        assert_eq!(lengths[..6], [30, 60, 120, 240, 480, 600]);
        assert!(lengths[6..].iter().all(|length| *length == 600));
        let permit = pause.admit(now).unwrap();
        pause.answered(&permit);
        let again = pause.admit(now).unwrap();
        assert_eq!(pause.failed(&again, Failure::Closed, None, now), FIRST);
    }

    #[test]
    fn an_api_may_ask_for_more_but_not_for_ever() {
        for (wish, expected) in [(0, 30), (45, 45), (86_400, 600)] {
            let mut pause = Pause::default();
            let permit = pause.admit(at(1)).unwrap();
            let wish = Some(Duration::from_secs(wish));
            let length = pause.failed(&permit, Failure::TooMany, wish, at(1));
            assert_eq!(length.as_secs(), expected);
        }
    }

    #[test]
    fn after_the_pause_one_request_tries_and_the_others_are_refused() {
        let mut pause = Pause::default();
        let permit = pause.admit(at(0)).unwrap();
        pause.failed(&permit, Failure::Closed, None, at(0));
        assert!(pause.admit(at(29)).is_err());
        let trying = pause.admit(at(30)).unwrap();
        assert_eq!(pause.admit(at(31)).unwrap_err().retry_in, Duration::ZERO);
        // The one that tried was cancelled: the next may try.
        pause.abandoned(&trying);
        let trying = pause.admit(at(32)).unwrap();
        pause.answered(&trying);
        assert!(pause.admit(at(32)).is_ok() && pause.admit(at(32)).is_ok());
    }

    #[test]
    fn requests_that_fail_together_count_once() {
        let mut pause = Pause::default();
        let (first, second) = (pause.admit(at(0)).unwrap(), pause.admit(at(0)).unwrap());
        assert_eq!(pause.failed(&first, Failure::Closed, None, at(1)), FIRST);
        assert_eq!(pause.failed(&second, Failure::TooMany, None, at(2)).as_secs(), 29);
        let third = pause.admit(at(31)).unwrap();
        pause.abandoned(&second);
        pause.answered(&first);
        assert!(pause.admit(at(31)).is_err(), "a stale outcome changes nothing");
        pause.answered(&third);
        assert!(pause.admit(at(31)).is_ok());
    }

    proptest! {
        #[test]
        fn whatever_happens_a_refusal_ends(steps in prop::collection::vec((0_u8..5, 0_u64..200), 0..200)) {
            let mut pause = Pause::default();
            let mut now = at(0);
            let mut out = Vec::new();
            for (step, seconds) in steps {
                now = now + Duration::from_secs(seconds);
                match (step, out.pop()) {
                    (0 | 1, kept) => {
                        out.extend(kept);
                        match pause.admit(now) {
                            Ok(permit) => out.push(permit),
                            Err(refusal) => prop_assert!(refusal.retry_in <= LONGEST),
                        }
                    }
                    (2, Some(permit)) => pause.answered(&permit),
                    (3, Some(permit)) => {
                        let wish = Some(Duration::from_secs(seconds * 100));
                        prop_assert!(pause.failed(&permit, Failure::Closed, wish, now) <= LONGEST);
                    }
                    (_, Some(permit)) => pause.abandoned(&permit),
                    (_, None) => {}
                }
            }
            for permit in out {
                pause.abandoned(&permit);
            }
            prop_assert!(pause.admit(now + LONGEST).is_ok());
        }
    }
}
