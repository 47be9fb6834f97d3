//! What each number of the close look is worth beside the transformer. Made by `cargo xtask train`; do not edit.

use super::super::hybrid::{FEATURES, GROUNDS};

/// Mean, deviation and weight of each, in the order of `FEATURE_NAMES`.
pub(super) const WEIGHTS: [[f32; 3]; FEATURES] = [
    [3.6347, 3.3607, 0.8939],  // words
    [2.2513, 1.4109, 0.1816],  // meaning
    [4.5516, 3.7472, 0.2464],  // clause words
    [2.6425, 1.4350, 0.2744],  // clause meaning
    [0.0000, 1.0000, 0.1989],  // query pieces
    [-0.0000, 1.0000, 0.1531], // name pieces
    [0.3421, 0.1352, 0.0224],  // nearness
    [0.1509, 0.1765, -0.0367], // covered
];

/// The same of how near the transformer finds it.
pub(super) const NEARNESS: [f32; 3] = [2.5797, 1.7299, 0.6457];

/// What each ground for confidence is worth.
pub(super) const CONFIDENCE: [f32; GROUNDS] = [-0.1261, 0.5525, 0.2530, -0.4210, 4.8361, -0.6619];
