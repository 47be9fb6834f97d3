//! The generated pages under docs/: written, or compared, by the tests that generate them.
//! Owns: the switch between writing and comparing.      Never: knows what is on a page.
//! In: `--check`.  Out: files under docs/, or an error when one is stale.
//! Tests: the tests named `reference` in the crates below.

use anyhow::{Result, bail};

use crate::run;
use crate::workspace::Workspace;

/// The packages whose tests write pages; a test takes part by having `reference` in its name.
const PACKAGES: &[&str] = &["metamcp"];

/// Set for a test that may overwrite the page it checks.
const SWITCH: &str = "UPDATE_DOCS";

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let check = match options {
        [] => false,
        [only] if only == "--check" => true,
        _ => bail!("codegen takes --check or nothing"),
    };
    let mut command = workspace.cargo();
    command.args(["test", "--locked"]);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    command.arg("reference");
    if check {
        command.env_remove(SWITCH);
    } else {
        command.env(SWITCH, "1");
    }
    let said = run::loud(&mut command)?;
    if said.closing.iter().all(|line| line.contains(" 0 passed")) {
        bail!("no test named `reference` ran, so no page was checked");
    }
    Ok(())
}
