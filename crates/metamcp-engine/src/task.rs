//! Named tasks. The only place that spawns.
//! Owns: spawning.      Never: waits for what it spawned.
//! In: a name and a future.  Out: the handle to abort it.
//! Tests: through everything that runs.

use std::future::Future;

use tokio::task::JoinHandle;
use tracing::Instrument as _;

/// Spawns a future under its name in the log. A panic ends only that task.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
pub fn spawn<F>(name: &'static str, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // Disabled below debug, and then it costs one comparison for each poll.
    tokio::spawn(future.instrument(tracing::debug_span!(parent: None, "task", name)))
}
