//! How sure a first hit may be: a logistic fit of "it was right" to what speaks for it.
//! Owns: that fit and its measure.      Never: changes an order.
//! In: sets with questions of their own and of others.  Out: weights of the grounds.
//! Tests: below.

use metamcp_search::search::{
    CONFIDENCE_FEATURES, ConfidenceFeatures, FEATURES, Features, confidence_features,
};

use crate::fit::Weights;
use crate::set::{RankedQuestion, Set};

/// Steps of the fit.
const STEPS: usize = 3000;

/// The pull towards zero.
const PULL: f64 = 1e-4;

/// Weights of the grounds.
pub(crate) type ConfidenceWeights = [f64; CONFIDENCE_FEATURES];

/// One first hit: what speaks for it, whether it was right, what it counts.
type Case = (ConfidenceFeatures, bool, f64);

/// Fits to sets. A question of the wrong catalog counts half of one of the right one; one put to a few servers, as users
/// have them, twice of one put to the whole set.
pub(crate) fn fit(sets: &[&Set], weights: &Weights) -> ConfidenceWeights {
    let cases: Vec<Case> = sets.iter().flat_map(|set| cases(set, weights)).collect();
    let total: f64 = cases.iter().map(|(_, _, share)| share).sum();
    let mut sure = [0.0; CONFIDENCE_FEATURES];
    let mut squares = [1e-9; CONFIDENCE_FEATURES];
    for _ in 0..STEPS {
        let mut slope = sure.map(|weight| 2.0 * PULL * weight);
        for (confidence_features, right, share) in &cases {
            let wrong_by = chance(&sure, confidence_features) - f64::from(u8::from(*right));
            for (part, ground) in slope.iter_mut().zip(confidence_features) {
                *part += share / total * wrong_by * f64::from(*ground);
            }
        }
        for at in 0..CONFIDENCE_FEATURES {
            squares[at] += slope[at] * slope[at];
            sure[at] -= 0.5 * slope[at] / squares[at].sqrt();
        }
    }
    sure
}

/// Mean distance between the chance told and the share that was right, in ten bins of equal size.
pub(crate) fn error(set: &Set, weights: &Weights, sure: &ConfidenceWeights) -> f64 {
    let mut told: Vec<(f64, bool)> = cases(set, weights)
        .iter()
        .map(|(confidence_features, right, _)| (chance(sure, confidence_features), *right))
        .collect();
    told.sort_by(|a, b| a.0.total_cmp(&b.0));
    let size = told.len().div_ceil(10).max(1);
    let distance = |bin: &[(f64, bool)]| {
        let count = bin.len() as f64;
        let mean = bin.iter().map(|(chance, _)| chance).sum::<f64>() / count;
        let right = bin.iter().filter(|(_, right)| *right).count() as f64 / count;
        (mean - right).abs() * count
    };
    told.chunks(size).map(distance).sum::<f64>() / told.len().max(1) as f64
}

fn chance(sure: &ConfidenceWeights, confidence_features: &ConfidenceFeatures) -> f64 {
    let sum: f64 = sure
        .iter()
        .zip(confidence_features)
        .map(|(weight, ground)| weight * f64::from(*ground))
        .sum();
    1.0 / (1.0 + (-sum).exp())
}

fn cases(set: &Set, weights: &Weights) -> Vec<Case> {
    let parts = [
        (&set.questions, 1.0),
        (&set.foreign, 0.5),
        (&set.small_with, 2.0),
        (&set.small_without, 1.0),
    ];
    let case = |looked: &RankedQuestion, share: f64| {
        let mut ranked: Vec<_> =
            looked.candidates.iter().map(|one| (weights.score(&one.numbers) as f32, one)).collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (score, first) = *ranked.first()?;
        let second = ranked.get(1).map(|one| one.0);
        let own: &Features = first.numbers.first_chunk::<FEATURES>()?;
        let grounds = confidence_features((score, own, first.cosine), second, looked.tools);
        Some((grounds, first.which.is_some(), share))
    };
    let counted = |(part, share): (&Vec<RankedQuestion>, f64)| {
        let each = share / part.len().max(1) as f64;
        part.iter().filter_map(|looked| case(looked, each)).collect::<Vec<_>>()
    };
    parts.into_iter().flat_map(counted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chance_is_between_nothing_and_one() {
        let mut sure = [0.0; CONFIDENCE_FEATURES];
        assert_eq!(chance(&sure, &[1.0; CONFIDENCE_FEATURES]), 0.5);
        sure[0] = 3.0;
        assert!(chance(&sure, &[1.0; CONFIDENCE_FEATURES]) > 0.9);
    }
}
