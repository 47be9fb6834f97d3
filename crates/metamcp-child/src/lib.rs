//! Child processes that cannot outlive the gateway or hurt it.
//! Owns: starting, containing, signalling and reaping them.      Never: reads their messages, retries, decides when.
//! In: a [`Spec`].  Out: a [`Child`]: two pipes, and a [`Handle`] on everything that descends from it.
//! Tests: `tests/it/`, with real processes.
//!
//! The gateway only ever starts its own binary, as a shim; the shim starts the server. A socket between
//! the two carries orders, and a pipe that one sleeping thread of the gateway holds is the lifeline: when
//! either closes, for whatever reason, the shim kills all its descendants. `shim.rs` explains the
//! stages, `supervisor.rs` the gateway's side, `supervisor/lifeline.rs` why there is a pipe as well.
//!
//! The guarantee on Linux: nothing of a server survives the gateway's death, however it came, nor the
//! death of its shim, whatever sessions and orphans it made. With namespaces the kernel ensures that.
//! Without them a server of the same user can still kill the gateway *and* its shim, or stop
//! its shim over and over while somebody kills the gateway; then what it started may live on.
//! On macOS see `family.rs`, on Windows `windows.rs` (job objects).

mod clock;
pub mod environment;
pub mod memory;
pub mod process_sandbox;
pub mod resolve;
mod spec;
mod stderr_tail;

#[cfg(unix)]
mod activity;
#[cfg(all(unix, any(test, not(target_os = "linux"))))]
mod family;
#[cfg(unix)]
mod message;
#[cfg(unix)]
mod processes;
#[cfg(any(windows, test))]
mod program;
#[cfg(unix)]
mod shim;
#[cfg(unix)]
mod spawner;
#[cfg(unix)]
mod supervisor;
#[cfg(windows)]
mod windows;

pub use metamcp_types::escalation::Escalation;
pub use metamcp_types::sandbox_policy::SandboxPolicy;
#[cfg(unix)]
pub use shim::shim_main;
#[cfg(unix)]
pub use spawner::{Child, ExitWatch, Handle, Parts, Spawner, Stdin, Stdout};
pub use spec::{Containment, Exit, ShimCommand, SpawnError, Spec, Tier};
pub use stderr_tail::StderrTail;
#[cfg(windows)]
pub use windows::{
    Child, ExitWatch, Handle, Parts, Spawner, Stdin, Stdout, shim_main, start_outliving,
};

/// Starts a program that is no server and is to go on when this process ends, such as a browser. On Windows that has to be
/// asked for, because this process takes along what it started.
#[cfg(not(windows))]
pub fn start_outliving(
    command: &mut std::process::Command,
) -> std::io::Result<std::process::Child> {
    command.spawn()
}
