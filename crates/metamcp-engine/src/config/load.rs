//! Finds and reads the files, and merges flags, variables and files by precedence.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use metamcp_config::config::{
    self, Config, ConfigError, EffectiveConfig, Everywhere, PassEnv, Problem, ServerConfig,
    ServerOrigin, ServerState, Severity, Warning,
};
use metamcp_config::settings::{
    self, CodeProfile, Given, Origin, RequestedRuntime, Resolved, Settings, Value,
};

use super::project::{self, PROJECT_FILE, Project, ProjectTrust};
use super::{
    LARGEST_FILE, Lack, LoadError, LoadOptions, Loaded, Remark, Source, descriptions,
    self_reference,
};
use crate::trust::TrustStore;

/// The user's own file, in the home of metamcp; the first that exists.
const USER_FILES: [&str; 2] = ["mcp.json", ".mcp.json"];

/// Loads the configuration. No file at all is not an error: the result has no servers and lists where it looked.
pub fn load(request: LoadOptions<'_>) -> Result<Loaded, LoadError> {
    let LoadOptions { flags, lookup, variables, lacks, working_dir } = request;
    // Records the variables that the files refer to.
    let asked = RefCell::new(HashSet::new());
    let lookup: &dyn Fn(&str) -> Option<String> = &|name| {
        asked.borrow_mut().insert(name.to_owned());
        lookup(name)
    };
    let (environment, mut errors) = settings::from_environment(lookup);
    let lacks_docker = || lacks(CodeProfile::Docker).is_some();
    let runtime = settings::requested_runtime(lookup, &lacks_docker).unwrap_or_else(|error| {
        errors.push(error);
        None
    });
    if !errors.is_empty() {
        return Err(LoadError::Environment { errors });
    }
    let early = settings::resolve(environment.iter().chain(&flags).cloned()).settings;
    let home = absolute(&early.home, working_dir, lookup)?;
    let requested = runtime.iter().map(|requested| requested.given.clone());
    let said: Vec<Given> = requested.chain(environment).chain(flags).collect();

    let found = match early.config {
        Some(named) => {
            let path = absolute(&named, working_dir, lookup)?;
            let files = vec![path.clone()];
            let read = read(&path, ServerOrigin::Flag, lookup)?;
            let remarks = read.remarks();
            let FileRead { path, config, given, .. } = read;
            Found { source: Source::Named(path), config, given, remarks, project: None, files }
        }
        None => find(working_dir, &home, lookup, &said)?,
    };
    let Found { source, config, mut given, mut remarks, project, files } = found;
    given.extend(said);
    let mut resolved = settings::resolve(given);
    remarks.extend(runtime.and_then(|requested| isolation(&requested, &resolved, lacks)));
    remarks.extend(default_isolation(&mut resolved, lacks));
    // Passing all variables names none of them.
    let names = |pass: &PassEnv, name: &str| *pass != PassEnv::All && pass.names(name);
    let is_passed = |name: &str| {
        names(&PassEnv::from_text(&resolved.settings.pass_env), name)
            || config.servers.iter().any(|server| names(&server.pass_env, name))
    };
    let is_used = |name: &str| {
        asked.borrow().contains(name) || names_variable(&resolved.settings, name) || is_passed(name)
    };
    let unknown = settings::unknown_variables(variables.iter().map(String::as_str), &is_used);
    remarks.extend(unknown.into_iter().map(|variable| Remark {
        severity: Severity::Warning,
        path: None,
        place: None,
        message: format!("the variable {} is set, but metamcp has no such setting", variable.name),
        hint: variable.nearest.map(|near| format!("did you mean {near}?")),
        excerpt: None,
    }));
    let mut settings = resolved.settings;
    settings.home = home;
    settings.config = source.path().map(Path::to_owned);
    remarks.extend(resolved.notes.into_iter().map(|message| Remark {
        severity: Severity::Warning,
        path: None,
        place: None,
        message,
        hint: None,
        excerpt: None,
    }));
    let Config { mut servers, toolsets, .. } = config;
    for server in &mut servers {
        server.approvals.everywhere = Everywhere::from(&settings.approvals);
    }
    let mut files = files;
    files.extend(servers.iter().filter_map(|server| descriptions::file(server.transport.api()?)));
    let config = Config { servers, settings, toolsets };
    let wanted = &config.settings.toolset;
    if !wanted.is_empty() && config.toolset(wanted).is_none() {
        let known = config.toolsets.iter().map(|toolset| toolset.name.clone()).collect();
        return Err(LoadError::NoSuchToolset { name: wanted.clone(), known });
    }
    Ok(Loaded { config, values: resolved.values, remarks, project, source, files })
}

