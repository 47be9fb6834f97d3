//! How long things take in a fleet, and which of these lengths must fit each other.
//! Owns: the lengths.      Never: measures one.
//! In: the time to live of a lease.  Out: what follows from it.
//! Tests: below.

use std::time::Duration;

/// How often a node says that it lives.
pub const HEARTBEAT_EVERY: Duration = Duration::from_millis(400);
/// Silent for so long, a node counts as dead to those who wait for its answers. With a heartbeat that had just left, the
/// look at the clock and a slow clock it stays below the two seconds that are promised.
pub const SILENCE: Duration = Duration::from_millis(1500);
/// How often `tick` is expected while anything is under way.
pub const TICK: Duration = Duration::from_millis(100);
/// Without an acceptance or acknowledgement for so long, the same message is sent again.
pub const RESEND: Duration = Duration::from_millis(300);
/// How often a caller asks for a call that has been accepted: the owner may have dropped it while it could not hear us.
pub const POLL: Duration = Duration::from_secs(1);
/// How long an answer may be behind the news that its owner's lease is gone: both travel, on different subjects.
pub const STRAGGLER: Duration = Duration::from_millis(400);
/// Without an answer from the bus for so long, an operation is given up; its answer is recognized all the same.
pub const BUS_ANSWER: Duration = Duration::from_secs(2);
/// How long a node that was asked to own an instance has, until the next one is asked.
pub const ASK: Duration = Duration::from_secs(1);
/// How long a refused call waits before the next placement.
pub const RETRY: Duration = Duration::from_millis(200);

/// The lengths that follow from the time to live.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// As the bus counts it, from each write of a key.
    pub ttl: Duration,
    /// How much sooner than the bus a holder stops, in thousandths: it covers clocks of different speed on both sides,
    /// and bus servers whose clocks differ.
    pub margin: u32,
    /// How long a call may wait for somebody to run it.
    pub placing: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            ttl: Duration::from_secs(10),
            // Two clocks 5 % apart from true time each take 10 of the 20 per cent, bus servers a second apart the rest.
            margin: 200,
            placing: Duration::from_secs(30),
        }
    }
}

impl Timing {
    /// How long a lease holds, from the moment its last renewal was sent.
    pub fn holds(&self) -> Duration {
        self.ttl * 1000_u32.saturating_sub(self.margin) / 1000
    }

    /// After so long without news of it, any lease is over on any clock.
    pub fn surely_over(&self) -> Duration {
        self.ttl * (1000 + self.margin) / 1000
    }

    /// Two renewals may be lost before a lease is.
    pub fn renew_every(&self) -> Duration {
        self.holds() / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_lost_renewals_do_not_cost_a_lease() {
        let timing = Timing::default();
        assert!(timing.renew_every() * 3 + BUS_ANSWER <= timing.holds());
    }

    #[test]
    fn a_holder_stops_before_the_bus_does_at_the_limit_of_the_clocks() {
        let timing = Timing::default();
        // The holder's clock is slow, the bus's fast, and another bus server, a second ahead, takes over.
        let held = timing.holds().as_secs_f64() / 0.95;
        let kept = (timing.ttl.as_secs_f64() - 1.0) / 1.05;
        assert!(held < kept, "{held} {kept}");
    }
}
