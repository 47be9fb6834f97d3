//! Locates the built programs.
//! Owns: finding them, and building ours when a test of another crate runs first.  Never: searches PATH.
//! In: a name.  Out: a path.
//! Tests: `tests/it/programs.rs`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The hostile child.
pub fn chaos_child() -> PathBuf {
    program("chaos-child")
}

/// The trivial child of the benchmarks.
pub fn echo_child() -> PathBuf {
    program("echo-child")
}

/// The server that records what it receives.
pub fn line_journal() -> PathBuf {
    program("line-journal")
}

/// The program that replays frames in place of a sandbox worker.
pub fn worker_stand_in() -> PathBuf {
    program("worker-stand-in")
}

/// The server that lists what a real one listed.
pub fn replay_child() -> PathBuf {
    program("replay-child")
}

/// The byte-copy relay of the benchmarks.
pub fn copy_relay() -> PathBuf {
    program("copy-relay")
}

/// Cargo builds a package's programs only for that package's own tests, so other crates' tests may find none.
fn program(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let path = build_directory().join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if !path.exists() {
        BUILT.get_or_init(build);
    }
    assert!(path.exists(), "{} is not built; run `cargo build -p metamcp-testkit`", path.display());
    path
}

/// The directory of the current profile: a test is in its `deps`, a program directly in it.
fn build_directory() -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    let directory = own.parent().expect("a program lies in a directory");
    if directory.ends_with("deps") || directory.ends_with("examples") {
        directory.parent().unwrap_or(directory).to_owned()
    } else {
        directory.to_owned()
    }
}

fn build() {
    let directory = build_directory();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet", "--package", "metamcp-testkit", "--bins", "--target-dir"]);
    command.arg(directory.parent().unwrap_or(Path::new("target")));
    command.arg("--manifest-path").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"));
    if directory.ends_with("release") {
        command.arg("--release");
    }
    // A failure shows because the program is missing.
    command.status().ok();
}
