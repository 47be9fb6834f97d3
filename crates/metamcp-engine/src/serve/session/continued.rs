//! What a session of a fleet is asked by its listener.

use super::Session;

impl Session {
    /// Processes of its own are at this gateway.
    pub(in crate::serve) fn settle(&self) {
        self.view.seat.settle();
    }

    /// Whether a server request of that number waits for its answer here.
    pub(in crate::serve) fn awaits(&self, number: Option<u64>) -> bool {
        number.is_some_and(|number| self.lock().server_requests.contains_key(&number))
    }
}
