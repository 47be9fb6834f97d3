//! The user's own package clients, asked about packages. No shell, no package code, bounded in time and output; where
//! they look, through which mirror and proxy, is theirs to know.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use metamcp_child::{Containment, SandboxPolicy, ShimCommand, Spawner, Spec, environment};
use metamcp_config::config::PassEnv;
use metamcp_provisioning::provision::{
    Candidate, Contained, Facts, Kind, Lock, Plan, day, npm_error, npm_lock, npm_view,
};
use metamcp_types::secret::names_a_secret;
use metamcp_types::text;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use super::{images, python};
use crate::env;
use crate::files::{Directory, FileError};

/// To look something up.
pub(super) const LOOK: Duration = Duration::from_secs(30);
/// To resolve everything a package needs, which fetches the description of each part.
pub(super) const RESOLVE: Duration = Duration::from_mins(3);
/// To fetch and unpack all of it.
pub(super) const FETCH: Duration = Duration::from_mins(5);
/// Most of the output that is read; descriptions of packages with a thousand versions are a few megabytes.
const MAX_OUTPUT: u64 = 32 * 1024 * 1024;
/// Most of the complaints that are read.
const MAX_COMPLAINT: usize = 600;
/// The same of one behind walls, in lines.
const LINES_OF_COMPLAINT: usize = 20;
/// What keeps clients from asking, from colours and from news about themselves.
const QUIET: [(&str, &str); 5] = [
    ("NO_COLOR", "1"),
    ("PIP_NO_INPUT", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("UV_NO_PROGRESS", "1"),
    ("npm_config_update_notifier", "false"),
];
/// How long a resolved lock is used again, so that a plan stays the same while a person thinks about it.
const LOCK_LASTS: u64 = 24 * 60 * 60 * 1000;
/// Largest lock.
const MAX_LOCK: u64 = 16 * 1024 * 1024;

pub(super) const NPM: &str = if cfg!(windows) { "npm.cmd" } else { "npm" };
const NODE: &str = "node";
pub(super) const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };

/// Why a client could not say.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// It is not on this machine.
    #[error("{program} is not installed, and it is what brings such servers here")]
    Missing {
        /// Which.
        program: String,
    },
    /// It did not end.
    #[error("{program} did not end within {}", text::duration(*limit))]
    TimedOut {
        /// Which.
        program: String,
        /// The limit.
        limit: Duration,
    },
    /// It failed.
    #[error("{program} failed: {said}")]
    Failed {
        /// Which.
        program: String,
        /// Its own words, cleaned.
        said: String,
    },
    /// Docker's client is there, and nothing behind it.
    #[error(
        "docker is installed, but its engine does not answer; start it, then try again: {said}"
    )]
    NoEngine {
        /// The client's own words, cleaned.
        said: String,
    },
    /// Something else.
    #[error("{why}")]
    Unusable {
        /// What.
        why: String,
    },
    /// A file of ours.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What a client printed.
pub(super) struct Printed {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
    pub(super) succeeded: bool,
}

#[expect(clippy::disallowed_methods, reason = "the clients of registries are started here")]
fn command(program: &str) -> Command {
    Command::new(program)
}

/// Runs a client to its end.
pub(super) async fn run(
    program: &str,
    args: &[&str],
    folder: &Path,
    limit: Duration,
) -> Result<Printed, ClientError> {
    ended(command(program), program, args, folder, limit).await
}

/// The same for one that runs code of a package: it sees of our environment what a server would, and how npm is set up.
/// Behind walls where there are some, and then not without them.
pub(super) async fn run_apart(
    (program, args): (&str, &[&str]),
    folder: &Path,
    limit: Duration,
    behind: Option<(&ShimCommand, SandboxPolicy)>,
) -> Result<Printed, ClientError> {
    let ours: Vec<_> = std::env::vars_os().collect();
    let settings = settings_of_npm(&ours);
    let Some((shim, sandbox_policy)) = behind else {
        let mut command = command(program);
        command.env_clear().envs(environment::for_child(ours, &settings));
        return ended(command, program, args, folder, limit).await;
    };
    let failed = |error: &dyn std::error::Error| {
        let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
        ClientError::Failed { program: program.to_owned(), said: format!("{error}{cause}") }
    };
    std::fs::create_dir_all(sandbox_policy.home.join(environment::TEMPORARY))
        .map_err(|e| failed(&e))?;
    // Whatever leads into the user's home is of no use there.
    let home = env::home();
    let is_outside =
        |value: &OsString| home.as_ref().is_none_or(|home| !Path::new(value).starts_with(home));
    let quiet = QUIET.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let settings = settings.into_iter().filter(|(_, value)| is_outside(value));
    let spec = Spec {
        program: program.into(),
        args: args.iter().map(OsString::from).collect(),
        env: settings.chain(quiet).collect(),
        cwd: Some(folder.to_owned()),
        sandbox_policy: Some(sandbox_policy),
        pass_env: PassEnv::Least,
    };
    let spawner = Spawner::start(shim.clone(), Containment::Auto).map_err(|e| failed(&e))?;
    let child = spawner.spawn(spec).await.map_err(|e| failed(&e))?.into_parts();
    drop(child.stdin);
    let (handle, watch) = (child.handle.clone(), child.handle.watch());
    drop(child.handle);
    let ended = async {
        let stdout = read(Some(child.stdout)).await;
        (stdout, watch.exited().await)
    };
    let Ok((stdout, exit)) = tokio::time::timeout(limit, ended).await else {
        // With the last hold on it goes all that it started.
        return Err(ClientError::TimedOut { program: program.to_owned(), limit });
    };
    let stderr = handle.stderr().last_lines(LINES_OF_COMPLAINT).join("\n");
    Ok(Printed { stdout, stderr, succeeded: exit.code == Some(0) })
}

