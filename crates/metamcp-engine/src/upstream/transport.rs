//! What all transports have in common, and the choice between them.
//! Owns: the trait, the choice.      Never: knows pipes or HTTP; each transport has its own file beside this one.
//! In: a server's configuration, its protocol last time.  Out: an `Arc<dyn Transport>`, which a `Connection` holds.
//! Tests: below; each transport has its own.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::failure::Fact;
use metamcp_child::StderrTail;
use metamcp_config::config::{self, HttpKind, ServerConfig};
use metamcp_types::escalation::Escalation;
use metamcp_wire::era::Era;

use super::era_cache::ServerProtocol;
use super::http::Http;
use super::launch::Launcher;
use super::openapi::OpenApi;
use super::remote::Mirrors;
use super::sse::Sse;
use super::stdio::Stdio;
use super::{Connection, Listener};
use crate::clock::Clock;

/// A future of a transport. Boxed once per connection, not per message.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One transport to one server, for one connection. Messages are not passed to it one by one: it takes them from the
/// connection's outbox, which keeps them in order.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Carries messages both ways until the connection is lost, and returns why, or until it is closed. Called once.
    fn serve<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        listener: &'a Arc<dyn Listener>,
    ) -> Boxed<'a, Option<Fact>>;

    /// Waits until nothing of it is left, after it was lost or closed.
    fn ended(&self) -> Boxed<'_, ()>;

    /// Shuts it down in good order: a process by this escalation, a session by deleting it.
    fn close(&self, escalation: Escalation) -> Boxed<'_, ()>;

    fn kill(&self);

    /// How long the probe for its era may go unanswered before `initialize` is sent after it.
    fn probe_patience(&self) -> Duration;

    /// The protocol to begin with, given the one it spoke last time; `None` if it has to be probed.
    fn begins_with(&self, last_time: Option<ServerProtocol>) -> Option<ServerProtocol> {
        last_time
    }

    /// The protocol to remember after a handshake in this era.
    fn spoke(&self, era: Era) -> ServerProtocol {
        ServerProtocol::of(era)
    }

    /// Whether a server that crashes or hangs on the probe can be started once more.
    fn is_restartable(&self) -> bool {
        false
    }

    /// A counter that changes while a server that has not answered yet shows activity.
    fn activity(&self) -> u64 {
        0
    }

    /// Its process, where it has one.
    fn pid(&self) -> Option<u32> {
        None
    }

    fn stderr(&self) -> StderrTail {
        StderrTail::default()
    }

    /// Whether calls of the stateless era repeat arguments in headers, which not every tool allows.
    fn repeats_arguments_in_headers(&self) -> bool {
        false
    }
}

/// What a transport needs beside the configuration of its server.
pub struct Surroundings<'a> {
    pub launcher: &'a Launcher,
    pub clock: Clock,
    pub line_bytes: usize,
    pub mirrors: Mirrors,
    /// Whose folder and variables a local server gets, if not the gateway's own.
    pub client: Option<&'a crate::env::Surroundings>,
}

/// Starts the server or connects to it, over the transport that its configuration names. The only place that knows all of
/// them. If the configuration leaves open which HTTP transport it is, the one that worked last time is used.
pub async fn open(
    config: &ServerConfig,
    last_time: Option<ServerProtocol>,
    surroundings: Surroundings<'_>,
) -> Result<Arc<dyn Transport>, Fact> {
    Ok(match &config.transport {
        config::Transport::Stdio(local) => {
            Arc::new(Stdio::start(config, local, &surroundings).await?)
        }
        config::Transport::Http(endpoint) if is_sse(endpoint.kind, last_time) => {
            Arc::new(Sse::new(&config.name, endpoint, surroundings)?)
        }
        config::Transport::Http(endpoint) => {
            Arc::new(Http::new(&config.name, endpoint, surroundings)?)
        }
        config::Transport::OpenApi(endpoint) => {
            Arc::new(OpenApi::open(&config.name, endpoint, surroundings).await?)
        }
    })
}

fn is_sse(kind: HttpKind, last_time: Option<ServerProtocol>) -> bool {
    match kind {
        HttpKind::Sse => true,
        HttpKind::Streamable => false,
        HttpKind::Either => last_time == Some(ServerProtocol::Sse),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sse_transport_is_chosen_by_the_configuration_and_then_by_the_cache() {
        let (sse, other) = (Some(ServerProtocol::Sse), Some(ServerProtocol::Initialize));
        for (kind, last_time, expected) in [
            (HttpKind::Sse, None, true),
            (HttpKind::Sse, other, true),
            (HttpKind::Streamable, sse, false),
            (HttpKind::Streamable, None, false),
            (HttpKind::Either, None, false),
            (HttpKind::Either, other, false),
            (HttpKind::Either, sse, true),
        ] {
            assert_eq!(is_sse(kind, last_time), expected, "{kind:?} {last_time:?}");
        }
    }
}
