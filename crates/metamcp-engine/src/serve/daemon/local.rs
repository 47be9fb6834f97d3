//! The daemon's end of a local connection: a socket, or a pipe on Windows.
//! Owns: its first line, its halves, whether its client still reads, how a client is sent away.      Never: reads what a line says.
//! In: a listener of the runtime folder.  Out: connections.
//! Tests: `metamcp/tests/daemon/`.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::{Listener, Stream};
#[cfg(unix)]
pub(super) use unix::{Watch, first_line};
#[cfg(windows)]
pub use windows::{Listener, Stream};
#[cfg(windows)]
pub(super) use windows::{Watch, first_line};