/// The home of metamcp, which files cannot change: for commands that must work although the file is broken.
pub fn home(request: &LoadOptions<'_>) -> Result<PathBuf, LoadError> {
    let (environment, _) = settings::from_environment(request.lookup);
    let early = settings::resolve(environment.iter().chain(&request.flags).cloned()).settings;
    absolute(&early.home, request.working_dir, request.lookup)
}

/// Notes about the isolation profile, if it is not the configured one.
fn isolation(
    requested: &RequestedRuntime,
    resolved: &Resolved,
    lacks: &dyn Fn(CodeProfile) -> Option<Lack>,
) -> Option<Remark> {
    let warning = |message, hint| {
        let severity = Severity::Warning;
        Some(Remark { severity, path: None, place: None, message, hint, excerpt: None })
    };
    let (variable, profile) = (requested.variable, requested.profile.as_str());
    let decided = resolved.value("code-profile")?;
    if resolved.settings.code.profile != requested.profile {
        let other = resolved.settings.code.profile.as_str();
        return warning(
            format!(
                "{variable} asks for the profile `{profile}`, and {} says `{other}`, which goes before it",
                decided.origin
            ),
            None,
        );
    }
    if let Some(Lack { reason, cure }) = lacks(requested.profile) {
        return warning(
            format!(
                "{variable} asks for the profile `{profile}`, and {reason}: scripts are refused"
            ),
            Some(cure),
        );
    }
    warning(requested.note.clone()?, None)
}

/// The profile where nobody chose one and the usual one cannot be had: the engine that needs no lockdown. Where there
/// should be one, that is worth a remark.
fn default_isolation(
    resolved: &mut Resolved,
    lacks: &dyn Fn(CodeProfile) -> Option<Lack>,
) -> Option<Remark> {
    let decided = resolved.values.iter_mut().find(|given| given.setting.flag == "code-profile")?;
    if decided.origin != Origin::Default {
        return None;
    }
    let Lack { reason, cure } = lacks(resolved.settings.code.profile)?;
    let profile = CodeProfile::Wasm;
    resolved.settings.code.profile = profile;
    decided.value = Value::Word(profile.as_str());
    cfg!(target_os = "linux").then(|| Remark {
        severity: Severity::Warning,
        path: None,
        place: None,
        message: format!(
            "{reason}: scripts run in the profile `{}`, where the engine alone holds them",
            profile.as_str()
        ),
        hint: Some(cure),
        excerpt: None,
    })
}

/// Whether a setting refers to this variable.
fn names_variable(settings: &Settings, name: &str) -> bool {
    let registries =
        settings.provision.registries.split(|c: char| c != '_' && !c.is_alphanumeric());
    [settings.serve.token_env.as_str(), &settings.embedding.key_env]
        .into_iter()
        .chain(registries)
        .any(|known| known == name)
}

struct Found {
    source: Source,
    config: Config,
    given: Vec<Given>,
    remarks: Vec<Remark>,
    project: Option<Project>,
    files: Vec<PathBuf>,
}

