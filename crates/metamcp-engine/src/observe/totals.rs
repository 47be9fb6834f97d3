//! What the gateway costs a model and spares it, estimated in tokens from bytes.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of JSON that count as one token. Tokenizers differ; for tool lists and results they are close to this.
const BYTES_PER_TOKEN: u64 = 4;

/// Bytes since the start of the process.
#[derive(Debug, Default)]
pub struct Totals {
    shown: AtomicU64,
    lists: AtomicU64,
    scripts: AtomicU64,
    cuts: AtomicU64,
}

/// The same as tokens, for people and for metrics. An estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenTotals {
    /// What tools of the gateway itself cost: their list and their answers.
    pub shown: u64,
    /// What models did not have to read: the sum of the next three.
    pub saved: u64,
    /// The lists of all servers, for each session that listed tools.
    pub saved_lists: u64,
    /// Results that only a script or a chain read.
    pub saved_scripts: u64,
    /// Parts of long results that were stored instead of shown.
    pub saved_cuts: u64,
}

impl Totals {
    /// An answer of the gateway's own tools, or their list.
    pub fn shown(&self, bytes: usize) {
        self.shown.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The lists of all servers, which a session did not get.
    pub fn listed_in_place_of(&self, bytes: u64) {
        self.lists.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A result for a script or a chain.
    pub fn read_by_script(&self, bytes: usize) {
        self.scripts.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Part of a result.
    pub fn cut(&self, bytes: usize) {
        self.cuts.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> TokenTotals {
        let tokens = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed) / BYTES_PER_TOKEN;
        let [saved_lists, saved_scripts, saved_cuts] =
            [&self.lists, &self.scripts, &self.cuts].map(tokens);
        TokenTotals {
            shown: tokens(&self.shown),
            saved: saved_lists + saved_scripts + saved_cuts,
            saved_lists,
            saved_scripts,
            saved_cuts,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_estimated_from_all_bytes_together() {
        let totals = Totals::default();
        (0..10).for_each(|_| totals.shown(2));
        totals.listed_in_place_of(4_000);
        totals.read_by_script(400);
        totals.cut(41);
        let expected = TokenTotals {
            shown: 5,
            saved: 1_110,
            saved_lists: 1_000,
            saved_scripts: 100,
            saved_cuts: 10,
        };
        assert_eq!(totals.snapshot(), expected);
    }
}
