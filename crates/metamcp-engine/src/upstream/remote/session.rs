//! The session of a server that shakes hands: kept from its first answer on, and begun anew when the server forgot it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::Response;
use hyper::body::Incoming;
use metamcp_calls::failure::Fact;
use metamcp_wire::envelope::Envelope;
use metamcp_wire::handshake;
use tokio::time::timeout;

use super::Remote;
use super::exchange::{Kind, kind_of};
use super::message::Message;
use super::post::{Broken, SESSION};
use crate::upstream::{Connection, Listener};
use crate::web;

/// How long a second handshake may take.
const RENEWAL: Duration = Duration::from_secs(30);
/// Longest id of a session: it goes back with every request.
const MAX_ID: usize = 1024;

const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

impl Remote {
    /// Keeps the session that a response to `initialize` names.
    pub(super) fn keep_session(&self, response: &Response<Incoming>) {
        let id = response.headers().get(SESSION).filter(|id| id.len() <= MAX_ID).cloned();
        let mut state = self.state();
        state.generation += 1;
        state.session = id;
    }

    /// Shakes hands anew, once for all who found the session of that number forgotten.
    pub(super) async fn renew(
        self: &Arc<Self>,
        connection: &Arc<Connection>,
        listener: &Arc<dyn Listener>,
        forgotten: u64,
    ) -> Result<(), Broken> {
        let _turn = self.renewing.lock().await;
        let greeting = {
            let state = self.state();
            if state.generation != forgotten {
                return Ok(());
            }
            state.greeting.clone()
        };
        let gone = || Broken::refused(Fact::HttpStatus { status: 404 });
        let greeting = greeting.ok_or_else(gone)?;
        let renewal = async {
            let post_response = self.post(connection, &greeting).await?;
            let status = post_response.response.status().as_u16();
            if status != 200 {
                return Err(Broken::refused(Fact::HttpStatus { status }));
            }
            self.keep_session(&post_response.response);
            let result = self.first_result(post_response.response).await.ok_or_else(gone)?;
            handshake::opened(&result).map_err(|refusal| {
                Broken::refused(Fact::HandshakeRefused { reason: refusal.to_string() })
            })?;
            let done = Message::plain(Bytes::from_static(INITIALIZED), "notifications/initialized");
            self.tell(connection, &done).await
        };
        let renewed = timeout(RENEWAL, renewal)
            .await
            .unwrap_or_else(|_| Err(Broken::refused(Fact::StartTimedOut { after: RENEWAL })));
        renewed?;
        self.listen(connection, listener);
        listener.on_session_renewed(connection);
        Ok(())
    }

    /// The result in a response, whatever form it has.
    async fn first_result(&self, response: Response<Incoming>) -> Option<Bytes> {
        let kind = kind_of(&response);
        let result_of = |document: &Bytes| match Envelope::parse(document) {
            Ok(Envelope::Result { result, .. }) => Some(document.slice_ref(result)),
            _ => None,
        };
        match kind {
            Kind::Document => {
                let document = web::whole(response.into_body(), self.site.line_bytes).await.ok()?;
                result_of(&document)
            }
            Kind::Stream => {
                let mut found = None;
                self.read_events(response.into_body(), None, |event| {
                    found = result_of(event);
                    found.is_some()
                })
                .await;
                found
            }
            Kind::Nothing | Kind::Other(_) => None,
        }
    }

    /// Sends something that has no answer; the error says that it was not taken.
    pub(super) async fn tell(
        &self,
        connection: &Connection,
        message: &Message,
    ) -> Result<(), Broken> {
        let post_response = self.post(connection, message).await?;
        let status = post_response.response.status();
        if status.is_success() {
            return Ok(());
        }
        Err(Broken::refused(Fact::HttpStatus { status: status.as_u16() }))
    }
}
