//! What an honest remote server answers, in either era and in the transport of 2024; it counts what it executes.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::{Asked, Talk};

/// How it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speech {
    /// With `initialize` and sessions.
    Sessions,
    /// With `initialize`, and it keeps nothing.
    NoSessions,
    /// The revision of 2026.
    Stateless,
    /// The transport of 2024, at `/sse`.
    Older,
}

/// See the module.
pub struct Honest {
    speech: Speech,
    /// Whether answers come as streams.
    streams: bool,
    last: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    sessions: HashSet<String>,
    /// Arguments of every call that was executed.
    executed: Vec<Value>,
    /// Ways to the streams that clients hold open, by session.
    listeners: HashMap<String, Sender<Value>>,
    tools: Vec<Value>,
}

impl Honest {
    /// One that speaks so.
    pub fn new(speech: Speech, streams: bool) -> Honest {
        let kept = Kept {
            tools: vec![
                json!({"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}}}),
                json!({"name": "look", "description": "Only looks.", "annotations": {"readOnlyHint": true}, "inputSchema": {"type": "object"}}),
                json!({"name": "region", "description": "Has a header.", "inputSchema": {"type": "object", "properties": {"where": {"type": "string", "x-mcp-header": "Region"}}}}),
            ],
            ..Kept::default()
        };
        Honest { speech, streams, last: AtomicU64::new(0), kept: Mutex::new(kept) }
    }

    /// Arguments of every call that was executed.
    pub fn executed(&self) -> Vec<Value> {
        self.kept().executed.clone()
    }

    /// Counts an execution that the test answers for itself.
    pub fn execute(&self, asked: &Asked) {
        let arguments = asked.json()["params"]["arguments"].clone();
        self.kept().executed.push(arguments);
    }

    /// Forgets every session, as a server does that was started anew.
    pub fn forget(&self) {
        let mut kept = self.kept();
        kept.sessions.clear();
        kept.listeners.clear();
    }

    /// Has one more tool from now on, and tells whoever listens.
    pub fn learn(&self, tool: Value) {
        let told = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
        let mut kept = self.kept();
        kept.tools.push(tool);
        kept.listeners.values().for_each(|listener| drop(listener.send(told.clone())));
    }

    /// How many clients hold a stream open.
    pub fn listeners(&self) -> usize {
        self.kept().listeners.len()
    }

    /// Answers one request.
    pub fn answer(&self, asked: &Asked, talk: &mut Talk<'_>) -> io::Result<()> {
        match (asked.method.as_str(), self.speech) {
            ("GET", Speech::Older) => self.older(talk),
            ("POST", Speech::Older) if asked.path() == "/sse" => talk.respond(405, &[], b"no"),
            ("POST", Speech::Older) => self.posted(asked, talk),
            ("GET", Speech::Sessions) => self.general(asked, talk),
            ("DELETE", Speech::Sessions) => {
                let id = asked.header("mcp-session-id").unwrap_or_default();
                let known = self.kept().sessions.remove(id);
                talk.respond(if known { 200 } else { 404 }, &[], b"")
            }
            ("POST", _) => self.message(asked, talk),
            _ => talk.respond(405, &[("allow", "POST")], b""),
        }
    }

    fn message(&self, asked: &Asked, talk: &mut Talk<'_>) -> io::Result<()> {
        let message = asked.json();
        let method = message["method"].as_str().unwrap_or_default();
        let fault = |status: u16, code: i64, text: &str, talk: &mut Talk<'_>| {
            let error = json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": text}});
            talk.json(status, &[], &error)
        };
        if self.speech == Speech::Stateless {
            let version =
                message["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"].as_str();
            if version != Some("2026-07-28") {
                return fault(400, -32022, "unsupported version", talk);
            }
            let named = |header: &str, value: &Value| asked.header(header) == value.as_str();
            let params = &message["params"];
            let fits = named("mcp-method", &message["method"])
                && asked.header("mcp-protocol-version") == version
                && (method != "tools/call" || named("mcp-name", &params["name"]))
                && (params["name"] != "region"
                    || named("mcp-param-region", &params["arguments"]["where"]));
            if !fits {
                return fault(400, -32020, "headers do not fit", talk);
            }
        } else if method == "server/discover" {
            let (status, code) =
                if self.speech == Speech::Sessions { (400, -32000) } else { (200, -32601) };
            return fault(status, code, "what is that", talk);
        }
        let id = asked.header("mcp-session-id").unwrap_or_default();
        if self.speech == Speech::Sessions
            && method != "initialize"
            && !self.kept().sessions.contains(id)
        {
            return talk.respond(404, &[], b"no such session");
        }
        if message.get("id").is_none() || message.get("method").is_none() {
            return talk.respond(202, &[], b"");
        }
        let mut headers = Vec::new();
        let fresh = format!("session-{}", self.last.fetch_add(1, Ordering::SeqCst));
        if method == "initialize" && self.speech == Speech::Sessions {
            self.kept().sessions.insert(fresh.clone());
            headers.push(("mcp-session-id", fresh.as_str()));
        }
        if method == "subscriptions/listen" {
            return self.subscribed(&message, talk);
        }
        let answer = self.reply(&message);
        if self.streams {
            talk.begin_events(&headers)?;
            return talk.event(&answer);
        }
        talk.json(200, &headers, &answer)
    }

    /// The answer to a request.
    pub fn reply(&self, message: &Value) -> Value {
        let stateless = self.speech == Speech::Stateless;
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
            "tools/list" => json!({"tools": self.kept().tools}),
            "tools/call" => {
                self.kept().executed.push(params["arguments"].clone());
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

    fn subscribed(&self, message: &Value, talk: &mut Talk<'_>) -> io::Result<()> {
        let receiver = self.hold(&format!("listen-{}", message["id"]));
        talk.begin_events(&[])?;
        talk.event(&json!({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": {}}))?;
        pour(&receiver, talk)
    }

    fn general(&self, asked: &Asked, talk: &mut Talk<'_>) -> io::Result<()> {
        let id = asked.header("mcp-session-id").unwrap_or_default().to_owned();
        if !self.kept().sessions.contains(&id) {
            return talk.respond(404, &[], b"");
        }
        let receiver = self.hold(&id);
        talk.begin_events(&[])?;
        pour(&receiver, talk)
    }

    fn older(&self, talk: &mut Talk<'_>) -> io::Result<()> {
        let id = format!("older-{}", self.last.fetch_add(1, Ordering::SeqCst));
        let receiver = self.hold(&id);
        talk.begin_events(&[])?;
        talk.raw(format!("event: endpoint\ndata: /messages?sessionId={id}\n\n").as_bytes())?;
        pour(&receiver, talk)
    }

    fn posted(&self, asked: &Asked, talk: &mut Talk<'_>) -> io::Result<()> {
        let id = asked.field("sessionId").unwrap_or_default();
        let Some(listener) = self.kept().listeners.get(&id).cloned() else {
            return talk.respond(404, &[], b"");
        };
        let message = asked.json();
        talk.respond(202, &[], b"Accepted")?;
        if message.get("id").is_some() && message.get("method").is_some() {
            drop(listener.send(self.reply(&message)));
        }
        Ok(())
    }

    fn hold(&self, id: &str) -> Receiver<Value> {
        let (sender, receiver) = channel();
        self.kept().listeners.insert(id.to_owned(), sender);
        receiver
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes what comes until nobody can send more or the peer is gone.
fn pour(receiver: &Receiver<Value>, talk: &mut Talk<'_>) -> io::Result<()> {
    while let Ok(message) = receiver.recv() {
        talk.raw(format!("event: message\ndata: {message}\n\n").as_bytes())?;
    }
    Ok(())
}