/// The user's own file, merged with the project's if a person approved that. `said` are flags and variables, which
/// override both.
fn find(
    working_dir: &Path,
    home: &Path,
    lookup: &dyn Fn(&str) -> Option<String>,
    said: &[Given],
) -> Result<Found, LoadError> {
    let store = TrustStore::new(home);
    let user_paths = USER_FILES.map(|name| home.join(name));
    let user_path = user_paths.iter().find(|path| exists(path));
    let user = user_path.map(|path| read(path, ServerOrigin::User, lookup)).transpose()?;
    let mut files: Vec<PathBuf> = user_paths.to_vec();
    files.insert(0, working_dir.join(PROJECT_FILE));
    files.push(store.file());

    let mut remarks = user.as_ref().map(FileRead::remarks).unwrap_or_default();
    remarks.extend(user.as_ref().and_then(FileRead::exposed_secrets));
    let (mut config, mut given) = match &user {
        Some(user) => (user.config.clone(), user.given.clone()),
        None => (Config::default(), Vec::new()),
    };
    // In the home of metamcp its own file has the project's name.
    let is_home = fs::canonicalize(working_dir)
        .is_ok_and(|folder| fs::canonicalize(home).is_ok_and(|home| home == folder));
    let values = settings::resolve(given.iter().chain(said).cloned()).values;
    let effective = EffectiveConfig { config: &config, values: &values };
    let is_itself = |path: &Path, text: &str| {
        config::parse_as_written(text).is_ok_and(|read| {
            let servers = &read.config.servers;
            let is_all = servers.iter().all(|server| self_reference::is_self(path, server));
            is_all && read.given.is_empty() && read.config.toolsets.is_empty()
        })
    };
    let found = match is_home {
        true => None,
        false => project::find(working_dir, &store, effective, &is_itself),
    };
    let mut project = found.as_ref().map(|(project, _)| project.clone());
    if let Some((of, Some(text))) = found {
        match parsed(&of.path, text, ServerOrigin::Project, lookup) {
            Ok(mut read) => {
                descriptions::hold_to(&of.descriptions, &mut read.config.servers);
                remarks.extend(read.remarks());
                // A stranger's file may ask for more approvals, and not for fewer.
                let (tightened, ignored) = config::tightened(read.given.clone(), &values);
                given.extend(tightened);
                remarks.extend(ignored.into_iter().map(|key| {
                    let message = format!(
                        "its {key} is not used: a project can only make approvals stricter"
                    );
                    read.remark(Severity::Warning, message, None)
                }));
                remarks.extend(add(&mut config, &read));
            }
            // It was valid when it was approved, but perhaps by another version.
            Err(error) => {
                if let Some(project) = &mut project {
                    project.trust = ProjectTrust::Unusable(error.to_string());
                }
            }
        }
    }
    remarks.extend(project.as_ref().and_then(Project::remark));
    let is_trusted = project.as_ref().is_some_and(|project| project.trust == ProjectTrust::Trusted);
    let source = match (user, &project) {
        (Some(user), _) => Source::User(user.path),
        (None, Some(project)) if is_trusted => Source::Project(project.path.clone()),
        (None, project) => {
            let [user_path, _] = user_paths;
            let at = working_dir.join(PROJECT_FILE);
            let looked = [Some(at).filter(|_| project.is_none()), Some(user_path)];
            Source::Nowhere { looked: looked.into_iter().flatten().collect() }
        }
    };
    Ok(Found { source, config, given, remarks, project, files })
}

/// Adds the servers of an approved project's file, which override the user's of the same name. Returns notes about that.
fn add(config: &mut Config, project: &FileRead) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for server in &project.config.servers {
        if self_reference::is_self(&project.path, server) {
            continue;
        }
        let is_valid = !matches!(server.state, ServerState::Invalid { .. });
        match config.servers.iter_mut().find(|own| own.name == server.name) {
            // An invalid entry overrides nothing.
            Some(_) if !is_valid => {}
            Some(own) => {
                let users = own.approvals.own.clone();
                *own = server.clone();
                own.approvals.users = Some(users);
                let message = format!("its server {:?} is used in place of your own", server.name);
                remarks.push(project.remark(Severity::Note, message, None));
            }
            None => config.servers.push(server.clone()),
        }
    }
    for toolset in &project.config.toolsets {
        match config.toolsets.iter_mut().find(|own| own.name == toolset.name) {
            Some(own) => *own = toolset.clone(),
            None => config.toolsets.push(toolset.clone()),
        }
    }
    remarks
}

/// A dangling symlink exists too: that it cannot be read is an error, not a reason to read another file.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

struct FileRead {
    path: PathBuf,
    text: String,
    config: Config,
    warnings: Vec<Warning>,
    faults: Vec<Problem>,
    given: Vec<Given>,
    /// Servers whose description cannot be read, and why.
    unreadable: Vec<(String, String)>,
}

impl FileRead {
    fn remark(&self, severity: Severity, message: String, hint: Option<String>) -> Remark {
        let path = Some(self.path.clone());
        Remark { severity, path, place: None, message, hint, excerpt: None }
    }

