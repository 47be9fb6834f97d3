//! The crate `iana-time-zone` without what it finds out.
//! Owns: the one function that chrono calls.      Never: links a framework, reads the machine.
//! In: nothing.  Out: an error, on which chrono takes UTC.
//! Tests: `cargo xtask cross`, which links the binary for macOS away from a Mac.
//!
//! The official SDK keeps dates by chrono, always in UTC; chrono brings this crate to learn the local zone, which nobody
//! asks it for. On macOS the real one links CoreFoundation, which only a Mac has, and on Windows it brings a second set of
//! bindings to build. Local times that people read are `metamcp/src/local_time.rs`, which reads the zone's own file.

#![forbid(unsafe_code)]

use std::fmt;

/// As chrono calls it.
pub use self::timezone as get_timezone;

/// Why there is no answer.
#[derive(Debug)]
pub enum GetTimezoneError {
    OsError,
}

impl fmt::Display for GetTimezoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of the local time zone is not looked up")
    }
}

impl std::error::Error for GetTimezoneError {}

/// The name of the local time zone, which is not looked up.
pub fn timezone() -> Result<String, GetTimezoneError> {
    Err(GetTimezoneError::OsError)
}
