//! Loads the configuration on this machine: which file, and which flags and variables override it.
//! Owns: finding and reading the files, the precedence of sources.      Never: validates their content (`metamcp_config::config` does), starts anything.
//! In: `LoadOptions`: flags, variables, working directory.  Out: `Loaded`, or a `LoadError` to show as it is.
//! Tests: `config/tests.rs`.

pub(crate) mod descriptions;
mod load;
mod project;
mod self_reference;

use std::fmt;
use std::path::{Path, PathBuf};

use metamcp_config::config::{Config, ConfigError, Place, Problem, Severity, Warning};
use metamcp_config::settings::{CodeProfile, Given, ValueError};

pub use self::load::{home, load};
pub use self::project::{CurrentProject, Project, ProjectTrust};
pub use self::self_reference::{ABOVE, RecursionError, above, below};

/// Largest config file read.
pub const LARGEST_FILE: u64 = 1 << 20;

/// What decides which configuration is loaded.
pub struct LoadOptions<'a> {
    pub flags: Vec<Given>,
    /// Looks up environment variables, for settings and for references in the file.
    pub lookup: &'a dyn Fn(&str) -> Option<String>,
    /// Names of all variables that are set, to report unknown ones.
    pub variables: Vec<String>,
    /// Why this build or machine cannot run scripts in a profile, and how it could; `None` if it can.
    pub lacks: &'a dyn Fn(CodeProfile) -> Option<Lack>,
    /// Where `.mcp.json` is looked for.
    pub working_dir: &'a Path,
}

/// Why a profile of code mode is unavailable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    pub reason: String,
    /// How to fix it.
    pub cure: String,
}

/// The effective configuration.
#[derive(Debug, Clone)]
pub struct Loaded {
    pub config: Config,
    /// Every setting with its source.
    pub values: Vec<Given>,
    /// Warnings and notes for the user.
    pub remarks: Vec<Remark>,
    /// The project's file, approved or not; none if the user named a file.
    pub project: Option<Project>,
    pub source: Source,
    /// Every file that was read or looked for: a change of one of them may change the configuration.
    pub files: Vec<PathBuf>,
}

/// The file the servers come from; those of an approved project are added to the user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Named(PathBuf),
    /// The approved `.mcp.json` in the working directory, if the user has no file.
    Project(PathBuf),
    User(PathBuf),
    Nowhere {
        looked: Vec<PathBuf>,
    },
}

impl Source {
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Named(path) | Self::Project(path) | Self::User(path) => Some(path),
            Self::Nowhere { .. } => None,
        }
    }

    /// Advice for a user without any file, with a minimal example.
    pub fn advice(&self) -> Option<String> {
        let Self::Nowhere { looked } = self else { return None };
        let places: Vec<String> =
            looked.iter().map(|path| format!("  {}", path.display())).collect();
        Some(format!(
            "no config file was found; looked for\n{}\n\n`metamcp init` imports the servers of your clients, `metamcp add memory` installs a first one. Or write one of the files, for example:\n\n{EXAMPLE}\n",
            places.join("\n")
        ))
    }
}

const EXAMPLE: &str = r#"{
  "mcpServers": {
    "memory": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"] }
  }
}"#;

/// A warning or note about the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    pub severity: Severity,
    pub path: Option<PathBuf>,
    pub place: Option<Place>,
    /// A fragment without a full stop.
    pub message: String,
    pub hint: Option<String>,
    /// The line of the file, with a caret under the place.
    pub excerpt: Option<String>,
}

impl Remark {
    pub fn of_file(path: &Path, warning: &Warning) -> Self {
        Self {
            severity: warning.severity,
            path: Some(path.to_owned()),
            place: Some(warning.place.clone()),
            message: warning.message.clone(),
            hint: warning.hint.clone(),
            excerpt: None,
        }
    }

    /// A part of a file that is invalid and was skipped.
    pub fn of_fault(path: &Path, fault: &Problem) -> Self {
        Self {
            severity: Severity::Error,
            path: Some(path.to_owned()),
            place: Some(fault.place.clone()),
            message: fault.message.clone(),
            hint: fault.hint.clone(),
            excerpt: Some(fault.excerpt.clone()),
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}:", path.display())?;
        }
        if let Some(place) = &self.place {
            write!(f, "{place}:")?;
        }
        let gap = if self.path.is_some() { " " } else { "" };
        write!(f, "{gap}{}", self.message)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot read the config file {}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("the config file {} is {what}, not a file", path.display())]
    NotAFile { path: PathBuf, what: &'static str },
    #[error("the config file {} is larger than {LARGEST_FILE} bytes", path.display())]
    TooLarge { path: PathBuf },
    #[error("{}:{error}", path.display())]
    Broken { path: PathBuf, error: ConfigError },
    /// Variables have invalid values.
    #[error("{}", join(errors))]
    Environment { errors: Vec<ValueError> },
    /// The configured toolset does not exist. Without it clients would see everything.
    #[error("there is no toolset {name:?}{}", listed(known))]
    NoSuchToolset {
        name: String,
        /// The existing ones.
        known: Vec<String>,
    },
    /// What the program around the daemon says of a client's configuration.
    #[error("{words}")]
    Elsewhere { words: String },
    /// `~` cannot be expanded.
    #[error(
        "cannot determine your home directory; set HOME, or METAMCP_HOME to a folder for metamcp's files"
    )]
    NoHome,
}

fn listed(known: &[String]) -> String {
    if known.is_empty() {
        "; the configuration has no `toolsets`".to_owned()
    } else {
        format!("; there are {}", known.join(", "))
    }
}

fn join(errors: &[ValueError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests;
