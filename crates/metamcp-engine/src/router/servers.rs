//! The table of configured servers: their indices, their order, and how both change with the configuration.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use metamcp_calls::dispatch::{Removal, ServerPolicy};
use metamcp_calls::pool::ServerId;
use metamcp_config::config::ServerConfig;
use metamcp_types::secret::{Redactor, Secret};

use super::Router;
use crate::catalog::Snapshot;

/// One configured server as the router knows it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its index.
    pub id: ServerId,
    pub config: Arc<ServerConfig>,
    pub name: Arc<str>,
}

/// All configured servers, in the order of the file.
#[derive(Debug, Clone, Default)]
pub struct Servers {
    /// By index, including removed ones: their calls may still be in flight.
    entries: Vec<Entry>,
    by_name: HashMap<Arc<str>, usize>,
    /// The indices of configured servers, in order.
    order: Vec<usize>,
}

impl Servers {
    /// The server of that name.
    pub fn named(&self, name: &str) -> Option<&Entry> {
        self.entries.get(*self.by_name.get(name)?)
    }

    /// The server at that index.
    pub fn at(&self, id: ServerId) -> Option<&Entry> {
        self.entries.get(id.place()).filter(|entry| entry.id == id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> + Clone {
        self.order.iter().map(|&at| &self.entries[at])
    }

    /// The secrets of all of them, including removed ones whose calls may still be in flight.
    pub fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.entries.iter().flat_map(|entry| entry.config.secrets())
    }

    /// Those that `keep` is true of. Their indices do not change, so only names lead to them.
    pub fn filtered(&self, keep: impl Fn(&Entry) -> bool) -> Servers {
        let mut filtered = Servers::default();
        self.iter().filter(|entry| keep(entry)).cloned().for_each(|entry| filtered.push(entry));
        filtered
    }

    fn push(&mut self, entry: Entry) {
        let at = self.entries.len();
        self.by_name.insert(Arc::clone(&entry.name), at);
        self.order.push(at);
        self.entries.push(entry);
    }

    /// A new server, or one that is configured differently.
    fn put(&mut self, entry: Entry) {
        let at = entry.id.place();
        if self.by_name.insert(Arc::clone(&entry.name), at).is_none() {
            self.order.push(at);
        }
        match self.entries.get_mut(at) {
            Some(old) => *old = entry,
            None => self.entries.push(entry),
        }
    }

    fn withdraw(&mut self, id: ServerId) {
        let at = id.place();
        self.order.retain(|known| *known != at);
        if let Some(entry) = self.entries.get(at) {
            self.by_name.remove(&entry.name);
        }
    }
}

impl Router {
    /// Configured servers.
    pub fn servers(&self) -> Arc<Servers> {
        Arc::clone(&self.servers.read())
    }

    /// Redacts the secrets of all servers from what is stored on disk, whatever the setting for results is.
    pub(super) fn values(&self) -> Redactor {
        let tokens = self.launcher.tokens().secrets();
        Redactor::of_values(self.servers().secrets().chain(&tokens))
    }

    /// Equal as long as clients of the direct surface would be shown the same. A server whose tools are unknown counts
    /// too: its tools come with the next list, so the client has to request one.
    pub fn tools_digest(&self, snapshot: &Snapshot) -> u64 {
        let servers = self.servers();
        let unknown = servers
            .iter()
            .filter(|entry| entry.config.is_enabled() && snapshot.known(entry.id).is_none());
        unknown.fold(snapshot.digest(), |all, entry| {
            let mut hasher = DefaultHasher::new();
            (entry.id, "unknown").hash(&mut hasher);
            all ^ hasher.finish()
        })
    }

    /// Adds a server. One that was configured before gets its old index back, so that a file that flips between two
    /// states does not make the table grow.
    pub fn add(&self, config: Arc<ServerConfig>, policy: ServerPolicy) -> ServerId {
        let known =
            self.servers().entries.iter().find(|entry| *entry.name == *config.name).cloned();
        match known {
            Some(entry) => {
                self.change(entry.id, config, policy);
                entry.id
            }
            None => {
                let id = self.lock().dispatch.add_server(policy);
                self.put(id, config);
                id
            }
        }
    }

    /// A server's configuration changed: calls in flight finish on the old connection, the next one gets a new one.
    pub fn change(&self, id: ServerId, config: Arc<ServerConfig>, policy: ServerPolicy) {
        // The configuration first: whatever the dispatch starts from now on uses it.
        self.put(id, config);
        let now = self.clock.now();
        self.with(|dispatch, effects| dispatch.change_server(id, policy, now, effects));
    }

    /// A server was removed from the configuration: calls in flight may finish, later ones fail as unknown.
    pub fn remove(&self, id: ServerId) {
        self.with_servers(|servers| servers.withdraw(id));
        let now = self.clock.now();
        self.with(|dispatch, effects| dispatch.remove_server(id, Removal::Finish, now, effects));
    }

    /// Puts the servers into the order of these names.
    pub fn arrange(&self, names: &[&str]) {
        let rank = |name: &str| names.iter().position(|known| *known == name);
        self.with_servers(|servers| {
            let Servers { entries, order, .. } = servers;
            order.sort_by_key(|&at| rank(&entries[at].name).unwrap_or(usize::MAX));
        });
    }

    /// Adds the secrets that were resolved for a server, so that they are redacted from its messages.
    pub(crate) fn remember(&self, entry: &Entry, resolved: &ServerConfig) {
        let mut config = ServerConfig::clone(&entry.config);
        for secret in resolved.secrets() {
            if !config.expanded_secrets.contains(secret) {
                config.expanded_secrets.push(secret.clone());
            }
        }
        self.with_servers(|servers| {
            let known = servers.entries.get_mut(entry.id.place());
            // A server reconfigured in the meantime resolves its own.
            if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.config, &entry.config)) {
                known.config = Arc::new(config);
            }
        });
    }

    fn put(&self, id: ServerId, config: Arc<ServerConfig>) {
        let entry = Entry { id, name: config.name.as_str().into(), config };
        self.with_servers(|servers| servers.put(entry));
    }

    /// Replaces the table of servers; readers see the old one or the new one, never a mix.
    fn with_servers(&self, change: impl FnOnce(&mut Servers)) {
        let mut servers = self.servers.write();
        let mut next = Servers::clone(&servers);
        change(&mut next);
        *servers = Arc::new(next);
    }

    pub(crate) fn entry(&self, server: ServerId) -> Option<Entry> {
        self.servers().at(server).cloned()
    }
}
