//! The files of an installation below its prefix: replaced by a newer version's, kept for `--undo`, put back.
//!
//! The program is replaced last, by a rename, so that there is always one, and it is whole. A program that runs can be
//! renamed on every system, but not overwritten on Windows.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use metamcp_engine::model;

use super::archive::Member;
use crate::install_method::shared;

/// Below `share/metamcp`: the program and the model before the last upgrade.
const PREVIOUS: &str = "previous";

/// An installation: `bin/metamcp` and `share/` below a prefix.
#[derive(Debug, Clone)]
pub(super) struct Place {
    prefix: PathBuf,
    program: PathBuf,
}

impl Place {
    /// The installation of a program, which lies in `bin`.
    pub(super) fn of(program: &Path) -> Option<Place> {
        let prefix = crate::install_method::prefix(program)?;
        Some(Place { prefix, program: program.to_owned() })
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Where a new program waits until it has shown that it runs. Beside the old one, so that a rename can replace that.
    pub(super) fn waiting(&self) -> PathBuf {
        let name = format!(".metamcp-new-{}{}", std::process::id(), std::env::consts::EXE_SUFFIX);
        self.program.with_file_name(name)
    }

    /// Writes the new program to where it waits.
    pub(super) fn prepare(&self, members: &[Member]) -> anyhow::Result<PathBuf> {
        let program = members.iter().find(|member| is_program(&member.name));
        let program = program.context("the archive contains no program")?;
        let waiting = self.waiting();
        write_new(&waiting, &program.bytes, true)
            .with_context(|| format!("cannot write {}", waiting.display()))?;
        Ok(waiting)
    }

    /// Puts the prepared program and the other files in place, and keeps the old program and model.
    pub(super) fn replace(&self, members: &[Member]) -> anyhow::Result<()> {
        let shared_folder = shared(&self.prefix);
        let kept = shared_folder.join(PREVIOUS);
        if kept.exists() {
            std::fs::remove_dir_all(&kept)
                .with_context(|| format!("cannot remove {}", kept.display()))?;
        }
        std::fs::create_dir_all(&kept)
            .with_context(|| format!("cannot create {}", kept.display()))?;
        let own_model = shared_folder.join(model::FILE);
        if own_model.is_file() {
            keep(&own_model, &kept.join(model::FILE))?;
        }
        keep(&self.program, &kept.join(self.name()))?;
        for member in members.iter().filter(|member| !is_program(&member.name)) {
            // What else an archive contains is for people who unpack it.
            if !member.name.starts_with("share/") {
                continue;
            }
            let path = self.prefix.join(&member.name);
            if std::fs::read(&path).is_ok_and(|old| old == member.bytes) {
                continue;
            }
            let written = put(&path, &member.bytes);
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        self.swap(&self.waiting())
    }

    /// Puts the previous program and model back; those of now become the previous ones.
    pub(super) fn undo(&self) -> anyhow::Result<()> {
        let shared_folder = shared(&self.prefix);
        let kept = shared_folder.join(PREVIOUS);
        let old = kept.join(self.name());
        if !old.is_file() {
            bail!(
                "there is no version to go back to: {} does not exist; `metamcp upgrade` keeps the one it replaces there",
                old.display()
            );
        }
        let waiting = self.waiting();
        drop(std::fs::remove_file(&waiting));
        copy(&old, &waiting)?;
        let own_model = shared_folder.join(model::FILE);
        let old_model = kept.join(model::FILE);
        if old_model.is_file() && own_model.is_file() {
            let aside = kept.join("model.now");
            std::fs::rename(&own_model, &aside)
                .and_then(|()| std::fs::rename(&old_model, &own_model))
                .and_then(|()| std::fs::rename(&aside, &old_model))
                .with_context(|| format!("cannot put {} back", own_model.display()))?;
        }
        std::fs::remove_file(&old).with_context(|| format!("cannot remove {}", old.display()))?;
        keep(&self.program, &old)?;
        self.swap(&waiting)
    }

    /// Gives up what was prepared.
    pub(super) fn discard(&self) {
        // What is left behind is one hidden file, which the next upgrade does not need.
        drop(std::fs::remove_file(self.waiting()));
    }

    fn name(&self) -> &std::ffi::OsStr {
        self.program.file_name().unwrap_or_default()
    }

    fn swap(&self, new: &Path) -> anyhow::Result<()> {
        let failed = || format!("cannot replace {}", self.program.display());
        if cfg!(windows) {
            // A running program cannot be replaced there, but it can be moved aside.
            let aside = self.program.with_extension("old");
            drop(std::fs::remove_file(&aside));
            std::fs::rename(&self.program, &aside).with_context(failed)?;
            if let Err(error) = std::fs::rename(new, &self.program) {
                std::fs::rename(&aside, &self.program).with_context(failed)?;
                return Err(error).with_context(failed);
            }
            return Ok(());
        }
        std::fs::rename(new, &self.program).with_context(failed)
    }
}

fn is_program(name: &str) -> bool {
    name.starts_with("bin/")
}

/// A second name for a file, or a copy where the file system has no second names.
fn keep(from: &Path, to: &Path) -> anyhow::Result<()> {
    if cfg!(unix) && std::fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    copy(from, to)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

/// Replaces a file by a rename.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    std::fs::create_dir_all(folder)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!(".{name}-new-{}", std::process::id()));
    write_new(&new, bytes, false)?;
    std::fs::rename(&new, path)
}

/// A file that was not there, on disk when this returns.
fn write_new(path: &Path, bytes: &[u8], is_executable: bool) -> io::Result<()> {
    // One that a crash left behind.
    drop(std::fs::remove_file(path));
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(if is_executable { 0o755 } else { 0o644 });
    }
    #[cfg(not(unix))]
    let _ = is_executable;
    let mut file = options.open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn an_upgrade_replaces_and_undo_goes_back_and_forth() {
        let folder = tempfile::tempdir().unwrap();
        let prefix = folder.path();
        let program = prefix.join("bin").join("metamcp");
        let model = shared(prefix).join(model::FILE);
        for (path, words) in [(&program, "one"), (&model, "model one")] {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, words).unwrap();
        }
        let place = Place::of(&program).unwrap();
        assert!(place.undo().unwrap_err().to_string().contains("no version to go back to"));
        let member = |name: &str, words: &str| Member { name: name.into(), bytes: words.into() };
        let members = [
            member("bin/metamcp", "two"),
            member(&format!("share/metamcp/{}", model::FILE), "model two"),
            member("share/man/man1/metamcp.1", "page"),
            member("LICENSE", "text"),
        ];
        let waiting = place.prepare(&members).unwrap();
        assert_eq!((text(&waiting), text(&program)), ("two".into(), "one".into()));
        place.replace(&members).unwrap();
        assert!(!waiting.exists() && !prefix.join("LICENSE").exists());
        assert_eq!(text(&prefix.join("share/man/man1/metamcp.1")), "page");
        for (now, then) in [("two", "one"), ("one", "two"), ("two", "one")] {
            let previous = shared(prefix).join(PREVIOUS);
            assert_eq!(
                (text(&program), text(&previous.join("metamcp"))),
                (now.into(), then.into())
            );
            assert_eq!(text(&model), format!("model {now}"));
            assert_eq!(text(&previous.join(model::FILE)), format!("model {then}"));
            place.undo().unwrap();
        }
    }
}
