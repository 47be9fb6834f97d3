//! The server digest in a tool's description: agents ignore a search tool if nothing says what it searches.

use metamcp_tools::about;
use metamcp_types::text;

/// Longest description in the digest, however much room there is.
const MAX_DESCRIPTION: usize = 60;

/// Shortest description worth its line.
const MIN_DESCRIPTION: usize = 10;

/// Words that need another one after them.
const LEADING: [&str; 14] =
    ["and", "or", "as", "that", "the", "of", "for", "with", "to", "in", "on", "a", "from", "by"];

/// Longest server name in the digest.
const MAX_NAME: usize = 40;

/// Room for the digest in the description of `mcp_discover`, in tokens by our estimate: so many for two servers, and the
/// most. Six for each are allowed; the estimate is a little low for names with digits.
const ROOM_FOR_TWO: usize = 11;
const MAX_ROOM: usize = 300;

/// The room for the digest of so many servers.
pub fn digest_room(servers: usize) -> usize {
    (ROOM_FOR_TWO * servers).div_ceil(2).min(MAX_ROOM)
}

/// One server for the digest.
#[derive(Debug, Clone)]
pub struct DigestLine<'a> {
    /// Its key in the configuration.
    pub name: &'a str,
    /// From the configuration.
    pub description: Option<&'a str>,
    /// What the server says of itself, or what its tools say.
    pub about: Option<&'a str>,
}

/// One short line per server, sorted by name, at most about `budget` tokens in all. Descriptions shrink first, evenly;
/// then they go; then the last names are counted instead.
pub fn digest(servers: &[DigestLine<'_>], budget: usize) -> String {
    let mut lines: Vec<(String, String)> = servers.iter().map(name_and_description).collect();
    lines.sort();
    let longest = lines.iter().map(|(_, words)| words.chars().count()).max().unwrap_or(0);
    for cap in (MIN_DESCRIPTION..=longest.max(MIN_DESCRIPTION)).rev() {
        let written: Vec<String> = lines.iter().map(|line| line_within(line, cap)).collect();
        let text = written.join("\n");
        if room(&text) <= budget {
            return text;
        }
    }
    names_only(&lines, budget)
}

fn name_and_description(server: &DigestLine<'_>) -> (String, String) {
    let name = text::clean_line(server.name, MAX_NAME).into_owned();
    let words = server
        .description
        .filter(|words| !words.trim().is_empty())
        .or(server.about)
        .unwrap_or_default();
    let words = about::telling_sentence(&text::clean_line(words, 400), 400);
    let words = whole_words(words.trim_end_matches('.'), MAX_DESCRIPTION).to_owned();
    // A title that only repeats the name says nothing, and one that gives orders says too much.
    let repeats = words.eq_ignore_ascii_case(&name);
    let words =
        if repeats || text::looks_poisoned(&words).is_some() { String::new() } else { words };
    (name, words)
}

fn line_within((name, words): &(String, String), cap: usize) -> String {
    let words = whole_words(words, cap);
    if words.is_empty() { name.clone() } else { format!("{name}: {words}") }
}

/// As many whole words as fit; a mark for the cut would cost as much as it says.
fn whole_words(words: &str, cap: usize) -> &str {
    let Some((end, next)) = words.char_indices().nth(cap) else { return words };
    let cut = if next == ' ' { end } else { words[..end].rfind(' ').unwrap_or(end) };
    let mut kept = &words[..cut];
    loop {
        kept = kept.trim_end_matches([' ', ',', ':', ';', '-']);
        // A word that only leads to the next one says nothing at the end.
        match kept.rsplit_once(' ') {
            Some((before, last)) if LEADING.contains(&last) => kept = before,
            _ => return kept,
        }
    }
}

fn names_only(lines: &[(String, String)], budget: usize) -> String {
    let mut text = String::new();
    let mut used = 0;
    for (index, (name, _)) in lines.iter().enumerate() {
        let rest = format!("+{} more", lines.len() - index);
        let length = room(name) + 1;
        let is_last = index + 1 == lines.len();
        let needed = if is_last { length - 1 } else { length + room(&rest) };
        if used + needed > budget {
            if used + room(&rest) <= budget {
                text.push_str(&rest);
            }
            return text;
        }
        text.push_str(name);
        if !is_last {
            text.push_str(", ");
        }
        used += length;
    }
    text
}

/// About how many tokens a text costs: words of a few letters are one, signs one each, a space belongs to what follows.
fn room(text: &str) -> usize {
    let mut tokens = 0;
    let mut run = 0;
    let mut before = ' ';
    for c in text.chars() {
        let kind = |c: char| (c.is_ascii_alphabetic(), c.is_ascii_digit());
        if c.is_ascii_alphanumeric() {
            if kind(c) != kind(before) {
                run = 0;
            }
            let most = if c.is_ascii_digit() { 3 } else { 8 };
            tokens += usize::from(run % most == 0);
            run += 1;
        } else {
            tokens += if c == ' ' { 0 } else { c.len_utf8() };
            run = 0;
        }
        before = c;
    }
    tokens
}
