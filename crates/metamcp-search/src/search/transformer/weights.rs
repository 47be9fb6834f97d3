//! What each number of the close look is worth beside the transformer. Made by `cargo xtask train`; do not edit.

use super::super::hybrid::{CONFIDENCE_FEATURES, FEATURES};
use super::NEAR_NAMES;

/// Mean, deviation and weight of each, in the order of `FEATURE_NAMES`.
pub(super) const WEIGHTS: [[f32; 3]; FEATURES] = [
    [3.5504, 3.3520, 0.8752],  // words
    [2.2488, 1.4065, 0.1521],  // meaning
    [4.4530, 3.7484, 0.2312],  // clause words
    [2.6399, 1.4258, 0.2431],  // clause meaning
    [-0.0000, 1.0000, 0.1764], // query pieces
    [-0.0000, 1.0000, 0.1210], // name pieces
    [0.3404, 0.1349, 0.0088],  // nearness
    [0.1473, 0.1745, -0.0445], // covered
];

/// The same of what the transformer thinks, in the order of `NEAR_NAMES`.
pub(super) const NEARNESS: [[f32; 3]; NEAR_NAMES.len()] = [
    [2.5493, 1.6102, 0.5752],  // transformer
    [-1.8377, 0.4179, 0.1597], // behind the nearest
];

/// What each ground for confidence is worth.
pub(super) const CONFIDENCE: [f32; CONFIDENCE_FEATURES] =
    [-0.2639, 0.5770, 0.2286, -0.0782, 4.6117, -0.6702];
