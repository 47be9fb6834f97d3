//! The rules of this repository that neither the compiler nor clippy can check.
//! Owns: the table of rules and the report of findings.      Never: changes a file.
//! In: the files git tracks, and new ones it does not ignore.  Out: findings with path and line.
//! Tests: beside each rule, on small synthetic trees.

mod doors;
mod links;
mod manifests;
mod map;
mod rooms;
mod source;
mod words;

use std::fs;
use std::io::{self, Write};

use anyhow::{Context, Result, bail};

use crate::run;
use crate::workspace::Workspace;

/// The page with the tables that the rules check against.
const PAGE: &str = "ARCHITECTURE.md";

/// Pure crates: they do no I/O.
const PURE: &[&str] = &[
    "crates/metamcp-wire",
    "crates/metamcp-types",
    "crates/metamcp-tools",
    "crates/metamcp-calls",
    "crates/metamcp-fleet",
    "crates/metamcp-search",
    "crates/metamcp-config",
    "crates/metamcp-provisioning",
    "crates/metamcp-surface",
];

/// One rule: its name, its rationale, and the function that finds violations.
struct Rule {
    name: &'static str,
    why: &'static str,
    look: fn(&Tree) -> Vec<Finding>,
}

const RULES: &[Rule] = &[
    Rule {
        name: "imports",
        why: "crates import downwards only, as the table in ARCHITECTURE.md says",
        look: manifests::imports,
    },
    Rule {
        name: "rooms",
        why: "rooms of the engine import downwards only, as the floors in ARCHITECTURE.md say",
        look: rooms::rooms,
    },
    Rule {
        name: "map",
        why: "whoever comes new reads the map in one sitting and finds every room on it",
        look: map::map,
    },
    Rule {
        name: "dependencies",
        why: "each dependency is named once, in the root Cargo.toml, with its reason",
        look: manifests::dependencies,
    },
    Rule {
        name: "purity",
        why: "what decides is told the time and touches nothing",
        look: source::purity,
    },
    Rule {
        name: "doors",
        why: "a newcomer reads four lines and knows the room",
        look: doors::doors,
    },
    Rule { name: "size", why: "a file one can read in one sitting", look: source::size },
    Rule {
        name: "layout",
        why: "a room is room.rs and room/, so that its door has a name",
        look: source::layout,
    },
    Rule { name: "ignored", why: "a test that does not run proves nothing", look: source::ignored },
    Rule {
        name: "leftovers",
        why: "unfinished code stays out of the tree",
        look: source::leftovers,
    },
    Rule {
        name: "expect",
        why: "an expectation with a reason goes away when it is no longer true",
        look: source::allowed,
    },
    Rule { name: "names", why: "a name says what a thing is", look: source::names },
    Rule { name: "places", why: "the tree works on every machine", look: words::places },
    Rule {
        name: "links",
        why: "a reader who follows a link of our own arrives",
        look: links::links,
    },
    Rule { name: "root", why: "the root holds the few pages everyone needs", look: words::root },
];

/// The files of a checkout, as the rules see them.
struct Tree {
    files: Vec<File>,
}

struct File {
    /// Relative to the root, with forward slashes.
    path: String,
    /// Empty if the file is not UTF-8.
    text: String,
}

/// A violation of a rule, or something close to one.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    path: String,
    /// Counted from one; zero means the file as a whole.
    line: usize,
    message: String,
    /// A warning is reported and does not fail the task.
    warning: bool,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, message: message.into(), warning: false }
    }

    fn warning(path: &str, message: impl Into<String>) -> Finding {
        Finding { warning: true, ..Finding::new(path, 0, message) }
    }
}

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    if !options.is_empty() {
        bail!("tidy takes no options");
    }
    let said = check(workspace)?;
    writeln!(io::stderr(), "tidy: {said}")?;
    Ok(())
}

/// Reports the findings on stderr and fails on any that is not a warning.
pub(crate) fn check(workspace: &Workspace) -> Result<String> {
    let tree = Tree::read(workspace)?;
    let mut out = io::stderr().lock();
    let (mut wrong, mut warnings) = (0, 0);
    for rule in RULES {
        let findings = (rule.look)(&tree);
        for finding in &findings {
            let kind = if finding.warning { "warning" } else { "error" };
            let line = if finding.line == 0 { String::new() } else { format!(":{}", finding.line) };
            writeln!(out, "{kind}[{}]: {}{line}: {}", rule.name, finding.path, finding.message)?;
        }
        let broken = findings.iter().filter(|finding| !finding.warning).count();
        if broken > 0 {
            writeln!(out, "    why: {}", rule.why)?;
        }
        wrong += broken;
        warnings += findings.len() - broken;
    }
    if wrong > 0 {
        bail!("{wrong} findings");
    }
    Ok(format!("{} rules, {} files, {warnings} warnings", RULES.len(), tree.files.len()))
}

impl Tree {
    fn read(workspace: &Workspace) -> Result<Tree> {
        let listed = run::quiet(
            std::process::Command::new("git")
                .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
                .current_dir(&workspace.root),
        )
        .context("tidy needs a git checkout")?;
        let mut files = Vec::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            // A file that was deleted but not yet committed is still listed.
            let Ok(bytes) = fs::read(workspace.root.join(path)) else { continue };
            files.push(File {
                path: path.to_owned(),
                text: String::from_utf8(bytes).unwrap_or_default(),
            });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        Ok(Tree { files })
    }

    fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| is(file, "rs"))
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Tree {
        let files = files
            .iter()
            .map(|(path, text)| File { path: (*path).to_owned(), text: (*text).to_owned() })
            .collect();
        Tree { files }
    }
}

fn is(file: &File, extension: &str) -> bool {
    std::path::Path::new(&file.path).extension().is_some_and(|own| own == extension)
}

/// The folder of the crate a file belongs to and the rest of its path: `crates/a`, `src/b.rs`.
fn in_crate(path: &str) -> Option<(&str, &str)> {
    if let Some(rest) = path.strip_prefix("crates/") {
        let end = rest.find('/')? + "crates/".len();
        return Some((&path[..end], &path[end + 1..]));
    }
    path.strip_prefix("xtask/").map(|rest| ("xtask", rest))
}

/// The lines of the block in ARCHITECTURE.md that begins with this fence, with their numbers.
fn fenced<'a>(tree: &'a Tree, fence: &str) -> Option<Vec<(usize, &'a str)>> {
    let lines = tree.file(PAGE)?.text.lines().enumerate().map(|(index, line)| (index + 1, line));
    let mut from = lines.skip_while(|(_, line)| line.trim() != fence);
    from.next()?;
    Some(from.take_while(|(_, line)| !line.trim().starts_with("```")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_assigned_to_their_crate() {
        assert_eq!(in_crate("crates/a/src/b.rs"), Some(("crates/a", "src/b.rs")));
        assert_eq!(in_crate("xtask/src/main.rs"), Some(("xtask", "src/main.rs")));
        assert_eq!(in_crate("docs/a.md"), None);
    }

    #[test]
    fn rules_have_different_names() {
        let mut names: Vec<&str> = RULES.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), RULES.len());
    }
}
