//! The `.mcp.json` of the working directory. Its author may be a stranger, so nothing of it is used before a person
//! approved exactly these bytes in exactly this folder.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use metamcp_config::config::{self, ConfigPreview, EffectiveConfig, Severity};
use metamcp_types::next::quoted;
use tokio::sync::watch;

use super::{LARGEST_FILE, Remark, descriptions};
use crate::trust::{self, Decision, TrustError, TrustStore};

pub(super) const PROJECT_FILE: &str = ".mcp.json";

/// A project's file and whether it is trusted.
#[derive(Debug, Clone, PartialEq)]
pub struct Project {
    /// The canonical folder, so that no symlink can pass for it, and the file's name.
    pub path: PathBuf,
    /// The target, if it is a symlink.
    pub link: Option<PathBuf>,
    /// Of the bytes that were read; empty if they could not be read.
    pub sha256: String,
    pub trust: ProjectTrust,
    /// What it would do, or does.
    pub preview: ConfigPreview,
    /// Its servers with the digests of the descriptions that were looked at for the preview.
    pub(super) descriptions: Vec<(String, String)>,
    store: TrustStore,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectTrust {
    Trusted,
    /// Nobody decided about this content.
    Waiting {
        /// Whether another content of it was approved.
        changed: bool,
    },
    Declined,
    /// It would do nothing, like a client's file that names only this gateway.
    Idle,
    /// It cannot be read, or is invalid; why.
    Unusable(String),
}

/// The project's file as the running gateway sees it; subscribe for changes.
pub type CurrentProject = watch::Sender<Option<Arc<Project>>>;

impl Project {
    /// Whether a person has yet to decide about it.
    pub fn is_waiting(&self) -> bool {
        matches!(self.trust, ProjectTrust::Waiting { .. })
    }

    /// Approves it exactly as it was read: the bytes of the preview, not the current ones.
    ///
    /// # Errors
    /// It could not be stored.
    pub fn approve(&self) -> Result<(), TrustError> {
        self.store.approve(&self.path, &self.sha256)
    }

    /// Declines it as it was read.
    ///
    /// # Errors
    /// It could not be stored.
    pub fn decline(&self) -> Result<(), TrustError> {
        self.store.decline(&self.path, &self.sha256)
    }

    pub fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    /// A note for the user, unless it is trusted or would do nothing.
    pub fn remark(&self) -> Option<Remark> {
        let counts = self.preview.counts();
        let (severity, message) = match &self.trust {
            ProjectTrust::Trusted | ProjectTrust::Idle => return None,
            ProjectTrust::Waiting { changed: false } => (
                Severity::Warning,
                format!("is not approved, so nothing of it is used; {counts} waiting"),
            ),
            ProjectTrust::Waiting { changed: true } => (
                Severity::Warning,
                format!(
                    "changed since you approved it, so nothing of it is used; {counts} waiting"
                ),
            ),
            ProjectTrust::Declined => {
                (Severity::Note, format!("was declined, so nothing of it is used ({counts})"))
            }
            ProjectTrust::Unusable(why) => {
                (Severity::Warning, format!("is not approved and cannot be used: {why}"))
            }
        };
        let folder = self.folder().to_string_lossy().into_owned();
        let folder = quoted(&folder);
        let hint = match self.trust {
            ProjectTrust::Unusable(_) => None,
            _ => Some(format!(
                "metamcp trust {folder} shows what it would do, and asks for approval"
            )),
        };
        Some(Remark {
            severity,
            path: Some(self.path.clone()),
            place: None,
            message,
            hint,
            excerpt: None,
        })
    }
}

/// Looks for the file in a folder and decides whether it is trusted. Its text is returned only if it is: what was hashed
/// is what is used, read once.
pub(super) fn find(
    folder: &Path,
    store: &TrustStore,
    effective: EffectiveConfig<'_>,
    is_itself: &dyn Fn(&Path, &str) -> bool,
) -> Option<(Project, Option<String>)> {
    let folder = dunce::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let path = folder.join(PROJECT_FILE);
    // A dangling symlink counts as present.
    let found = fs::symlink_metadata(&path).ok()?;
    let link =
        found.is_symlink().then(|| dunce::canonicalize(&path).unwrap_or_else(|_| path.clone()));
    let mut project = Project {
        path,
        link,
        sha256: String::new(),
        trust: ProjectTrust::Idle,
        preview: ConfigPreview::default(),
        descriptions: Vec::new(),
        store: store.clone(),
    };
    let unusable = |mut project: Project, why: String| {
        project.trust = ProjectTrust::Unusable(why);
        Some((project, None))
    };
    let bytes = match read(&project.path, LARGEST_FILE) {
        Ok(bytes) => bytes,
        Err(why) => return unusable(project, why),
    };
    project.sha256 = trust::sha256(&bytes);
    let text = match config::decode(&bytes) {
        Ok(text) => text,
        Err(error) => return unusable(project, error.to_string()),
    };
    project.preview = match ConfigPreview::of(text, effective) {
        Ok(preview) => preview,
        Err(error) => return unusable(project, error.to_string()),
    };
    if project.preview.is_empty() || is_itself(&project.path, text) {
        return Some((project, None));
    }
    // What is approved is what would be used, and that includes descriptions of APIs.
    match descriptions::of_project(&folder, &mut project.preview) {
        Ok(digests) if digests.is_empty() => {}
        Ok(digests) => {
            let lines = digests.iter().map(|(server, digest)| format!("{server}\n{digest}"));
            let all = format!("{}\n{}", project.sha256, lines.collect::<Vec<_>>().join("\n"));
            project.sha256 = trust::sha256(all.as_bytes());
            project.descriptions = digests;
        }
        Err(why) => return unusable(project, why),
    }
    project.trust = match store.decision(&project.path, &project.sha256) {
        Ok(Decision::Trusted) => ProjectTrust::Trusted,
        Ok(Decision::Declined) => ProjectTrust::Declined,
        Ok(Decision::Changed) => ProjectTrust::Waiting { changed: true },
        Ok(Decision::None) => ProjectTrust::Waiting { changed: false },
        Err(error) => return unusable(project, format!("the approvals cannot be read: {error}")),
    };
    let text = (project.trust == ProjectTrust::Trusted).then(|| text.to_owned());
    Some((project, text))
}

/// Reads a file that a stranger may have put there: never blocks, never reads without limit.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let mut options = File::options();
    options.read(true);
    // Opening a pipe without a writer would block forever.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        &mut options,
        nix::fcntl::OFlag::O_NONBLOCK.bits(),
    );
    let file = options.open(path).map_err(|error| format!("it cannot be read: {error}"))?;
    let found = file.metadata().map_err(|error| format!("it cannot be examined: {error}"))?;
    if !found.is_file() {
        return Err("it is not a file".to_owned());
    }
    let mut bytes = Vec::new();
    file.take(most + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes.len() as u64 > most {
        return Err(format!("it is larger than {most} bytes"));
    }
    Ok(bytes)
}
