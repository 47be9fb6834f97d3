//! The one reading of time in this crate.
//! Owns: nothing.      Never: sleeps.
//! In: nothing.  Out: the present.
//! Tests: through what waits.

use std::time::{Instant, SystemTime};

/// For deadlines.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Wall time, to compare with times of files.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
