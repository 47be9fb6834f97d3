//! The one reading of time in the engine.
//! Owns: the start of the process.      Never: decides anything.
//! In: nothing.  Out: `Moment`s for the core, `Instant`s for sleeping.
//! Tests: through everything that waits.

use std::time::{SystemTime, UNIX_EPOCH};

use metamcp_core::moment::Moment;
use tokio::time::Instant;

/// Turns instants into moments since the start.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// Starts counting.
    pub fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    /// The present moment.
    pub fn now(self) -> Moment {
        Moment::after_start(self.start.elapsed())
    }

    /// Milliseconds since the start, for what travels as a number.
    pub fn now_ms(self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// When to wake for a moment. A moment that never comes is a year away, which a timer can hold.
    pub fn instant(self, moment: Moment) -> Instant {
        const YEAR: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 3600);
        self.start + moment.elapsed().min(YEAR)
    }
}

/// Wall time, for what is written to disk and nothing else.
pub fn unix_millis() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
