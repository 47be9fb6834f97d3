//! Installs exactly what a plan says into its own folder: the packages of its lock, each verified against its hash by the
//! package client. Package code runs only if that was approved.

use std::io::Read;
use std::path::{Path, PathBuf};

use metamcp_child::{SandboxPolicy, ShimCommand};
use metamcp_provisioning::provision::{Contained, Kind, Plan, Word, npm_lock};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::clients::{self, ClientError, DOWNLOAD_TIMEOUT, NPM, NPM_LOCK, run, run_sandboxed};
use super::images;
use super::python::{self, PIP_LOCK};
use super::secret_store::SecretStoreError;
use super::store::StoreError;
use crate::files::FileError;
use crate::manifest;

const MAX_LOCK: u64 = 16 * 1024 * 1024;
/// The one folder that a server may write to, inside its installation. The approved files are beside it, read-only for the
/// server.
pub(super) const DATA: &str = "data";
pub(super) const MODULES: &str = "node_modules";
/// The Python of a package's virtual environment.
pub(super) const PYTHON: &str = "venv/bin/python";

#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The lock differs from the approved one.
    #[error("what would be installed is no longer what was agreed to: {what}")]
    Changed { what: String },
    /// The client failed, also when a hash does not match.
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the name {name:?} was taken since this was planned; create a new plan")]
    NameTaken { name: String },
    #[error("it is installed already, as {name:?}")]
    There { name: String },
    /// Another process holds the installation lock.
    #[error("another metamcp is installing something; try again when it is done")]
    Busy,
    #[error(transparent)]
    SecretStore(#[from] SecretStoreError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{why}")]
    Unusable { why: String },
}

#[derive(Debug, Default)]
pub(super) struct Done {
    /// Whether it pulled an image that was not on this machine.
    pub brought: bool,
    /// The digest of the manifest of its files.
    pub manifest: Option<String>,
}

/// Runs the plan's installation; on failure its folder is removed again. `takes_secrets`: one of its arguments is a
/// secret.
pub(super) async fn install(
    plan: &Plan,
    work: &Path,
    shim: Option<&ShimCommand>,
    takes_secrets: bool,
) -> Result<Done, InstallError> {
    // The remains of an earlier attempt were never approved.
    remove(Path::new(&plan.prefix))?;
    let done = carry_out(plan, work, shim, takes_secrets).await;
    if done.is_err() {
        remove(Path::new(&plan.prefix))?;
    }
    done
}

async fn carry_out(
    plan: &Plan,
    work: &Path,
    shim: Option<&ShimCommand>,
    takes_secrets: bool,
) -> Result<Done, InstallError> {
    let prefix = Path::new(&plan.prefix);
    match plan.kind {
        Kind::Npm => npm(plan, work, prefix, shim).await?,
        Kind::Pypi => {
            pypi(plan, work, prefix).await?;
            if takes_secrets {
                can_be_handed_secrets(plan)?;
            }
        }
        Kind::Oci => {
            clients::prepare(prefix)?;
            let brought = images::fetch(plan, prefix).await?;
            return Ok(Done { brought, manifest: None });
        }
        Kind::Remote => drop(clients::prepare(prefix)?),
    }
    let folder = prefix.to_owned();
    let recorded = tokio::task::spawn_blocking(move || manifest::record(&folder)).await;
    let unusable = |why: String| InstallError::Unusable { why };
    let manifest = recorded
        .map_err(|error| unusable(error.to_string()))?
        .map_err(|changed| unusable(format!("its files cannot be recorded: {changed}")))?;
    Ok(Done { brought: false, manifest: Some(manifest) })
}

async fn npm(
    plan: &Plan,
    work: &Path,
    prefix: &Path,
    shim: Option<&ShimCommand>,
) -> Result<(), InstallError> {
    let raw = agreed_lock(plan, work, NPM_LOCK)?;
    let lock = npm_lock(&plan.identifier, &raw);
    if lock.as_ref() != plan.lock.as_ref() {
        return Err(InstallError::Changed { what: "its lockfile".to_owned() });
    }
    let folder = clients::prepare(prefix)?;
    let manifest = json!({
        "name": "provisioned",
        "version": "0.0.0",
        "private": true,
        "dependencies": { plan.identifier.as_str(): plan.version },
    });
    folder.replace("package.json", manifest.to_string().as_bytes())?;
    folder.replace(NPM_LOCK, &raw)?;
    let args = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev"];
    let printed = run(NPM, &args, prefix, DOWNLOAD_TIMEOUT).await?;
    if !printed.succeeded {
        return Err(printed.failure("npm").into());
    }
    if plan.verdict.scripts_agreed {
        // The download may need the user's tokens; package code gets none of them, nor access to the user's files.
        let behind = match (&plan.contained, shim) {
            (Contained::Sandbox, Some(shim)) => Some((shim, sandbox_policy(prefix).await)),
            (Contained::Sandbox, None) => {
                let why = "its install scripts cannot be sandboxed here".to_owned();
                return Err(InstallError::Unusable { why });
            }
            // As the plan said.
            _ => None,
        };
        let args = ["rebuild", "--ignore-scripts=false"];
        let printed = run_sandboxed((NPM, &args), prefix, DOWNLOAD_TIMEOUT, behind).await?;
        if !printed.succeeded {
            return Err(printed.failure("npm").into());
        }
        if inside(prefix, &Path::new(MODULES).join(&plan.identifier)).is_none() {
            let why = "its install script replaced its folder".to_owned();
            return Err(InstallError::Unusable { why });
        }
    }
    is_there(plan, 1)
}

