//! The audit log: one line for each call and each decision, in private files, each line with the hash of the one before.
//! Owns: what is recorded, the thread that writes it, calls that wait until they are recorded.      Never: makes a call wait that nobody required to be recorded, stores a value unasked.
//! In: events of `observe`; calls before they are sent.  Out: `<home>/audit`; word on which calls may be sent.
//! Tests: `audit/tests.rs`, `metamcp/tests/audit/`; the form of the log in `metamcp-audit`.

mod entries;
mod folder;
mod reading;
mod writer;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_audit::Kind;
use metamcp_config::settings::{AuditSettings, Settings};
use parking_lot::Mutex;

use self::entries::{CallItem, Item, OtherItem, OwnedFact, Redact};
use self::writer::Queue;
use crate::observe::{CallRecord, Event, Interest, Observer, Subject, Subscriber};

pub use folder::{AuditError, AuditFolder};
pub use reading::{Position, RawLine, Reading};
pub use writer::Health;

/// How long the end of the process waits for the last lines.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// The audit log of a gateway.
pub struct Audit {
    queue: Arc<Queue>,
    settings: AuditSettings,
    home: PathBuf,
}

impl Audit {
    /// Begins to write, in a thread of its own, with values redacted by this function. None if it is switched off.
    pub fn start(
        settings: &Settings,
        redact: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Option<Arc<Audit>> {
        let own = settings.audit;
        if !own.is_on {
            return None;
        }
        let queue = Arc::new(Queue::default());
        let folder = AuditFolder::new(&settings.home, &own);
        let redact: Box<Redact> = Box::new(redact);
        let thread = std::thread::Builder::new().name("audit".to_owned()).spawn({
            let queue = Arc::clone(&queue);
            move || {
                // Also after a panic: nobody may wait for a writer that is gone.
                let _end = End(Arc::clone(&queue));
                writer::run(&queue, folder, &*redact, own.has_values);
            }
        });
        if thread.is_err() {
            queue.died();
        }
        let audit = Arc::new(Audit { queue, settings: own, home: settings.home.clone() });
        audit.gateway("started");
        Some(audit)
    }

    /// Whether calls have to wait until they are recorded.
    pub fn is_required(&self) -> bool {
        self.settings.is_required
    }

    /// Records that a call is about to be sent; the outcome is told under this ticket.
    pub fn begin(&self, record: &CallRecord, arguments: Option<&Bytes>, ticket: u64) {
        self.queue.push(|batch, may_hold| {
            let call = CallItem::new(record, (arguments, None), batch, may_hold);
            Item::Call(call.begun(ticket))
        });
    }

    /// Writes at once what is published, past the queue, as a command does: for a decision that is carried out only if
    /// this worked. An error says why it did not.
    pub async fn record(
        &self,
        publish: impl FnOnce(&Observer) + Send + 'static,
    ) -> Result<(), String> {
        let command = Arc::new(CommandAudit::new(&self.home, &self.settings));
        let writing = move || {
            let observer = Observer::default();
            observer.attach(Arc::clone(&command) as Arc<dyn Subscriber>);
            publish(&observer);
            command.error().map_or(Ok(()), |error| Err(error.told()))
        };
        let written = tokio::task::spawn_blocking(writing).await;
        written.unwrap_or_else(|_| Err(AuditError::NoWriter.to_string()))
    }

    /// Waits for outcomes: calls that are recorded and may be sent, and why others must not be.
    pub async fn outcomes(&self) -> Vec<(u64, Result<(), Arc<str>>)> {
        loop {
            let outcomes = self.queue.outcomes();
            if !outcomes.is_empty() {
                return outcomes;
            }
            self.queue.decided.notified().await;
        }
    }

    /// How the log is.
    pub fn health(&self) -> Health {
        self.queue.health.lock().clone()
    }

    /// Writes the last lines, for the end of the process.
    pub async fn finish(self: &Arc<Self>) {
        self.gateway("stopped");
        let queue = Arc::clone(&self.queue);
        // A panic in there ends the wait.
        drop(tokio::task::spawn_blocking(move || queue.flush(LAST_WRITE)).await);
    }

    fn gateway(&self, verdict: &'static str) {
        let what = vec![
            ("version", OwnedFact::Text(env!("CARGO_PKG_VERSION").to_owned())),
            ("required", OwnedFact::Is(self.settings.is_required)),
            ("values", OwnedFact::Is(self.settings.has_values)),
        ];
        let item = OtherItem::new(Kind::Gateway, verdict, what);
        self.queue.push(|_, _| Item::Other(Box::new(item)));
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Audit")
    }
}

/// Tells those who wait that the thread has ended.
struct End(Arc<Queue>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.died();
    }
}

impl Subscriber for Audit {
    fn interest(&self) -> Interest {
        Interest::CALLS.and(Interest::LOGINS).and(Interest::ACTIONS)
    }

    fn on_event(&self, event: &Event<'_>) {
        match event {
            Event::Call(record, payload) => self.queue.push(|batch, may_hold| {
                let payload = (payload.body, payload.result);
                Item::Call(CallItem::new(record, payload, batch, may_hold))
            }),
            Event::Action(action) if matches!(action.subject, Subject::Refusal { .. }) => {
                self.queue.push_refusal(OtherItem::of_action(action));
            }
            other => {
                if let Some(item) = rare(other) {
                    self.queue.push(|_, _| Item::Other(Box::new(item)));
                }
            }
        }
    }
}

fn rare(event: &Event<'_>) -> Option<OtherItem> {
    match event {
        Event::Login { server, change } => Some(OtherItem::of_login(server, *change)),
        Event::Action(action) => Some(OtherItem::of_action(action)),
        _ => None,
    }
}

/// The audit log of a command, which writes each line at once: a command ends soon, and has no calls.
#[derive(Debug)]
pub struct CommandAudit {
    folder: Mutex<AuditFolder>,
    is_required: bool,
    error: Mutex<Option<AuditError>>,
}

impl CommandAudit {
    /// An observer for what a command does, and its audit log unless that is switched off.
    pub fn observer(settings: &Settings) -> (Arc<Observer>, Option<Arc<CommandAudit>>) {
        let observer = Arc::new(Observer::default());
        let audit =
            settings.audit.is_on.then(|| CommandAudit::new(&settings.home, &settings.audit));
        let audit = audit.map(Arc::new);
        if let Some(audit) = &audit {
            observer.attach(Arc::clone(audit) as Arc<dyn Subscriber>);
        }
        (observer, audit)
    }

    fn new(home: &Path, settings: &AuditSettings) -> CommandAudit {
        CommandAudit {
            folder: Mutex::new(AuditFolder::new(home, settings)),
            is_required: settings.is_required,
            error: Mutex::default(),
        }
    }

    /// Whether what cannot be recorded must not be done.
    pub fn is_required(&self) -> bool {
        self.is_required
    }

    /// Why something was not recorded since this was last asked.
    pub fn error(&self) -> Option<AuditError> {
        self.error.lock().take()
    }
}

impl Subscriber for CommandAudit {
    fn interest(&self) -> Interest {
        Interest::LOGINS.and(Interest::ACTIONS)
    }

    fn on_event(&self, event: &Event<'_>) {
        let Some(item) = rare(event) else { return };
        if let Err((_, error)) = self.folder.lock().append(|put| item.put(put)) {
            *self.error.lock() = Some(error);
        }
    }
}
