//! What each number of the close look is worth. Made by `cargo xtask train`; do not edit.

use super::confidence::GROUNDS;
use super::features::FEATURES;

/// Mean, deviation and weight of each, in the order of `FEATURE_NAMES`.
pub(super) const WEIGHTS: [[f32; 3]; FEATURES] = [
    [4.2560, 3.4649, 1.4937],  // words
    [2.2939, 1.4024, 0.7787],  // meaning
    [0.3678, 0.1402, 0.1479],  // query pieces
    [0.4230, 0.2172, 0.4241],  // name pieces
    [0.3481, 0.1390, 0.1841],  // text pieces
    [0.1699, 0.1870, -0.0319], // covered
];

/// What each ground for confidence is worth.
pub(super) const CONFIDENCE: [f32; GROUNDS] = [-0.1553, 0.4118, 0.3427, -0.3251, 3.7726, -0.5270];
