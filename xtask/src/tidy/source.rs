//! Rules on Rust source. Comments and strings are blanked first: mentioning a thing is not using it.

use super::{Finding, PURE, Tree, in_crate};

/// Files with more lines get a warning.
const SOFT_LINES: usize = 400;
/// Files with more lines are an error.
const HARD_LINES: usize = 800;

/// What a pure crate must not name, and what to do instead.
const IMPURE: &[(&str, &str)] = &[
    ("tokio", "act in the engine, decide here"),
    ("std::fs", "read and write files in the engine"),
    ("std::net", "talk in the engine"),
    ("std::env", "take the value as an argument"),
    ("std::process", "start processes in metamcp-child"),
    ("Instant::now", "be told the time as a Moment"),
    ("SystemTime", "be told the time as a Moment"),
    ("getrandom", "be given the random number"),
];

/// Words that say nothing about what they name. Terms of the field, handler or proxy, do say something.
const EMPTY_WORDS: &[&str] = &["helper", "helpers", "util", "utils", "misc"];

pub(super) fn purity(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let pure = in_crate(&file.path)
            .is_some_and(|(folder, within)| PURE.contains(&folder) && within.starts_with("src/"));
        if !pure {
            continue;
        }
        for (line, code) in spelled_out(&code_only(&file.text)) {
            for (name, cure) in IMPURE {
                if names_path(&code, name) {
                    findings.push(Finding::new(
                        &file.path,
                        line,
                        format!("names `{name}`; {cure}"),
                    ));
                }
            }
        }
    }
    findings
}

pub(super) fn size(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter_map(|file| {
            let lines = file.text.lines().count();
            if lines > HARD_LINES {
                Some(Finding::new(
                    &file.path,
                    0,
                    format!("{lines} lines; {HARD_LINES} is the most, split it"),
                ))
            } else if lines > SOFT_LINES {
                Some(Finding::warning(
                    &file.path,
                    format!("{lines} lines; past {SOFT_LINES} think of splitting it"),
                ))
            } else {
                None
            }
        })
        .collect()
}

pub(super) fn layout(tree: &Tree) -> Vec<Finding> {
    tree.rust()
        .filter(|file| file.path.ends_with("/mod.rs"))
        .map(|file| {
            Finding::new(&file.path, 0, "a room's door is room.rs beside room/, not mod.rs")
        })
        .collect()
}

pub(super) fn ignored(tree: &Tree) -> Vec<Finding> {
    found(tree, &["#[ignore"], "run the test or delete it")
}

pub(super) fn leftovers(tree: &Tree) -> Vec<Finding> {
    found(tree, &["todo!", "dbg!", "unimplemented!"], "finish it or take it out")
}

pub(super) fn allowed(tree: &Tree) -> Vec<Finding> {
    let mut findings = found(
        tree,
        &["#[allow(", "#![allow("],
        "write `#[expect(lint, reason = \"...\")]` instead",
    );
    for file in tree.rust() {
        for (line, attribute) in attributes(&code_only(&file.text), "[expect(") {
            if !attribute.contains("reason") {
                findings.push(Finding::new(&file.path, line, "an expectation says its reason"));
            }
        }
    }
    findings
}

pub(super) fn names(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let is_empty = |word: &&String| EMPTY_WORDS.contains(&word.as_str());
        let stem = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        for word in words(stem).iter().filter(is_empty) {
            findings.push(Finding::new(
                &file.path,
                0,
                format!("the file's name says `{word}`, which says nothing"),
            ));
        }
        for (index, line) in code_only(&file.text).lines().enumerate() {
            let Some((kind, name)) = definition(line) else { continue };
            // `get_mut` is what the standard library calls it.
            if kind == "fn" && name.starts_with("get_") && name != "get_mut" {
                let better = name.trim_start_matches("get_");
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    format!("`{name}` is `{better}`"),
                ));
            }
            for word in words(name).iter().filter(is_empty) {
                let message = format!("`{name}` says `{word}`, which says nothing");
                findings.push(Finding::new(&file.path, index + 1, message));
            }
        }
    }
    findings
}

/// Every line of code with one of the needles.
fn found(tree: &Tree, needles: &[&str], cure: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        for (index, line) in code_only(&file.text).lines().enumerate() {
            for needle in needles.iter().filter(|needle| names_path(line, needle)) {
                findings.push(Finding::new(&file.path, index + 1, format!("`{needle}`: {cure}")));
            }
        }
    }
    findings
}

