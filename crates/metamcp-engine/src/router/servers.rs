//! Servers as the router knows them: definitions, each as some client's configuration resolved it, and their instances,
//! each a process or connection of its own with its own queue and breaker.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use metamcp_calls::dispatch::{Removal, ServerPolicy};
use metamcp_calls::pool::ServerId;
use metamcp_calls::siblings::{self, Choice};
use metamcp_child::environment;
use metamcp_config::config::{Config, PassEnv, ServerConfig};
use metamcp_types::moment::Moment;
use metamcp_types::secret::{Redactor, Secret};
use parking_lot::{Mutex, RwLock};

use super::context::Context;
use super::{Router, State};
use crate::catalog::DefinitionId;
use crate::env::{Surroundings, Variables};
use crate::secrets;

/// One server as a session uses it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What it is: the key of its tools.
    pub definition: DefinitionId,
    /// The instance that this session uses.
    pub id: ServerId,
    pub config: Arc<ServerConfig>,
    pub name: Arc<str>,
}

/// The servers of one session, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct Servers {
    entries: Vec<Entry>,
    by_name: HashMap<Arc<str>, usize>,
}

impl Servers {
    /// The server of that name.
    pub fn named(&self, name: &str) -> Option<&Entry> {
        self.entries.get(*self.by_name.get(name)?)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.entries.iter()
    }

    /// Whether this instance is among them.
    pub fn has(&self, id: ServerId) -> bool {
        self.entries.iter().any(|entry| entry.id == id)
    }

    /// Those that `keep` is true of.
    pub fn filtered(&self, keep: impl Fn(&Entry) -> bool) -> Servers {
        self.iter().filter(|entry| keep(entry)).cloned().collect()
    }
}

impl FromIterator<Entry> for Servers {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Servers {
        let entries: Vec<Entry> = entries.into_iter().collect();
        let names = entries.iter().enumerate();
        let by_name = names.map(|(at, entry)| (Arc::clone(&entry.name), at)).collect();
        Servers { entries, by_name }
    }
}

/// Who shares an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScopeKey {
    /// Every session of every gateway of the fleet; without one, of this machine.
    Fleet,
    /// Every session of a principal, at every gateway of the fleet.
    Principal(u128),
    /// Every session of this machine.
    Machine,
    /// The sessions of one project: of one folder, or with the same roots.
    Project(u64),
    /// One session.
    Session(u64),
}

/// What decides, beside its configuration, whether two clients mean the same server: nothing of one client's
/// environment may reach another's process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ClientPart {
    program: Option<PathBuf>,
    /// The variables that the server would get, but for those in `OF_A_TERMINAL`.
    variables: Vec<(OsString, OsString)>,
}

/// Variables that differ from terminal to terminal and say nothing about whom a server works for. The program that
/// `PATH` leads to is compared by itself.
const OF_A_TERMINAL: [&str; 14] = [
    "PATH",
    "TERM",
    "COLORTERM",
    "SHELL",
    "TMPDIR",
    "LANG",
    "LANGUAGE",
    "GPG_TTY",
    "BROWSER",
    "USER",
    "LOGNAME",
    "TZ",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
];

impl ClientPart {
    /// Nothing where the gateway serves the client that started it: its environment is the gateway's own.
    fn of(config: &ServerConfig, pass: &PassEnv, around: &Surroundings) -> ClientPart {
        let Some(all) = around.variables.of_client() else { return ClientPart::default() };
        let references = secrets::variables(config);
        let referred =
            all.iter().filter(|(name, _)| references.iter().any(|known| *name == **known));
        let mut variables: Vec<_> = referred.cloned().collect();
        let mut program = None;
        if let Some(command) = config.transport.command() {
            program = Some(around.variables.program(command, around.folder.as_deref()));
            let home = config.sandbox_policy.as_ref().map(|policy| policy.home.as_path());
            let passed =
                environment::for_server(all.to_vec(), &[], &config.pass_env.with(pass), home);
            let is_its = |name: &OsString| {
                !OF_A_TERMINAL.iter().any(|known| name == known)
                    && !name.to_str().is_some_and(|name| name.starts_with("LC_"))
            };
            variables.extend(passed.into_iter().filter(|(name, _)| is_its(name)));
        }
        ClientPart { program, variables }
    }
}

