//! The life of a connection: start, handshake, listing, reading, and the end of everything it started.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use metamcp_child::{ExitWatch, Parts, StderrTail};
use metamcp_core::config::{HttpKind, Transport};
use metamcp_core::failure::{Fact, Failure};
use metamcp_core::ledger::{ConnId, ServerId};
use metamcp_core::lifecycle::State as Stand;
use metamcp_core::notify::List;
use metamcp_core::refresh::Refresh;
use metamcp_core::text;
use metamcp_wire::modern::headers;
use tokio::io::AsyncReadExt;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::backlog::Backlog;
use super::{Entry, Router, Slot, handshake};
use crate::catalog::ListFailure;
use crate::outbox::WriteEnd;
use crate::secrets;
use crate::stream;
use crate::task;
use crate::upstream::eras::Way;
use crate::upstream::listing::{self, Unlisted};
use crate::upstream::remote::Mirrors;
use crate::upstream::{Connection, Link, Listener, Remote};

/// How long a child may leave its input unread before it counts as stalled.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between the end of a child's output and its exit: enough to learn the exit code, too short to be felt.
const EXIT_GRACE: Duration = Duration::from_millis(250);
/// Between a child's exit and the end of its output, which a grandchild may hold open.
const OUTPUT_GRACE: Duration = Duration::from_millis(150);

/// A list is not read again before this, however short-lived the server says it is: it may be large.
const LEAST_LIST_AGE: Duration = Duration::from_secs(60);

/// What goes along with a live connection.
#[derive(Debug, Default)]
pub(crate) struct Life {
    /// What waits for it.
    pub(super) backlog: Mutex<Backlog>,
    refresh: Mutex<Refreshing>,
}

#[derive(Debug, Default)]
struct Refreshing {
    rule: Refresh,
    scheduled: bool,
}

/// Starts a server's process and shakes hands.
pub(super) async fn connect(router: Arc<Router>, conn: ConnId, server: ServerId) {
    let Some(entry) = router.entry(server) else { return };
    let known = router.launcher.eras.known(&entry.config).await;
    start(router, conn, entry, known).await;
}

/// Starts its process and speaks to it in the way that is known, or finds out.
async fn start(router: Arc<Router>, conn: ConnId, entry: Entry, known: Option<Way>) {
    let entry = match secrets::resolved(&entry.config).await {
        Ok(None) => entry,
        Ok(Some(config)) => {
            router.remember(&entry, &config);
            Entry { config: Arc::new(config), ..entry }
        }
        Err(error) => {
            let fact = Fact::SecretMissing { reason: error.to_string() };
            return start_failed(&router, conn, Failure::new(fact));
        }
    };
    if let Transport::Http { kind, .. } = &entry.config.transport {
        // One that is said to speak the older transport is not asked about the newest.
        let known = if *kind == HttpKind::Sse { Some(Way::Sse) } else { known };
        let known = known.filter(|way| *kind != HttpKind::Streamable || *way != Way::Sse);
        return start_remote(router, conn, entry, known).await;
    }
    let mut started = router.launcher.start(&entry.config).await;
    if matches!(started, Err(Fact::OutOfFiles { .. } | Fact::OutOfProcesses { .. }))
        && router.shed().await
    {
        started = router.launcher.start(&entry.config).await;
    }
    let parts = match started {
        Ok(parts) => parts,
        Err(fact) => return start_failed(&router, conn, Failure::new(fact)),
    };
    stream::widen(&parts.stdout);
    let handle = parts.handle.clone();
    let link = Link::Child(handle.clone());
    let Some(connection) = install(&router, conn, &entry, &link, handle.stderr()) else {
        handle.kill_now();
        handle.watch().empty().await;
        return router.gone(conn);
    };
    task::spawn("connection", live(Arc::clone(&router), Arc::clone(&connection), parts));
    handshake::shake_hands(&router, &entry, &connection, &link, known).await;
}

