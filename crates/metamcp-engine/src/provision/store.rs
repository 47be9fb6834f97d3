//! What is on disk: plans that wait for a yes, the yes itself, hashes seen before, what is installed, what is trusted.
//! Owns: these files, and the notice to gateways that run.      Never: decides, fetches, starts anything.
//! In: plans, answers of a person.  Out: consents, records, the configuration of an installed server (`store/config.rs`).
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
const TURN: &str = "installing.lock";
/// Written whenever what is installed changed.
pub(super) const CHANGED: &str = "provisioned.changed";

/// Largest file read; a plan with a thousand packages is a tenth of it.
const MAX_FILE: u64 = 4 * 1024 * 1024;
/// How long a plan waits for a yes.
const WAITS: u64 = 60 * 60 * 1000;
/// Most plans that wait; a model that asks for ever fills no disk.
const MOST_PENDING: usize = 64;
/// Most hashes remembered.
const MOST_SEEN: usize = 4096;
/// Longest sentence of a tool that is kept for people.
const LONGEST_ABOUT: usize = 160;
/// Most installed servers looked for.
const MOST_INSTALLED: usize = 1024;

/// See the module.
#[derive(Debug)]
pub struct Store {
    home: PathBuf,
}

/// A plan that waits for a yes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pending {
    /// The plan.
    pub plan: Plan,
    /// Since when, in milliseconds since 1970.
    pub since: u64,
}

/// An installed server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// What was agreed to.
    pub plan: Plan,
    /// What is run, every word of it; for a secret, what stands for it.
    pub argv: Vec<String>,
    /// When it was installed, in milliseconds since 1970.
    pub installed: u64,
    /// What its tools looked like when they were first listed, by name.
    #[serde(default)]
    pub pins: BTreeMap<String, String>,
    /// What the person gave for its variables; for a secret, what stands for it.
    #[serde(default)]
    pub values: Vec<(String, String)>,
    /// The program behind the first word, where that name leads to a stub.
    #[serde(default)]
    pub runtime: Option<String>,
    /// Whether an image was brought to this machine for it, which was not there before.
    #[serde(default)]
    pub brought: bool,
    /// The digest of what was written down of its files; none where it was installed before that was kept.
    #[serde(default)]
    pub manifest: Option<String>,
    /// Files and folders that the person lets it use beside its own.
    #[serde(default)]
    pub reach: Vec<PathBuf>,
    /// How often its changed tools were accepted.
    #[serde(default)]
    pub accepted: u64,
    /// Tools that are kept from the model, as they were when they were last listed, by name.
    #[serde(default)]
    pub blocked: BTreeMap<String, Blocked>,
    /// Its tools as they were pinned, by name, for people to see.
    #[serde(default)]
    pub tools: BTreeMap<String, Seen>,
    /// Why it is not used, until a person has looked at it; kept in a file of its own.
    #[serde(skip)]
    pub quarantine: Option<String>,
}

/// A tool as it was when it was pinned, in a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// Its name and parameters.
    pub signature: String,
    /// The first sentence that it says of itself.
    pub about: String,
}

impl Seen {
    /// Of what a tool says of itself.
    pub(super) fn new(signature: &str, description: &str) -> Seen {
        let about = text::first_sentence(description, LONGEST_ABOUT);
        Seen { signature: signature.to_owned(), about }
    }
}

/// A tool that is not what was agreed to, as a person has to see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocked {
    /// Its fingerprint.
    pub print: String,
    /// Whether there was none of that name.
    pub is_new: bool,
    /// Its name and parameters.
    pub signature: String,
    /// What it says of itself now.
    pub description: String,
}

impl Record {
    /// One without pins yet.
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

/// Why something could not be kept or found.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// No such plan waits.
    #[error("no plan {id} waits for a yes; it was used, is older than an hour, or never was")]
    NoPlan {
        /// What was asked for.
        id: String,
    },
    /// No such server is installed.
    #[error("no server {name:?} was installed by metamcp")]
    NotInstalled {
        /// What was asked for.
        name: String,
    },
    /// Nothing is kept from the model.
    #[error("nothing of {name:?} is blocked, so there is nothing to accept")]
    NothingBlocked {
        /// Which server.
        name: String,
    },
    /// The values do not do.
    #[error(transparent)]
    Rejected(#[from] Rejected),
}

impl Store {
    /// Files under that home.
    pub fn new(home: &Path) -> Store {
        Store { home: home.to_owned() }
    }

    /// The home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The folder a package is installed into, absolute where the home is.
    pub fn prefix(&self, package: &str) -> String {
        let home = std::path::absolute(&self.home).unwrap_or_else(|_| self.home.clone());
        home.join(INSTALLED).join(component(package)).to_string_lossy().into_owned()
    }

