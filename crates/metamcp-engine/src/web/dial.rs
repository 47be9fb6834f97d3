//! From an address to a socket: resolves the name once, applies the SSRF guard, and tries the remaining addresses.

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
use super::proxy::Proxy;

const DNS_TIMEOUT: Duration = Duration::from_secs(5);
/// Most addresses tried of one name.
const MAX_ADDRESSES_TRIED: usize = 4;

/// The connector.
#[derive(Debug, Clone)]
pub(super) struct Dial {
    plan: Arc<Plan>,
}

#[derive(Debug)]
struct Plan {
    connect: Duration,
    proxy: Option<Proxy>,
    ssrf_policy: SsrfPolicy,
}

/// Refused by the SSRF guard; a type of its own, to be distinguished from network errors.
#[derive(Debug, thiserror::Error)]
#[error("{host} resolves to {ip}, to which a server may not redirect")]
pub(super) struct Forbidden {
    host: String,
    ip: IpAddr,
}

impl Dial {
    pub(super) fn new(connect: Duration, proxy: Option<Proxy>, ssrf_policy: SsrfPolicy) -> Dial {
        Dial { plan: Arc::new(Plan { connect, proxy, ssrf_policy }) }
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
        let proxy = self.proxy.as_ref().filter(|proxy| secure && proxy.is_for(host));
        if let Some(proxy) = proxy {
            // The proxy resolves names; a literal IP address can be checked here.
            if let Ok(ip) = host.parse() {
                self.check(host, ip)?;
            }
            let addresses = lookup(proxy.host(), proxy.port()).await?;
            let mut stream = self.connect(&addresses).await?;
            let opening = proxy.open(&mut stream, host, port);
            return match timeout(self.connect, opening).await {
                // Where the proxy connects to is not known here.
                Ok(opened) => opened.map(|()| {
                    reached(host, SsrfZone::Public);
                    stream
                }),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            };
        }
        let addresses = lookup(host, port).await?;
        for ip in &addresses {
            self.check(host, ip.ip())?;
        }
        let stream = self.connect(&addresses).await?;
        if let Ok(peer) = stream.peer_addr() {
            reached(host, SsrfZone::of(peer.ip()));
        }
        Ok(stream)
    }

    /// One forbidden address condemns the whole name: it is likely an attack.
    fn check(&self, host: &str, ip: IpAddr) -> io::Result<()> {
        match self.ssrf_policy {
            SsrfPolicy::Anywhere => Ok(()),
            SsrfPolicy::SentFrom(zone) if zone.may_redirect_to(SsrfZone::of(ip)) => Ok(()),
            SsrfPolicy::SentFrom(_) => {
                let forbidden = Forbidden { host: host.to_owned(), ip };
                Err(io::Error::new(io::ErrorKind::PermissionDenied, forbidden))
            }
        }
    }

    async fn connect(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for ip in addresses.iter().take(MAX_ADDRESSES_TRIED) {
            match timeout(self.connect, TcpStream::connect(ip)).await {
                Ok(Ok(stream)) => {
                    // Without it small messages wait for the peer's delayed acknowledgement.
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
    match timeout(DNS_TIMEOUT, lookup_host((host, port))).await {
        Ok(found) => found.map(Iterator::collect),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// The zones in which hosts were reached. A name is resolved anew for every connection, and its owner can change the
/// answer each time (DNS rebinding): what counts is where its responses came from, not what it resolves to now.
static ZONES_BY_HOST: Mutex<BTreeMap<String, SsrfZone>> = Mutex::new(BTreeMap::new());
/// Most hosts remembered; any further one counts as public.
const MAX_HOSTS: usize = 4096;

/// Records a connection to `host`. A host reached in two zones counts as public from then on.
fn reached(host: &str, zone: SsrfZone) {
    let mut known = ZONES_BY_HOST.lock();
    let has_room = known.len() < MAX_HOSTS;
    match known.get_mut(host) {
        Some(before) if *before == zone => {}
        Some(before) => *before = SsrfZone::Public,
        None if has_room => drop(known.insert(host.to_owned(), zone)),
        None => {}
    }
}

/// The zone of a configured address, which decides where it may redirect to: that of its IP address, or the one in which
/// its host was reached so far.
pub fn zone_of(address: &Address) -> SsrfZone {
    let host = address.host().trim_start_matches('[').trim_end_matches(']');
    if let Ok(ip) = host.parse() {
        return SsrfZone::of(ip);
    }
    let known = ZONES_BY_HOST.lock();
    known.get(host).copied().unwrap_or(SsrfZone::Public)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests start, wait and measure for themselves")]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    #[test]
    fn dns_rebinding_does_not_change_the_zone_of_a_host() {
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
    async fn small_messages_are_not_delayed_directly_or_through_a_proxy() {
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
        let proxy = Proxy::named(|name| (name == "HTTPS_PROXY").then(|| here.to_string()));
        assert!(proxy.is_some());
        for (proxy, uri) in
            [(None, format!("http://{here}/")), (proxy, "https://far.example/".to_owned())]
        {
            let plan = Plan { connect: DNS_TIMEOUT, proxy, ssrf_policy: SsrfPolicy::Anywhere };
            let stream = plan.dial(&uri.parse().unwrap()).await.unwrap();
            assert!(stream.nodelay().unwrap(), "{uri}");
        }
    }

    #[tokio::test]
    async fn no_spelling_of_a_forbidden_ip_address_gets_through() {
        let plan = |zone| Plan {
            connect: Duration::from_millis(200),
            proxy: None,
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
            // Some spellings are not an address on every system; those are not connected to either.
            let looked_up = error.kind() == io::ErrorKind::PermissionDenied;
            let unknown = error.get_ref().is_some_and(|inner| !inner.is::<Forbidden>());
            assert!(looked_up || unknown, "{host}: {error:?}");
        }
        let here: Uri = "http://127.0.0.1:9/".parse().unwrap();
        let error = plan(SsrfZone::Loopback).dial(&here).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }
}
