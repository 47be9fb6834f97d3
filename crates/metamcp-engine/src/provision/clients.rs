//! The user's own package clients (npm, node, docker), as subprocesses: no shell, no package code, bounded in time and
//! output. Registries, mirrors and proxies are theirs to configure.

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

/// Time limit of a lookup.
pub(super) const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of dependency resolution, which downloads the metadata of each package.
pub(super) const RESOLVE_TIMEOUT: Duration = Duration::from_mins(3);
/// Time limit of the download.
pub(super) const DOWNLOAD_TIMEOUT: Duration = Duration::from_mins(5);
/// Most output read; metadata of packages with a thousand versions has a few megabytes.
const MAX_OUTPUT: u64 = 32 * 1024 * 1024;
/// Most error output read.
const MAX_ERROR_CHARS: usize = 600;
/// The same of a sandboxed one, in lines.
const MAX_ERROR_LINES: usize = 20;
/// Disables prompts, colours and update notices.
const QUIET: [(&str, &str); 5] = [
    ("NO_COLOR", "1"),
    ("PIP_NO_INPUT", "1"),
    ("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    ("UV_NO_PROGRESS", "1"),
    ("npm_config_update_notifier", "false"),
];
/// How long a lock is reused, so that a plan stays the same while a person reads it.
const LOCK_TTL_MS: u64 = 24 * 60 * 60 * 1000;
const MAX_LOCK: u64 = 16 * 1024 * 1024;

pub(super) const NPM: &str = if cfg!(windows) { "npm.cmd" } else { "npm" };
const NODE: &str = "node";
pub(super) const PYTHON: &str = if cfg!(windows) { "python" } else { "python3" };

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("{program} is not installed, and it is required to install such servers")]
    Missing { program: String },
    #[error("{program} did not finish within {}", text::duration(*limit))]
    TimedOut { program: String, limit: Duration },
    #[error("{program} failed: {said}")]
    Failed {
        program: String,
        /// Its error output, sanitized.
        said: String,
    },
    /// The docker client works, but not its engine.
    #[error(
        "docker is installed, but its engine does not answer; start it, then try again: {said}"
    )]
    NoEngine { said: String },
    #[error("{why}")]
    Unusable { why: String },
    #[error(transparent)]
    File(#[from] FileError),
}

pub(super) struct Printed {
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
    pub(super) succeeded: bool,
}

#[expect(clippy::disallowed_methods, reason = "the clients of registries are started here")]
fn command(program: &str) -> Command {
    Command::new(program)
}

pub(super) async fn run(
    program: &str,
    args: &[&str],
    folder: &Path,
    limit: Duration,
) -> Result<Printed, ClientError> {
    ended(command(program), program, args, folder, limit).await
}

/// The same for a client that runs code of a package: its environment is that of a server, plus npm's settings. Sandboxed
/// if a policy is given, and never without it.
pub(super) async fn run_sandboxed(
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
    // Paths into the user's home are useless in the sandbox.
    let home = env::home();
    let is_outside =
        |value: &OsString| home.as_ref().is_none_or(|home| !Path::new(value).starts_with(home));
    let quiet = QUIET.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let settings = settings.into_iter().filter(|(_, value)| is_outside(value));
    let spec = Spec {
        inherited: None,
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
        // Dropping the handle kills the whole process tree.
        return Err(ClientError::TimedOut { program: program.to_owned(), limit });
    };
    let stderr = handle.stderr().last_lines(MAX_ERROR_LINES).join("\n");
    Ok(Printed { stdout, stderr, succeeded: exit.code == Some(0) })
}

/// npm's settings, for package code that it runs. Those that may contain tokens are removed.
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
        // What was read before an error is used.
        drop(stream.take(MAX_OUTPUT).read_to_end(&mut bytes).await);
    }
    bytes
}

impl Printed {
    /// The error, with the client's own output.
    pub(super) fn failure(&self, program: &str) -> ClientError {
        ClientError::Failed { program: program.to_owned(), said: self.error_output() }
    }

