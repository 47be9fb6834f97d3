//! Rules on ARCHITECTURE.md: short enough to be read, and it names every top-level module (room).

use super::{Finding, PAGE, PURE, Tree};

/// One sitting; what does not fit belongs under docs/ or into a module's header.
const LINES: usize = 250;

/// Crates whose modules must be on the page, besides the pure ones.
const MAPPED: &[&str] = &["crates/metamcp-engine"];

pub(super) fn map(tree: &Tree) -> Vec<Finding> {
    let Some(page) = tree.file(PAGE) else {
        return vec![Finding::new(PAGE, 0, "there is no map")];
    };
    let mut findings = Vec::new();
    let lines = page.text.lines().count();
    if lines > LINES {
        findings.push(Finding::new(PAGE, 0, format!("{lines} lines; {LINES} is the most")));
    }
    let named = code_spans(&page.text);
    for (folder, room) in rooms(tree) {
        let is_named = named.iter().any(|span| {
            span.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        if !is_named {
            findings.push(Finding::new(
                &format!("{folder}/src/{room}.rs"),
                0,
                format!("{PAGE} does not name the room `{room}`"),
            ));
        }
    }
    findings
}

/// The top-level modules of those crates, with the folder of their crate.
fn rooms(tree: &Tree) -> impl Iterator<Item = (&str, &str)> {
    tree.rust().filter_map(|file| {
        let (folder, within) = super::in_crate(&file.path)?;
        let room = within.strip_prefix("src/")?.strip_suffix(".rs")?;
        let mapped = PURE.contains(&folder) || MAPPED.contains(&folder);
        (mapped && !room.contains('/') && room != "lib").then_some((folder, room))
    })
}

/// The contents of code spans, outside fenced blocks.
fn code_spans(page: &str) -> Vec<&str> {
    let mut spans = Vec::new();
    let mut in_fence = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence {
            spans.extend(line.split('`').skip(1).step_by(2));
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(page: &str) -> Vec<String> {
        let tree = Tree::of(&[
            (PAGE, page),
            ("crates/metamcp-engine/src/lib.rs", ""),
            ("crates/metamcp-engine/src/router.rs", ""),
            ("crates/metamcp-engine/src/router/connect.rs", ""),
            ("crates/metamcp-wire/src/frame.rs", ""),
            ("crates/metamcp/src/args.rs", ""),
        ]);
        map(&tree).into_iter().map(|f| format!("{} {}", f.path, f.message)).collect()
    }

    #[test]
    fn every_room_is_named_between_backticks() {
        assert_eq!(found("| `router`, `frame` | bytes |\n"), [""; 0]);
        assert_eq!(found("| `router/{connect,lost}` and `frame` |\n"), [""; 0]);
        assert_eq!(
            found("```\n`frame`\n```\nThe frame of a `router`, `frames`.\n"),
            ["crates/metamcp-wire/src/frame.rs ARCHITECTURE.md does not name the room `frame`"]
        );
    }

    #[test]
    fn a_long_map_is_refused() {
        let fine = format!("`router` `frame`\n{}", "a\n".repeat(LINES - 1));
        assert_eq!(found(&fine), [""; 0]);
        assert_eq!(found(&format!("{fine}a\n")), ["ARCHITECTURE.md 251 lines; 250 is the most"]);
        assert_eq!(map(&Tree::of(&[])).len(), 1);
    }
}
