//! What a server is for, in a few words: what it says itself, or what the names of its tools say.
//! Owns: which of a server's own words tell something, the words made of tool names.      Never: asks a server or a model; the same list gives the same words.
//! In: a server's name, its own texts, its tools.  Out: one short line, or nothing.
//! Tests: `about/tests.rs`.

use metamcp_types::text;

use crate::names;
use crate::tool::ServerTools;

#[cfg(test)]
mod tests;

/// Longest line, in characters.
pub const MAX_CHARS: usize = 120;

/// Longest line made of tool names, and the most phrases of it: about ten words.
const MAX_MADE_CHARS: usize = 64;
const MAX_PHRASES: usize = 6;

/// Up to so many tools are told by their names alone.
const FEW_TOOLS: usize = 3;

/// Tools that are looked at; the largest servers repeat themselves.
const MAX_LOOKED_AT: usize = 200;

/// Words that say nothing about a server.
const EMPTY_WORDS: [&str; 20] = [
    "mcp", "server", "servers", "the", "a", "an", "for", "of", "official", "model", "context",
    "protocol", "service", "api", "tools", "tool", "my", "by", "and", "test",
];

/// How instructions begin that say what to do, not what the server is for.
const ORDERS: [&str; 18] = [
    "use",
    "call",
    "always",
    "never",
    "search",
    "when",
    "if",
    "before",
    "do",
    "please",
    "you",
    "read",
    "make",
    "ask",
    "start",
    "remember",
    "all",
    "everything",
];

/// What tools do; the rest of a name says with what.
const VERBS: [&str; 44] = [
    "get", "list", "create", "delete", "update", "read", "write", "search", "find", "add",
    "remove", "set", "run", "execute", "fetch", "edit", "query", "describe", "show", "open",
    "close", "start", "stop", "send", "upload", "download", "check", "move", "copy", "insert",
    "put", "post", "patch", "view", "call", "make", "do", "is", "has", "load", "save", "batch",
    "bulk", "manage",
];

/// What a server says it is for: its title, if that is more than a name, else the first sentence of its description or
/// instructions, else words made of its tools.
pub fn of(server: &str, tools: &ServerTools) -> Option<String> {
    let title = tools.server_title.as_deref().filter(|title| tells(title, server));
    let is_order =
        |said: &str| split(said).first().is_some_and(|first| ORDERS.contains(&first.as_str()));
    let said = || {
        let about = tools.server_about.as_deref();
        about.filter(|about| tells(about, server) && !is_order(about))
    };
    match title.or_else(said) {
        Some(own) => Some(own.to_owned()),
        None => made_of(server, tools),
    }
}

/// The sentence of a text that says what something does: warnings and orders in front of it are passed over.
pub fn telling_sentence(whole: &str, max_chars: usize) -> String {
    let mut rest = whole.trim_start();
    for _ in 0..4 {
        let sentence = text::first_sentence(rest, usize::MAX);
        if !is_warning(&sentence) {
            break;
        }
        let after = text::after_sentence(rest).trim_start();
        if after.is_empty() {
            break;
        }
        rest = after;
    }
    text::first_sentence(rest, max_chars)
}

/// Whether a sentence warns instead of telling: it starts with a word that does, in capitals or with a colon.
fn is_warning(sentence: &str) -> bool {
    let start = sentence.trim_start_matches(|c: char| !c.is_alphanumeric());
    let word: String = start.chars().take_while(|c| c.is_alphabetic()).collect();
    let is_marked = word.chars().count() > 3 && word.chars().all(char::is_uppercase)
        || start[word.len()..].trim_start_matches(['*', ' ']).starts_with([':', '!', '-', '—']);
    let lower = word.to_lowercase();
    let warns = ["warning", "deprecated", "important", "note", "caution", "attention", "notice"]
        .contains(&lower.as_str());
    warns && (is_marked || start.len() == word.len() || lower == "deprecated")
}

