//! Puts into a folder of its own exactly what a plan says: the packages of its lock, each checked against its hash by
//! the client that fetches it. Code of a package runs only where that was agreed to.

use std::io::Read;
use std::path::{Path, PathBuf};

use metamcp_child::{SandboxPolicy, ShimCommand};
use metamcp_provisioning::provision::{Contained, Kind, Plan, Word, npm_lock};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::clients::{self, ClientError, FETCH, NPM, NPM_LOCK, run, run_apart};
use super::images;
use super::python::{self, PIP_LOCK};
use super::secret_store::SecretStoreError;
use super::store::StoreError;
use crate::files::FileError;
use crate::manifest;

/// Largest lock.
const MAX_LOCK: u64 = 16 * 1024 * 1024;
/// The folder of a server's own that it may write to, in the one it is installed into. What was agreed to lies beside
/// it, out of its reach.
pub(super) const DATA: &str = "data";
/// Where npm puts packages.
pub(super) const MODULES: &str = "node_modules";
/// The Python of a package's own environment.
pub(super) const PYTHON: &str = "venv/bin/python";

/// Why it was not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// What was resolved is not what was agreed to.
    #[error("what would be installed is no longer what was agreed to: {what}")]
    Changed {
        /// What differs.
        what: String,
    },
    /// The client failed; a hash that does not match is among its reasons.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A file of ours.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another server has the name that this one was planned with.
    #[error("the name {name:?} was taken since this was planned; ask for it again")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Somebody else installed the same meanwhile.
    #[error("it is installed already, as {name:?}")]
    There {
        /// Its name.
        name: String,
    },
    /// Somebody else installs something and does not come to an end.
    #[error("another metamcp is installing something; try again when it is done")]
    Busy,
    /// A secret could not be put away.
    #[error(transparent)]
    SecretStore(#[from] SecretStoreError),
    /// Remembering it failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something else.
    #[error("{why}")]
    Unusable {
        /// What.
        why: String,
    },
}

/// What an installation left.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Whether it brought an image here that was not here before.
    pub brought: bool,
    /// The digest of what was written down of its files.
    pub manifest: Option<String>,
}

/// Carries out the plan's installation; on failure its folder is removed again. `takes_secrets`: as it was agreed to, an
/// argument of it is one.
pub(super) async fn install(
    plan: &Plan,
    work: &Path,
    shim: Option<&ShimCommand>,
    takes_secrets: bool,
) -> Result<Done, InstallError> {
    // What an earlier attempt left behind was never agreed to be run.
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
        .map_err(|changed| unusable(format!("its files cannot be written down: {changed}")))?;
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
    let printed = run(NPM, &args, prefix, FETCH).await?;
    if !printed.succeeded {
        return Err(printed.failure("npm").into());
    }
    if plan.verdict.scripts_agreed {
        // Fetching may need the user's tokens; the code of packages gets none of them, nor a file of the user's.
        let behind = match (&plan.contained, shim) {
            (Contained::Sandbox, Some(shim)) => Some((shim, sandbox_policy(prefix).await)),
            (Contained::Sandbox, None) => {
                let why = "nothing here can raise walls around its install scripts".to_owned();
                return Err(InstallError::Unusable { why });
            }
            // The plan said so.
            _ => None,
        };
        let args = ["rebuild", "--ignore-scripts=false"];
        let printed = run_apart((NPM, &args), prefix, FETCH, behind).await?;
        if !printed.succeeded {
            return Err(printed.failure("npm").into());
        }
        if inside(prefix, &Path::new(MODULES).join(&plan.identifier)).is_none() {
            let why = "its install script put something else in the place of its folder".to_owned();
            return Err(InstallError::Unusable { why });
        }
    }
    is_there(plan, 1)
}

/// Walls around install scripts: they write all packages, since they build some, and the folder that will be the
/// server's own, which they take for the user's home. The network is open to them, as many fetch what they build of.
async fn sandbox_policy(prefix: &Path) -> SandboxPolicy {
    let mut reads = vec![prefix.to_owned()];
    // npm lies beside its node.
    let node = clients::node(prefix).await;
    reads.extend(node.iter().flat_map(|node| metamcp_child::process_sandbox::runtime(node)));
    reads.extend(metamcp_child::environment::certificate_files());
    SandboxPolicy { home: prefix.join(DATA), reads, writes: vec![prefix.join(MODULES)] }
}

/// The real place of a file of a server, if it is where it seems to be: no part of the way leads elsewhere.
pub(super) fn inside(prefix: &Path, own: &Path) -> Option<PathBuf> {
    let real = prefix.join(own).canonicalize().ok()?;
    (real == prefix.canonicalize().ok()?.join(own)).then_some(real)
}

async fn pypi(plan: &Plan, work: &Path, prefix: &Path) -> Result<(), InstallError> {
    let raw = agreed_lock(plan, work, PIP_LOCK)?;
    let folder = clients::prepare(prefix)?;
    folder.replace(PIP_LOCK, &raw)?;
    python::install(prefix).await?;
    is_there(plan, 0)
}

/// Only a Python can be handed an argument otherwise than in its command line.
pub(super) fn can_be_handed_secrets(plan: &Plan) -> Result<(), InstallError> {
    if !program(plan, 0).is_some_and(is_python) {
        let why = "it takes a secret as an argument, and its program is none of Python, so every user of this machine could read it in the list of processes";
        return Err(InstallError::Unusable { why: why.to_owned() });
    }
    Ok(())
}

/// Whether a program names a Python in its first lines: the path of one, or a shell that runs one where that is too long.
pub(super) fn is_python(program: &Path) -> bool {
    let mut start = Vec::new();
    let read = std::fs::File::open(program).and_then(|file| file.take(512).read_to_end(&mut start));
    let start = String::from_utf8_lossy(&start);
    let mut lines = start.lines().take(2);
    read.is_ok() && start.starts_with("#!") && lines.any(|line| line.contains("python"))
}

/// The lock the plan was made with, by its digest.
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

/// The program itself came with the package.
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

/// Removes a folder of ours with all that is in it; a link in its place is removed, not followed.
pub(super) fn remove(folder: &Path) -> Result<(), FileError> {
    let failed = |source| FileError::Io { action: "remove", path: folder.to_owned(), source };
    match std::fs::symlink_metadata(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(folder).map_err(failed),
        Ok(_) => std::fs::remove_file(folder).map_err(failed),
    }
}
