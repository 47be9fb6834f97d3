//! The files of the audit log, as a writer sees them. Several processes of a user write to one log: they take turns by a
//! lock, and each continues where the last one ended, also in the middle of a line.
//! Owns: `<home>/audit`, its lock, its note of the head, when a new file begins.      Never: waits for the lock for long, leaves half a batch.
//! In: entries.  Out: lines on disk, or how many of them are and why the rest is not.
//! Tests: `audit/tests.rs`, `metamcp/tests/audit/`.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use metamcp_audit::{Chain, Entry, Fact, FileName, HeadNote, Kind, MAX_LINE, Tail, Who};
use metamcp_config::settings::AuditSettings;

use crate::clock::{self, unix_millis};
use crate::files::{Directory, FileError};

/// The folder in the home.
pub(super) const FOLDER: &str = "audit";
/// The note of the head, which is the lock as well.
pub(super) const HEAD: &str = "head";
/// Most entries of the folder that are looked at: more than there may be files.
pub(super) const MAX_NAMES: usize = 200_000;

/// A batch takes microseconds. Whoever holds the lock for this long hangs.
const LOCK_WITHIN: Duration = Duration::from_secs(5);
const LOCK_INTERVAL: Duration = Duration::from_millis(2);
/// A batch is written when it has this many bytes, so that a large one needs no more memory.
const FLUSH_BYTES: usize = 256 * 1024;

/// Why nothing can be recorded.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("another process holds the lock of {} for too long", .0.display())]
    Busy(PathBuf),
    #[error("the thread that writes it is not there")]
    NoWriter,
}

