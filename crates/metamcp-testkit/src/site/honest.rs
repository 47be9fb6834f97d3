//! The responses of a correct remote server, in either era and with the 2024 transport; it counts what it executes.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::{Exchange, ReceivedRequest};

/// The transport it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteTransport {
    /// With `initialize` and sessions.
    Sessions,
    /// With `initialize`, without sessions.
    NoSessions,
    /// The 2026 revision.
    Stateless,
    /// The 2024 transport (HTTP+SSE), at `/sse`.
    Sse,
}

/// See the module documentation.
pub struct HonestServer {
    transport: RemoteTransport,
    /// Whether responses are event streams.
    streams: bool,
    last: AtomicU64,
    state: Mutex<HonestState>,
}

#[derive(Default)]
struct HonestState {
    sessions: HashSet<String>,
    /// Arguments of every executed call.
    executed: Vec<Value>,
    /// Senders to the streams that clients have open, by session.
    listeners: HashMap<String, Sender<Value>>,
    tools: Vec<Value>,
}

impl HonestServer {
    pub fn new(transport: RemoteTransport, streams: bool) -> HonestServer {
        let state = HonestState {
            tools: vec![
                json!({"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}),
                json!({"name": "look", "description": "Only looks.", "annotations": {"readOnlyHint": true}, "inputSchema": {"type": "object"}}),
                json!({"name": "region", "description": "Has a header.", "inputSchema": {"type": "object", "properties": {"where": {"type": "string", "x-mcp-header": "Region"}}}}),
            ],
            ..HonestState::default()
        };
        HonestServer { transport, streams, last: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// Arguments of every executed call.
    pub fn executed(&self) -> Vec<Value> {
        self.state().executed.clone()
    }

    /// Records an execution that the test responds to itself.
    pub fn execute(&self, request: &ReceivedRequest) {
        let arguments = request.json()["params"]["arguments"].clone();
        self.state().executed.push(arguments);
    }

    /// Forgets every session, as a restarted server does.
    pub fn forget(&self) {
        let mut state = self.state();
        state.sessions.clear();
        state.listeners.clear();
    }

    /// Adds a tool and notifies the listening clients.
    pub fn learn(&self, tool: Value) {
        let told = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        let mut state = self.state();
        state.tools.push(tool);
        state.listeners.values().for_each(|listener| drop(listener.send(told.clone())));
    }

    /// How many clients have a stream open.
    pub fn listeners(&self) -> usize {
        self.state().listeners.len()
    }

    pub fn answer(&self, request: &ReceivedRequest, exchange: &mut Exchange<'_>) -> io::Result<()> {
        match (request.method.as_str(), self.transport) {
            ("GET", RemoteTransport::Sse) => self.sse(exchange),
            ("POST", RemoteTransport::Sse) if request.path() == "/sse" => {
                exchange.respond(405, &[], b"no")
            }
            ("POST", RemoteTransport::Sse) => self.posted(request, exchange),
            ("GET", RemoteTransport::Sessions) => self.general(request, exchange),
            ("DELETE", RemoteTransport::Sessions) => {
                let id = request.header("mcp-session-id").unwrap_or_default();
                let known = self.state().sessions.remove(id);
                exchange.respond(if known { 200 } else { 404 }, &[], b"")
            }
            ("POST", _) => self.message(request, exchange),
            _ => exchange.respond(405, &[("allow", "POST")], b""),
        }
    }

    fn message(&self, request: &ReceivedRequest, exchange: &mut Exchange<'_>) -> io::Result<()> {
        let message = request.json();
        let method = message["method"].as_str().unwrap_or_default();
        let fault = |status: u16, code: i64, text: &str, exchange: &mut Exchange<'_>| {
            let error = json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}});
            exchange.json(status, &[], &error)
        };
        if self.transport == RemoteTransport::Stateless {
            let version =
                message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
            if version != Some("2026-07-28") {
                return fault(400, -32022, "unsupported version", exchange);
            }
            let named = |header: &str, value: &Value| request.header(header) == value.as_str();
            let params = &message["params"];
            let fits = named("mcp-method", &message["method"])
                && request.header("mcp-protocol-version") == version
                && (method != "tools/call" || named("mcp-name", &params["name"]))
                && (params["name"] != "region"
                    || named("mcp-param-region", &params["arguments"]["where"]));
            if !fits {
                return fault(400, -32020, "headers do not fit", exchange);
            }
        } else if method == "server/discover" {
            let (status, code) = if self.transport == RemoteTransport::Sessions {
                (400, -32000)
            } else {
                (200, -32601)
            };
            return fault(status, code, "what is that", exchange);
        }
        let id = request.header("mcp-session-id").unwrap_or_default();
        if self.transport == RemoteTransport::Sessions
            && method != "initialize"
            && !self.state().sessions.contains(id)
        {
            return exchange.respond(404, &[], b"no such session");
        }
        if message.get("id").is_none() || message.get("method").is_none() {
            return exchange.respond(202, &[], b"");
        }
        let mut headers = Vec::new();
        let fresh = format!("session-{}", self.last.fetch_add(1, Ordering::SeqCst));
        if method == "initialize" && self.transport == RemoteTransport::Sessions {
            self.state().sessions.insert(fresh.clone());
            headers.push(("mcp-session-id", fresh.as_str()));
        }
        if method == "subscriptions/listen" {
            return self.subscribed(&message, exchange);
        }
        let answer = self.reply(&message);
        if self.streams {
            exchange.begin_events(&headers)?;
            return exchange.event(&answer);
        }
        exchange.json(200, &headers, &answer)
    }

