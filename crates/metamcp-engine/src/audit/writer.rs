//! The thread that writes the audit log, and the queue in front of it.
//! Owns: what waits to be written, when a batch is written, what becomes of it when it cannot be.      Never: makes the thread that relays calls wait.
//! In: items.  Out: lines; word to those who wait for theirs; how the log is.
//! Tests: `audit/tests.rs`, `metamcp/tests/audit/`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use metamcp_audit::{Head, Kind};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::Notify;

use super::entries::{Batch, Item, OtherItem, OwnedFact, Redact};
use super::folder::{AuditError, AuditFolder};
use crate::clock;

/// Most items that wait. While the log cannot be written, later ones are counted and dropped.
const MAX_ITEMS: usize = 65_536;
/// Bytes that may be held until they are digested; of what comes beyond that, only the length is recorded.
const MAX_HELD: usize = 32 * 1024 * 1024;
/// How long a batch gathers after its first item, where nobody waits for it: one wake-up for many calls. This much is not
/// on disk when the gateway is killed.
const GATHER: Duration = Duration::from_millis(5);
/// A batch that is full is not waited for.
const FULL: usize = 4_096;
/// How often the log is tried again while it cannot be written.
const RETRY: Duration = Duration::from_secs(1);

/// Who was not let in is recorded this often within this time; what comes beyond that is counted, so that nobody can push
/// older lines out of the log by knocking.
const REFUSALS: u64 = 60;
const REFUSALS_WITHIN: Duration = Duration::from_mins(1);

/// What waits, and who.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Wakes the writer.
    wake: Condvar,
    /// Wakes who waits for the end of a batch.
    written: Condvar,
    outcomes: Mutex<Vec<Outcome>>,
    /// Wakes who wants to know the outcomes.
    pub(super) decided: Notify,
    pub(super) health: Mutex<Health>,
}

/// Whether a call may be sent: its ticket, and why not.
pub(super) type Outcome = (u64, Result<(), Arc<str>>);

/// How the log is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Health {
    /// Why it cannot be written now.
    pub failing: Option<Arc<str>>,
    /// Events that were never recorded, since the start.
    pub lost: u64,
    /// Lines written since the start.
    pub lines: u64,
    /// The last line.
    pub head: Option<Head>,
}

#[derive(Debug, Default)]
struct State {
    batch: Batch,
    held: usize,
    /// Events that found no place, and are not told of in the log yet.
    lost: u64,
    /// The writer sleeps until it is woken.
    is_idle: bool,
    /// Somebody waits for the items.
    is_urgent: bool,
    is_closing: bool,
    is_busy: bool,
    /// No thread writes.
    is_dead: bool,
    refusals: Refusals,
}

#[derive(Debug, Default)]
struct Refusals {
    since: Option<Instant>,
    count: u64,
    /// Those that were only counted.
    more: u64,
}

impl Refusals {
    /// Whether one more is recorded.
    fn takes(&mut self, now: Instant) -> bool {
        let is_over = self.since.is_none_or(|since| now - since >= REFUSALS_WITHIN);
        if is_over && self.more == 0 {
            *self = Refusals { since: Some(now), ..Refusals::default() };
        }
        self.count += 1;
        let takes = self.count <= REFUSALS;
        self.more += u64::from(!takes);
        takes
    }

    /// What was only counted, once its time is over.
    fn summary(&mut self, now: Instant, at_once: bool) -> Option<Item> {
        let since = self.since?;
        if self.more == 0 || (!at_once && now - since < REFUSALS_WITHIN) {
            return None;
        }
        let what = vec![("more", OwnedFact::Number(self.more))];
        *self = Refusals::default();
        Some(Item::Other(Box::new(OtherItem::new(Kind::Refusal, "refused", what))))
    }

    fn summary_in(&self, now: Instant) -> Option<Duration> {
        let since = self.since.filter(|_| self.more > 0)?;
        Some(REFUSALS_WITHIN.saturating_sub(now - since))
    }
}

