//! Values that any gateway of a fleet gives to their owner: as they travel, and whose they are.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Semaphore;

use super::{Owner, Results, Stored};
use crate::task;

/// Longest value that is shared; a longer one stays at its gateway.
pub const MAX_SHARED: usize = 16 * 1024 * 1024;
/// Values on their way at once; more stay at their gateway, so that a slow bus holds no memory.
const ON_THEIR_WAY: usize = 16;
/// The form of a shared value; others are not read.
const FORMAT: u8 = 1;
/// The length of a toolset's name where there is none.
const NO_TOOLSET: u16 = u16::MAX;

/// Where values are that a fleet has in common. Whoever implements it encrypts them, and forgets them when they are old.
#[async_trait]
pub trait SharedResults: std::fmt::Debug + Send + Sync {
    async fn put(&self, handle: &str, bytes: &[u8]) -> Result<(), String>;

    async fn get(&self, handle: &str) -> Result<Option<Bytes>, String>;
}

/// The way to them.
#[derive(Debug)]
pub(super) struct Sharing {
    results: Arc<dyn SharedResults>,
    room: Arc<Semaphore>,
}

impl Sharing {
    pub(super) fn new(results: Arc<dyn SharedResults>) -> Sharing {
        Sharing { results, room: Arc::new(Semaphore::new(ON_THEIR_WAY)) }
    }

    /// Sends a value on its way, if its owner is known to the others.
    pub(super) fn give(&self, handle: &str, owner: &Owner, whole: &Bytes, value: &Range<usize>) {
        if whole.len() > MAX_SHARED || owner.lasting.is_none() {
            return;
        }
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else { return };
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let Some(packed) = pack(owner, whole, value) else { return };
        let (results, handle) = (Arc::clone(&self.results), handle.to_owned());
        task::spawn("result of the fleet", async move {
            if let Err(error) = results.put(&handle, &packed).await {
                tracing::debug!("a result stays at this gateway: {error}");
            }
            drop(permit);
        });
    }

    /// The value of a handle, if it is for this reader.
    pub(super) async fn take(&self, handle: &str, reader: &Owner) -> Option<Stored> {
        if !is_handle(handle) {
            return None;
        }
        match self.results.get(handle).await {
            Ok(packed) => unpack(&packed?, reader),
            Err(error) => {
                tracing::debug!("the results of the fleet are out of reach: {error}");
                None
            }
        }
    }
}

impl Results {
    /// Has its values in common with the other gateways of a fleet from now on. The first one counts.
    pub fn share(&self, results: Arc<dyn SharedResults>) {
        drop(self.sharing.set(Sharing::new(results)));
    }

    /// Whether other gateways of a fleet have its values too.
    pub fn is_shared(&self) -> bool {
        self.sharing.get().is_some()
    }
}

/// Whether this is a handle as gateways make them, rather than any text of a client.
fn is_handle(handle: &str) -> bool {
    let digits = handle.strip_prefix('r').unwrap_or_default();
    digits.len() == 32 && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
}

fn pack(owner: &Owner, whole: &Bytes, value: &Range<usize>) -> Option<Vec<u8>> {
    let mut packed = Vec::with_capacity(whole.len() + 64);
    packed.push(FORMAT);
    packed.extend_from_slice(&owner.lasting?);
    let toolset = owner.toolset.as_deref();
    let length = toolset.map_or(Some(NO_TOOLSET), |name| u16::try_from(name.len()).ok())?;
    packed.extend_from_slice(&length.to_be_bytes());
    packed.extend_from_slice(toolset.unwrap_or_default().as_bytes());
    for end in [value.start, value.end] {
        packed.extend_from_slice(&(end as u64).to_be_bytes());
    }
    packed.extend_from_slice(whole);
    Some(packed)
}

fn unpack(packed: &Bytes, reader: &Owner) -> Option<Stored> {
    let (&format, rest) = packed.split_first()?;
    let (lasting, rest) = rest.split_first_chunk::<32>()?;
    let (&length, rest) = rest.split_first_chunk::<2>()?;
    let length = u16::from_be_bytes(length);
    let (toolset, rest) = match length {
        NO_TOOLSET => (None, rest),
        length => {
            let (name, rest) = rest.split_at_checked(usize::from(length))?;
            (Some(Arc::from(std::str::from_utf8(name).ok()?)), rest)
        }
    };
    let (&start, rest) = rest.split_first_chunk::<8>()?;
    let (&end, whole) = rest.split_first_chunk::<8>()?;
    let end_of = |bytes| usize::try_from(u64::from_be_bytes(bytes)).ok();
    let (start, end) = (end_of(start)?, end_of(end)?);
    let is_its = reader.lasting.as_ref() == Some(lasting)
        && (reader.toolset.is_none() || reader.toolset == toolset);
    if format != FORMAT || !is_its || start > end || end > whole.len() {
        return None;
    }
    let whole = packed.slice_ref(whole);
    Some(Stored { value: whole.slice(start..end), whole })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(lasting: u8, toolset: Option<&str>) -> Owner {
        Owner { lasting: Some([lasting; 32]), toolset: toolset.map(Arc::from), ..Owner::default() }
    }

    #[test]
    fn a_value_is_its_owners_at_every_gateway() {
        let whole = Bytes::from_static(b"{\"a\":[1,2]}");
        let packed = Bytes::from(pack(&owner(1, Some("docs")), &whole, &(5..10)).unwrap());
        let read = |reader: &Owner| unpack(&packed, reader).map(|stored| stored.value);
        assert_eq!(read(&owner(1, Some("docs"))).as_deref(), Some(&b"[1,2]"[..]));
        assert_eq!(read(&owner(1, None)).as_deref(), Some(&b"[1,2]"[..]));
        assert_eq!(read(&owner(1, Some("mail"))), None);
        assert_eq!(read(&owner(2, None)), None);
        assert_eq!(read(&Owner::default()), None, "whoever has no lasting name");
        assert_eq!(pack(&Owner::default(), &whole, &(5..10)), None);
        for length in 0..packed.len() {
            // Whatever arrives must not bring the reader down.
            drop(unpack(&packed.slice(..length), &owner(1, None)));
        }
        let mut far = packed.to_vec();
        far[1 + 32 + 2 + 4 + 8] = 0xff;
        assert_eq!(unpack(&Bytes::from(far), &owner(1, None)), None);
        for wrong in ["", "r", "r123", "../../etc/passwd", &format!("r{}", "g".repeat(32))] {
            assert!(!is_handle(wrong), "{wrong}");
        }
    }
}
