//! The result store: values too long to show, stored for a while under a handle.
//! Owns: the values, their age, their limits in memory and on disk.      Never: shows them, gives one to another owner's session.
//! In: bytes of JSON, and their owner.  Out: a handle, and the bytes again.
//! Tests: `results/tests.rs`; `metamcp/tests/hazards/scripts.rs`.

mod disk;
mod index;
mod shared;

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use metamcp_surface::excerpt;
use parking_lot::{Mutex, MutexGuard};

use crate::clock;
use disk::Disk;
pub use disk::{LeftBehind, left_behind};
use index::ResultIndex;
use shared::Sharing;
pub use shared::{MAX_SHARED, SharedResults};

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests;

/// How long a value is stored. A conversation uses a result within minutes, if at all.
pub const MAX_AGE: Duration = Duration::from_mins(30);
/// Most bytes of all values in memory. Beyond it the oldest of the session with the most bytes there, of the principal
/// with the most, move to disk.
const MAX_MEMORY: usize = 64 * 1024 * 1024;
/// Most bytes of all values. Beyond it the oldest of the session with the most bytes, of the principal with the most, are
/// evicted.
const MAX_BYTES: usize = 1024 * 1024 * 1024;

/// The owner of a value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The toolset its session is restricted to, if any.
    pub toolset: Option<Arc<str>>,
    /// The principal of the token; the same for all where tokens are not required.
    pub principal: u64,
    /// Who that is for every gateway of a fleet, where it is known.
    pub lasting: Option<[u8; 32]>,
    /// The session that stored it, which does not matter to who reads: a client that connects again finds its values.
    pub session: u64,
}

impl Owner {
    /// Whether this reader may read a value of that owner: it has to be the same principal, and a session restricted to a
    /// toolset reads only what was stored there.
    pub fn may_read(&self, other: &Owner) -> bool {
        self.principal == other.principal
            && (self.toolset.is_none() || self.toolset == other.toolset)
    }
}

/// See the module.
#[derive(Debug)]
pub struct Results {
    entries: Arc<Mutex<ResultIndex>>,
    disk: Arc<Disk>,
    memory: usize,
    /// Whether a task waits for the oldest to expire.
    watched: Arc<AtomicBool>,
    /// In a fleet: the other gateways have them too.
    sharing: OnceLock<Sharing>,
}

/// A value that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// All that was stored: a whole result, or a value.
    pub whole: Bytes,
    /// Its value.
    pub value: Bytes,
}

#[derive(Debug)]
struct Entry {
    handle: String,
    owner: Owner,
    since: Instant,
    bytes: usize,
    /// The range of its value.
    value: Range<usize>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Bytes),
    /// Being written to disk, and read from memory until then.
    Leaving(Bytes),
    Disk,
}

impl Results {
    /// A store that spills to a directory below `home`. Touches nothing yet.
    pub fn new(home: &Path) -> Results {
        Results::with(home, MAX_MEMORY)
    }

    fn with(home: &Path, memory: usize) -> Results {
        let disk = Arc::new(Disk::under(home));
        let sharing = OnceLock::new();
        Results { entries: Arc::default(), disk, memory, watched: Arc::default(), sharing }
    }

    /// Stores a value and returns its handle.
    pub fn put(&self, owner: &Owner, value: Bytes) -> String {
        let all = 0..value.len();
        self.put_at(owner, value, all, clock::std_instant())
    }

    /// Stores a whole result, with the range of its value.
    pub fn put_result(&self, owner: &Owner, result: Bytes) -> String {
        let value = excerpt::value_in(&result);
        let start = (value.as_ptr() as usize).saturating_sub(result.as_ptr() as usize);
        let value = start..start + value.len();
        self.put_at(owner, result, value, clock::std_instant())
    }

