//! A home and the files of one conversation, with nothing to reach beyond this machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use metamcp_testkit::DAEMON;

/// A port that nothing listens on: whatever asks a registry learns at once that there is none.
const NOWHERE: &str = "http://127.0.0.1:9";

/// Everything that a gateway and its servers may touch.
pub(super) struct Place {
    folder: PathBuf,
}

impl Place {
    /// Empties the folder first. It is the same for every conversation, because its path is part of what is counted.
    pub(super) fn new(folder: &Path) -> Result<Place> {
        if folder.exists() {
            fs::remove_dir_all(folder)
                .with_context(|| format!("cannot clear {}", folder.display()))?;
        }
        fs::create_dir_all(folder)?;
        // The filesystem server answers with resolved paths.
        let place = Place { folder: fs::canonicalize(folder)? };
        for part in ["home", "files", "repository", "bin"] {
            fs::create_dir(place.folder.join(part))?;
        }
        // The git server needs git; package managers are not found, so provisioning is the same on every machine.
        let git = program("git").context("the benchmark needs git on the PATH")?;
        std::os::unix::fs::symlink(git, place.folder.join("bin/git"))?;
        place.git(&["init", "--quiet"])?;
        Ok(place)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the filesystem server.
    pub(super) fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    pub(super) fn repository(&self) -> PathBuf {
        self.folder.join("repository")
    }

    /// The file of the memory server.
    pub(super) fn memory(&self) -> PathBuf {
        self.folder.join("memory.jsonl")
    }

    /// The path of a file, as a model writes it.
    pub(super) fn file(&self, name: &str) -> String {
        self.files().join(name).to_string_lossy().into_owned()
    }

    pub(super) fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.files().join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }

    pub(super) fn read(&self, name: &str) -> Result<String> {
        let path = self.files().join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// A commit that changes one file; the same ids in every run.
    pub(super) fn commit(&self, file: &str, text: &str, message: &str) -> Result<()> {
        fs::write(self.repository().join(file), text)?;
        self.git(&["add", "."])?;
        self.git(&["commit", "--quiet", "--message", message])
    }

    fn git(&self, args: &[&str]) -> Result<()> {
        let identity = ["-c", "user.name=Ada Lovelace", "-c", "user.email=ada@example.org"];
        let output = Command::new("git")
            .args(identity)
            .args(["-c", "init.defaultBranch=main"])
            .args(args)
            .current_dir(self.repository())
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("HOME", self.folder.join("home"))
            .env("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z")
            .env("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z")
            .output()?;
        ensure!(
            output.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// An environment with an empty home, so that nothing is cached, and without registries.
    pub(super) fn surround(&self, command: &mut Command) {
        command
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", self.folder.join("bin"))
            .env("HOME", self.folder.join("home"))
            .env("LANG", "C.UTF-8")
            .env("TZ", "UTC")
            .env(DAEMON.0, DAEMON.1)
            .env("METAMCP_REGISTRIES", NOWHERE);
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists())
}
