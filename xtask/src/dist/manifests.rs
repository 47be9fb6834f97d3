//! What is written for package managers that fetch from our releases: Homebrew, Scoop, winget, Nix, and the install scripts.
//! One set of templates under `packages/`, filled in with version and checksums.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::contents::Contents;

/// A template, and what it is called among the finished files.
pub(super) const TEMPLATES: &[(&str, &str)] = &[
    ("install.sh", "install.sh"),
    ("install.ps1", "install.ps1"),
    ("homebrew/metamcp.rb", "homebrew/metamcp.rb"),
    ("scoop/metamcp.json", "scoop/metamcp.json"),
    ("winget/metamcp.metamcp.yaml", "winget/metamcp.metamcp.yaml"),
    ("winget/metamcp.metamcp.installer.yaml", "winget/metamcp.metamcp.installer.yaml"),
    ("winget/metamcp.metamcp.locale.en-US.yaml", "winget/metamcp.metamcp.locale.en-US.yaml"),
    ("nix/flake.nix", "nix/flake.nix"),
    ("docker/Dockerfile", "docker/Dockerfile"),
    ("docker/compose.yaml", "docker/compose.yaml"),
    ("fleet/compose.yaml", "fleet/compose.yaml"),
    ("fleet/mcp.json", "fleet/mcp.json"),
];

/// A finished file: its name and text.
pub(super) type Filled = (&'static str, String);

/// The values of placeholders: those of the release, and a checksum for each archive, by its label.
pub(super) fn values(
    contents: &Contents,
    sums: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mut values = BTreeMap::from([
        ("version".to_owned(), contents.version.clone()),
        ("repository".to_owned(), contents.repository.clone()),
        (
            "download".to_owned(),
            format!("{}/releases/download/v{}", contents.repository, contents.version),
        ),
    ]);
    for (label, sum) in sums {
        values.insert(format!("sha256 {label}"), sum.clone());
        values.insert(format!("SHA256 {label}"), sum.to_ascii_uppercase());
    }
    values
}

/// Fills a template in. A placeholder without a value names what is missing.
pub(super) fn filled(text: &str, values: &BTreeMap<String, String>) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = after.split_once("}}").context("a placeholder is not closed")?;
        out.push_str(before);
        match values.get(name) {
            Some(value) => out.push_str(value),
            None => bail!("{name} is not known"),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

/// Every template that can be filled in, and why the others cannot.
pub(super) fn all(
    templates: &Path,
    values: &BTreeMap<String, String>,
) -> Result<(Vec<Filled>, Vec<String>)> {
    let (mut made, mut missing) = (Vec::new(), Vec::new());
    for (template, name) in TEMPLATES {
        let text = fs::read_to_string(templates.join(template))
            .with_context(|| format!("packages/{template}"))?;
        match filled(&text, values) {
            Ok(text) => made.push((*name, text)),
            Err(why) => missing.push(format!("{name}: {why}")),
        }
    }
    Ok((made, missing))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_in_or_named() {
        let values = BTreeMap::from([("a".to_owned(), "1".to_owned())]);
        assert_eq!(filled("x{{a}}y ${b} {{a}}", &values).unwrap(), "x1y ${b} 1");
        assert_eq!(filled("{{b c}}", &values).unwrap_err().to_string(), "b c is not known");
        assert!(filled("{{a", &values).is_err());
    }

    #[test]
    fn every_template_is_in_the_tree_and_needs_only_what_a_release_has() {
        let labels =
            super::super::targets::TARGETS.iter().map(super::super::targets::Target::label);
        let mut values: BTreeMap<String, String> = ["version", "repository", "download"]
            .map(|name| (name.to_owned(), "x".to_owned()))
            .into();
        for label in labels {
            for name in ["sha256", "SHA256"] {
                values.insert(format!("{name} {label}"), "x".to_owned());
            }
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packages");
        let (made, missing) = all(&folder, &values).unwrap();
        assert_eq!((made.len(), missing), (TEMPLATES.len(), Vec::new()));
    }
}
