//! The files of provisioning: pending plans, approvals, hashes seen before, installed servers, advance trust.
//! Owns: these files, and the change notice to running gateways.      Never: decides, fetches, starts anything.
//! In: plans, decisions of a person.  Out: approvals, records, the configuration of an installed server (`store/config.rs`).
//! Tests: `store/tests.rs`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use metamcp_provisioning::provision::{Approval, Consent, Plan, Rejected, Trust};
use metamcp_types::text;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(super) use self::config::{server_config, takes_secrets};
use super::install;
use crate::clock::unix_millis;
use crate::files::{Directory, FileError, component};

mod config;
mod quarantine;
#[cfg(test)]
mod tests;

/// Installed servers, a folder each, under the home.
pub(super) const INSTALLED: &str = "provisioned";
/// Everything else, under the home.
pub(super) const OWN: &str = "provision";
const PENDING: &str = "pending";
const AGREED: &str = "agreed";
const WORK: &str = "work";
const SEEN: &str = "seen.json";
const RECORD: &str = "server.json";
const TRUSTED: &str = "trusted.json";
const INSTALL_LOCK: &str = "installing.lock";
/// Written whenever the installed servers change.
pub(super) const CHANGED: &str = "provisioned.changed";

/// Largest file read; a plan with a thousand packages is a tenth of it.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// How long a plan waits for approval.
const PENDING_TTL_MS: u64 = 60 * 60 * 1000;
/// Most pending plans: a model that keeps asking must not fill the disk.
const MAX_PENDING: usize = 64;
const MAX_SEEN: usize = 4096;
/// Longest description of a tool kept for display.
const MAX_ABOUT_CHARS: usize = 160;
const MAX_INSTALLED: usize = 1024;

#[derive(Debug)]
pub struct Store {
    home: PathBuf,
}

/// A plan that waits for approval.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pending {
    pub plan: Plan,
    pub since: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// The approved plan.
    pub plan: Plan,
    /// The command line; secrets as references.
    pub argv: Vec<String>,
    /// When it was installed, in milliseconds since 1970.
    pub installed: u64,
    /// The fingerprints of its tools when they were first listed, by name.
    #[serde(default)]
    pub pins: BTreeMap<String, String>,
    /// The values of its variables; secrets as references.
    #[serde(default)]
    pub values: Vec<(String, String)>,
    /// The program behind the first word, if that name is a version manager's shim.
    #[serde(default)]
    pub runtime: Option<String>,
    /// Whether an image was pulled for it that was not on this machine before.
    #[serde(default)]
    pub brought: bool,
    /// The digest of the manifest of its files; none if it was installed by an older version.
    #[serde(default)]
    pub manifest: Option<String>,
    /// Files and folders that it may use beside its own.
    #[serde(default)]
    pub reach: Vec<PathBuf>,
    /// How often its changed tools were accepted.
    #[serde(default)]
    pub accepted: u64,
    /// Tools hidden from the model, as last listed, by name.
    #[serde(default)]
    pub blocked: BTreeMap<String, Blocked>,
    /// Its tools as pinned, by name, for display.
    #[serde(default)]
    pub tools: BTreeMap<String, Seen>,
    /// Why it is withheld, until a person accepts it; stored in a separate file.
    #[serde(skip)]
    pub quarantine: Option<String>,
}

/// A pinned tool, for display in one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    pub signature: String,
    /// The first sentence of its description.
    pub about: String,
}

impl Seen {
    pub(super) fn new(signature: &str, description: &str) -> Seen {
        let about = text::first_sentence(description, MAX_ABOUT_CHARS);
        Seen { signature: signature.to_owned(), about }
    }
}

/// A tool that is not as approved, for review by a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    pub print: String,
    /// Whether there was no tool of that name.
    pub is_new: bool,
    pub signature: String,
    pub description: String,
}

