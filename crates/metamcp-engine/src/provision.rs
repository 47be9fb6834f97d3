//! Provisioning: finds servers in registries, and installs the ones a person approved.
//! Owns: registries and their cache, package clients, pending plans, installed servers.      Never: decides what may run (the core does), asks a client, calls a server.
//! In: a need; a plan and the approval of it.  Out: candidates, plans, the configuration of an installed server.
//! Tests: `metamcp/tests/real/provision.rs`, `provision/tests.rs`, `provision/{store,registry}/tests.rs`.

mod clients;
mod delisted;
mod images;
mod install;
mod npm_search;
mod pins;
mod python;
mod registry;
mod secret_store;
mod store;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use metamcp_child::{ShimCommand, process_sandbox};
use metamcp_config::config::ServerConfig;
use metamcp_config::settings::{ProvisionSettings, TokenStore};
use metamcp_provisioning::provision::{
    self as core, Candidate, Circumstances, Consent, Facts, Kind, Listed, Plan, Source, Status,
    ranked,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use self::npm_search::NpmSearch;
use self::secret_store::SecretStore;
use crate::clock::{self, unix_millis};
use crate::compute;
use crate::observe::{Action, Event, Identity, Observer, Subject};

pub use clients::ClientError;
pub use install::InstallError;
pub use pins::Pinned;
pub(crate) use python::fetch;
pub use registry::{MAX_FILE as MAX_SNAPSHOT, Registry};
pub use secret_store::SecretStoreError;
pub use store::{Blocked, Pending, Record, Seen, Store, StoreError};

/// Lock timeout: as long as another process's package client may take to download, and more.
const INSTALL_LOCK_TIMEOUT: Duration = Duration::from_mins(10);
/// How often the lock is tried.
const LOCK_INTERVAL: Duration = Duration::from_millis(100);
/// Candidates whose packages are looked up for one search.
const MAX_LOOKUPS: usize = 3;
/// Package clients running at once: each may use a whole core, and two would share one folder.
const MAX_CLIENTS: usize = 1;
/// How long package metadata is cached, so that a model that asks a hundred times starts one process.
const FACTS_TTL_MS: u64 = 10 * 60 * 1000;
/// Most packages with cached metadata.
const MAX_FACTS: usize = 256;
/// Candidates below this confidence are not offered.
const MIN_CONFIDENCE: f32 = metamcp_search::search::FITS;

/// Adds an installed server to the running gateway.
pub type Join = Box<dyn Fn(ServerConfig) + Send + Sync>;

pub struct Provisioner {
    settings: ProvisionSettings,
    pub store: Store,
    pub registries: Vec<Arc<Registry>>,
    /// The user's npm, searched beside them.
    npm: Arc<NpmSearch>,
    clients: Semaphore,
    /// One approval request at a time: with a hundred at once people approve the wrong one.
    pub(crate) asking: Semaphore,
    installing: Semaphore,
    facts: Mutex<HashMap<String, (u64, Facts)>>,
    secret_store: SecretStore,
    /// Starts processes in a sandbox.
    shim: Option<ShimCommand>,
    observer: Arc<Observer>,
    join: Join,
}

/// The result of a search.
#[derive(Debug)]
pub struct Found {
    /// Plans, best first; refused ones too, with their reasons.
    pub plans: Vec<(Candidate, Plan)>,
    /// Warnings, such as a registry that does not respond.
    pub notes: Vec<String>,
}

/// Publishes a decision on a plan.
pub(crate) fn publish_decision(
    observer: &Observer,
    plan: &Plan,
    by: Option<&Identity>,
    verdict: &'static str,
) {
    let (server, package, digest) = (&plan.server, &plan.package(), &plan.digest());
    let subject = Subject::Approval { server, package, plan: digest };
    let action = Action { identity: by, ..Action::new(subject, verdict) };
    observer.publish(&Event::Action(action));
}

impl Provisioner {
    /// With its files under `home`. `join` adds an installed server to the gateway.
    pub fn new(home: &Path, settings: &ProvisionSettings, join: Join) -> Provisioner {
        let registries = registry::configured(&settings.registries, home);
        Provisioner {
            settings: settings.clone(),
            store: Store::new(home),
            npm: Arc::new(NpmSearch::new(home, Store::new(home).work("npm search"))),
            registries: registries.into_iter().map(Arc::new).collect(),
            clients: Semaphore::new(MAX_CLIENTS),
            asking: Semaphore::new(1),
            installing: Semaphore::new(1),
            facts: Mutex::default(),
            secret_store: SecretStore::new(home),
            shim: None,
            observer: Arc::default(),
            join,
        }
    }

    /// The same, with approvals and installations published to `observer`.
    pub fn observed_by(self, observer: Arc<Observer>) -> Provisioner {
        Provisioner { observer, ..self }
    }

    /// Publishes a decision on a plan, before it is carried out.
    pub fn decided(&self, plan: &Plan, by: Option<&Identity>, verdict: &'static str) {
        publish_decision(&self.observer, plan, by, verdict);
    }

    fn publish_installation(&self, plan: &Plan, verdict: &'static str) {
        let (server, package, digest) = (&plan.server, &plan.package(), &plan.digest());
        let subject = Subject::Installation { server, package, plan: digest };
        self.observer.publish(&Event::Action(Action::new(subject, verdict)));
    }

    /// The same, able to install: approved code of packages runs in a sandbox set up by `shim`, and secrets are stored where
    /// the user wants them.
    pub fn installing(mut self, shim: ShimCommand, secrets: TokenStore) -> Provisioner {
        self.shim = Some(shim);
        self.secret_store.place = secrets;
        self
    }

    /// Whether provisioning is enabled.
    pub fn is_on(&self) -> bool {
        self.settings.is_on
    }

    /// Candidates for a need: from the gallery, where it covers the need, and nobody is asked; otherwise, or `beyond` the
    /// gallery, from every registry too. Runs nothing of them.
    pub async fn find(
        &self,
        need: &str,
        taken: &(dyn Fn(&str) -> bool + Sync),
        beyond: bool,
    ) -> Found {
        let listed = self.find_in_gallery(need, taken).await;
        if !beyond && !listed.is_empty() {
            return Found { plans: listed, notes: Vec::new() };
        }
        let mut notes = Vec::new();
        // All registries concurrently; each has its own timeout.
        let asked: Vec<_> = self
            .registries
            .iter()
            .map(|registry| {
                let registry = Arc::clone(registry);
                crate::task::spawn("registry", async move { registry.candidates().await })
            })
            .collect();
        let searched = self.searched_by_npm(need);
        let mut vouched = Vec::new();
        for answer in asked {
            // A panic was reported by its task.
            let Ok((candidates, note)) = answer.await else { continue };
            notes.extend(note);
            vouched.push(candidates);
        }
        let (unvetted, note) = searched.await;
        notes.extend(note);
        let need = need.to_owned();
        // A registry has thousands.
        let searched = compute::run(move || {
            // What does not cover the need by the measure of the gallery does not by that of the registries.
            let mut all: Vec<Candidate> = listed.into_iter().map(|(one, _)| one).collect();
            let key =
                |candidate: &Candidate| (candidate.offer.kind, candidate.offer.identifier.clone());
            let mut known: HashSet<(Kind, String)> = all.iter().map(key).collect();
            let there = |one: &&Candidate| !matches!(one.status, Status::Deleted(_));
            for candidate in vouched.iter().flat_map(|one| one.iter()).filter(there) {
                // A package from two sources is offered once, by the more trustworthy one.
                if known.insert(key(candidate)) {
                    all.push(candidate.clone());
                }
            }
            // Last, so that a package that is also in a registry counts as the registry's.
            all.extend(unvetted.into_iter().filter(|candidate| known.insert(key(candidate))));
            let hits = ranked(&need, &all, MAX_LOOKUPS);
            let fitting =
                hits.into_iter().filter(|(_, sure)| sure.is_none_or(|sure| sure >= MIN_CONFIDENCE));
            // An entry of a registry may be for a package of the gallery, which says more of it.
            let checked = core::builtin();
            let best = |found: &Candidate| {
                checked.iter().find(|one| key(one) == key(found)).unwrap_or(found).clone()
            };
            fitting.map(|(candidate, _)| best(candidate)).collect::<Vec<_>>()
        });
        let mut plans = Vec::new();
        for candidate in searched.await.unwrap_or_default() {
            match self.plan(&candidate, taken, false).await {
                Ok(plan) => plans.push((candidate, plan)),
                Err(error) => {
                    notes.push(format!("{}: {error}", candidate.package()));
                    let known = core::listed(&candidate);
                    plans.extend(known.and_then(|listed| self.listed_plan(listed, taken)));
                }
            }
        }
        Found { plans, notes }
    }

    /// The servers of the gallery that cover a need, best first, planned from what is recorded of them.
    pub async fn find_in_gallery(
        &self,
        need: &str,
        taken: &(dyn Fn(&str) -> bool + Sync),
    ) -> Vec<(Candidate, Plan)> {
        let need = need.to_owned();
        let searched = compute::run(move || core::in_gallery(&need, MAX_LOOKUPS)).await;
        let found = searched.unwrap_or_default();
        found.into_iter().filter_map(|(listed, _)| self.listed_plan(listed, taken)).collect()
    }

    /// What installing a server of the gallery would do, by what was recorded when it was checked: nobody is asked, and
    /// its dependencies are not pinned. It is planned anew before it is approved.
    pub fn listed_plan(
        &self,
        listed: &Listed,
        taken: &(dyn Fn(&str) -> bool + Sync),
    ) -> Option<(Candidate, Plan)> {
        let (candidate, facts) = (&listed.candidate, listed.facts()?);
        let trust = self.store.trust().unwrap_or_default();
        let seen = self.store.seen(&candidate.package());
        let circumstances = Circumstances {
            now: unix_millis(),
            least_days: self.settings.least_days,
            seen: seen.as_deref(),
            trust: &trust,
            known: &[],
        };
        let mut verdict = core::assess(candidate, &facts, &circumstances);
        verdict.reasons.extend(listed.found());
        let prefix = self.store.prefix(&candidate.package());
        let server = core::server_name(&candidate.offer.identifier, taken);
        let sandbox = process_sandbox::available();
        Some((candidate.clone(), Plan::new(server, candidate, &facts, verdict, &prefix, sandbox)))
    }

    /// What the user's npm finds, searched beside the registries; nothing if npm search is disabled.
    fn searched_by_npm(
        &self,
        need: &str,
    ) -> impl Future<Output = (Vec<Candidate>, Option<String>)> + use<> {
        let (npm, need) = (Arc::clone(&self.npm), need.to_owned());
        let wanted = !self.registries.is_empty();
        let asking = wanted
            .then(|| crate::task::spawn("npm search", async move { npm.candidates(&need).await }));
        async move {
            match asking {
                Some(asking) => asking.await.unwrap_or_default(),
                None => (Vec::new(), None),
            }
        }
    }

    /// The exact plan of what would be installed and run. With `whole`, all its dependencies are pinned too; only such a plan
    /// can be approved.
    pub async fn plan(
        &self,
        candidate: &Candidate,
        taken: &(dyn Fn(&str) -> bool + Sync),
        whole: bool,
    ) -> Result<Plan, ClientError> {
        let offer = &candidate.offer;
        let prefix = self.store.prefix(&candidate.package());
        let trust = self.store.trust().map_err(|why| ClientError::Unusable { why })?;
        let known: Vec<String> = core::builtin()
            .into_iter()
            .filter(|known| known.offer.kind == offer.kind)
            .map(|known| known.offer.identifier)
            .collect();
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let seen = self.store.seen(&candidate.package());
        let circumstances = Circumstances {
            now: unix_millis(),
            least_days: self.settings.least_days,
            seen: seen.as_deref(),
            trust: &trust,
            known: &known,
        };
        // What is refused by its name alone is not looked up.
        let unseen = Facts { exists: true, ..Facts::default() };
        let hopeless =
            core::assess(candidate, &unseen, &circumstances).refusals.into_iter().any(|refusal| {
                use core::Refusal;
                matches!(
                    refusal,
                    Refusal::Deleted { .. } | Refusal::Unusable { .. } | Refusal::LookAlike { .. }
                )
            });
        let mut facts = if hopeless { unseen } else { self.facts(candidate).await? };
        // Not every package has a program of its own name.
        if facts.exists
            && let Some(program) = core::listed(candidate).and_then(|listed| listed.program.clone())
        {
            facts.entry = Some(program);
        }
        let mut verdict = core::assess(candidate, &facts, &circumstances);
        if whole && verdict.refusals.is_empty() && matches!(offer.kind, Kind::Npm | Kind::Pypi) {
            let _turn = self.turn().await?;
            let work = self.store.work(&candidate.package());
            let days = self.settings.least_days;
            facts.lock = Some(clients::lock(candidate, &work, unix_millis(), days).await?);
            verdict = core::assess(candidate, &facts, &circumstances);
        }
        if verdict.refusals.is_empty() && facts.entry.is_none() && offer.kind == Kind::Npm {
            let why = "it contains no program to start".to_owned();
            verdict.refusals.push(core::Refusal::Unusable { why });
        }
        if verdict.refusals.is_empty()
            && let Some(integrity) = &facts.integrity
        {
            self.store.remember_seen(&candidate.package(), integrity);
        }
        let server = core::server_name(&offer.identifier, taken);
        Ok(Plan::new(server, candidate, &facts, verdict, &prefix, process_sandbox::available()))
    }

    /// The newest version of an installed server's package, if it differs.
    pub async fn newest(&self, record: &Record) -> Option<String> {
        let _turn = self.turn().await.ok()?;
        let package = package_of(&record.plan);
        let newest = clients::newest(&record.plan, &self.store.work(&package)).await?;
        (newest != record.plan.version).then_some(newest)
    }

    /// The cached registries, in one compressed file.
    pub fn snapshot(&self) -> Vec<u8> {
        let all: Vec<registry::RegistryCache> =
            self.registries.iter().map(|registry| registry.load()).collect();
        registry::packed(&all)
    }

    /// Imports such a file: for each registry with newer data, its address, number of servers and time.
    pub fn take_snapshot(&self, raw: &[u8]) -> Result<Vec<(String, usize, u64)>, ClientError> {
        let unusable =
            || ClientError::Unusable { why: "this is no snapshot of registries".to_owned() };
        let mut all: Vec<registry::RegistryCache> = registry::unpacked(raw).ok_or_else(unusable)?;
        let mut taken = Vec::new();
        for registry in &self.registries {
            if let Some((count, synced)) = registry.take(&mut all)? {
                taken.push((registry.base().to_owned(), count, synced));
            }
        }
        Ok(taken)
    }

    async fn facts(&self, candidate: &Candidate) -> Result<Facts, ClientError> {
        let package = candidate.package();
        if let Some(known) = self.known_facts(&package) {
            return Ok(known);
        }
        let _turn = self.turn().await?;
        // A request just before may have looked up the same.
        if let Some(known) = self.known_facts(&package) {
            return Ok(known);
        }
        let facts = clients::facts(candidate, &self.store.work(&package)).await?;
        let mut remembered = self.facts.lock();
        if remembered.len() >= MAX_FACTS {
            remembered.clear();
        }
        remembered.insert(package, (unix_millis(), facts.clone()));
        Ok(facts)
    }

    fn known_facts(&self, package: &str) -> Option<Facts> {
        let facts = self.facts.lock();
        let (at, known) = facts.get(package)?;
        (unix_millis().saturating_sub(*at) < FACTS_TTL_MS).then(|| known.clone())
    }

    async fn turn(&self) -> Result<tokio::sync::SemaphorePermit<'_>, ClientError> {
        let gone = ClientError::Unusable { why: "metamcp is shutting down".to_owned() };
        self.clients.acquire().await.map_err(|_| gone)
    }

    /// Installs an approved plan and adds the server to the gateway. If anything fails, nothing runnable is left. It never
    /// replaces another server, by name (`taken` knows the current ones) or by package.
    pub async fn install(
        &self,
        plan: &Plan,
        consent: &Consent,
        taken: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<(), InstallError> {
        let done = self.carry_out(plan, consent, taken).await;
        self.publish_installation(plan, if done.is_ok() { "installed" } else { "failed" });
        if done.is_err() {
            // Secrets stored before this approval was used.
            self.secret_store.forget_consent(consent).await;
        }
        done
    }

    async fn carry_out(
        &self,
        plan: &Plan,
        consent: &Consent,
        taken: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<(), InstallError> {
        let gone = |_| InstallError::Unusable { why: "metamcp is shutting down".to_owned() };
        let _turn = self.installing.acquire().await.map_err(gone)?;
        let _alone = self.alone().await?;
        let package = package_of(plan);
        let records = self.store.records();
        if let Some(record) = records.iter().find(|record| package_of(&record.plan) == package) {
            return Err(InstallError::There { name: record.plan.server.clone() });
        }
        let name = &plan.server;
        if taken(name) || records.iter().any(|record| record.plan.server == *name) {
            return Err(InstallError::NameTaken { name: name.clone() });
        }
        let secrets = store::takes_secrets(plan, consent);
        let work = self.store.work(&package);
        let done = install::install(plan, &work, self.shim.as_ref(), secrets).await?;
        let brought = done.brought;
        let record = match self.record_installed(plan, consent, done).await {
            Ok(record) => record,
            Err(error) => {
                // Nothing unrecorded is left behind. If the removal fails, the next installation repeats it.
                install::remove(Path::new(&plan.prefix)).ok();
                if brought {
                    images::remove(&plan.identifier, self.store.home()).await;
                }
                return Err(error);
            }
        };
        (self.join)(store::server_config(&record));
        self.store.tell_gateways();
        Ok(())
    }

    /// Records what was installed.
    async fn record_installed(
        &self,
        plan: &Plan,
        consent: &Consent,
        done: install::Done,
    ) -> Result<Record, InstallError> {
        // Secrets are stored last, so that none remain of a failed installation.
        let consent = self.secret_store.consent(plan, consent).await?;
        let mut record = Record::new(plan.clone(), &consent, unix_millis());
        record.runtime = clients::runtime(plan).await;
        record.brought = done.brought;
        record.manifest = done.manifest;
        if let Err(error) = self.store.remember_installed(&record) {
            self.secret_store.forget_record(&record).await;
            return Err(error.into());
        }
        Ok(record)
    }

    /// Removes an installed server with all its files and secrets.
    pub async fn remove(&self, name: &str) -> Result<Record, StoreError> {
        let record = self.store.remove(name)?;
        self.publish_installation(&record.plan, "removed");
        self.secret_store.forget_record(&record).await;
        if record.brought {
            images::remove(&record.plan.identifier, self.store.home()).await;
        }
        Ok(record)
    }

    /// Stores the secrets among the values a person gave for a plan; returns the values with references in their place.
    pub async fn put_away(
        &self,
        plan: &Plan,
        values: Vec<(String, String)>,
    ) -> Result<Vec<(String, String)>, SecretStoreError> {
        self.secret_store.values(plan, values).await
    }

    /// Asks the registries of installed servers for changes, once a day: withdrawn servers are withheld. Returns warnings.
    pub async fn catch_up(&self) -> Vec<String> {
        let records = self.store.records();
        let of = |base: &str| {
            records
                .iter()
                .any(|record| matches!(&record.plan.source, Source::Registry(own) if own == base))
        };
        let mut notes = Vec::new();
        for registry in self.registries.iter().filter(|registry| of(registry.base())) {
            notes.extend(registry.candidates().await.1);
        }
        notes
    }

    /// The lock against other processes that install; released with the file.
    async fn alone(&self) -> Result<File, InstallError> {
        let file = self.store.open_lock()?;
        let end = clock::instant() + INSTALL_LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if clock::instant() < end => {
                    tokio::time::sleep(LOCK_INTERVAL).await;
                }
                Err(TryLockError::WouldBlock) => return Err(InstallError::Busy),
                Err(TryLockError::Error(error)) => {
                    let why = format!("the installation lock cannot be taken: {error}");
                    return Err(InstallError::Unusable { why });
                }
            }
        }
    }

    /// Adds a server that another process installed, before the change notice arrives.
    pub fn put_to_use(&self, record: &Record) {
        (self.join)(store::server_config(record));
    }

    /// The installed server of this candidate's package, if any.
    pub fn installed(&self, candidate: &Candidate) -> Option<Record> {
        let package = candidate.package();
        self.store.records().into_iter().find(|record| package_of(&record.plan) == package)
    }

    /// Servers available under a name: their name in the source, their package, or the last part of either; with warnings
    /// about registries. The gallery comes before every registry, and those before npm.
    pub async fn named(&self, name: &str) -> (Vec<Candidate>, Vec<String>) {
        let mut known = core::named(name, &core::builtin());
        known.extend(core::waiting(name).filter(|_| known.is_empty()));
        if !known.is_empty() {
            return (known, Vec::new());
        }
        let (mut all, mut notes) = (Vec::new(), Vec::new());
        for registry in &self.registries {
            let (candidates, note) = registry.candidates().await;
            notes.extend(note);
            all.extend(core::named(name, &candidates));
        }
        if all.is_empty() {
            let (found, note) = self.searched_by_npm(name).await;
            notes.extend(note);
            all.extend(core::named(name, &found));
        }
        (all, notes)
    }
}

/// The key for the files of a plan; the same as its candidate's.
fn package_of(plan: &Plan) -> String {
    if plan.version.is_empty() {
        format!("{}:{}", plan.kind.word(), plan.identifier)
    } else {
        format!("{}:{}@{}", plan.kind.word(), plan.identifier, plan.version)
    }
}

/// The installed servers' configurations, each with how often its tools were accepted.
pub fn installed(home: &Path) -> Vec<(ServerConfig, u64)> {
    let records = Store::new(home).records();
    records.iter().map(|record| (store::server_config(record), record.accepted)).collect()
}

/// The file that is written whenever the installed servers change.
pub fn changed_file(home: &Path) -> PathBuf {
    home.join(store::CHANGED)
}

/// The folder of installed servers, for those who remove them.
pub fn folder(home: &Path) -> PathBuf {
    home.join(store::INSTALLED)
}
