//! The HTTP+SSE transport of 2024: one event stream for everything the server sends, and an address to post to, which the
//! stream names.
//! Owns: that stream, where to post.      Never: keeps sessions; posts differently from `http`, with which it shares `remote`.
//! In: messages from the connection's outbox.  Out: what the server sends; why the connection ended, as it does with its stream.
//! Tests: `metamcp/tests/remote/`.

use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::failure::Fact;
use metamcp_config::config::RemoteEndpoint;
use metamcp_types::escalation::Escalation;
use metamcp_wire::era::Era;
use metamcp_wire::sse::{Event, Events};
use tokio::time::timeout;

use super::era_cache::ServerProtocol;
use super::remote::{
    self, Broken, End, Remote, ResumePoint, fresh_token_refused, is_stream, next_data,
};
use super::transport::{Boxed, Surroundings, Transport};
use super::{Connection, Listener};
use crate::task;

/// How long the server may take to name the address.
const ENDPOINT_TIMEOUT: Duration = Duration::from_secs(15);
/// Longest event before that.
const MAX_ENDPOINT: usize = 64 * 1024;

#[derive(Debug)]
pub struct Sse(Arc<Remote>);

impl Sse {
    /// Sends nothing yet.
    pub fn new(
        name: &str,
        endpoint: &RemoteEndpoint,
        surroundings: Surroundings<'_>,
    ) -> Result<Sse, Fact> {
        Remote::new(name, endpoint, surroundings).map(|remote| Sse(Arc::new(remote)))
    }
}

impl Transport for Sse {
    fn serve<'a>(
        &'a self,
        connection: &'a Arc<Connection>,
        listener: &'a Arc<dyn Listener>,
    ) -> Boxed<'a, Option<Fact>> {
        Box::pin(self.0.serve(connection, listener, async {
            open_stream(&self.0, connection, listener).await.map_err(|broken| broken.fact)
        }))
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

    /// It is older than the stateless era, so it is not probed for it.
    fn begins_with(&self, _last_time: Option<ServerProtocol>) -> Option<ServerProtocol> {
        Some(ServerProtocol::Sse)
    }

    fn spoke(&self, _era: Era) -> ServerProtocol {
        ServerProtocol::Sse
    }

    fn repeats_arguments_in_headers(&self) -> bool {
        true
    }
}

/// Opens the stream, reads where to post to, and switches `remote` to it. The connection ends with the stream.
pub(super) async fn open_stream(
    remote: &Arc<Remote>,
    connection: &Arc<Connection>,
    listener: &Arc<dyn Listener>,
) -> Result<(), Broken> {
    let opening = async {
        let mut logged_in = false;
        let post_response = loop {
            let post_response = remote.fetch_stream(connection, None).await?;
            if is_stream(&post_response.response) {
                break post_response;
            }
            let status = post_response.response.status().as_u16();
            if status != 401 {
                return Err(Broken::refused(remote.fact_of(status, &post_response.response)));
            }
            if std::mem::replace(&mut logged_in, true) {
                return Err(Broken::refused(fresh_token_refused()));
            }
            remote.login(&post_response).await?;
        };
        let mut body = post_response.response.into_body();
        let mut events = Events::new(MAX_ENDPOINT);
        while let Some(data) = next_data(&mut body, None).await {
            events.push(&data);
            while let Some(event) = events.next_event() {
                if let Event::Message { kind, data } = event
                    && kind == "endpoint"
                {
                    return Ok((String::from_utf8_lossy(&data).into_owned(), body));
                }
            }
        }
        Err(Broken::refused(Fact::StreamDropped))
    };
    let (endpoint, body) = match timeout(ENDPOINT_TIMEOUT, opening).await {
        Ok(opened) => opened?,
        Err(_) => return Err(Broken::refused(Fact::StartTimedOut { after: ENDPOINT_TIMEOUT })),
    };
    let home = remote.address();
    let place = home.join(&endpoint).ok();
    // Another host would receive our credentials.
    let place = place.filter(|place| place.is_same_origin(home)).ok_or_else(|| {
        let reason = "its endpoint event names another host".to_owned();
        Broken::refused(Fact::Astray { reason })
    })?;
    let (heard, connection) = (Arc::clone(remote), Arc::clone(connection));
    let listener = Arc::clone(listener);
    let listening = task::spawn("events", async move {
        let mut place = ResumePoint::default();
        let end = heard.follow(&connection, &*listener, None, body, None, &mut place).await;
        heard.lose(match end {
            End::Garbage(lines) => Fact::Garbage { lines },
            End::Oversize(bytes) => Fact::Oversize { bytes },
            End::Answered | End::Dropped => Fact::StreamDropped,
        });
    });
    remote.posts_to(place, listening.abort_handle());
    Ok(())
}
