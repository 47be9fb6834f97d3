//! The handshake with a server: its protocol era, its identity, its capabilities.
//!
//! The era cache decides the first message. An unknown server is probed with `server/discover`; one that does not know
//! this method gets `initialize` on the same process, which most accept. One that dies of the probe or hangs after it,
//! as those on the Python SDK before 1.9.2 do, is restarted once and gets nothing but `initialize`. At most one probe
//! is in flight, and a late response still counts.

use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::failure::Fact;
use metamcp_calls::notify::List;
use metamcp_wire::handshake::{self, Peer, Probed};
use metamcp_wire::modern::meta;
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::sleep_until;

use super::{Entry, Router};
use crate::clock;
use crate::upstream::era_cache::ServerProtocol;
use crate::upstream::{self, Connection, Reply};

/// How long a server that was sent both may show no activity before it counts as hung. Long, since a restart loses
/// whatever the server waited for: all servers known to hang exit as soon as they read `initialize`.
const HUNG_AFTER: Duration = Duration::from_secs(12);
/// How often a starting server is checked for activity.
const LIFE_INTERVAL: Duration = Duration::from_secs(1);

type Waiting = Option<oneshot::Receiver<Reply>>;

/// What is in flight, and what was received.
#[derive(Default)]
struct Opening {
    probe: Waiting,
    greeting: Waiting,
    probed: bool,
    /// It was probed once more, since it claims to support our revision.
    reprobed: bool,
    greeted: bool,
    /// Why `initialize` was refused.
    refusal: Option<String>,
}

/// The state after a response.
enum Step {
    Go(Box<Peer>),
    Wait,
    Fail(String),
    /// It cannot be talked to at all, for now.
    Lost(Fact),
}

pub(super) async fn shake_hands(
    router: &Arc<Router>,
    entry: &Entry,
    connection: &Arc<Connection>,
    known: Option<ServerProtocol>,
) {
    let transport = &connection.transport;
    let capabilities = handshake::relayed_capabilities(&router.client_capabilities(entry.id));
    // Set once: the connection is new.
    let own =
        meta::ours(b"{}", capabilities.to_string().as_bytes(), None, env!("CARGO_PKG_VERSION"));
    let mut opening = Opening::default();
    match known {
        Some(ServerProtocol::Initialize | ServerProtocol::Sse) => {
            opening.greet(connection, &capabilities);
        }
        Some(ServerProtocol::Stateless) | None => {
            if transport.is_restartable() {
                connection.opening.probed();
            }
            opening.probe(connection, &own);
        }
    }
    let installs = upstream::installs(&entry.config);
    let (mut life, mut alive) = (transport.activity(), clock::instant());
    let patience = clock::instant() + transport.probe_patience();
    // No limit of its own: the dispatch ends a start that takes too long, which drops the senders.
    let step = loop {
        let unanswered = opening.probe.is_some() && !opening.greeted;
        let unheard =
            opening.probe.is_some() && opening.greeting.is_some() && transport.is_restartable();
        let step = tokio::select! {
            reply = next(&mut opening.probe) => match reply {
                Ok(reply) => opening.discovered(connection, (&capabilities, &own), &reply),
                // The connection ended first; the cause is already reported.
                Err(_) => return,
            },
            reply = next(&mut opening.greeting) => match reply {
                Ok(reply) => opening.greeted(connection, &own, &reply),
                Err(_) => return,
            },
            () = sleep_until(patience), if unanswered => {
                opening.greet(connection, &capabilities);
                alive = clock::instant();
                Step::Wait
            }
            () = tokio::time::sleep(LIFE_INTERVAL), if installs || unheard => {
                let seen = transport.activity();
                if std::mem::replace(&mut life, seen) != seen {
                    alive = clock::instant();
                    if installs {
                        let now = router.clock.now();
                        router.with(|dispatch, _| dispatch.life_sign(connection.id, now));
                    }
                }
                if unheard && alive.elapsed() >= HUNG_AFTER && connection.opening.start_afresh() {
                    return transport.kill();
                }
                Step::Wait
            }
        };
        if !matches!(step, Step::Wait) {
            break step;
        }
    };
    if matches!(step, Step::Fail(_)) && connection.opening.start_afresh() {
        // The probe may have killed it: a fresh process gets nothing but `initialize`.
        return transport.kill();
    }
    if !connection.opening.settle() {
        return;
    }
    match step {
        Step::Go(peer) => {
            let protocol = transport.spoke(peer.era);
            router.launcher.era_cache.learn(&entry.config, protocol, false).await;
            // It is stored on disk.
            let secrets = router.values();
            let instructions = peer.instructions.as_deref().map(|text| secrets.redact_text(text));
            router.launcher.instructions_cache.learn(&entry.config, instructions.as_deref()).await;
            if peer.era.is_stateless() {
                drop(connection.meta.set(own));
            }
            ready(router, connection, *peer);
        }
        Step::Lost(fact) => router.lost(connection.id, connection.failure(fact)),
        Step::Fail(reason) => {
            router.lost(connection.id, connection.failure(Fact::HandshakeRefused { reason }));
        }
        Step::Wait => {}
    }
}

