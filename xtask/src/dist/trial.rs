//! Installs what is in `dist/` into empty places, by the package clients themselves, and uses it: the demo, a call to a real
//! server, what the program says of itself.
//! Owns: the trials and their table.      Never: reaches a registry for our own packages, writes outside of temporary folders and `target/dist`.
//! In: `dist/`.  Out: a row for each package, and an error if one failed.
//! Tests: it is one.

mod image;
mod packages;
pub(crate) mod roots;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::served::Served;
use super::targets::{TARGETS, Target};
use super::{contents, lint};
use crate::workspace::Workspace;
use crate::{real, run};

/// Starts of a program that are timed; the fastest counts, since noise only adds.
const STARTS: usize = 25;

/// What the last run of all trials found, for the benchmark's page.
pub(crate) const RESULTS: &str = "trials.json";

/// What a trial has to work with.
pub(super) struct Ground {
    pub(super) dist: PathBuf,
    pub(super) version: String,
    pub(super) served: Served,
    pub(super) target: &'static Target,
    /// The packages of npm with a real server.
    pub(super) servers: PathBuf,
    /// Programs of the linters' environment, which has pip.
    pub(super) tools: PathBuf,
    /// Kept from run to run: root folders of distributions.
    pub(super) cache: PathBuf,
    /// The program alone, and how long it takes to start.
    pub(super) bare: PathBuf,
}

/// An installed program, as people start it.
pub(super) struct Installed {
    /// The words before metamcp's own.
    pub(super) start: Vec<String>,
    /// Root of another system, for `chroot`.
    pub(super) root: Option<PathBuf>,
    pub(super) home: PathBuf,
    /// More variables.
    pub(super) env: Vec<(String, String)>,
    /// Who `version --json` has to name.
    pub(super) by: &'static str,
    /// What was downloaded to get it, in bytes.
    pub(super) size: u64,
}

/// One row of the table.
struct Row {
    name: String,
    size: u64,
    starts: Starts,
    note: String,
}

type Trial = fn(&Ground, &Path) -> Result<Vec<(String, Installed)>>;

const TRIALS: &[(&str, Trial)] = &[
    ("archive", packages::archive),
    ("npm", packages::npm),
    ("npx", packages::npx),
    ("pip", packages::pip),
    ("uvx", packages::uvx),
    ("script", packages::script),
    ("deb", roots::debs),
    ("image", image::image),
];

pub(super) fn all(workspace: &Workspace, dist: &Path, only: &[String]) -> Result<()> {
    for name in only {
        if !TRIALS.iter().any(|(known, _)| known == name) {
            let known: Vec<&str> = TRIALS.iter().map(|(name, _)| *name).collect();
            bail!("there is no trial {name:?}; the trials are {}", known.join(", "));
        }
    }
    let (version, _) = contents::identity(workspace)?;
    let is_here = |target: &&Target| {
        let wheel = format!("metamcp-{version}-py3-none-{}.whl", target.wheel.join("."));
        target.runs_here() && dist.join("pypi").join(wheel).exists()
    };
    let target = TARGETS.iter().find(is_here).context("dist/ has no packages for this machine")?;
    let cache = workspace.target.join("dist");
    let bare = cache.join("bare");
    unpack(&dist.join(format!("metamcp-{version}-{}.tar.gz", target.label())), &bare)?;
    let bare = bare.join(format!("metamcp-{version}-{}/bin/metamcp", target.label()));
    let ground = Ground {
        dist: dist.to_owned(),
        version,
        served: Served::start(dist)?,
        target,
        servers: real::servers(workspace)?,
        tools: cache.join("linters/bin"),
        cache,
        bare,
    };
    let mut out = io::stdout();
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    for (name, trial) in TRIALS.iter().filter(|(name, _)| wanted(name)) {
        writeln!(io::stderr(), "dist: {name}")?;
        let place = tempfile::Builder::new().prefix("metamcp-trial-").tempdir()?;
        let tried = trial(&ground, place.path()).and_then(|all| {
            all.into_iter()
                .map(|(name, installed)| used(&ground, name, &installed))
                .collect::<Result<Vec<Row>>>()
        });
        roots::release();
        match tried {
            Ok(tried) => rows.extend(tried),
            Err(error) => {
                writeln!(io::stderr(), "dist: {name} FAILED: {error:#}")?;
                failed.push(*name);
            }
        }
    }
    writeln!(out, "\n{:<34} {:>9} {:>9} {:>11}  used", "package", "MB", "start ms", "over bare")?;
    for row in &rows {
        writeln!(
            out,
            "{:<34} {:>9.1} {:>9.1} {:>11.1}  {}",
            row.name,
            row.size as f64 / 1e6,
            row.starts.own_ms,
            row.starts.own_ms - row.starts.bare_ms,
            row.note
        )?;
    }
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    if only.is_empty() {
        let told: Vec<Value> = rows
            .iter()
            .map(|row| {
                json!({
                    "package": row.name, "bytes": row.size,
                    "startMs": row.starts.own_ms, "bareMs": row.starts.bare_ms,
                })
            })
            .collect();
        fs::write(ground.cache.join(RESULTS), format!("{:#}\n", Value::Array(told)))?;
    }
    Ok(())
}