/// The same for a server elsewhere, which runs already.
async fn start_remote(router: Arc<Router>, conn: ConnId, entry: Entry, known: Option<Way>) {
    let mirrors = mirrors(&router, entry.id);
    let made = router.launcher.remote(&entry.config, router.timing.line_bytes, mirrors);
    let remote = match made {
        Ok(remote) => Arc::new(remote),
        Err(fact) => return start_failed(&router, conn, Failure::new(fact)),
    };
    let link = Link::Remote(Arc::clone(&remote));
    let Some(connection) = install(&router, conn, &entry, &link, StderrTail::default()) else {
        return router.gone(conn);
    };
    let older = known == Some(Way::Sse);
    let living = live_remote(Arc::clone(&router), Arc::clone(&connection), remote, older);
    task::spawn("connection", living);
    handshake::shake_hands(&router, &entry, &connection, &link, known).await;
}

/// Speaks with a remote server until it is lost or stopped, then sees to it that nothing is left.
async fn live_remote(
    router: Arc<Router>,
    connection: Arc<Connection>,
    remote: Arc<Remote>,
    older: bool,
) {
    let listener: Arc<dyn Listener> = Arc::clone(&router) as Arc<dyn Listener>;
    if let Some(fact) = remote.serve(&connection, &listener, older).await {
        router.lost(connection.id, connection.failure(fact));
    }
    connection.outbox.close();
    connection.forget_requests();
    remote.end().await;
    router.gone(connection.id);
}

/// What the tools of a server want in headers, as far as its list is known.
fn mirrors(router: &Arc<Router>, server: ServerId) -> Mirrors {
    let catalog = Arc::clone(&router.catalog);
    Box::new(move |tool| {
        let snapshot = catalog.snapshot();
        let schema = snapshot
            .known(server)
            .and_then(|known| known.any_tool(tool))
            .and_then(|tool| tool.input_schema())
            .filter(|schema| memchr::memmem::find(schema.as_bytes(), b"x-mcp-header").is_some());
        let schema = schema.and_then(|schema| serde_json::from_str(schema).ok());
        schema.and_then(|schema| headers::mirrors(&schema).ok()).unwrap_or_default()
    })
}

/// Once more with a fresh process that hears `initialize` first, if the connection is still wanted; what is left of the
/// old one is gone. It is the same start to whoever waits for it, and no failure of the server.
fn again(router: &Arc<Router>, conn: ConnId, server: ServerId) {
    let wanted = {
        let mut state = router.lock();
        let held = state.dispatch.ledger().held(conn).map(|held| held.state);
        let wanted = held == Some(Stand::Connecting);
        if wanted {
            state.slots.insert(conn, Slot::Starting { unwanted: false });
            state.dispatch.started_again(conn, router.clock.now());
        }
        wanted
    };
    match router.entry(server).filter(|_| wanted) {
        Some(entry) => {
            let router = Arc::clone(router);
            task::spawn("connect", async move {
                // For this process; once it answers, for the next ones too.
                router.launcher.eras.learn(&entry.config, Way::Initialize, true).await;
                start(router, conn, entry, Some(Way::Initialize)).await;
            });
        }
        None => router.gone(conn),
    }
}

/// Puts a started connection into its slot, unless it is not wanted any more.
fn install(
    router: &Router,
    conn: ConnId,
    entry: &Entry,
    link: &Link,
    stderr: StderrTail,
) -> Option<Arc<Connection>> {
    let mut state = router.lock();
    let Some(Slot::Starting { unwanted: false }) = state.slots.get(&conn) else { return None };
    let mut connection = Connection::new(conn, entry.id, Arc::clone(&entry.name), stderr);
    connection.over_http = matches!(link, Link::Remote(_));
    let connection = Arc::new(connection);
    let slot =
        Slot::Live { conn: Arc::clone(&connection), link: link.clone(), life: Arc::default() };
    state.slots.insert(conn, slot);
    Some(connection)
}

fn start_failed(router: &Arc<Router>, conn: ConnId, failure: Failure) {
    let unwanted =
        matches!(router.lock().slots.remove(&conn), Some(Slot::Starting { unwanted: true }));
    if unwanted {
        return router.gone(conn);
    }
    router.lost(conn, failure);
}

