//! What the changelog says of one version: the text of its release.
//! Owns: the form of the changelog's headings.      Never: writes the changelog, asks git.
//! In: a tag, CHANGELOG.md, the version in Cargo.toml.  Out: the text on stdout, or why this tree is not that release.
//! Tests: below; `.github/workflows/release.yml` begins with it.

use std::fs;
use std::io::{self, Write};

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let (tag, repository) = match options {
        [tag] => (tag, None),
        [tag, option, address] if option == "--repository" => (tag, Some(address.as_str())),
        _ => bail!("notes takes a tag, and --repository ADDRESS if its links shall lead there"),
    };
    let version = workspace.metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|package| package["name"] == "metamcp"))
        .and_then(|package| package["version"].as_str())
        .context("cargo metadata does not know metamcp")?;
    let changelog = fs::read_to_string(workspace.root.join("CHANGELOG.md"))
        .context("cannot read CHANGELOG.md")?;
    let mut notes = notes(tag, version, &changelog)?;
    if let Some(repository) = repository {
        notes = with_addresses(&notes, &format!("{repository}/blob/{tag}/"));
    }
    Ok(writeln!(io::stdout(), "{notes}")?)
}

/// The section of the version that the tag names, which must be that of the tree.
fn notes(tag: &str, version: &str, changelog: &str) -> Result<String> {
    if tag.strip_prefix('v') != Some(version) {
        bail!(
            "the tag {tag} is not v{version}, the version in Cargo.toml; change one of them before the release"
        );
    }
    let Some(section) = section(changelog, version) else {
        bail!(
            "CHANGELOG.md has no section \"## {version}\"; write it, or rename \"## Unreleased\""
        );
    };
    if section.is_empty() {
        bail!("the section \"## {version}\" of CHANGELOG.md is empty");
    }
    Ok(section)
}

/// What stands between the heading of a version and the next one. A heading may have brackets, and a date behind it.
fn section(changelog: &str, version: &str) -> Option<String> {
    let mut lines = changelog.lines();
    lines.find(|line| heading(line) == Some(version))?;
    let section: Vec<&str> = lines.take_while(|line| heading(line).is_none()).collect();
    Some(section.join("\n").trim().to_owned())
}

fn heading(line: &str) -> Option<&str> {
    let first = line.strip_prefix("## ")?.split_whitespace().next()?;
    Some(first.trim_start_matches('[').trim_end_matches(']'))
}

/// Links to files of the tree lead nowhere from the page of a release, so they get the address of the tree at that tag.
fn with_addresses(text: &str, base: &str) -> String {
    let mut parts = text.split("](");
    let mut linked = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        linked.push_str("](");
        if !part.starts_with('#') && !part.split(')').next().unwrap_or(part).contains("://") {
            linked.push_str(base);
        }
        linked.push_str(part);
    }
    linked
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str = "# Changelog\n\nIntro.\n\n## Unreleased\n\n- Next.\n\n## 0.2.0 - 2026-11-20\n\n\
        ### Packages\n\n- `npx metamcp` ([docs](docs/setup.md#npm)).\n\n## [0.1.0]\n\n- First.\n\n## 0.0.1\n";

    #[test]
    fn a_section_ends_at_the_next_version() {
        let text = "### Packages\n\n- `npx metamcp` ([docs](docs/setup.md#npm)).";
        assert_eq!(notes("v0.2.0", "0.2.0", CHANGELOG).unwrap(), text);
        assert_eq!(notes("v0.1.0", "0.1.0", CHANGELOG).unwrap(), "- First.");
    }

    #[test]
    fn a_tag_that_is_not_this_tree_or_was_not_written_about_is_no_release() {
        for (tag, version, says) in [
            ("v0.3.0", "0.2.0", "v0.2.0"),
            ("0.2.0", "0.2.0", "v0.2.0"),
            ("v0.2.1", "0.2.1", "## 0.2.1"),
            ("v0.0.1", "0.0.1", "empty"),
            ("v0.2", "0.2", "## 0.2\""),
        ] {
            let error = notes(tag, version, CHANGELOG).unwrap_err().to_string();
            assert!(error.contains(says), "{tag}: {error}");
        }
    }

    #[test]
    fn links_into_the_tree_get_its_address() {
        let base = "https://example.com/m/blob/v1/";
        assert_eq!(
            with_addresses("[a](docs/a.md) and [b](https://b.example) and [c](#c)", base),
            "[a](https://example.com/m/blob/v1/docs/a.md) and [b](https://b.example) and [c](#c)"
        );
        assert_eq!(with_addresses("none", base), "none");
    }
}
