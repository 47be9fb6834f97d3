//! The store for async code: one call at a time on a blocking thread, with a timeout.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::store::Store;

/// After this the disk counts as stuck; the call goes on, and later ones skip the store.
const DISK_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct AsyncStore {
    store: Arc<Store>,
    turn: Arc<Semaphore>,
    /// The last call timed out.
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
            return Some(
                "embeddings are cached in memory only: the disk does not respond".to_owned(),
            );
        }
        self.store.note()
    }

    /// The result of `work`, or nothing if the disk is too slow.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Option<T> {
        let permit = self.permit().await?;
        let store = self.store.clone();
        // The permit moves along: while a call hangs, no further thread can get stuck.
        let call = spawn_blocking(move || {
            let done = work(&store);
            drop(permit);
            done
        });
        let done = tokio::time::timeout(DISK_TIMEOUT, call).await;
        self.stuck.store(done.is_err(), Ordering::Relaxed);
        done.ok()?.ok()
    }

    async fn permit(&self) -> Option<OwnedSemaphorePermit> {
        if self.stuck.load(Ordering::Relaxed) {
            return self.turn.clone().try_acquire_owned().ok();
        }
        let turn = tokio::time::timeout(DISK_TIMEOUT, self.turn.clone().acquire_owned()).await;
        turn.ok()?.ok()
    }
}
