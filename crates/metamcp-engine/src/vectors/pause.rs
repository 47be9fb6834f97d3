//! Backoff after an API failed (a circuit breaker): a state machine without a clock of its own.
//!
//! ready ── failed ──► backing off ── time ──► one trial request ── answered ──► ready
//!                          ▲                          └──────────── failed ──► a longer backoff

use std::time::Duration;

use metamcp_types::moment::Moment;

use super::unavailable::Failure;

/// The backoff after the first failure: a restart of a local server fits into it.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_secs(30);
/// The longest backoff; also the limit of `Retry-After`, so that an API cannot disable itself for a day.
pub(super) const MAX_BACKOFF: Duration = Duration::from_mins(10);

#[derive(Debug, Default)]
pub(super) struct Pause {
    /// Failures since the last success.
    failures: u32,
    /// The last of them, until a success.
    failure: Option<Failure>,
    until: Moment,
    /// A trial request is in flight.
    trying: bool,
    /// Counts failures and recoveries, so that a request sent before one says nothing about after.
    epoch: u64,
}

/// Permission for one request; to be returned with its outcome.
#[derive(Debug)]
pub(super) struct Permit {
    epoch: u64,
    trying: bool,
}

/// No permission: why, and for how long.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) failure: Failure,
    pub(super) retry_in: Duration,
}

impl Pause {
    /// Asks for permission to send a request.
    pub(super) fn admit(&mut self, now: Moment) -> Result<Permit, Refusal> {
        if let Some(refusal) = self.refusal(now) {
            return Err(refusal);
        }
        // After a failure there is one trial request, and the others wait for its outcome.
        self.trying = self.failure.is_some();
        Ok(Permit { epoch: self.epoch, trying: self.trying })
    }

    /// Why a request would be refused now.
    pub(super) fn refusal(&self, now: Moment) -> Option<Refusal> {
        let failure = self.failure.as_ref()?;
        let refused = now < self.until || self.trying;
        refused.then(|| Refusal { failure: failure.clone(), retry_in: self.until.since(now) })
    }

    pub(super) fn answered(&mut self, permit: &Permit) {
        if permit.epoch == self.epoch && self.failure.is_some() {
            let epoch = self.epoch + 1;
            *self = Pause { epoch, ..Pause::default() };
        }
    }

    /// The request failed; `retry_after` comes from the API. Returns the backoff.
    pub(super) fn failed(
        &mut self,
        permit: &Permit,
        failure: Failure,
        retry_after: Option<Duration>,
        now: Moment,
    ) -> Duration {
        // Of concurrent failures only the first counts; the backoff is not doubled for each.
        if permit.epoch == self.epoch {
            let doubled =
                FIRST_BACKOFF.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
            let pause = doubled.max(retry_after.unwrap_or_default()).min(MAX_BACKOFF);
            // Past this many the backoff is at its maximum anyway, and the shift stays in range.
            self.failures = (self.failures + 1).min(16);
            self.failure = Some(failure);
            self.until = now + pause;
            self.trying = false;
            self.epoch += 1;
        }
        self.until.since(now)
    }

    /// The request was cancelled, or its outcome says nothing about the API.
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
    fn the_backoff_doubles_up_to_its_maximum_and_a_success_ends_it() {
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
        assert_eq!(pause.failed(&again, Failure::Closed, None, now), FIRST_BACKOFF);
    }

    #[test]
    fn retry_after_is_honoured_up_to_the_maximum() {
        for (retry_after, expected) in [(0, 30), (45, 45), (86_400, 600)] {
            let mut pause = Pause::default();
            let permit = pause.admit(at(1)).unwrap();
            let retry_after = Some(Duration::from_secs(retry_after));
            let length = pause.failed(&permit, Failure::TooMany, retry_after, at(1));
            assert_eq!(length.as_secs(), expected);
        }
    }

    #[test]
    fn after_the_backoff_one_trial_request_is_sent_and_others_are_refused() {
        let mut pause = Pause::default();
        let permit = pause.admit(at(0)).unwrap();
        pause.failed(&permit, Failure::Closed, None, at(0));
        assert!(pause.admit(at(29)).is_err());
        let trying = pause.admit(at(30)).unwrap();
        assert_eq!(pause.admit(at(31)).unwrap_err().retry_in, Duration::ZERO);
        // The trial request was cancelled: the next one is a trial.
        pause.abandoned(&trying);
        let trying = pause.admit(at(32)).unwrap();
        pause.answered(&trying);
        assert!(pause.admit(at(32)).is_ok() && pause.admit(at(32)).is_ok());
    }

    #[test]
    fn concurrent_failures_count_once() {
        let mut pause = Pause::default();
        let (first, second) = (pause.admit(at(0)).unwrap(), pause.admit(at(0)).unwrap());
        assert_eq!(pause.failed(&first, Failure::Closed, None, at(1)), FIRST_BACKOFF);
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
        fn every_refusal_ends_eventually(steps in prop::collection::vec((0_u8..5, 0_u64..200), 0..200)) {
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
                            Err(refusal) => prop_assert!(refusal.retry_in <= MAX_BACKOFF),
                        }
                    }
                    (2, Some(permit)) => pause.answered(&permit),
                    (3, Some(permit)) => {
                        let retry_after = Some(Duration::from_secs(seconds * 100));
                        prop_assert!(pause.failed(&permit, Failure::Closed, retry_after, now) <= MAX_BACKOFF);
                    }
                    (_, Some(permit)) => pause.abandoned(&permit),
                    (_, None) => {}
                }
            }
            for permit in out {
                pause.abandoned(&permit);
            }
            prop_assert!(pause.admit(now + MAX_BACKOFF).is_ok());
        }
    }
}
