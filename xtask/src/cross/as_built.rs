//! The static build under the tests of this machine's: `cargo xtask cross --test`.
//! Owns: putting the built programs where the tests look for theirs.      Never: changes a file of either build.
//! In: the programs for the first target; the tests, as cargo builds them here.  Out: what nextest says.
//! Tests: it is one.
//!
//! The tests know their programs by paths that cargo wrote into them. The built ones are mounted over those, in a namespace
//! that ends with the run: what is tested is the file that packages contain, and nothing has to be put back.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use super::{Root, TARGETS, folder};
use crate::run;
use crate::workspace::Workspace;

/// The packages whose tests start programs, and those programs.
const PROGRAMS: [(&str, &str); 3] = [
    ("metamcp", "metamcp"),
    ("metamcp-child", "child-host"),
    ("metamcp-sandbox", "sandbox-worker"),
];

const FEATURES: [&str; 2] = ["--features", "metamcp/packaged"];

/// Pairs of a built program and the path that it covers come first, up to `--`.
const COVER: &str = r#"
set -e
while [ "$1" != -- ]; do
    mount --bind "$1" "$2"
    shift 2
done
shift
exec "$@"
"#;

pub(super) fn test(root: &Root, workspace: &Workspace, profile: &str, filter: &str) -> Result<()> {
    let target = TARGETS[0];
    let mut build = super::cargo(root, workspace, target, profile, "build")?;
    let packages = PROGRAMS.map(|(package, _)| ["--package", package]);
    build.args(packages.as_flattened()).arg("--bins").args(FEATURES);
    run::loud(&mut build)?;
    let of_tests = |verb: &[&str]| {
        let mut command = workspace.cargo();
        command.args(verb).args(["--locked", "--tests"]).args(packages.as_flattened());
        command.args(FEATURES);
        command
    };
    run::loud(&mut of_tests(&["test", "--no-run"]))?;
    let mut covered: Vec<PathBuf> = Vec::new();
    for (_, program) in PROGRAMS {
        let built = folder(workspace, target, profile).join(program);
        let place = workspace.target.join("debug").join(program);
        if !built.is_file() || !place.is_file() {
            bail!("{} or {} was not built", built.display(), place.display());
        }
        covered.extend([built, place]);
    }
    let mut tests = of_tests(&["nextest", "run", "--no-fail-fast"]);
    tests.args(["--filterset", filter]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", COVER, "as-built"]).args(covered).arg("--");
    command.arg(tests.get_program()).args(tests.get_args()).current_dir(&workspace.root);
    run::loud(&mut command)?;
    Ok(())
}