    /// The response to a message.
    pub fn reply(&self, message: &Value) -> Value {
        let stateless = self.transport == RemoteTransport::Stateless;
        let params = &message["params"];
        let mut result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"logging": {}, "tools": {"listChanged": true}},
                "serverInfo": {"name": "honest", "version": "1"},
            }),
            "server/discover" if stateless => json!({
                "supportedVersions": ["2026-07-28"],
                "capabilities": {"tools": {"listChanged": true}},
                "ttlMs": 0, "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "honest", "version": "1"}},
            }),
            "tools/list" => json!({"tools": self.state().tools}),
            "tools/call" => {
                self.state().executed.push(params["arguments"].clone());
                json!({"content": [{"type": "text", "text": params["arguments"]["text"]}]})
            }
            "ping" | "logging/setLevel" => json!({}),
            other => {
                let error = json!({"code": -32601, "message": format!("no {other}")});
                return json!({"jsonrpc": "2.0", "id": message["id"], "error": error});
            }
        };
        if stateless {
            result["resultType"] = "complete".into();
        }
        json!({"jsonrpc": "2.0", "id": message["id"], "result": result})
    }

    fn subscribed(&self, message: &Value, exchange: &mut Exchange<'_>) -> io::Result<()> {
        let receiver = self.hold(&format!("listen-{}", message["id"]));
        exchange.begin_events(&[])?;
        exchange.event(&json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {}}))?;
        pour(&receiver, exchange)
    }

    fn general(&self, request: &ReceivedRequest, exchange: &mut Exchange<'_>) -> io::Result<()> {
        let id = request.header("mcp-session-id").unwrap_or_default().to_owned();
        if !self.state().sessions.contains(&id) {
            return exchange.respond(404, &[], b"");
        }
        let receiver = self.hold(&id);
        exchange.begin_events(&[])?;
        pour(&receiver, exchange)
    }

    fn sse(&self, exchange: &mut Exchange<'_>) -> io::Result<()> {
        let id = format!("older-{}", self.last.fetch_add(1, Ordering::SeqCst));
        let receiver = self.hold(&id);
        exchange.begin_events(&[])?;
        exchange.raw(format!("event: endpoint\ndata: /messages?sessionId={id}\n\n").as_bytes())?;
        pour(&receiver, exchange)
    }

    fn posted(&self, request: &ReceivedRequest, exchange: &mut Exchange<'_>) -> io::Result<()> {
        let id = request.field("sessionId").unwrap_or_default();
        let Some(listener) = self.state().listeners.get(&id).cloned() else {
            return exchange.respond(404, &[], b"");
        };
        let message = request.json();
        exchange.respond(202, &[], b"Accepted")?;
        if message.get("id").is_some() && message.get("method").is_some() {
            drop(listener.send(self.reply(&message)));
        }
        Ok(())
    }

    fn hold(&self, id: &str) -> Receiver<Value> {
        let (sender, receiver) = channel();
        self.state().listeners.insert(id.to_owned(), sender);
        receiver
    }

    fn state(&self) -> MutexGuard<'_, HonestState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes messages until all senders are gone or the peer disconnects.
fn pour(receiver: &Receiver<Value>, exchange: &mut Exchange<'_>) -> io::Result<()> {
    while let Ok(message) = receiver.recv() {
        exchange.raw(format!("event: message\ndata: {message}\n\n").as_bytes())?;
    }
    Ok(())
}
