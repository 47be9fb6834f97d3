//! Pictures of the page for the documentation, from the last run of its tests.
//! Owns: which pictures there are, how large they may be.      Never: takes them (`crates/metamcp/tests/real/page.rs` does).
//! In: `target/page-screenshots`.  Out: `docs/pictures/page-*.png`.
//! Tests: the pages that show them; `cargo xtask tidy` finds a missing one.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::workspace::Workspace;

/// The ones that are shown: their names in the tests, and in the documentation.
const SHOWN: [(&str, &str); 3] = [
    ("overview-light", "page-overview-light"),
    ("overview-dark", "page-overview-dark"),
    ("call-1-light", "page-call-light"),
];
/// Largest picture: the repository keeps every version of each.
const LARGEST: u64 = 150 * 1024;

pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        bail!("pictures takes no arguments");
    }
    let into = workspace.root.join("docs/pictures");
    for (name, shown) in SHOWN {
        let from = workspace.target.join("page-screenshots").join(format!("{name}.png"));
        let size = fs::metadata(&from)
            .with_context(|| {
                format!("there is no {}; `cargo xtask test --only real` takes it", from.display())
            })?
            .len();
        if size > LARGEST {
            bail!("{} has {size} bytes, and {LARGEST} is the most", from.display());
        }
        fs::copy(&from, into.join(format!("{shown}.png")))?;
    }
    Ok(())
}
