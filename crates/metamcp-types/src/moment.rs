//! Time since start. Pure code gets the time as an argument.
//! Owns: `Moment` and its arithmetic.      Never: reads a clock.
//! In: what the engine's clock says.  Out: comparisons and differences.
//! Tests: below; every machine's tests write moments as literals.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A point in time, counted from the start of the process on a clock that never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment {
    micros: u64,
}

impl Moment {
    /// The start of the process.
    pub const START: Moment = Moment { micros: 0 };
    /// Later than every other moment: a deadline that never comes.
    pub const NEVER: Moment = Moment { micros: u64::MAX };

    /// The moment `elapsed` after the start.
    pub fn after_start(elapsed: Duration) -> Moment {
        Moment { micros: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX) }
    }

    /// The moment `millis` milliseconds after the start.
    pub const fn millis(millis: u64) -> Moment {
        Moment { micros: millis.saturating_mul(1000) }
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.micros.saturating_sub(earlier.micros))
    }

    /// Time since the start.
    pub fn elapsed(self) -> Duration {
        Duration::from_micros(self.micros)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, length: Duration) -> Moment {
        let micros = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
        Moment { micros: self.micros.saturating_add(micros) }
    }
}

impl fmt::Debug for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Moment::NEVER { write!(f, "never") } else { write!(f, "{:?}", self.elapsed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Moment::NEVER + Duration::from_secs(1), Moment::NEVER);
        assert_eq!(Moment::START.since(Moment::millis(5)), Duration::ZERO);
        assert_eq!(Moment::millis(7).since(Moment::millis(5)), Duration::from_millis(2));
        assert_eq!(Moment::after_start(Duration::MAX), Moment::NEVER);
    }
}
