//! Size and start of each package, as `cargo xtask dist --test` found them; the page's section about them.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::dist::RESULTS;
use crate::workspace::Workspace;

const HEADING: &str = "## Packages";

/// Appends the section, if the packages were tried here.
pub(super) fn rows(workspace: &Workspace, page: &mut String) -> Result<()> {
    let results = workspace.target.join("dist").join(RESULTS);
    let Ok(results) = fs::read_to_string(&results) else {
        // The page keeps the numbers of the last trial.
        let old = fs::read_to_string(workspace.root.join("docs/benchmarks.md"))?;
        page.push_str(section(&old).unwrap_or_default());
        return Ok(());
    };
    page.push_str(&rendered(&results)?);
    Ok(())
}

/// Replaces the section in the page.
pub(crate) fn refresh(workspace: &Workspace) -> Result<()> {
    let path = workspace.root.join("docs/benchmarks.md");
    let old = fs::read_to_string(&path)?;
    let mut new = match section(&old) {
        Some(section) => old.replacen(section, "", 1),
        None => old.clone(),
    };
    rows(workspace, &mut new)?;
    fs::write(&path, new).context("docs/benchmarks.md")
}

/// The section of a page, with the line in front of it; it ends at the next one.
fn section(page: &str) -> Option<&str> {
    let start = page.find(&format!("\n{HEADING}\n"))?;
    let rest = &page[start + 1..];
    let end = rest.find("\n## ").unwrap_or(rest.len());
    Some(&page[start..start + 1 + end])
}

fn rendered(results: &str) -> Result<String> {
    let results: Value = serde_json::from_str(results)?;
    let mut text = format!(
        "\n{HEADING}\n\n\
         Measured by `cargo xtask dist --test`, each installed into an empty place: the fastest of several starts of `metamcp version`, and of the program alone in turns with it.\n\
         Sizes are what is downloaded, the search model of 21 MB included.\n\n\
         | package | MB | start | the program alone | difference |\n|---|---|---|---|---|\n"
    );
    for row in results.as_array().context("the results are a list")? {
        let number = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
        let (own, bare) = (number("startMs"), number("bareMs"));
        writeln!(
            text,
            "| {} | {:.1} | {own:.1} ms | {bare:.1} ms | {:.1} ms |",
            row["package"].as_str().unwrap_or_default(),
            number("bytes") / 1e6,
            own - bare
        )?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_section_is_found_wherever_it_stands() {
        let page = "# B\n\na\n\n## Packages\n\nrows\n\n## Next\n";
        assert_eq!(section(page), Some("\n## Packages\n\nrows\n"));
        assert_eq!(section("# B\n\n## Packages\nrows\n"), Some("\n## Packages\nrows\n"));
        assert_eq!(section("# B\n"), None);
    }

    #[test]
    fn a_row_says_what_a_package_adds() {
        let results = r#"[{"package": "npm", "bytes": 35000000, "startMs": 60.0, "bareMs": 5.0}]"#;
        assert!(
            rendered(results).unwrap().ends_with("| npm | 35.0 | 60.0 ms | 5.0 ms | 55.0 ms |\n")
        );
    }
}