impl AuditError {
    /// With what the system says.
    pub fn told(&self) -> String {
        match std::error::Error::source(self) {
            Some(source) if matches!(self, AuditError::File(_)) => format!("{self}: {source}"),
            _ => self.to_string(),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct AuditFolder {
    home: PathBuf,
    file_bytes: u64,
    files: u64,
    open: Option<Open>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Open {
    directory: Directory,
    /// The note of the head; locked while this process writes.
    head: File,
    /// What stands there, as far as this process knows.
    note: Option<HeadNote>,
    file: File,
    name: FileName,
    size: u64,
    /// The oldest file that the limit has left. Kept, not counted anew: files that somebody else removed must be missed.
    oldest: FileName,
    /// Continues after the last line that is on disk.
    chain: Chain,
}

/// Takes entries one by one.
pub(super) type Put<'a> = dyn FnMut(&Entry<'_>) -> Result<(), AuditError> + 'a;

impl AuditFolder {
    /// Touches nothing yet.
    pub fn new(home: &Path, settings: &AuditSettings) -> AuditFolder {
        AuditFolder {
            home: home.to_owned(),
            file_bytes: settings.file_bytes,
            files: settings.files,
            open: None,
            buffer: Vec::new(),
        }
    }

    /// Appends a batch: whatever `entries` passes to the function it gets. On an error it says how many of them are on disk.
    pub(super) fn append(
        &mut self,
        entries: impl FnOnce(&mut Put<'_>) -> Result<(), AuditError>,
    ) -> Result<(), (usize, AuditError)> {
        let mut open = self.begin().map_err(|error| (0, error))?;
        let mut buffer = std::mem::take(&mut self.buffer);
        let (mut waiting, mut written) = (0, 0);
        let limits = (self.file_bytes, self.files);
        let mut chain = open.chain.clone();
        let done = entries(&mut |entry| {
            chain.seal(&mut buffer, entry);
            waiting += 1;
            let is_full = open.size + buffer.len() as u64 >= limits.0;
            if is_full || buffer.len() >= FLUSH_BYTES {
                open.flush(&mut buffer, &chain)?;
                written += std::mem::take(&mut waiting);
            }
            if is_full {
                open.rotate(limits.1)?;
                chain = open.chain.clone();
            }
            Ok(())
        });
        let done = done.and_then(|()| open.flush(&mut buffer, &chain));
        if done.is_ok() {
            written += waiting;
        }
        buffer.clear();
        buffer.shrink_to(2 * FLUSH_BYTES);
        self.buffer = buffer;
        open.unlock();
        match done {
            Ok(()) => {
                self.open = Some(open);
                Ok(())
            }
            // The next batch looks at everything anew.
            Err(error) => Err((written, error)),
        }
    }

    /// The last line that this process knows of.
    pub fn head(&self) -> Option<metamcp_audit::Head> {
        self.open.as_ref().map(|open| open.chain.head())
    }

    /// Takes the lock, and finds out where the log ends.
    fn begin(&mut self) -> Result<Open, AuditError> {
        if let Some(open) = self.open.take()
            && open.directory.is_in_place()
            && open.directory.is_still(HEAD, &open.head)
        {
            lock(&open.head, open.directory.path())?;
            let is_same = open.directory.is_still(&open.name.to_string(), &open.file)
                && open.read_note() == open.note
                && open.note.is_some_and(|note| note.file == open.name.0)
                && open.file.metadata().is_ok_and(|file| file.len() == open.size);
            if is_same {
                return Ok(open);
            }
        }
        let directory = Directory::home_or_create(&self.home)?.inside_or_create(FOLDER)?;
        let head = directory.open_lock(HEAD)?;
        lock(&head, directory.path())?;
        let mut open = Open::resume(directory, head)?;
        if open.size == 0 {
            // Begun by a writer that died before its first line, or by nobody yet.
            open.anchor(self.files)?;
        } else if open.size >= self.file_bytes {
            open.rotate(self.files)?;
        }
        Ok(open)
    }
}

impl Open {
    /// After the last line on disk, whoever wrote it.
    fn resume(directory: Directory, head: File) -> Result<Open, AuditError> {
        let note = read_note(&head);
        let all = names(&directory)?;
        let newest = all.last().copied();
        // Where newer files were removed, their numbers are not used again, so that they are missed.
        let name = match (newest, note) {
            (newest, Some(note)) if newest.is_none_or(|newest| newest.0 < note.file) => {
                FileName(note.file + 1)
            }
            (newest, _) => newest.unwrap_or(FileName(1)),
        };
        let oldest = note.map(|note| FileName(note.oldest));
        let oldest = oldest.or_else(|| all.first().copied()).unwrap_or(name);
        let mut file = directory.open_to_append(&name.to_string())?;
        let path = directory.path().join(name.to_string());
        let fail = |source| AuditError::Write { path: path.clone(), source };
        let size = file.metadata().map_err(fail)?.len();
        let (bytes, begin) = end_of(&mut file, size).map_err(fail)?;
        let tail = Tail::of(&bytes);
        let mut chain = match begin == size {
            // An empty file: what it continues is the end of the one before.
            true => before(&directory, name, note)?,
            false => tail.chain(note),
        };
        let mut mended = Vec::new();
        let begun = chain.clone();
        tail.mend(note, &mut chain, &mut mended, (unix_millis(), std::process::id()));
        if note.is_none() {
            // Before the first line, so that a writer that dies behind it leaves a note.
            let note = HeadNote { file: name.0, size, oldest: oldest.0, head: begun.head() };
            write_note(&head, &note).map_err(|source| AuditError::Write {
                path: directory.path().join(HEAD),
                source,
            })?;
        }
        let mut open = Open { directory, head, note, file, name, size, oldest, chain: begun };
        open.flush(&mut mended, &chain)?;
        Ok(open)
    }

    /// Begins the next file, and removes the oldest ones beyond the limit. In this order, so that what a writer that dies in
    /// between leaves behind is complete.
    fn rotate(&mut self, files: u64) -> Result<(), AuditError> {
        self.name = FileName(self.name.0 + 1);
        self.file = self.directory.open_to_append(&self.name.to_string())?;
        self.size = self.file.metadata().map_or(0, |file| file.len());
        self.anchor(files)
    }

    /// Writes the first line of a file.
    fn anchor(&mut self, files: u64) -> Result<(), AuditError> {
        let limit = (self.name.0 + 1).saturating_sub(files);
        self.oldest = self.oldest.max(FileName(limit));
        let what = [("file", Fact::Number(self.name.0)), ("oldest", Fact::Number(self.oldest.0))];
        let who = Who { principal: "owner", pid: std::process::id(), ..Who::default() };
        let entry = Entry {
            at_ms: unix_millis(),
            kind: Kind::File,
            who,
            what: &what,
            verdict: "opened",
            arguments: None,
            result: None,
        };
        let (mut chain, mut line) = (self.chain.clone(), Vec::new());
        chain.seal(&mut line, &entry);
        self.flush(&mut line, &chain)?;
        for old in names(&self.directory)?.into_iter().filter(|old| *old < self.oldest) {
            self.directory.remove(&old.to_string())?;
        }
        Ok(())
    }

    /// Writes lines whole, or none of them; then notes the new head.
    fn flush(&mut self, lines: &mut Vec<u8>, chain: &Chain) -> Result<(), AuditError> {
        if lines.is_empty() {
            return Ok(());
        }
        if let Err(source) = self.file.write_all(lines) {
            // What was written of them is taken back; where even that fails, the next writer explains it.
            self.file.set_len(self.size).ok();
            let path = self.directory.path().join(self.name.to_string());
            return Err(AuditError::Write { path, source });
        }
        self.size += lines.len() as u64;
        self.chain = chain.clone();
        lines.clear();
        let note = HeadNote {
            file: self.name.0,
            size: self.size,
            oldest: self.oldest.0,
            head: chain.head(),
        };
        // The lines are there. A note that lags behind is no damage, and the next batch looks again.
        self.note = write_note(&self.head, &note).ok().map(|()| note);
        Ok(())
    }

    fn read_note(&self) -> Option<HeadNote> {
        read_note(&self.head)
    }

    fn unlock(&self) {
        // It goes with the file at the latest.
        self.head.unlock().ok();
    }
}

/// The files of the log, oldest first.
pub(super) fn names(directory: &Directory) -> Result<Vec<FileName>, FileError> {
    let mut names: Vec<FileName> =
        directory.names(MAX_NAMES)?.iter().filter_map(|name| FileName::read(name)).collect();
    names.sort();
    Ok(names)
}

/// The chain as the file in front of this one leaves it.
fn before(
    directory: &Directory,
    name: FileName,
    note: Option<HeadNote>,
) -> Result<Chain, AuditError> {
    let older = names(directory)?.into_iter().rfind(|one| *one < name);
    let Some(older) = older else { return Ok(Tail::default().chain(note)) };
    let mut file = directory.open_to_append(&older.to_string())?;
    let path = directory.path().join(older.to_string());
    let read = file.metadata().and_then(|found| end_of(&mut file, found.len()));
    let (bytes, _) = read.map_err(|source| AuditError::Write { path, source })?;
    Ok(Tail::of(&bytes).chain(note))
}

/// The last bytes of a file, in which its last whole line is, and where they begin.
fn end_of(file: &mut File, size: u64) -> io::Result<(Vec<u8>, u64)> {
    let begin = size.saturating_sub(2 * MAX_LINE as u64);
    file.seek(SeekFrom::Start(begin))?;
    let mut bytes = Vec::new();
    file.take(size - begin).read_to_end(&mut bytes)?;
    Ok((bytes, begin))
}

fn lock(file: &File, folder: &Path) -> Result<(), AuditError> {
    let began = clock::std_instant();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_WITHIN => {
                thread::sleep(LOCK_INTERVAL);
            }
            Err(TryLockError::WouldBlock) => return Err(AuditError::Busy(folder.to_owned())),
            Err(TryLockError::Error(source)) => {
                return Err(AuditError::Write { path: folder.join(HEAD), source });
            }
        }
    }
}

pub(super) fn read_note(mut file: &File) -> Option<HeadNote> {
    let mut bytes = [0; HeadNote::LENGTH];
    file.seek(SeekFrom::Start(0)).ok()?;
    file.read_exact(&mut bytes).ok()?;
    HeadNote::from_bytes(&bytes)
}

fn write_note(mut file: &File, note: &HeadNote) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    file.write_all(&note.to_bytes())
}
