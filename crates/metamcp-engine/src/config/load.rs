//! Finds the file, reads it, and weighs flags, variables and files against each other.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use metamcp_core::config::{self, Config, ServerConfig, Severity, Warning};
use metamcp_core::settings::{self, Given, Origin};

use super::itself;
use super::{LARGEST_FILE, LoadError, Loaded, Remark, Request, Source};

/// The project's file, in the working directory.
const PROJECT_FILE: &str = ".mcp.json";
/// The user's own file, in the home of metamcp; the first that exists.
const USER_FILES: [&str; 2] = ["mcp.json", ".mcp.json"];

/// Loads the configuration. No file at all is not an error: the result has no servers and says where it looked.
pub fn load(request: Request<'_>) -> Result<Loaded, LoadError> {
    let Request { flags, lookup, working_dir } = request;
    let (environment, errors) = settings::from_environment(lookup);
    if !errors.is_empty() {
        return Err(LoadError::Environment { errors });
    }
    let early = settings::resolve(environment.iter().chain(&flags).cloned()).settings;
    let home = absolute(&early.home, working_dir, lookup)?;

    let mut remarks = Vec::new();
    let mut hidden = None;
    let mut given = Vec::new();
    let mut files: Vec<PathBuf> = USER_FILES.iter().map(|name| home.join(name)).collect();
    files.insert(0, working_dir.join(PROJECT_FILE));
    let (source, Config { servers, toolsets, .. }) = match early.config {
        Some(named) => {
            let path = absolute(&named, working_dir, lookup)?;
            files = vec![path.clone()];
            let read = read(&path, lookup)?;
            remarks.extend(read.remarks(|_| true));
            given.extend(read.given);
            (Source::Named(path), read.config)
        }
        None => find(working_dir, &home, lookup, (&mut remarks, &mut hidden), &mut given)?,
    };

    given.extend(environment);
    given.extend(flags);
    let resolved = settings::resolve(given);
    let mut settings = resolved.settings;
    settings.home = home;
    settings.config = source.path().map(Path::to_owned);
    remarks.extend(resolved.notes.into_iter().map(|message| Remark {
        severity: Severity::Warning,
        path: None,
        place: None,
        message,
        hint: None,
    }));
    let config = Config { servers, settings, toolsets };
    let wanted = &config.settings.toolset;
    if !wanted.is_empty() && config.toolset(wanted).is_none() {
        let known = config.toolsets.iter().map(|toolset| toolset.name.clone()).collect();
        return Err(LoadError::NoSuchToolset { name: wanted.clone(), known });
    }
    Ok(Loaded { config, values: resolved.values, remarks, hidden, source, files })
}

/// The project's file, else the user's; the user's settings count beneath the project's, its servers do not.
fn find(
    working_dir: &Path,
    home: &Path,
    lookup: &dyn Fn(&str) -> Option<String>,
    (remarks, hidden): (&mut Vec<Remark>, &mut Option<Remark>),
    given: &mut Vec<Given>,
) -> Result<(Source, Config), LoadError> {
    let project_path = working_dir.join(PROJECT_FILE);
    let user_paths = USER_FILES.map(|name| home.join(name));
    let read_if = |path: &Path| if exists(path) { read(path, lookup).map(Some) } else { Ok(None) };
    let project = read_if(&project_path)?;
    // In the home of metamcp the two are the same file; it is read once, as the project's.
    let user_path = user_paths.iter().find(|path| exists(path) && **path != project_path);
    let user = user_path.map(|path| read(path, lookup)).transpose()?;

    let names_servers = project.as_ref().is_some_and(FileRead::names_servers);
    if let Some(user) = &user {
        remarks.extend(user.remarks(|warning| !names_servers || !is_about_servers(warning)));
        remarks.extend(user.exposed_secrets());
        if names_servers && !user.config.servers.is_empty() {
            let count = user.config.servers.len();
            let path = user.path.display();
            let remark = user.remark(
                Severity::Note,
                format!(
                    "its servers ({count}) are not used: the project has its own {PROJECT_FILE}"
                ),
                Some(format!("metamcp --config {path} uses them in place of the project's")),
            );
            *hidden = Some(remark.clone());
            remarks.push(remark);
        }
        given.extend(user.given.iter().cloned());
    }
    if let Some(project) = &project {
        remarks.extend(project.remarks(|_| true));
        given.extend(project.given.iter().cloned());
        if !names_servers && user.is_none() {
            remarks.push(project.remark(
                Severity::Warning,
                "names no server but this gateway itself".to_owned(),
                Some(format!("put your servers into {}", user_paths[0].display())),
            ));
        }
    }
    Ok(match (project, user) {
        (Some(project), None) => (Source::Project(project.path), project.config),
        (Some(project), Some(_)) if names_servers => {
            (Source::Project(project.path), project.config)
        }
        (_, Some(user)) => (Source::User(user.path), user.config),
        (None, None) => {
            let [user_path, _] = user_paths;
            (Source::Nowhere { looked: vec![project_path, user_path] }, Config::default())
        }
    })
}

