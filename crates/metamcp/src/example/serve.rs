//! The protocol of the example servers: newline-delimited JSON-RPC, one request after the other.
//! Owns: the handshake, `ping`, `tools/list`, `tools/call`, error codes.      Never: knows what a tool does.
//! In: lines from the client.  Out: one line per request; end of input stops the server.
//! Tests: `example/tests.rs`.

use std::io::{self, BufRead, Read, Write};

use serde_json::{Map, Value, json};

use super::declare::{Answer, Arguments, Refusal, Tool};

/// Protocol versions with an `initialize` handshake, oldest first.
const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// Longest request line; the largest legitimate one writes a file of one MiB, at most six bytes per byte as JSON.
const MAX_LINE: u64 = 8 << 20;

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;

/// A server's metadata and tools.
pub(super) struct Service<S: 'static> {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) instructions: &'static str,
    pub(super) tools: &'static [Tool<S>],
}

pub(super) struct Server<S: 'static> {
    pub(super) service: &'static Service<S>,
    pub(super) state: S,
}

/// A JSON-RPC error: code and message.
type Fault = (i64, String);

impl<S> Server<S> {
    /// Serves requests until the input ends.
    pub(super) fn serve(
        &mut self,
        input: &mut impl BufRead,
        output: &mut impl Write,
    ) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            line.clear();
            if input.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let whole = line.ends_with(b"\n") || (line.len() as u64) < MAX_LINE;
            let answer = if whole {
                self.answer(line.trim_ascii())
            } else {
                input.skip_until(b'\n')?;
                Some(failed(
                    &Value::Null,
                    INVALID_REQUEST,
                    &format!("a line may have {MAX_LINE} bytes"),
                ))
            };
            if let Some(answer) = answer {
                writeln!(output, "{answer}")?;
                output.flush()?;
            }
        }
    }

    /// The response to one line; none to notifications, responses and blank lines.
    fn answer(&mut self, line: &[u8]) -> Option<Value> {
        if line.is_empty() {
            return None;
        }
        let message: Value = match serde_json::from_slice(line) {
            Ok(message) => message,
            Err(error) => {
                return Some(failed(&Value::Null, PARSE_ERROR, &format!("not JSON: {error}")));
            }
        };
        let Some(message) = message.as_object() else {
            return Some(failed(
                &Value::Null,
                INVALID_REQUEST,
                "one JSON object per line is expected",
            ));
        };
        let method = message.get("method").and_then(Value::as_str)?;
        let id = message.get("id")?;
        let nothing = Map::new();
        let params = message.get("params").and_then(Value::as_object).unwrap_or(&nothing);
        Some(match self.request(method, params) {
            Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
            Err((code, why)) => failed(id, code, &why),
        })
    }

    fn request(&mut self, method: &str, params: &Map<String, Value>) -> Result<Value, Fault> {
        match method {
            "initialize" => Ok(self.introduction(params)),
            "ping" => Ok(json!({})),
            "tools/list" => {
                let tools: Vec<Value> = self.service.tools.iter().map(Tool::listed).collect();
                Ok(json!({ "tools": tools }))
            }
            "tools/call" => self.call(params),
            _ => Err((METHOD_NOT_FOUND, format!("method {method} is not known here"))),
        }
    }

    fn introduction(&self, params: &Map<String, Value>) -> Value {
        let asked = params.get("protocolVersion").and_then(Value::as_str);
        let newest = VERSIONS[VERSIONS.len() - 1];
        json!({
            "protocolVersion": asked.filter(|version| VERSIONS.contains(version)).unwrap_or(newest),
            "capabilities": { "tools": {} },
            "serverInfo": {
                "name": format!("metamcp-example-{}", self.service.name),
                "title": self.service.title,
                "version": env!("CARGO_PKG_VERSION"),
            },
            "instructions": self.service.instructions,
        })
    }

    fn call(&mut self, params: &Map<String, Value>) -> Result<Value, Fault> {
        let Some(name) = params.get("name").and_then(Value::as_str) else {
            return Err((INVALID_PARAMS, "params.name must be the name of a tool".to_owned()));
        };
        let Some(tool) = self.service.tools.iter().find(|tool| tool.name == name) else {
            return Err((INVALID_PARAMS, format!("unknown tool: {name}")));
        };
        let nothing = Map::new();
        let given = match params.get("arguments") {
            None | Some(Value::Null) => &nothing,
            Some(Value::Object(given)) => given,
            Some(_) => {
                return Err((INVALID_PARAMS, "params.arguments must be an object".to_owned()));
            }
        };
        let outcome = Arguments::checked(tool.takes, given)
            .and_then(|arguments| (tool.run)(&mut self.state, &arguments));
        Ok(match outcome {
            Ok(Answer::Text(text)) => json!({ "content": [{ "type": "text", "text": text }] }),
            Ok(Answer::Data(data)) => json!({
                "content": [{ "type": "text", "text": data.to_string() }],
                "structuredContent": data,
            }),
            Err(Refusal(why)) => {
                json!({ "content": [{ "type": "text", "text": why }], "isError": true })
            }
        })
    }
}

fn failed(id: &Value, code: i64, why: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": why } })
}
