//! A plain load balancer over HTTP: each request goes to the next gateway that says that it is ready.
//! Owns: its listener, its checks, who got how many.  Never: repeats a request that was sent, keeps a session anywhere.
//! In: the addresses of gateways.  Out: their responses, byte for byte.
//! Tests: below, `metamcp/tests/fleet`.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant};

use crate::nats::get_within;

/// How often each gateway is asked, and how long it has to say that it is ready.
const CHECK_EVERY: Duration = Duration::from_millis(200);
const CHECK: Duration = Duration::from_millis(800);
/// How long a gateway may take to take a connection.
const CONNECTING: Duration = Duration::from_millis(500);
/// The longest head of a request.
const LONGEST_HEAD: usize = 64 * 1024;
/// How long a client may take for its head.
const HEAD: Duration = Duration::from_secs(30);

struct Backend {
    address: SocketAddr,
    is_ready: AtomicBool,
    served: AtomicUsize,
}

struct Shared {
    backends: RwLock<Vec<Arc<Backend>>>,
    next: AtomicUsize,
    is_over: AtomicBool,
}

/// See the module; its connections end by themselves.
pub struct Balancer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Balancer {
    /// Listens there, on a free port if that is 0.
    pub fn start(listen: SocketAddr, gateways: &[SocketAddr]) -> io::Result<Balancer> {
        let listener = TcpListener::bind(listen)?;
        let shared = Arc::new(Shared {
            backends: RwLock::default(),
            next: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let balancer = Balancer { address: listener.local_addr()?, shared: Arc::clone(&shared) };
        for gateway in gateways {
            balancer.add(*gateway);
        }
        thread::spawn(move || {
            for socket in listener.incoming() {
                if shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(socket) = socket else { continue };
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    let done = pass(&shared, &socket);
                    if done.is_err() {
                        socket.shutdown(Shutdown::Both).ok();
                    }
                });
            }
        });
        Ok(balancer)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One more gateway.
    pub fn add(&self, address: SocketAddr) {
        let backend = Arc::new(Backend {
            address,
            is_ready: AtomicBool::new(false),
            served: AtomicUsize::new(0),
        });
        let mut backends = self.shared.backends.write().unwrap_or_else(PoisonError::into_inner);
        backends.push(Arc::clone(&backend));
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            while !shared.is_over.load(Ordering::Relaxed) {
                let began = Instant::now();
                let asked = get_within(backend.address, "/readyz", CHECK);
                backend.is_ready.store(asked.is_ok_and(|said| said.0 == 200), Ordering::Relaxed);
                thread::sleep(CHECK_EVERY.saturating_sub(began.elapsed()));
            }
        });
    }

    /// How many requests each was given, in the order they were added.
    pub fn served(&self) -> Vec<usize> {
        let backends = self.shared.backends.read().unwrap_or_else(PoisonError::into_inner);
        backends.iter().map(|one| one.served.load(Ordering::Relaxed)).collect()
    }

    /// How many are ready.
    pub fn ready(&self) -> usize {
        let backends = self.shared.backends.read().unwrap_or_else(PoisonError::into_inner);
        backends.iter().filter(|one| one.is_ready.load(Ordering::Relaxed)).count()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes the accept loop.
        drop(TcpStream::connect(self.address));
    }
}

/// One request and its response. The gateway is told to close, so that the next request of this client goes to another.
fn pass(shared: &Shared, client: &TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    client.set_read_timeout(Some(HEAD))?;
    let (head, rest) = head(client)?;
    client.set_read_timeout(None)?;
    let Some(mut gateway) = connect(shared) else {
        let none = "no gateway is ready\n";
        return write!(
            &*client,
            "HTTP/1.1 503 x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{none}",
            none.len()
        );
    };
    gateway.write_all(&closing(&head))?;
    gateway.write_all(&rest)?;
    let (mut client_in, mut gateway_in) = (client.try_clone()?, gateway.try_clone()?);
    thread::spawn(move || {
        // Who stops listening has nothing more to say either.
        io::copy(&mut client_in, &mut gateway_in).ok();
        gateway_in.shutdown(Shutdown::Both).ok();
    });
    io::copy(&mut gateway, &mut &*client).ok();
    client.shutdown(Shutdown::Both)
}

/// The head of a request, and what came with it.
fn head(mut client: &TcpStream) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let (mut read, mut chunk) = (Vec::new(), [0; 8192]);
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = read.split_off(end + 4);
            return Ok((read, rest));
        }
        let length = client.read(&mut chunk)?;
        if length == 0 || read.len() > LONGEST_HEAD {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&chunk[..length]);
    }
}

/// The head with `Connection: close`.
fn closing(head: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(head);
    let is_connection = |line: &&str| {
        line.len() >= 11 && line.as_bytes()[..11].eq_ignore_ascii_case(b"connection:")
    };
    let kept: Vec<&str> =
        text.trim_end().split("\r\n").filter(|line| !is_connection(line)).collect();
    format!("{}\r\nConnection: close\r\n\r\n", kept.join("\r\n")).into_bytes()
}

/// The next gateway that is ready and takes a connection; nothing was said to those that do not.
fn connect(shared: &Shared) -> Option<TcpStream> {
    let backends = shared.backends.read().unwrap_or_else(PoisonError::into_inner).clone();
    for _ in 0..backends.len() {
        let next = shared.next.fetch_add(1, Ordering::Relaxed) % backends.len();
        let backend = &backends[next];
        if !backend.is_ready.load(Ordering::Relaxed) {
            continue;
        }
        match TcpStream::connect_timeout(&backend.address, CONNECTING) {
            Ok(socket) => {
                socket.set_nodelay(true).ok();
                backend.served.fetch_add(1, Ordering::Relaxed);
                return Some(socket);
            }
            Err(_) => backend.is_ready.store(false, Ordering::Relaxed),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patience::eventually;
    use crate::site::Site;

    /// However busy the machine is.
    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn requests_go_around_and_pass_over_who_is_not_ready() {
        let sites = ["a", "b", "c"].map(|name| {
            Site::start(Arc::new(move |request, exchange| {
                let status = if name == "c" && request.path() == "/readyz" { 503 } else { 200 };
                exchange.over = request.header("connection") == Some("close");
                exchange.respond(status, &[], name.as_bytes())
            }))
            .unwrap()
        });
        let gateways = sites.each_ref().map(Site::address);
        let balancer = Balancer::start("127.0.0.1:0".parse().unwrap(), &gateways).unwrap();
        assert!(eventually(PATIENCE, || balancer.ready() == 2));
        let ask = || get_within(balancer.address(), "/x", PATIENCE).unwrap();
        let mut said: Vec<String> = (0..6).map(|_| ask().1).collect();
        said.sort();
        assert_eq!(said.concat(), "aaabbb");
        assert_eq!(balancer.served(), [3, 3, 0]);
        sites[0].stop();
        assert!(eventually(PATIENCE, || balancer.ready() == 1));
        assert_eq!(ask(), (200, "b".to_owned()));
        sites[1].stop();
        assert!(eventually(PATIENCE, || balancer.ready() == 0));
        assert_eq!(ask().0, 503);
    }

    #[test]
    fn the_gateway_is_told_to_close_whatever_the_client_said() {
        let head = b"POST /mcp HTTP/1.1\r\nHost: x\r\nconnection: keep-alive\r\nA: b\r\n\r\n";
        let told = closing(head);
        assert_eq!(told, b"POST /mcp HTTP/1.1\r\nHost: x\r\nA: b\r\nConnection: close\r\n\r\n");
    }
}
