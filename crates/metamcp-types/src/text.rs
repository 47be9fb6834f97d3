//! Sanitizes untrusted text: no invisible characters, no terminal escapes, bounded.
//! Owns: what is stripped, where text is cut, what looks like an attack.      Never: blocks anything; a flag is a hint.
//! In: any string.  Out: cleaned text, its first sentence, a reason to distrust it.
//! Tests: `text/tests.rs`.

mod poison;

use std::borrow::Cow;
use std::fmt::Write as _;

pub use poison::{flag_in_words, looks_poisoned, mixes_scripts};

/// A length of time for people: whole milliseconds below a second, tenths of seconds above.
pub fn duration(length: std::time::Duration) -> String {
    let millis = length.as_millis();
    if millis < 1000 { format!("{millis} ms") } else { format!("{:.1} s", length.as_secs_f64()) }
}

/// Input as it may be repeated in a message: short and without control characters.
pub fn shown(text: &str) -> String {
    const LONGEST: usize = 40;
    let mut shown: String =
        text.chars().take(LONGEST).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(LONGEST).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;

/// Longest terminal control string that is swallowed whole. A longer one loses only its introducer,
/// so that an unterminated one cannot hide the text after it.
const MAX_CONTROL_STRING: usize = 256;

/// Marks a cut.
const ELLIPSIS: char = '…';

/// `text` without terminal escapes, control, direction, zero-width and tag characters, at most
/// `max_chars` characters long. Line breaks stay, tabs become spaces.
pub fn clean(text: &str, max_chars: usize) -> Cow<'_, str> {
    let plain =
        text.len() <= max_chars && text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n'));
    if plain {
        return Cow::Borrowed(text);
    }
    Cow::Owned(cut_owned(visible(text, max_chars), max_chars))
}

/// The same on one line: every run of white space becomes one space, none at the ends.
pub fn clean_line(text: &str, max_chars: usize) -> Cow<'_, str> {
    let plain = text.len() <= max_chars
        && text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        && !text.starts_with(' ')
        && !text.ends_with(' ')
        && !text.contains("  ");
    if plain {
        return Cow::Borrowed(text);
    }
    let mut line = String::new();
    let mut taken = 0;
    for word in visible(text, usize::MAX).split_whitespace() {
        // One more than fits is enough for the cut to know that something is missing.
        if taken > max_chars.saturating_add(1) {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        taken += word.chars().count() + 1;
    }
    Cow::Owned(cut_owned(line, max_chars))
}

/// The first `max_chars` characters of `text`, without a mark where something is missing.
pub fn start(text: &str, max_chars: usize) -> &str {
    if text.len() <= max_chars {
        return text;
    }
    text.char_indices().nth(max_chars).map_or(text, |(end, _)| &text[..end])
}

/// `text` cut to `max_chars` characters, the last being an ellipsis where something is missing.
pub fn cut(text: &str, max_chars: usize) -> Cow<'_, str> {
    if text.len() <= max_chars {
        return Cow::Borrowed(text);
    }
    let mut ends = text.char_indices().map(|(at, _)| at);
    let Some(keep) = max_chars.checked_sub(1) else { return Cow::Borrowed("") };
    let Some(end) = ends.nth(keep) else { return Cow::Borrowed(text) };
    if ends.next().is_none() {
        return Cow::Borrowed(text);
    }
    let mut short = String::with_capacity(end + ELLIPSIS.len_utf8());
    short.push_str(text[..end].trim_end());
    short.push(ELLIPSIS);
    Cow::Owned(short)
}

/// The first sentence of already cleaned text, on one line, at most `max_chars` long.
pub fn first_sentence(text: &str, max_chars: usize) -> String {
    let text = text.trim_start();
    clean_line(&text[..sentence_end(text)], max_chars).into_owned()
}

/// What follows the first sentence of already cleaned text.
pub fn after_sentence(text: &str) -> &str {
    let text = text.trim_start();
    &text[sentence_end(text)..]
}

