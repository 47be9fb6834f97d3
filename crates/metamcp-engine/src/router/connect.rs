//! The life of a connection: start, handshake, listing, reading, and the end of everything it started.

use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::failure::{Fact, Failure};
use metamcp_calls::lifecycle::State as SlotState;
use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_calls::refresh::Refresh;
use metamcp_types::moment::Moment;
use metamcp_types::text;
use metamcp_types::tool_override::ToolOverrides;
use metamcp_wire::modern::headers;
use parking_lot::Mutex;

use super::backlog::Backlog;
use super::{Definition, Entry, Router, Slot, handshake};
use crate::catalog::ListFailure;
use crate::secrets;
use crate::task;
use crate::upstream::era_cache::ServerProtocol;
use crate::upstream::listing::{self, ListError};
use crate::upstream::transport::{self, Surroundings, Transport};
use crate::upstream::{Connection, Listener, Mirrors};

/// A list is not read again before this, whatever TTL the server gave: it may be large.
const LEAST_LIST_AGE: Duration = Duration::from_mins(1);

/// What belongs to a live connection.
#[derive(Debug, Default)]
pub(crate) struct Life {
    pub(super) backlog: Mutex<Backlog>,
    /// Those of its server, with the secrets that were looked up when it started.
    pub(super) overrides: ToolOverrides,
    refresh: Mutex<Refreshing>,
}

#[derive(Debug, Default)]
struct Refreshing {
    rule: Refresh,
    scheduled: bool,
}

/// Opens the transport to a server and performs the handshake.
pub(super) async fn connect(router: Arc<Router>, conn: ConnId, server: ServerId) {
    let Some(entry) = router.entry(server) else { return router.gone(conn) };
    #[cfg(feature = "fleet")]
    if !router.may_start(server) {
        let reason =
            "another gateway of the fleet runs it, or nobody may at this moment".to_owned();
        return start_failed(&router, conn, Failure::new(Fact::Unreachable { reason }));
    }
    let begun = router.clock.now();
    let known = router.launcher.era_cache.known(&entry.config).await;
    start(router, conn, entry, known, begun).await;
}

/// Opens the transport and uses the protocol in the cache, or probes for it.
async fn start(
    router: Arc<Router>,
    conn: ConnId,
    entry: Entry,
    known: Option<ServerProtocol>,
    begun: Moment,
) {
    let instance = router.instance_at(entry.id);
    let variables = instance.as_ref().map(|one| one.surroundings.variables.clone());
    let entry = match secrets::resolved(&entry.config, &variables.unwrap_or_default()).await {
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
    let opening = || {
        let surroundings = Surroundings {
            launcher: &router.launcher,
            clock: router.clock,
            line_bytes: router.timing.line_bytes,
            mirrors: mirrors(instance.as_ref().map(|one| Arc::clone(&one.definition))),
            client: instance.as_ref().map(|one| &*one.surroundings),
        };
        transport::open(&entry.config, known, surroundings)
    };
    let mut opened = opening().await;
    if matches!(opened, Err(Fact::OutOfFiles { .. } | Fact::OutOfProcesses { .. }))
        && router.shed().await
    {
        opened = opening().await;
    }
    let transport = match opened {
        Ok(transport) => transport,
        Err(fact) => return start_failed(&router, conn, Failure::new(fact)),
    };
    let known = transport.begins_with(known);
    let times = (begun, router.clock.now());
    let Some(connection) = install(&router, conn, &entry, &transport, times) else {
        transport.kill();
        transport.ended().await;
        return router.gone(conn);
    };
    task::spawn("connection", live(Arc::clone(&router), Arc::clone(&connection)));
    handshake::shake_hands(&router, &entry, &connection, known).await;
}

/// The headers that a server's tools require, as far as its list is known.
fn mirrors(definition: Option<Arc<Definition>>) -> Mirrors {
    Arc::new(move |tool: &str| {
        let Some(definition) = &definition else { return Vec::default() };
        let contexts = definition.contexts();
        let Some(context) = contexts.first() else { return Vec::default() };
        let snapshot = context.catalog.snapshot();
        let schema = snapshot
            .known(definition.id)
            .and_then(|known| known.tools.as_listed().all().find(|one| *one.name == *tool))
            .and_then(|tool| tool.input_schema())
            .filter(|schema| memchr::memmem::find(schema.as_bytes(), b"x-mcp-header").is_some());
        let schema = schema.and_then(|schema| serde_json::from_str(schema).ok());
        schema.and_then(|schema| headers::mirrors(&schema).ok()).unwrap_or_default()
    })
}

/// Restarts with a fresh process that gets `initialize` first, if the connection is still wanted; the old process is
/// gone. To waiting calls it is the same start, and it does not count as a failure of the server.
fn again(router: &Arc<Router>, conn: ConnId, server: ServerId) {
    let wanted = {
        let mut state = router.lock();
        let slot_state = state.dispatch.pool().slot(conn).map(|slot| slot.state);
        let wanted = slot_state == Some(SlotState::Connecting);
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
                // For this process; once it answers, for later ones too.
                router
                    .launcher
                    .era_cache
                    .learn(&entry.config, ServerProtocol::Initialize, true)
                    .await;
                let begun = router.clock.now();
                start(router, conn, entry, Some(ServerProtocol::Initialize), begun).await;
            });
        }
        None => router.gone(conn),
    }
}

