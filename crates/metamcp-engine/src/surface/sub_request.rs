//! A request made on behalf of a client's: its answer comes back here, everything else of it goes to the client.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use metamcp_calls::pool::ConnId;
use serde_json::Value;
use tokio::sync::oneshot;

use super::Surface;
use crate::router::{CallOutcome, Caller, ServerRequest, UpstreamRequest};

/// Whose request it is made for.
#[derive(Clone)]
pub(super) struct Client {
    pub(super) caller: Arc<dyn Caller>,
    /// The tag of its own request.
    pub(super) tag: Bytes,
}

impl Client {
    pub(super) fn new(caller: &Arc<dyn Caller>, tag: &Bytes) -> Client {
        Client { caller: Arc::clone(caller), tag: tag.clone() }
    }
}

/// Makes the request and waits. Dropped before, it is called off.
pub(super) async fn run(
    surface: &Surface,
    request: UpstreamRequest,
    client: &Client,
) -> CallOutcome {
    let (answer, answered) = oneshot::channel();
    let sub_request =
        Arc::new(SubRequest { client: client.clone(), answer: Mutex::new(Some(answer)) });
    let caller: Arc<dyn Caller> = Arc::clone(&sub_request) as Arc<dyn Caller>;
    let _under_way = UnderWay { surface, sub_request };
    surface.router.call(request, caller, client.tag.clone());
    answered.await.unwrap_or(CallOutcome::Cancelled)
}

struct UnderWay<'a> {
    surface: &'a Surface,
    sub_request: Arc<SubRequest>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.sub_request.taken().is_some() {
            let caller: Arc<dyn Caller> = Arc::clone(&self.sub_request) as Arc<dyn Caller>;
            self.surface.router.cancel_all(&caller);
        }
    }
}

struct SubRequest {
    client: Client,
    answer: Mutex<Option<oneshot::Sender<CallOutcome>>>,
}

impl SubRequest {
    fn taken(&self) -> Option<oneshot::Sender<CallOutcome>> {
        self.answer.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take()
    }
}

impl Caller for SubRequest {
    fn answer(&self, _tag: &Bytes, outcome: CallOutcome) {
        if let Some(answer) = self.taken() {
            // Nobody waits any more when the client has just called it off.
            drop(answer.send(outcome));
        }
    }

    fn progress(&self, _tag: &Bytes, params: &[u8]) {
        self.client.caller.progress(&self.client.tag, params);
    }

    fn log(&self, _tag: Option<&Bytes>, params: &[u8]) {
        self.client.caller.log(Some(&self.client.tag), params);
    }

    fn ask(
        &self,
        _tag: Option<&Bytes>,
        server_request: ServerRequest,
    ) -> Result<(), ServerRequest> {
        self.client.caller.ask(Some(&self.client.tag), server_request)
    }

    fn cancel_ask(&self, conn: ConnId, id: Option<&[u8]>) {
        self.client.caller.cancel_ask(conn, id);
    }

    fn capabilities(&self) -> Value {
        self.client.caller.capabilities()
    }

    fn client(&self) -> usize {
        self.client.caller.client()
    }
}
