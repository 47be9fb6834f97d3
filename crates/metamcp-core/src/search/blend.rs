//! Similarity that was asked elsewhere, joined with a score of our own.

use super::Hit;

/// Hits that are compared by vectors from elsewhere: each costs a vector, and what is further down is seldom right.
pub const BLENDED: usize = 50;

/// How much of the joined score is similarity; the rest is our own.
const SIMILARITY: f32 = 0.6;

/// Puts the first hits in the order of the joined score. `similarity` and `own` belong to the first ones, in their
/// order; both count between 0 and 1.
pub fn blend(hits: &mut [Hit], similarity: &[f32], own: &[f32]) {
    let count = BLENDED.min(similarity.len()).min(own.len()).min(hits.len());
    let lowest = hits[..count].iter().fold(f32::MAX, |least, hit| least.min(hit.score));
    for ((hit, similarity), own) in hits[..count].iter_mut().zip(similarity).zip(own) {
        let within = |score: f32| if score.is_finite() { score.clamp(0.0, 1.0) } else { 0.0 };
        hit.score = SIMILARITY * within(*similarity) + (1.0 - SIMILARITY) * within(*own);
        // What was known of the chance belonged to the other order.
        hit.confidence = None;
    }
    hits[..count].sort_by(|a, b| b.score.total_cmp(&a.score));
    // Those that were not compared stay behind those that were, in what they show as well.
    let least = hits[..count].last().map_or(0.0, |hit| hit.score);
    for hit in &mut hits[count..] {
        hit.score = if lowest > 0.0 { least * (hit.score / lowest).min(1.0) } else { 0.0 };
    }
}
