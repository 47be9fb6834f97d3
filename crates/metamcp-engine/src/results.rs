//! Values too long to show, kept for a while under a handle.
//! Owns: the values, their age, how much they may take in memory and on disk.      Never: shows them, gives one to a session it is not for.
//! In: bytes of JSON, and whose they are.  Out: a handle, and the bytes again.
//! Tests: `results/tests.rs`; `metamcp/tests/hazards/scripts.rs`.

mod disk;
mod index;

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use metamcp_surface::excerpt;
use parking_lot::{Mutex, MutexGuard};

use crate::clock;
use disk::Disk;
pub use disk::{LeftBehind, left_behind};
use index::ResultIndex;

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests;

/// How long a value is kept. A conversation comes back to a result within minutes, if at all.
const KEPT: Duration = Duration::from_mins(30);
/// All values together that stay in memory. The oldest of whoever has the most there go to disk first.
const MAX_MEMORY: usize = 64 * 1024 * 1024;
/// All values together. Beyond it the oldest of whoever keeps the most are gone, before a disk is.
const MAX_BYTES: usize = 1024 * 1024 * 1024;

/// Whose a value is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// The toolset its session is kept to, if there is one.
    pub toolset: Option<Arc<str>>,
    /// Whoever showed the same token; the same for all where none are asked for.
    pub principal: u64,
}

impl Owner {
    /// Whether this reader may have what belongs to another: nobody reads what somebody else kept, and who is kept to a
    /// toolset reads what was kept there.
    fn may_read(&self, other: &Owner) -> bool {
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
    /// Whether something waits for the oldest to become too old.
    watched: Arc<AtomicBool>,
}

/// A value again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// All that was kept: a whole result, or a value.
    pub whole: Bytes,
    /// The part of it that is meant.
    pub value: Bytes,
}

#[derive(Debug)]
struct Entry {
    handle: String,
    owner: Owner,
    since: Instant,
    bytes: usize,
    /// Where in all of it the part that is meant lies.
    value: Range<usize>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Memory(Bytes),
    /// On its way to disk, and read from memory until it is there.
    Leaving(Bytes),
    Disk,
}

impl Results {
    /// Values that go below `home` when there are too many for memory. Touches nothing yet.
    pub fn new(home: &Path) -> Results {
        Results::with(home, MAX_MEMORY)
    }

    fn with(home: &Path, memory: usize) -> Results {
        let disk = Arc::new(Disk::under(home));
        Results { entries: Arc::default(), disk, memory, watched: Arc::default() }
    }

    /// Keeps a value and says under which handle.
    pub fn put(&self, owner: &Owner, value: Bytes) -> String {
        let all = 0..value.len();
        self.put_at(owner, value, all, clock::std_instant())
    }

    /// Keeps a whole result; what is meant by it is its value.
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
        let mut entries = self.lock();
        entries.put(Entry {
            handle: handle.clone(),
            owner: owner.clone(),
            since: now,
            bytes: whole.len(),
            value,
            place: Place::Memory(whole),
        });
        let gone = entries.clear_out(now, KEPT, MAX_BYTES);
        let leaving = entries.leave(self.memory);
        drop(entries);
        if !leaving.is_empty() || gone.iter().any(|one| matches!(one.place, Place::Disk)) {
            self.tidy(leaving, gone);
        }
        self.watch();
        handle
    }

    /// Sees to it that a value is gone when it is too old, also if nobody keeps another.
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
                        Some(since) => since + KEPT,
                        None => return watched.store(false, Ordering::Relaxed),
                    }
                };
                tokio::time::sleep_until(next.into()).await;
                let (Some(entries), Some(disk)) = (entries.upgrade(), disk.upgrade()) else {
                    return;
                };
                let mut entries = entries.lock();
                for old in entries.clear_out(clock::std_instant(), KEPT, usize::MAX) {
                    disk.remove(&old.handle);
                }
            }
        });
    }

    /// The value of a handle, unless it is unknown, too old, gone or not for this reader.
    pub async fn read(&self, handle: &str, reader: &Owner) -> Option<Stored> {
        let (value, place) = self.find(handle, reader, clock::std_instant())?;
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
        if !reader.may_read(&found.owner) || now.duration_since(found.since) >= KEPT {
            return None;
        }
        let place = match &found.place {
            Place::Memory(bytes) | Place::Leaving(bytes) => Some(bytes.clone()),
            Place::Disk => None,
        };
        Some((found.value.clone(), place))
    }

    /// Removes everything, for the end of the process.
    pub fn end(&self) {
        self.lock().clear();
        self.disk.end();
    }

    /// Writes and removes files where nobody waits for it. A value that cannot be written is gone, as if it were old.
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
                    // Removed meanwhile: nobody would ever remove the file.
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
