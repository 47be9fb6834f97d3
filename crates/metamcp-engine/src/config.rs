//! Configuration as found on this machine: which file, and what flags and variables add to it.
//! Owns: finding and reading the files, the order of sources.      Never: judges their content (`metamcp_config::config` does), starts anything.
//! In: `LoadOptions`: flags, variables, working directory.  Out: `Loaded`, or a `LoadError` to show as it is.
//! Tests: `config/tests.rs`.

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

/// Largest config file that is read; a larger one was not written as one.
pub const LARGEST_FILE: u64 = 1 << 20;

/// What decides which configuration is loaded.
pub struct LoadOptions<'a> {
    /// Settings from the command line.
    pub flags: Vec<Given>,
    /// Answers for environment variables, in settings and in the file.
    pub lookup: &'a dyn Fn(&str) -> Option<String>,
    /// Names of all variables that are set, to tell those that mean nothing here.
    pub variables: Vec<String>,
    /// Why this build or machine cannot run scripts in a profile, and how it could; `None` where it can.
    pub lacks: &'a dyn Fn(CodeProfile) -> Option<Lack>,
    /// Where `.mcp.json` is looked for.
    pub working_dir: &'a Path,
}

/// Why a profile of code mode is not to be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lack {
    /// What is missing.
    pub reason: String,
    /// How to get it.
    pub cure: String,
}

/// The configuration in force.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Servers, and settings from all sources.
    pub config: Config,
    /// Every setting with the source it was taken from.
    pub values: Vec<Given>,
    /// What the user should know.
    pub remarks: Vec<Remark>,
    /// The project's file, whether it counts or not; none where the user named a file.
    pub project: Option<Project>,
    /// The file the servers come from.
    pub source: Source,
    /// Every file that has a say: a change of one of them may change all of this.
    pub files: Vec<PathBuf>,
}

/// The file the servers come from; those of a project that was approved are added to the user's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The one named by flag or variable.
    Named(PathBuf),
    /// `.mcp.json` in the working directory, which was approved; the user has no file.
    Project(PathBuf),
    /// The user's own.
    User(PathBuf),
    /// There is none.
    Nowhere {
        /// Where it was looked for, in this order.
        looked: Vec<PathBuf>,
    },
}

impl Source {
    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Named(path) | Self::Project(path) | Self::User(path) => Some(path),
            Self::Nowhere { .. } => None,
        }
    }

    /// What a user without any file needs to know, and the smallest file that works.
    pub fn advice(&self) -> Option<String> {
        let Self::Nowhere { looked } = self else { return None };
        let places: Vec<String> =
            looked.iter().map(|path| format!("  {}", path.display())).collect();
        Some(format!(
            "no config file was found; looked for\n{}\n\n`metamcp init` takes over the servers your clients have, `metamcp add memory` installs a first one. Or write one of the files, for example:\n\n{EXAMPLE}\n",
            places.join("\n")
        ))
    }
}

/// The smallest useful file.
const EXAMPLE: &str = r#"{
  "mcpServers": {
    "memory": { "command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"] }
  }
}"#;

/// Something the user should know about the configuration in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// How serious.
    pub severity: Severity,
    /// The file it is about.
    pub path: Option<PathBuf>,
    /// The place in the file.
    pub place: Option<Place>,
    /// What, as a fragment without a full stop.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// The line of the file and a caret under the place, for what is wrong with it.
    pub excerpt: Option<String>,
}

impl Remark {
    /// A warning of the reader, with the file it is about.
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

    /// What of a file cannot be used, though the rest is.
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

/// Why no configuration could be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be opened or read.
    #[error("cannot read the config file {}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The path leads to something that is no file.
    #[error("the config file {} is {what}, not a file", path.display())]
    NotAFile {
        /// Which path.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// The file is far too large.
    #[error("the config file {} is larger than {LARGEST_FILE} bytes", path.display())]
    TooLarge {
        /// Which file.
        path: PathBuf,
    },
    /// The content cannot be used.
    #[error("{}:{error}", path.display())]
    Broken {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        error: ConfigError,
    },
    /// Variables hold values that their settings cannot take.
    #[error("{}", join(errors))]
    Environment {
        /// Every one of them.
        errors: Vec<ValueError>,
    },
    /// The toolset that clients are to be kept to is not there. Without it they would see everything.
    #[error("there is no toolset {name:?}{}", listed(known))]
    NoSuchToolset {
        /// As it was named.
        name: String,
        /// Those there are.
        known: Vec<String>,
    },
    /// `~` cannot be replaced.
    #[error(
        "cannot tell your home directory; set HOME, or METAMCP_HOME to where metamcp may keep its files"
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
