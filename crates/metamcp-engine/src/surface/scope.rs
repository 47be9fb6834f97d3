//! The scope of a session: which servers and tools it can see, on every path. All lookups for a client pass through
//! here, so that nothing has to be checked a second time elsewhere.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use metamcp_calls::fair_share::Sharer;
use metamcp_config::config::Toolset;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OnceCell;

use super::reply::{Code, ErrorObject};
use super::{Surface, View};
use crate::catalog::{Narrowed, Snapshot};
use crate::compute;
use crate::results::Owner;
use crate::router::{Entry, Servers};

/// A toolset in use.
#[derive(Debug)]
pub struct Scope {
    toolset: Toolset,
    name: Arc<str>,
    /// The part of the newest snapshot that was used.
    narrowed: Mutex<Option<Narrowed>>,
    digest: OnceCell<String>,
}

impl Scope {
    /// A toolset, for any number of sessions.
    pub fn new(toolset: Toolset) -> Scope {
        let name = toolset.name.as_str().into();
        Scope { toolset, name, narrowed: Mutex::default(), digest: OnceCell::new() }
    }

    fn narrowed(&self) -> MutexGuard<'_, Option<Narrowed>> {
        self.narrowed.lock()
    }
}

impl Default for Scope {
    /// An empty one.
    fn default() -> Scope {
        Scope::new(Toolset { servers: Some(Vec::new()), ..Toolset::default() })
    }
}

impl View {
    /// The servers this view has, in the order of the file.
    pub(crate) fn servers(&self) -> Arc<Servers> {
        let servers = self.seat.servers();
        match &self.scope {
            None => servers,
            Some(scope) => {
                Arc::new(servers.filtered(|entry| scope.toolset.has_server(&entry.config)))
            }
        }
    }

    /// The configured server of that name; `mcp.NAME` means the same where no server is called that.
    pub(crate) fn server(&self, name: &str) -> Option<Entry> {
        let is_in = |entry: &Entry| {
            self.scope.as_ref().is_none_or(|scope| scope.toolset.has_server(&entry.config))
        };
        self.any_server(name).filter(is_in)
    }

    /// The same, whether or not it is in the scope.
    pub(crate) fn any_server(&self, name: &str) -> Option<Entry> {
        let servers = self.seat.servers();
        let found = servers.named(name);
        found.or_else(|| servers.named(metamcp_surface::discover::without_alias(name)?)).cloned()
    }

    /// Whether a server is in this view as a whole, not with some of its tools.
    pub(crate) fn has_all_of(&self, entry: &Entry) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope.toolset.has_all_of(&entry.config))
    }

    /// What is known of this view's servers and tools.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        let Some(scope) = &self.scope else { return self.surface.catalog.snapshot() };
        loop {
            let whole = self.surface.catalog.snapshot();
            let before = scope.narrowed().clone();
            if let Some(current) = before.as_ref().filter(|narrowed| narrowed.is_of(&whole)) {
                return Arc::clone(&current.part);
            }
            let servers: Vec<_> = self
                .servers()
                .iter()
                .map(|entry| (entry.definition, Arc::clone(&entry.config)))
                .collect();
            let keep = |config: &_, tool: &str| scope.toolset.has_tool(config, tool);
            // Computed without the lock: a call must not wait for a search that computes the same.
            let next = Narrowed::of(&whole, &servers, keep, before.as_ref());
            let mut narrowed = scope.narrowed();
            let is_unchanged = match (&*narrowed, &before) {
                (Some(now), Some(before)) => now.is(before),
                (now, before) => now.is_none() && before.is_none(),
            };
            if is_unchanged {
                return Arc::clone(&narrowed.insert(next).part);
            }
        }
    }

    /// The same, computed off the thread that relays calls.
    pub(crate) async fn latest_snapshot(&self) -> Arc<Snapshot> {
        let Some(scope) = &self.scope else { return self.surface.catalog.snapshot() };
        let whole = self.surface.catalog.snapshot();
        let narrowed = scope.narrowed().clone().filter(|narrowed| narrowed.is_of(&whole));
        if let Some(current) = narrowed {
            return current.part;
        }
        let view = self.clone();
        let made = compute::run(move || view.snapshot()).await;
        made.unwrap_or_else(|_| self.snapshot())
    }

    /// Whether a tool may be called here, whether or not it is known.
    pub(crate) fn permits(&self, entry: &Entry, tool: &str) -> Result<(), Box<ErrorObject>> {
        self.has_here(entry)?;
        let Some(scope) = &self.scope else { return Ok(()) };
        if scope.toolset.has_tool(&entry.config, tool) {
            return Ok(());
        }
        let message = format!(
            "the toolset {:?} of this session has no tool {:?}",
            scope.name,
            format!("{}:{tool}", entry.name)
        );
        let hint = "The call was not sent. Only the owner of the configuration can change that.";
        Err(Box::new(ErrorObject::new(Code::Denied, message).hint(hint)))
    }

    /// Whether this session can use a server at this gateway.
    pub(crate) fn has_here(&self, entry: &Entry) -> Result<(), Box<ErrorObject>> {
        if !self.seat.lacks(entry.definition) {
            return Ok(());
        }
        let message = format!(
            "the server {:?} keeps a process for each session, and that of this session is at another gateway of the fleet, or has ended",
            entry.name
        );
        let hint = "The call was not sent. A new session gets a process of its own; it keeps it where the load balancer sends all requests of a session to one gateway.";
        Err(Box::new(ErrorObject::new(Code::ServerUnavailable, message).hint(hint)))
    }

    /// The stamp of cursors: another one when the list of tools has changed. In a fleet the same at every gateway that has
    /// the same list.
    pub(crate) fn list_stamp(&self, snapshot: &Snapshot) -> u64 {
        if self.surface.keyring.is_none() {
            return snapshot.generation;
        }
        self.servers().iter().fold(0, |all, entry| {
            let Some(known) = snapshot.known(entry.definition) else { return all };
            let mut hasher = DefaultHasher::new();
            (&entry.name, known.tools.fingerprint).hash(&mut hasher);
            all ^ hasher.finish()
        })
    }

    /// Whose stored results this view writes and reads.
    pub(crate) fn owner(&self) -> Owner {
        let toolset = self.scope.as_ref().map(|scope| Arc::clone(&scope.name));
        let (principal, lasting) = (self.principal, self.lasting);
        Owner { toolset, principal, lasting, session: self.seat.session }
    }

    /// Whose share of what all sessions use it takes from.
    pub(crate) fn sharer(&self) -> Sharer {
        Sharer { principal: self.principal, session: self.seat.session }
    }

    /// The session that sees it has ended.
    pub fn session_ended(&self) {
        self.surface.results.end_session(self.principal, self.seat.session);
    }

    /// What binds a cursor to this view.
    pub(crate) fn binding(&self) -> &str {
        self.scope.as_ref().map_or("", |scope| &scope.name)
    }

    /// One line for each server of this view.
    pub(crate) async fn digest(&self) -> &str {
        let Some(scope) = &self.scope else { return self.surface.catalog.digest().await };
        let surface: &Surface = &self.surface;
        let is_in = |name: &str| self.server(name).is_some();
        scope.digest.get_or_init(|| surface.catalog.digest_of(is_in)).await
    }
}