    fn remarks(&self) -> Vec<Remark> {
        let faults = self.faults.iter().map(|fault| Remark::of_fault(&self.path, fault));
        let warnings = self.warnings.iter().map(|warning| Remark::of_file(&self.path, warning));
        let unreadable = self.unreadable.iter().map(|(server, why)| {
            let message = format!("the description of its server {server:?} cannot be used: {why}");
            let hint = "`openapi` is a file relative to this one, or an address".to_owned();
            self.remark(Severity::Warning, message, Some(hint))
        });
        faults.chain(warnings).chain(unreadable).collect()
    }

    /// Warns of secrets in the user's own file that other users can read.
    fn exposed_secrets(&self) -> Option<Remark> {
        let mut secrets = self.config.servers.iter().flat_map(ServerConfig::secrets);
        let is_written =
            secrets.any(|secret| secret.is_sensitive() && self.text.contains(secret.expose()));
        (is_written && is_readable_by_others(&self.path)).then(|| {
            let hint = format!("chmod 600 {}", self.path.display());
            let message = "contains secrets and can be read by other users".to_owned();
            self.remark(Severity::Warning, message, Some(hint))
        })
    }
}

#[cfg(unix)]
fn is_readable_by_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    const READABLE_BY_OTHERS: u32 = 0o044;
    fs::metadata(path).is_ok_and(|found| found.permissions().mode() & READABLE_BY_OTHERS != 0)
}

/// There is no mode: who may read it is inherited from the user's profile.
#[cfg(windows)]
fn is_readable_by_others(_path: &Path) -> bool {
    false
}

fn read(
    path: &Path,
    origin: ServerOrigin,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<FileRead, LoadError> {
    let bytes = read_bytes(path)?;
    let broken = |error| LoadError::Broken { path: path.to_owned(), error };
    let text = config::decode(&bytes).map_err(broken)?.to_owned();
    parsed(path, text, origin, lookup).map_err(broken)
}

fn parsed(
    path: &Path,
    text: String,
    origin: ServerOrigin,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<FileRead, ConfigError> {
    let mut loaded = config::parse(&text, lookup)?;
    self_reference::skip_self(path, &text, &mut loaded);
    let folder = path.parent().unwrap_or(Path::new("."));
    let unreadable = descriptions::locate(folder, &mut loaded.config.servers);
    for server in &mut loaded.config.servers {
        server.origin = origin;
    }
    let at_path = |mut given: Given| {
        if let Origin::File { path: unnamed, .. } = &mut given.origin {
            path.clone_into(unnamed);
        }
        given
    };
    Ok(FileRead {
        path: path.to_owned(),
        text,
        config: loaded.config,
        warnings: loaded.warnings,
        faults: loaded.faults,
        given: loaded.given.into_iter().map(at_path).collect(),
        unreadable,
    })
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let kind = fs::metadata(path).map_err(unreadable)?.file_type();
    if kind.is_dir() {
        return Err(LoadError::NotAFile { path: path.to_owned(), what: "a directory" });
    }
    // Opening a pipe without a writer would block forever.
    #[cfg(unix)]
    if std::os::unix::fs::FileTypeExt::is_fifo(&kind)
        && !path.starts_with("/dev")
        && !path.starts_with("/proc")
    {
        return Err(LoadError::NotAFile { path: path.to_owned(), what: "a named pipe" });
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(LoadError::TooLarge { path: path.to_owned() });
    }
    Ok(bytes)
}

/// The absolute path, with `~` expanded.
fn absolute(
    path: &Path,
    working_dir: &Path,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<PathBuf, LoadError> {
    match path.strip_prefix("~") {
        Ok(rest) => {
            let home = user_home(lookup).ok_or(LoadError::NoHome)?;
            Ok(if rest.as_os_str().is_empty() { home } else { home.join(rest) })
        }
        Err(_) => Ok(working_dir.join(path)),
    }
}

/// The user's home: from the environment, else from the system.
fn user_home(lookup: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let variable = if cfg!(windows) { "USERPROFILE" } else { "HOME" };
    let said = lookup(variable).map(PathBuf::from).filter(|home| home.is_absolute());
    said.or_else(system_home)
}

#[cfg(unix)]
fn system_home() -> Option<PathBuf> {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid()).ok()??;
    Some(user.dir).filter(|home| home.is_absolute())
}

#[cfg(windows)]
fn system_home() -> Option<PathBuf> {
    std::env::home_dir().filter(|home| home.is_absolute())
}
