//! Rules on the Cargo.toml files: which crate imports which, and why each dependency is needed.
//!
//! The files are parsed line by line: ours have one dependency per line, and a full TOML parser would be one more
//! dependency for a dev tool.

use super::{Finding, PAGE, Tree, fenced};

/// The fence that opens the table in ARCHITECTURE.md.
const FENCE: &str = "```imports";

/// A crate that any other may use in its tests.
const FOR_TESTS: &str = "testkit";

/// Each crate, with its line on the page and the crates it may import.
struct Table(Vec<(usize, String, Vec<String>)>);

pub(super) fn imports(tree: &Tree) -> Vec<Finding> {
    let Some(table) = Table::find(tree) else {
        return vec![Finding::new(PAGE, 0, format!("has no block {FENCE} with the crates"))];
    };
    let mut findings = Vec::new();
    let crates: Vec<&super::File> =
        tree.files.iter().filter(|file| is_manifest(&file.path)).collect();
    let names: Vec<String> = crates.iter().filter_map(|file| package_name(&file.text)).collect();
    for (line, who, whom) in &table.0 {
        for name in std::iter::once(who).chain(whom).filter(|name| !names.contains(name)) {
            findings.push(Finding::new(PAGE, *line, format!("there is no crate {name}")));
        }
    }
    for file in crates {
        let Some(name) = package_name(&file.text) else { continue };
        let Some(allowed) = table.allowed(&name) else {
            findings.push(Finding::new(
                &file.path,
                0,
                format!("{name} is not in the table of imports in {PAGE}"),
            ));
            continue;
        };
        for dependency in dependencies_of(&file.text) {
            let wanted = short(&dependency.name);
            if !names.contains(&wanted) || allowed.contains(&wanted) {
                continue;
            }
            if dependency.for_tests && wanted == FOR_TESTS {
                continue;
            }
            let may = if allowed.is_empty() { "nothing".to_owned() } else { allowed.join(", ") };
            findings.push(Finding::new(
                &file.path,
                dependency.line,
                format!("{name} may not import {wanted}; by {PAGE} it may import {may}"),
            ));
        }
    }
    findings
}

pub(super) fn dependencies(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(root) = tree.file("Cargo.toml") {
        for dependency in entries(&root.text, |section| section == "workspace.dependencies") {
            let ours = dependency.rest.contains("path =");
            let reason = after_hash(dependency.rest).is_some_and(|reason| reason.trim().len() > 3);
            if !ours && !reason {
                findings.push(Finding::new(
                    "Cargo.toml",
                    dependency.line,
                    format!(
                        "{} has no reason; say in a comment on its line what it is for",
                        dependency.name
                    ),
                ));
            }
        }
    }
    for file in tree.files.iter().filter(|file| is_manifest(&file.path)) {
        for dependency in dependencies_of(&file.text) {
            if !dependency.by_workspace {
                findings.push(Finding::new(
                    &file.path,
                    dependency.line,
                    format!(
                        "{} has a version of its own; write `{}.workspace = true`",
                        dependency.name, dependency.name
                    ),
                ));
            }
        }
    }
    findings
}

impl Table {
    fn find(tree: &Tree) -> Option<Table> {
        let lines = fenced(tree, FENCE)?.into_iter().filter_map(|(line, text)| {
            let (who, whom) = text.split('#').next()?.split_once(':')?;
            let whom = whom.split(',').map(str::trim).filter(|name| !name.is_empty()).map(short);
            Some((line, short(who.trim()), whom.collect()))
        });
        Some(Table(lines.collect()))
    }

    fn allowed(&self, name: &str) -> Option<&[String]> {
        self.0.iter().find(|(_, who, _)| who == name).map(|(_, _, whom)| whom.as_slice())
    }
}

/// `metamcp-calls` and `calls` are the same crate; `metamcp` is the binary.
fn short(name: &str) -> String {
    name.strip_prefix("metamcp-").unwrap_or(name).to_owned()
}

fn is_manifest(path: &str) -> bool {
    path == "xtask/Cargo.toml"
        || path
            .strip_prefix("crates/")
            .is_some_and(|rest| rest.split('/').skip(1).eq(["Cargo.toml"]))
}

fn package_name(text: &str) -> Option<String> {
    entries(text, |section| section == "package")
        .find(|entry| entry.name == "name")
        .and_then(|entry| entry.rest.split('"').nth(1).map(short))
}

struct Dependency {
    name: String,
    line: usize,
    for_tests: bool,
    by_workspace: bool,
}

