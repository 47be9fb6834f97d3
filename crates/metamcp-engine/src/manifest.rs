//! The manifest of an installed server's files, to detect changes after the installation.
//! Owns: the manifest beside them.      Never: repairs, follows a symlink.
//! In: the folder of an installed server.  Out: what changed, as text.
//! Tests: below; `metamcp/tests/real/provision.rs`.
//!
//! A file with the recorded size, inode and change time counts as unchanged: the kernel sets the change time with every
//! write, and no program can set it back. Only others are hashed, so that a start costs one stat for each file.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files::{Directory, FileError};

const FILE: &str = "manifest.json";
/// The folders with code: npm's packages, and a Python environment.
const CODE: [&str; 2] = ["node_modules", "venv"];
/// Most files; the largest packages have some ten thousand.
const MAX_FILES: usize = 200_000;
/// Largest manifest read.
const MAX_FILE: u64 = 64 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum Changed {
    #[error("{} {what}", path.display())]
    File { path: PathBuf, what: &'static str },
    #[error("it has more than {MAX_FILES} files")]
    TooMany,
    #[error("{} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Manifest(#[from] FileError),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Entry {
    Folder,
    Link(PathBuf),
    File { size: u64, sha256: String, stamp: Stamp },
}

/// What changes with every write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    inode: u64,
    changed_s: i64,
    changed_ns: i64,
}

type Manifest = BTreeMap<PathBuf, Entry>;

/// Writes the manifest of a freshly installed folder. Returns its digest, which detects a replaced manifest if stored
/// elsewhere.
pub fn record(folder: &Path) -> Result<String, Changed> {
    let mut manifest = Manifest::new();
    walk(folder, &mut |path, metadata| {
        manifest.insert(path.to_owned(), entry(folder, path, metadata)?);
        Ok(())
    })?;
    let json = serde_json::to_vec(&manifest).unwrap_or_default();
    Directory::home_or_create(folder)?.replace(FILE, &json)?;
    Ok(digest(&json))
}

/// Checks that the code in a folder is as installed: nothing changed, missing or added. `written` is the digest of the
/// manifest; without it, an existing manifest is trusted, and an installation without one gets one.
pub fn verify(folder: &Path, written: Option<&str>) -> Result<(), Changed> {
    let own = |what| Changed::File { path: PathBuf::from(FILE), what };
    let directory = Directory::home_or_create(folder)?;
    let Some(mut file) = directory.open(FILE)? else {
        // Otherwise an attacker would only have to delete it.
        return if written.is_some() { Err(own("is missing")) } else { record(folder).map(drop) };
    };
    let bytes = file.read(MAX_FILE)?;
    if written.is_some_and(|written| written != digest(&bytes)) {
        return Err(own("was changed after it was installed"));
    }
    let mut manifest: Manifest = serde_json::from_slice(&bytes).map_err(|_| own("is damaged"))?;
    walk(folder, &mut |path, metadata| {
        let changed = |what| Changed::File { path: path.to_owned(), what };
        let known = manifest.remove(path).ok_or_else(|| changed("was not installed with it"))?;
        if let Entry::File { size, stamp, .. } = &known
            && metadata.is_file()
            && *size == metadata.len()
            && Some(*stamp) == stamp_of(metadata)
        {
            return Ok(());
        }
        match (entry(folder, path, metadata)?, known) {
            (Entry::File { sha256: now, .. }, Entry::File { sha256: then, .. }) if now == then => {
                Ok(())
            }
            (now, then) if now == then => Ok(()),
            _ => Err(changed("was changed after it was installed")),
        }
    })?;
    match manifest.into_keys().next() {
        Some(path) => Err(Changed::File { path, what: "is missing" }),
        None => Ok(()),
    }
}

/// Every file, folder and symlink with code, by its path within `folder`. Symlinks are not followed.
fn walk(
    folder: &Path,
    seen: &mut dyn FnMut(&Path, &Metadata) -> Result<(), Changed>,
) -> Result<(), Changed> {
    let mut waiting: Vec<PathBuf> = CODE.iter().map(PathBuf::from).collect();
    let mut count = 0;
    while let Some(path) = waiting.pop() {
        let unreadable = |source| Changed::Unreadable { path: path.clone(), source };
        let metadata = match fs::symlink_metadata(folder.join(&path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            found => found.map_err(unreadable)?,
        };
        count += 1;
        if count > MAX_FILES {
            return Err(Changed::TooMany);
        }
        seen(&path, &metadata)?;
        if metadata.is_dir() {
            for child in fs::read_dir(folder.join(&path)).map_err(unreadable)? {
                waiting.push(path.join(child.map_err(unreadable)?.file_name()));
            }
        }
    }
    Ok(())
}

fn entry(folder: &Path, path: &Path, metadata: &Metadata) -> Result<Entry, Changed> {
    let unreadable = |source| Changed::Unreadable { path: path.to_owned(), source };
    let whole = folder.join(path);
    if metadata.is_dir() {
        return Ok(Entry::Folder);
    }
    if metadata.is_symlink() {
        return fs::read_link(whole).map(Entry::Link).map_err(unreadable);
    }
    if !metadata.is_file() {
        // Opening a pipe or a device could block forever.
        return Err(Changed::File { path: path.to_owned(), what: "is not a regular file" });
    }
    let mut file = fs::File::open(whole).map_err(unreadable)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match file.read(&mut buffer).map_err(unreadable)? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    let sha256 = hexadecimal(&hash.finalize());
    let none = Stamp { inode: 0, changed_s: 0, changed_ns: 0 };
    Ok(Entry::File { size: metadata.len(), sha256, stamp: stamp_of(metadata).unwrap_or(none) })
}

fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "other systems have none")]
fn stamp_of(metadata: &Metadata) -> Option<Stamp> {
    use std::os::unix::fs::MetadataExt;
    Some(Stamp {
        inode: metadata.ino(),
        changed_s: metadata.ctime(),
        changed_ns: metadata.ctime_nsec(),
    })
}

