//! An estimate of the cl100k tokens of a text, without the megabytes of vocabulary that an exact count needs.
//! Owns: the estimate.      Never: claims to be exact; it is printed as "about N".
//! In: JSON, English or code.  Out: tokens, within a few percent.
//! Tests: `tokens/tests.rs`, against the real vocabulary.

/// About how many tokens `text` takes.
///
/// The text is split by the same rules as cl100k's own pre-tokenizer, and no token crosses such a split; the cost of a
/// piece is then taken from averages, measured over thirteen real MCP servers' `tools/list` responses and some sixty
/// READMEs. On other READMEs and on source code the error was 3 to 4 % on average; keys and base64 may be off by a
/// quarter.
pub(crate) fn about(text: &str) -> usize {
    let thousandths: usize = pieces(text).map(cost).sum();
    thousandths.div_ceil(1_000)
}

/// Cost of a lower-case or capitalised English word by its letters, after a blank: almost always one token.
const AFTER_BLANK: [usize; 16] =
    [0, 1000, 1000, 1010, 1010, 1020, 1030, 1045, 1085, 1130, 1180, 1180, 1290, 1300, 1350, 1450];
/// The same with nothing before it, as after a quote that belongs to other punctuation.
const BARE: [usize; 16] =
    [0, 1000, 1000, 1090, 1020, 1060, 1080, 1120, 1210, 1420, 1300, 1400, 1700, 2100, 2200, 2400];
/// The same after one punctuation character, as in `_name` or `"name`, which the vocabulary seldom has as one token.
const AFTER_SIGN: [usize; 16] =
    [0, 1030, 1170, 1160, 1235, 1490, 1400, 1535, 1930, 1880, 2340, 2380, 3000, 2800, 2800, 3000];
/// Words that every list of tools is full of, with exact counts: their averages would add up to an error.
const SCHEMA_WORDS: [(&str, usize); 14] = [
    ("additionalProperties", 2_000),
    ("annotations", 1_000),
    ("description", 1_000),
    ("destructiveHint", 3_000),
    ("idempotentHint", 4_000),
    ("inputSchema", 2_000),
    ("maximum", 1_000),
    ("minimum", 1_000),
    ("openWorldHint", 3_000),
    ("outputSchema", 2_000),
    ("properties", 1_000),
    ("readOnlyHint", 2_000),
    ("required", 1_000),
    ("string", 1_000),
];
/// Cost of a run of punctuation; most short ones of JSON are in the vocabulary.
const SIGNS: [usize; 8] = [0, 1000, 1000, 1020, 1120, 1850, 2600, 3200];

/// Letters one token holds in words too long to be English: keys, hashes, names run together.
const LETTERS_OF_NOISE: usize = 4;

/// Cost of one piece in thousandths of a token.
fn cost(piece: &str) -> usize {
    let mut letters = piece.trim_start_matches(|c: char| !c.is_alphabetic());
    if letters.is_empty() {
        return match piece.trim() {
            "" => 1_000,
            signs if signs.starts_with(char::is_numeric) => 1_000,
            signs if signs.is_ascii() => ruled_or(signs, SIGNS.get(signs.len()).copied()),
            // Beyond ASCII, punctuation is dashes and quotes of one token, or pictographs of two and more.
            signs => signs.chars().map(|sign| if sign < '\u{2200}' { 1_100 } else { 2_000 }).sum(),
        };
    }
    if !letters.is_ascii() {
        return letters.chars().map(foreign).sum::<usize>().max(1_000);
    }
    if let Some((_, cost)) = SCHEMA_WORDS.iter().find(|(word, _)| *word == piece) {
        return *cost;
    }
    let before = &piece[..piece.len() - letters.len()];
    let mut table = match before {
        "" => &BARE,
        " " => &AFTER_BLANK,
        _ => &AFTER_SIGN,
    };
    let mut sum = 0;
    while !letters.is_empty() {
        let (hump, rest) = letters.split_at(hump_length(letters));
        sum += match table.get(hump.len()) {
            Some(cost) => *cost,
            None => hump.len() * 1_000 / LETTERS_OF_NOISE,
        };
        (letters, table) = (rest, &BARE);
    }
    sum
}

