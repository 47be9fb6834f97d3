//! An outgoing message, and the headers that repeat parts of it where the server's era requires that.

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use memchr::memmem;
use metamcp_wire::era::STATELESS;
use metamcp_wire::modern::headers;
use metamcp_wire::object::{pick, text};
use metamcp_wire::trace_context::TraceContext;

use super::Remote;
use crate::upstream::Connection;

#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) bytes: Bytes,
    pub(super) method: String,
    /// Headers in addition to those of every message.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Message {
    /// Whether it may have side effects that must not happen twice. All other messages only read, or concern the connection.
    pub(super) fn may_change_things(&self) -> bool {
        self.method == "tools/call"
    }

    /// A message without headers of its own.
    pub(super) fn plain(bytes: Bytes, method: &str) -> Message {
        Message { bytes, method: method.to_owned(), headers: Vec::new() }
    }
}

impl Remote {
    /// A request with its headers.
    pub(super) fn request(
        &self,
        connection: &Connection,
        line: &Bytes,
        method: &str,
        params: Option<&[u8]>,
    ) -> Message {
        let mut message = Message::plain(line.clone(), method);
        if method == "initialize" {
            self.state().greeting = Some(message.clone());
        }
        if connection.is_stateless() || method == "server/discover" {
            message.headers.extend(pair("mcp-protocol-version", STATELESS));
            message.headers.extend(pair("mcp-method", method));
            let [name, uri, task, arguments] = params
                .and_then(|params| pick(params, ["name", "uri", "taskId", "arguments"]).ok())
                .unwrap_or([None; 4]);
            let named = match method {
                "tools/call" | "prompts/get" => name,
                "resources/read" => uri,
                "tasks/get" | "tasks/update" | "tasks/cancel" => task,
                _ => None,
            };
            if let Some(named) = named.and_then(text) {
                message.headers.extend(pair("mcp-name", &headers::encoded(&named)));
                if method == "tools/call" {
                    let mirrors = (self.site.mirrors)(&named);
                    for (name, value) in headers::parameters(&mirrors, arguments) {
                        let name = format!("mcp-param-{}", name.to_ascii_lowercase());
                        message.headers.extend(pair(&name, &value));
                    }
                }
            }
        }
        // A trace goes on in the headers too, where proxies on the way look for it.
        let traced = params.filter(|params| memmem::find(params, b"\"traceparent\"").is_some());
        if let Some(meta) = traced.and_then(|params| pick(params, ["_meta"]).ok()?[0])
            && let (Some(trace), Ok([Some(parent)])) =
                (TraceContext::of_meta(meta), pick(meta, ["traceparent"]))
        {
            message.headers.extend(text(parent).and_then(|parent| pair("traceparent", &parent)));
            message.headers.extend(trace.state.and_then(|state| pair("tracestate", &state)));
            message.headers.extend(trace.baggage.and_then(|baggage| pair("baggage", &baggage)));
        }
        message
    }
}

fn pair(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((name.parse().ok()?, value.parse().ok()?))
}
