//! The layering of the top-level modules (rooms) inside the engine, which is one crate, so the compiler does not
//! enforce it.
//!
//! ARCHITECTURE.md has a fenced block `rooms` with the layers (floors) from the top down, separated by lines or by `>`.
//! A room imports rooms of lower floors, and rooms on its own floor. Tests may import anything.

use std::collections::HashSet;

use super::source::code_only;
use super::{Finding, PAGE, Tree, fenced};

/// The crate with floors.
const SOURCE: &str = "crates/metamcp-engine/src/";

const FENCE: &str = "```rooms";

/// The rooms of each floor, from the top down, with the line of the page.
struct Floors(Vec<(usize, Vec<String>)>);

pub(super) fn rooms(tree: &Tree) -> Vec<Finding> {
    let files: Vec<(&super::File, &str)> = tree
        .rust()
        .filter_map(|file| Some((file, file.path.strip_prefix(SOURCE)?)))
        .filter(|(_, within)| *within != "lib.rs")
        .collect();
    if files.is_empty() {
        return Vec::new();
    }
    let Some(floors) = Floors::find(tree) else {
        return vec![Finding::new(
            PAGE,
            0,
            format!("has no block {FENCE} with the floors of the engine"),
        )];
    };
    let mut findings = floors.against(files.iter().map(|(_, within)| room_of(within)));
    let for_tests: HashSet<String> =
        files.iter().flat_map(|(file, within)| test_modules(&file.text, within)).collect();
    for (file, within) in files {
        let is_test = for_tests.iter().any(|module| {
            within.strip_prefix(module).is_some_and(|rest| rest.starts_with(['.', '/']))
        });
        if is_test {
            continue;
        }
        let room = room_of(within);
        for (line, wanted) in imported(&file.text, within) {
            if !floors.may_import(room, &wanted) {
                findings.push(Finding::new(
                    &file.path,
                    line,
                    format!("{room} may not import {wanted}, which stands above it in {PAGE}"),
                ));
            }
        }
    }
    findings
}

fn of_floor(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|room| !room.is_empty()).map(str::to_owned).collect()
}

impl Floors {
    fn find(tree: &Tree) -> Option<Floors> {
        let floors = fenced(tree, FENCE)?
            .into_iter()
            .flat_map(|(line, text)| {
                let text = text.split('#').next().unwrap_or_default().to_owned();
                let floors: Vec<_> = text.split('>').map(|floor| (line, of_floor(floor))).collect();
                floors
            })
            .filter(|(_, rooms): &(usize, Vec<String>)| !rooms.is_empty())
            .collect();
        Some(Floors(floors))
    }

    fn floor(&self, room: &str) -> Option<usize> {
        self.0.iter().position(|(_, rooms)| rooms.iter().any(|known| known == room))
    }

    /// Anything that is not a room (a macro of the crate, say) has no floor and may be imported.
    fn may_import(&self, room: &str, wanted: &str) -> bool {
        match (self.floor(room), self.floor(wanted)) {
            (Some(from), Some(to)) => from <= to,
            _ => true,
        }
    }

    /// Checks that the list and the disk have the same rooms, each once.
    fn against<'a>(&self, on_disk: impl Iterator<Item = &'a str>) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut missing: Vec<&str> = on_disk.collect();
        missing.sort_unstable();
        missing.dedup();
        let mut seen = HashSet::new();
        for (line, room) in
            self.0.iter().flat_map(|(line, rooms)| rooms.iter().map(move |room| (line, room)))
        {
            if !seen.insert(room) {
                findings.push(Finding::new(PAGE, *line, format!("{room} stands on two floors")));
            } else if let Some(at) = missing.iter().position(|known| known == room) {
                missing.remove(at);
            } else {
                findings.push(Finding::new(PAGE, *line, format!("the engine has no room {room}")));
            }
        }
        findings.extend(missing.into_iter().map(|room| {
            Finding::new(PAGE, 0, format!("{room} is a room of the engine and on no floor"))
        }));
        findings
    }
}

/// The first part of a path under `src/`.
fn room_of(within: &str) -> &str {
    within.split('/').next().unwrap_or(within).trim_end_matches(".rs")
}

