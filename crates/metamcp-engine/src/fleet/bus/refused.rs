//! What came over the bus and was not believed.
//! Owns: the counts, and a log that no stranger can fill.      Never: decides what is refused.
//! In: a reason, and who is said to have sent it.  Out: numbers, a line now and then.
//! Tests: `metamcp/tests/fleet/messages.rs`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use metamcp_types::text;
use parking_lot::Mutex;

use crate::clock;
use metamcp_wire::cluster_key::SealError;

/// One line of a kind in so long.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// Why something was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refused {
    /// It was not sealed by a gateway, or it was changed, or played back under another name.
    Forged,
    /// Sealed with another cluster key.
    OtherKey,
    /// In a form that this version does not read.
    Version,
    /// Its sender's name is not one.
    Name,
    /// It opened, and is not what belongs there.
    Content,
}

pub type RefusedCounts = HashMap<Refused, u64>;

impl From<SealError> for Refused {
    fn from(why: SealError) -> Refused {
        match why {
            SealError::Broken => Refused::Forged,
            SealError::OtherKey => Refused::OtherKey,
        }
    }
}

impl Refused {
    fn told(self) -> &'static str {
        match self {
            Refused::Forged => {
                "it was not written by a gateway of this cluster, or was changed, or belongs elsewhere"
            }
            Refused::OtherKey => {
                "it was sealed with another cluster key: does that gateway have the same --cluster-key?"
            }
            Refused::Version => {
                "it is of a version of metamcp that this one does not understand: upgrade the older one"
            }
            Refused::Name => "its sender's name is not one",
            Refused::Content => "it is sealed with the right key, but is not what belongs there",
        }
    }
}

#[derive(Default)]
pub(super) struct RefusedLog {
    kinds: Mutex<HashMap<Refused, Kind>>,
}

#[derive(Default)]
struct Kind {
    count: u64,
    untold: u64,
    told: Option<Instant>,
}

impl RefusedLog {
    /// `from` is what the message says of its sender, which proves nothing.
    pub(super) fn note(&self, why: Refused, from: &str) {
        let now = clock::std_instant();
        let untold = {
            let mut kinds = self.kinds.lock();
            let kind = kinds.entry(why).or_default();
            kind.count += 1;
            kind.untold += 1;
            if kind.told.is_some_and(|told| now.duration_since(told) < LOG_EVERY) {
                return;
            }
            kind.told = Some(now);
            std::mem::take(&mut kind.untold)
        };
        let from = text::clean(from, 80);
        tracing::warn!(
            count = untold,
            "a message on the bus, said to be of {from:?}, is refused: {}",
            why.told()
        );
    }

    pub(super) fn counts(&self) -> RefusedCounts {
        self.kinds.lock().iter().map(|(why, kind)| (*why, kind.count)).collect()
    }
}