    /// Its error output, in one line.
    pub(super) fn error_output(&self) -> String {
        // The last lines say what went wrong; npm ends with the path of its log.
        let said: Vec<&str> = self
            .stderr
            .lines()
            .filter(|line| !line.contains("complete log of this run") && !line.contains("npm warn"))
            .collect();
        text::clean_line(&said.join(" "), MAX_ERROR_CHARS).into_owned()
    }
}

/// The metadata of a candidate's package.
pub(super) async fn facts(candidate: &Candidate, work: &Path) -> Result<Facts, ClientError> {
    let offer = &candidate.offer;
    match offer.kind {
        Kind::Npm => {
            prepare(work)?;
            let spec = format!("{}@{}", offer.identifier, offer.version);
            let fields = ["name", "version", "dist", "time", "bin", "scripts", "deprecated"];
            let mut args = vec!["view", "--json", spec.as_str()];
            args.extend(fields);
            let printed = run(NPM, &args, work, LOOKUP_TIMEOUT).await?;
            let document: Value = serde_json::from_slice(&printed.stdout).unwrap_or_default();
            match npm_error(&document) {
                Some((true, _)) => Ok(Facts::default()),
                Some((false, said)) => {
                    let said = text::clean_line(&said, MAX_ERROR_CHARS).into_owned();
                    Err(ClientError::Failed { program: "npm".to_owned(), said })
                }
                // Some versions of npm print nothing for a version that does not exist.
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

/// Resolves and pins all dependencies, in a lock file in `work`. Versions younger than so many days are excluded if the
/// client supports that.
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
        said: "its lock file cannot be parsed".to_owned(),
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
    let printed = run(NPM, &args, work, RESOLVE_TIMEOUT).await?;
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
            let printed = run(NPM, &args, work, LOOKUP_TIMEOUT).await.ok()?;
            let version: Value = serde_json::from_slice(&printed.stdout).ok()?;
            version.as_str().map(str::to_owned)
        }
        Kind::Pypi => python::newest(&plan.identifier, work).await.ok()?,
        Kind::Oci | Kind::Remote => None,
    }
}

/// The real program behind `node`: a version manager puts a shim there, which looks for it in a home that a sandboxed
/// server cannot read.
pub(super) async fn runtime(plan: &Plan) -> Option<String> {
    if plan.kind != Kind::Npm || plan.contained != Contained::Sandbox {
        return None;
    }
    let path = node(Path::new(&plan.prefix)).await?;
    path.to_str().map(str::to_owned)
}

/// The same, run in a folder where no project setting changes the result.
pub(super) async fn node(folder: &Path) -> Option<PathBuf> {
    let args = ["-p", "process.execPath"];
    let printed = run(NODE, &args, folder, LOOKUP_TIMEOUT).await.ok()?;
    let path = PathBuf::from(String::from_utf8(printed.stdout).ok()?.trim());
    (printed.succeeded && path.is_file()).then_some(path)
}

/// Drops a lock that was resolved for another minimum age.
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

/// The minimum age in days of the lock beside it.
const LEAST_DAYS: &str = "least-days";

pub(super) const NPM_LOCK: &str = "package-lock.json";

/// A private folder of ours.
pub(super) fn prepare(folder: &Path) -> Result<Directory, ClientError> {
    Ok(Directory::home_or_create(folder)?)
}

pub(super) fn recent(folder: &Directory, name: &str) -> Result<Option<Vec<u8>>, ClientError> {
    let age = folder.modified_ms(name).map(|at| crate::clock::unix_millis().saturating_sub(at));
    if age.is_none_or(|age| age > LOCK_TTL_MS) {
        return Ok(None);
    }
    let Some(mut opened) = folder.open(name)? else { return Ok(None) };
    Ok(Some(opened.read(MAX_LOCK)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_code_sees_npm_settings_but_no_secret() {
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
    fn a_lock_is_reused_for_the_same_minimum_age_only() {
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
