//! Which lines the tests cover: `cargo xtask coverage`.
//! Owns: what is measured and where the report goes.      Never: sets a threshold.
//! In: all tests but those with real servers.  Out: `target/coverage`, as HTML and as lcov.
//! Tests: none; it is three commands.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;
use crate::tools;
use crate::workspace::{FEATURES, Workspace};

/// Everything but the real servers, which are third-party packages and take longest.
const TESTS: &str = "not binary(real)";

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    if !options.is_empty() {
        bail!("coverage takes no options");
    }
    let program = tools::LLVM_COV.program(workspace)?;
    let folder = workspace.target.join("coverage");
    std::fs::create_dir_all(&folder)?;
    let llvm_cov = |arguments: &[&str]| {
        let mut command = Command::new(&program);
        command.arg("llvm-cov").args(arguments).current_dir(&workspace.root);
        command
    };
    // A test that fails only because instrumentation slows it down must not cost the report; CI decides whether tests
    // pass.
    run::loud(
        llvm_cov(&["nextest", "--no-report", "--workspace", "--locked", "--ignore-run-fail"])
            .args(FEATURES)
            .args(["--filterset", TESTS]),
    )
    .context("coverage needs cargo-nextest, and `rustup component add llvm-tools`")?;
    run::loud(llvm_cov(&["report", "--html", "--output-dir"]).arg(&folder))?;
    run::loud(llvm_cov(&["report", "--lcov", "--output-path"]).arg(folder.join("lcov.info")))?;
    run::loud(&mut llvm_cov(&["report", "--summary-only"]))?;
    Ok(())
}
