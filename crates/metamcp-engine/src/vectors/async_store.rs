//! The store, reached from async code: one call at a time on a thread that may block, and no wait without end.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::store::Store;

/// A disk that takes longer is not one to wait for; its call goes on, and those after it do without.
const PATIENCE: Duration = Duration::from_secs(10);

/// The store and the one who may use it.
#[derive(Debug)]
pub(super) struct AsyncStore {
    store: Arc<Store>,
    turn: Arc<Semaphore>,
    /// The last call did not come back in time.
    stuck: AtomicBool,
}

impl AsyncStore {
    pub(super) fn new(home: &Path) -> AsyncStore {
        AsyncStore {
            store: Arc::new(Store::new(home)),
            turn: Arc::new(Semaphore::new(1)),
            stuck: AtomicBool::new(false),
        }
    }

    pub(super) fn note(&self) -> Option<String> {
        if self.stuck.load(Ordering::Relaxed) {
            return Some("embeddings are kept in memory only: the disk does not answer".to_owned());
        }
        self.store.note()
    }

    /// What `work` says, or nothing if the disk is too slow.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Option<T> {
        let permit = self.permit().await?;
        let store = self.store.clone();
        // The permit goes along: a call that hangs keeps others from hanging on more threads.
        let call = spawn_blocking(move || {
            let done = work(&store);
            drop(permit);
            done
        });
        let done = tokio::time::timeout(PATIENCE, call).await;
        self.stuck.store(done.is_err(), Ordering::Relaxed);
        done.ok()?.ok()
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if self.stuck.load(Ordering::Relaxed) {
            return self.turn.clone().try_acquire_owned().ok();
        }
        let turn = tokio::time::timeout(PATIENCE, self.turn.clone().acquire_owned()).await;
        turn.ok()?.ok()
    }
}