/// Puts a started connection into its slot, unless it is no longer wanted.
fn install(
    router: &Router,
    conn: ConnId,
    entry: &Entry,
    transport: &Arc<dyn Transport>,
    times: (Moment, Moment),
) -> Option<Arc<Connection>> {
    let mut state = router.lock();
    let Some(Slot::Starting { unwanted: false }) = state.slots.get(&conn) else { return None };
    let (name, transport) = (Arc::clone(&entry.name), Arc::clone(transport));
    let connection = Arc::new(Connection::new(conn, entry.id, name, transport, times));
    let life = Life { overrides: entry.config.overrides.clone(), ..Life::default() };
    let slot = Slot::Live { conn: Arc::clone(&connection), life: Arc::new(life) };
    state.slots.insert(conn, slot);
    drop(state);
    router.keep_stderr(&connection);
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

/// Talks to the server until the connection breaks or is closed, then cleans up.
async fn live(router: Arc<Router>, connection: Arc<Connection>) {
    let listener: Arc<dyn Listener> = Arc::clone(&router) as Arc<dyn Listener>;
    let transport = &connection.transport;
    let end = transport.serve(&connection, &listener).await;
    // One that was probed and stayed silent may have died of the probe.
    let died_of_probe = matches!(
        end,
        Some(Fact::Exited { .. } | Fact::OutputClosed | Fact::InputClosed | Fact::Stalled { .. })
    ) && connection.opening.start_afresh();
    let afresh = died_of_probe || connection.opening.is_afresh();
    if afresh {
        transport.kill();
    } else if let Some(fact) = end {
        router.lost(connection.id, connection.failure(fact));
    }
    connection.outbox.close();
    connection.forget_requests();
    transport.ended().await;
    if afresh {
        return again(&router, connection.id, connection.server);
    }
    router.gone(connection.id);
}

/// Reads a server's tools, as the dispatch ordered; this already counts as work of that connection.
pub(super) fn list(router: &Arc<Router>, conn: ConnId) {
    let Some((connection, life)) = current(router, conn) else { return };
    life.refresh.lock().rule.started(router.clock.now());
    task::spawn("listing", read_list(Arc::clone(router), connection, life));
}

async fn read_list(router: Arc<Router>, connection: Arc<Connection>, life: Arc<Life>) {
    let secrets = Arc::new(router.values());
    let reading = listing::read(&connection, router.timing.tools, &secrets);
    let listed = router.clock.timeout(router.timing.list, reading).await;
    let read = match listed {
        Some(Ok(tools)) => Ok(tools),
        Some(Err(ListError::Words(why))) => Err(why.into()),
        Some(Err(ListError::Refused(code, message))) => Err(ListFailure::refused(code, message)),
        Some(Err(ListError::Login(fact))) => {
            if router.lock().dispatch.calls_on(connection.id).is_empty() {
                // As good as not connected: the next caller learns where to sign in.
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
    let definition = router.instance_at(connection.server).map(|one| one.definition);
    for (context, definition) in definition
        .iter()
        .flat_map(|one| one.contexts().into_iter().map(move |context| (context, one)))
    {
        let before = context.catalog.snapshot().generation;
        context.catalog.listed(definition.id, read.clone(), connection.peer.get(), now).await;
        if context.catalog.snapshot().generation != before {
            context.tools_changed();
        }
    }
    life.refresh.lock().rule.finished();
    // Calls that waited for the list are sent before the connection counts as idle: in a full pool it would be closed
    // under them, and each first call would cost two starts.
    router.state_changes.step();
    tokio::task::yield_now().await;
    let still =
        current(&router, connection.id).is_some_and(|(now, _)| Arc::ptr_eq(&now, &connection));
    if still {
        let now = router.clock.now();
        router.with(|dispatch, effects| dispatch.listed(connection.id, now, effects));
        schedule(&router, &connection, &life);
    }
    router.state_changes.step();
}

/// Pings a server that let a call time out. Any response counts as alive, an error too.
pub(super) fn probe(router: &Arc<Router>, conn: ConnId) {
    let Some((connection, _)) = current(router, conn) else { return };
    let router = Arc::clone(router);
    task::spawn("probe", async move {
        // Stateless servers do not know `ping`.
        let method = if connection.is_stateless() { "server/discover" } else { "ping" };
        // Without a response the dispatch closes the connection, and this task ends with it.
        if connection.ask(method, b"{}").await.is_ok() {
            let now = router.clock.now();
            router.with(|dispatch, effects| dispatch.alive(conn, now, effects));
        }
    });
}

/// A server that sends no list-changed notifications is in use: if its list is older than its TTL, read it again. Only
/// use triggers this; a TTL is not a polling interval.
pub(super) fn used(router: &Router, connection: &Arc<Connection>) {
    let Some(&ttl) = connection.list_ttl.get() else { return };
    let Some((_, life)) = current(router, connection.id) else { return };
    let now = router.clock.now();
    let stale = {
        let refresh = life.refresh.lock();
        let read = refresh.rule.last_started();
        read.is_some_and(|read| now.since(read) >= Duration::from_millis(ttl).max(LEAST_LIST_AGE))
    };
    if stale {
        list_changed(router, connection);
    }
}

/// The server reports that its tools changed.
pub(super) fn list_changed(router: &Router, connection: &Arc<Connection>) {
    let Some((_, life)) = current(router, connection.id) else { return };
    let now = router.clock.now();
    life.refresh.lock().rule.changed(now);
    if let Some(router) = router.me.upgrade() {
        schedule(&router, connection, &life);
    }
}

/// At most one task waits for the next reading to be due.
fn schedule(router: &Arc<Router>, connection: &Arc<Connection>, life: &Arc<Life>) {
    let due = {
        let mut refresh = life.refresh.lock();
        let due = refresh.rule.due(router.clock.now());
        if due == Moment::NEVER || std::mem::replace(&mut refresh.scheduled, true) {
            return;
        }
        due
    };
    let (router, connection, life) = (Arc::clone(router), Arc::clone(connection), Arc::clone(life));
    task::spawn("refresh", async move {
        router.clock.sleep_until(due).await;
        let now = router.clock.now();
        let early = {
            let mut refresh = life.refresh.lock();
            refresh.scheduled = false;
            refresh.rule.due(now) > now
        };
        if early {
            // A timer may fire a little early, and a server over its rate limit sends nothing more.
            return schedule(&router, &connection, &life);
        }
        let still =
            current(&router, connection.id).is_some_and(|(now, _)| Arc::ptr_eq(&now, &connection));
        if still && router.with(|dispatch, _| dispatch.list_again(connection.id)) {
            life.refresh.lock().rule.started(now);
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
