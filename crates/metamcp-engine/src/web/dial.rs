//! From an address to a socket: the name is looked up once, what may not be visited is left out, and the rest is tried.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::Uri;
use hyper_util::rt::TokioIo;
use metamcp_types::web::{Address, SsrfZone};
use parking_lot::Mutex;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tower_service::Service;

use super::SsrfPolicy;
use super::tunnel::Tunnel;

/// How long the name service may take.
const LOOKUP: Duration = Duration::from_secs(5);
/// Most addresses of one name that are tried.
const MOST_TRIED: usize = 4;

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    connect: Duration,
    tunnel: Option<Tunnel>,
    ssrf_policy: SsrfPolicy,
}

/// A number that may not be visited; told apart from a network that is down by its type.
#[derive(Debug, thiserror::Error)]
#[error("{host} is {number}, where a server may not send us")]
pub(super) struct Forbidden {
    host: String,
    number: IpAddr,
}

impl Dial {
    pub(super) fn new(connect: Duration, tunnel: Option<Tunnel>, ssrf_policy: SsrfPolicy) -> Dial {
        Dial { plan: Arc::new(Plan { connect, tunnel, ssrf_policy }) }
    }
}

impl Service<Uri> for Dial {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let plan = Arc::clone(&self.plan);
        Box::pin(async move { plan.dial(&uri).await.map(TokioIo::new) })
    }
}

impl Plan {
    async fn dial(&self, uri: &Uri) -> io::Result<TcpStream> {
        let host = uri.host().ok_or(io::ErrorKind::InvalidInput)?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let tunnel = self.tunnel.as_ref().filter(|tunnel| secure && tunnel.is_for(host));
        if let Some(tunnel) = tunnel {
            // Who the name belongs to is looked up at the other end; a number can be judged here.
            if let Ok(number) = host.parse() {
                self.judge(host, number)?;
            }
            let numbers = lookup(tunnel.host(), tunnel.port()).await?;
            let mut stream = self.connect(&numbers).await?;
            let opening = tunnel.open(&mut stream, host, port);
            return match timeout(self.connect, opening).await {
                // Where the other end of a tunnel leads is not known here.
                Ok(opened) => opened.map(|()| {
                    reached(host, SsrfZone::Public);
                    stream
                }),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            };
        }
        let numbers = lookup(host, port).await?;
        for number in &numbers {
            self.judge(host, number.ip())?;
        }
        let stream = self.connect(&numbers).await?;
        if let Ok(peer) = stream.peer_addr() {
            reached(host, SsrfZone::of(peer.ip()));
        }
        Ok(stream)
    }

    /// One number that may not be visited spoils the name: whoever gives it out means us no good.
    fn judge(&self, host: &str, number: IpAddr) -> io::Result<()> {
        match self.ssrf_policy {
            SsrfPolicy::Anywhere => Ok(()),
            SsrfPolicy::SentFrom(zone) if zone.may_redirect_to(SsrfZone::of(number)) => Ok(()),
            SsrfPolicy::SentFrom(_) => {
                let forbidden = Forbidden { host: host.to_owned(), number };
                Err(io::Error::new(io::ErrorKind::PermissionDenied, forbidden))
            }
        }
    }