/// What of a client's environment reaches the servers of a configuration, and by which path their programs are found:
/// clients in one folder that agree in this have the same servers.
pub fn environment_of(
    config: &Config,
    pass: &PassEnv,
    variables: &Variables,
) -> Vec<(OsString, OsString)> {
    let around = Surroundings { folder: None, variables: variables.clone() };
    let parts = config.servers.iter().map(|server| ClientPart::of(server, pass, &around));
    let mut all: Vec<_> = parts.flat_map(|part| part.variables).collect();
    all.extend(variables.get("PATH").map(|path| ("PATH".into(), path.into())));
    all.sort();
    all.dedup();
    all
}

/// A configured server as one or more contexts resolved it, equal in everything that matters to its processes.
#[derive(Debug)]
pub struct Definition {
    pub id: DefinitionId,
    pub name: Arc<str>,
    defined: RwLock<Defined>,
    /// Who has it in its configuration.
    contexts: Mutex<Vec<Weak<Context>>>,
}

#[derive(Debug, Clone)]
struct Defined {
    /// With the secrets that were resolved since, for redaction.
    config: Arc<ServerConfig>,
    policy: ServerPolicy,
    client: ClientPart,
}

impl Definition {
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.defined.read().config)
    }

    pub(super) fn contexts(&self) -> Vec<Arc<Context>> {
        self.contexts.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn is_shared_beside(&self, context: &Arc<Context>) -> bool {
        let contexts = self.contexts.lock();
        let is_other = |one: &&Weak<Context>| !std::ptr::eq(one.as_ptr(), Arc::as_ptr(context));
        contexts.iter().filter(is_other).any(|one| one.strong_count() > 0)
    }

    fn is(&self, wanted: &Defined) -> bool {
        let defined = self.defined.read();
        defined.policy == wanted.policy
            && defined.client == wanted.client
            && as_written(&defined.config) == as_written(&wanted.config)
    }
}

/// A server's configuration as written: without the secrets that were resolved since for redaction. With them it would
/// look as if it had changed.
pub fn as_written(config: &ServerConfig) -> ServerConfig {
    ServerConfig { expanded_secrets: Vec::new(), ..config.clone() }
}

/// One process or connection of a server, whether it runs or not.
#[derive(Debug, Clone)]
pub struct Instance {
    pub definition: Arc<Definition>,
    pub key: ScopeKey,
    /// Whose folder and variables it is started with.
    pub surroundings: Arc<Surroundings>,
    /// Its definition is gone, or its session is: calls in flight may still name it.
    pub is_gone: bool,
    /// The instance it stands beside, for calls that would wait there.
    pub primary: Option<ServerId>,
}

/// All definitions and instances of this process.
#[derive(Default)]
pub(super) struct Table {
    definitions: HashMap<DefinitionId, Arc<Definition>>,
    instances: HashMap<ServerId, Instance>,
    by_key: HashMap<(DefinitionId, ScopeKey), ServerId>,
    last: u64,
}

impl Router {
    /// Makes a server of a context's configuration known, or finds it where another context has the same.
    pub(super) fn define(
        &self,
        context: &Arc<Context>,
        config: Arc<ServerConfig>,
        policy: ServerPolicy,
    ) -> Arc<Definition> {
        let wanted = self.defined(context, config, policy);
        let mut table = self.table.write();
        let known = table
            .definitions
            .values()
            .find(|known| *known.name == *wanted.config.name && known.is(&wanted));
        let definition = match known {
            Some(known) => Arc::clone(known),
            None => {
                table.last += 1;
                let id = DefinitionId(table.last);
                let definition = Arc::new(Definition {
                    id,
                    name: wanted.config.name.as_str().into(),
                    defined: RwLock::new(wanted),
                    contexts: Mutex::default(),
                });
                table.definitions.insert(id, Arc::clone(&definition));
                definition
            }
        };
        definition.contexts.lock().push(Arc::downgrade(context));
        definition
    }