/// The sandbox of install scripts: they may write all packages, since they build some, and the server's own folder, which
/// is their home. The network is open, as many download what they build.
async fn sandbox_policy(prefix: &Path) -> SandboxPolicy {
    let mut reads = vec![prefix.to_owned()];
    // npm is beside its node.
    let node = clients::node(prefix).await;
    reads.extend(node.iter().flat_map(|node| metamcp_child::process_sandbox::runtime(node)));
    reads.extend(metamcp_child::environment::certificate_files());
    SandboxPolicy { home: prefix.join(DATA), reads, writes: vec![prefix.join(MODULES)] }
}

/// The real path of a server's file, if no symlink on the way leads elsewhere.
pub(super) fn inside(prefix: &Path, own: &Path) -> Option<PathBuf> {
    let real = dunce::canonicalize(prefix.join(own)).ok()?;
    (real == dunce::canonicalize(prefix).ok()?.join(own)).then_some(real)
}

async fn pypi(plan: &Plan, work: &Path, prefix: &Path) -> Result<(), InstallError> {
    let raw = agreed_lock(plan, work, PIP_LOCK)?;
    let folder = clients::prepare(prefix)?;
    folder.replace(PIP_LOCK, &raw)?;
    python::install(prefix).await?;
    is_there(plan, 0)
}

/// Only Python and node programs can get a secret argument without exposing it in the command line.
pub(super) fn can_be_handed_secrets(plan: &Plan) -> Result<(), InstallError> {
    if !program(plan, 0).is_some_and(is_python) {
        let why = "it takes a secret as an argument, and its program is not a Python script, so every user of this machine could read it in the list of processes";
        return Err(InstallError::Unusable { why: why.to_owned() });
    }
    Ok(())
}

/// Whether a script's shebang names a Python: its path, or a shell that runs one if the path is too long.
pub(super) fn is_python(program: &Path) -> bool {
    let mut start = Vec::new();
    let read = std::fs::File::open(program).and_then(|file| file.take(512).read_to_end(&mut start));
    let start = String::from_utf8_lossy(&start);
    let mut lines = start.lines().take(2);
    read.is_ok() && start.starts_with("#!") && lines.any(|line| line.contains("python"))
}

/// The lock that the plan was made with, verified by its digest.
fn agreed_lock(plan: &Plan, work: &Path, name: &str) -> Result<Vec<u8>, InstallError> {
    let changed = || InstallError::Changed { what: "its lockfile".to_owned() };
    let folder = clients::prepare(work)?;
    let raw = folder.open(name)?.ok_or_else(changed)?.read(MAX_LOCK)?;
    let digest: String = Sha256::digest(&raw).iter().map(|byte| format!("{byte:02x}")).collect();
    match &plan.lock {
        Some(lock) if lock.digest == digest => Ok(raw),
        _ => Err(changed()),
    }
}

/// Checks that the package contains the program.
fn is_there(plan: &Plan, word: usize) -> Result<(), InstallError> {
    match program(plan, word) {
        Some(path) if path.is_file() => Ok(()),
        _ => Err(InstallError::Unusable {
            why: format!(
                "{} {} came without the program it should have",
                plan.identifier, plan.version
            ),
        }),
    }
}

fn program(plan: &Plan, word: usize) -> Option<&Path> {
    match plan.argv.get(word)? {
        Word::Fixed(path) => Some(Path::new(path)),
        Word::Asked(_) => None,
    }
}

/// Removes a folder of ours with its content; a symlink in its place is removed, not followed.
pub(super) fn remove(folder: &Path) -> Result<(), FileError> {
    let failed = |source| FileError::Io { action: "remove", path: folder.to_owned(), source };
    match std::fs::symlink_metadata(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(folder).map_err(failed),
        Ok(_) => std::fs::remove_file(folder).map_err(failed),
    }
}