    /// A folder for what is resolved of a package.
    pub(super) fn work(&self, package: &str) -> PathBuf {
        self.home.join(OWN).join(WORK).join(component(package))
    }

    /// What the user grants in advance. A file that cannot be read grants nothing, and says so.
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

    /// The hash this package had when it was first seen.
    pub fn seen(&self, package: &str) -> Option<String> {
        self.all_seen().remove(package)
    }

    pub(super) fn remember_seen(&self, package: &str, integrity: &str) {
        let mut seen = self.all_seen();
        if seen.contains_key(package) || seen.len() >= MOST_SEEN {
            return;
        }
        seen.insert(package.to_owned(), integrity.to_owned());
        // Not kept, it is as if it were seen for the first time again.
        drop(self.own().and_then(|own| write(&own, SEEN, &seen)));
    }

    fn all_seen(&self) -> BTreeMap<String, String> {
        self.own().ok().and_then(|own| read(&own, SEEN)).unwrap_or_default()
    }

    /// Keeps a plan until somebody says yes in a terminal. The same plan has the same id.
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

    /// Plans that wait, by id.
    pub fn pending(&self) -> Vec<(String, Pending)> {
        let Ok(folder) = self.part(PENDING) else { return Vec::new() };
        let names = folder.names(MOST_PENDING * 2).unwrap_or_default();
        let now = unix_millis();
        let waiting = names.into_iter().filter_map(|name| {
            let id = name.strip_suffix(".json")?.to_owned();
            let pending: Pending = read(&folder, &name)?;
            // A file whose name says something else was not written by us.
            (pending.plan.id() == id && now.saturating_sub(pending.since) <= WAITS)
                .then_some((id, pending))
        });
        waiting.collect()
    }

    fn sweep(&self, folder: &Directory) {
        let mut names = folder.names(MOST_PENDING * 4).unwrap_or_default();
        let now = unix_millis();
        let age =
            |name: &String| folder.modified_ms(name).map_or(u64::MAX, |at| now.saturating_sub(at));
        names.sort_by_key(age);
        for (number, name) in names.iter().enumerate() {
            if number + 1 >= MOST_PENDING || age(name) > WAITS {
                // What cannot be removed is passed over when it is read.
                folder.remove(name).ok();
            }
        }
    }

    /// Writes down the yes of a person to the plan that was shown to them, if it still waits. What waits under its id
    /// may have been exchanged since; the yes is to what was seen.
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

    /// Uses up the yes to a plan, if there is one. It is gone afterwards, whether it was good or not.
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

    /// The plan waits no longer.
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

    /// Installed servers, by name.
    pub fn records(&self) -> Vec<Record> {
        let Ok(Some(home)) = Directory::home(&self.home) else { return Vec::new() };
        let Ok(Some(all)) = home.inside(INSTALLED) else { return Vec::new() };
        let names = all.names(MOST_INSTALLED).unwrap_or_default();
        let records = names.iter().filter_map(|name| {
            let folder = all.inside(name).ok()??;
            let record: Record = read(&folder, RECORD)?;
            Some(Record { quarantine: quarantine::why(&folder), ..record })
        });
        let mut records: Vec<Record> = records.collect();
        records.sort_by(|a, b| a.plan.server.cmp(&b.plan.server));
        records
    }

    /// One of them.
    pub fn record(&self, name: &str) -> Result<Record, StoreError> {
        let found = self.records().into_iter().find(|record| record.plan.server == name);
        found.ok_or_else(|| StoreError::NotInstalled { name: name.to_owned() })
    }

    /// Takes an installed server away with all of its files.
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

    /// A server is fine as it was shown to a person: its blocked tools are pinned, and nothing that it says otherwise
    /// afterwards; what its registry has against it counts no more, unless that is something else by now.
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

    /// Lets an installed server use a file or a folder of the user's.
    pub fn allow(&self, name: &str, path: &Path) -> Result<Record, StoreError> {
        let mut record = self.record(name)?;
        let real = path.canonicalize().map_err(|source| FileError::Io {
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

    /// Gateways that run look at what is installed again: they watch this file.
    pub(super) fn tell_gateways(&self) {
        let home = Directory::home_or_create(&self.home);
        // Not written, they find out when they are next started.
        drop(home.and_then(|home| home.replace(CHANGED, unix_millis().to_string().as_bytes())));
    }

    /// The file by whose lock processes take turns to install.
    pub(super) fn turnstile(&self) -> Result<File, FileError> {
        self.own()?.turnstile(TURN)
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