    /// A context's server is configured differently. Where nobody else has it, it changes in place: calls in flight
    /// finish on the old connection, those that wait get a new one. Else the context gets another definition.
    pub(super) fn redefine(
        &self,
        context: &Arc<Context>,
        definition: &Arc<Definition>,
        config: Arc<ServerConfig>,
        policy: ServerPolicy,
    ) -> Arc<Definition> {
        let wanted = self.defined(context, config, policy);
        let instances: Vec<(ServerId, ServerPolicy)> = {
            let table = self.table.read();
            let is_shared = definition.is_shared_beside(context);
            let exists = table
                .definitions
                .values()
                .any(|known| *known.name == *definition.name && known.is(&wanted));
            if is_shared || exists && !definition.is(&wanted) {
                drop(table);
                let next = self.define(context, wanted.config, policy);
                self.leave(Some(context), definition);
                return next;
            }
            let own =
                table.instances.iter().filter(|(_, one)| Arc::ptr_eq(&one.definition, definition));
            own.filter(|(_, one)| !one.is_gone)
                .map(|(id, one)| (*id, owned(policy, one.key)))
                .collect()
        };
        // The configuration first: whatever the dispatch starts from now on uses it.
        *definition.defined.write() = wanted;
        let now = self.clock.now();
        for (id, policy) in instances {
            self.with(|dispatch, effects| dispatch.change_server(id, policy, now, effects));
        }
        Arc::clone(definition)
    }

    /// Ends the connections of these instances once their calls are finished; the next call starts each anew, whatever
    /// the breaker learnt before. Returns those that are still there.
    pub fn restart(&self, instances: &[ServerId]) -> Vec<ServerId> {
        let now = self.clock.now();
        let restart = |id: &&ServerId| {
            self.with(|dispatch, effects| dispatch.restart_server(**id, now, effects))
        };
        instances.iter().filter(restart).copied().collect()
    }

    fn defined(
        &self,
        context: &Context,
        config: Arc<ServerConfig>,
        policy: ServerPolicy,
    ) -> Defined {
        let client = ClientPart::of(&config, self.launcher.pass_env(), &context.surroundings);
        Defined { config, policy, client }
    }

    /// Restarts every instance of a server, and starts those again that were in use: with `at_once`, calls in flight are
    /// given up. Returns how many start.
    pub fn renew(&self, definition: &Definition, at_once: bool) -> usize {
        let policy = definition.defined.read().policy;
        let mut all = self.instances();
        all.retain(|(_, one)| one.definition.id == definition.id);
        let is_used = |id: ServerId| self.view(id).is_some_and(|view| view.state.is_some());
        let used: Vec<ServerId> = all.iter().map(|(id, _)| *id).filter(|id| is_used(*id)).collect();
        if at_once {
            let now = self.clock.now();
            for (id, one) in &all {
                self.with(|dispatch, effects| {
                    dispatch.remove_server(*id, Removal::AtOnce, now, effects);
                    dispatch.change_server(*id, owned(policy, one.key), now, effects);
                });
            }
        } else {
            let all: Vec<ServerId> = all.iter().map(|(id, _)| *id).collect();
            self.restart(&all);
        }
        // Why one does not start is in its state, where whoever restarted it looks.
        used.into_iter().filter(|id| self.wake(*id).is_ok()).count()
    }

    /// A context has this server no longer. With the last one its instances end: calls in flight may finish, those that
    /// wait are refused.
    pub(super) fn leave(&self, context: Option<&Arc<Context>>, definition: &Arc<Definition>) {
        let gone: Vec<ServerId> = {
            let mut table = self.table.write();
            let mut contexts = definition.contexts.lock();
            let is_it = |one: &Weak<Context>| {
                context.is_some_and(|context| std::ptr::eq(one.as_ptr(), Arc::as_ptr(context)))
            };
            // Never upgraded here: the last one dropped under this lock would want it again.
            contexts.retain(|one| one.strong_count() > 0 && !is_it(one));
            if !contexts.is_empty() {
                return;
            }
            table.definitions.remove(&definition.id);
            let is_its = |one: &Instance| Arc::ptr_eq(&one.definition, definition);
            table.withdraw(is_its)
        };
        self.end_instances(&gone, Removal::Finish);
    }

    /// A session ended: the instances that were its own end with it.
    pub(super) fn end_session(&self, session: u64) {
        let gone = self.table.write().withdraw(|one| one.key == ScopeKey::Session(session));
        self.end_instances(&gone, Removal::AtOnce);
    }

    fn end_instances(&self, gone: &[ServerId], removal: Removal) {
        let now = self.clock.now();
        for id in gone {
            self.with(|dispatch, effects| dispatch.remove_server(*id, removal, now, effects));
        }
        if !gone.is_empty() {
            self.state_changes.step();
        }
    }