/// Uses an installed program: the demo, a real server, its own account of itself.
fn used(ground: &Ground, name: String, installed: &Installed) -> Result<Row> {
    let told = |words: &[&str]| -> Result<String> {
        run::quiet(installed.command().args(words))
            .with_context(|| format!("{name}: metamcp {}", words.join(" ")))
    };
    let version: Value = serde_json::from_str(&told(&["--version", "--json"])?)?;
    if version["version"] != ground.version.as_str() || version["installedBy"] != installed.by {
        bail!("{name} says {version}, and not that it was installed by {}", installed.by);
    }
    told(&["demo"])?;
    let model: Value = serde_json::from_str(&told(&["model", "show", "--json"])?)?;
    if model["usable"] != true || model["packaged"] != true {
        bail!("{name} does not find its model: {model}");
    }
    let server = "/servers/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let (config, server) = match &installed.root {
        Some(root) => (root.join("tmp/mcp.json"), server.to_owned()),
        None => {
            let server =
                ground.servers.join("@modelcontextprotocol/server-everything/dist/index.js");
            (installed.home.join("trial.json"), server.display().to_string())
        }
    };
    let note = if installed.by == "docker" {
        "demo, model, health check; no Node in it for a server"
    } else {
        let servers =
            json!({ "mcpServers": { "everything": { "command": "node", "args": [server] } } });
        fs::create_dir_all(config.parent().unwrap_or(&config))?;
        fs::write(&config, servers.to_string())?;
        let config = match &installed.root {
            Some(_) => "/tmp/mcp.json".to_owned(),
            None => config.display().to_string(),
        };
        let answer = told(&[
            "call",
            "everything:echo",
            "message=hello from a package",
            "--config",
            &config,
        ])?;
        if !answer.contains("hello from a package") {
            bail!("{name}: the server answered {answer}");
        }
        "demo, model, a call to server-everything"
    };
    let note = note.to_owned();
    let starts = starts(&mut Command::new(&ground.bare), &mut installed.command())?;
    Ok(Row { name, size: installed.size, starts, note })
}

impl Installed {
    /// The program in an empty environment, without our arguments.
    pub(super) fn command(&self) -> Command {
        let mut words = self.start.iter();
        let mut command = match &self.root {
            Some(root) => {
                let mut command = Command::new("chroot");
                command.arg(root);
                command
            }
            None => Command::new(words.next().map(String::as_str).unwrap_or_default()),
        };
        command.args(words).env_clear().current_dir("/");
        command.env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
        command.env("HOME", &self.home).env("METAMCP_DAEMON", "off").env("LC_ALL", "C.UTF-8");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command
    }
}

/// The fastest start of the program alone and as installed.
struct Starts {
    bare_ms: f64,
    own_ms: f64,
}

/// In turns, so that both have the same machine.
fn starts(bare: &mut Command, own: &mut Command) -> Result<Starts> {
    let mut best = [f64::INFINITY; 2];
    for command in [&mut *bare, &mut *own] {
        command.arg("version");
    }
    for _ in 0..STARTS {
        for (command, best) in [&mut *bare, &mut *own].into_iter().zip(&mut best) {
            let began = Instant::now();
            run::quiet(command)?;
            *best = best.min(began.elapsed().as_secs_f64() * 1000.0);
        }
    }
    let [bare_ms, own_ms] = best;
    Ok(Starts { bare_ms, own_ms })
}

pub(super) fn unpack(archive: &Path, into: &Path) -> Result<()> {
    if into.exists() {
        fs::remove_dir_all(into)?;
    }
    fs::create_dir_all(into)?;
    run::quiet(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(into))?;
    Ok(())
}

/// The one file whose name begins and ends like this.
pub(super) fn one(folder: &Path, start: &str, ending: &str) -> Result<PathBuf> {
    let all = lint::files(folder, ending)?.into_iter();
    let mut all = all.filter(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
    });
    all.next().with_context(|| format!("{} has no {start}*.{ending}", folder.display()))
}

pub(super) fn size(path: &Path) -> Result<u64> {
    Ok(fs::metadata(path).with_context(|| path.display().to_string())?.len())
}
