//! The schema cache: each server's last known tools on disk, usable before the server has started, never authoritative.
//! Owns: `cache/<server>/schema.json`, its header, its quarantine; `index.bin` beside it.      Never: fails a start, trusts what it reads.
//! In: a server's name and its tools.  Out: the tools of last time, or a miss.
//! Tests: `schema_cache/tests.rs`.
//!
//! The file is one line of JSON, the header, and after it the tools as one `tools/list` result. The header
//! contains what is shown before anything is parsed, and checksums of itself and the body, so that no flipped
//! bit goes unnoticed. Gateways that share a home need no lock: each write replaces the whole file, and the
//! last one wins. It also names the configuration it was made from, so that two gateways with different servers
//! of one name never use each other's tools.

mod format;
mod part;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use metamcp_tools::about;
use metamcp_tools::tool::ServerTools;

use crate::files::{Directory, FileError, Opened, component, temporary_prefix};
use format::{Damage, MAX_HEADER_BYTES, encode, parse, parse_header};

pub use format::{Cached, Header, fuzz_cache};

#[cfg(test)]
mod tests;

/// Largest file read or written: twice the cap on a server's tools.
pub const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// After this long a list is read again even if no change was announced.
pub const TIME_TO_LIVE: Duration = Duration::from_hours(1);

/// Caches of servers that are in no configuration are deleted after this long: another gateway with the same home may
/// still use them.
pub const KEEP_UNKNOWN: Duration = Duration::from_hours(720);

/// Damaged files kept for diagnosis.
const MAX_QUARANTINED: usize = 3;

/// Temporary files older than this were left by a crash.
const ABANDONED_MS: u64 = 60 * 60 * 1_000;

/// Entries read of one directory.
const MAX_ENTRIES: usize = 10_000;

const FILE: &str = "schema.json";
const FOLDER: &str = "cache";

/// Device names on Windows, with any extension.
const RESERVED: [&str; 4] = ["con", "prn", "aux", "nul"];
/// The same followed by a digit.
const NUMBERED: [&str; 2] = ["com", "lpt"];
/// Longest server name used as a folder name unchanged.
const MAX_PLAIN: usize = 64;

/// The cache key: the name in the configuration, and what is started or reached under it.
#[derive(Debug, Clone, Copy)]
pub struct Server<'a> {
    pub name: &'a str,
    /// A digest of its command or address; without it, any entry under the name matches.
    pub made_by: Option<&'a str>,
}

impl<'a> From<&'a str> for Server<'a> {
    fn from(name: &'a str) -> Server<'a> {
        Server { name, made_by: None }
    }
}

impl<'a> From<&'a String> for Server<'a> {
    fn from(name: &'a String) -> Server<'a> {
        name.as_str().into()
    }
}

/// The name of a server's folder: the server's name if that is safe, else a similar one with a unique suffix.
pub fn folder_name(server: &str) -> String {
    if is_plain(server) { server.to_owned() } else { component(server) }
}

/// Whether a name is a valid folder name on every system and cannot collide with another server's: file systems may ignore
/// case, some names are devices, and a name may look like one with a suffix.
fn is_plain(name: &str) -> bool {
    let is_usual = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-';
    let is_device = RESERVED.contains(&name)
        || NUMBERED.iter().any(|device| {
            name.strip_prefix(device)
                .is_some_and(|rest| rest.len() == 1 && rest.as_bytes()[0].is_ascii_digit())
        });
    !name.is_empty()
        && name.len() <= MAX_PLAIN
        && name.bytes().all(is_usual)
        && name.as_bytes()[0].is_ascii_alphanumeric()
        && !is_device
        && !is_component(name)
}

/// The result of a cache lookup.
#[derive(Debug)]
pub enum Lookup<T> {
    Found(T),
    /// No entry, or one of another version.
    Missing,
    /// Damaged, and moved aside.
    Quarantined {
        to: PathBuf,
        reason: String,
    },
}

impl<T> Lookup<T> {
    pub fn found(self) -> Option<T> {
        match self {
            Lookup::Found(value) => Some(value),
            Lookup::Missing | Lookup::Quarantined { .. } => None,
        }
    }
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    Unchanged,
    Replaced,
}

/// Why the cache could not be read or written. The gateway works without it.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    #[error("the schema cache of {server} cannot be used")]
    File {
        server: String,
        #[source]
        source: FileError,
    },
    #[error("the tools of {server} need {bytes} bytes, more than the cache accepts")]
    TooLarge { server: String, bytes: usize },
}

/// The cache under one home.
#[derive(Debug, Clone)]
pub struct SchemaCache {
    home: PathBuf,
    /// Its folder, while many files are read in a row.
    open: Option<Arc<Directory>>,
}

impl SchemaCache {
    /// The cache under `home`, such as `~/.metamcp`. Touches nothing yet.
    pub fn new(home: &Path) -> Self {
        Self { home: home.to_owned(), open: None }
    }

    /// The same with its folder open, so that many reads need not resolve the path each time. For short use: a folder that
    /// replaces this one is not noticed.
    #[must_use]
    pub fn opened(&self) -> Self {
        Self { home: self.home.clone(), open: self.folder().ok().flatten() }
    }