/// Reads and writes until the connection breaks, then sees to it that nothing is left.
async fn live(router: Arc<Router>, connection: Arc<Connection>, parts: Parts) {
    let Parts { stdin, mut stdout, handle } = parts;
    let mut watch = handle.watch();
    let (writing, patience) = (Arc::clone(&connection), Some((router.clock, PATIENCE)));
    let mut writer =
        task::spawn("writer", async move { writing.outbox.write_to(stdin, patience).await });
    let fact = talk(&router, &connection, &mut stdout, &mut writer, &mut watch).await;
    // One that was asked what it speaks and said nothing may have died of the question.
    let of_the_question = matches!(
        fact,
        Fact::Exited { .. } | Fact::OutputClosed | Fact::InputClosed | Fact::Stalled { .. }
    ) && connection.opening.start_afresh();
    let afresh = of_the_question || connection.opening.is_afresh();
    if afresh {
        handle.kill_now();
    } else {
        router.lost(connection.id, connection.failure(fact));
    }
    connection.outbox.close();
    connection.forget_requests();
    // A child blocked on a full pipe could not exit.
    let mut rest = vec![0; 64 * 1024];
    loop {
        tokio::select! {
            () = watch.empty() => break,
            read = stdout.read(&mut rest) => if !matches!(read, Ok(1..)) { break },
        }
    }
    watch.empty().await;
    writer.abort();
    if afresh {
        return again(&router, connection.id, connection.server);
    }
    router.gone(connection.id);
}

/// The part of the life in which there is something to say.
async fn talk(
    router: &Arc<Router>,
    connection: &Arc<Connection>,
    stdout: &mut metamcp_child::Stdout,
    writer: &mut JoinHandle<WriteEnd>,
    watch: &mut ExitWatch,
) -> Fact {
    let leaving = watch.clone();
    let reading = connection.read_from(stdout, router.timing.line_bytes, &**router);
    tokio::pin!(reading);
    let mut writing = true;
    let fact = loop {
        tokio::select! {
            fact = &mut reading => break fact,
            exit = leaving.exited() => {
                // What it still said before it went is read first.
                drop(timeout(OUTPUT_GRACE, &mut reading).await);
                return Fact::Exited { code: exit.code, signal: exit.signal };
            }
            end = &mut *writer, if writing => match end {
                Ok(WriteEnd::Stalled(after)) => return Fact::Stalled { after },
                Ok(WriteEnd::Broken(_)) | Err(_) => {
                    // It may be about to exit, which is the better thing to say; what it says until then counts.
                    let read_on = timeout(EXIT_GRACE, &mut reading).await;
                    break read_on.unwrap_or(Fact::InputClosed);
                }
                Ok(WriteEnd::Closed) => writing = false,
            },
        }
    };
    match fact {
        Fact::OutputClosed | Fact::InputClosed => match timeout(EXIT_GRACE, watch.exited()).await {
            Ok(exit) => Fact::Exited { code: exit.code, signal: exit.signal },
            Err(_) => fact,
        },
        other => other,
    }
}

/// Reads a server's tools, as the dispatch ordered; it already counts as work of that connection.
pub(super) fn list(router: &Arc<Router>, conn: ConnId) {
    let Some((connection, life)) = current(router, conn) else { return };
    life.refresh.lock().expect("no panic while it is locked").rule.started(router.clock.now());
    task::spawn("listing", read_list(Arc::clone(router), connection, life));
}

async fn read_list(router: Arc<Router>, connection: Arc<Connection>, life: Arc<Life>) {
    let secrets = router.values();
    let reading = listing::read(&connection, router.timing.tools, &secrets);
    let listed = router.clock.timeout(router.timing.list, reading).await;
    let read = match listed {
        Some(Ok(tools)) => Ok(tools),
        Some(Err(Unlisted::Words(why))) => Err(why.into()),
        Some(Err(Unlisted::Refused(code, message))) => Err(ListFailure::refused(code, message)),
        Some(Err(Unlisted::Login(fact))) => {
            if router.lock().dispatch.calls_on(connection.id).is_empty() {
                // As good as not connected: whoever needs it next hears where to log in.
                return router.lost(connection.id, connection.failure(fact));
            }
            Err(fact.to_string().into())
        }
        None => {
            let limit = text::duration(router.timing.list);
            Err(format!("did not list its tools within {limit}").into())
        }
    };
    let now = router.clock.now();
    let before = router.catalog.snapshot().generation;
    router.catalog.listed(connection.server, read, connection.peer.get(), now).await;
    let snapshot = router.catalog.snapshot();
    if snapshot.generation != before {
        router.notices.heard(List::Tools, router.tools_digest(&snapshot));
    }
    life.refresh.lock().expect("no panic while it is locked").rule.finished();
    // Those who waited for the list make their calls before the connection counts as idle: in a crowded pool it would
    // be closed under them, and each first call would cost two starts.
    router.stir.step();
    tokio::task::yield_now().await;
    let still =
        current(&router, connection.id).is_some_and(|(now, _)| Arc::ptr_eq(&now, &connection));
    if still {
        let now = router.clock.now();
        router.with(|dispatch, effects| dispatch.listed(connection.id, now, effects));
        schedule(&router, &connection, &life);
    }
    router.stir.step();
}

