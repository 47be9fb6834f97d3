//! Splits a query into clauses. "Cancel the repair and tell me when the parcel comes" needs two tools, and as a whole it
//! is similar to neither; each clause is.

/// A part with fewer words says too little by itself ("in Paris", "please") and stays with its neighbour.
const FEWEST_WORDS: usize = 4;

/// Parts that are looked at; each costs a look at every candidate. Whatever follows is still in the whole.
const MOST_PARTS: usize = 8;

/// Words that begin a new part. They say nothing of it.
const JOINTS: [&str; 5] = ["and", "then", "also", "but", "or"];

/// A part while it grows: where it starts and ends, and its words so far.
struct Part {
    start: usize,
    end: usize,
    words: usize,
}

/// The parts of a request, in their order; none where it has only one.
pub(super) fn clauses(query: &str) -> Vec<&str> {
    let mut parts: Vec<Part> = Vec::new();
    let mut begins = true;
    for (start, word) in words(query) {
        if JOINTS.iter().any(|joint| word.eq_ignore_ascii_case(joint)) {
            begins = true;
            continue;
        }
        let end = start + word.len();
        match parts.last_mut().filter(|_| !begins) {
            Some(part) => (part.end, part.words) = (end, part.words + 1),
            None => parts.push(Part { start, end, words: 1 }),
        }
        begins = word.ends_with(['.', '!', '?', ';', ',', ':']);
    }
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        let short = |one: &Part| one.words < FEWEST_WORDS;
        match joined.last_mut().filter(|before| short(before) || short(&part)) {
            Some(before) => (before.end, before.words) = (part.end, before.words + part.words),
            None => joined.push(part),
        }
    }
    if joined.len() < 2 {
        return Vec::new();
    }
    joined.iter().take(MOST_PARTS).map(|part| &query[part.start..part.end]).collect()
}

/// What stands between white space, with where it starts.
fn words(query: &str) -> impl Iterator<Item = (usize, &str)> {
    let place = |word: &str| word.as_ptr() as usize - query.as_ptr() as usize;
    query.split_whitespace().map(move |word| (place(word), word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_falls_into_the_things_it_asks_for() {
        let cases: [(&str, &[&str]); 7] = [
            ("", &[]),
            ("read a file", &[]),
            ("what is the weather like in Paris, Texas", &[]),
            (
                "Cancel the washing machine repair and tell me when the parcel arrives",
                &["Cancel the washing machine repair", "tell me when the parcel arrives"],
            ),
            (
                "Find flights to Oslo tomorrow. Then book the cheapest of them, please",
                &["Find flights to Oslo tomorrow.", "book the cheapest of them, please"],
            ),
            ("Hi, I want to send a mail", &[]),
            ("and and and", &[]),
        ];
        for (query, expected) in cases {
            assert_eq!(clauses(query), expected, "{query:?}");
        }
    }

    #[test]
    fn there_is_an_end_to_parts() {
        let query = "look up the next train, ".repeat(40);
        assert_eq!(clauses(&query).len(), MOST_PARTS);
    }
}
