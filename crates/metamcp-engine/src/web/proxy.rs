//! The HTTP proxy of the environment (`HTTPS_PROXY`), used by CONNECT, and the hosts excluded from it (`NO_PROXY`).

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use metamcp_types::web::Address;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::env;

/// Longest response to CONNECT.
const MAX_RESPONSE: usize = 16 * 1024;

#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    host: String,
    port: u16,
    credentials: Option<String>,
    except: Vec<String>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
}

impl Proxy {
    /// The proxy that the variables name, read by `variable`.
    pub fn named(variable: impl Fn(&str) -> Option<String>) -> Option<Proxy> {
        let find = |name: &str| variable(name).filter(|value| !value.is_empty());
        let either = |name: &str| find(name).or_else(|| find(&name.to_ascii_lowercase()));
        let text = either("HTTPS_PROXY").or_else(|| either("ALL_PROXY"))?;
        let text = if text.contains("://") { text } else { format!("http://{text}") };
        // It may contain a user and a password, unlike other addresses.
        let (scheme, rest) = text.split_once("://")?;
        let end = rest.find('/').unwrap_or(rest.len());
        let (user, place) = match rest[..end].rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, &rest[..end]),
        };
        let address = Address::parse(&format!("{scheme}://{place}")).ok()?;
        if address.is_secure() {
            // TLS to the proxy itself is not supported.
            return None;
        }
        let credentials = user.map(|user| STANDARD.encode(unescaped(user)));
        let except = either("NO_PROXY").unwrap_or_default();
        let except = except.split(',').map(|name| name.trim().to_ascii_lowercase());
        Some(Proxy {
            host: address.host().to_owned(),
            port: address.port(),
            credentials,
            except: except.filter(|name| !name.is_empty()).collect(),
        })
    }

    pub fn from_env() -> Option<Proxy> {
        Proxy::named(env::var)
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Whether connections to this host go through the proxy. Those to this machine never do.
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

    /// Opens a tunnel with CONNECT.
    pub(super) async fn open(
        &self,
        stream: &mut TcpStream,
        host: &str,
        port: u16,
    ) -> io::Result<()> {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
        if let Some(credentials) = &self.credentials {
            request.push_str(&format!("Proxy-Authorization: Basic {credentials}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // Byte by byte: what follows the empty line is TLS already.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= MAX_RESPONSE {
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
            format!("the proxy answered {status}"),
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

    fn named(pairs: &'static [(&'static str, &'static str)]) -> Option<Proxy> {
        Proxy::named(|name| {
            pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn variables_name_a_proxy_and_its_exceptions() {
        let proxy = named(&[
            ("HTTPS_PROXY", "http://u%40x:p@Gate.example:3128/"),
            ("NO_PROXY", "internal.example, .corp.example,10.0.0.1"),
        ])
        .unwrap();
        assert_eq!((proxy.host(), proxy.port()), ("gate.example", 3128));
        assert_eq!(proxy.credentials.as_deref(), Some("dUB4OnA="));
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
            assert_eq!(proxy.is_for(host), through, "{host}");
        }
        assert_eq!(named(&[("https_proxy", "gate:3128")]).unwrap().port(), 3128);
        assert!(!named(&[("ALL_PROXY", "gate:1"), ("NO_PROXY", "*")]).unwrap().is_for("a.b"));
        assert_eq!(named(&[]), None);
        assert_eq!(named(&[("HTTPS_PROXY", "")]), None);
        assert!(!format!("{proxy:?}").contains("p@"));
    }
}
