//! `run_tool`: one call on the usual path, its outcome rendered for the full surface.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use metamcp_surface::excerpt;
use metamcp_surface::full_surface::{self, BadArguments, RunRequest, RunResponse};
use metamcp_wire::modern::MISSING_CAPABILITY;
use metamcp_wire::{object, write};
use serde_json::{Value, json};

use super::refused;
use crate::clock;
use crate::observe::Origin;
use crate::router::{CallErrorKind, CallOutcome, Caller, Entry, ResultMapper};
use crate::surface::call::{Dispatched, RawCall, Rejected};
use crate::surface::reply::{Code, ErrorObject};
use crate::surface::tasks::Render;
use crate::surface::{Finished, Step, View};

const OP: &str = "run_tool";

/// What the response includes besides the value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Extras {
    pub(super) tool: bool,
    pub(super) server: bool,
    pub(super) result: bool,
}

/// How the outcome of a call reads in the full surface.
struct Ran {
    entry: Entry,
    tool: Arc<str>,
    extras: Extras,
    began: Instant,
}

impl Render for Ran {
    fn render(&self, view: &View, outcome: CallOutcome) -> CallOutcome {
        let (entry, extras, began) = (&self.entry, self.extras, self.began);
        // A list that was read for this call may have said which tool the name means.
        let tool = view.tool_within(entry, &self.tool).unwrap_or_else(|_| Arc::clone(&self.tool));
        view.ran(outcome, (entry, &tool), extras, began)
    }
}

impl View {
    pub(super) fn run_tool(
        &self,
        arguments: Option<&[u8]>,
        meta: Option<&[u8]>,
        line: &Bytes,
        caller: &Caller,
    ) -> Result<Step, BadArguments> {
        let run = RunRequest::decode(arguments)?;
        let caller = caller.by(Origin::RunTool);
        if let Some(unsupported) = unsupported(&run) {
            return Ok(Step::Now(Finished::Result(refused(OP, unsupported))));
        }
        let extras = Extras {
            tool: run.include_tool,
            server: run.include_backend,
            result: run.include_result,
        };
        let began = clock::std_instant();
        let call =
            RawCall { by: OP, server: None, tool: run.tool_id.clone(), args: run.args, meta };
        let mut call_request = match self.resolve_call(&call, line, &caller) {
            Ok(call_request) => call_request,
            Err(Rejected::Invalid(message)) => {
                return Ok(Step::Now(Finished::invalid(message)));
            }
            Err(Rejected::Refused(object)) => {
                return Ok(Step::Now(Finished::Result(refused(OP, *object))));
            }
            Err(Rejected::BuiltIn(call)) => {
                let view = self.clone();
                return Ok(Step::Later(Box::pin(async move {
                    match view.call_built_in(&call).await {
                        Finished::Result(result) => {
                            let ran = full_surface::read(&result);
                            let answer = RunResponse {
                                structured: &ran.structured,
                                error: None,
                                duration_ms: millis(began),
                                tool: None,
                                backend: None,
                                mcp_result: None,
                            };
                            let answer = full_surface::run(&answer);
                            Finished::Result(full_surface::answer(&answer, None, &[]))
                        }
                        Finished::Refused(object) => Finished::Result(refused(OP, *object)),
                        other => other,
                    }
                })));
            }
        };
        let (entry, tool) = (call_request.entry.clone(), Arc::clone(&call_request.tool));
        let follower = self.outliving(Ran { entry, tool, extras, began });
        call_request.result_mapper = Some(ResultMapper::following(follower));
        self.report_progress(&mut call_request, &caller);
        Ok(match self.begin(call_request, caller) {
            Dispatched::Sent => Step::Dispatched,
            Dispatched::Refused(object) => Step::Now(Finished::Result(refused(OP, *object))),
            Dispatched::Later(work) => Step::Later(Box::pin(async move {
                match work.await {
                    Ok(()) => Finished::Dispatched,
                    Err(object) => Finished::Result(refused(OP, object)),
                }
            })),
        })
    }

    /// An outcome in the form of the full surface.
    fn ran(
        &self,
        outcome: CallOutcome,
        (entry, tool): (&Entry, &Arc<str>),
        extras: Extras,
        began: Instant,
    ) -> CallOutcome {
        let result = match outcome {
            CallOutcome::Result(result) => result,
            CallOutcome::Failed(error) => {
                if let CallErrorKind::Rpc(raw) = &error.kind
                    && is_missing_capability(raw)
                {
                    // A client may be able to handle it, so it gets the server's own error.
                    return CallOutcome::Failed(error);
                }
                let object = ErrorObject::from_call(&error, Some(&entry.config)).by(OP);
                let (error, line) = (object.to_json(), object.to_line());
                let who = extras.server.then(|| who(entry));
                let answer = full_surface::run(&RunResponse {
                    structured: b"null",
                    error: Some(&error),
                    duration_ms: millis(began),
                    tool: None,
                    backend: who.as_ref(),
                    mcp_result: None,
                });
                return CallOutcome::Result(Bytes::from(full_surface::answer(
                    &answer,
                    Some(&line),
                    &[],
                )));
            }
            CallOutcome::Cancelled => return CallOutcome::Cancelled,
        };
        let done = self.done(&result, (entry, tool), OP);
        let wants_result = extras.result || !done.is_plain;
        let whole = (wants_result && !done.is_stored).then(|| write::one_line(&result));
        let who = extras.server.then(|| who(entry));
        let definition = if extras.tool { self.definition(entry, tool) } else { None };
        let error = done.error.as_ref().map(ErrorObject::to_json);
        let answer = full_surface::run(&RunResponse {
            structured: &done.shown,
            error: error.as_ref(),
            duration_ms: millis(began),
            tool: definition.as_ref(),
            backend: who.as_ref(),
            mcp_result: whole.as_deref(),
        });
        let line = done.error.as_ref().map(ErrorObject::to_line);
        CallOutcome::Result(Bytes::from(full_surface::answer(
            &answer,
            line.as_deref(),
            &done.others,
        )))
    }

