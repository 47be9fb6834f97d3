//! Stubs for systems without the lockdown: there are no workers, and every run is refused.

use std::future::Future;
use std::sync::Arc;

use super::{Host, Launch, Profile, ScriptJob, ScriptOutcome, WorkerError};

/// A pool that is always empty.
#[derive(Debug, Clone)]
pub struct Workers {}

impl Workers {
    /// Starts nothing.
    pub fn new(_launch: Launch, _profile: Profile, _ready: usize) -> Workers {
        Workers {}
    }

    /// Always refused.
    ///
    /// # Errors
    /// Always, with the name of the system.
    pub async fn take(&self) -> Result<Worker, WorkerError> {
        Err(WorkerError::Platform { system: std::env::consts::OS })
    }
}

/// Uninhabited.
#[derive(Debug)]
pub enum Worker {}

/// Cannot be called: there is no worker.
pub async fn run(
    worker: Worker,
    _job: ScriptJob,
    _host: Arc<dyn Host>,
    _cancel: impl Future<Output = ()> + Send,
) -> ScriptOutcome {
    match worker {}
}
