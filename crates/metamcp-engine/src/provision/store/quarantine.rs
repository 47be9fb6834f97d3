//! Withheld servers: installed, but withdrawn by their registry. Nothing of them is removed. In a separate file beside the
//! record, so that no writer of the record loses it.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Record, Store, StoreError, read, write};
use crate::files::Directory;

const FILE: &str = "quarantine.json";

/// The reason if the file exists but cannot be read: somebody had a reason to write it.
const UNREADABLE: &str = "the reason why it is withheld cannot be read";

#[derive(Debug, Default, Serialize, Deserialize)]
struct Quarantine {
    /// Why it is withheld; nothing once a person accepted it.
    why: Option<String>,
    /// Reasons that a person accepted.
    #[serde(default)]
    looked_at: BTreeSet<String>,
}

/// Why the server in this folder is withheld, if it is.
pub(super) fn why(folder: &Directory) -> Option<String> {
    match read::<Quarantine>(folder, FILE) {
        Some(noted) => noted.why,
        None => folder.path().join(FILE).exists().then(|| UNREADABLE.to_owned()),
    }
}

impl Store {
    /// Withholds a server, unless a person has accepted this very reason before. Returns whether it is new.
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

    /// A person accepted this reason; another one that came meanwhile stays.
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
    fn an_unreadable_reason_still_withholds_the_server() {
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
