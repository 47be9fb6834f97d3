//! The static build under the tests of this machine's: `cargo xtask cross --test [FILTER] [--arm64]`.
//! Owns: putting the built programs where the tests look for theirs.      Never: changes a file of either build.
//! In: the programs for the target; the tests, as cargo builds them here.  Out: what nextest says.
//! Tests: it is one.
//!
//! The tests know their programs by paths that cargo wrote into them. The built ones are mounted over those, in a namespace
//! that ends with the run: what is tested is the file that packages contain, and nothing has to be put back.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Root, Target, Tests, arm64, folder};
use crate::workspace::{PACKAGED, Workspace};
use crate::{hardened, run};

/// The packages whose tests start programs, and those programs.
const PROGRAMS: [(&str, &str); 4] = [
    ("metamcp", "metamcp"),
    ("metamcp-child", "child-host"),
    ("metamcp-sandbox", "sandbox-worker"),
    ("metamcp-hardened", "wasm-worker"),
];

/// The real servers are not what the static build is about, and take half an hour.
const TESTS: &str = "not binary(real)";

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

pub(super) fn test(
    root: &Root,
    workspace: &Workspace,
    profile: &str,
    wanted: &Tests,
) -> Result<()> {
    let (target, all) = match wanted.arm64 {
        true => (Target::named("aarch64-unknown-linux-musl")?, arm64::TESTS),
        false => (Target::named("x86_64-unknown-linux-musl")?, TESTS),
    };
    if !wanted.arm64 && arm64::is_native() {
        bail!("this machine runs no programs for {}; --arm64 tests those for it", target.triple);
    }
    hardened::ready(workspace)?;
    let mut build = super::cargo(root, workspace, target, profile, "build")?;
    let packages = PROGRAMS.map(|(package, _)| ["--package", package]);
    build.args(packages.as_flattened()).arg("--bins").args(PACKAGED);
    run::loud(&mut build)?;
    let mut covered: Vec<PathBuf> = Vec::new();
    for (_, program) in PROGRAMS {
        let built = folder(workspace, target, profile).join(program);
        if !built.is_file() {
            bail!("{} was not built", built.display());
        }
        covered.extend([built, workspace.target.join("debug").join(program)]);
    }
    if wanted.arm64 {
        arm64::used(root, workspace, &covered[0])?;
    }
    // Built first: cargo would put its own programs back into the places that are covered.
    let mut list = workspace.cargo();
    list.args([
        "nextest",
        "list",
        "--locked",
        "--list-type=binaries-only",
        "--message-format=json",
    ]);
    list.args(packages.as_flattened()).args(PACKAGED);
    match wanted.arm64 {
        true => list.args(arm64::FILES.map(|file| ["--test", file]).as_flattened()),
        false => list.arg("--tests"),
    };
    writeln!(io::stderr(), "cross: building the tests")?;
    let binaries = super::built(workspace).join("tests.json");
    fs::write(&binaries, run::quiet(&mut list)?).with_context(|| binaries.display().to_string())?;
    let mut tests = workspace.cargo();
    tests.args(["nextest", "run", "--no-fail-fast", "--binaries-metadata"]).arg(&binaries);
    tests.args(["--filterset", wanted.filter.as_deref().unwrap_or(all)]);
    if wanted.arm64 {
        tests.args(arm64::PATIENT);
    }
    let mut command = match wanted.arm64 {
        true => arm64::entered(root),
        false => Command::new("unshare"),
    };
    if !wanted.arm64 {
        command.args(["--mount", "--"]);
    }
    command.args(["sh", "-c", COVER, "as-built"]).args(covered).arg("--");
    command.arg(tests.get_program()).args(tests.get_args()).current_dir(&workspace.root);
    run::loud(&mut command)?;
    Ok(())
}
