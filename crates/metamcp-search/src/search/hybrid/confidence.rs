//! Confidence of the first hit as a probability: calibrated on labelled queries, and on queries against the wrong
//! catalog, for which no hit is right.

use super::features::Features;
use super::{Candidate, squash};

/// What the chance is judged by.
pub const CONFIDENCE_FEATURES: usize = 7;

/// See [`confidence_features`].
pub type ConfidenceFeatures = [f32; CONFIDENCE_FEATURES];

/// What speaks for the first hit: a constant, its score, how far the second is behind, how much of the query it
/// covers, how near its pieces are, how large the catalog is, and how near it is as a whole. All but the last two are
/// relative to what else is there, and something always stands out.
pub fn confidence_features(
    first: (f32, &Features, f32),
    second: Option<f32>,
    tools: usize,
) -> ConfidenceFeatures {
    /// Further behind is not surer.
    const FAR: f32 = 4.0;
    let (score, [.., nearness, covered], cosine) = first;
    let behind = second.map_or(FAR, |second| (score - second).min(FAR));
    [1.0, score, behind, *covered, *nearness, (tools as f32).ln_1p(), cosine]
}

/// The chance of each candidate. That of the first is judged; the others are as much less likely as their score is
/// lower.
pub(super) fn of(
    candidates: &[Candidate],
    added: &[f32],
    tools: usize,
    weights: &[f32; CONFIDENCE_FEATURES],
) -> Vec<f32> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|&a, &b| added[b].total_cmp(&added[a]));
    let Some(&first) = order.first() else { return Vec::new() };
    let best = added[first];
    let second = order.get(1).map(|&second| added[second]);
    let Candidate { features, cosine, .. } = &candidates[first];
    let confidence_features = confidence_features((best, features, *cosine), second, tools);
    let judged: f32 = confidence_features.iter().zip(weights).map(|(g, weight)| g * weight).sum();
    let sure = squash(judged);
    added.iter().map(|score| sure * (score - best).exp()).collect()
}
