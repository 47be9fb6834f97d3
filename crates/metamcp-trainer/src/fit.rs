//! The fit: of two candidates of one question, the expected one shall come out higher. Logistic, with a pull towards
//! the first sorting; every set counts the same, whatever its size.
//! Owns: the pairs, the descent, the strength of the pull.      Never: reads a file, knows which set is left out.
//! In: `Set`s.  Out: `Weights`.
//! Tests: below.

use metamcp_search::search::FEATURES;

use crate::set::{NUMBERS, Numbers, Set};

/// Wrong candidates compared with each right one.
const WRONG: usize = 25;

/// The pull towards a plain sum: sets are learnt by heart without it.
const PULL: f64 = 0.1;

/// Where the pull leads: words and meaning, of the whole and of the clauses, and the pieces, all in deviations. What is
/// not in it must show its worth.
pub(crate) const FIRST_SORTING: Sorting =
    Sorting { towards: &[(0, 0.3), (1, 0.2), (2, 0.1), (3, 0.25), (4, 0.15)], unused: &[] };

/// The same with a transformer, whose numbers come after them. Words count by how far it agrees with them.
pub(crate) const WITH_NEARNESS: Sorting = Sorting {
    towards: &[(0, 0.25), (1, 0.1), (3, 0.15), (4, 0.15), (FEATURES, 0.3), (FEATURES + 2, 0.3)],
    // Beside it, words of a clause and names reward what coincides by chance.
    unused: &[2, 5],
};

/// Where the pull leads, and what is left out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sorting {
    towards: &'static [(usize, f64)],
    unused: &'static [usize],
}

/// Steps; the sum is smooth and has one lowest point, so any will do that get there.
const STEPS: usize = 600;

/// Mean, deviation and weight of each number.
#[derive(Debug, Clone)]
pub(crate) struct Weights(pub(crate) [[f64; 3]; NUMBERS]);

impl Weights {
    pub(crate) fn score(&self, features: &Numbers) -> f64 {
        let parts = features.iter().zip(&self.0);
        parts
            .map(|(value, [mean, spread, weight])| (f64::from(*value) - mean) / spread * weight)
            .sum()
    }
}

/// Fits weights to sets, pulled towards a sorting. A number that is always the same gets no weight.
pub(crate) fn fit(sets: &[&Set], sorting: Sorting) -> Weights {
    let spread = spread(sets);
    let mut pairs: Vec<(f64, [f64; NUMBERS])> =
        sets.iter().flat_map(|set| pairs(set, &spread, sets.len())).collect();
    for (_, difference) in &mut pairs {
        sorting.unused.iter().for_each(|&at| difference[at] = 0.0);
    }
    let mut start = [0.0; NUMBERS];
    for &(at, weight) in sorting.towards {
        start[at] = weight * spread[at].1;
    }
    let weights = descend(&pairs, &start);
    let mut all = [[0.0; 3]; NUMBERS];
    for ((row, (mean, deviation)), weight) in all.iter_mut().zip(spread).zip(weights) {
        *row = [mean, deviation, weight];
    }
    Weights(all)
}

/// Mean and deviation of each number over all candidates.
fn spread(sets: &[&Set]) -> [(f64, f64); NUMBERS] {
    let (mut sums, mut squares, mut count) = ([0.0; NUMBERS], [0.0; NUMBERS], 0.0);
    for set in sets {
        for one in set.questions.iter().flat_map(|question| &question.candidates) {
            count += 1.0;
            for (at, value) in one.numbers.iter().enumerate() {
                sums[at] += f64::from(*value);
                squares[at] += f64::from(*value) * f64::from(*value);
            }
        }
    }
    let mut spread = [(0.0, 1.0); NUMBERS];
    for (at, (mean, deviation)) in spread.iter_mut().enumerate() {
        *mean = sums[at] / f64::max(count, 1.0);
        let variance = squares[at] / f64::max(count, 1.0) - *mean * *mean;
        *deviation = variance.max(1e-8).sqrt();
    }
    spread
}

/// Differences between a right and a wrong candidate, with what each counts.
fn pairs(set: &Set, spread: &[(f64, f64); NUMBERS], sets: usize) -> Vec<(f64, [f64; NUMBERS])> {
    let mut found = Vec::new();
    for question in &set.questions {
        let wrong: Vec<&Numbers> = question
            .candidates
            .iter()
            .filter(|one| one.which.is_none())
            .map(|one| &one.numbers)
            .take(WRONG)
            .collect();
        for right in question.candidates.iter().filter(|one| one.which.is_some()) {
            let right = &right.numbers;
            for other in &wrong {
                let mut difference = [0.0; NUMBERS];
                for (at, (_, deviation)) in spread.iter().enumerate() {
                    difference[at] = f64::from(right[at] - other[at]) / deviation;
                }
                found.push((1.0, difference));
            }
        }
    }
    let share = 1.0 / (found.len().max(1) * sets.max(1)) as f64;
    for (weight, _) in &mut found {
        *weight = share;
    }
    found
}

/// Goes downhill with a step that adapts to each number.
fn descend(pairs: &[(f64, [f64; NUMBERS])], start: &[f64; NUMBERS]) -> [f64; NUMBERS] {
    let (mut weights, mut slow, mut squares) = (*start, [0.0; NUMBERS], [0.0; NUMBERS]);
    for step in 1..=STEPS {
        let mut slope = [0.0; NUMBERS];
        for ((part, weight), start) in slope.iter_mut().zip(&weights).zip(start) {
            *part = 2.0 * PULL * (weight - start);
        }
        for (share, difference) in pairs {
            let margin: f64 = difference.iter().zip(&weights).map(|(d, w)| d * w).sum();
            let push = share / (1.0 + margin.exp());
            for (part, d) in slope.iter_mut().zip(difference) {
                *part -= push * d;
            }
        }
        let rate = 0.05 * (1.0 - step as f64 / STEPS as f64) + 0.001;
        let (fade, fade_squares) = (0.9f64, 0.99f64);
        for at in 0..NUMBERS {
            slow[at] = fade * slow[at] + (1.0 - fade) * slope[at];
            squares[at] = fade_squares * squares[at] + (1.0 - fade_squares) * slope[at] * slope[at];
            let mean = slow[at] / (1.0 - fade.powi(step as i32));
            let size = (squares[at] / (1.0 - fade_squares.powi(step as i32))).sqrt();
            weights[at] -= rate * mean / (size + 1e-9);
        }
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_right_from_wrong_gets_the_weight() {
        let mut difference = [0.0; NUMBERS];
        difference[0] = 1.0;
        let mut noise = difference;
        noise[1] = 1.0;
        let mut other = difference;
        other[1] = -1.0;
        let weights = descend(&[(0.5, noise), (0.5, other)], &[0.0; NUMBERS]);
        assert!(weights[0] > 0.5, "{weights:?}");
        assert!(weights[1].abs() < 0.05, "{weights:?}");
    }
}