/// How npm is set up, for code of packages that it runs. Settings of npm may hold tokens; those stay here.
fn settings_of_npm(ours: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let is_setting = |name: &OsString| {
        let name = name.to_string_lossy().to_ascii_lowercase();
        name.starts_with("npm_config_") && !names_a_secret(&name)
    };
    ours.iter().filter(|(name, _)| is_setting(name)).cloned().collect()
}

async fn ended(
    mut command: Command,
    program: &str,
    args: &[&str],
    folder: &Path,
    limit: Duration,
) -> Result<Printed, ClientError> {
    let name = || program.rsplit('/').next().unwrap_or(program).to_owned();
    command
        .args(args)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .envs(QUIET)
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => ClientError::Missing { program: name() },
        _ => ClientError::Failed { program: name(), said: error.to_string() },
    })?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let ended = async {
        let (stdout, stderr) = tokio::join!(read(stdout), read(stderr));
        let status = child.wait().await;
        (stdout, stderr, status)
    };
    let Ok((stdout, stderr, status)) = tokio::time::timeout(limit, ended).await else {
        return Err(ClientError::TimedOut { program: name(), limit });
    };
    let status =
        status.map_err(|error| ClientError::Failed { program: name(), said: error.to_string() })?;
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    Ok(Printed { stdout, stderr, succeeded: status.success() })
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(stream) = stream {
        // What was read before an error is all there is.
        drop(stream.take(MAX_OUTPUT).read_to_end(&mut bytes).await);
    }
    bytes
}

impl Printed {
    /// The failure, in the client's own words.
    pub(super) fn failure(&self, program: &str) -> ClientError {
        ClientError::Failed { program: program.to_owned(), said: self.complaint() }
    }

    /// What it complained of, in one line.
    pub(super) fn complaint(&self) -> String {
        // The last lines are those that say what went wrong; npm ends with where its log lies.
        let said: Vec<&str> = self
            .stderr
            .lines()
            .filter(|line| !line.contains("complete log of this run") && !line.contains("npm warn"))
            .collect();
        text::clean_line(&said.join(" "), MAX_COMPLAINT).into_owned()
    }
}

/// What is known of a candidate's package.
pub(super) async fn facts(candidate: &Candidate, work: &Path) -> Result<Facts, ClientError> {
    let offer = &candidate.offer;
    match offer.kind {
        Kind::Npm => {
            prepare(work)?;
            let spec = format!("{}@{}", offer.identifier, offer.version);
            let fields = ["name", "version", "dist", "time", "bin", "scripts", "deprecated"];
            let mut args = vec!["view", "--json", spec.as_str()];
            args.extend(fields);
            let printed = run(NPM, &args, work, LOOK).await?;
            let document: Value = serde_json::from_slice(&printed.stdout).unwrap_or_default();
            match npm_error(&document) {
                Some((true, _)) => Ok(Facts::default()),
                Some((false, said)) => {
                    let said = text::clean_line(&said, MAX_COMPLAINT).into_owned();
                    Err(ClientError::Failed { program: "npm".to_owned(), said })
                }
                // A version that does not exist is answered with nothing by some versions of npm.
                None if printed.succeeded => {
                    Ok(npm_view(&offer.identifier, &offer.version, &document))
                }
                None => Err(printed.failure("npm")),
            }
        }
        Kind::Pypi => python::facts(candidate, work).await,
        Kind::Oci => images::facts(candidate, work).await,
        Kind::Remote => Ok(Facts { exists: true, ..Facts::default() }),
    }
}

