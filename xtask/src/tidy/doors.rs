//! The four-line header that each module file (its door) opens with.

use super::{Finding, Tree, in_crate};

/// Minimum lines of a header: what it is; owns and never; in and out; tests.
const LINES: usize = 4;
const WORDS: &[&str] = &["Owns:", "Never:", "Tests:"];

/// A door is a top-level file of a crate, or a file that has a folder of the same name.
pub(super) fn doors(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| is_door(tree, &file.path)) {
        let header: Vec<&str> =
            file.text.lines().take_while(|line| line.starts_with("//!")).collect();
        if header.len() < LINES {
            findings.push(Finding::new(
                &file.path,
                1,
                format!("a door opens with {LINES} lines of `//!`: what it is, Owns and Never, In and Out, Tests"),
            ));
            continue;
        }
        for word in WORDS {
            if !header.iter().any(|line| line.contains(word)) {
                findings.push(Finding::new(
                    &file.path,
                    1,
                    format!("the door does not say `{word}`"),
                ));
            }
        }
    }
    findings
}

fn is_door(tree: &Tree, path: &str) -> bool {
    let Some((_, within)) = in_crate(path) else { return false };
    let Some(room) = within.strip_prefix("src/").and_then(|rest| rest.strip_suffix(".rs")) else {
        return false;
    };
    // Crate roots and test modules need no header.
    if matches!(room, "lib" | "main") || room.starts_with("bin/") || room.ends_with("/tests") {
        return false;
    }
    let folder = format!("{}/", path.trim_end_matches(".rs"));
    // A folder with only the tests of its file does not count.
    let mut inside = tree.files.iter().filter_map(|file| file.path.strip_prefix(&folder));
    !room.contains('/') || inside.any(|name| name != "tests.rs" && !name.starts_with("snapshots/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "//! A room.\n//! Owns: a. Never: b.\n//! In: c.  Out: d.\n//! Tests: below.\n\nfn a() {}\n";

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        doors(&Tree::of(files))
            .into_iter()
            .map(|finding| format!("{} {}", finding.path, finding.message))
            .collect()
    }

    #[test]
    fn a_room_without_its_lines_is_found() {
        let found = messages(&[("crates/a/src/room.rs", "//! A room.\nfn a() {}\n")]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/a/src/room.rs a door opens with 4 lines"),
            "{found:?}"
        );
    }

    #[test]
    fn a_missing_word_is_named() {
        let text = GOOD.replace("Never", "Rarely");
        assert_eq!(
            messages(&[("crates/a/src/room.rs", &text)]),
            ["crates/a/src/room.rs the door does not say `Never:`"]
        );
    }

    #[test]
    fn interiors_and_roots_need_no_door() {
        let bare = "fn a() {}\n";
        assert!(
            messages(&[
                ("crates/a/src/lib.rs", bare),
                ("crates/a/src/room.rs", GOOD),
                ("crates/a/src/room/inner.rs", bare),
                ("crates/a/src/room/inner/tests.rs", bare),
                ("crates/a/src/room/tests.rs", bare),
                ("crates/a/src/room/tests/more.rs", bare),
                ("crates/a/src/bin/tool.rs", bare),
                ("crates/a/tests/it/main.rs", bare),
            ])
            .is_empty()
        );
    }

    #[test]
    fn an_interior_with_a_folder_is_a_door() {
        let bare = "fn a() {}\n";
        let found = messages(&[
            ("crates/a/src/room.rs", GOOD),
            ("crates/a/src/room/inner.rs", bare),
            ("crates/a/src/room/inner/deep.rs", bare),
        ]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/a/src/room/inner.rs"), "{found:?}");
    }
}
