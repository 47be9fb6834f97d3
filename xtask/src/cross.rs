//! Builds for other systems: `cargo xtask cross [TARGET]... [--profile PROFILE] [--plain]`; `--test [FILTER]` runs the tests
//! of this machine against the static build, with `--arm64` against that of arm64, emulated.
//! Owns: the targets, and how cargo is called for each.      Never: packs what it built.
//! In: the tree; a root folder with the compilers (`cross/root.rs`).  Out: `target/cross/TRIPLE/PROFILE`.
//! Tests: below; `cargo xtask dist` and `cargo xtask test --windows` use what it builds.
//!
//! Rustup's prebuilt standard libraries are not needed: the root folder has the library's source, and cargo builds it with
//! everything else. The tree is always at `/src` there, so that the same commit gives the same bytes from any folder.

mod apple;
mod arm64;
mod as_built;
mod root;

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::run;
use crate::workspace::Workspace;

pub(crate) use root::Root;

/// Where the tree is inside the root folder.
pub(crate) const TREE: &str = "/src";
/// Where cargo builds inside the root folder; outside it is `target/cross`.
pub(crate) const BUILT: &str = "/built";
/// The home inside the root folder, with cargo's registry.
const HOME: &str = "/root";

/// What packages contain: everything that is optional in the binary, by the one list in its manifest.
pub(crate) const FEATURES: &str = "packaged";

/// A system that metamcp is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) triple: &'static str,
    linker: Linker,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Linker {
    /// Zig brings the C library, its headers and a linker for each of its targets.
    Zig,
    /// The GNU compiler of Debian for Windows.
    Mingw,
}

pub(crate) const TARGETS: [Target; 5] = [
    Target { triple: "x86_64-unknown-linux-musl", linker: Linker::Zig },
    Target { triple: "aarch64-unknown-linux-musl", linker: Linker::Zig },
    Target { triple: "x86_64-pc-windows-gnu", linker: Linker::Mingw },
    Target { triple: "aarch64-apple-darwin", linker: Linker::Zig },
    Target { triple: "x86_64-apple-darwin", linker: Linker::Zig },
];

impl Target {
    pub(crate) fn named(triple: &str) -> Result<Target> {
        TARGETS.into_iter().find(|target| target.triple == triple).with_context(|| {
            let known: Vec<&str> = TARGETS.iter().map(|target| target.triple).collect();
            format!("there is no target {triple:?}; there are {}", known.join(", "))
        })
    }

    pub(crate) fn is_windows(self) -> bool {
        self.triple.contains("-windows-")
    }

    /// The file of a program of this name.
    pub(crate) fn program(self, name: &str) -> String {
        if self.is_windows() { format!("{name}.exe") } else { name.to_owned() }
    }

    /// Variables for a cargo that builds for this target.
    fn variables(self, profile: &str) -> Vec<(String, String)> {
        let mut variables = Vec::new();
        let mut flags = Vec::new();
        if is_for_packages(profile) {
            // Paths of the root folder say nothing to who reads a backtrace.
            flags.extend([
                format!("--remap-path-prefix={TREE}=."),
                format!("--remap-path-prefix={HOME}/.cargo/registry/src=crates"),
            ]);
        }
        if self.triple.ends_with("-apple-darwin") {
            // The oldest that Rust supports on these processors; zig would ask for a newer one.
            variables.push(("MACOSX_DEPLOYMENT_TARGET".to_owned(), "11.0".to_owned()));
        }
        if self.linker == Linker::Mingw {
            let (compiler, triple) = ("x86_64-w64-mingw32-gcc", self.triple.replace('-', "_"));
            variables.push((
                format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase()),
                compiler.to_owned(),
            ));
            variables.push((format!("CC_{triple}"), compiler.to_owned()));
            if is_for_packages(profile) {
                // The time of the build would be in the file.
                flags.push("-Clink-arg=-Wl,--no-insert-timestamp".to_owned());
            }
        }
        if !flags.is_empty() {
            variables.push(("CARGO_ENCODED_RUSTFLAGS".to_owned(), flags.join("\u{1f}")));
        }
        variables
    }
}

/// Profiles whose results leave this machine: their builds are made reproducible, and list their dependencies.
fn is_for_packages(profile: &str) -> bool {
    !matches!(profile, "dev" | "test")
}

/// A call of cargo inside the root folder. `verb` is `build`, `check` or `test`; the caller adds what to build.
pub(crate) fn cargo(
    root: &Root,
    workspace: &Workspace,
    target: Target,
    profile: &str,
    verb: &str,
) -> Result<Command> {
    let mut variables = target.variables(profile);
    variables.push(("RUSTC_BOOTSTRAP".to_owned(), "1".to_owned())); // for `-Zbuild-std`
    variables.push(("CARGO_TARGET_DIR".to_owned(), BUILT.to_owned()));
    // Everything in C is built again when this changes.
    let date = if profile == "dist" { commit_time(workspace)? } else { "0".to_owned() };
    variables.push(("SOURCE_DATE_EPOCH".to_owned(), date));
    let mut words = match (target.linker, verb) {
        (Linker::Zig, "build") => vec!["cargo", "zigbuild"],
        (Linker::Zig, verb) => vec!["cargo-zigbuild", verb],
        (Linker::Mingw, verb) => vec!["cargo", verb],
    };
    if is_for_packages(profile) && words[0] == "cargo" {
        words.insert(1, "auditable");
    }
    words.extend(["-Zbuild-std", "--locked", "--target", target.triple, "--profile", profile]);
    root.command(workspace, &variables, &words)
}

