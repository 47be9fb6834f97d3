//! A remote HTTP server on this machine, byte by byte: correct by default, and as hostile as a test wants.
//! Owns: the listener, the received requests, what was executed.  Never: leaves this machine.
//! In: an answerer for each request.  Out: all requests, in order.
//! Tests: through `metamcp/tests/remote`.

pub mod honest;

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use serde_json::Value;

pub use honest::HonestServer;

/// Socket timeout: longer than any test.
const PATIENCE: Duration = Duration::from_mins(2);

/// One request as received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// `POST` and the like.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The JSON-RPC method of the body.
    pub fn rpc(&self) -> String {
        self.json()["method"].as_str().unwrap_or_default().to_owned()
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        self.target.split('?').next().unwrap_or_default()
    }

    /// A form field of the body, or of the query.
    pub fn field(&self, name: &str) -> Option<String> {
        let query = self.target.split_once('?').map_or("", |(_, query)| query).to_owned();
        let body = String::from_utf8_lossy(&self.body).into_owned();
        [body, query].iter().flat_map(|text| text.split('&')).find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            (key == name).then(|| unescaped(value))
        })
    }
}

pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// Wraps a socket into a stream: TLS, or nothing.
pub type Wrap = dyn Fn(TcpStream) -> io::Result<Box<dyn Wire>> + Send + Sync;

/// A connection while one request is being answered.
pub struct Exchange<'a> {
    wire: &'a mut dyn Write,
    socket: &'a TcpStream,
    /// Set when the connection cannot carry another request.
    pub over: bool,
}

impl Exchange<'_> {
    /// Writes exactly these bytes.
    pub fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.wire.write_all(bytes)?;
        self.wire.flush()
    }

    /// Sends a complete response.
    pub fn respond(
        &mut self,
        status: u16,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<()> {
        let mut head = format!("HTTP/1.1 {status} x\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        let mut whole = head.into_bytes();
        whole.extend_from_slice(body);
        self.raw(&whole)
    }

    /// Sends a JSON response.
    pub fn json(&mut self, status: u16, headers: &[(&str, &str)], body: &Value) -> io::Result<()> {
        let mut all = vec![("content-type", "application/json")];
        all.extend_from_slice(headers);
        self.respond(status, &all, body.to_string().as_bytes())
    }

    /// Sends the head of an event stream, which ends with its connection.
    pub fn begin_events(&mut self, headers: &[(&str, &str)]) -> io::Result<()> {
        self.over = true;
        let mut head = "HTTP/1.1 200 x\r\ncontent-type: text/event-stream\r\n".to_owned();
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("connection: close\r\n\r\n");
        self.raw(head.as_bytes())
    }

    pub fn event(&mut self, data: &Value) -> io::Result<()> {
        self.raw(format!("data: {data}\n\n").as_bytes())
    }

    /// Sends one event with an id.
    pub fn event_as(&mut self, id: &str, data: &str) -> io::Result<()> {
        self.raw(format!("id: {id}\ndata: {data}\n\n").as_bytes())
    }

    /// Closes the connection with a reset.
    pub fn reset(&mut self) {
        self.over = true;
        let linger = nix::libc::linger { l_onoff: 1, l_linger: 0 };
        // If the option cannot be set, the peer sees a normal close, which a test does not distinguish from a reset.
        let _unset =
            nix::sys::socket::setsockopt(self.socket, nix::sys::socket::sockopt::Linger, &linger);
    }

    /// Sends nothing more until the peer closes the connection, which it does without sending more.
    pub fn wait_for_hangup(&self) {
        // An error is a reset or a timeout longer than any test: the exchange is over in either case.
        drop(self.socket.peek(&mut [0; 1]));
    }
}

/// Answers one request.
pub type Answerer = dyn Fn(&ReceivedRequest, &mut Exchange<'_>) -> io::Result<()> + Send + Sync;

/// See the module documentation.
pub struct Site {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    connections: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
    sockets: Arc<Mutex<HashMap<usize, TcpStream>>>,
}

impl Site {
    /// Listens on a loopback address, without TLS.
    pub fn start(answerer: Arc<Answerer>) -> Result<Site> {
        Site::start_on(
            "127.0.0.1:0",
            answerer,
            Arc::new(|socket| Ok(Box::new(socket) as Box<dyn Wire>)),
        )
    }

    /// Listens on an address, with each socket wrapped by `wrap`.
    pub fn start_on(place: &str, answerer: Arc<Answerer>, wrap: Arc<Wrap>) -> Result<Site> {
        let listener = TcpListener::bind(place)?;
        let site = Site {
            address: listener.local_addr()?,
            requests: Arc::default(),
            connections: Arc::default(),
            stopped: Arc::default(),
            sockets: Arc::default(),
        };
        let (requests, connections) = (Arc::clone(&site.requests), Arc::clone(&site.connections));
        let (stopped, sockets) = (Arc::clone(&site.stopped), Arc::clone(&site.sockets));
        thread::spawn(move || {
            for socket in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(socket) = socket else { continue };
                let number = connections.fetch_add(1, Ordering::SeqCst);
                if let Ok(copy) = socket.try_clone() {
                    sockets.lock().unwrap_or_else(PoisonError::into_inner).insert(number, copy);
                }
                let sockets = Arc::clone(&sockets);
                let (requests, answerer) = (Arc::clone(&requests), Arc::clone(&answerer));
                let wrap = Arc::clone(&wrap);
                // A peer that disconnects ends its own thread and nothing else.
                thread::spawn(move || {
                    drop(serve(socket, &*wrap, &requests, &*answerer));
                    // The last copy: only now the peer sees the connection close.
                    sockets.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
                });
            }
        });
        Ok(site)
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path on it.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Accepts no further connections and closes the open ones.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        // Wakes the accept loop.
        drop(TcpStream::connect(self.address));
        for (_, socket) in self.sockets.lock().unwrap_or_else(PoisonError::into_inner).drain() {
            drop(socket.shutdown(Shutdown::Both));
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(
    socket: TcpStream,
    wrap: &Wrap,
    log: &Mutex<Vec<ReceivedRequest>>,
    answerer: &Answerer,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let held = socket.try_clone()?;
    let mut wire = BufReader::new(wrap(socket)?);
    while let Some(request) = read(&mut wire)? {
        log.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
        let mut exchange = Exchange { wire: wire.get_mut(), socket: &held, over: false };
        answerer(&request, &mut exchange)?;
        if exchange.over {
            break;
        }
    }
    Ok(())
}

fn read(wire: &mut BufReader<Box<dyn Wire>>) -> io::Result<Option<ReceivedRequest>> {
    let mut line = String::new();
    if wire.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        wire.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut request = ReceivedRequest { method, target, headers, body: Vec::new() };
    let length =
        request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    request.body.resize(length, 0);
    wire.read_exact(&mut request.body)?;
    Ok(Some(request))
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match (first, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            (other, _) => {
                bytes.push(*other);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