/// Everything a package needs, pinned, in a file in `work`. Nothing that is younger than so many days is chosen where
/// the client can see to that.
pub(super) async fn lock(
    candidate: &Candidate,
    work: &Path,
    now: u64,
    least_days: u64,
) -> Result<Lock, ClientError> {
    let folder = prepare(work)?;
    forget_other_age(&folder, least_days)?;
    let before = now.saturating_sub(least_days * 24 * 60 * 60 * 1000);
    let offer = &candidate.offer;
    let unreadable = |program: &str| ClientError::Failed {
        program: program.to_owned(),
        said: "what it resolved cannot be read".to_owned(),
    };
    if offer.kind == Kind::Pypi {
        return python::lock(candidate, work, before).await;
    }
    if let Some(raw) = recent(&folder, NPM_LOCK)?
        && let Some(lock) = npm_lock(&offer.identifier, &raw)
    {
        return Ok(lock);
    }
    let manifest = json!({ "name": "provisioned", "version": "0.0.0", "private": true });
    folder.remove(NPM_LOCK)?;
    folder.replace("package.json", manifest.to_string().as_bytes())?;
    let spec = format!("{}@{}", offer.identifier, offer.version);
    let before = format!("--before={}", day(before));
    let args = [
        "install",
        "--package-lock-only",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--save-exact",
        before.as_str(),
        spec.as_str(),
    ];
    let printed = run(NPM, &args, work, RESOLVE).await?;
    if !printed.succeeded {
        return Err(printed.failure("npm"));
    }
    let raw = recent(&folder, NPM_LOCK)?.ok_or_else(|| unreadable("npm"))?;
    npm_lock(&offer.identifier, &raw).ok_or_else(|| unreadable("npm"))
}

/// The version that its client would choose today.
pub(super) async fn newest(plan: &Plan, work: &Path) -> Option<String> {
    prepare(work).ok()?;
    match plan.kind {
        Kind::Npm => {
            let args = ["view", "--json", &plan.identifier, "version"];
            let printed = run(NPM, &args, work, LOOK).await.ok()?;
            let version: Value = serde_json::from_slice(&printed.stdout).ok()?;
            version.as_str().map(str::to_owned)
        }
        Kind::Pypi => python::newest(&plan.identifier, work).await.ok()?,
        Kind::Oci | Kind::Remote => None,
    }
}

/// The program behind the name `node`: a version switcher puts a stub there, which looks for it in a home that a
/// server behind walls cannot read.
pub(super) async fn runtime(plan: &Plan) -> Option<String> {
    if plan.kind != Kind::Npm || plan.contained != Contained::Sandbox {
        return None;
    }
    let path = node(Path::new(&plan.prefix)).await?;
    path.to_str().map(str::to_owned)
}

/// That program, asked in a folder where nothing changes the answer.
pub(super) async fn node(folder: &Path) -> Option<PathBuf> {
    let args = ["-p", "process.execPath"];
    let printed = run(NODE, &args, folder, LOOK).await.ok()?;
    let path = PathBuf::from(String::from_utf8(printed.stdout).ok()?.trim());
    (printed.succeeded && path.is_file()).then_some(path)
}

/// What was resolved for another least age is resolved again.
fn forget_other_age(folder: &Directory, least_days: u64) -> Result<(), FileError> {
    let days = least_days.to_string();
    let known = match folder.open(LEAST_DAYS)? {
        Some(mut file) => file.read(MAX_LOCK)?,
        None => Vec::new(),
    };
    if known != days.as_bytes() {
        folder.remove(NPM_LOCK)?;
        folder.remove(python::LOCKED)?;
        folder.replace(LEAST_DAYS, days.as_bytes())?;
    }
    Ok(())
}

/// The least age that the lock beside it was resolved for, in days.
const LEAST_DAYS: &str = "least-days";

/// What npm resolved.
pub(super) const NPM_LOCK: &str = "package-lock.json";

/// A folder that is ours and private.
pub(super) fn prepare(folder: &Path) -> Result<Directory, ClientError> {
    Ok(Directory::home_or_create(folder)?)
}

pub(super) fn recent(folder: &Directory, name: &str) -> Result<Option<Vec<u8>>, ClientError> {
    let age = folder.modified_ms(name).map(|at| crate::clock::unix_millis().saturating_sub(at));
    if age.is_none_or(|age| age > LOCK_LASTS) {
        return Ok(None);
    }
    let Some(mut opened) = folder.open(name)? else { return Ok(None) };
    Ok(Some(opened.read(MAX_LOCK)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_packages_sees_settings_of_npm_and_no_secret() {
        let ours = [
            ("PATH", "/bin"),
            ("HOME", "/home/ada"),
            ("npm_config_registry", "https://npm.example.com"),
            ("NPM_CONFIG_STRICT_SSL", "true"),
            ("npm_config_//npm.example.com/:_authToken", "t1"),
            ("AWS_SECRET_ACCESS_KEY", "t2"),
            ("GITHUB_TOKEN", "t3"),
            ("SSH_AUTH_SOCK", "/run/agent"),
        ];
        let ours = ours.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let seen = environment::for_child(ours.to_vec(), &settings_of_npm(&ours));
        let names: Vec<OsString> = seen.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["HOME", "NPM_CONFIG_STRICT_SSL", "PATH", "npm_config_registry"]);
    }

    #[test]
    fn a_lock_is_used_again_for_the_same_least_age_only() {
        let home = tempfile::tempdir().unwrap();
        let folder = prepare(&home.path().join("work")).unwrap();
        let has_lock = || folder.open(NPM_LOCK).unwrap().is_some();
        forget_other_age(&folder, 7).unwrap();
        folder.replace(NPM_LOCK, b"{}").unwrap();
        forget_other_age(&folder, 7).unwrap();
        assert!(has_lock());
        forget_other_age(&folder, 30).unwrap();
        assert!(!has_lock());
    }
}
