//! Sub-requests on behalf of a client's request: by a script, by the steps of a chain, to compose a list.
//! Owns: which task waits for which response.      Never: calls a server but through the router.
//! In: requests, or tool calls by name.  Out: responses, here; logs and server requests meanwhile, to the client.
//! Tests: `metamcp/tests/{surface,hazards}`.

mod progress;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use metamcp_wire::trace_context::TraceContext;
use metamcp_wire::write;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

use super::call::{Dispatched, RawCall, Rejected};
use super::reply::{Code, ErrorObject};
use super::{Finished, View};
use crate::observe::Origin;
use crate::router::{CallOutcome, Caller, Responder, Router, UpstreamRequest};
pub(super) use progress::Progress;

/// Where the client asked for progress its calls do, and progress extends their timeout; all share one token. Otherwise
/// they ask for none: there are servers whose tools fail with it.
const META: &[u8] = br#"{"progressToken":"within"}"#;

/// See the module. Toward the router all of them have this one caller.
pub(super) struct SubRequests {
    /// The caller of the client's own request.
    parent: Caller,
    origin: Origin,
    /// Combines their progress; without it the progress of each is forwarded unchanged.
    progress: Option<Arc<Progress>>,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    last: u64,
    answers: HashMap<Bytes, oneshot::Sender<CallOutcome>>,
}

impl SubRequests {
    pub(super) fn new(parent: &Caller) -> Arc<SubRequests> {
        let (parent, origin) = (parent.clone(), parent.origin);
        Arc::new(SubRequests { parent, origin, progress: None, waiting: Mutex::default() })
    }

    /// As parts of something with a progress of its own: a script or a chain.
    pub(super) fn within(progress: &Arc<Progress>, origin: Origin) -> Arc<SubRequests> {
        let (parent, progress) = (progress.parent().clone(), Some(Arc::clone(progress)));
        Arc::new(SubRequests { parent, origin, progress, waiting: Mutex::default() })
    }

    /// The same, made at another place in a trace than the client's request.
    pub(super) fn traced(
        progress: &Arc<Progress>,
        origin: Origin,
        place: Option<Arc<TraceContext>>,
    ) -> Arc<SubRequests> {
        let mut parent = progress.parent().clone();
        parent.trace = place.or(parent.trace);
        let progress = Some(Arc::clone(progress));
        Arc::new(SubRequests { parent, origin, progress, waiting: Mutex::default() })
    }

    /// Makes a request and waits. Dropped before, it is cancelled.
    pub(super) async fn send(
        self: &Arc<Self>,
        router: &Router,
        request: UpstreamRequest,
    ) -> CallOutcome {
        let pending = self.begin(router);
        router.call(request, pending.caller());
        pending.answer().await
    }

    /// Calls a tool, as `mcp_call` would, and waits for its result. Dropped before, the call is cancelled.
    pub(super) async fn call_tool(
        self: &Arc<Self>,
        view: &View,
        by: &'static str,
        (server, tool): (Option<&str>, &str),
        arguments: &Bytes,
    ) -> Result<Bytes, ErrorObject> {
        let raw_call = RawCall {
            by,
            server: server.map(str::to_owned),
            tool: tool.to_owned(),
            args: Some(arguments),
            meta: self.wants_progress().then_some(META),
        };
        let caller = self.parent.by(self.origin);
        let call_request = match view.resolve_call(&raw_call, arguments, &caller) {
            Ok(call_request) => call_request,
            Err(Rejected::Invalid(message)) => {
                return Err(ErrorObject::new(Code::ValidationInput, message));
            }
            Err(Rejected::Refused(refused)) => return Err(*refused),
            Err(Rejected::BuiltIn(call)) => {
                return match view.call_built_in(&call).await {
                    Finished::Result(result) => Ok(Bytes::from(result)),
                    Finished::Refused(refused) => Err(*refused),
                    Finished::Protocol { message, .. } => {
                        Err(ErrorObject::new(Code::ValidationInput, message))
                    }
                    Finished::Dispatched => Err(cancelled()),
                };
            }
        };
        let (entry, tool) = (call_request.entry.clone(), Arc::clone(&call_request.tool));
        let pending = self.begin(&view.surface.router);
        match view.begin(call_request, pending.caller()) {
            Dispatched::Sent => {}
            Dispatched::Refused(refused) => return Err(*refused),
            Dispatched::Later(later) => later.await?,
        }
        match pending.answer().await {
            CallOutcome::Result(result) => Ok(match write::one_line(&result) {
                Cow::Borrowed(_) => result,
                Cow::Owned(joined) => Bytes::from(joined),
            }),
            CallOutcome::Failed(error) => Err(ErrorObject::from_call(&error, Some(&entry.config))),
            CallOutcome::Cancelled => Err(cancelled().at(&entry.name, Some(&tool))),
        }
    }

    fn wants_progress(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| progress.is_followed())
    }

    fn begin<'a>(self: &'a Arc<Self>, router: &'a Router) -> PendingAnswer<'a> {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.lock();
        waiting.last += 1;
        let tag = Bytes::from(waiting.last.to_string());
        waiting.answers.insert(tag.clone(), answer);
        PendingAnswer { router, sub_requests: self, tag, answered }
    }

    fn responder(self: &Arc<Self>) -> Arc<dyn Responder> {
        Arc::clone(self) as Arc<dyn Responder>
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock()
    }
}

fn cancelled() -> ErrorObject {
    ErrorObject::new(Code::Cancelled, "the call was cancelled")
        .hint("It may have run all the same: verify before repeating it.")
}

/// A sub-request in flight. Dropping it cancels the request if it has no response yet.
struct PendingAnswer<'a> {
    router: &'a Router,
    sub_requests: &'a Arc<SubRequests>,
    tag: Bytes,
    answered: oneshot::Receiver<CallOutcome>,
}

impl PendingAnswer<'_> {
    /// Its response comes here, everything else goes to the client.
    fn caller(&self) -> Caller {
        Caller {
            responder: self.sub_requests.responder(),
            tag: self.tag.clone(),
            origin: self.sub_requests.origin,
            arrived: None,
            ..self.sub_requests.parent.clone()
        }
    }

    async fn answer(mut self) -> CallOutcome {
        (&mut self.answered).await.unwrap_or(CallOutcome::Cancelled)
    }
}

impl Drop for PendingAnswer<'_> {
    fn drop(&mut self) {
        let unanswered = self.sub_requests.lock().answers.remove(&self.tag);
        if unanswered.is_some() {
            self.router.cancel(&self.sub_requests.responder(), &self.tag);
        }
    }
}

impl Responder for SubRequests {
    fn respond(&self, tag: &Bytes, outcome: CallOutcome) {
        let waiting = self.lock().answers.remove(tag);
        if let Some(waiting) = waiting {
            // The waiting task may have just ended.
            drop(waiting.send(outcome));
        }
    }

    fn progress(&self, _tag: &Bytes, params: &[u8]) {
        match &self.progress {
            Some(whole) => whole.part_moved(params),
            None => self.parent.responder.progress(&self.parent.tag, params),
        }
    }
}
