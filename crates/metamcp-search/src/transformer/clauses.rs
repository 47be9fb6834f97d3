//! Splits a long query into sentences: one that asks for several things is similar to none of them as a whole.

/// Sentences that are read on their own; a query with more is a letter.
pub const MAX_CLAUSES: usize = 6;

/// Words that a sentence has at least; what is shorter says too little alone.
const LEAST_WORDS: usize = 3;

/// The sentences of a query, if it has several. Cut at the end of sentences and lines only: cutting at "and", "then" and
/// commas as well found a little less in the mean of five sets, and takes longer.
pub fn clauses(query: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut start = 0;
    let mut rest = query.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let ends = match c {
            '\n' => true,
            // A dot in a name or a number ends nothing.
            '.' | '!' | '?' | ';' => rest.peek().is_none_or(|(_, next)| next.is_whitespace()),
            _ => false,
        };
        if ends {
            found.push(&query[start..at]);
            start = at + c.len_utf8();
        }
    }
    found.push(&query[start..]);
    found.retain_mut(|sentence| {
        *sentence = sentence.trim();
        sentence.split_whitespace().nth(LEAST_WORDS - 1).is_some()
    });
    found.truncate(MAX_CLAUSES);
    if found.len() > 1 { found } else { Vec::new() }
}