impl Record {
    /// A record without pins yet.
    pub fn new(plan: Plan, consent: &Consent, installed: u64) -> Record {
        Record {
            plan,
            argv: consent.argv.clone(),
            installed,
            pins: BTreeMap::new(),
            values: consent.environment.clone(),
            runtime: None,
            brought: false,
            manifest: None,
            reach: Vec::new(),
            accepted: 0,
            blocked: BTreeMap::new(),
            tools: BTreeMap::new(),
            quarantine: None,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "no plan {id} waits for approval; it was used, is older than an hour, or never existed"
    )]
    NoPlan { id: String },
    #[error("no server {name:?} was installed by metamcp")]
    NotInstalled { name: String },
    #[error("nothing of {name:?} is blocked, so there is nothing to accept")]
    NothingBlocked { name: String },
    /// The values are invalid.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

impl Store {
    pub fn new(home: &Path) -> Store {
        Store { home: home.to_owned() }
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The installation folder of a package, absolute if the home is.
    pub fn prefix(&self, package: &str) -> String {
        let home = std::path::absolute(&self.home).unwrap_or_else(|_| self.home.clone());
        home.join(INSTALLED).join(component(package)).to_string_lossy().into_owned()
    }

    /// The working folder for resolving a package.
    pub(super) fn work(&self, package: &str) -> PathBuf {
        self.home.join(OWN).join(WORK).join(component(package))
    }

    /// What the user trusts in advance. An unreadable file trusts nothing, and is an error.
    pub fn trust(&self) -> Result<Trust, String> {
        let read = || -> Result<Option<Vec<u8>>, FileError> {
            let Some(home) = Directory::home(&self.home)? else { return Ok(None) };
            let Some(mut file) = home.open(TRUSTED)? else { return Ok(None) };
            Ok(Some(file.read(MAX_FILE)?))
        };
        match read() {
            Ok(None) => Ok(Trust::default()),
            Ok(Some(raw)) => Trust::read(&raw).map_err(|why| format!("{TRUSTED}: {why}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The hash of this package when it was first seen.
    pub fn seen(&self, package: &str) -> Option<String> {
        self.all_seen().remove(package)
    }

    pub(super) fn remember_seen(&self, package: &str, integrity: &str) {
        let mut seen = self.all_seen();
        if seen.contains_key(package) || seen.len() >= MAX_SEEN {
            return;
        }
        seen.insert(package.to_owned(), integrity.to_owned());
        // If this fails, the package counts as seen for the first time again.
        drop(self.own().and_then(|own| write(&own, SEEN, &seen)));
    }

    fn all_seen(&self) -> BTreeMap<String, String> {
        self.own().ok().and_then(|own| read(&own, SEEN)).unwrap_or_default()
    }

    /// Stores a plan until somebody approves it in a terminal. The same plan has the same id.
    pub fn wait_for_yes(&self, plan: &Plan) -> Result<String, StoreError> {
        let pending = self.part(PENDING)?;
        self.sweep(&pending);
        let id = plan.id();
        write(
            &pending,
            &format!("{id}.json"),
            &Pending { plan: plan.clone(), since: unix_millis() },
        )?;
        Ok(id)
    }

    /// Pending plans, by id.
    pub fn pending(&self) -> Vec<(String, Pending)> {
        let Ok(folder) = self.part(PENDING) else { return Vec::new() };
        let names = folder.names(MAX_PENDING * 2).unwrap_or_default();
        let now = unix_millis();
        let waiting = names.into_iter().filter_map(|name| {
            let id = name.strip_suffix(".json")?.to_owned();
            let pending: Pending = read(&folder, &name)?;
            // A file whose name does not match its content was not written by us.
            (pending.plan.id() == id && now.saturating_sub(pending.since) <= PENDING_TTL_MS)
                .then_some((id, pending))
        });
        waiting.collect()
    }

    fn sweep(&self, folder: &Directory) {
        let mut names = folder.names(MAX_PENDING * 4).unwrap_or_default();
        let now = unix_millis();
        let age =
            |name: &String| folder.modified_ms(name).map_or(u64::MAX, |at| now.saturating_sub(at));
        names.sort_by_key(age);
        for (number, name) in names.iter().enumerate() {
            if number + 1 >= MAX_PENDING || age(name) > PENDING_TTL_MS {
                // A file that cannot be removed is skipped when reading.
                folder.remove(name).ok();
            }
        }
    }

    /// Records a person's approval of the plan as shown, if it is still pending. The pending file may have been replaced
    /// since; the approval is for what was shown.
    pub fn agree(&self, shown: &Plan, values: Vec<(String, String)>) -> Result<(), StoreError> {
        let digest = shown.digest();
        if !self.pending().iter().any(|(_, pending)| pending.plan.digest() == digest) {
            return Err(StoreError::NoPlan { id: shown.id() });
        }
        shown.complete(&values)?;
        let approval = shown.approve(values, unix_millis());
        write(&self.part(AGREED)?, &format!("{}.json", shown.id()), &approval)?;
        Ok(())
    }

    /// Uses up the approval of a plan, if there is one. It is gone afterwards, valid or not.
    pub fn use_yes(&self, plan: &Plan) -> Result<Option<Consent>, StoreError> {
        let agreed = self.part(AGREED)?;
        let name = format!("{}.json", plan.id());
        let claimed = format!("{}.used-{}", plan.id(), std::process::id());
        // Of two gateways that see it only one can move it.
        if agreed.open(&name)?.is_none() || agreed.rename(&name, &claimed).is_err() {
            return Ok(None);
        }
        let approval: Option<Approval> = read(&agreed, &claimed);
        agreed.remove(&claimed)?;
        self.forget_pending(plan);
        match approval {
            Some(approval) => Ok(Some(plan.agreed(&approval, unix_millis())?)),
            None => Ok(None),
        }
    }

    /// The plan is no longer pending.
    pub fn forget_pending(&self, plan: &Plan) {
        if let Ok(pending) = self.part(PENDING) {
            pending.remove(&format!("{}.json", plan.id())).ok();
        }
    }

    pub(super) fn remember_installed(&self, record: &Record) -> Result<(), StoreError> {
        let folder = Directory::home_or_create(Path::new(&record.plan.prefix))?;
        write(&folder, RECORD, record)?;
        Ok(())
    }

    pub fn records(&self) -> Vec<Record> {
        let Ok(Some(home)) = Directory::home(&self.home) else { return Vec::new() };
        let Ok(Some(all)) = home.inside(INSTALLED) else { return Vec::new() };
        let names = all.names(MAX_INSTALLED).unwrap_or_default();
        let records = names.iter().filter_map(|name| {
            let folder = all.inside(name).ok()??;
            let record: Record = read(&folder, RECORD)?;
            Some(Record { quarantine: quarantine::why(&folder), ..record })
        });
        let mut records: Vec<Record> = records.collect();
        records.sort_by(|a, b| a.plan.server.cmp(&b.plan.server));
        records
    }

    pub fn record(&self, name: &str) -> Result<Record, StoreError> {
        let found = self.records().into_iter().find(|record| record.plan.server == name);
        found.ok_or_else(|| StoreError::NotInstalled { name: name.to_owned() })
    }

    /// Removes an installed server with all its files.
    pub(super) fn remove(&self, name: &str) -> Result<Record, StoreError> {
        let record = self.record(name)?;
        let folder = Path::new(&record.plan.prefix);
        // Without its record it is not run any more, whatever happens to the rest.
        if let Some(own) = Directory::home(folder)? {
            own.remove(RECORD)?;
        }
        install::remove(folder)?;
        install::remove(&self.work(&super::package_of(&record.plan)))?;
        self.tell_gateways();
        Ok(record)
    }

    /// Accepts a server as shown to a person: its blocked tools are pinned as shown, and its withdrawal is ignored, unless
    /// there is another reason by now.
    pub fn accept(&self, shown: &Record) -> Result<Record, StoreError> {
        let name = &shown.plan.server;
        if shown.blocked.is_empty() && shown.quarantine.is_none() {
            return Err(StoreError::NothingBlocked { name: name.clone() });
        }
        if let Some(why) = &shown.quarantine {
            self.release(shown, why)?;
        }
        let mut record = self.record(name)?;
        for (name, tool) in &shown.blocked {
            record.pins.insert(name.clone(), tool.print.clone());
            record.tools.insert(name.clone(), Seen::new(&tool.signature, &tool.description));
        }
        record.blocked.retain(|name, tool| shown.blocked.get(name) != Some(tool));
        record.accepted += 1;
        self.remember_installed(&record)?;
        self.tell_gateways();
        Ok(record)
    }

    /// Gives an installed server access to a file or a folder of the user.
    pub fn allow(&self, name: &str, path: &Path) -> Result<Record, StoreError> {
        let mut record = self.record(name)?;
        let real = dunce::canonicalize(path).map_err(|source| FileError::Io {
            action: "find",
            path: path.to_owned(),
            source,
        })?;
        if !record.reach.contains(&real) {
            record.reach.push(real);
        }
        self.remember_installed(&record)?;
        self.tell_gateways();
        Ok(record)
    }

    /// Notifies running gateways, which watch this file.
    pub(super) fn tell_gateways(&self) {
        let home = Directory::home_or_create(&self.home);
        // If this fails, they notice at their next start.
        drop(home.and_then(|home| home.replace(CHANGED, unix_millis().to_string().as_bytes())));
    }

    /// The lock file for installations.
    pub(super) fn open_lock(&self) -> Result<File, FileError> {
        self.own()?.open_lock(INSTALL_LOCK)
    }

    fn own(&self) -> Result<Directory, FileError> {
        Directory::home_or_create(&self.home)?.inside_or_create(OWN)
    }

    fn part(&self, name: &str) -> Result<Directory, FileError> {
        self.own()?.inside_or_create(name)
    }
}

fn read<T: DeserializeOwned>(folder: &Directory, name: &str) -> Option<T> {
    let raw = folder.open(name).ok()??.read(MAX_FILE).ok()?;
    serde_json::from_slice(&raw).ok()
}

fn write(folder: &Directory, name: &str, value: &impl Serialize) -> Result<(), FileError> {
    let bytes = serde_json::to_vec_pretty(value).map_err(|error| FileError::Io {
        action: "write",
        path: folder.path().join(name),
        source: error.into(),
    })?;
    folder.replace(name, &bytes)
}
