//! What each number of the close look is worth. Made by `cargo xtask train`; do not edit.

use super::features::FEATURES;

/// Mean, deviation and weight of each, in the order of `FEATURE_NAMES`.
pub(super) const WEIGHTS: [[f32; 3]; FEATURES] = [
    [4.4401, 3.5228, 1.5076],  // words
    [2.3460, 1.4110, 0.8266],  // meaning
    [0.3690, 0.1398, 0.1169],  // query pieces
    [0.4281, 0.2191, 0.4427],  // name pieces
    [0.3517, 0.1412, 0.1795],  // text pieces
    [0.1741, 0.1886, -0.0408], // covered
];
