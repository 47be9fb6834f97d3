//! What every way to a server has in common, and which one a server's configuration means.
//! Owns: the trait, the choice.      Never: knows pipes or HTTP; a transport is a file of its own beside this one.
//! In: a server's configuration, its protocol last time.  Out: an `Arc<dyn Transport>`, which a `Connection` holds.
//! Tests: below; each transport has its own.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::failure::Fact;
use metamcp_child::StderrTail;
use metamcp_config::config::{self, HttpKind, ServerConfig};
use metamcp_wire::era::Era;

use super::era_cache::ServerProtocol;
use super::http::Http;
use super::launch::Launcher;
use super::remote::Mirrors;
use super::sse::Sse;
use super::stdio::Stdio;
use super::{Connection, Listener};
use crate::clock::Clock;

/// What a transport takes its time for. Once per connection; no message is boxed.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One way to one server, for the length of one connection. Messages are not handed to it one by one: it takes them from
/// the connection's outbox, into which they are written in the order that was decided.
pub trait Transport: fmt::Debug + Send + Sync {
    /// Carries messages both ways until the server is lost, and says why, or until it was told to end. Called once.
    fn serve<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        listener: &'a Arc<dyn Listener>,
    ) -> Boxed<'a, Option<Fact>>;

    /// Waits until nothing of it is left, once it is lost or told to end.
    fn ended(&self) -> Boxed<'_, ()>;

    /// Ends it in good order: a process by the shutdown escalation, a session by telling its server.
    fn close(&self) -> Boxed<'_, ()>;

    /// Ends it at once.
    fn kill(&self);

    /// How long the probe for its era may go unanswered before `initialize` is sent behind it.
    fn probe_patience(&self) -> Duration;

    /// Which protocol to begin with, given the one it spoke last time; `None` if it has to be probed.
    fn begins_with(&self, last_time: Option<ServerProtocol>) -> Option<ServerProtocol> {
        last_time
    }

    /// What to remember for the next time, after a handshake that led to this era.
    fn spoke(&self, era: Era) -> ServerProtocol {
        ServerProtocol::of(era)
    }

    /// Whether a server that dies of the probe, or hangs after it, can be started once more.
    fn is_restartable(&self) -> bool {
        false
    }

    /// A number that moves while a server that has not answered yet shows signs of life.
    fn activity(&self) -> u64 {
        0
    }

    /// What the server wrote beside the protocol.
    fn stderr(&self) -> StderrTail {
        StderrTail::default()
    }

    /// Whether calls of the stateless era repeat parts of their arguments in headers, which not every tool allows.
    fn repeats_arguments_in_headers(&self) -> bool {
        false
    }
}

/// What a transport needs beside the configuration of its server.
pub struct Surroundings<'a> {
    /// What all connections share.
    pub launcher: &'a Launcher,
    /// The time, for those who wait.
    pub clock: Clock,
    /// The longest message a server may send.
    pub line_bytes: usize,
    /// What its tools want in headers.
    pub mirrors: Mirrors,
}

/// Starts the server or finds the way to it, by the transport that its configuration means. The only place that knows
/// all of them. Where the configuration leaves open which HTTP transport it is, the one that worked last time is taken.
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
    fn the_older_http_transport_is_chosen_by_the_file_and_then_by_experience() {
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
