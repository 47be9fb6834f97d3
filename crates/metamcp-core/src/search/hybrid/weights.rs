//! What each number of the close look is worth. Made by `cargo xtask train`; do not edit.

use super::confidence::GROUNDS;
use super::features::FEATURES;

/// Mean, deviation and weight of each, in the order of `FEATURE_NAMES`.
pub(super) const WEIGHTS: [[f32; 3]; FEATURES] = [
    [3.9864, 3.5320, 1.4993],  // words
    [2.2507, 1.3662, 0.7617],  // meaning
    [0.3603, 0.1412, 0.1236],  // query pieces
    [0.3998, 0.2128, 0.4216],  // name pieces
    [0.3129, 0.1238, 0.1763],  // text pieces
    [0.1597, 0.1861, -0.0521], // covered
];

/// What each ground for confidence is worth.
pub(super) const CONFIDENCE: [f32; GROUNDS] = [-0.6986, 0.3808, 0.3803, -0.6547, 4.5430, -0.4879];