    /// The header alone: enough for a digest and a tool count. Costs a few microseconds.
    pub fn read_header<'a>(
        &self,
        server: impl Into<Server<'a>>,
        now_ms: u64,
    ) -> Result<Lookup<Header>, CacheError> {
        let server = server.into();
        self.lookup(server.name, now_ms, |opened| {
            let start = opened.read_start(MAX_HEADER_BYTES)?;
            let size = opened.size;
            Ok(parse_header(&start, server).and_then(|(header, line)| header.for_size(line, size)))
        })
    }

    /// The header and the tools.
    pub fn read<'a>(
        &self,
        server: impl Into<Server<'a>>,
        now_ms: u64,
    ) -> Result<Lookup<Cached>, CacheError> {
        let server = server.into();
        self.lookup(server.name, now_ms, |opened| Ok(parse(&opened.read(MAX_FILE_BYTES)?, server)))
    }

    /// Writes the tools unless they are cached already. `era` is the era of the connection.
    pub fn write_if_changed<'a>(
        &self,
        server: impl Into<Server<'a>>,
        tools: &ServerTools,
        era: Option<&str>,
        now_ms: u64,
    ) -> Result<Written, CacheError> {
        let server = server.into();
        let known = self.read_header(server, now_ms)?.found();
        let same = known.is_some_and(|known| {
            known.fingerprint() == Some(tools.fingerprint)
                && known.title == tools.server_title
                && known.about == tools.server_about
                // Made of the same tools it is the same words; a cache of an older version has none.
                && known.summary.is_some() == about::of(server.name, tools).is_some()
                && known.version == tools.server_version
                && known.era.as_deref() == era
                && known.skipped == format::skipped(tools)
        });
        if same {
            return Ok(Written::Unchanged);
        }
        let bytes = encode(server, tools, era, now_ms);
        if bytes.len() as u64 > MAX_FILE_BYTES {
            let server = server.name.to_owned();
            return Err(CacheError::TooLarge { server, bytes: bytes.len() });
        }
        let replace = || {
            let folder = self.server_folder_or_create(server.name, now_ms)?;
            folder.replace(FILE, &bytes)
        };
        replace().map(|()| Written::Replaced).map_err(|source| file_error(server.name, source))
    }

    /// The whole file of a server, if it is sound: as another gateway may have it.
    pub fn raw<'a>(&self, server: impl Into<Server<'a>>, now_ms: u64) -> Option<Vec<u8>> {
        let server = server.into();
        let read = self.lookup(server.name, now_ms, |opened| {
            let bytes = opened.read(MAX_FILE_BYTES)?;
            Ok(parse(&bytes, server).map(|_| bytes))
        });
        read.ok()?.found()
    }

    /// Takes the file of another gateway, as hostile as one found on disk. Whether it was new; `None` if it is no such
    /// file, or cannot be written.
    pub fn import<'a>(
        &self,
        server: impl Into<Server<'a>>,
        bytes: &[u8],
        now_ms: u64,
    ) -> Option<bool> {
        let server = server.into();
        let theirs = parse(bytes, server).ok()?;
        let ours = self.read_header(server, now_ms).ok()?.found();
        if ours.is_some_and(|ours| ours.fingerprint() == theirs.header.fingerprint()) {
            return Some(false);
        }
        let folder = self.server_folder_or_create(server.name, now_ms).ok()?;
        folder.replace(FILE, bytes).ok()?;
        Some(true)
    }

    /// Removes the caches of servers that are not `known` and were not written for `KEEP_UNKNOWN`, folders with the names of
    /// older versions, and temporary files left by crashes. Returns the number of removed caches. Files that are not ours
    /// stay.
    pub fn sweep(&self, known: &[&str], now_ms: u64) -> Result<usize, CacheError> {
        let all = |source| file_error("all servers", source);
        let Some(cache) = self.folder().map_err(all)? else { return Ok(0) };
        let older: Vec<String> =
            known.iter().filter(|name| is_plain(name)).map(|name| component(name)).collect();
        let known: Vec<String> = known.iter().map(|server| folder_name(server)).collect();
        let mut removed = 0;
        for name in cache.names(MAX_ENTRIES).map_err(all)? {
            if !is_component(&name) && !is_plain(&name) {
                continue;
            }
            let Ok(Some(folder)) = cache.inside(&name) else { continue };
            sweep_temporary(&folder, now_ms);
            let written = folder.modified_ms(FILE);
            let old = |ms: u64| u128::from(now_ms.saturating_sub(ms)) > KEEP_UNKNOWN.as_millis();
            // A folder without our file in it may belong to somebody else.
            let is_old = written.map_or(!is_plain(&name), old);
            if known.contains(&name) || !(is_old || older.contains(&name)) {
                continue;
            }
            for entry in folder.names(MAX_ENTRIES).unwrap_or_default() {
                if [FILE, part::FILE].contains(&entry.as_str())
                    || entry.starts_with(&quarantine_prefix(FILE))
                {
                    // If a file cannot be removed, the next sweep tries again.
                    folder.remove(&entry).ok();
                }
            }
            removed += usize::from(cache.remove(&name).is_ok());
        }
        Ok(removed)
    }

    fn folder(&self) -> Result<Option<Arc<Directory>>, FileError> {
        if let Some(open) = &self.open {
            return Ok(Some(Arc::clone(open)));
        }
        let Some(home) = Directory::home(&self.home)? else { return Ok(None) };
        match home.inside(FOLDER) {
            // A file in place of the folder is a miss; the next write moves it aside.
            Err(FileError::WrongKind { .. }) => Ok(None),
            other => Ok(other?.map(Arc::new)),
        }
    }

    fn server_folder(&self, server: &str) -> Result<Option<Directory>, FileError> {
        let Some(cache) = self.folder()? else { return Ok(None) };
        match cache.inside(&folder_name(server)) {
            Err(FileError::WrongKind { .. }) => Ok(None),
            other => other,
        }
    }

    fn server_folder_or_create(&self, server: &str, now_ms: u64) -> Result<Directory, FileError> {
        let home = Directory::home_or_create(&self.home)?;
        let cache = directory_or_aside(&home, FOLDER, now_ms)?;
        directory_or_aside(&cache, &folder_name(server), now_ms)
    }

    /// Opens the file, passes it to `read`, and quarantines it if it is damaged.
    fn lookup<T>(
        &self,
        server: &str,
        now_ms: u64,
        read: impl FnOnce(&mut Opened) -> Result<Result<T, Damage>, FileError>,
    ) -> Result<Lookup<T>, CacheError> {
        let fail = |source| file_error(server, source);
        let Some(folder) = self.server_folder(server).map_err(fail)? else {
            return Ok(Lookup::Missing);
        };
        let mut opened = match folder.open(FILE) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(Lookup::Missing),
            Err(error @ FileError::WrongKind { .. }) => {
                return quarantine(&folder, FILE, None, now_ms, error.to_string()).map_err(fail);
            }
            Err(error) => return Err(fail(error)),
        };
        let damage = match read(&mut opened) {
            Ok(Ok(found)) => return Ok(Lookup::Found(found)),
            Ok(Err(damage)) if damage.is_mismatch => return Ok(Lookup::Missing),
            Ok(Err(damage)) => damage,
            Err(FileError::TooLarge { cap, .. }) => Damage::new(format!("larger than {cap} bytes")),
            Err(error) => return Err(fail(error)),
        };
        quarantine(&folder, FILE, Some(&opened), now_ms, damage.reason).map_err(fail)
    }
}

