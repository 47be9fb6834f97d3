//! `metamcp trust` and `metamcp untrust`: whether the `.mcp.json` of a folder may be used.
//! Owns: what a person sees before deciding.      Never: takes a pipe for a person, approves bytes it did not show.
//! In: a folder.  Out: a decision in the `TrustStore`, which running gateways follow.
//! Tests: `tests/config/trust.rs`.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use metamcp_config::config::ServerOrigin;
use metamcp_config::settings::Given;
use metamcp_engine::config::{self, Loaded, Project, ProjectTrust, Source};
use metamcp_engine::observe::Subject;
use metamcp_engine::provision::Store;
use metamcp_engine::trust::{self, Record, TrustStore};
use metamcp_types::text::spelt;
use serde_json::{Value, json};

use super::audited::Audited;
use crate::args::{TrustArgs, UntrustArgs};
use crate::exit::{Exit, misuse};
use crate::render::{self, BOLD, DIM, YELLOW, styled};
use crate::{asked, cannot_load, console, prompt};

/// Longest path shown, in characters.
const LONGEST: usize = 1_000;

pub(crate) fn run(
    flags: Vec<Given>,
    args: &TrustArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let folder = folder(args.folder.as_deref())?;
    let loaded = match config::load(asked(flags, &folder)) {
        Ok(loaded) => loaded,
        Err(error) => return cannot_load(&error, args.json),
    };
    if args.list {
        return list(&loaded, args.json, out);
    }
    let mut project = found(&loaded, &folder)?.clone();
    let installed = Store::new(&loaded.config.settings.home).records();
    project.preview.replaces(|name| {
        let is_it = installed.iter().any(|record| record.plan.server == name);
        is_it.then_some(ServerOrigin::Provisioned)
    });
    match &project.trust {
        ProjectTrust::Unusable(why) => {
            bail!("{} cannot be approved: {}", project.path.display(), spelt(why, LONGEST));
        }
        ProjectTrust::Idle => {
            let words = "only starts this gateway, so there is nothing to approve";
            return told(&project, "idle", words, args.json, out);
        }
        ProjectTrust::Trusted | ProjectTrust::Waiting { .. } | ProjectTrust::Declined => {}
    }
    if args.yes {
        let seen = args.sha256.as_deref().unwrap_or_default();
        if !seen.eq_ignore_ascii_case(&project.sha256) {
            return Err(misuse(format!(
                "--yes approves what you have seen: --sha256 has to be the current hash of {}, which `metamcp trust --json` shows",
                project.path.display()
            )));
        }
    }
    if project.trust == ProjectTrust::Trusted {
        return told(&project, "trusted", "is approved as it is", args.json, out);
    }
    if args.json && !args.yes {
        return told(&project, standing(&project), "", true, out);
    }
    if !args.json {
        show(&project, out)?;
    }
    if !args.yes {
        // What a program can type, a model can make a program type; it has to name the hash that it approves.
        if !prompt::is_there() {
            return Err(misuse(
                "nothing was approved: there is no terminal to ask at; --yes with --sha256 and the hash shown approves exactly that",
            ));
        }
        if prompt::line(out, "Trust exactly this file? Type yes: ")? != "yes" {
            writeln!(out, "Nothing was approved.")?;
            return Ok(Exit::Failure);
        }
    }
    let file = project.path.to_string_lossy();
    let subject = Subject::Trust { file: &file, sha256: &project.sha256 };
    Audited::new(&loaded.config.settings).record(subject, "approved")?;
    project.approve()?;
    project.trust = ProjectTrust::Trusted;
    told(
        &project,
        "trusted",
        "is approved; a gateway in that folder uses it from now on",
        args.json,
        out,
    )
}

pub(crate) fn undo(
    loaded: &Loaded,
    args: &UntrustArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let path = folder(args.folder.as_deref())?.join(".mcp.json");
    let file = path.to_string_lossy();
    let subject = Subject::Trust { file: &file, sha256: "" };
    Audited::new(&loaded.config.settings).record(subject, "forgotten")?;
    let was_known = TrustStore::new(&loaded.config.settings.home).forget(&path)?;
    if args.json {
        writeln!(out, "{:#}", json!({ "file": path, "forgotten": was_known }))?;
    } else {
        let words = match was_known {
            true => "is no longer approved; gateways in that folder stop using it",
            false => "was not approved",
        };
        writeln!(out, "{} {words}", shown(&path))?;
    }
    Ok(if was_known { Exit::Success } else { Exit::Failure })
}