    fn put_at(&self, owner: &Owner, whole: Bytes, value: Range<usize>, now: Instant) -> String {
        // Unguessable, so that one client's values are not found by counting.
        let half = || getrandom::u64().unwrap_or_default();
        let handle = format!("r{:016x}{:016x}", half(), half());
        if let Some(sharing) = self.sharing.get() {
            sharing.give(&handle, owner, &whole, &value);
        }
        let mut entries = self.lock();
        entries.put(Entry {
            handle: handle.clone(),
            owner: owner.clone(),
            since: now,
            bytes: whole.len(),
            value,
            place: Place::Memory(whole),
        });
        let gone = entries.clear_out(now, MAX_AGE, MAX_BYTES);
        let leaving = entries.leave(self.memory);
        drop(entries);
        if !leaving.is_empty() || gone.iter().any(|one| matches!(one.place, Place::Disk)) {
            self.tidy(leaving, gone);
        }
        self.watch();
        handle
    }

    /// Starts a task that removes values when they expire, also if no other is stored.
    fn watch(&self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.watched.swap(true, Ordering::Relaxed) {
            return;
        }
        let (entries, disk) = (Arc::downgrade(&self.entries), Arc::downgrade(&self.disk));
        let watched = Arc::clone(&self.watched);
        runtime.spawn(async move {
            loop {
                let next = {
                    let Some(entries) = entries.upgrade() else { return };
                    let entries = entries.lock();
                    match entries.oldest() {
                        Some(since) => since + MAX_AGE,
                        None => return watched.store(false, Ordering::Relaxed),
                    }
                };
                tokio::time::sleep_until(next.into()).await;
                let (Some(entries), Some(disk)) = (entries.upgrade(), disk.upgrade()) else {
                    return;
                };
                let mut entries = entries.lock();
                for old in entries.clear_out(clock::std_instant(), MAX_AGE, usize::MAX) {
                    disk.remove(&old.handle);
                }
            }
        });
    }

    /// The value of a handle, unless it is unknown, expired, evicted or not for this reader.
    pub async fn read(&self, handle: &str, reader: &Owner) -> Option<Stored> {
        let Some((value, place)) = self.find(handle, reader, clock::std_instant()) else {
            return self.sharing.get()?.take(handle, reader).await;
        };
        let whole = match place {
            Some(bytes) => bytes,
            None => {
                let (disk, handle) = (Arc::clone(&self.disk), handle.to_owned());
                tokio::task::spawn_blocking(move || disk.read(&handle)).await.ok()??
            }
        };
        (value.end <= whole.len()).then(|| Stored { value: whole.slice(value), whole })
    }

    fn find(
        &self,
        handle: &str,
        reader: &Owner,
        now: Instant,
    ) -> Option<(Range<usize>, Option<Bytes>)> {
        let entries = self.lock();
        let found = entries.find(handle)?;
        if !reader.may_read(&found.owner) || now.duration_since(found.since) >= MAX_AGE {
            return None;
        }
        let place = match &found.place {
            Place::Memory(bytes) | Place::Leaving(bytes) => Some(bytes.clone()),
            Place::Disk => None,
        };
        Some((found.value.clone(), place))
    }

    /// A session has ended: its values stay, and are the first to go where there are too many.
    pub fn end_session(&self, principal: u64, session: u64) {
        self.lock().end_session(principal, session);
    }

    /// Removes everything, for the end of the process.
    pub fn end(&self) {
        self.lock().clear();
        self.disk.end();
    }

    /// Writes and removes files in the background. A value that cannot be written is dropped.
    fn tidy(&self, leaving: Vec<(String, Bytes)>, gone: Vec<Entry>) {
        let (entries, disk) = (Arc::clone(&self.entries), Arc::clone(&self.disk));
        let work = move || {
            for old in gone.iter().filter(|one| matches!(one.place, Place::Disk)) {
                disk.remove(&old.handle);
            }
            for (handle, bytes) in leaving {
                let written = disk.write(&handle, &bytes);
                let mut entries = entries.lock();
                if !written {
                    entries.remove(&handle);
                } else if !entries.has_left(&handle) {
                    drop(entries);
                    // Evicted meanwhile: nothing else would remove it from disk.
                    disk.remove(&handle);
                }
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(work)),
            Err(_) => work(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ResultIndex> {
        self.entries.lock()
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        self.end();
    }
}
