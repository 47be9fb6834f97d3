//! PyPI packages, through the user's own uv, or pip if there is no uv. Only wheels: a source build runs code.

use std::path::{Path, PathBuf};

use metamcp_child::process_sandbox;
use metamcp_provisioning::provision::{
    Ages, Candidate, Facts, Lock, day, pip_ages, pip_files, pip_newest, pip_report, uv_error,
    uv_lock,
};
use serde_json::Value;

use super::clients::{
    ClientError, DOWNLOAD_TIMEOUT, LOOKUP_TIMEOUT, PYTHON, RESOLVE_TIMEOUT, prepare, recent, run,
};
use crate::files::Directory;

const UV: &str = "uv";
/// The lock: requirements with hashes.
pub(super) const PIP_LOCK: &str = "requirements.lock";
/// What the plan shows of the lock.
pub(super) const LOCKED: &str = "lock.json";
const PIP_REPORT: &str = "report.json";
const CONSTRAINTS: &str = "constraints.txt";
const WANTED: &str = "requirements.in";
/// Installs exactly the lock, with hashes verified, and runs no package code.
const ONLY: [&str; 7] =
    ["--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r", PIP_LOCK];
/// File names that uv requires.
const UV_FACTS: &str = "pylock.facts.toml";
const UV_LOCK: &str = "pylock.lock.toml";
/// Asks pip's own session for the files of packages.
const PIP_FILES: &str = include_str!("pip_files.py");
/// How often pip resolves again without versions that are too young; its next choice may be too young as well.
const MAX_RESOLUTIONS: usize = 6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Uv,
    Pip,
}

fn client() -> Result<Client, ClientError> {
    if process_sandbox::in_path(UV.as_ref()).is_some() {
        return Ok(Client::Uv);
    }
    match process_sandbox::in_path(PYTHON.as_ref()) {
        Some(_) => Ok(Client::Pip),
        None => Err(ClientError::Missing { program: "neither uv nor python3".to_owned() }),
    }
}

/// The metadata of a candidate's package.
pub(super) async fn facts(candidate: &Candidate, work: &Path) -> Result<Facts, ClientError> {
    let folder = prepare(work)?;
    let (name, version) = (&candidate.offer.identifier, &candidate.offer.version);
    if client()? == Client::Pip {
        let document = pip_ask(work, &[name]).await?;
        let facts = pip_files(name, version, &document);
        return Ok(Facts { client: Some("pip, as uv is not installed".to_owned()), ..facts });
    }
    let asked_of = Some("uv".to_owned());
    let printed = compile(&folder, &format!("{name}=={version}"), UV_FACTS, &["--no-deps"]).await?;
    if let Some(known) = uv_error(name, &printed.stderr).filter(|_| !printed.succeeded) {
        return Ok(Facts { client: asked_of, ..known });
    }
    if !printed.succeeded {
        return Err(printed.failure(UV));
    }
    let text = read(&folder, UV_FACTS)?.ok_or_else(|| unreadable(UV))?;
    let (mut facts, _, _) = uv_lock(name, version, &text).ok_or_else(|| unreadable(UV))?;
    facts.yanked = printed.stderr.contains("is yanked");
    Ok(Facts { client: asked_of, ..facts })
}

/// Resolves and pins all dependencies, in a file in `work`; nothing published after `before`.
pub(super) async fn lock(
    candidate: &Candidate,
    work: &Path,
    before: u64,
) -> Result<Lock, ClientError> {
    let folder = prepare(work)?;
    let (name, version) = (&candidate.offer.identifier, &candidate.offer.version);
    // Reused while a person reads the plan, also to avoid looking up the dates of thirty packages again.
    if let Some(raw) = recent(&folder, LOCKED)?
        && let Ok(lock) = serde_json::from_slice::<Lock>(&raw)
        && read(&folder, PIP_LOCK)?.is_some()
    {
        return Ok(lock);
    }
    let (lock, requirements) = match client()? {
        Client::Uv => {
            let wanted = format!("{name}=={version}");
            let limit = ["--exclude-newer", &day(before)];
            let printed = compile(&folder, &wanted, UV_LOCK, &limit).await?;
            if !printed.succeeded {
                return Err(printed.failure(UV));
            }
            let text = read(&folder, UV_LOCK)?.ok_or_else(|| unreadable(UV))?;
            let (_, lock, requirements) =
                uv_lock(name, version, &text).ok_or_else(|| unreadable(UV))?;
            (lock, requirements)
        }
        Client::Pip => pip_lock(&folder, (name, version), before).await?,
    };
    folder.replace(PIP_LOCK, requirements.as_bytes())?;
    folder.replace(LOCKED, &serde_json::to_vec(&lock).unwrap_or_default())?;
    Ok(lock)
}

/// Installs the lock in `prefix` into a virtual environment there.
pub(super) async fn install(prefix: &Path) -> Result<(), ClientError> {
    let client = client()?;
    let (program, venv): (&str, &[&str]) = match client {
        Client::Uv => (UV, &["venv", "--quiet", "venv"]),
        Client::Pip => (PYTHON, &["-I", "-m", "venv", "venv"]),
    };
    let printed = run(program, venv, prefix, DOWNLOAD_TIMEOUT).await?;
    if !printed.succeeded {
        return Err(printed.failure(program));
    }
    let python = prefix.join(super::install::PYTHON);
    let python = python.to_string_lossy();
    let mut args: Vec<&str> = match client {
        // Copies: changes to a file shared with the cache would affect other projects.
        Client::Uv => vec!["pip", "install", "--python", &python, "--link-mode", "copy"],
        Client::Pip => vec!["-I", "-m", "pip", "install"],
    };
    args.extend(ONLY);
    let (program, called) = if client == Client::Uv { (UV, UV) } else { (&*python, "pip") };
    let printed = run(program, &args, prefix, DOWNLOAD_TIMEOUT).await?;
    if printed.succeeded { Ok(()) } else { Err(printed.failure(called)) }
}

