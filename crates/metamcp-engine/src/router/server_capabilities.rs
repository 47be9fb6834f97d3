//! What servers offer besides tools: their declared capabilities, whether their lists changed, and which of their
//! resources have subscribers.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use metamcp_calls::notify::List;
use metamcp_calls::pool::ServerId;
use metamcp_config::scope::{self, SaidOfItself};
use metamcp_surface::direct::{self, Kind};
use metamcp_wire::handshake::Peer;
use metamcp_wire::{object, write};
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use super::{Context, Router};
use crate::catalog::DefinitionId;
use crate::task;
use crate::upstream::{Connection, Reply};

/// Resources of one server that may have subscribers at once.
const MAX_WATCHED: usize = 1000;

/// See the module.
#[derive(Default)]
pub(super) struct ServerCapabilities {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    peers: HashMap<ServerId, Arc<Peer>>,
    /// By definition, so that it outlives an instance.
    said: HashMap<DefinitionId, SaidOfItself>,
    /// Digest of each list when it was last read.
    digests: HashMap<(ServerId, List), u64>,
    /// Lists being read, and whether they changed meanwhile.
    reading: HashMap<(ServerId, List), bool>,
    /// Servers that a list skipped because they were not connected yet.
    missed: HashSet<ServerId>,
    /// Number of subscribers per resource.
    watched: HashMap<ServerId, HashMap<String, usize>>,
}

impl ServerCapabilities {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

impl Router {
    /// The capabilities a server declared when it was last started.
    pub fn peer(&self, server: ServerId) -> Option<Arc<Peer>> {
        self.server_capabilities.lock().peers.get(&server).cloned()
    }

    /// A list skipped a server: if it connects, that is a change.
    pub fn missed(&self, server: ServerId) {
        self.server_capabilities.lock().missed.insert(server);
    }

    /// Whether a server was skipped before and has not connected since.
    pub fn is_missed(&self, server: ServerId) -> bool {
        self.server_capabilities.lock().missed.contains(&server)
    }

    /// A server connected.
    pub(super) fn introduced(&self, connection: &Arc<Connection>) {
        let Some(peer) = connection.peer.get() else { return };
        let server = connection.server;
        let definition = self.instance_at(server).map(|one| one.definition.id);
        let (missed, watched) = {
            let mut inner = self.server_capabilities.lock();
            inner.peers.insert(server, Arc::new(peer.clone()));
            if let Some(definition) = definition {
                let said = inner.said.entry(definition).or_default();
                said.server_name.clone_from(&peer.name);
                said.title = peer.title.clone().unwrap_or_default();
                said.declared = scope::declared_in(&json!({ "capabilities": peer.capabilities }));
            }
            let watched: Vec<String> =
                inner.watched.get(&server).into_iter().flat_map(HashMap::keys).cloned().collect();
            (inner.missed.remove(&server), watched)
        };
        for list in [List::Resources, List::Prompts] {
            if missed && peer.can(list.capability()) {
                self.digest_is(server, list, 0, true);
            }
            if peer.can_also(list.capability(), "listChanged") {
                // The current digest, to tell a real change from a mere notification.
                self.read_list_again(connection, list, false);
            }
        }
        for uri in watched {
            subscribe_to(connection, &uri);
        }
    }

    /// A server reports that its resources or prompts changed: the list is read, to see whether they did.
    pub(super) fn list_changed(&self, connection: &Arc<Connection>, list: List) {
        self.read_list_again(connection, list, true);
    }

    fn read_list_again(&self, connection: &Arc<Connection>, list: List, is_change: bool) {
        let key = (connection.server, list);
        let contexts = self.contexts_of(connection.server);
        if !contexts.iter().any(|context| context.change_notifier.is_watched()) {
            return;
        }
        {
            let mut inner = self.server_capabilities.lock();
            if let Some(again) = inner.reading.get_mut(&key) {
                *again = true;
                return;
            }
            inner.reading.insert(key, false);
        }
        let Some(router) = self.me.upgrade() else { return };
        let connection = Arc::clone(connection);
        task::spawn("offers", async move {
            let mut is_change = is_change;
            loop {
                let reading = digest_of(&connection, list);
                let read = router.clock.timeout(router.timing.list, reading).await;
                if let Some(Some(digest)) = read {
                    router.digest_is(connection.server, list, digest, is_change);
                }
                // A server that notifies without pause is read once a second.
                tokio::time::sleep(LEAST_GAP).await;
                let mut inner = router.server_capabilities.lock();
                match inner.reading.get_mut(&key) {
                    Some(again) if *again => {
                        *again = false;
                        is_change = true;
                    }
                    _ => {
                        inner.reading.remove(&key);
                        return;
                    }
                }
            }
        });
    }

    /// A list was read. The first reading is no change, unless `is_change` says so.
    fn digest_is(&self, server: ServerId, list: List, digest: u64, is_change: bool) {
        let before = {
            let mut inner = self.server_capabilities.lock();
            inner.digests.insert((server, list), digest)
        };
        for context in self.contexts_of(server) {
            let members = context.members();
            let all = {
                let inner = self.server_capabilities.lock();
                let of_list = inner.digests.iter().filter(|((server, of), _)| {
                    *of == list
                        && self.instance_at(*server).is_some_and(|one| {
                            members.iter().any(|known| Arc::ptr_eq(known, &one.definition))
                        })
                });
                of_list.fold(0, |all, ((server, _), digest)| all ^ mixed(&(server, digest)))
            };
            if is_change || before.is_some() {
                context.change_notifier.heard(list, all);
            } else {
                context.change_notifier.given(list, all);
            }
        }
    }