    /// The instance of a server for these sessions; made known to the dispatch if it is new.
    pub(super) fn instance(
        &self,
        definition: &Arc<Definition>,
        key: ScopeKey,
        surroundings: &Arc<Surroundings>,
    ) -> ServerId {
        if let Some(id) = self.table.read().by_key.get(&(definition.id, key)) {
            return *id;
        }
        let policy = owned(definition.defined.read().policy, key);
        // The dispatch first: its lock is never taken under the table's.
        let id = self.lock().dispatch.add_server(policy);
        let instance = Instance {
            definition: Arc::clone(definition),
            key,
            surroundings: Arc::clone(surroundings),
            is_gone: false,
            primary: None,
        };
        if policy.instances > 1 {
            self.has_siblings.store(true, Ordering::Relaxed);
        }
        // Ids of which nothing is left come back from now on, so nothing may be known under them.
        let gone = self.lock().dispatch.reclaim();
        self.forget_capabilities(&gone);
        let mut table = self.table.write();
        table.instances.retain(|id, _| !gone.contains(id));
        table.instances.insert(id, instance);
        let first = *table.by_key.entry((definition.id, key)).or_insert(id);
        if first != id {
            // Another session was faster.
            table.instances.entry(id).and_modify(|one| one.is_gone = true);
            drop(table);
            self.end_instances(&[id], Removal::Finish);
        }
        first
    }

    /// Where a call goes: to the instance its session uses, or to a sibling of it, where the configuration allows
    /// several and the call would have to wait.
    pub(super) fn sibling(&self, state: &mut State, primary: ServerId, now: Moment) -> ServerId {
        if !self.has_siblings.load(Ordering::Relaxed) {
            return primary;
        }
        let mut table = self.table.write();
        let Some(first) = table.instances.get(&primary).cloned() else { return primary };
        let policy = owned(first.definition.defined.read().policy, first.key);
        if policy.instances <= 1 || first.is_gone {
            return primary;
        }
        let beside = table.instances.iter().filter(|(_, one)| one.primary == Some(primary));
        let mut all: Vec<ServerId> =
            beside.filter(|(_, one)| !one.is_gone).map(|(id, _)| *id).collect();
        all.sort();
        all.insert(0, primary);
        let (all, loads): (Vec<ServerId>, Vec<_>) =
            all.into_iter().filter_map(|id| Some((id, state.dispatch.load(id, now)?))).unzip();
        let has_free_slot = state.dispatch.has_free_slot(policy.owner);
        match siblings::choose(&loads, policy.instances, has_free_slot) {
            Choice::Use(at) => all.get(at).copied().unwrap_or(primary),
            Choice::Start => {
                let id = state.dispatch.add_server(siblings::policy(policy, all.len()));
                table.instances.insert(id, Instance { primary: Some(primary), ..first });
                id
            }
        }
    }

    /// The instance that sessions know: a sibling stands for it.
    pub(super) fn primary_of(&self, server: ServerId) -> ServerId {
        if !self.has_siblings.load(Ordering::Relaxed) {
            return server;
        }
        self.instance_at(server).and_then(|one| one.primary).unwrap_or(server)
    }

    /// Which variables of a client every server gets.
    pub fn pass_env(&self) -> &PassEnv {
        self.launcher.pass_env()
    }

    /// Everything that is configured.
    #[cfg(feature = "fleet")]
    pub(super) fn definitions(&self) -> Vec<Arc<Definition>> {
        self.table.read().definitions.values().cloned().collect()
    }

    /// By which rules an instance lives.
    #[cfg(feature = "fleet")]
    pub(super) fn policy_of(&self, server: ServerId) -> Option<ServerPolicy> {
        let one = self.instance_at(server)?;
        let policy = one.definition.defined.read().policy;
        Some(owned(policy, one.key))
    }

    /// The process of an instance, if it has one.
    pub fn pid_of(&self, server: ServerId) -> Option<u32> {
        let live = self.live();
        live.iter().find(|conn| conn.server == server)?.transport.pid()
    }

    /// Since when the connection of an instance has been usable, if it is.
    pub fn ready_since(&self, server: ServerId) -> Option<Moment> {
        let live = self.live();
        let times = live.iter().find(|conn| conn.server == server)?.start_times();
        times.map(|times| times.ready)
    }

    /// How many slots of the pool are in use, and how many servers wait for one.
    pub fn pool_use(&self) -> (usize, usize) {
        let state = self.lock();
        let pool = state.dispatch.pool();
        (pool.count(), pool.waiting().count())
    }

