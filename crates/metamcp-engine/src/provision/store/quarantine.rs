//! Installed servers that their registry took back: kept from use until a person has looked at them. Nothing of them is
//! removed. In a file of its own beside the record, so that nobody who writes the record loses it.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Record, Store, StoreError, read, write};
use crate::files::Directory;

const FILE: &str = "quarantine.json";

/// Why a server is not used whose note is there and cannot be read: somebody had a reason to write it.
const UNREADABLE: &str = "the note on why it should not be used cannot be read";

/// What is in the file.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Quarantine {
    /// Why it is not used; nothing once a person has looked at it.
    why: Option<String>,
    /// Reasons that a person has looked at, and that count no more.
    #[serde(default)]
    looked_at: BTreeSet<String>,
}

/// Why the server in this folder is not used, if it is not.
pub(super) fn why(folder: &Directory) -> Option<String> {
    match read::<Quarantine>(folder, FILE) {
        Some(noted) => noted.why,
        None => folder.path().join(FILE).exists().then(|| UNREADABLE.to_owned()),
    }
}

impl Store {
    /// Keeps a server from use, unless a person has looked at this very reason before. Whether it is news.
    pub(in crate::provision) fn quarantine(
        &self,
        record: &Record,
        why: &str,
    ) -> Result<bool, StoreError> {
        let folder = Directory::home_or_create(Path::new(&record.plan.prefix))?;
        let mut now: Quarantine = read(&folder, FILE).unwrap_or_default();
        if now.why.as_deref() == Some(why) || now.looked_at.contains(why) {
            return Ok(false);
        }
        now.why = Some(why.to_owned());
        write(&folder, FILE, &now)?;
        Ok(true)
    }

    /// A person has looked at this reason; another one that came meanwhile stays.
    pub(super) fn release(&self, record: &Record, why: &str) -> Result<(), StoreError> {
        let folder = Directory::home_or_create(Path::new(&record.plan.prefix))?;
        let mut now: Quarantine = read(&folder, FILE).unwrap_or_default();
        now.looked_at.insert(why.to_owned());
        now.why = now.why.filter(|now| now != why);
        write(&folder, FILE, &now)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_that_cannot_be_read_still_keeps_from_use() {
        let place = tempfile::tempdir().unwrap();
        let folder = Directory::home_or_create(place.path()).unwrap();
        assert_eq!(why(&folder), None);
        folder.replace(FILE, br#"{"why":"gone"}"#).unwrap();
        assert_eq!(why(&folder).as_deref(), Some("gone"));
        folder.replace(FILE, br#"{"why":"go"#).unwrap();
        assert_eq!(why(&folder).as_deref(), Some(UNREADABLE));
        folder.replace(FILE, br#"{"why":null}"#).unwrap();
        assert_eq!(why(&folder), None, "a person has looked");
    }
}