    /// Nothing of these instances is left.
    pub(super) fn forget_capabilities(&self, gone: &[ServerId]) {
        if gone.is_empty() {
            return;
        }
        let mut inner = self.server_capabilities.lock();
        inner.peers.retain(|id, _| !gone.contains(id));
        inner.digests.retain(|(id, _), _| !gone.contains(id));
        inner.missed.retain(|id| !gone.contains(id));
        inner.watched.retain(|id, _| !gone.contains(id));
    }

    /// The contexts that have the server of an instance.
    fn contexts_of(&self, server: ServerId) -> Vec<Arc<Context>> {
        self.instance_at(server).map(|one| one.definition.contexts()).unwrap_or_default()
    }

    /// A resource of a server has changed.
    pub(super) fn tell_updated(&self, server: ServerId, uri: &str, params: &[u8]) {
        for context in self.contexts_of(server) {
            context.change_notifier.updated(server, uri, params);
        }
    }

    /// What the instances of a server said of themselves so far, beside their tools.
    pub(super) fn said_of_itself(&self, definition: DefinitionId) -> SaidOfItself {
        self.server_capabilities.lock().said.get(&definition).cloned().unwrap_or_default()
    }

    /// A server asked for roots: what it does depends on the client's.
    pub(super) fn asked_for_roots(&self, server: ServerId) {
        let Some(instance) = self.instance_at(server) else { return };
        let mut inner = self.server_capabilities.lock();
        inner.said.entry(instance.definition.id).or_default().asks_roots = true;
    }

    /// Adds a subscriber; the server gets the subscription at once, if `subscribe` says so, and whenever it starts.
    /// False if there are too many already.
    pub fn watch(&self, server: ServerId, uri: &str, subscribe: bool) -> bool {
        let mut inner = self.server_capabilities.lock();
        let watched = inner.watched.entry(server).or_default();
        if watched.len() >= MAX_WATCHED && !watched.contains_key(uri) {
            return false;
        }
        let count = watched.entry(uri.to_owned()).or_default();
        *count += 1;
        let first = *count == 1;
        drop(inner);
        if first && subscribe {
            match self.connection_of(server) {
                Some(connection) => subscribe_to(&connection, uri),
                // It is subscribed when it connects; a request to it reports why it cannot.
                None => drop(self.wake(server)),
            }
        }
        true
    }

    /// Removes a subscriber.
    pub fn unwatch(&self, server: ServerId, uri: &str) {
        let mut inner = self.server_capabilities.lock();
        let Some(watched) = inner.watched.get_mut(&server) else { return };
        let Some(count) = watched.get_mut(uri) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        watched.remove(uri);
        drop(inner);
        if let Some(connection) = self.connection_of(server).filter(|conn| !conn.is_stateless()) {
            // Nobody can act on the response.
            drop(connection.request("resources/unsubscribe", Some(&uri_params(uri))));
        }
    }

    fn connection_of(&self, server: ServerId) -> Option<Arc<Connection>> {
        self.live().into_iter().find(|connection| connection.server == server)
    }
}

/// Minimum interval between two readings of a list that is reported as changed.
const LEAST_GAP: std::time::Duration = std::time::Duration::from_secs(1);

/// Subscribes to a resource, as the server's era does it.
fn subscribe_to(connection: &Connection, uri: &str) {
    let peer = connection.peer.get();
    if !peer.is_some_and(|peer| peer.can_also("resources", "subscribe")) {
        return;
    }
    if !connection.is_stateless() {
        drop(connection.request("resources/subscribe", Some(&uri_params(uri))));
    } else if connection.listens_newly(uri, MAX_WATCHED) {
        let mut wanted = b"{\"notifications\":{\"resourceSubscriptions\":[".to_vec();
        write::json_string(&mut wanted, uri);
        wanted.extend_from_slice(b"]}}");
        // Its response is the end of the subscription, which comes with the end of the process.
        drop(connection.ask("subscriptions/listen", &wanted));
    }
}

fn uri_params(uri: &str) -> Vec<u8> {
    let mut params = b"{\"uri\":".to_vec();
    write::json_string(&mut params, uri);
    params.push(b'}');
    params
}

/// The digest of the current list, all its pages.
async fn digest_of(connection: &Connection, list: List) -> Option<u64> {
    let kinds: &[Kind] = match list {
        List::Tools => &[],
        List::Resources => &[Kind::Resources, Kind::Templates],
        List::Prompts => &[Kind::Prompts],
    };
    let mut hasher = DefaultHasher::new();
    for &kind in kinds {
        let mut cursor: Option<String> = None;
        for _ in 0..direct::MAX_PAGES {
            let mut params = b"{".to_vec();
            if let Some(cursor) = &cursor {
                params.extend_from_slice(b"\"cursor\":");
                write::json_string(&mut params, cursor);
            }
            params.push(b'}');
            let page: Bytes = match connection.ask(kind.method(), &params).await.ok()? {
                Reply::Result(page) => page,
                // A server without templates may not know the method.
                Reply::Error(_) => break,
                Reply::Malformed(_) | Reply::Oversize(_) | Reply::Broke { .. } => return None,
            };
            let [elements] = object::pick(&page, [kind.member()]).ok()?;
            elements.hash(&mut hasher);
            cursor = direct::page(kind, &page)?.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    Some(hasher.finish())
}

fn mixed(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