impl Opening {
    fn probe(&mut self, connection: &Connection, own: &[u8]) {
        let mut params = b"{\"_meta\":".to_vec();
        params.extend_from_slice(own);
        params.push(b'}');
        self.probe = Some(connection.request("server/discover", Some(&params)));
        self.probed = true;
    }

    fn greet(&mut self, connection: &Connection, capabilities: &Value) {
        let params = handshake::opening(capabilities, env!("CARGO_PKG_VERSION"));
        self.greeting = Some(connection.request("initialize", Some(&params)));
        self.greeted = true;
    }

    /// Handles the response to the probe.
    fn discovered(
        &mut self,
        connection: &Connection,
        (capabilities, own): (&Value, &[u8]),
        reply: &Reply,
    ) -> Step {
        self.probe = None;
        let probed = match reply {
            Reply::Result(result) => handshake::discovered(result),
            Reply::Error(error) => handshake::undiscovered(error),
            Reply::Malformed(_) | Reply::Oversize(_) => handshake::unanswered(),
            Reply::Broke { fact, .. } if is_conclusive(fact) => {
                return Step::Lost(fact.clone());
            }
            // A server of the other era answers an unknown method with any status or none at all.
            Reply::Broke { .. } => handshake::unanswered(),
        };
        match probed {
            Probed::Stateless(peer) => Step::Go(peer),
            Probed::Legacy if !self.greeted => {
                self.greet(connection, capabilities);
                Step::Wait
            }
            Probed::Legacy => self.next_step(),
            Probed::Again if !self.reprobed => {
                self.reprobed = true;
                self.probe(connection, own);
                Step::Wait
            }
            Probed::Again => {
                let reason = "it refuses the revision that it says it supports".to_owned();
                self.refusal.get_or_insert(reason);
                self.next_step()
            }
            Probed::Refused(refusal) => {
                let reason = format!("its response to server/discover: {refusal}");
                self.refusal.get_or_insert(reason);
                self.next_step()
            }
        }
    }

    /// Handles the response to `initialize`.
    fn greeted(&mut self, connection: &Connection, own: &[u8], reply: &Reply) -> Step {
        self.greeting = None;
        let refusal = match reply {
            Reply::Result(result) => match handshake::opened(result) {
                Ok(peer) => return Step::Go(Box::new(peer)),
                Err(refusal) => refusal.to_string(),
            },
            Reply::Error(error) => handshake::refused(error).to_string(),
            Reply::Malformed(defect) => {
                format!("its response to initialize is malformed: {defect}")
            }
            Reply::Oversize(bytes) => format!("its response to initialize has {bytes} bytes"),
            Reply::Broke { fact, .. } => return Step::Lost(fact.clone()),
        };
        self.refusal = Some(refusal);
        if !self.probed && matches!(reply, Reply::Error(_)) {
            // The cached era is outdated.
            self.probe(connection, own);
        }
        self.next_step()
    }

    /// Whether anything is left to wait for.
    fn next_step(&mut self) -> Step {
        if self.probe.is_some() || self.greeting.is_some() {
            return Step::Wait;
        }
        Step::Fail(self.refusal.take().unwrap_or_else(|| "it refused both handshakes".to_owned()))
    }
}

/// Whether an error is independent of the request that hit it.
fn is_conclusive(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::LoginNeeded { .. }
            | Fact::Limited { .. }
            | Fact::Unreachable { .. }
            | Fact::Insecure { .. }
            | Fact::Astray { .. }
            | Fact::HttpStatus { status: 401 | 403 }
    )
}

async fn next(waiting: &mut Waiting) -> Result<Reply, oneshot::error::RecvError> {
    match waiting {
        Some(receiver) => receiver.await,
        None => std::future::pending().await,
    }
}

fn ready(router: &Arc<Router>, connection: &Arc<Connection>, peer: Peer) {
    let stateless = peer.era.is_stateless();
    tracing::info!(
        "server {:?} is ready: {} {} ({})",
        connection.name,
        peer.name,
        peer.version,
        peer.era
    );
    // Set once: a second response belongs to no request.
    drop(connection.peer.set(peer));
    if stateless {
        let notifies = |list: &List| {
            let peer = connection.peer.get();
            peer.is_some_and(|peer| peer.can_also(list.capability(), "listChanged"))
        };
        let wanted: Vec<String> = List::ALL
            .into_iter()
            .filter(notifies)
            .map(|list| format!("\"{}ListChanged\":true", list.capability()))
            .collect();
        if !wanted.is_empty() {
            // Its response is the end of the subscription, which comes with the end of the process.
            let wanted = format!("{{\"notifications\":{{{}}}}}", wanted.join(","));
            drop(connection.ask("subscriptions/listen", wanted.as_bytes()));
        }
    } else {
        connection.notify("notifications/initialized", None);
        router.repeat_level(connection);
    }
    router.introduced(connection);
    let now = router.clock.now();
    connection.is_ready(now);
    router.with(|dispatch, effects| dispatch.connected(connection.id, now, effects));
}
