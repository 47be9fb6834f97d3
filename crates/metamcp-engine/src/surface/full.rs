//! The full tool surface: `metamcp_surface::full_surface` decodes and renders, the compact surface does the work.
//! Owns: which tool does what.      Never: searches, calls or runs scripts by means of its own.
//! In: a tool's name and its arguments.  Out: `Step`s whose responses fit the tool's published schema.
//! Tests: `metamcp/tests/surface/`, with real processes; `metamcp_surface::full_surface` for decoding and rendering.

mod chain;
mod code;
mod find;
mod run;

use bytes::Bytes;
use metamcp_surface::full_surface;
use serde_json::Value;

use super::reply::{Code, ErrorObject};
use super::{Finished, Step, View};
use crate::router::Caller;

impl View {
    /// A call of one of these tools.
    pub(super) fn full(
        &self,
        name: &str,
        arguments: Option<&[u8]>,
        meta: Option<&[u8]>,
        line: &Bytes,
        caller: &Caller,
    ) -> Step {
        let step = match name {
            "search_tools" => self.search_tools(arguments, caller),
            "list_tools" => self.list_tools(arguments),
            "list_namespaces" => self.list_namespaces(arguments),
            "describe_tool" => self.describe_tool(arguments),
            "list_tool_examples" => self.list_tool_examples(arguments),
            "run_tool" => self.run_tool(arguments, meta, line, caller),
            "run_chain" => self.run_chain(arguments, meta, line, caller),
            _ => self.execute_code(arguments, meta, caller),
        };
        step.unwrap_or_else(|bad| Step::Now(Finished::invalid(bad.to_string())))
    }
}

/// A pending response; a failure becomes a response of this tool.
fn later(
    op: &'static str,
    work: impl Future<Output = Result<Vec<u8>, Finished>> + Send + 'static,
) -> Step {
    Step::Later(Box::pin(async move {
        match work.await {
            Ok(answer) => Finished::Result(answer),
            Err(Finished::Refused(object)) => Finished::Result(refused(op, *object)),
            Err(other) => other,
        }
    }))
}

/// The response of a tool as it is sent.
fn written(answer: &Value) -> Vec<u8> {
    full_surface::answer(answer.to_string().as_bytes(), None, &[])
}

/// A failure as the response of a tool.
fn refused(op: &'static str, object: ErrorObject) -> Vec<u8> {
    let object = object.by(op);
    let answer = full_surface::refused(op, &object.to_json());
    full_surface::answer(answer.to_string().as_bytes(), Some(&object.to_line()), &[])
}

/// The response to a call that arrives during shutdown.
pub(super) fn too_late(name: &str) -> Finished {
    let object = ErrorObject::new(Code::ShuttingDown, "metamcp is shutting down")
        .hint("The call was not sent.")
        .detail("sent", false);
    match full_surface::NAMES.iter().find(|known| **known == name) {
        Some(op) => Finished::Result(refused(op, object)),
        None => Finished::error(&object),
    }
}
