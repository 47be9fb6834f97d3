//! A fake embeddings API on loopback: enough HTTP/1.1 to answer well, and to misbehave.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// Request line and headers.
    pub(super) head: String,
    pub(super) body: Value,
}

impl Seen {
    pub(super) fn texts(&self) -> Vec<&str> {
        let input = self.body["input"].as_array().unwrap();
        input.iter().map(|text| text.as_str().unwrap()).collect()
    }
}

pub(super) enum Reply {
    /// A complete response with this status, headers and body.
    Whole(u16, &'static str, String),
    /// These bytes, then the connection is closed.
    Bytes(Vec<u8>),
    /// A valid head and an endless body.
    Endless,
    /// No response; the connection stays open.
    Hang,
    /// A complete response after a delay.
    Late(Duration, String),
}

type Answer = dyn Fn(&Seen) -> Reply + Send + Sync;

pub(super) struct Api {
    pub(super) address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    seen: Mutex<Vec<Seen>>,
    answer: Mutex<Arc<Answer>>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
}

impl Api {
    pub(super) async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Api {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(Inner {
            seen: Mutex::default(),
            answer: Mutex::new(Arc::new(answer)),
            at_once: AtomicUsize::new(0),
            most_at_once: AtomicUsize::new(0),
        });
        let shared = inner.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, shared.clone()));
            }
        });
        Api { address, inner }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.inner.seen.lock().clone()
    }

    pub(super) fn answer_with(&self, answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) {
        *self.inner.answer.lock() = Arc::new(answer);
    }

    pub(super) fn most_at_once(&self) -> usize {
        self.inner.most_at_once.load(Ordering::SeqCst)
    }
}

/// The vector of a text at this API: four numbers, not normalized.
pub(super) fn vector(text: &str) -> [f32; 4] {
    let sum = text.bytes().fold(7_u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    [1.0, (sum % 97) as f32, (sum / 97 % 89) as f32, text.len() as f32]
}

/// A valid response, in reverse order to test sorting by index.
pub(super) fn honest(seen: &Seen) -> Reply {
    Reply::Whole(200, "", honest_body(seen))
}

pub(super) fn honest_body(seen: &Seen) -> String {
    let texts = seen.texts();
    let data: Vec<Value> = texts
        .iter()
        .enumerate()
        .rev()
        .map(|(index, text)| json!({"object": "embedding", "index": index, "embedding": vector(text)}))
        .collect();
    json!({"object": "list", "data": data, "model": "m", "usage": {"total_tokens": 1}}).to_string()
}

async fn converse(mut stream: TcpStream, inner: Arc<Inner>) {
    let mut buffer = Vec::new();
    loop {
        let Some(seen) = request(&mut stream, &mut buffer).await else { return };
        let now = inner.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        inner.most_at_once.fetch_max(now, Ordering::SeqCst);
        let answer = inner.answer.lock().clone();
        let reply = answer(&seen);
        inner.seen.lock().push(seen);
        let goes_on = send(&mut stream, reply).await;
        inner.at_once.fetch_sub(1, Ordering::SeqCst);
        if !goes_on {
            return;
        }
    }
}

async fn request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
            let length: usize = head
                .lines()
                .find_map(|line| {
                    line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok()
                })
                .unwrap_or(0);
            if buffer.len() >= end + 4 + length {
                let body = serde_json::from_slice(&buffer[end + 4..end + 4 + length]).unwrap();
                buffer.drain(..end + 4 + length);
                return Some(Seen { head, body });
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}

/// Whether the connection stays open for another request.
async fn send(stream: &mut TcpStream, reply: Reply) -> bool {
    match reply {
        Reply::Whole(status, headers, body) => whole(stream, status, headers, &body).await,
        Reply::Late(wait, body) => {
            // Simulates a slow service; no test waits for it.
            tokio::time::sleep(wait).await;
            whole(stream, 200, "", &body).await
        }
        Reply::Bytes(bytes) => {
            stream.write_all(&bytes).await.ok();
            false
        }
        Reply::Endless => {
            let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"data\":[";
            stream.write_all(head).await.ok();
            // Ends when the peer closes the connection.
            let spaces = vec![b' '; 65_536];
            while stream.write_all(&spaces).await.is_ok() {}
            false
        }
        Reply::Hang => {
            // Until the peer gives up.
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.ok();
            false
        }
    }
}

async fn whole(stream: &mut TcpStream, status: u16, headers: &str, body: &str) -> bool {
    let length = body.len();
    let answer = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
    stream.write_all(answer.as_bytes()).await.is_ok()
}