/// Builds the binary with all its features, and returns its path outside of the root folder.
pub(crate) fn metamcp(
    root: &Root,
    workspace: &Workspace,
    target: Target,
    profile: &str,
    features: &str,
) -> Result<PathBuf> {
    let mut command = cargo(root, workspace, target, profile, "build")?;
    command.args(["--package", "metamcp", "--bin", "metamcp"]);
    if !features.is_empty() {
        command.args(["--features", features]);
    }
    run::loud(&mut command).with_context(|| format!("metamcp for {}", target.triple))?;
    let built = folder(workspace, target, profile).join(target.program("metamcp"));
    if !built.is_file() {
        bail!("cargo built metamcp for {}, but {} is not there", target.triple, built.display());
    }
    if target.triple.ends_with("-apple-darwin") {
        apple::needs_no_framework(&built)?;
    }
    Ok(built)
}

/// Where the programs of a build are, outside of the root folder.
pub(crate) fn folder(workspace: &Workspace, target: Target, profile: &str) -> PathBuf {
    let folder = if matches!(profile, "dev" | "test") { "debug" } else { profile };
    built(workspace).join(target.triple).join(folder)
}

/// What `BUILT` is outside of the root folder.
pub(crate) fn built(workspace: &Workspace) -> PathBuf {
    workspace.target.join("cross")
}

/// Seconds since 1970 of the last commit: the only date in what is built.
pub(crate) fn commit_time(workspace: &Workspace) -> Result<String> {
    let mut git = Command::new("git");
    git.args(["log", "-1", "--format=%ct"]).current_dir(&workspace.root);
    Ok(run::quiet(&mut git)?.trim().to_owned())
}

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let order = Order::read(options)?;
    let root = Root::ready(workspace)?;
    if let Some(tests) = &order.tests {
        return as_built::test(&root, workspace, &order.profile, tests);
    }
    for target in order.targets {
        let built = metamcp(&root, workspace, target, &order.profile, order.features)?;
        let bytes = fs::read(&built).with_context(|| built.display().to_string())?;
        let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(io::stdout(), "{sum}  {}  {} bytes", built.display(), bytes.len())?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Order {
    targets: Vec<Target>,
    profile: String,
    features: &'static str,
    /// The tests to run against the static build, if any.
    tests: Option<Tests>,
}

/// Tests against a static build.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tests {
    /// Nextest's filter, if not all that are about it.
    filter: Option<String>,
    /// The static build is that for arm64.
    arm64: bool,
}

impl Order {
    fn read(options: &[String]) -> Result<Order> {
        let mut order = Order {
            targets: Vec::new(),
            profile: "dist".to_owned(),
            features: FEATURES,
            tests: None,
        };
        let mut options = options.iter().peekable();
        while let Some(option) = options.next() {
            match option.as_str() {
                "--profile" => {
                    order.profile.clone_from(options.next().context("--profile WHICH")?);
                }
                "--plain" => order.features = "",
                "--test" => {
                    let tests = order.tests.get_or_insert_default();
                    tests.filter = options.next_if(|next| !next.starts_with("--")).cloned();
                }
                "--arm64" => match &mut order.tests {
                    Some(tests) => tests.arm64 = true,
                    None => bail!("--arm64 comes after --test; without that, name the target"),
                },
                option if option.starts_with('-') => {
                    bail!(
                        "cross takes TARGET..., --profile PROFILE, --plain and --test [FILTER] [--arm64], not {option}"
                    )
                }
                triple => order.targets.push(Target::named(triple)?),
            }
        }
        if order.targets.is_empty() {
            order.targets.extend(TARGETS);
        }
        Ok(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(words: &[&str]) -> Result<Order> {
        Order::read(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn without_a_target_all_are_built() {
        assert_eq!(order(&[]).unwrap().targets, TARGETS);
        let one = order(&["--plain", "aarch64-apple-darwin", "--profile", "dev"]).unwrap();
        assert_eq!((one.targets.len(), one.profile.as_str(), one.features), (1, "dev", ""));
        assert_eq!(order(&["--test"]).unwrap().tests, Some(Tests::default()));
        let some = order(&["--test", "binary(demo)", "--arm64", "--profile", "dev"]).unwrap();
        let filter = Some("binary(demo)".to_owned());
        assert_eq!((some.tests, &*some.profile), (Some(Tests { filter, arm64: true }), "dev"));
        assert!(order(&["--arm64"]).is_err());
        let unknown = order(&["sparc"]).unwrap_err().to_string();
        assert!(unknown.contains("x86_64-pc-windows-gnu"), "{unknown}");
        assert!(order(&["--profile"]).is_err() && order(&["--what"]).is_err());
    }

    #[test]
    fn what_leaves_the_machine_has_no_path_of_it() {
        for target in TARGETS {
            let flags = |profile| {
                let variables = target.variables(profile);
                variables.into_iter().find(|(name, _)| name == "CARGO_ENCODED_RUSTFLAGS")
            };
            assert!(flags("dist").unwrap().1.contains("--remap-path-prefix=/src=."));
            assert_eq!(flags("dev"), None);
        }
    }
}
