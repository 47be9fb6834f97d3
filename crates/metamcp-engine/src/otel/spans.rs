//! A call as spans: one for the whole, and below it its wait, its starts, and each time it was sent. A script as one span
//! above those of its calls.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use metamcp_types::moment::Moment;
use metamcp_types::text;
use metamcp_wire::trace_context::TraceContext;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue};
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, IdGenerator as _, RandomIdGenerator, Sampler, SamplingDecision,
    ShouldSample as _, SpanData, SpanEvents, SpanLinks, SpanProcessor as _,
};

use super::SCOPE;
use crate::clock::{self, Clock};
use crate::observe::{
    AttemptTrace, CallRecord, CallTrace, ClientLink, Event, Identity, Interest, Origin,
    ScriptRecord, Subscriber, Tracer, Verdict,
};

/// Longest name of a tool or a client.
const MAX_NAME: usize = 100;
/// Shorter waits are no spans of their own.
const SHORT_WAIT: Duration = Duration::from_millis(1);

pub(super) struct Spans {
    processor: BatchSpanProcessor,
    sampler: Sampler,
    ids: RandomIdGenerator,
    clock: Clock,
    scope: InstrumentationScope,
}

impl Spans {
    pub(super) fn new(processor: BatchSpanProcessor, sampler: Sampler, clock: Clock) -> Spans {
        let version = env!("CARGO_PKG_VERSION");
        let scope = InstrumentationScope::builder(SCOPE).with_version(version).build();
        Spans { processor, sampler, ids: RandomIdGenerator::default(), clock, scope }
    }

    pub(super) fn shut_down(&self, limit: Duration) {
        // What could not be sent is lost, which nobody can be told any more.
        drop(self.processor.shutdown_with_timeout(limit));
    }

