//! What each number of the close look is worth. Made by `cargo xtask train`; do not edit.

use super::confidence::GROUNDS;
use super::features::FEATURES;

/// Mean, deviation and weight of each, in the order of `FEATURE_NAMES`.
pub(super) const WEIGHTS: [[f32; 3]; FEATURES] = [
    [4.2478, 3.4678, 1.4758],  // words
    [2.3777, 1.4422, 0.8141],  // meaning
    [0.3603, 0.1412, 0.1812],  // query pieces
    [0.4001, 0.2141, 0.3861],  // name pieces
    [0.3141, 0.1238, 0.1236],  // text pieces
    [0.1694, 0.1872, -0.0440], // covered
];

/// What each ground for confidence is worth.
pub(super) const CONFIDENCE: [f32; GROUNDS] = [-0.8122, 0.3602, 0.3824, -0.7782, 4.9476, -0.4782];
