//! How many secrets were redacted so far.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{Event, Interest, Subscriber};

#[derive(Debug, Default)]
pub struct Redactions(AtomicU64);

impl Redactions {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Subscriber for Redactions {
    fn interest(&self) -> Interest {
        Interest::REDACTIONS
    }

    fn on_event(&self, event: &Event<'_>) {
        if let Event::Redaction { removed } = event {
            let so_far = self.0.fetch_add(*removed, Ordering::Relaxed) + removed;
            tracing::info!("redacted {removed} secrets in a response, {so_far} so far");
        }
    }
}
