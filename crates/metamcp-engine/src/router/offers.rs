//! What servers offer beside tools: what they said they can do, whether their lists changed, and which of their resources
//! somebody watches.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use metamcp_core::direct::{self, Kind};
use metamcp_core::ledger::ServerId;
use metamcp_core::notify::List;
use metamcp_wire::handshake::Peer;
use metamcp_wire::{object, write};

use super::Router;
use crate::task;
use crate::upstream::{Connection, Reply};

/// Resources of one server that may be watched at once.
const MAX_WATCHED: usize = 1000;

/// See the module.
#[derive(Default)]
pub(super) struct Offers {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    peers: HashMap<ServerId, Arc<Peer>>,
    /// What each list was when it was last read.
    digests: HashMap<(ServerId, List), u64>,
    /// Lists that are being read, and whether they changed meanwhile.
    reading: HashMap<(ServerId, List), bool>,
    /// Servers that were left out of a list because they were not there yet.
    missed: HashSet<ServerId>,
    /// How many watch a resource.
    watched: HashMap<ServerId, HashMap<String, usize>>,
}

impl Offers {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Router {
    /// What a server said of itself when it was last started.
    pub fn peer(&self, server: ServerId) -> Option<Arc<Peer>> {
        self.offers.lock().peers.get(&server).cloned()
    }

    /// A server was left out of a list: if it comes, that is a change.
    pub fn missed(&self, server: ServerId) {
        self.offers.lock().missed.insert(server);
    }

    /// Whether a server was left out before and has not come since.
    pub fn is_missed(&self, server: ServerId) -> bool {
        self.offers.lock().missed.contains(&server)
    }

    /// A server is there.
    pub(super) fn introduced(&self, connection: &Arc<Connection>) {
        let Some(peer) = connection.peer.get() else { return };
        let server = connection.server;
        let (missed, watched) = {
            let mut inner = self.offers.lock();
            inner.peers.insert(server, Arc::new(peer.clone()));
            let watched: Vec<String> =
                inner.watched.get(&server).into_iter().flat_map(HashMap::keys).cloned().collect();
            (inner.missed.remove(&server), watched)
        };
        for list in [List::Resources, List::Prompts] {
            if missed && peer.can(list.capability()) {
                self.digest_is(server, list, 0, true);
            }
            if peer.can_also(list.capability(), "listChanged") {
                // What it is now, so that a change can be told from a rumour.
                self.read_offers(connection, list, false);
            }
        }
        for uri in watched {
            ask_for_updates(connection, &uri);
        }
    }

    /// A server says that its resources or prompts changed: the list is read, to see whether they did.
    pub(super) fn offers_changed(&self, connection: &Arc<Connection>, list: List) {
        self.read_offers(connection, list, true);
    }

    fn read_offers(&self, connection: &Arc<Connection>, list: List, news: bool) {
        let key = (connection.server, list);
        if !self.notices.is_watched() {
            return;
        }
        {
            let mut inner = self.offers.lock();
            if let Some(again) = inner.reading.get_mut(&key) {
                *again = true;
                return;
            }
            inner.reading.insert(key, false);
        }
        let Some(router) = self.me.upgrade() else { return };
        let connection = Arc::clone(connection);
        task::spawn("offers", async move {
            let mut news = news;
            loop {
                let reading = digest_of(&connection, list);
                let read = router.clock.timeout(router.timing.list, reading).await;
                if let Some(Some(digest)) = read {
                    router.digest_is(connection.server, list, digest, news);
                }
                // A server that shouts without pause is asked once a second.
                tokio::time::sleep(LEAST_GAP).await;
                let mut inner = router.offers.lock();
                match inner.reading.get_mut(&key) {
                    Some(again) if *again => {
                        *again = false;
                        news = true;
                    }
                    _ => {
                        inner.reading.remove(&key);
                        return;
                    }
                }
            }
        });
    }

    /// A list was read. What was never read before is no change, unless it is `news`.
    fn digest_is(&self, server: ServerId, list: List, digest: u64, news: bool) {
        let (before, all) = {
            let mut inner = self.offers.lock();
            let before = inner.digests.insert((server, list), digest);
            let of_list = inner.digests.iter().filter(|((_, of), _)| *of == list);
            let all = of_list.fold(0, |all, ((server, _), digest)| all ^ mixed(&(server, digest)));
            (before, all)
        };
        if news || before.is_some() {
            self.notices.heard(list, all);
        } else {
            self.notices.given(list, all);
        }
    }

    /// One more wants to hear of a resource; the server is told at once, if `tell` says so, and whenever it starts. False
    /// if there are too many already.
    pub fn watch(&self, server: ServerId, uri: &str, tell: bool) -> bool {
        let mut inner = self.offers.lock();
        let watched = inner.watched.entry(server).or_default();
        if watched.len() >= MAX_WATCHED && !watched.contains_key(uri) {
            return false;
        }
        let count = watched.entry(uri.to_owned()).or_default();
        *count += 1;
        let first = *count == 1;
        drop(inner);
        if first && tell {
            match self.connection_of(server) {
                Some(connection) => ask_for_updates(&connection, uri),
                // It is asked when it is there; why it cannot be is said to who asks it for something.
                None => drop(self.wake(server)),
            }
        }
        true
    }

    /// One fewer does.
    pub fn unwatch(&self, server: ServerId, uri: &str) {
        let mut inner = self.offers.lock();
        let Some(watched) = inner.watched.get_mut(&server) else { return };
        let Some(count) = watched.get_mut(uri) else { return };
        *count -= 1;
        if *count > 0 {
            return;
        }
        watched.remove(uri);
        drop(inner);
        if let Some(connection) = self.connection_of(server).filter(|conn| !conn.is_stateless()) {
            // The answer says nothing that anybody could act on.
            drop(connection.request("resources/unsubscribe", Some(&uri_params(uri))));
        }
    }

    fn connection_of(&self, server: ServerId) -> Option<Arc<Connection>> {
        self.live().into_iter().find(|connection| connection.server == server)
    }
}

/// Between two readings of a list that is said to change.
const LEAST_GAP: std::time::Duration = std::time::Duration::from_secs(1);

/// Asks a server to tell of a resource, in the way of its era.
fn ask_for_updates(connection: &Connection, uri: &str) {
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
        // Its answer is the end of the subscription, which comes with the end of the process.
        drop(connection.ask("subscriptions/listen", &wanted));
    }
}

fn uri_params(uri: &str) -> Vec<u8> {
    let mut params = b"{\"uri\":".to_vec();
    write::json_string(&mut params, uri);
    params.push(b'}');
    params
}

/// The digest of a list as it is now, all its pages.
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