impl Queue {
    /// Adds what `item` makes; it is told whether bytes may be held, and where short ones are copied to.
    pub(super) fn push(&self, item: impl FnOnce(&mut Batch, bool) -> Item) {
        let mut state = self.state.lock();
        if state.batch.items.len() >= MAX_ITEMS {
            state.lost += 1;
            drop(state);
            self.health.lock().lost += 1;
            return;
        }
        let may_hold = state.held < MAX_HELD;
        let item = item(&mut state.batch, may_hold);
        state.held += item.held();
        let ticket = item.ticket();
        if let Some(ticket) = ticket.filter(|_| state.is_dead) {
            drop(state);
            return self.tell([(ticket, Err(Arc::from(AuditError::NoWriter.to_string())))]);
        }
        state.batch.items.push(item);
        // The writer that gathers is left in peace: its wait is short.
        let is_new_urgency = ticket.is_some() && !std::mem::replace(&mut state.is_urgent, true);
        let is_full = state.batch.items.len() == FULL;
        let wakes = std::mem::take(&mut state.is_idle) || is_new_urgency || is_full;
        drop(state);
        if wakes {
            self.wake.notify_one();
        }
    }

    /// The same for somebody who was not let in.
    pub(super) fn push_refusal(&self, item: OtherItem) {
        if self.state.lock().refusals.takes(clock::std_instant()) {
            self.push(|_, _| Item::Other(Box::new(item)));
        } else {
            // It waits for the end of the minute.
            self.wake.notify_one();
        }
    }

    /// Calls that may be sent now, or must not be.
    pub(super) fn outcomes(&self) -> Vec<Outcome> {
        std::mem::take(&mut *self.outcomes.lock())
    }

    fn tell(&self, outcomes: impl IntoIterator<Item = Outcome>) {
        self.outcomes.lock().extend(outcomes);
        self.decided.notify_one();
    }

    /// Waits until everything is written, or could not be, or the time is over.
    pub(super) fn flush(&self, within: Duration) {
        let end = clock::std_instant() + within;
        let mut state = self.state.lock();
        let summary = state.refusals.summary(clock::std_instant(), true);
        state.batch.items.extend(summary);
        state.is_urgent = true;
        state.is_idle = false;
        self.wake.notify_one();
        while (state.is_busy || !state.batch.items.is_empty()) && !state.is_dead {
            if self.health.lock().failing.is_some() && !state.is_busy {
                return;
            }
            if self.written.wait_until(&mut state, end).timed_out() {
                return;
            }
        }
    }

    /// The writer ends after what waits now.
    pub(super) fn close(&self) {
        self.state.lock().is_closing = true;
        self.wake.notify_one();
    }

    /// There is no thread.
    pub(super) fn died(&self) {
        let mut state = self.state.lock();
        state.is_dead = true;
        let outcomes: Vec<Outcome> = std::mem::take(&mut state.batch)
            .items
            .iter()
            .filter_map(Item::ticket)
            .map(|ticket| (ticket, Err(Arc::from(AuditError::NoWriter.to_string()))))
            .collect();
        drop(state);
        self.health.lock().failing = Some(Arc::from(AuditError::NoWriter.to_string()));
        self.tell(outcomes);
        self.written.notify_all();
    }

    /// Exchanges an empty batch for the next one, and says how many events were lost before it. None at the end.
    fn next(&self, batch: &mut Batch, has_failed: bool) -> Option<u64> {
        let mut state = self.state.lock();
        state.is_busy = false;
        self.written.notify_all();
        if has_failed && !state.is_closing && !state.is_urgent {
            // Retried soon, or when a call needs it.
            state.is_idle = false;
            self.wake.wait_for(&mut state, RETRY);
        }
        while state.batch.items.is_empty() {
            if state.is_closing {
                return None;
            }
            let now = clock::std_instant();
            if let Some(summary) = state.refusals.summary(now, false) {
                state.batch.items.push(summary);
                break;
            }
            state.is_idle = true;
            match state.refusals.summary_in(now) {
                None => self.wake.wait(&mut state),
                Some(within) => drop(self.wake.wait_for(&mut state, within)),
            }
        }
        state.is_idle = false;
        self.gather(&mut state);
        state.is_urgent = false;
        state.is_busy = true;
        state.held = 0;
        std::mem::swap(batch, &mut state.batch);
        Some(std::mem::take(&mut state.lost))
    }

