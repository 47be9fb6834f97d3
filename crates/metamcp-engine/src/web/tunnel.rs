//! The way through a tunnel that the surroundings name (`HTTPS_PROXY`), and which hosts it is not for (`NO_PROXY`).

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use metamcp_types::web::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::env;

/// Longest answer of a tunnel before the way is open.
const MAX_ANSWER: usize = 16 * 1024;

/// A tunnel.
#[derive(Clone, PartialEq, Eq)]
pub struct Tunnel {
    host: String,
    port: u16,
    credentials: Option<String>,
    except: Vec<String>,
}

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tunnel({}:{})", self.host, self.port)
    }
}

impl Tunnel {
    /// The one that variables name, looked up by `variable`.
    pub fn named(variable: impl Fn(&str) -> Option<String>) -> Option<Tunnel> {
        let find = |name: &str| variable(name).filter(|value| !value.is_empty());
        let either = |name: &str| find(name).or_else(|| find(&name.to_ascii_lowercase()));
        let text = either("HTTPS_PROXY").or_else(|| either("ALL_PROXY"))?;
        let text = if text.contains("://") { text } else { format!("http://{text}") };
        // A user and a password may stand in it, which no other address of ours may have.
        let (scheme, rest) = text.split_once("://")?;
        let end = rest.find('/').unwrap_or(rest.len());
        let (user, place) = match rest[..end].rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, &rest[..end]),
        };
        let address = Address::parse(&format!("{scheme}://{place}")).ok()?;
        if address.is_secure() {
            // TLS to the tunnel itself is not spoken here.
            return None;
        }
        let credentials = user.map(|user| STANDARD.encode(unescaped(user)));
        let except = either("NO_PROXY").unwrap_or_default();
        let except = except.split(',').map(|name| name.trim().to_ascii_lowercase());
        Some(Tunnel {
            host: address.host().to_owned(),
            port: address.port(),
            credentials,
            except: except.filter(|name| !name.is_empty()).collect(),
        })
    }

    /// The one that this process's variables name.
    pub fn from_surroundings() -> Option<Tunnel> {
        Tunnel::named(env::var)
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Whether the way to this host leads through it. Nothing on this machine does.
    pub(super) fn is_for(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let here = host == "localhost" || host.starts_with("127.") || host == "::1";
        !here
            && !self.except.iter().any(|except| {
                let except = except.strip_prefix("*.").unwrap_or(except).trim_start_matches('.');
                except == "*"
                    || host == except
                    || host.strip_suffix(except).is_some_and(|rest| rest.ends_with('.'))
            })
    }

    /// Asks the tunnel to open the way.
    pub(super) async fn open(
        &self,
        stream: &mut TcpStream,
        host: &str,
        port: u16,
    ) -> io::Result<()> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let mut ask = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
        if let Some(credentials) = &self.credentials {
            ask.push_str(&format!("Proxy-Authorization: Basic {credentials}\r\n"));
        }
        ask.push_str("\r\n");
        stream.write_all(ask.as_bytes()).await?;
        let mut answer = Vec::new();
        // Byte by byte: what follows the empty line is TLS already.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= MAX_ANSWER {
                return Err(io::ErrorKind::InvalidData.into());
            }
            answer.push(stream.read_u8().await?);
        }
        let status = answer.split(|&byte| byte == b' ').nth(1).unwrap_or_default();
        if status.starts_with(b"2") {
            return Ok(());
        }
        let status = String::from_utf8_lossy(&status[..status.len().min(3)]).into_owned();
        Err(io::Error::new(
            io::ErrorKind::ConnectionRefused,
            format!("the tunnel answers {status}"),
        ))
    }
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(pairs: &'static [(&'static str, &'static str)]) -> Option<Tunnel> {
        Tunnel::named(|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables_name_a_tunnel_and_its_exceptions() {
        let tunnel = named(&[
            ("HTTPS_PROXY", "http://u%40x:p@Gate.example:3128/"),
            ("NO_PROXY", "internal.example, .corp.example,10.0.0.1"),
        ])
        .unwrap();
        assert_eq!((tunnel.host(), tunnel.port()), ("gate.example", 3128));
        assert_eq!(tunnel.credentials.as_deref(), Some("dUB4OnA="));
        for (host, through) in [
            ("mcp.example", true),
            ("internal.example", false),
            ("a.internal.example", false),
            ("notinternal.example", true),
            ("a.corp.example", false),
            ("10.0.0.1", false),
            ("localhost", false),
            ("127.0.0.1", false),
        ] {
            assert_eq!(tunnel.is_for(host), through, "{host}");
        }
        assert_eq!(named(&[("https_proxy", "gate:3128")]).unwrap().port(), 3128);
        assert!(!named(&[("ALL_PROXY", "gate:1"), ("NO_PROXY", "*")]).unwrap().is_for("a.b"));
        assert_eq!(named(&[]), None);
        assert_eq!(named(&[("HTTPS_PROXY", "")]), None);
        assert!(!format!("{tunnel:?}").contains("p@"));
    }
}