    /// All instances that are in use or may be, for people to look at.
    pub fn instances(&self) -> Vec<(ServerId, Instance)> {
        let table = self.table.read();
        let all = table.instances.iter().filter(|(_, one)| !one.is_gone);
        let mut all: Vec<_> = all.map(|(id, one)| (*id, one.clone())).collect();
        all.sort_by_key(|(id, _)| *id);
        all
    }

    /// An instance, also one whose calls are in flight while it is gone from the configuration.
    pub(super) fn instance_at(&self, server: ServerId) -> Option<Instance> {
        self.table.read().instances.get(&server).cloned()
    }

    pub(crate) fn entry(&self, server: ServerId) -> Option<Entry> {
        let instance = self.instance_at(server)?;
        let Definition { id, name, .. } = &*instance.definition;
        let config = instance.definition.config();
        Some(Entry { definition: *id, id: server, config, name: Arc::clone(name) })
    }

    /// The configuration of a server whose calls may be rewritten or may need an approval; none for most servers, which
    /// are not to pay for that.
    pub(super) fn ruled(&self, server: ServerId) -> Option<Arc<ServerConfig>> {
        let table = self.table.read();
        let config = table.instances.get(&server)?.definition.config();
        (!config.overrides.is_empty() || config.may_need_approval()).then_some(config)
    }

    /// The name of an instance's server.
    pub(super) fn name_of(&self, server: ServerId) -> Arc<str> {
        let table = self.table.read();
        let known = table.instances.get(&server);
        known.map_or_else(|| Arc::from("?"), |known| Arc::clone(&known.definition.name))
    }

    /// Redacts the secrets of all servers from what is stored on disk, whatever the setting for results is.
    pub(super) fn values(&self) -> Redactor {
        let tokens = self.launcher.tokens().secrets();
        let secrets = self.secrets();
        Redactor::of_values(secrets.iter().chain(&tokens))
    }

    /// The secrets of all servers, including removed ones whose calls may still be in flight.
    pub fn secrets(&self) -> Vec<Secret> {
        let table = self.table.read();
        let gone = table.instances.values().filter(|one| one.is_gone).map(|one| &one.definition);
        let all = table.definitions.values().chain(gone);
        all.flat_map(|known| known.config().secrets().into_iter().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Changes whenever a secret may have been added.
    pub fn secrets_version(&self) -> u64 {
        self.secrets_version.load(Ordering::Relaxed)
    }

    /// Adds the secrets that were resolved for a server, so that they are redacted from its messages.
    pub(crate) fn remember(&self, entry: &Entry, resolved: &ServerConfig) {
        let Some(instance) = self.instance_at(entry.id) else { return };
        let mut config = ServerConfig::clone(&entry.config);
        for secret in resolved.secrets() {
            if !config.expanded_secrets.contains(secret) {
                config.expanded_secrets.push(secret.clone());
            }
        }
        {
            let mut defined = instance.definition.defined.write();
            // A server reconfigured in the meantime resolves its own.
            if Arc::ptr_eq(&defined.config, &entry.config) {
                defined.config = Arc::new(config);
            }
        }
        self.secrets_changed();
    }

    pub(super) fn secrets_changed(&self) {
        self.secrets_version.fetch_add(1, Ordering::Relaxed);
    }
}

impl Table {
    /// Takes these out of use. They are kept for calls in flight, until their ids are used again.
    fn withdraw(&mut self, which: impl Fn(&Instance) -> bool) -> Vec<ServerId> {
        let matching = self.instances.iter_mut().filter(|(_, one)| !one.is_gone && which(one));
        let mut gone = Vec::new();
        for (id, one) in matching {
            one.is_gone = true;
            gone.push(*id);
        }
        self.by_key.retain(|_, id| !gone.contains(id));
        gone
    }
}

/// The policy of an instance: one session's own counts against that session.
fn owned(policy: ServerPolicy, key: ScopeKey) -> ServerPolicy {
    match key {
        // Its state must not be split over two processes.
        ScopeKey::Session(session) => ServerPolicy { owner: Some(session), instances: 1, ..policy },
        ScopeKey::Fleet | ScopeKey::Principal(_) => ServerPolicy { instances: 1, ..policy },
        ScopeKey::Machine | ScopeKey::Project(_) => policy,
    }
}
