//! Rules on the text of all tracked files, and on which pages are at the root.

use super::{Finding, Tree};

/// Pages allowed at the root; everything else belongs under docs/.
const PAGES: &[&str] = &[
    "AGENTS.md",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "STYLE.md",
];

/// Hosts that serve packages. A lock file that names one works only where that host is reachable.
/// Written in two halves so that this file does not break its own rule.
const HOSTS: &[&str] = &[
    concat!("registry.", "npmjs.org"),
    concat!("registry.", "yarnpkg.com"),
    concat!("files.", "pythonhosted.org"),
    concat!("pypi.", "org"),
    concat!("static.", "crates.io"),
    concat!("index.", "crates.io"),
];

/// Folders that exist only on somebody's machine.
const HOMES: &[&str] = &[concat!("/ho", "me/"), concat!("/Us", "ers/"), concat!("\\Us", "ers\\")];
const FOLDERS: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/main"),
    concat!("/wo", "rk/shared"),
    concat!("/opt/", "wheels"),
    concat!("/tmp/", "wt/"),
    concat!("/tmp/", "target-"),
];

/// User names of home folders that are placeholders.
const NOBODY: &[&str] = &["you", "user", "me", "alice", "bob", "ada", "someone"];

/// Cargo writes its index into its lock file; we cannot change that.
const NOT_OURS: &[&str] = &["Cargo.lock", "fuzz/Cargo.lock"];

pub(super) fn places(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| !NOT_OURS.contains(&file.path.as_str())) {
        for (index, line) in file.text.lines().enumerate() {
            for host in HOSTS.iter().filter(|host| names_host(line, host)) {
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    format!("names the package host {host}"),
                ));
            }
            for folder in FOLDERS.iter().filter(|folder| line.contains(**folder)) {
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    format!("names a folder of one machine, {folder}"),
                ));
            }
            for home in HOMES {
                for (at, _) in line.match_indices(home) {
                    let owner: String = line[at + home.len()..]
                        .chars()
                        .take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
                        .collect();
                    if !owner.is_empty() && !NOBODY.contains(&owner.as_str()) {
                        findings.push(Finding::new(
                            &file.path,
                            index + 1,
                            format!("names a folder of one machine, {home}{owner}"),
                        ));
                    }
                }
            }
        }
    }
    findings
}

/// A host name must match as a whole: a longer name with the same beginning or end is another host.
fn names_host(line: &str, host: &str) -> bool {
    line.match_indices(host).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + host.len()..].chars().next();
        let part = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '-');
        !part(before) && !part(after)
    })
}

pub(super) fn root(tree: &Tree) -> Vec<Finding> {
    tree.files
        .iter()
        .filter(|file| !file.path.contains('/') && file.path.to_ascii_lowercase().ends_with(".md"))
        .filter(|file| !PAGES.contains(&file.path.as_str()))
        .map(|file| Finding::new(&file.path, 0, "this page belongs under docs/, not at the root"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        places(&Tree::of(&[("docs/a.md", text)]))
            .into_iter()
            .map(|finding| finding.message)
            .collect()
    }

    #[test]
    fn package_hosts_are_found() {
        let line = format!("\"resolved\": \"https://{}/a.tgz\"", HOSTS[0]);
        assert_eq!(found(&line), [format!("names the package host {}", HOSTS[0])]);
        assert!(found(&format!("https://my-{}.example", HOSTS[3])).is_empty());
        assert!(found("the packages come from npm and PyPI").is_empty());
    }

    #[test]
    fn folders_of_one_machine_are_found() {
        for folder in FOLDERS {
            assert_eq!(found(&format!("see {folder}x")).len(), 1, "{folder}");
        }
        for home in HOMES {
            assert_eq!(found(&format!("see {home}jdoe/x")).len(), 1, "{home}");
            assert!(found(&format!("see {home}you/x")).is_empty(), "{home}");
        }
    }

    #[test]
    fn cargos_own_lock_is_left_alone() {
        let tree = Tree::of(&[("Cargo.lock", HOSTS[5])]);
        assert!(places(&tree).is_empty());
    }

    #[test]
    fn only_the_known_pages_stand_at_the_root() {
        let tree = Tree::of(&[
            ("README.md", ""),
            ("NOTES.md", ""),
            ("docs/NOTES.md", ""),
            ("todo.MD", ""),
        ]);
        let paths: Vec<String> = root(&tree).into_iter().map(|finding| finding.path).collect();
        assert_eq!(paths, ["NOTES.md", "todo.MD"]);
    }
}
