//! The session of a server with a handshake: its id, and a new one when the server has lost it.

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

/// Time limit of a second handshake.
const RENEWAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest session id: it is sent with every request.
const MAX_ID: usize = 1024;

const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

impl Remote {
    /// Stores the session id of an `initialize` response.
    pub(super) fn store_session(&self, response: &Response<Incoming>) {
        let id = response.headers().get(SESSION).filter(|id| id.len() <= MAX_ID).cloned();
        let mut state = self.state();
        state.generation += 1;
        state.session = id;
    }

    /// Begins a new session, once for all requests that found this generation lost.
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
            self.store_session(&post_response.response);
            let result = self.first_result(post_response.response).await.ok_or_else(gone)?;
            handshake::opened(&result).map_err(|refusal| {
                Broken::refused(Fact::HandshakeRefused { reason: refusal.to_string() })
            })?;
            let done = Message::plain(Bytes::from_static(INITIALIZED), "notifications/initialized");
            self.tell(connection, &done).await
        };
        let renewed = timeout(RENEWAL_TIMEOUT, renewal).await.unwrap_or_else(|_| {
            Err(Broken::refused(Fact::StartTimedOut { after: RENEWAL_TIMEOUT }))
        });
        renewed?;
        self.listen(connection, listener);
        listener.on_session_renewed(connection);
        Ok(())
    }

    /// The result in a response, as document or stream.
    async fn first_result(&self, response: Response<Incoming>) -> Option<Bytes> {
        let kind = kind_of(&response);
        let result_of = |document: &Bytes| match Envelope::parse(document) {
            Ok(Envelope::Result { result, .. }) => Some(document.slice_ref(result)),
            _ => None,
        };
        match kind {
            Kind::Document => {
                let document =
                    web::read_body(response.into_body(), self.site.line_bytes).await.ok()?;
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

    /// Sends a message that has no response; the error says that it was not accepted.
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