    fn gather(&self, state: &mut MutexGuard<'_, State>) {
        let end = clock::std_instant() + GATHER;
        while !state.is_urgent && !state.is_closing && state.batch.items.len() < FULL {
            if self.wake.wait_until(state, end).timed_out() {
                return;
            }
        }
    }

    /// Puts back what could not be written, in front of what came since. What has no place is lost.
    fn put_back(&self, mut items: Vec<Item>, lost: u64) {
        let mut state = self.state.lock();
        items.append(&mut state.batch.items);
        let over = items.len().saturating_sub(MAX_ITEMS);
        items.truncate(MAX_ITEMS);
        // What was put back is digested already, and refers to nothing that was copied.
        state.batch.items = items;
        state.held = state.batch.held();
        state.lost += lost + over as u64;
        drop(state);
        self.health.lock().lost += over as u64;
    }
}

/// Writes until the queue is closed.
pub(super) fn run(queue: &Queue, mut folder: AuditFolder, redact: &Redact, has_values: bool) {
    let mut has_failed = false;
    let mut batch = Batch::default();
    while let Some(lost) = queue.next(&mut batch, has_failed) {
        batch.read(redact, has_values);
        let items = &mut batch.items;
        let told = (lost > 0).then(|| {
            let what = vec![("events", OwnedFact::Number(lost))];
            OtherItem::new(Kind::Lost, "lost", what)
        });
        let appended = folder.append(|put| {
            if let Some(told) = &told {
                told.put(put)?;
            }
            items.iter().try_for_each(|item| item.put(put))
        });
        has_failed = appended.is_err();
        let (written, error) = match appended {
            Ok(()) => (items.len() + usize::from(told.is_some()), None),
            Err((written, error)) => (written, Some(Arc::<str>::from(error.told()))),
        };
        let lost = if written == 0 { lost } else { 0 };
        let written_items = written.saturating_sub(usize::from(told.is_some()));
        tell_health(queue, &folder, written, error.clone());
        let rest = items.split_off(written_items);
        let mut outcomes: Vec<Outcome> =
            items.iter().filter_map(|item| Some((item.ticket()?, Ok(())))).collect();
        if let Some(error) = error {
            // A call that waits is refused; what has happened already is tried again.
            let (waiting, happened): (Vec<Item>, Vec<Item>) =
                rest.into_iter().partition(|item| item.ticket().is_some());
            let refused = waiting.iter().filter_map(Item::ticket);
            outcomes.extend(refused.map(|ticket| (ticket, Err(Arc::clone(&error)))));
            queue.put_back(happened, lost);
        }
        batch.clear();
        if !outcomes.is_empty() {
            queue.tell(outcomes);
        }
        // Whoever ends the process waits no longer than for one more try.
        if has_failed && queue.state.lock().is_closing {
            return;
        }
    }
}

fn tell_health(queue: &Queue, folder: &AuditFolder, written: usize, error: Option<Arc<str>>) {
    let mut health = queue.health.lock();
    match (&health.failing, &error) {
        (None, Some(error)) => {
            let words = format!(
                "the audit log cannot be written: {error}; make room or fix the folder, it is tried again (`metamcp status` shows how it is)"
            );
            tracing::error!("{words}");
        }
        (Some(_), None) => tracing::warn!("the audit log is written again"),
        _ => {}
    }
    health.failing = error;
    health.lines += written as u64;
    health.head = folder.head().or(health.head);
}
