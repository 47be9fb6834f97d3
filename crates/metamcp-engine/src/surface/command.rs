//! One call of the gateway's own tools by a command, without a client: it has no progress and declines server requests.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_calls::pool::{ConnId, ServerId};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::oneshot;

use super::reply::ErrorObject;
use super::{Finished, Step, View};
use crate::observe::{ClientLink, Identity, Origin};
use crate::router::{CallOutcome, Caller, Client, Responder, Router, ServerRequest};

/// Identifies the one call.
const TAG: &[u8] = b"1";

impl View {
    /// Makes a `tools/call` with these params, and waits for its outcome.
    pub async fn call_for_command(&self, params: &Value) -> Finished {
        self.call_as(Identity::owner(), params).await
    }

    /// The same on behalf of this identity.
    pub async fn call_as(&self, identity: Identity, params: &Value) -> Finished {
        let (answer, answered) = oneshot::channel();
        let command =
            Arc::new(Command { identity: Arc::new(identity), answer: Mutex::new(Some(answer)) });
        let client: Arc<dyn Client> = Arc::clone(&command) as Arc<dyn Client>;
        self.surface.router.attach(&client);
        let caller = Caller {
            responder: command,
            tag: Bytes::from_static(TAG),
            client,
            request: Bytes::from_static(TAG),
            origin: Origin::Command,
            arrived: None,
            trace: None,
        };
        // The command may be given up: its shell is gone, and what it asked for goes with it.
        let _cancel = CancelOnDrop(Arc::clone(&self.surface.router), Arc::clone(&caller.responder));
        let line = Bytes::from(params.to_string());
        let finished = match self.call(Some(&line), &line, caller) {
            Step::Now(finished) => finished,
            Step::Dispatched => Finished::Dispatched,
            Step::Later(later) => later.await,
            Step::Running(running) => running.future.await,
        };
        if !matches!(finished, Finished::Dispatched) {
            return finished;
        }
        match answered.await {
            Ok(CallOutcome::Result(result)) => Finished::Result(result.to_vec()),
            Ok(CallOutcome::Failed(error)) => {
                let entry = self.any_server(&error.server);
                let config = entry.as_ref().map(|entry| &*entry.config);
                Finished::Refused(Box::new(ErrorObject::from_call(&error, config)))
            }
            Ok(CallOutcome::Cancelled) | Err(_) => Finished::Dispatched,
        }
    }
}

/// Cancels the calls of a command that is dropped before its answer; after it there are none.
struct CancelOnDrop(Arc<Router>, Arc<dyn Responder>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel_all(&self.1);
    }
}

struct Command {
    identity: Arc<Identity>,
    answer: Mutex<Option<oneshot::Sender<CallOutcome>>>,
}

impl Responder for Command {
    fn respond(&self, _tag: &Bytes, outcome: CallOutcome) {
        let answer = self.answer.lock().take();
        if let Some(answer) = answer {
            // The receiver waits for exactly this.
            drop(answer.send(outcome));
        }
    }

    fn progress(&self, _tag: &Bytes, _params: &[u8]) {}
}

impl Client for Command {
    fn identity(&self) -> Arc<Identity> {
        Arc::clone(&self.identity)
    }

    fn link(&self) -> ClientLink {
        ClientLink::default()
    }

    /// It answers no server request.
    fn uses(&self, _server: ServerId) -> bool {
        false
    }

    fn capabilities(&self) -> Value {
        Value::Null
    }

    fn log(&self, _request: Option<&Bytes>, _params: &[u8]) {}

    fn ask(
        &self,
        _request: Option<&Bytes>,
        server_request: ServerRequest,
    ) -> Result<(), ServerRequest> {
        Err(server_request)
    }

    fn cancel_ask(&self, _conn: ConnId, _id: Option<&[u8]>) {}
}