/// Asks a server that let a call time out whether it lives. Any answer says so, a refusal too.
pub(super) fn probe(router: &Arc<Router>, conn: ConnId) {
    let Some((connection, _)) = current(router, conn) else { return };
    let router = Arc::clone(router);
    task::spawn("probe", async move {
        // Of those that keep nothing a ping is not asked.
        let method = if connection.is_stateless() { "server/discover" } else { "ping" };
        // Without an answer the dispatch gives it up, and with its end this one ends too.
        if connection.ask(method, b"{}").await.is_ok() {
            let now = router.clock.now();
            router.with(|dispatch, effects| dispatch.alive(conn, now, effects));
        }
    });
}

/// A server that tells nobody of changes is being used: if its list is older than it said a list may be, it is read
/// again. Only use brings this about, since an age is no clock to poll by.
pub(super) fn used(router: &Router, connection: &Arc<Connection>) {
    let Some(&ttl) = connection.list_ttl.get() else { return };
    let Some((_, life)) = current(router, connection.id) else { return };
    let now = router.clock.now();
    let stale = {
        let refresh = life.refresh.lock().expect("no panic while it is locked");
        let read = refresh.rule.last_started();
        read.is_some_and(|read| now.since(read) >= Duration::from_millis(ttl).max(LEAST_LIST_AGE))
    };
    if stale {
        list_changed(router, connection);
    }
}

/// The server says that its tools changed.
pub(super) fn list_changed(router: &Router, connection: &Arc<Connection>) {
    let Some((_, life)) = current(router, connection.id) else { return };
    let now = router.clock.now();
    life.refresh.lock().expect("no panic while it is locked").rule.changed(now);
    if let Some(router) = router.me.upgrade() {
        schedule(&router, connection, &life);
    }
}

/// One sleeper at most waits for the next reading to be due.
fn schedule(router: &Arc<Router>, connection: &Arc<Connection>, life: &Arc<Life>) {
    let due = {
        let mut refresh = life.refresh.lock().expect("no panic while it is locked");
        let due = refresh.rule.due(router.clock.now());
        if due == metamcp_core::moment::Moment::NEVER
            || std::mem::replace(&mut refresh.scheduled, true)
        {
            return;
        }
        due
    };
    let (router, connection, life) = (Arc::clone(router), Arc::clone(connection), Arc::clone(life));
    task::spawn("refresh", async move {
        router.clock.sleep_until(due).await;
        let now = router.clock.now();
        let early = {
            let mut refresh = life.refresh.lock().expect("no panic while it is locked");
            refresh.scheduled = false;
            refresh.rule.due(now) > now
        };
        if early {
            // A timer may ring a little before its time, and a server that has shouted enough says nothing more.
            return schedule(&router, &connection, &life);
        }
        let still =
            current(&router, connection.id).is_some_and(|(now, _)| Arc::ptr_eq(&now, &connection));
        if still && router.with(|dispatch, _| dispatch.list_again(connection.id)) {
            life.refresh.lock().expect("no panic while it is locked").rule.started(now);
            read_list(router, connection, life).await;
        }
    });
}

fn current(router: &Router, conn: ConnId) -> Option<(Arc<Connection>, Arc<Life>)> {
    match router.lock().slots.get(&conn)? {
        Slot::Live { conn, life, .. } => Some((Arc::clone(conn), Arc::clone(life))),
        Slot::Starting { .. } => None,
    }
}
