//! What each number of the close look is worth. Made by `cargo xtask train`; do not edit.

use super::confidence::CONFIDENCE_FEATURES;
use super::features::FEATURES;

/// Mean, deviation and weight of each, in the order of `FEATURE_NAMES`.
pub(super) const WEIGHTS: [[f32; 3]; FEATURES] = [
    [4.2562, 3.4655, 0.9682],  // words
    [2.3901, 1.4590, 0.3587],  // meaning
    [5.2321, 3.8160, 0.3055],  // clause words
    [2.7620, 1.4936, 0.4598],  // clause meaning
    [-0.0000, 1.0000, 0.2290], // query pieces
    [0.0000, 1.0000, 0.1995],  // name pieces
    [0.3543, 0.1408, 0.0368],  // nearness
    [0.1698, 0.1873, -0.0140], // covered
];

/// What each ground for confidence is worth.
pub(super) const CONFIDENCE: [f32; CONFIDENCE_FEATURES] =
    [-0.9486, 0.4516, 0.3253, -0.3305, 4.9115, -0.5079];