/// The top-level modules of its crate that a file names outside tests, with the line; not its own.
fn imported(text: &str, within: &str) -> Vec<(usize, String)> {
    let code = without_tests(&code_only(text));
    let room = room_of(within);
    // As many `super::` as the file is deep lead to the root: one in `a.rs`, two in `a/b.rs`.
    let depth = within.split('/').count();
    let mut found = Vec::new();
    for (at, opening) in paths(&code, depth) {
        let rest = &code[at + opening..];
        for (offset, name) in first_names(rest) {
            if name != room {
                let line = code[..at + opening + offset].matches('\n').count() + 1;
                found.push((line, name.to_owned()));
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Where paths from the root of the crate begin, and the length of their prefix.
fn paths(code: &str, depth: usize) -> Vec<(usize, usize)> {
    let begins =
        |at: usize| !code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
    let up = "super::".repeat(depth);
    let climbing = code.match_indices(&up).map(|(at, _)| (at, up.len()));
    code.match_indices("crate::")
        .map(|(at, word)| (at, word.len()))
        .chain(climbing)
        .filter(|(at, _)| begins(*at))
        .collect()
}

/// The names right after `crate::`: one, or the first of each member of a group, with their offsets.
fn first_names(rest: &str) -> Vec<(usize, &str)> {
    let Some(group) = rest.strip_prefix('{') else {
        return name_at(rest, 0).into_iter().collect();
    };
    let mut names = Vec::new();
    let mut depth = 0_usize;
    let mut begins = true;
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => begins = true,
            c if begins && depth == 0 && !c.is_whitespace() => {
                names.extend(name_at(rest, at + 1));
                begins = false;
            }
            _ => {}
        }
    }
    names
}

fn name_at(text: &str, at: usize) -> Option<(usize, &str)> {
    let name = &text[at..];
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    (end > 0).then_some((at, &name[..end]))
}

/// Files that are test-only modules, as paths under `src/` without extension: `a/tests` for `#[cfg(test)] mod tests;`
/// in `a.rs`.
fn test_modules(text: &str, within: &str) -> Vec<String> {
    let code = code_only(text);
    let folder = within.trim_end_matches(".rs");
    test_items(&code)
        .into_iter()
        .filter_map(|(start, end)| {
            let item = code[start..end].trim();
            let declared = item.strip_suffix(';')?;
            let name = declared.split_whitespace().next_back()?;
            declared
                .split_whitespace()
                .any(|word| word == "mod")
                .then(|| format!("{folder}/{name}"))
        })
        .collect()
}

/// The code with every item under `#[cfg(test)]` blanked; line numbers stay the same.
fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut from = 0;
    for (start, end) in test_items(code) {
        if start < from {
            continue;
        }
        kept.push_str(&code[from..start]);
        kept.extend(code[start..end].chars().map(|c| if c == '\n' { c } else { ' ' }));
        from = end;
    }
    kept.push_str(&code[from..]);
    kept
}

/// Where items under `#[cfg(test)]` or `#[cfg(all(test, …))]` begin and end. An item ends with its first semicolon
/// or its first closed brace.
fn test_items(code: &str) -> Vec<(usize, usize)> {
    let mut items = Vec::new();
    for opening in ["#[cfg(test)]", "#[cfg(all(test"] {
        for (start, _) in code.match_indices(opening) {
            let after = start + code[start..].find(']').map_or(opening.len(), |end| end + 1);
            let mut depth = 0_usize;
            let end = code[after..].char_indices().find_map(|(at, character)| {
                match character {
                    '{' | '(' | '[' => depth += 1,
                    ')' | ']' => depth = depth.saturating_sub(1),
                    '}' => {
                        depth = depth.saturating_sub(1);
                        return (depth == 0).then_some(after + at + 1);
                    }
                    ';' if depth == 0 => return Some(after + at + 1),
                    _ => {}
                }
                None
            });
            items.push((start, end.unwrap_or(code.len())));
        }
    }
    items.sort_unstable();
    items
}

#[cfg(test)]
mod tests;
