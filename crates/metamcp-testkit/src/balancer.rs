//! A load balancer that sends each request to the next gateway, whoever sent it: the one that nothing can rely on.
//! Owns: the turn, and that a connection carries one request.      Never: reads a body, keeps a client at a gateway.
//! In: addresses.  Out: an address; how many requests each gateway got.
//! Tests: below.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Longest head of a request that is passed on.
const MAX_HEAD: usize = 64 * 1024;

/// See the module. Its threads end with their connections, and with the process.
pub struct Balancer {
    pub address: SocketAddr,
    counts: Arc<Vec<AtomicUsize>>,
}

impl Balancer {
    /// Passes requests on to these in turns.
    pub fn start(gateways: &[SocketAddr]) -> io::Result<Balancer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let counts: Arc<Vec<AtomicUsize>> =
            Arc::new(gateways.iter().map(|_| AtomicUsize::new(0)).collect());
        let (gateways, counting) = (gateways.to_vec(), Arc::clone(&counts));
        thread::spawn(move || {
            let mut turn = 0;
            for client in listener.incoming().map_while(Result::ok) {
                let at = turn % gateways.len();
                turn += 1;
                let (gateway, counting) = (gateways[at], Arc::clone(&counting));
                thread::spawn(move || {
                    // What breaks off here breaks off for the client, which is what a test looks at.
                    if let Ok(true) = pass_on(client, gateway) {
                        counting[at].fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        Ok(Balancer { address, counts })
    }

    /// How many requests each gateway got.
    pub fn counts(&self) -> Vec<usize> {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// One request and its response. False if the client sent none.
fn pass_on(client: TcpStream, gateway: SocketAddr) -> io::Result<bool> {
    let mut from_client = BufReader::new(client.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        let before = head.len();
        if from_client.by_ref().take(MAX_HEAD as u64).read_line(&mut head)? == 0 {
            return Ok(false);
        }
        if head.len() > MAX_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // The next request of this client comes over a connection of its own, so that it gets the next gateway.
        if head[before..].to_ascii_lowercase().starts_with("connection:") {
            head.truncate(before);
        }
    }
    head.truncate(head.len() - 2);
    head.push_str("Connection: close\r\n\r\n");
    let mut to_gateway = TcpStream::connect(gateway)?;
    to_gateway.set_nodelay(true)?;
    client.set_nodelay(true)?;
    to_gateway.write_all(head.as_bytes())?;
    let mut body = to_gateway.try_clone()?;
    let mut answer = to_gateway;
    let mut to_client = client;
    let upwards = thread::spawn(move || {
        io::copy(&mut from_client, &mut body).ok();
        // The client is gone: so is its connection to the gateway.
        body.shutdown(Shutdown::Both).ok();
    });
    io::copy(&mut answer, &mut to_client).ok();
    to_client.shutdown(Shutdown::Both).ok();
    upwards.join().ok();
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers each connection with its name.
    fn named(name: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let mut socket = BufReader::new(socket);
                let mut line = String::new();
                while line != "\r\n" {
                    line.clear();
                    socket.read_line(&mut line).unwrap();
                }
                let answer = format!(
                    "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\n{name}"
                );
                socket.get_mut().write_all(answer.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn each_request_gets_the_next_gateway() {
        let balancer = Balancer::start(&[named("a"), named("b")]).unwrap();
        let ask = || {
            let mut socket = TcpStream::connect(balancer.address).unwrap();
            socket
                .write_all(b"GET / HTTP/1.1\r\nhost: x\r\nConnection: keep-alive\r\n\r\n")
                .unwrap();
            let mut answer = String::new();
            socket.read_to_string(&mut answer).unwrap();
            answer.chars().last().unwrap()
        };
        assert_eq!([ask(), ask(), ask(), ask()], ['a', 'b', 'a', 'b']);
    }
}
