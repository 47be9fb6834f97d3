//! A minimal HTTP client: sends requests verbatim, and parses responses no further than necessary.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;

use serde_json::Value;

/// A timeout for what must happen but may be late on a busy machine: exceeding it means a hang, not slowness.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Generated tokens by gateway address: a request carries the token of its gateway, unless it sets the header itself.
static TOKENS: LazyLock<Mutex<HashMap<SocketAddr, String>>> = LazyLock::new(Mutex::default);

/// Registers the token of a gateway.
pub(crate) fn knows(address: SocketAddr, token: &str) {
    TOKENS.lock().unwrap().insert(address, token.to_owned());
}

/// A request, header by header.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Request {
    /// A POST of a well-behaved client.
    pub(crate) fn post(body: &Value) -> Request {
        Request::new("POST", "/mcp")
            .with("Content-Type", "application/json")
            .with("Accept", "application/json, text/event-stream")
            .body(&body.to_string())
    }

    /// A GET for an event stream.
    pub(crate) fn get(target: &str) -> Request {
        Request::new("GET", target).with("Accept", "text/event-stream")
    }

    pub(crate) fn new(method: &str, target: &str) -> Request {
        Request {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: String::new(),
        }
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Request {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same without a token.
    pub(crate) fn anonymous(self) -> Request {
        self.with("Authorization", "")
    }

    pub(crate) fn body(mut self, body: &str) -> Request {
        body.clone_into(&mut self.body);
        self
    }

    /// The request in its wire format. A host and the gateway's token are added where none is given.
    pub(crate) fn bytes(&self, address: SocketAddr) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            text.push_str(&format!("Host: {address}\r\n"));
        }
        let is_said =
            |wanted: &str| self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        if let Some(token) = TOKENS.lock().unwrap().get(&address)
            && !is_said("authorization")
        {
            text.push_str(&format!("Authorization: Bearer {token}\r\n"));
        }
        let is_sent =
            |(name, value): &&(String, String)| name != "Authorization" || !value.is_empty();
        for (name, value) in self.headers.iter().filter(is_sent) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() && !is_said("transfer-encoding") {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        text.push_str(&self.body);
        text.into_bytes()
    }

    /// Sends it on a new connection and waits for the head of the response.
    pub(crate) fn send(&self, address: SocketAddr) -> Response {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(&self.bytes(address)).unwrap();
        Response::read(Box::new(socket))
    }
}

/// A response whose body is read incrementally.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    source: BufReader<Box<dyn Read>>,
    length: Length,
}

enum Length {
    Known(usize),
    Chunks,
    Nothing,
}

impl Response {
    pub(crate) fn read(source: Box<dyn Read>) -> Response {
        let mut source = BufReader::new(source);
        let mut line = String::new();
        source.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no response: {line:?}"));
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            source.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let find = |wanted: &str| {
            headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
        };
        let length = match (find("content-length"), find("transfer-encoding")) {
            (Some(length), _) => Length::Known(length.parse().unwrap()),
            (None, Some(_)) => Length::Chunks,
            (None, None) => Length::Nothing,
        };
        Response { status, headers, source, length }
    }

    pub(crate) fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }

    /// The whole body.
    pub(crate) fn text(&mut self) -> String {
        let mut body = Vec::new();
        match self.length {
            Length::Known(length) => {
                body.resize(length, 0);
                self.source.read_exact(&mut body).unwrap();
            }
            Length::Chunks => {
                while let Some(chunk) = self.chunk() {
                    body.extend_from_slice(&chunk);
                }
            }
            Length::Nothing => {}
        }
        String::from_utf8(body).unwrap()
    }

    /// The whole body as JSON.
    pub(crate) fn json(&mut self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text:?}"))
    }

    /// The next chunk of a chunked body.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let mut line = String::new();
        // A connection that is cut has no last chunk.
        if self.source.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        let size = usize::from_str_radix(line.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        self.source.read_exact(&mut chunk).unwrap();
        chunk.truncate(size);
        (size > 0).then_some(chunk)
    }

    /// The body as an event stream.
    pub(crate) fn events(self) -> Events {
        assert_eq!(self.status, 200);
        assert_eq!(self.header("content-type"), Some("text/event-stream"));
        Events { response: self, rest: String::new() }
    }
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: String,
    pub(crate) id: String,
    pub(crate) data: String,
}

impl Event {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }
}

/// The events of a stream as they arrive, without comments.
pub(crate) struct Events {
    response: Response,
    rest: String,
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            while let Some(end) = self.rest.find("\n\n") {
                let block: String = self.rest.drain(..end + 2).collect();
                let field = |wanted: &str| -> String {
                    let mut lines = block.lines();
                    lines.find_map(|line| line.strip_prefix(wanted)).unwrap_or_default().to_owned()
                };
                let event =
                    Event { kind: field("event: "), id: field("id: "), data: field("data: ") };
                if !event.data.is_empty() || !event.id.is_empty() {
                    return Some(event);
                }
            }
            let chunk = self.response.chunk()?;
            self.rest.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }
}