    fn ended(&self, record: &CallRecord, trace: &CallTrace) {
        let times = Times { now: self.clock.now(), wall: clock::system_time() };
        let name: Cow<'static, str> = match target(record) {
            Some((_, name)) => format!("{} {name}", record.method).into(),
            None => record.method.into(),
        };
        let (error, status) = error_of(record);
        let mut whole = self.span(trace, trace.span, trace.parent.unwrap_or_default());
        whole.parent_span_is_remote = trace.parent.is_some();
        // A script is no client: what it calls is within what its client asked for.
        let is_of_script = matches!(record.origin, Origin::Script(_));
        whole.span_kind = if is_of_script { SpanKind::Internal } else { SpanKind::Server };
        whole.parent_span_is_remote &= !is_of_script;
        whole.name.clone_from(&name);
        (whole.start_time, whole.end_time) = (times.of(record.arrived), times.of(record.ended));
        whole.attributes = attributes(record);
        whole.attributes.extend(of_client(trace));
        // In direct mode the client gets the server's own error; else it gets a result that tells of it.
        let own_code = record.rpc_code.filter(|_| record.origin == Origin::Direct);
        whole.attributes.extend(failed_with(error, own_code));
        whole.status = status.clone();
        for (at, attempt) in record.all_attempts().enumerate() {
            let own = trace.attempts.get(at).copied().unwrap_or_default();
            if at == 0 {
                let begun = attempt
                    .start
                    .as_ref()
                    .map_or(attempt.sent, |start| start.begun.min(attempt.sent));
                self.waited(trace, &times, record.arrived, begun);
            }
            if let Some(start) = &attempt.start {
                let mut started = self.span(trace, self.span_id(), trace.span);
                started.name =
                    format!("start {}", text::clean_line(&record.server, MAX_NAME)).into();
                let from = start.begun.max(record.arrived);
                (started.start_time, started.end_time) = (times.of(from), times.of(start.ready));
                self.processor.on_end(started);
            }
            let mut sent = self.span(trace, own.span, trace.span);
            sent.span_kind = SpanKind::Client;
            sent.name.clone_from(&name);
            let (end, lost) = match attempt.lost.as_deref() {
                Some((at, failure)) => (*at, Some(failure.fact.category().word())),
                None => (record.ended, None),
            };
            (sent.start_time, sent.end_time) = (times.of(attempt.sent), times.of(end));
            sent.attributes = of_attempt(record, own);
            let code = record.rpc_code.filter(|_| lost.is_none());
            sent.attributes.extend(failed_with(lost.or(error), code));
            sent.status =
                if lost.is_some() { Status::error("connection lost") } else { status.clone() };
            if let Some(first) = attempt.first_byte {
                let event =
                    opentelemetry::trace::Event::new("first byte", times.of(first), Vec::new(), 0);
                sent.events.events.push(event);
            }
            self.processor.on_end(sent);
        }
        if record.attempts == 0 {
            self.waited(trace, &times, record.arrived, record.ended);
        }
        self.processor.on_end(whole);
    }

    /// A script, whose calls have spans below this one.
    fn script_ended(&self, record: &ScriptRecord, trace: &CallTrace) {
        let times = Times { now: self.clock.now(), wall: clock::system_time() };
        let mut span = self.span(trace, trace.span, trace.parent.unwrap_or_default());
        span.parent_span_is_remote = trace.parent.is_some();
        span.span_kind = SpanKind::Server;
        span.name = format!("tools/call {}", record.tool).into();
        (span.start_time, span.end_time) = (times.of(record.began), times.of(record.ended));
        span.attributes = vec![
            KeyValue::new("mcp.method.name", "tools/call"),
            KeyValue::new("gen_ai.operation.name", "execute_tool"),
            KeyValue::new("gen_ai.tool.name", record.tool),
            KeyValue::new("metamcp.script", i64::try_from(record.number).unwrap_or(i64::MAX)),
            KeyValue::new("metamcp.script.calls", i64::try_from(record.calls).unwrap_or(i64::MAX)),
            KeyValue::new("metamcp.verdict", record.verdict),
        ];
        span.attributes.extend(of_identity(&record.identity));
        span.attributes.extend(of_client(trace));
        if record.verdict != "ok" {
            span.attributes.push(KeyValue::new("error.type", record.verdict));
            span.status = Status::error("");
        }
        self.processor.on_end(span);
    }

    /// The time before anything was done for a call: for a slot of the pool, or in the queue of its server.
    fn waited(&self, trace: &CallTrace, times: &Times, from: Moment, to: Moment) {
        if to.since(from) < SHORT_WAIT {
            return;
        }
        let mut queued = self.span(trace, self.span_id(), trace.span);
        queued.name = "queue".into();
        (queued.start_time, queued.end_time) = (times.of(from), times.of(to));
        self.processor.on_end(queued);
    }

    fn span_id(&self) -> [u8; 8] {
        self.ids.new_span_id().to_bytes()
    }

    /// A span without a name and times yet.
    fn span(&self, trace: &CallTrace, own: [u8; 8], parent: [u8; 8]) -> SpanData {
        let state = trace.state.as_deref().and_then(|state| state.parse().ok());
        let state: TraceState = state.unwrap_or_default();
        let (trace, own) = (TraceId::from_bytes(trace.trace), SpanId::from_bytes(own));
        SpanData {
            span_context: SpanContext::new(trace, own, TraceFlags::SAMPLED, false, state),
            parent_span_id: SpanId::from_bytes(parent),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: Cow::Borrowed(""),
            start_time: SystemTime::UNIX_EPOCH,
            end_time: SystemTime::UNIX_EPOCH,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// Moments as times of day, by one reading of both clocks.
struct Times {
    now: Moment,
    wall: SystemTime,
}

impl Times {
    fn of(&self, moment: Moment) -> SystemTime {
        self.wall.checked_sub(self.now.since(moment)).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// The names of the semantic conventions for MCP and `GenAI`, and ours for what they do not have.
fn attributes(record: &CallRecord) -> Vec<KeyValue> {
    let name = |text: &str| text::clean_line(text, MAX_NAME).into_owned();
    let mut attributes = vec![
        KeyValue::new("mcp.method.name", record.method),
        KeyValue::new("metamcp.server", name(&record.server)),
        KeyValue::new("metamcp.verdict", record.verdict.word()),
        KeyValue::new("metamcp.origin", record.origin.word()),
        KeyValue::new("metamcp.attempts", i64::from(record.attempts)),
        KeyValue::new("metamcp.call.id", i64::try_from(record.id).unwrap_or(i64::MAX)),
    ];
    attributes.extend(of_target(record));
    if let Origin::Script(script) = record.origin {
        attributes.push(KeyValue::new("metamcp.script", i64::try_from(script).unwrap_or(0)));
    }
    attributes.extend(of_identity(&record.identity));
    attributes
}

/// Whose it is.
fn of_identity(identity: &Identity) -> Vec<KeyValue> {
    let name = |text: &str| text::clean_line(text, MAX_NAME).into_owned();
    // Our own number of the session: the protocol's id is as good as a password.
    let mut attributes = vec![KeyValue::new("mcp.session.id", identity.session.to_string())];
    if let Some(client) = &identity.client {
        attributes.push(KeyValue::new("metamcp.client.name", name(&client.name)));
        attributes.push(KeyValue::new("metamcp.client.version", name(&client.version)));
    }
    attributes
}

/// How the client made it.
fn of_client(trace: &CallTrace) -> Vec<KeyValue> {
    let ClientLink { transport, version } = trace.link;
    let transport = transport.map(|transport| KeyValue::new("network.transport", transport));
    let version = version.map(|version| KeyValue::new("mcp.protocol.version", version));
    let id = trace.request.as_deref();
    let id = id.map(|id| KeyValue::new("jsonrpc.request.id", id.to_owned()));
    transport.into_iter().chain(version).chain(id).collect()
}

/// What a request names, by the attribute for it. The address of a resource is an argument, which is not sent.
fn target(record: &CallRecord) -> Option<(&'static str, String)> {
    let attribute = match record.method {
        "tools/call" => "gen_ai.tool.name",
        "prompts/get" => "gen_ai.prompt.name",
        _ => return None,
    };
    Some((attribute, text::clean_line(&record.tool, MAX_NAME).into_owned()))
}

fn of_target(record: &CallRecord) -> Vec<KeyValue> {
    let is_tool = record.method == "tools/call";
    let operation = is_tool.then(|| KeyValue::new("gen_ai.operation.name", "execute_tool"));
    let target = target(record).map(|(attribute, name)| KeyValue::new(attribute, name));
    operation.into_iter().chain(target).collect()
}

/// What kind of error it was: the code of the protocol's, where the peer answered with one.
fn failed_with(word: Option<&'static str>, code: Option<i64>) -> Vec<KeyValue> {
    match (code.map(|code| code.to_string()), word) {
        (Some(code), _) => vec![
            KeyValue::new("error.type", code.clone()),
            KeyValue::new("rpc.response.status_code", code),
        ],
        (None, Some(word)) => vec![KeyValue::new("error.type", word)],
        (None, None) => Vec::new(),
    }
}

fn of_attempt(record: &CallRecord, attempt: AttemptTrace) -> Vec<KeyValue> {
    let name = |text: &str| text::clean_line(text, MAX_NAME).into_owned();
    let mut attributes = vec![
        KeyValue::new("mcp.method.name", record.method),
        KeyValue::new("metamcp.server", name(&record.server)),
        KeyValue::new("network.transport", attempt.transport),
        KeyValue::new("jsonrpc.request.id", attempt.request.to_string()),
    ];
    attributes.extend(of_target(record));
    let version = attempt.version.map(|version| KeyValue::new("mcp.protocol.version", version));
    attributes.extend(version);
    attributes
}

/// What kind of error it was, if it was one.
pub(super) fn error_of(record: &CallRecord) -> (Option<&'static str>, Status) {
    match record.verdict {
        Verdict::Ok | Verdict::InputRequired => (None, Status::Unset),
        verdict => {
            let cause = record.cause.as_ref().map(|cause| cause.fact.category().word());
            let words = cause.unwrap_or_default();
            (Some(verdict.word()), Status::error(words))
        }
    }
}

impl Tracer for Spans {
    fn begin(&self, parent: Option<&TraceContext>, tool: &str) -> Option<Box<CallTrace>> {
        let context = parent.map(|parent| {
            let flags =
                if parent.is_sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
            let (trace, span) =
                (TraceId::from_bytes(parent.trace), SpanId::from_bytes(parent.span));
            let state = TraceState::default();
            Context::new()
                .with_remote_span_context(SpanContext::new(trace, span, flags, true, state))
        });
        let trace = match parent {
            Some(parent) => TraceId::from_bytes(parent.trace),
            None => self.ids.new_trace_id(),
        };
        let decided =
            self.sampler.should_sample(context.as_ref(), trace, tool, &SpanKind::Server, &[], &[]);
        (decided.decision == SamplingDecision::RecordAndSample).then(|| {
            Box::new(CallTrace {
                trace: trace.to_bytes(),
                parent: parent.map(|parent| parent.span),
                span: self.span_id(),
                state: parent.and_then(|parent| parent.state.clone()),
                baggage: parent.and_then(|parent| parent.baggage.clone()),
                link: ClientLink::default(),
                request: None,
                attempts: Vec::new(),
            })
        })
    }

    fn new_span(&self) -> [u8; 8] {
        self.span_id()
    }
}

impl Subscriber for Spans {
    fn interest(&self) -> Interest {
        Interest::CALLS.and(Interest::SCRIPTS)
    }

    fn on_event(&self, event: &Event<'_>) {
        match event {
            Event::Call(record, _) => {
                if let Some(trace) = &record.trace {
                    self.ended(record, trace);
                }
            }
            Event::Script(record, _) => {
                if let Some(trace) = &record.trace {
                    self.script_ended(record, trace);
                }
            }
            _ => {}
        }
    }
}