    /// Reads a server's result, and stores it if it is too long to show.
    pub(super) fn done<'a>(
        &self,
        result: &'a Bytes,
        (entry, tool): (&Entry, &Arc<str>),
        op: &'static str,
    ) -> RunResult<'a> {
        let read = full_surface::read(result);
        let at = |object: ErrorObject| object.at(&entry.name, Some(tool)).by(op);
        let error = if read.is_error {
            let message =
                format!("the tool {}:{tool} reports an error: {}", entry.name, read.message());
            Some(at(ErrorObject::new(Code::ToolError, message).hint(
                "This is the tool's own message. Check the arguments with describe_tool, or use another tool.",
            )))
        } else {
            read.content.and_then(|raw| self.output_violation(raw, entry, tool)).map(at)
        };
        if self.is_too_long(result) {
            let handle = self.surface.results.put_result(&self.owner(), result.clone());
            let limit = self.result_chars();
            let shown = excerpt::preview(excerpt::value_in(result), limit, &handle).to_string();
            return RunResult {
                shown: Cow::Owned(shown.into_bytes()),
                value: read.structured,
                error,
                is_plain: read.is_plain,
                is_stored: true,
                others: read.others,
            };
        }
        let failed = error.is_some();
        RunResult {
            shown: if failed { Cow::Borrowed(b"null") } else { read.structured.clone() },
            value: read.structured,
            error,
            is_plain: read.is_plain && !failed,
            is_stored: false,
            others: read.others,
        }
    }

    /// Validates a result against the tool's own output schema.
    fn output_violation(&self, content: &[u8], entry: &Entry, tool: &str) -> Option<ErrorObject> {
        if content.len() > MAX_CHECKED {
            return None;
        }
        let snapshot = self.snapshot();
        let checker = snapshot.known(entry.definition)?.tool(tool)?.output_checker()?;
        let value: Value = serde_json::from_slice(content).ok()?;
        let violations = checker.check(&value).err()?;
        let listed: Vec<Value> = violations
            .iter()
            .map(|v| json!({ "path": v.path, "expected": v.expected, "got": v.got }))
            .collect();
        let first = violations.first().map(ToString::to_string).unwrap_or_default();
        let message = format!(
            "the result of {}:{tool} breaks the tool's own output schema: {first}",
            entry.name
        );
        Some(
            ErrorObject::new(Code::ValidationOutput, message)
                .hint("The call ran; mcpResult has its result. This is a bug of that server.")
                .detail("violations", listed),
        )
    }

    pub(super) fn definition(&self, entry: &Entry, tool: &str) -> Option<Value> {
        let snapshot = self.snapshot();
        Some(full_surface::definition_of(snapshot.known(entry.definition)?.tool(tool)?))
    }
}

/// Longest structured content that is validated: beyond it the check costs too much.
const MAX_CHECKED: usize = 256 * 1024;

/// A server's result, read.
pub(super) struct RunResult<'a> {
    /// The value or its preview.
    pub(super) shown: Cow<'a, [u8]>,
    /// The whole value.
    pub(super) value: Cow<'a, [u8]>,
    pub(super) error: Option<ErrorObject>,
    /// Whether the value is all of the result.
    pub(super) is_plain: bool,
    /// Whether it is stored under a handle.
    pub(super) is_stored: bool,
    /// Content that is not text.
    pub(super) others: Vec<&'a [u8]>,
}

/// The error for options that this gateway does not support.
fn unsupported(run: &RunRequest<'_>) -> Option<ErrorObject> {
    let at = |object: ErrorObject| object.detail("tool_id", run.tool_id.clone());
    if run.stream {
        return Some(at(ErrorObject::new(
            Code::StreamNotSupported,
            "run_tool does not stream results",
        )
        .hint("Nothing was run. Leave `stream` out; a caller that sends a progress token gets progress notifications.")));
    }
    run.has_override.then(|| {
        at(ErrorObject::new(
            Code::BackendOverrideInvalid,
            "a tool belongs to one server, and no other can be chosen for it",
        )
        .hint("Nothing was run. Leave `backend_override` out; the id names the server."))
    })
}

/// Which server answered.
pub(super) fn who(entry: &Entry) -> Value {
    json!({ "kind": "mcp", "serverName": &*entry.name })
}

pub(super) fn millis(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn is_missing_capability(error: &[u8]) -> bool {
    let code = object::pick(error, ["code"]).ok().and_then(|[code]| code);
    let code = code.and_then(|raw| std::str::from_utf8(raw).ok()?.parse::<i64>().ok());
    code == Some(MISSING_CAPABILITY)
}