    async fn connect(&self, numbers: &[SocketAddr]) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for number in numbers.iter().take(MOST_TRIED) {
            match timeout(self.connect, TcpStream::connect(number)).await {
                Ok(Ok(stream)) => {
                    // Without it every small message waits for the other side's delayed receipt.
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }
}

async fn lookup(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match timeout(LOOKUP, lookup_host((host, port))).await {
        Ok(found) => found.map(Iterator::collect),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// The zones in which names were reached. A name is looked up anew for every connection, and whoever owns it can say
/// something else each time: what counts is where its words came from, not what it says of itself when asked.
static REACHED: Mutex<BTreeMap<String, SsrfZone>> = Mutex::new(BTreeMap::new());
/// Most names remembered; one more is treated as one of the internet.
const MOST_NAMES: usize = 4096;

/// A connection to `host` was made. A name that was reached in two zones counts as one of the internet, for good.
fn reached(host: &str, zone: SsrfZone) {
    let mut known = REACHED.lock();
    let has_room = known.len() < MOST_NAMES;
    match known.get_mut(host) {
        Some(before) if *before == zone => {}
        Some(before) => *before = SsrfZone::Public,
        None if has_room => drop(known.insert(host.to_owned(), zone)),
        None => {}
    }
}

/// The zone of an address that the operator wrote, by which it is measured where it may send us: that of its number, or
/// the one in which its name was reached so far.
pub fn zone_of(address: &Address) -> SsrfZone {
    let host = address.host().trim_start_matches('[').trim_end_matches(']');
    if let Ok(number) = host.parse() {
        return SsrfZone::of(number);
    }
    let known = REACHED.lock();
    known.get(host).copied().unwrap_or(SsrfZone::Public)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn a_name_cannot_talk_itself_into_another_zone() {
        let zone = |host: &str| zone_of(&Address::parse(&format!("https://{host}/mcp")).unwrap());
        assert_eq!(zone("127.0.0.1"), SsrfZone::Loopback);
        assert_eq!(zone("[::1]:8443"), SsrfZone::Loopback);
        assert_eq!(zone("10.1.2.3"), SsrfZone::Private);
        assert_eq!(zone("never-reached.test"), SsrfZone::Public);
        reached("inside.test", SsrfZone::Private);
        reached("inside.test", SsrfZone::Private);
        assert_eq!(zone("inside.test"), SsrfZone::Private);
        reached("rebinds.test", SsrfZone::Public);
        reached("rebinds.test", SsrfZone::Loopback);
        assert_eq!(zone("rebinds.test"), SsrfZone::Public);
        reached("rebinds-back.test", SsrfZone::Loopback);
        reached("rebinds-back.test", SsrfZone::Public);
        reached("rebinds-back.test", SsrfZone::Loopback);
        assert_eq!(zone("rebinds-back.test"), SsrfZone::Public);
    }

    #[tokio::test]
    async fn small_messages_are_not_held_back_directly_or_through_a_tunnel() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let here = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut asked = Vec::new();
                    while !asked.ends_with(b"\r\n\r\n") {
                        if socket.read_buf(&mut asked).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    drop(socket.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await);
                });
            }
        });
        let tunnel = Tunnel::named(|name| (name == "HTTPS_PROXY").then(|| here.to_string()));
        assert!(tunnel.is_some());
        for (tunnel, uri) in
            [(None, format!("http://{here}/")), (tunnel, "https://far.example/".to_owned())]
        {
            let plan = Plan { connect: LOOKUP, tunnel, ssrf_policy: SsrfPolicy::Anywhere };
            let stream = plan.dial(&uri.parse().unwrap()).await.unwrap();
            assert!(stream.nodelay().unwrap(), "{uri}");
        }
    }

    #[tokio::test]
    async fn no_spelling_of_a_forbidden_number_gets_through() {
        let plan = |zone| Plan {
            connect: Duration::from_millis(200),
            tunnel: None,
            ssrf_policy: SsrfPolicy::SentFrom(zone),
        };
        for host in [
            "127.0.0.1",
            "127.1",
            "0177.0.0.1",
            "0x7f.1",
            "2130706433",
            "0x7f000001",
            "localhost",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "10.0.0.1",
            "10.1",
            "0x0a000001",
            "192.168.1.1",
            "172.16.0.1",
            "100.64.0.1",
            "169.254.169.254",
            "0xa9fea9fe",
            "2852039166",
            "0251.0376.0251.0376",
            "[::ffff:169.254.169.254]",
            "[fe80::1]",
            "[fd00::1]",
            "0.0.0.0",
            "0",
            "[::]",
            "255.255.255.255",
        ] {
            let uri: Uri = format!("http://{host}:9/").parse().unwrap();
            let error = plan(SsrfZone::Public).dial(&uri).await.unwrap_err();
            // Some spellings are no address for every system; those are not connected to either.
            let looked_up = error.kind() == io::ErrorKind::PermissionDenied;
            let unknown = error.get_ref().is_some_and(|inner| !inner.is::<Forbidden>());
            assert!(looked_up || unknown, "{host}: {error:?}");
        }
        let here: Uri = "http://127.0.0.1:9/".parse().unwrap();
        let error = plan(SsrfZone::Loopback).dial(&here).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
