//! Where there is no lockdown there is no worker: everything is refused.

use std::future::Future;
use std::sync::Arc;

use super::{Host, Launch, Profile, ScriptJob, ScriptOutcome, WorkerError};

/// Workers kept ready; on this system there are none.
#[derive(Debug, Clone)]
pub struct Workers {}

impl Workers {
    /// Nothing is started, now or later.
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

/// There is none.
#[derive(Debug)]
pub enum Worker {}

/// Cannot be reached: nobody has a worker.
pub async fn run(
    worker: Worker,
    _job: ScriptJob,
    _host: Arc<dyn Host>,
    _cancel: impl Future<Output = ()> + Send,
) -> ScriptOutcome {
    match worker {}
}
