//! The audit log as it is read again, without a daemon and while others write.
//! Owns: how far it is read, so that a reader sees whole batches.      Never: changes anything, reads a line of any length into memory.
//! In: the home.  Out: the lines of all files, oldest first, and the note of the head.
//! Tests: `audit/tests.rs`, `metamcp/tests/audit/`.

use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::thread;
use std::time::Duration;

use metamcp_audit::{FileName, HeadNote, MAX_LINE};

use super::folder::{AuditError, FOLDER, HEAD, names, read_note};
use crate::files::Directory;

/// How often, and with what pause, a reader tries to get a moment between two batches.
const LOCK_TRIES: u32 = 200;
const LOCK_INTERVAL: Duration = Duration::from_millis(2);

/// The log at one moment.
#[derive(Debug)]
pub struct Reading {
    directory: Directory,
    /// The files and their sizes, oldest first.
    files: Vec<(FileName, u64)>,
    pub note: Option<HeadNote>,
}

/// Where a reader is: behind so many bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Position {
    pub file: u64,
    pub bytes: u64,
}

/// A line of the log, without its newline.
#[derive(Debug, Clone, Copy)]
pub struct RawLine<'a> {
    pub file: FileName,
    pub bytes: &'a [u8],
    /// Whether a newline ends it.
    pub ended: bool,
}

impl Reading {
    /// The log of this home; none if nothing was ever recorded.
    pub fn of(home: &Path) -> Result<Option<Reading>, AuditError> {
        let Some(home) = Directory::home(home)? else { return Ok(None) };
        let Some(directory) = home.inside(FOLDER)? else { return Ok(None) };
        let head = directory.open(HEAD)?.map(crate::files::Opened::into_file);
        let mut is_locked = false;
        for _ in 0..LOCK_TRIES {
            is_locked = head.as_ref().is_none_or(|head| head.try_lock_shared().is_ok());
            if is_locked {
                break;
            }
            thread::sleep(LOCK_INTERVAL);
        }
        // Read before the sizes, so that without the lock too it names no line that is not there.
        let note = head.as_ref().and_then(read_note);
        let mut files = Vec::new();
        for name in names(&directory)? {
            // One that is removed meanwhile is the oldest, and gone.
            if let Some(opened) = directory.open(&name.to_string())? {
                files.push((name, opened.size));
            }
        }
        if let Some(head) = head.filter(|_| is_locked) {
            head.unlock().ok();
        }
        Ok(Some(Reading { directory, files, note }))
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn files(&self) -> impl DoubleEndedIterator<Item = FileName> + '_ {
        self.files.iter().map(|(name, _)| *name)
    }

    /// Behind the last line.
    pub fn end(&self) -> Position {
        self.files
            .last()
            .map_or_else(Position::default, |(name, size)| Position { file: name.0, bytes: *size })
    }

    /// Every line behind a position. A line longer than any that is written is cut, and is no line of ours by that. The
    /// function says whether to go on.
    pub fn lines(
        &self,
        from: Position,
        mut each: impl FnMut(RawLine<'_>) -> bool,
    ) -> Result<(), AuditError> {
        let later = self.files.iter().filter(|(name, _)| name.0 >= from.file);
        for (file, size) in later.copied() {
            let Some(opened) = self.directory.open(&file.to_string())? else { continue };
            let path = self.directory.path().join(file.to_string());
            let fail = |source| AuditError::Write { path: path.clone(), source };
            let begin = if file.0 == from.file { from.bytes.min(size) } else { 0 };
            let mut source = opened.into_file();
            source.seek(SeekFrom::Start(begin)).map_err(fail)?;
            let mut reader = BufReader::with_capacity(256 * 1024, source.take(size - begin));
            let mut line = Vec::new();
            loop {
                line.clear();
                let limit = MAX_LINE as u64 + 1;
                let read = (&mut reader).take(limit).read_until(b'\n', &mut line).map_err(fail)?;
                if read == 0 {
                    break;
                }
                let mut ended = line.last() == Some(&b'\n');
                if ended {
                    line.pop();
                } else if read as u64 == limit {
                    // The rest of it.
                    ended = skip_line(&mut reader).map_err(fail)?;
                }
                if !each(RawLine { file, bytes: &line, ended }) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// Skips to behind the next newline; false if there is none.
fn skip_line(reader: &mut impl BufRead) -> std::io::Result<bool> {
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(false);
        }
        if let Some(at) = memchr::memchr(b'\n', bytes) {
            reader.consume(at + 1);
            return Ok(true);
        }
        let all = bytes.len();
        reader.consume(all);
    }
}
