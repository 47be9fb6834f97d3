//! An outgoing message, and the headers that repeat parts of it where the server's era requires that.

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use metamcp_wire::era::STATELESS;
use metamcp_wire::modern::headers;
use metamcp_wire::object::{pick, text};

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
            let [name, uri, arguments] = params
                .and_then(|params| pick(params, ["name", "uri", "arguments"]).ok())
                .unwrap_or([None; 3]);
            let named = match method {
                "tools/call" | "prompts/get" => name,
                "resources/read" => uri,
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
        message
    }
}

fn pair(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
    Some((name.parse().ok()?, value.parse().ok()?))
}