#[cfg(windows)]
fn stamp_of(_metadata: &Metadata) -> Option<Stamp> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let code = folder.path().join("node_modules/pkg/dist");
        fs::create_dir_all(&code).unwrap();
        fs::write(code.join("index.js"), "run()").unwrap();
        fs::write(folder.path().join("node_modules/pkg/package.json"), "{}").unwrap();
        fs::create_dir_all(folder.path().join("data")).unwrap();
        record(folder.path()).unwrap();
        folder
    }

    fn told(folder: &Path) -> String {
        verify(folder, None).map_or_else(|changed| changed.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn any_change_to_installed_code_is_detected() {
        let folder = installed();
        let root = folder.path();
        let index = root.join("node_modules/pkg/dist/index.js");
        assert_eq!(told(root), "fine");
        // Its own data may change.
        fs::write(root.join("data/notes.json"), "[]").unwrap();
        assert_eq!(told(root), "fine");
        // The same bytes written again, as from a restored backup.
        fs::remove_file(&index).unwrap();
        fs::write(&index, "run()").unwrap();
        assert_eq!(told(root), "fine");
        // Of the same length, with the modification time set back.
        let modified = fs::metadata(&index).unwrap().modified().unwrap();
        fs::write(&index, "evil!").unwrap();
        fs::File::options().write(true).open(&index).unwrap().set_modified(modified).unwrap();
        assert_eq!(told(root), "node_modules/pkg/dist/index.js was changed after it was installed");
        fs::write(&index, "run()").unwrap();
        assert_eq!(told(root), "fine");

        fs::write(root.join("node_modules/pkg/dist/more.js"), "").unwrap();
        assert_eq!(told(root), "node_modules/pkg/dist/more.js was not installed with it");
        fs::remove_file(root.join("node_modules/pkg/dist/more.js")).unwrap();
        fs::remove_file(root.join("node_modules/pkg/package.json")).unwrap();
        assert_eq!(told(root), "node_modules/pkg/package.json is missing");
        fs::write(root.join(FILE), "{").unwrap();
        assert_eq!(told(root), "manifest.json is damaged");
    }

    #[cfg(unix)]
    #[test]
    fn an_added_or_changed_symlink_is_detected() {
        use std::os::unix::fs::symlink;
        let folder = installed();
        let root = folder.path();
        symlink("pkg/dist", root.join("node_modules/link")).unwrap();
        record(root).unwrap();
        assert_eq!(told(root), "fine");
        fs::remove_file(root.join("node_modules/link")).unwrap();
        symlink("/etc", root.join("node_modules/link")).unwrap();
        assert_eq!(told(root), "node_modules/link was changed after it was installed");
        fs::remove_dir_all(root.join("node_modules")).unwrap();
        symlink("/etc", root.join("node_modules")).unwrap();
        assert_eq!(told(root), "node_modules was changed after it was installed");
    }

    #[test]
    fn a_missing_or_replaced_manifest_is_a_change() {
        let folder = installed();
        let root = folder.path();
        let written = record(root).unwrap();
        let told = || verify(root, Some(&written)).map_err(|changed| changed.to_string());
        assert_eq!(told(), Ok(()));
        fs::write(root.join("node_modules/pkg/dist/index.js"), "evil()").unwrap();
        fs::remove_file(root.join(FILE)).unwrap();
        assert_eq!(told(), Err("manifest.json is missing".to_owned()));
        assert!(!root.join(FILE).exists());
        record(root).unwrap();
        assert_eq!(told(), Err("manifest.json was changed after it was installed".to_owned()));
    }

    #[test]
    fn an_older_installation_gets_a_manifest() {
        let folder = installed();
        fs::remove_file(folder.path().join(FILE)).unwrap();
        assert_eq!(told(folder.path()), "fine");
        assert!(folder.path().join(FILE).is_file());
    }
}
