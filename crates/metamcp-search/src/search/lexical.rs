//! The keyword points, word by word: the simplest ranking that still finds something for a sentence.

use super::{Ranked, Ranker, Search, keyword};

/// Words of a query that are looked for.
const MAX_WORDS: usize = 64;

/// See [`Strategy::Lexical`](super::Strategy::Lexical).
pub(super) struct Lexical;

impl Ranker for Lexical {
    fn rank(&self, search: &Search<'_>) -> Vec<Ranked> {
        let query = search.query.to_lowercase();
        let mut words: Vec<&str> = query.split_whitespace().take(MAX_WORDS).collect();
        words.sort_unstable();
        words.dedup();
        keyword::each(search, |name, description| {
            let points = words.iter().map(|word| keyword::points(word, name, description));
            points.sum::<f32>() / (keyword::EXACT_NAME * words.len().max(1) as f32)
        })
    }
}