/// A link to nowhere exists too: it is an error that it cannot be read, not a reason to read another file.
fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn is_about_servers(warning: &Warning) -> bool {
    let path = &warning.place.path;
    path.starts_with("mcpServers") || path.starts_with("servers")
}

/// One file that was read.
struct FileRead {
    path: PathBuf,
    text: String,
    config: Config,
    warnings: Vec<Warning>,
    given: Vec<Given>,
}

impl FileRead {
    /// False for a client's file whose only entry is this gateway: then the servers are somewhere else.
    fn names_servers(&self) -> bool {
        let servers = &self.config.servers;
        let is_another = |server: &ServerConfig| !itself::is_meant(&self.path, server);
        servers.is_empty() || servers.iter().any(is_another)
    }

    fn remark(&self, severity: Severity, message: String, hint: Option<String>) -> Remark {
        Remark { severity, path: Some(self.path.clone()), place: None, message, hint }
    }

    fn remarks(&self, wanted: impl Fn(&Warning) -> bool) -> Vec<Remark> {
        let warnings = self.warnings.iter().filter(|warning| wanted(warning));
        warnings.map(|warning| Remark::of_file(&self.path, warning)).collect()
    }

    /// Secrets written into the user's own file that every user of the machine can read.
    #[cfg(unix)]
    fn exposed_secrets(&self) -> Option<Remark> {
        use std::os::unix::fs::PermissionsExt;
        const READABLE_BY_OTHERS: u32 = 0o044;
        let mode = fs::metadata(&self.path).ok()?.permissions().mode();
        let mut secrets = self.config.servers.iter().flat_map(ServerConfig::secrets);
        let is_written =
            secrets.any(|secret| secret.is_sensitive() && self.text.contains(secret.expose()));
        (mode & READABLE_BY_OTHERS != 0 && is_written).then(|| {
            let hint = format!("chmod 600 {}", self.path.display());
            let message = "holds secrets and can be read by other users".to_owned();
            self.remark(Severity::Warning, message, Some(hint))
        })
    }

    #[cfg(not(unix))]
    fn exposed_secrets(&self) -> Option<Remark> {
        None
    }
}

fn read(path: &Path, lookup: &dyn Fn(&str) -> Option<String>) -> Result<FileRead, LoadError> {
    let bytes = read_bytes(path)?;
    let broken = |error| LoadError::Broken { path: path.to_owned(), error };
    let text = config::decode(&bytes).map_err(broken)?.to_owned();
    let mut loaded = config::parse(&text, lookup).map_err(broken)?;
    itself::leave_out(path, &text, &mut loaded);
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
        given: loaded.given.into_iter().map(at_path).collect(),
    })
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, LoadError> {
    let unreadable = |source| LoadError::Unreadable { path: path.to_owned(), source };
    let kind = fs::metadata(path).map_err(unreadable)?.file_type();
    if kind.is_dir() {
        return Err(LoadError::NotAFile { path: path.to_owned(), what: "a directory" });
    }
    // Opening a pipe that nobody writes to would wait for ever.
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

/// The path with `~` replaced and relative to nothing.
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

/// The user's home: what the environment says, else what the system knows.
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

#[cfg(not(unix))]
fn system_home() -> Option<PathBuf> {
    None
}
