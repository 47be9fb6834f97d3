//! The transport of 2024: one stream for everything the server says, and a place to post to that the stream names.

use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::failure::Fact;
use metamcp_wire::sse::{Event, Events};
use tokio::time::timeout;

use super::Remote;
use super::exchange::not_even_fresh;
use super::post::Broken;
use super::stream::{End, Place, is_stream, next_data};
use crate::task;
use crate::upstream::{Connection, Listener};

/// How long the server may take to name the place.
const ENDPOINT: Duration = Duration::from_secs(15);
/// Longest event that may come before it does.
const MAX_ENDPOINT: usize = 64 * 1024;

impl Remote {
    /// Opens the stream and learns where to post to. The connection is lost with the stream.
    pub(super) async fn open_stream(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        listener: &Arc<dyn Listener>,
    ) -> Result<(), Broken> {
        let opening = async {
            let mut logged_in = false;
            let post_response = loop {
                let post_response = self.fetch_stream(connection, None).await?;
                if is_stream(&post_response.response) {
                    break post_response;
                }
                let status = post_response.response.status().as_u16();
                if status != 401 {
                    return Err(Broken::refused(self.fact_of(status, &post_response.response)));
                }
                if std::mem::replace(&mut logged_in, true) {
                    return Err(Broken::refused(not_even_fresh()));
                }
                self.login(&post_response).await?;
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
        let (endpoint, body) = match timeout(ENDPOINT, opening).await {
            Ok(opened) => opened?,
            Err(_) => return Err(Broken::refused(Fact::StartTimedOut { after: ENDPOINT })),
        };
        let place = self.site.address.join(&endpoint).ok();
        // Anywhere else our credentials would go to somebody else.
        let place =
            place.filter(|place| place.is_same_origin(&self.site.address)).ok_or_else(|| {
                let reason = "it names another host as the place to post to".to_owned();
                Broken::refused(Fact::Astray { reason })
            })?;
        let (remote, connection) = (Arc::clone(self), Arc::clone(connection));
        let listener = Arc::clone(listener);
        let listening = task::spawn("events", async move {
            let mut place = Place::default();
            let end = remote.follow(&connection, &*listener, None, body, None, &mut place).await;
            remote.lose(match end {
                End::Garbage(lines) => Fact::Garbage { lines },
                End::Oversize(bytes) => Fact::Oversize { bytes },
                End::Answered | End::Dropped => Fact::StreamDropped,
            });
        });
        let mut state = self.state();
        state.endpoint = Some(place);
        state.listening = Some(listening.abort_handle());
        Ok(())
    }
}