/// The folder, created if missing; a file in its place is moved aside, a symlink is refused.
fn directory_or_aside(parent: &Directory, name: &str, now_ms: u64) -> Result<Directory, FileError> {
    match parent.inside_or_create(name) {
        Err(FileError::WrongKind { .. }) => {
            parent.rename(name, &quarantine_name(name, now_ms))?;
            parent.inside_or_create(name)
        }
        other => other,
    }
}

/// Moves a damaged entry aside, unless another gateway has replaced it meanwhile.
fn quarantine<T>(
    folder: &Directory,
    name: &str,
    opened: Option<&Opened>,
    now_ms: u64,
    reason: String,
) -> Result<Lookup<T>, FileError> {
    if opened.is_some_and(|opened| !folder.still_holds(name, opened)) {
        return Ok(Lookup::Missing);
    }
    let aside = quarantine_name(name, now_ms);
    folder.rename(name, &aside)?;
    let names = folder.names(MAX_ENTRIES).unwrap_or_default();
    let kept: Vec<&String> =
        names.iter().filter(|entry| entry.starts_with(&quarantine_prefix(name))).collect();
    for old in kept.iter().rev().skip(MAX_QUARANTINED) {
        // What cannot be removed, such as a non-empty directory, may stay.
        folder.remove(old).ok();
    }
    Ok(Lookup::Quarantined { to: folder.path().join(aside), reason })
}

fn quarantine_prefix(name: &str) -> String {
    format!("{name}.corrupt-")
}

/// Fixed width, so that names sort by time.
fn quarantine_name(name: &str, now_ms: u64) -> String {
    format!("{}{now_ms:013}", quarantine_prefix(name))
}

fn sweep_temporary(folder: &Directory, now_ms: u64) {
    for entry in folder.names(MAX_ENTRIES).unwrap_or_default() {
        let old = |ms: u64| now_ms.saturating_sub(ms) > ABANDONED_MS;
        let ours = [FILE, part::FILE].map(temporary_prefix);
        if ours.iter().any(|prefix| entry.starts_with(prefix))
            && folder.modified_ms(&entry).is_some_and(old)
        {
            // The next sweep tries again.
            folder.remove(&entry).ok();
        }
    }
}

/// Whether a name is one that `component` makes.
fn is_component(name: &str) -> bool {
    let digest = name.rsplit_once('-').map(|(_, digest)| digest);
    digest.is_some_and(|digest| digest.len() == 8 && digest.bytes().all(|c| c.is_ascii_hexdigit()))
}

fn file_error(server: &str, source: FileError) -> CacheError {
    CacheError::File { server: server.to_owned(), source }
}
