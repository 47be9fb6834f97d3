//! Responses that hyper has buffered and not written: a request counts as in flight until the last byte of its response
//! is written. The fast path does not need it, since it holds a response until it is written.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::stream::Ticket;

/// The in-flight tickets of responses a connection has taken and not written yet. hyper drops a body as soon as all of it
/// is in its buffer, which for a slow reader is long before it is sent.
#[derive(Clone, Default)]
pub(super) struct PendingWrites(Arc<Mutex<Vec<Ticket>>>);

impl PendingWrites {
    /// hyper has buffered all of a response.
    pub(super) fn given(&self, ticket: Ticket) {
        self.lock().push(ticket);
    }

    /// The connection was flushed.
    pub(super) fn written(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Ticket>> {
        self.0.lock()
    }
}
