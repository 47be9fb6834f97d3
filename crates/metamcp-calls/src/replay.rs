//! Whether a call whose connection broke may be sent again: only where that is safe.
//! Owns: the policy and the budget of replays.      Never: sends anything, extends a deadline.
//! In: how far the call got, what is known of the tool.  Out: replay, or the outcome is unknown.
//! Tests: below; executions are counted against a journal in the engine's crash tests.

use std::time::Duration;

use metamcp_types::moment::Moment;

/// How far a request got before its connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// Fewer bytes than all but the newline were taken: the server cannot have seen a whole message. (All but
    /// the newline counts as sent, since many servers parse the tail at end of file.)
    NotSent,
    /// The server has seen it and said that it did not run it.
    Refused,
    /// The server may have seen it.
    Sent,
}

/// What the operator says about replaying, for a server or a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Replay what the tool's own hints call harmless. A lying hint hurts only the server that lied.
    #[default]
    Annotated,
    /// Replay whatever broke off.
    Always,
    /// Never replay a call that was sent.
    Never,
}

/// Whether sending a call twice is harmless.
pub fn is_harmless(rule: Rule, read_only: bool, idempotent: bool) -> bool {
    match rule {
        Rule::Always => true,
        Rule::Never => false,
        Rule::Annotated => read_only || idempotent,
    }
}

/// Whether a broken call is sent once more. `attempts` counts how often it was sent or tried so far.
pub fn may_replay(delivery: Delivery, harmless: bool, attempts: u32) -> bool {
    match delivery {
        Delivery::NotSent => attempts <= 1,
        Delivery::Sent => attempts <= 1 && harmless,
        // It would hear the same again.
        Delivery::Refused => false,
    }
}

/// Replays may add at most a fifth to the load of a window, or this many where there is little load.
const FLOOR: u32 = 3;
const SHARE: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);

/// Keeps replays from multiplying the load on servers that are failing.
#[derive(Debug, Default)]
pub struct Budget {
    window_start: Moment,
    calls: u32,
    replays: u32,
    last_calls: u32,
    last_replays: u32,
}

impl Budget {
    /// Records a call.
    pub fn called(&mut self, now: Moment) {
        self.roll(now);
        self.calls = self.calls.saturating_add(1);
    }

    /// Takes one replay from the budget, if it has one.
    pub fn take(&mut self, now: Moment) -> bool {
        self.roll(now);
        // Counted over two windows, so that calls at the end of one do not pay for replays in both.
        let calls = self.calls.saturating_add(self.last_calls);
        let may = self.replays < FLOOR || self.replays + self.last_replays < calls / SHARE;
        self.replays += u32::from(may);
        may
    }

    fn roll(&mut self, now: Moment) {
        let elapsed = now.since(self.window_start);
        if elapsed >= WINDOW {
            let recent = elapsed < WINDOW * 2;
            self.last_calls = if recent { self.calls } else { 0 };
            self.last_replays = if recent { self.replays } else { 0 };
            self.calls = 0;
            self.replays = 0;
            self.window_start = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_as_a_table() {
        use Delivery::{NotSent, Refused, Sent};
        for (delivery, harmless, attempts, expected) in [
            (NotSent, false, 1, true),
            (NotSent, false, 2, false),
            (NotSent, true, 1, true),
            (Sent, false, 1, false),
            (Sent, true, 1, true),
            (Sent, true, 2, false),
            (Refused, true, 1, false),
        ] {
            assert_eq!(
                may_replay(delivery, harmless, attempts),
                expected,
                "{delivery:?} {harmless}"
            );
        }
        assert!(is_harmless(Rule::Annotated, true, false));
        assert!(is_harmless(Rule::Annotated, false, true));
        assert!(!is_harmless(Rule::Annotated, false, false));
        assert!(is_harmless(Rule::Always, false, false));
        assert!(!is_harmless(Rule::Never, true, true));
    }

    #[test]
    fn replays_stay_within_a_fifth_or_the_floor() {
        let mut budget = Budget::default();
        assert_eq!((0..10).filter(|_| budget.take(Moment::START)).count(), 3);
        let mut budget = Budget::default();
        for _ in 0..100 {
            budget.called(Moment::START);
        }
        assert_eq!((0..100).filter(|_| budget.take(Moment::START)).count(), 20);
        assert_eq!(
            (0..100).filter(|_| budget.take(Moment::millis(10_000))).count(),
            3,
            "the fifth is used up, whatever the clock says"
        );
        assert_eq!((0..100).filter(|_| budget.take(Moment::millis(60_000))).count(), 3);
        // What was not used in one window is there in the next, for calls that broke off late.
        let mut budget = Budget::default();
        for _ in 0..100 {
            budget.called(Moment::millis(9_999));
        }
        assert_eq!((0..100).filter(|_| budget.take(Moment::millis(10_000))).count(), 20);
    }
}
