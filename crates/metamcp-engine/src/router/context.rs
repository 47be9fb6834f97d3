//! A context: one configuration as clients in one folder with one environment have it. It has its own names for servers
//! and its own catalog; what stands behind the names may be shared with other contexts.
//!
//! A seat is one session's place in it: which instance of each server it uses.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use metamcp_calls::dispatch::ServerPolicy;
use metamcp_calls::notify::List;
use metamcp_config::config::ServerConfig;
use metamcp_config::scope::{self, SaidOfItself, Scope, Why};
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use super::Router;
use super::servers::{Definition, Entry, ScopeKey, Servers};
use crate::catalog::{Catalog, DefinitionId, ListFailure, Snapshot};
use crate::change_notifier::ChangeNotifier;
use crate::env::Surroundings;

/// See the module.
#[derive(Debug)]
pub struct Context {
    pub catalog: Arc<Catalog>,
    pub change_notifier: Arc<ChangeNotifier>,
    pub surroundings: Arc<Surroundings>,
    router: Weak<Router>,
    members: RwLock<Arc<Vec<Arc<Definition>>>>,
    /// Moves whenever a server was added, changed, moved or removed, or has another scope.
    version: AtomicU64,
    me: Weak<Context>,
}

impl Context {
    /// Without servers yet.
    pub fn new(
        router: &Arc<Router>,
        catalog: Arc<Catalog>,
        change_notifier: ChangeNotifier,
        surroundings: Surroundings,
    ) -> Arc<Context> {
        Arc::new_cyclic(|me| Context {
            catalog,
            change_notifier: Arc::new(change_notifier),
            surroundings: Arc::new(surroundings),
            router: Arc::downgrade(router),
            members: RwLock::default(),
            version: AtomicU64::new(0),
            me: me.clone(),
        })
    }

    /// The servers, in order.
    pub fn members(&self) -> Arc<Vec<Arc<Definition>>> {
        Arc::clone(&self.members.read())
    }

    pub fn member(&self, name: &str) -> Option<Arc<Definition>> {
        self.members().iter().find(|member| *member.name == *name).cloned()
    }

    /// Adds a server, or changes the one of that name.
    pub fn put(&self, config: Arc<ServerConfig>, policy: ServerPolicy) -> Option<Arc<Definition>> {
        let (router, me) = (self.router.upgrade()?, self.me.upgrade()?);
        let known = self.member(&config.name);
        let definition = match &known {
            Some(known) => router.redefine(&me, known, config, policy),
            None => router.define(&me, config, policy),
        };
        router.secrets_changed();
        self.change(|members| {
            match members.iter_mut().find(|known| known.name == definition.name) {
                Some(known) => *known = Arc::clone(&definition),
                None => members.push(Arc::clone(&definition)),
            }
        });
        Some(definition)
    }

    /// Removes a server: calls in flight may finish, later ones fail as unknown.
    pub fn remove(&self, name: &str) -> Option<Arc<Definition>> {
        let (router, me) = (self.router.upgrade()?, self.me.upgrade()?);
        let member = self.member(name)?;
        self.change(|members| members.retain(|known| *known.name != *name));
        router.leave(Some(&me), &member);
        Some(member)
    }

    /// Puts the servers into the order of these names.
    pub fn arrange(&self, names: &[&str]) {
        let rank = |name: &str| names.iter().position(|known| *known == name);
        self.change(|members| {
            members.sort_by_key(|member| rank(&member.name).unwrap_or(usize::MAX));
        });
    }

    /// Who shares a process of this server, and why: by its configuration, and by what it said of itself so far.
    pub fn scope_of(&self, definition: &Definition) -> (Scope, Why) {
        let Some(router) = self.router.upgrade() else {
            return scope::of(&definition.config(), &SaidOfItself::default());
        };
        let mut said = router.said_of_itself(definition.id);
        let snapshot = self.catalog.snapshot();
        if let Some(known) = snapshot.known(definition.id) {
            said.tool_names = known.tools.tools.iter().map(|tool| tool.name.to_string()).collect();
        }
        scope::of(&definition.config(), &said)
    }

    /// Takes over what other contexts know of the same servers, where this one knows nothing that is live.
    pub async fn adopt_lists(&self) {
        for definition in self.members().iter() {
            let snapshot = self.catalog.snapshot();
            let is_live =
                snapshot.known(definition.id).is_some_and(|known| known.listed_at.is_some());
            if !is_live {
                self.catch_up(definition.id).await;
            }
        }
    }