/// Characters a reader cannot see but a model can: they never belong in a name or a description.
pub fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{00ad}' | '\u{034f}' | '\u{061c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Characters that cannot be seen or that move what is around them: [`is_hidden`], controls, line separators, and
/// selectors that may follow one another without end.
pub fn is_unseen(c: char) -> bool {
    is_hidden(c)
        || c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{fe00}'..='\u{fe0f}' | '\u{2800}')
}

/// A run of spaces longer than this is counted: it would push what follows out of sight.
const LONGEST_GAP: usize = 8;

/// `text` on one line with everything spelt out that cannot be seen, for a person who has to know exactly what is
/// there: nothing is taken away, as [`clean`] does. What is longer than `max_chars` is cut, and says by how much.
pub fn spelt(text: &str, max_chars: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max_chars));
    let mut rest = text.chars().peekable();
    let mut taken = 0;
    while let Some(c) = rest.next() {
        if taken >= max_chars {
            let left = 1 + rest.count();
            write!(out, "[cut: {left} more characters]").expect("writing to a string cannot fail");
            break;
        }
        taken += 1;
        // Spaces of every width look like one.
        if c == ' ' || (c.is_whitespace() && !is_unseen(c)) {
            let mut gap = 1;
            while rest.next_if_eq(&c).is_some() {
                gap += 1;
            }
            taken += gap - 1;
            match (gap, c) {
                (1..=LONGEST_GAP, ' ') => out.extend(std::iter::repeat_n(' ', gap)),
                (1..=LONGEST_GAP, _) => (0..gap).for_each(|_| out.extend(c.escape_unicode())),
                _ => write!(out, "[{gap} spaces]").expect("writing to a string cannot fail"),
            }
        } else if is_unseen(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Whether [`spelt`] cuts.
pub fn is_longer(text: &str, max_chars: usize) -> bool {
    text.len() > max_chars && text.chars().nth(max_chars).is_some()
}

/// Whether `text` holds characters that hide or disguise something: tags, direction overrides,
/// runs of variation selectors, terminal escapes. A lone joiner or byte-order mark does not count,
/// because honest text in several scripts and emoji need them.
pub fn hides_something(text: &str) -> bool {
    let mut selectors = 0;
    let mut invisible = 0;
    for c in text.chars() {
        match c {
            '\u{1b}' | '\u{9b}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => return true,
            '\u{e0000}'..='\u{e0fff}' => return true,
            '\u{fe00}'..='\u{fe0f}' => selectors += 1,
            '\u{200c}' | '\u{200d}' => selectors = 0,
            c if is_hidden(c) => {
                invisible += 1;
                selectors = 0;
            }
            _ => selectors = 0,
        }
        if selectors > 1 || invisible > 2 {
            return true;
        }
    }
    false
}

/// JSON with characters nobody can see spelt as escapes, which mean the same.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    let unseen = |c: char| is_hidden(c) || (c.is_control() && c != '\n');
    if json.is_ascii() && !json.bytes().any(|byte| byte.is_ascii_control() && byte != b'\n') {
        return Cow::Borrowed(json);
    }
    if !json.contains(unseen) {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        match c {
            // Outside strings only white space can be unseen; inside, control characters are already escaped.
            '\t' | '\r' => out.push(' '),
            c if unseen(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(out, "\\u{unit:04x}").expect("writing to a string cannot fail");
                }
            }
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Everything visible of `text`; stops soon after `max_chars` characters were kept.
fn visible(text: &str, max_chars: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max_chars.saturating_mul(4)));
    let mut kept = 0usize;
    let mut last = '\0';
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if kept > max_chars {
            break;
        }
        let after = &rest[c.len_utf8()..];
        rest = match c {
            '\u{1b}' => skip_escape(after),
            '\u{9b}' => skip_sequence(after),
            '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => skip_string(after),
            _ => after,
        };
        let shown = match c {
            '\n' => Some('\n'),
            '\r' if after.starts_with('\n') => None,
            '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' => Some('\n'),
            '\t' | '\u{b}' | '\u{c}' => Some(' '),
            // One selector may choose an emoji's look; a run of them is a message in disguise.
            '\u{fe0e}' | '\u{fe0f}' if !last.is_ascii_alphabetic() && !is_selector(last) => Some(c),
            c if c.is_control() || is_hidden(c) || is_selector(c) => None,
            c => Some(c),
        };
        if let Some(shown) = shown {
            out.push(shown);
            kept += 1;
            last = shown;
        }
    }
    out
}

fn is_selector(c: char) -> bool {
    matches!(c, '\u{fe00}'..='\u{fe0f}')
}

/// What follows the escape character belongs to it: a sequence, a string, or one or two characters.
fn skip_escape(rest: &str) -> &str {
    match rest.chars().next() {
        Some('[') => skip_sequence(&rest[1..]),
        Some(']' | 'P' | 'X' | '^' | '_') => skip_string(&rest[1..]),
        Some(' '..='/') => skip_one(&rest[1..]),
        Some('0'..='~') => &rest[1..],
        _ => rest,
    }
}

/// Parameters, then one final character.
fn skip_sequence(rest: &str) -> &str {
    let body = rest.trim_start_matches(|c| matches!(c, ' '..='?'));
    if rest.len() - body.len() > MAX_CONTROL_STRING {
        return rest;
    }
    skip_one(body)
}

fn skip_one(rest: &str) -> &str {
    match rest.chars().next() {
        Some('0'..='~') => &rest[1..],
        _ => rest,
    }
}

/// A string ends with a bell or a string terminator, on the same line and before long, or it is not one.
fn skip_string(rest: &str) -> &str {
    for (at, c) in rest.char_indices().take(MAX_CONTROL_STRING) {
        match c {
            '\u{7}' | '\u{9c}' => return &rest[at + c.len_utf8()..],
            '\u{1b}' if rest[at + 1..].starts_with('\\') => return &rest[at + 2..],
            '\n' | '\u{1b}' => return rest,
            _ => {}
        }
    }
    rest
}

fn cut_owned(text: String, max_chars: usize) -> String {
    match cut(&text, max_chars) {
        Cow::Owned(short) => short,
        Cow::Borrowed(same) if same.len() == text.len() => text,
        Cow::Borrowed(same) => same.to_owned(),
    }
}

/// Where the first sentence ends: at a blank line, or at a full stop with white space and no
/// lower-case word after it, which spares most abbreviations.
fn sentence_end(text: &str) -> usize {
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        let after = &text[end..];
        match c {
            '\n' if after
                .trim_start_matches([' ', '\r'])
                .starts_with(['\n', '-', '*', '#', '<']) =>
            {
                return at;
            }
            '。' | '！' | '？' => return end,
            '.' | '!' | '?' if after.is_empty() => return end,
            '.' | '!' | '?' if after.starts_with(char::is_whitespace) => {
                let next = after.trim_start().chars().next();
                let abbreviation = c == '.' && (before == '.' || single_letter(text, at));
                if !abbreviation && !next.is_some_and(char::is_lowercase) {
                    return end;
                }
            }
            _ => {}
        }
        before = c;
    }
    text.len()
}

/// `e.g.`, `J. Doe`: the stop at `at` follows a letter that stands alone.
fn single_letter(text: &str, at: usize) -> bool {
    let mut back = text[..at].chars().rev();
    back.next().is_some_and(char::is_alphabetic)
        && back.next().is_some_and(|c| c == '.' || c.is_whitespace())
}
