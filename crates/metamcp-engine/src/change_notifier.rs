//! Notifies clients when a list or a resource of a server changed.
//! Owns: the listeners, the delay before a notification.      Never: reads a list, builds a message.
//! In: digests of lists, updates of resources.  Out: calls on `ChangeListener`.
//! Tests: `metamcp-calls` for the wait, `metamcp/tests/` with real clients.

use std::sync::{Arc, Weak};

use metamcp_calls::notify::{Debounce, List, Pace};
use metamcp_calls::pool::ServerId;
use metamcp_types::moment::Moment;
use parking_lot::{Mutex, MutexGuard};

use crate::clock::Clock;
use crate::task;

/// Receives changes.
pub trait ChangeListener: Send + Sync {
    /// A list has changed.
    fn changed(&self, list: List);
    /// A resource of this instance has changed; the params are the server's.
    fn updated(&self, server: ServerId, uri: &str, params: &[u8]);
}

#[derive(Debug)]
pub struct ChangeNotifier {
    /// `None` if list changes are not announced.
    pace: Option<Pace>,
    clock: Clock,
    lists: Mutex<[Entry; List::ALL.len()]>,
    watchers: Mutex<Vec<Weak<dyn ChangeListener>>>,
}

#[derive(Debug, Default)]
struct Entry {
    debounce: Debounce,
    /// A task sleeps until it is due.
    sleeping: bool,
}

impl ChangeNotifier {
    /// Without listeners yet.
    pub fn new(pace: Option<Pace>, clock: Clock) -> ChangeNotifier {
        ChangeNotifier { pace, clock, lists: Mutex::default(), watchers: Mutex::default() }
    }

    /// Whether list changes are announced.
    pub fn tells(&self) -> bool {
        self.pace.is_some()
    }

    /// Whether a list change would reach any listener.
    pub fn is_watched(&self) -> bool {
        self.tells() && !self.listening().is_empty()
    }

    /// Adds a listener, for as long as it lives.
    pub fn watch(&self, watcher: Weak<dyn ChangeListener>) {
        let mut watchers = self.watchers.lock();
        // Dead ones are removed when it is full, so that adding one usually costs only a push.
        if watchers.len() == watchers.capacity() {
            watchers.retain(|watcher| watcher.strong_count() > 0);
        }
        watchers.push(watcher);
    }

    /// A client received a list with this digest.
    pub fn given(&self, list: List, digest: u64) {
        self.lock()[list as usize].debounce.given(digest);
    }

    /// A list has this digest now.
    pub fn heard(self: &Arc<Self>, list: List, digest: u64) {
        let Some(pace) = self.pace else { return };
        let mut lists = self.lock();
        let entry = &mut lists[list as usize];
        entry.debounce.heard(digest, self.clock.now());
        let idle = entry.debounce.due(pace) == Moment::NEVER;
        if idle || std::mem::replace(&mut entry.sleeping, true) {
            return;
        }
        drop(lists);
        let notices = Arc::downgrade(self);
        task::spawn("notice", async move {
            while let Some(due) = notices.upgrade().and_then(|notices| notices.due(list, pace)) {
                tokio::time::sleep_until(due).await;
                if let Some(notices) = notices.upgrade() {
                    notices.tick(list, pace);
                }
            }
        });
    }

    pub fn updated(&self, server: ServerId, uri: &str, params: &[u8]) {
        for watcher in self.listening() {
            watcher.updated(server, uri, params);
        }
    }

    /// When to check again; `None` ends the sleep.
    fn due(&self, list: List, pace: Pace) -> Option<tokio::time::Instant> {
        let mut lists = self.lock();
        let entry = &mut lists[list as usize];
        let due = entry.debounce.due(pace);
        entry.sleeping = due != Moment::NEVER;
        entry.sleeping.then(|| self.clock.instant(due))
    }

    fn tick(&self, list: List, pace: Pace) {
        if self.lock()[list as usize].debounce.tick(pace, self.clock.now()) {
            for watcher in self.listening() {
                watcher.changed(list);
            }
        }
    }

    fn listening(&self) -> Vec<Arc<dyn ChangeListener>> {
        let watchers = self.watchers.lock();
        watchers.iter().filter_map(Weak::upgrade).collect()
    }

    fn lock(&self) -> MutexGuard<'_, [Entry; List::ALL.len()]> {
        self.lists.lock()
    }
}
