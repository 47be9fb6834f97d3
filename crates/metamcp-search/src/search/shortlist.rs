//! How many of the hits are worth a reader's tokens: a few in full, the next ones by name.
//! Decided from how sure the ranking is, never a fixed number.

use super::{FITS, Hit};

/// How much of a ranked list is shown; hits beyond both are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shortlist {
    /// Hits from the top that are shown with signature and description.
    pub full: usize,
    /// Hits after those that are shown by name.
    pub named: usize,
}

/// The cut for ranked hits, best first.
pub fn shortlist(hits: &[Hit]) -> Shortlist {
    let sure = hits.first().and_then(|hit| hit.confidence).unwrap_or(FITS);
    let full = if sure >= 0.6 { 3 } else { 4 }.min(hits.len());
    Shortlist { full, named: 8.min(hits.len() - full) }
}

/// Whether none of them is likely to be what was asked for.
pub fn nothing_fits(hits: &[Hit]) -> bool {
    hits.first().and_then(|hit| hit.confidence).is_some_and(|chance| chance < FITS)
}