fn dependencies_of(text: &str) -> impl Iterator<Item = Dependency> + '_ {
    let dependency = |section: &str| {
        section == "dependencies"
            || section.ends_with("-dependencies")
            || section.ends_with(".dependencies")
    };
    entries(text, dependency).map(|entry| Dependency {
        name: entry.name.split('.').next().unwrap_or(entry.name).to_owned(),
        line: entry.line,
        for_tests: entry.section.ends_with("dev-dependencies"),
        by_workspace: format!("{}={}", entry.name, entry.rest)
            .replace(' ', "")
            .contains("workspace=true"),
    })
}

struct Entry<'a> {
    section: &'a str,
    name: &'a str,
    rest: &'a str,
    line: usize,
}

/// The `name = rest` lines of the sections for which `wanted` holds.
fn entries(text: &str, wanted: impl Fn(&str) -> bool) -> impl Iterator<Item = Entry<'_>> {
    let mut section = "";
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[') {
            section = name.split(']').next().unwrap_or(name);
            return None;
        }
        let (name, rest) = line.split_once('=')?;
        (wanted(section) && !line.starts_with('#')).then_some(Entry {
            section,
            name: name.trim(),
            rest,
            line: index + 1,
        })
    })
}

/// The comment at the end of a line; a hash inside quotes is not one.
fn after_hash(line: &str) -> Option<&str> {
    let mut quoted = false;
    for (at, character) in line.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '#' if !quoted => return Some(&line[at + 1..]),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n\n{rest}\n")
    }

    fn messages(findings: Vec<Finding>) -> Vec<String> {
        findings.into_iter().map(|f| format!("{}:{} {}", f.path, f.line, f.message)).collect()
    }

    const TABLE: &str = "# Map\n\n```imports\nmetamcp-calls: metamcp-wire   # down\nengine: calls, wire\nwire:\ntestkit:\n```\n\nother: text\n";

    fn two(calls: &str) -> Tree {
        Tree::of(&[
            (PAGE, TABLE),
            ("crates/metamcp-calls/Cargo.toml", &manifest("metamcp-calls", calls)),
            ("crates/metamcp-engine/Cargo.toml", &manifest("metamcp-engine", "")),
            ("crates/metamcp-wire/Cargo.toml", &manifest("metamcp-wire", "")),
            ("crates/metamcp-testkit/Cargo.toml", &manifest("metamcp-testkit", "")),
        ])
    }

    #[test]
    fn an_upward_import_is_found() {
        let tree =
            two("[dependencies]\nmetamcp-wire.workspace = true\nmetamcp-engine.workspace = true");
        assert_eq!(
            messages(imports(&tree)),
            [
                "crates/metamcp-calls/Cargo.toml:6 calls may not import engine; by ARCHITECTURE.md it may import wire"
            ]
        );
    }

    #[test]
    fn tests_may_use_the_testkit_and_nothing_else_from_above() {
        assert!(imports(&two("[dev-dependencies]\nmetamcp-testkit.workspace = true")).is_empty());
        assert_eq!(imports(&two("[dependencies]\nmetamcp-testkit.workspace = true")).len(), 1);
        assert_eq!(
            imports(&two("[dev-dependencies]\nmetamcp-engine = { workspace = true }")).len(),
            1
        );
        assert_eq!(
            imports(&two("[target.'cfg(unix)'.dependencies]\nmetamcp-engine.workspace = true"))
                .len(),
            1
        );
    }

    #[test]
    fn the_table_and_the_disk_know_the_same_crates() {
        let mut tree = two("");
        tree.files[0].text = TABLE.replace("testkit:", "gone: lost");
        assert_eq!(
            messages(imports(&tree)),
            [
                "ARCHITECTURE.md:7 there is no crate gone",
                "ARCHITECTURE.md:7 there is no crate lost",
                "crates/metamcp-testkit/Cargo.toml:0 testkit is not in the table of imports in ARCHITECTURE.md",
            ]
        );
        tree.files.remove(0);
        assert_eq!(imports(&tree).len(), 1);
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let root = "[workspace.dependencies]\nours = { path = \"crates/ours\" }\na = \"1\"  # does a thing\n\
                    b = { version = \"1#2\" }\nc = \"1\" #\n\n[profile.dev]\ndebug = 1\n";
        let found = messages(dependencies(&Tree::of(&[("Cargo.toml", root)])));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("Cargo.toml:4 b has no reason"), "{found:?}");
        assert!(found[1].starts_with("Cargo.toml:5 c has no reason"), "{found:?}");
    }

    #[test]
    fn a_version_outside_the_root_is_found() {
        let text = manifest(
            "x",
            "[dependencies]\na = \"1\"\nb = { workspace = true, features = [\"c\"] }\nd.workspace = true",
        );
        let found = messages(dependencies(&Tree::of(&[("crates/x/Cargo.toml", &text)])));
        assert_eq!(
            found,
            ["crates/x/Cargo.toml:5 a has a version of its own; write `a.workspace = true`"]
        );
    }
}