/// The folder, even if it no longer exists. A path to the file means its folder.
fn folder(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let here = console::folder().context("the working directory is not known")?;
    let folder = named.map_or_else(|| here.clone(), |named| here.join(named));
    let folder = match folder.file_name() {
        Some(name) if name == ".mcp.json" => folder.parent().map(Path::to_owned).unwrap_or(here),
        _ => folder,
    };
    Ok(dunce::canonicalize(&folder).unwrap_or(folder))
}

fn found<'a>(loaded: &'a Loaded, folder: &Path) -> anyhow::Result<&'a Project> {
    if let Some(project) = &loaded.project {
        return Ok(project);
    }
    if let Source::Named(path) = &loaded.source {
        bail!(
            "{} is named by --config or METAMCP_CONFIG and therefore trusted; no project file is read beside it",
            shown(path)
        );
    }
    bail!("there is no .mcp.json in {}, or it is your own", shown(folder))
}

/// Shows everything a person needs to decide.
fn show(project: &Project, out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "{}", styled(BOLD, &shown(&project.path)))?;
    if let Some(link) = &project.link {
        writeln!(out, "is a link to {}", shown(link))?;
    }
    writeln!(
        out,
        "{}",
        match project.trust {
            ProjectTrust::Waiting { changed: true } =>
                "Changed since you approved it. Approved again, it would do this:",
            ProjectTrust::Declined => "You declined it before. Approved, it would do this:",
            _ => "Not approved yet. Approved, it would do this:",
        }
    )?;
    writeln!(out, "\n{}", render::visible(&project.preview.told()))?;
    if project.preview.is_cut {
        let careful = "warning: some of it is too long to be shown; read the file first";
        writeln!(out, "{}", styled(YELLOW, careful))?;
    }
    writeln!(out, "{}", styled(DIM, &format!("sha256 {}", project.sha256)))?;
    let limits = "Programs it names run as you and may change without the file changing.";
    writeln!(out, "{}", styled(DIM, limits))?;
    Ok(())
}

fn told(
    project: &Project,
    trust: &str,
    words: &str,
    json: bool,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    if json {
        let told = json!({
            "file": project.path,
            "link": project.link,
            "sha256": project.sha256,
            "standing": trust,
            "picture": project.preview.json(),
        });
        writeln!(out, "{told:#}")?;
    } else {
        writeln!(out, "{} {words}", shown(&project.path))?;
    }
    Ok(Exit::Success)
}

fn standing(project: &Project) -> &'static str {
    match project.trust {
        ProjectTrust::Trusted => "trusted",
        ProjectTrust::Waiting { changed: false } => "waiting",
        ProjectTrust::Waiting { changed: true } => "changed",
        ProjectTrust::Declined => "declined",
        ProjectTrust::Idle => "idle",
        ProjectTrust::Unusable(_) => "unusable",
    }
}

fn list(loaded: &Loaded, json: bool, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let records = TrustStore::new(&loaded.config.settings.home).records()?;
    let state = |record: &Record| {
        // Only small files are read for this; one that is too large was never approved.
        let is_small = std::fs::metadata(&record.path)
            .is_ok_and(|file| file.is_file() && file.len() <= config::LARGEST_FILE);
        match is_small.then(|| std::fs::read(&record.path)) {
            Some(Ok(bytes)) if trust::sha256(&bytes) == record.sha256 => {
                if record.trusted {
                    "trusted"
                } else {
                    "declined"
                }
            }
            Some(_) => "changed",
            None => "gone",
        }
    };
    if json {
        let all: Vec<Value> = records
            .iter()
            .map(|record| {
                json!({
                    "file": record.path, "sha256": record.sha256, "standing": state(record),
                    "trusted": record.trusted, "at_ms": record.at,
                })
            })
            .collect();
        writeln!(out, "{:#}", Value::from(all))?;
        return Ok(Exit::Success);
    }
    if records.is_empty() {
        writeln!(out, "There are no decisions about project files.")?;
    }
    for record in &records {
        writeln!(out, "{}: {}", spelt(&record.path, LONGEST), state(record))?;
    }
    Ok(Exit::Success)
}

fn shown(path: &Path) -> String {
    spelt(&path.to_string_lossy(), LONGEST)
}