    /// Takes over what another context heard of a server that was running before this one came: a server lists its tools
    /// when it starts, not again for everyone who comes later. Whether there was anything.
    pub async fn catch_up(&self, definition: DefinitionId) -> bool {
        let members = self.members();
        let Some(member) = members.iter().find(|member| member.id == definition) else {
            return false;
        };
        let heard = member.contexts().into_iter().find_map(|other| {
            let snapshot = other.catalog.snapshot();
            let known = snapshot.known(definition);
            match known.and_then(|known| Some((Arc::clone(&known.tools), known.listed_at?))) {
                // As the server listed them: what the user says of them is put on top again.
                Some((tools, at)) => Some((Ok(Arc::clone(tools.as_listed())), at)),
                None => {
                    let now = self.router.upgrade()?.clock.now();
                    Some((Err(ListFailure::clone(snapshot.failure(definition)?)), now))
                }
            }
        });
        let Some((read, at)) = heard else { return false };
        self.catalog.listed(definition, read, None, at).await;
        true
    }

    /// Replaces the list; readers see the old one or the new one, never a mix.
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Definition>>)) {
        let mut members = self.members.write();
        let mut next = Vec::clone(&members);
        change(&mut next);
        *members = Arc::new(next);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Equal as long as clients of the direct surface would be shown the same. A server whose tools are unknown counts
    /// too: its tools come with the next list, so the client has to request one.
    pub fn tools_digest(&self, snapshot: &Snapshot) -> u64 {
        let members = self.members();
        let unknown = members
            .iter()
            .filter(|known| known.config().is_enabled() && snapshot.known(known.id).is_none());
        unknown.fold(snapshot.digest(), |all, known| {
            let mut hasher = DefaultHasher::new();
            (known.id, "unknown").hash(&mut hasher);
            all ^ hasher.finish()
        })
    }

    /// Clients hear of the tools as they are now, if they changed.
    pub fn tools_changed(&self) {
        let digest = self.tools_digest(&self.catalog.snapshot());
        self.change_notifier.heard(List::Tools, digest);
    }

    /// A place for one session.
    pub fn seat(self: &Arc<Self>, session: u64) -> Arc<Seat> {
        Arc::new(Seat {
            context: Arc::clone(self),
            session,
            roots: Mutex::default(),
            taken: Mutex::default(),
            draining: AtomicBool::new(false),
            has_listed: AtomicBool::new(false),
            elsewhere: AtomicBool::new(false),
            principal: Mutex::new(0),
            pins: OnceLock::new(),
            opened_apps: Mutex::default(),
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Some(router) = self.router.upgrade() else { return };
        let members = std::mem::take(self.members.get_mut());
        for member in members.iter() {
            router.leave(None, member);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Seat {
    context: Arc<Context>,
    /// Unique in the life of the process.
    pub session: u64,
    /// A digest of the client's roots, once it has said them.
    roots: Mutex<Option<u64>>,
    taken: Mutex<Taken>,
    /// No new calls: the session is ending.
    draining: AtomicBool,
    /// It was given a list of tools.
    has_listed: AtomicBool,
    /// A process of its own session may be at another gateway.
    elsewhere: AtomicBool,
    /// Whose session it is, the same at every gateway; zero for the owner of this process.
    principal: Mutex<u128>,
    /// The tools that it was listed beside the gateway's own.
    pins: OnceLock<Arc<Vec<PinnedTool>>>,
    /// The servers whose pages its host has read.
    opened_apps: Mutex<BTreeSet<Arc<str>>>,
}

/// A tool of a server under a name of its own in a session's list.
#[derive(Debug, Clone, PartialEq)]
pub struct PinnedTool {
    pub name: Box<str>,
    pub server: Box<str>,
    pub tool: Box<str>,
    pub definition: Value,
}

#[derive(Debug, Default)]
struct Taken {
    /// Of which version of the context.
    version: Option<u64>,
    servers: Arc<Servers>,
    /// The scope by which each definition was taken: a session's state stays where it is.
    scopes: Vec<(crate::catalog::DefinitionId, Scope)>,
}

impl Seat {
    /// Whether this is the first list of tools that it is given.
    pub(crate) fn lists_first(&self) -> bool {
        !self.has_listed.swap(true, Ordering::Relaxed)
    }

    /// What it was listed beside the gateway's own tools, once it was.
    pub(crate) fn pins(&self) -> Option<Arc<Vec<PinnedTool>>> {
        self.pins.get().cloned()
    }

    /// Keeps that for as long as it lives: a model must not see its list of tools change. The first one counts.
    pub(crate) fn keep_pins(&self, pins: Vec<PinnedTool>) -> Arc<Vec<PinnedTool>> {
        Arc::clone(self.pins.get_or_init(|| Arc::new(pins)))
    }

    /// Its host reads a page of that server.
    pub(crate) fn open_app(&self, server: &Arc<str>) {
        self.opened_apps.lock().insert(Arc::clone(server));
    }

    /// The servers whose pages its host has read.
    pub(crate) fn opened_apps(&self) -> BTreeSet<Arc<str>> {
        self.opened_apps.lock().clone()
    }

    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The servers of this session, each with the instance that it uses.
    pub fn servers(&self) -> Arc<Servers> {
        let version = self.context.version.load(Ordering::Acquire);
        let mut taken = self.taken.lock();
        if taken.version == Some(version) {
            return Arc::clone(&taken.servers);
        }
        let Some(router) = self.context.router.upgrade() else { return Arc::default() };
        let members = self.context.members();
        let before = std::mem::take(&mut taken.scopes);
        let mut servers = Vec::with_capacity(members.len());
        for definition in members.iter() {
            let earlier = before.iter().find(|(id, _)| *id == definition.id);
            let scope =
                earlier.map_or_else(|| self.context.scope_of(definition).0, |(_, scope)| *scope);
            taken.scopes.push((definition.id, scope));
            let id = router.instance(definition, self.key(scope), &self.context.surroundings);
            let (name, config) = (Arc::clone(&definition.name), definition.config());
            servers.push(Entry { definition: definition.id, id, config, name });
        }
        taken.servers = Arc::new(servers.into_iter().collect());
        taken.version = Some(version);
        Arc::clone(&taken.servers)
    }

    /// Whether this session uses an instance.
    pub fn uses(&self, server: metamcp_calls::pool::ServerId) -> bool {
        self.taken.lock().servers.has(server)
    }

    /// Accepts no new calls of the client; calls of scripts and chains in progress still pass.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Whose session it is: by a digest that is the same at every gateway.
    pub fn set_principal(&self, digest: &[u8; 32]) {
        let mut half = [0; 16];
        half.copy_from_slice(&digest[..16]);
        let principal = u128::from_be_bytes(half);
        let before = std::mem::replace(&mut *self.principal.lock(), principal);
        if before != principal {
            self.taken.lock().version = None;
        }
    }

    /// Its session may have a process of its own at another gateway of the fleet.
    pub fn may_be_elsewhere(&self) {
        self.elsewhere.store(true, Ordering::Relaxed);
    }

    /// Processes of its own session are here and nowhere else.
    pub fn settle(&self) {
        self.elsewhere.store(false, Ordering::Relaxed);
    }

    /// Whether a server keeps a process for this session that is not here: one started here would be another one.
    pub fn lacks(&self, definition: crate::catalog::DefinitionId) -> bool {
        let is_own = |(id, scope): &(_, Scope)| *id == definition && *scope == Scope::Session;
        self.elsewhere.load(Ordering::Relaxed) && self.taken.lock().scopes.iter().any(is_own)
    }

    /// Whether it has instances of its own.
    pub fn has_own(&self) -> bool {
        self.taken.lock().scopes.iter().any(|(_, scope)| *scope == Scope::Session)
    }

    /// Whether a server is shared by project, so that the client's roots decide which instance it gets.
    pub fn has_projects(&self) -> bool {
        // Brings the scopes up to date; most times there is nothing to do.
        self.servers();
        self.taken.lock().scopes.iter().any(|(_, scope)| *scope == Scope::Project)
    }

    /// The session is over: what was its own ends now, whoever still holds the seat.
    pub fn give_up(&self) {
        if let Some(router) = self.context.router.upgrade() {
            router.end_session(self.session);
        }
    }

    /// The client's roots: servers of project scope are shared with those who have the same.
    pub fn set_roots(&self, roots: Option<u64>) {
        let before = std::mem::replace(&mut *self.roots.lock(), roots);
        if before != roots {
            self.taken.lock().version = None;
        }
    }

    fn key(&self, scope: Scope) -> ScopeKey {
        match scope {
            Scope::Fleet => ScopeKey::Fleet,
            Scope::Principal => ScopeKey::Principal(*self.principal.lock()),
            Scope::Machine => ScopeKey::Machine,
            Scope::Session => ScopeKey::Session(self.session),
            Scope::Project => {
                let mut hasher = DefaultHasher::new();
                (&self.context.surroundings.folder, *self.roots.lock()).hash(&mut hasher);
                ScopeKey::Project(hasher.finish())
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.give_up();
    }
}
