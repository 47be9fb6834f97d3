//! The trace of a call: where it stands in the trace of its client, and the spans that are made of it at its end.

use metamcp_wire::trace_context::{TraceContext, sampled_parent};

/// Decides at its arrival whether a call is traced.
pub trait Tracer: Send + Sync {
    /// The trace of a call of this tool, if it is recorded. `parent` is where its client made it.
    fn begin(&self, parent: Option<&TraceContext>, tool: &str) -> Option<Box<CallTrace>>;
    /// The id of a new span.
    fn new_span(&self) -> [u8; 8];
}

/// How a client reaches the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClientLink {
    /// `pipe` or `tcp`; nothing for a command of ours.
    pub transport: Option<&'static str>,
    /// The protocol revision that is spoken with it.
    pub version: Option<&'static str>,
}

/// A call on its way to its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptTrace {
    pub span: [u8; 8],
    /// The id of the request to the server.
    pub request: u64,
    /// `pipe` or `tcp`.
    pub transport: &'static str,
    /// The protocol revision that is spoken with the server.
    pub version: Option<&'static str>,
}

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTrace {
    pub trace: [u8; 16],
    /// The client's span.
    pub parent: Option<[u8; 8]>,
    /// The span of the whole call.
    pub span: [u8; 8],
    /// `tracestate` and `baggage` of the client, which go on to the server.
    pub state: Option<Box<str>>,
    pub baggage: Option<Box<str>>,
    /// How the client made it, and the id of its request.
    pub link: ClientLink,
    pub request: Option<Box<str>>,
    /// Each time it was sent, in the order of the record's attempts.
    pub attempts: Vec<AttemptTrace>,
}

impl CallTrace {
    /// Where what is below it is made.
    pub fn context(&self) -> TraceContext {
        let (state, baggage) = (self.state.clone(), self.baggage.clone());
        TraceContext { trace: self.trace, span: self.span, is_sampled: true, state, baggage }
    }

    /// The `traceparent` for the server: the span of the last attempt.
    pub fn for_server(&self) -> Option<String> {
        Some(sampled_parent(self.trace, self.attempts.last()?.span))
    }
}