/// Letters up to the next capital in a name such as `readTextFile`; a run of capitals stays together.
fn hump_length(letters: &str) -> usize {
    let bytes = letters.as_bytes();
    let capitals = bytes.iter().take_while(|byte| byte.is_ascii_uppercase()).count();
    match capitals {
        0 | 1 => 1 + bytes[1..].iter().take_while(|byte| byte.is_ascii_lowercase()).count(),
        all if all == bytes.len() => all,
        // The last capital begins the next word, as in `HTTPServer`.
        some => some - 1,
    }
}

/// Long runs are mostly one repeated character, as in rules and banners, and then cheap.
fn ruled_or(signs: &str, measured: Option<usize>) -> usize {
    let first = signs.as_bytes()[0];
    if signs.len() > 3 && signs.bytes().all(|sign| sign == first) {
        return 1_000 + signs.len() / 64 * 1_000;
    }
    measured.unwrap_or(signs.len() * 450)
}

/// One letter of a word that is not ASCII throughout, by script.
fn foreign(letter: char) -> usize {
    match letter {
        '\0'..='\u{7f}' => 400,
        '\u{80}'..='\u{24f}' => 800,
        '\u{370}'..='\u{3ff}' => 900,
        '\u{400}'..='\u{52f}' => 490,
        '\u{3000}'..='\u{30ff}' => 900,
        '\u{4e00}'..='\u{9fff}' => 1_000,
        '\u{ac00}'..='\u{d7af}' => 1_200,
        _ => 1_300,
    }
}

/// The pieces cl100k splits a text into: contractions, words with one character of punctuation before them, up to three
/// digits, punctuation with a blank before it, blanks. Written by hand because its pattern needs look-ahead.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, after) = rest.split_at(piece_length(rest));
        rest = after;
        Some(piece)
    })
}

/// Bytes of the first piece of a non-empty text.
fn piece_length(text: &str) -> usize {
    let mut letters = text.chars();
    let first = letters.next().expect("asked only where text is left");
    let second = letters.next();
    let after_first = first.len_utf8();
    if first == '\''
        && let Some(length) = contraction(&text[1..])
    {
        return 1 + length;
    }
    if first.is_alphabetic() {
        return run(text, char::is_alphabetic);
    }
    if !matches!(first, '\r' | '\n')
        && !first.is_numeric()
        && second.is_some_and(char::is_alphabetic)
    {
        return after_first + run(&text[after_first..], char::is_alphabetic);
    }
    if first.is_numeric() {
        return text.chars().take(3).take_while(|c| c.is_numeric()).map(char::len_utf8).sum();
    }
    let blank = usize::from(first == ' ' && second.is_some_and(is_sign));
    if is_sign(first) || blank == 1 {
        let signs = blank + run(&text[blank..], is_sign);
        return signs + run(&text[signs..], |c| matches!(c, '\r' | '\n'));
    }
    let blanks = run(text, char::is_whitespace);
    if let Some(last) = text[..blanks].rfind(['\r', '\n']) {
        return last + 1;
    }
    // The last blank belongs to the piece after it.
    match text[..blanks].char_indices().next_back() {
        Some((last, _)) if last > 0 && blanks < text.len() => last,
        _ => blanks,
    }
}

fn is_sign(c: char) -> bool {
    !c.is_alphabetic() && !c.is_numeric() && !c.is_whitespace()
}

fn run(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|c| !belongs(c)).unwrap_or(text.len())
}

/// Bytes of the rest of a contraction such as `'ll`, after its apostrophe.
fn contraction(text: &str) -> Option<usize> {
    let starts =
        |with: &&&str| text.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    ["ll", "ve", "re", "s", "d", "m", "t"].iter().find(starts).map(|found| found.len())
}

#[cfg(test)]
mod tests;
