//! What the relay reads and writes: the client, the daemon, signals; and how it waits for any of them.
//! Owns: reads and writes that never wait, the one wait.      Never: knows a line.
//! In: what is to be waited for.  Out: what can be done now.
//! Tests: `tests/daemon/`.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::time::Duration;

#[cfg(unix)]
pub(super) use unix::{Ends, Link, Signals, Stop, link, no_more};
#[cfg(windows)]
pub(super) use windows::{Ends, Link, Signals, Stop, link, no_more, pair};

/// What the relay waits for besides signals.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wanted {
    pub(super) client_in: bool,
    pub(super) client_out: bool,
    pub(super) daemon_in: bool,
    pub(super) daemon_out: bool,
    pub(super) at_most: Option<Duration>,
}

/// What can be done now.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seen {
    pub(super) client_in: bool,
    pub(super) client_out: bool,
    /// The client does not read any more.
    pub(super) client_is_gone: bool,
    pub(super) daemon_in: bool,
    /// The daemon wants this client to come anew: it answers what it has, and reads no more.
    pub(super) is_sent_away: bool,
    pub(super) signal: bool,
}
