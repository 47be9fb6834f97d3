//! Answers on their way out: a request counts as under way until the last byte of its answer is written.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::stream::Ticket;

/// The tickets of answers that a connection was given and has not written yet. The library lets go of a body as soon as
/// it has all of it in memory, which for a client that reads slowly is long before it has left.
#[derive(Clone, Default)]
pub(super) struct PendingWrites(Arc<Mutex<Vec<Ticket>>>);

impl PendingWrites {
    /// All of an answer was given to the connection.
    pub(super) fn given(&self, ticket: Ticket) {
        self.lock().push(ticket);
    }

    /// All that the connection was given is written.
    pub(super) fn written(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Ticket>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