/// Whether words say more than a name does.
fn tells(words: &str, server: &str) -> bool {
    if !words.contains(char::is_whitespace) || names::same(words, server) {
        return false;
    }
    let own = split(server);
    let says = |word: &String| !EMPTY_WORDS.contains(&word.as_str()) && !own.contains(word);
    split(words).iter().any(says)
}

/// Words made of the names of tools: the names themselves of a few, else what they are about, most frequent first.
fn made_of(server: &str, tools: &ServerTools) -> Option<String> {
    let own = split(server);
    let mut all: Vec<Vec<String>> =
        tools.tools.iter().take(MAX_LOOKED_AT).map(|tool| split(&tool.name)).collect();
    all.retain(|words| !words.is_empty());
    strip_shared(&mut all, &own);
    if all.len() <= FEW_TOOLS {
        return joined(all.iter().map(|words| words.join(" ")));
    }
    // A name without a verb, or of a verb alone, is told as it is.
    for words in all.iter_mut().filter(|words| words.len() > 1) {
        words.pop_if(|last| last == "tool");
    }
    let subject = |words: &Vec<String>| match words.split_first() {
        Some((verb, rest)) if !rest.is_empty() && VERBS.contains(&verb.as_str()) => rest.to_vec(),
        _ => words.clone(),
    };
    let subjects: Vec<Vec<String>> = all.iter().map(subject).collect();
    let mut counted: Vec<(Vec<String>, usize)> = Vec::new();
    for words in &subjects {
        let head = |one: &[String]| one.iter().map(|word| singular(word)).collect::<Vec<_>>();
        let mine = head(words);
        let related = |other: &[String]| {
            let other = head(other);
            mine.ends_with(&other) || other.ends_with(&mine)
        };
        match counted.iter_mut().find(|(other, _)| related(other)) {
            Some((other, count)) => {
                *count += 1;
                if words.len() < other.len() {
                    other.clone_from(words);
                }
            }
            None => counted.push((words.clone(), 1)),
        }
    }
    // Stable: of the same number the server's own order decides.
    counted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    joined(counted.iter().map(|(words, _)| words.join(" ")))
}

fn joined(phrases: impl Iterator<Item = String>) -> Option<String> {
    let mut line = String::new();
    for phrase in phrases.take(MAX_PHRASES) {
        let length = line.chars().count() + phrase.chars().count() + 2;
        if length > MAX_MADE_CHARS && !line.is_empty() {
            break;
        }
        if !line.is_empty() {
            line.push_str(", ");
        }
        line.push_str(&phrase);
    }
    let line = text::clean_line(&line, MAX_MADE_CHARS).into_owned();
    (!line.is_empty()).then_some(line)
}

/// Takes away what every name begins with, and the server's own name.
fn strip_shared(all: &mut [Vec<String>], server: &[String]) {
    let is_shared = |all: &[Vec<String>]| {
        let first = all.first().and_then(|words| words.first());
        all.len() > 1
            && first.is_some_and(|first| !VERBS.contains(&first.as_str()))
            && all.iter().all(|words| words.len() > 1 && words.first() == first)
    };
    while is_shared(all) {
        for words in all.iter_mut() {
            words.remove(0);
        }
    }
    for words in all.iter_mut() {
        if words.len() > server.len() && !server.is_empty() && words.starts_with(server) {
            words.drain(..server.len());
        }
    }
}

/// The words of a name in lower case: split at signs and where a capital begins a word.
fn split(name: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = '_';
    for c in name.chars().take(128) {
        if !c.is_alphanumeric() {
            before = '_';
            continue;
        }
        let begins = !before.is_alphanumeric() || (c.is_uppercase() && !before.is_uppercase());
        if begins || words.is_empty() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words
}

fn singular(word: &str) -> String {
    match word.strip_suffix("ies") {
        Some(stem) if stem.len() > 1 => format!("{stem}y"),
        _ if word.ends_with("ss") || word.ends_with("us") || word.len() < 4 => word.to_owned(),
        _ => word.strip_suffix('s').unwrap_or(word).to_owned(),
    }
}