/// Downloads one package without its dependencies, and returns its folder: pip stores the wheel, uv its content. Both
/// verify the hash.
pub(crate) async fn fetch(
    name: &str,
    version: &str,
    sha256: &str,
    work: &Path,
) -> Result<PathBuf, ClientError> {
    const INTO: &str = "package";
    let requirement = format!("{name}=={version} --hash=sha256:{sha256}\n");
    prepare(work)?.replace(PIP_LOCK, requirement.as_bytes())?;
    let (program, called, mut args) = match client()? {
        Client::Uv => (UV, UV, vec!["pip", "install", "--link-mode", "copy", "--target", INTO]),
        Client::Pip => (PYTHON, "pip", vec!["-I", "-m", "pip", "download", "--dest", INTO]),
    };
    args.extend(ONLY);
    let printed = run(program, &args, work, DOWNLOAD_TIMEOUT).await?;
    if printed.succeeded { Ok(work.join(INTO)) } else { Err(printed.failure(called)) }
}

pub(super) async fn newest(name: &str, work: &Path) -> Result<Option<String>, ClientError> {
    let folder = prepare(work)?;
    if client()? == Client::Pip {
        let document = pip_ask(work, &[name]).await?;
        return Ok(pip_newest(name, &document));
    }
    let printed = compile(&folder, name, UV_FACTS, &["--no-deps", "--upgrade"]).await?;
    let text = read(&folder, UV_FACTS)?.filter(|_| printed.succeeded).unwrap_or_default();
    Ok(metamcp_provisioning::provision::uv_version(name, &text))
}

async fn compile(
    folder: &Directory,
    wanted: &str,
    output: &str,
    more: &[&str],
) -> Result<super::clients::Printed, ClientError> {
    folder.replace(WANTED, format!("{wanted}\n").as_bytes())?;
    folder.remove(output)?;
    let mut args = vec!["pip", "compile", WANTED, "--format", "pylock.toml", "--output-file"];
    args.extend([output, "--only-binary", ":all:", "--no-header", "--no-progress"]);
    args.extend(more);
    run(UV, &args, folder.path(), RESOLVE_TIMEOUT).await
}

async fn pip_ask(work: &Path, names: &[&str]) -> Result<Value, ClientError> {
    let args: Vec<&str> =
        ["-I", "-c", PIP_FILES].into_iter().chain(names.iter().copied()).collect();
    let limit = if names.len() == 1 { LOOKUP_TIMEOUT } else { RESOLVE_TIMEOUT };
    let printed = run(PYTHON, &args, work, limit).await?;
    if !printed.succeeded {
        return Err(printed.failure("pip"));
    }
    Ok(serde_json::from_slice(&printed.stdout).unwrap_or_default())
}

/// Not every pip can exclude versions by date. So its choice is checked, and it resolves again without what is too young.
async fn pip_lock(
    folder: &Directory,
    (name, version): (&str, &str),
    before: u64,
) -> Result<(Lock, String), ClientError> {
    let work = folder.path();
    let spec = format!("{name}=={version}");
    let mut constraints = String::new();
    for _ in 0..MAX_RESOLUTIONS {
        folder.replace(CONSTRAINTS, constraints.as_bytes())?;
        let mut args = vec!["-I", "-m", "pip", "install", "--dry-run", "--quiet"];
        args.extend(["--ignore-installed", "--only-binary", ":all:", "-c", CONSTRAINTS]);
        args.extend(["--report", PIP_REPORT, spec.as_str()]);
        let printed = run(PYTHON, &args, work, RESOLVE_TIMEOUT).await?;
        if !printed.succeeded {
            return Err(printed.failure("pip"));
        }
        let raw = recent(folder, PIP_REPORT)?.ok_or_else(|| unreadable("pip"))?;
        let document: Value = serde_json::from_slice(&raw).map_err(|_| unreadable("pip"))?;
        let (mut lock, requirements) =
            pip_report(name, version, &document).ok_or_else(|| unreadable("pip"))?;
        let names: Vec<&str> =
            requirements.lines().filter_map(|line| Some(line.split_once("==")?.0)).collect();
        let files = pip_ask(work, &names).await?;
        let Ages { too_young, undated } = pip_ages(&requirements, &files, before);
        lock.undated = undated;
        if too_young.is_empty() {
            return Ok((lock, requirements));
        }
        constraints.push_str(&too_young);
    }
    let why = "pip finds no old enough versions of its dependencies".to_owned();
    Err(ClientError::Unusable { why })
}

fn read(folder: &Directory, name: &str) -> Result<Option<String>, ClientError> {
    Ok(recent(folder, name)?.and_then(|raw| String::from_utf8(raw).ok()))
}

fn unreadable(program: &str) -> ClientError {
    let said = "its lock file cannot be parsed".to_owned();
    ClientError::Failed { program: program.to_owned(), said }
}