/// The item a line defines: its keyword and name.
fn definition(line: &str) -> Option<(&str, &str)> {
    let mut rest = line.trim_start();
    loop {
        let end = rest.find(|c: char| c.is_whitespace() || c == '(')?;
        let (word, after) = rest.split_at(end);
        match word {
            "pub" => {
                // `pub(crate)` and its like
                let inside = after.strip_prefix('(').and_then(|inside| inside.split_once(')'));
                rest = inside.map_or(after, |(_, after)| after).trim_start();
            }
            "async" | "const" | "unsafe" | "extern" if after.trim_start().starts_with("fn ") => {
                rest = after.trim_start();
            }
            "fn" | "struct" | "enum" | "trait" | "mod" | "type" | "const" | "static" | "union" => {
                let name = after.trim_start();
                let end =
                    name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
                return Some((word, &name[..end]));
            }
            _ => return None,
        }
    }
}

/// The words of `snake_case` and `CamelCase`, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for character in name.chars() {
        if character == '_' || character == '-' {
            words.push(String::new());
            continue;
        }
        if character.is_uppercase()
            && words.last().is_some_and(|word| word.ends_with(char::is_lowercase))
        {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            // Case separates the words, so it is lowered only at the end.
            word.push(character);
        }
    }
    words.into_iter().map(|word| word.to_lowercase()).filter(|word| !word.is_empty()).collect()
}

/// Whether a line contains a path as a whole: `std::env` but not `std::envy`, `tokio` but not `tokio_like`.
fn names_path(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let part = |c: char| c.is_alphanumeric() || c == '_';
        let before = line[..at].chars().next_back();
        let after = line[at + name.len()..].chars().next();
        let open = !name.starts_with(part) || !before.is_some_and(part);
        let closed = !name.ends_with(part) || !after.is_some_and(part);
        open && closed
    })
}

/// The lines of the code, with `use std::{env, fs}` also spelled as `std::env std::fs`.
fn spelled_out(code: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> =
        code.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned())).collect();
    for (at, _) in code.match_indices("std::{") {
        let group = &code[at + "std::{".len()..];
        let mut depth = 0_usize;
        let mut member = String::new();
        let mut line = code[..at].matches('\n').count() + 1;
        for character in group.chars() {
            match character {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    lines.push((line, format!("std::{}", member.trim())));
                    member.clear();
                    continue;
                }
                '\n' => line += 1,
                _ => {}
            }
            member.push(character);
        }
        lines.push((line, format!("std::{}", member.trim())));
    }
    lines
}

/// The complete attributes that begin with `opening`, with their first line.
fn attributes<'a>(code: &'a str, opening: &'a str) -> impl Iterator<Item = (usize, &'a str)> {
    code.match_indices(opening).map(move |(at, _)| {
        let mut depth = 0_usize;
        let end = code[at..]
            .char_indices()
            .find(|(_, c)| {
                match c {
                    '[' => depth += 1,
                    ']' => depth -= 1,
                    _ => {}
                }
                depth == 0
            })
            .map_or(code.len(), |(length, _)| at + length);
        (code[..at].matches('\n').count() + 1, &code[at..end])
    })
}

/// The source with comments, strings and character literals replaced by spaces; line numbers stay the same.
pub(super) fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        let skipped = not_code(rest, code.chars().next_back());
        if skipped == 0 {
            code.push(character);
            rest = &rest[character.len_utf8()..];
        } else {
            code.extend(rest[..skipped].chars().map(|c| if c == '\n' { c } else { ' ' }));
            rest = &rest[skipped..];
        }
    }
    code
}

/// The length in bytes of a comment, string or character literal that begins here; zero where code begins.
fn not_code(rest: &str, before: Option<char>) -> usize {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment(rest);
    }
    if rest.starts_with('"') {
        return quoted(rest, '"');
    }
    if rest.starts_with('\'') {
        return character(rest);
    }
    if in_word {
        return 0;
    }
    let prefix = ["br", "cr", "r"].iter().find(|prefix| rest.starts_with(**prefix));
    let Some(prefix) = prefix else { return 0 };
    let hashes = rest[prefix.len()..].chars().take_while(|c| *c == '#').count();
    let opening = prefix.len() + hashes;
    if !rest[opening..].starts_with('"') {
        return 0;
    }
    let closing = format!("\"{}", "#".repeat(hashes));
    let body = opening + 1;
    rest[body..].find(&closing).map_or(rest.len(), |end| body + end + closing.len())
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `'a'` is a character literal, `'a` is a lifetime.
fn character(rest: &str) -> usize {
    let mut following = rest.chars().skip(1);
    match (following.next(), following.next()) {
        (Some('\\'), _) | (Some(_), Some('\'')) => quoted(rest, '\''),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
