//! The Streamable HTTP transport: each message is an HTTP request, answered by a document or an event stream.
//! Owns: falling back to `sse`, if the configuration does not say which of the two it is.      Never: posts itself; `remote` does.
//! In: messages from the connection's outbox.  Out: what the server sends; why the connection ended.
//! Tests: `metamcp/tests/remote/`.

use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::failure::Fact;
use metamcp_config::config::RemoteEndpoint;
use metamcp_types::escalation::Escalation;
use metamcp_wire::era::Era;

use super::era_cache::ServerProtocol;
use super::remote::{self, Remote};
use super::transport::{Boxed, Surroundings, Transport};
use super::{Connection, Listener};

#[derive(Debug)]
pub struct Http(Arc<Remote>);

impl Http {
    /// Sends nothing yet.
    pub fn new(
        name: &str,
        endpoint: &RemoteEndpoint,
        surroundings: Surroundings<'_>,
    ) -> Result<Http, Fact> {
        Remote::new(name, endpoint, surroundings).map(|remote| Http(Arc::new(remote)))
    }
}

impl Transport for Http {
    fn serve<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        listener: &'a Arc<dyn Listener>,
    ) -> Boxed<'a, Option<Fact>> {
        Box::pin(self.0.serve(connection, listener, std::future::ready(Ok(()))))
    }

    fn ended(&self) -> Boxed<'_, ()> {
        Box::pin(self.0.end())
    }

    fn close(&self, _escalation: Escalation) -> Boxed<'_, ()> {
        self.0.stop(true);
        Box::pin(std::future::ready(()))
    }

    fn kill(&self) {
        self.0.stop(false);
    }

    fn probe_patience(&self) -> Duration {
        remote::PROBE_TIMEOUT
    }

    /// The configuration decides; a cached guess from before it said so does not count.
    fn begins_with(&self, last_time: Option<ServerProtocol>) -> Option<ServerProtocol> {
        last_time.filter(|protocol| *protocol != ServerProtocol::Sse)
    }

    fn spoke(&self, era: Era) -> ServerProtocol {
        if self.0.is_sse() { ServerProtocol::Sse } else { ServerProtocol::of(era) }
    }

    fn repeats_arguments_in_headers(&self) -> bool {
        true
    }
}
