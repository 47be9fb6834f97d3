//! Calls and decisions that wait until the audit log has them, where nothing may be sent or done unrecorded.
//! Owns: those calls, and how long they wait.      Never: sends one that was not recorded, holds a call that nothing requires to be recorded.
//! In: calls, and word from the audit log.  Out: the same calls to the dispatch, or refused.
//! Tests: `metamcp/tests/audit/`.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use metamcp_types::moment::Moment;
use parking_lot::Mutex;

use super::{CallError, CallErrorKind, CallOutcome, Pending, Responder, Router};
use crate::audit::Audit;
use crate::observe::Observer;
use crate::task;

/// A batch takes microseconds, and the lock of the log is waited for five seconds.
const RECORD_WITHIN: Duration = Duration::from_secs(10);
/// How often calls that wait for longer are looked for.
const LOOK: Duration = Duration::from_secs(1);

/// A decision that is not carried out, because everything has to be recorded and this was not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is not in the audit log: {0}; audit.required is set, so nothing that cannot be recorded is done"
)]
pub struct Unrecorded(String);

/// See the module.
#[derive(Default)]
pub(super) struct Recording {
    audit: OnceLock<Arc<Audit>>,
    waiting: Mutex<HashMap<u64, (Pending, Moment)>>,
}

impl Router {
    /// From now on every call is recorded before it is sent. Must be called inside a runtime.
    pub fn record_first(self: &Arc<Self>, audit: &Arc<Audit>) {
        if self.recording.audit.set(Arc::clone(audit)).is_ok() {
            task::spawn("audit", follow(Arc::downgrade(self), Arc::clone(audit)));
        }
    }

    /// Publishes a decision before it is carried out; an error prevents that.
    pub async fn decide(
        &self,
        publish: impl FnOnce(&Observer) + Send + 'static,
    ) -> Result<(), Unrecorded> {
        let Some(audit) = self.recording.audit.get() else {
            publish(&self.observer);
            return Ok(());
        };
        let recorded = tokio::time::timeout(RECORD_WITHIN, audit.record(publish)).await;
        recorded.unwrap_or_else(|_| Err("its disk does not answer".to_owned())).map_err(Unrecorded)
    }

    /// Passes a call on, where it has to be recorded only after that.
    pub(super) fn admit(&self, pending: Pending, now: Moment) {
        match self.recording.audit.get() {
            Some(audit) => self.record_and_wait(audit, pending, now),
            None => self.enter(pending, now),
        }
    }

    /// Keeps a call until it is recorded.
    fn record_and_wait(&self, audit: &Audit, mut pending: Pending, now: Moment) {
        let ticket = {
            let mut state = self.lock();
            state.next_key += 1;
            state.next_key - 1
        };
        pending.record.id = ticket;
        let mut waiting = self.recording.waiting.lock();
        audit.begin(&pending.record, pending.request.body(), ticket);
        // Its outcome is looked for under this lock.
        waiting.insert(ticket, (pending, now));
    }

    fn recorded(&self, ticket: u64, outcome: Result<(), Arc<str>>) {
        // Cancelled or refused meanwhile: then it is not sent.
        let waiting = self.recording.waiting.lock().remove(&ticket);
        let Some((pending, _)) = waiting else { return };
        let now = self.clock.now();
        match outcome {
            Ok(()) => self.enter(pending, now),
            Err(why) => self.unrecorded(pending, &why, now),
        }
    }

    pub(super) fn unrecorded(&self, pending: Pending, why: &str, now: Moment) {
        let request = &pending.request;
        let error = CallError {
            server: Arc::clone(&request.server_name),
            tool: Arc::clone(&request.tool),
            method: request.method(),
            kind: CallErrorKind::Unrecorded(why.to_owned()),
        };
        self.answer(pending, CallOutcome::Failed(error), now);
    }

    /// Answers calls that matched before they were recorded.
    pub(super) fn cancel_recording(&self, responder: &Arc<dyn Responder>, tag: Option<&[u8]>) {
        if self.recording.audit.get().is_none() {
            return;
        }
        for pending in self.taken(|pending, _| pending.is_of(responder, tag)) {
            self.answer(pending, CallOutcome::Cancelled, self.clock.now());
        }
    }

    /// How many calls of a responder wait.
    pub(super) fn recording_of(&self, is_its: impl Fn(&Pending) -> bool) -> usize {
        let waiting = self.recording.waiting.lock();
        waiting.values().filter(|(pending, _)| is_its(pending)).count()
    }

    fn refuse_overdue(&self) {
        let now = self.clock.now();
        let is_overdue = |_: &Pending, since: Moment| now.since(since) >= RECORD_WITHIN;
        for pending in self.taken(is_overdue) {
            self.unrecorded(pending, "its disk does not answer", now);
        }
    }

    fn taken(&self, which: impl Fn(&Pending, Moment) -> bool) -> Vec<Pending> {
        let mut waiting = self.recording.waiting.lock();
        let taken = waiting.extract_if(|_, (pending, since)| which(pending, *since));
        taken.map(|(_, (pending, _))| pending).collect()
    }
}

/// Hears from the audit log for as long as the router lives.
async fn follow(router: Weak<Router>, audit: Arc<Audit>) {
    loop {
        let outcomes = tokio::time::timeout(LOOK, audit.outcomes()).await;
        let Some(router) = router.upgrade() else { return };
        for (ticket, outcome) in outcomes.unwrap_or_default() {
            router.recorded(ticket, outcome);
        }
        router.refuse_overdue();
    }
}
