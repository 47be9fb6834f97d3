//! Who makes a call: what takes its response, and the client behind it. For a client's own call both are its session;
//! for a call of a script or a chain the response goes to that, and everything else to the client.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_types::moment::Moment;
use metamcp_types::text;
use metamcp_wire::object;
use metamcp_wire::trace_context::TraceContext;
use serde_json::Value;

use super::{CallOutcome, Input, ServerRequest};
use crate::observe::{CallTrace, ClientLink, Identity, Origin, Tracer};

/// Longest id of a request in a trace.
const MAX_ID: usize = 100;

/// Takes what comes of calls.
pub trait Responder: Send + Sync {
    /// The one response to the call with this tag.
    fn respond(&self, tag: &Bytes, outcome: CallOutcome);
    /// The call goes on as a task, and this is the handle that its caller has a right to.
    fn became_task(&self, tag: &Bytes, handle: Bytes) {
        self.respond(tag, CallOutcome::Result(handle));
    }
    /// Progress of the call with this tag, with the caller's own token already in the params.
    fn progress(&self, tag: &Bytes, params: &[u8]);
    /// Whether it expects results with `resultType`, as the stateless era has them.
    fn is_stateless(&self) -> bool {
        false
    }
    /// A stateless server answered the call with this tag with `input_required`. True if that result is the response,
    /// which ends the call; false if the client is sent each request on its own.
    fn input_required(&self, _tag: &Bytes, _server: &Arc<str>, _result: &Bytes) -> bool {
        false
    }
    /// Only a missing login at this server blocks a call; its client can open this address.
    fn login_wanted(&self, _server: &Arc<str>, _address: &str) {}
    /// Answers to send with its next call.
    fn input(&self) -> Option<Arc<Input>> {
        None
    }
}

/// A client: who it is, what it can do, and how it receives log messages and server requests.
pub trait Client: Send + Sync {
    fn identity(&self) -> Arc<Identity>;
    /// How it reaches the gateway.
    fn link(&self) -> ClientLink;
    /// Whether it may use this instance of a server: only then it is asked what that server wants to know.
    fn uses(&self, server: ServerId) -> bool;
    /// Whether an answer of it counts as the person's behind it.
    fn may_approve(&self) -> bool {
        false
    }
    /// For servers that are started on its behalf.
    fn capabilities(&self) -> Value;
    /// A log message of a server, and the client's request during which it was written, if known.
    fn log(&self, request: Option<&Bytes>, params: &[u8]);
    /// A server request for the client, because of that request of its own if known; the answer goes to
    /// `ServerRequest::answer`. Returned if the client does not support it.
    fn ask(
        &self,
        request: Option<&Bytes>,
        server_request: ServerRequest,
    ) -> Result<(), ServerRequest>;
    /// A server cancels its request.
    fn cancel_ask(&self, conn: ConnId, id: Option<&[u8]>);
}

/// See the module.
#[derive(Clone)]
pub struct Caller {
    pub responder: Arc<dyn Responder>,
    /// Identifies the call toward the responder.
    pub tag: Bytes,
    pub client: Arc<dyn Client>,
    /// The id of the client's own request, because of which the call is made.
    pub request: Bytes,
    pub origin: Origin,
    /// When it was made, if it had to wait for a list of tools before the router sees it.
    pub arrived: Option<Moment>,
    /// Where in a trace the client made it, if it said so and calls are traced.
    pub trace: Option<Arc<TraceContext>>,
}

impl Caller {
    /// The same caller with another origin.
    #[must_use]
    pub fn by(&self, origin: Origin) -> Caller {
        Caller { origin, ..self.clone() }
    }

    /// The trace of what it asks for, if that is recorded; `own` is where its client made it, if the request itself says so.
    pub fn traced(
        &self,
        tracer: &dyn Tracer,
        own: Option<&TraceContext>,
        tool: &str,
    ) -> Option<Box<CallTrace>> {
        let mut trace = tracer.begin(own.or(self.trace.as_deref()), tool)?;
        trace.link = self.client.link();
        if self.origin.is_direct_choice() {
            let id = object::text(&self.request);
            let id = id.or_else(|| Some(std::str::from_utf8(&self.request).ok()?.into()));
            let id = id.filter(|id| !id.is_empty());
            trace.request = id.map(|id| text::clean_line(&id, MAX_ID).into());
        }
        Some(trace)
    }

    /// Whether its responses go there.
    pub(super) fn responds_to(&self, responder: &Arc<dyn Responder>) -> bool {
        Arc::as_ptr(&self.responder).cast::<()>() == Arc::as_ptr(responder).cast::<()>()
    }

    /// Whether both speak for the same client.
    pub(super) fn is_client(&self, client: &Arc<dyn Client>) -> bool {
        Arc::as_ptr(&self.client).cast::<()>() == Arc::as_ptr(client).cast::<()>()
    }
}
