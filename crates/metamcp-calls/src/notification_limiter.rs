//! Rate limiter for a server's notifications: a token bucket with a generous burst.
//! Owns: the bucket of one connection.      Never: sees the notification.
//! In: `admit(now)`.  Out: whether this one is forwarded.
//! Tests: below.

use metamcp_types::moment::Moment;

/// Notifications passed on at once: honest bursts of progress are far smaller.
const BURST: u64 = 1000;
/// Notifications per second once the burst is used up.
const PER_SECOND: u64 = 20;

#[derive(Debug)]
pub struct NotificationLimiter {
    left: u64,
    filled: Moment,
}

impl Default for NotificationLimiter {
    fn default() -> Self {
        NotificationLimiter { left: BURST, filled: Moment::START }
    }
}

impl NotificationLimiter {
    /// Whether one more is passed on now.
    pub fn admit(&mut self, now: Moment) -> bool {
        let earned = u64::try_from(now.since(self.filled).as_millis()).unwrap_or(u64::MAX)
            / (1000 / PER_SECOND);
        if earned > 0 {
            self.left = self.left.saturating_add(earned).min(BURST);
            self.filled = now;
        }
        let admitted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_twenty_a_second() {
        let mut notification_limiter = NotificationLimiter::default();
        assert_eq!(
            (0..1_000_000).filter(|_| notification_limiter.admit(Moment::START)).count(),
            1000
        );
        let second =
            (1..=1000).filter(|&ms| notification_limiter.admit(Moment::millis(ms))).count();
        assert_eq!(second, 20);
        assert!((0..200).all(|_| notification_limiter.admit(Moment::millis(3_600_000))));
    }
}
