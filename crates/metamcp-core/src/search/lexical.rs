//! The keyword points, word by word: the simplest ranking that still finds something for a sentence.

use std::sync::Arc;

use super::{Ranked, ServerIndex, keyword};

/// Words of a query that are looked for.
const MAX_WORDS: usize = 64;

pub(super) fn rank(servers: &[Arc<ServerIndex>], query: &str, only: Option<&str>) -> Vec<Ranked> {
    let query = query.to_lowercase();
    let mut words: Vec<&str> = query.split_whitespace().take(MAX_WORDS).collect();
    words.sort_unstable();
    words.dedup();
    keyword::each(servers, only, |name, description| {
        let points: f32 = words.iter().map(|word| keyword::points(word, name, description)).sum();
        points / (keyword::EXACT_NAME * words.len().max(1) as f32)
    })
}
