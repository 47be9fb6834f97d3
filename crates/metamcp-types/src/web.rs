//! Addresses on the web: taken apart, joined, compared, and which of them a stranger may send us to.
//! Owns: the parts of an `http` address, zones of the network.      Never: looks a name up, connects.
//! In: addresses as text, numbers as the name service gives them.  Out: `Address`es, a `SsrfZone`.
//! Tests: below.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

/// Longest address that is looked at: a target whose every byte is escaped, and what stands before it.
const MAX_LENGTH: usize = 16 * 1024;
/// Longest path and query, as it goes over the wire.
const MAX_TARGET: usize = 8192;

/// An absolute address, without user, password and fragment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    secure: bool,
    host: String,
    port: u16,
    /// Path and query; begins with a slash.
    target: String,
}

/// Why something is no address for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Neither `http` nor `https`.
    #[error("is not an address with http:// or https://")]
    Scheme,
    /// No host, or one that cannot be.
    #[error("names no host that can be looked up")]
    Host,
    /// A port that cannot be.
    #[error("names an impossible port")]
    Port,
    /// Someone's name or password stands in it.
    #[error("holds a user name, which belongs into a header")]
    User,
    /// Characters that no address has, or too many of them.
    #[error("holds characters that no address has")]
    Characters,
}

impl Address {
    /// Takes an address apart.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        if text.len() > MAX_LENGTH
            || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f || byte == b'\\')
        {
            return Err(AddressError::Characters);
        }
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Scheme)?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(AddressError::Scheme),
        };
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        if authority.contains('@') {
            return Err(AddressError::User);
        }
        let (host, port) = match authority.strip_prefix('[') {
            Some(inner) => {
                let (literal, after) = inner.split_once(']').ok_or(AddressError::Host)?;
                let literal: Ipv6Addr = literal.parse().map_err(|_| AddressError::Host)?;
                (
                    literal.to_string(),
                    after.strip_prefix(':').or_else(|| after.is_empty().then_some("")),
                )
            }
            None => match authority.split_once(':') {
                Some((host, port)) => (host.to_ascii_lowercase(), Some(port)),
                None => (authority.to_ascii_lowercase(), Some("")),
            },
        };
        let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if host.is_empty() || host.len() > 255 || !host.bytes().all(named) {
            return Err(AddressError::Host);
        }
        let port = match port.ok_or(AddressError::Port)? {
            "" => {
                if secure {
                    443
                } else {
                    80
                }
            }
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|&port| port > 0).ok_or(AddressError::Port)?
            }
            _ => return Err(AddressError::Port),
        };
        Ok(Address { secure, host, port, target: bounded(target)? })
    }

    /// Where a reference leads that was found at this address.
    pub fn join(&self, reference: &str) -> Result<Address, AddressError> {
        let reference = reference.trim();
        let scheme = reference.split(['/', '?', '#']).next().unwrap_or_default();
        if scheme.contains(':') {
            return Address::parse(reference);
        }
        if reference.starts_with("//") {
            let scheme = if self.secure { "https:" } else { "http:" };
            return Address::parse(&format!("{scheme}{reference}"));
        }
        if reference.bytes().any(|byte| byte < b' ' || byte == 0x7f || byte == b'\\') {
            return Err(AddressError::Characters);
        }
        let (path, _) = self.target.split_once('?').unwrap_or((&self.target, ""));
        let target = match reference.as_bytes().first() {
            None => self.target.clone(),
            Some(b'/') => reference.to_owned(),
            Some(b'?') => format!("{path}{reference}"),
            Some(b'#') => self.target.clone(),
            Some(_) => {
                let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
                format!("{folder}/{reference}")
            }
        };
        Ok(Address { target: bounded(&target)?, ..self.clone() })
    }

    /// The same place with another path.
    pub fn with_path(&self, path: &str) -> Address {
        Address { target: target_of(path), ..self.clone() }
    }

    /// Whether nobody on the way can listen.
    pub fn is_secure(&self) -> bool {
        self.secure
    }

    /// The host: a name, or a number without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, also where it is the usual one.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        self.target.split_once('?').map_or(&self.target, |(path, _)| path)
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.target
    }

    /// Scheme, host and port as browsers write them.
    pub fn origin(&self) -> String {
        let scheme = if self.secure { "https" } else { "http" };
        let usual = self.port == if self.secure { 443 } else { 80 };
        let port = if usual { String::new() } else { format!(":{}", self.port) };
        if self.host.contains(':') {
            return format!("{scheme}://[{}]{port}", self.host);
        }
        format!("{scheme}://{}{port}", self.host)
    }

    /// Whether scheme, host and port are the same.
    pub fn is_same_origin(&self, other: &Address) -> bool {
        self.secure == other.secure && self.host == other.host && self.port == other.port
    }

    /// Whether it is written so that it can only mean this machine.
    pub fn is_here(&self) -> bool {
        self.host == "localhost"
            || self
                .host
                .parse::<IpAddr>()
                .is_ok_and(|number| SsrfZone::of(number) == SsrfZone::Loopback)
    }

    /// Whether secrets may go there: nobody can listen on the way.
    pub fn is_confidential(&self) -> bool {
        self.secure || self.is_here()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.target)
    }
}

/// The same, if it is short enough.
fn bounded(text: &str) -> Result<String, AddressError> {
    Some(target_of(text))
        .filter(|target| target.len() <= MAX_TARGET)
        .ok_or(AddressError::Characters)
}

/// Path and query without fragment, in characters that go over the wire.
fn target_of(text: &str) -> String {
    let text = text.split('#').next().unwrap_or_default();
    let mut target = String::with_capacity(text.len() + 1);
    if !text.starts_with('/') {
        target.push('/');
    }
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if !b"\"<>`{}|^".contains(&byte) => target.push(char::from(byte)),
            other => target.push_str(&format!("%{other:02X}")),
        }
    }
    target
}

/// Which part of the network a number belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SsrfZone {
    /// This machine.
    Loopback,
    /// A network of somebody's own.
    Private,
    /// The internet.
    Public,
    /// Nothing that is ever visited on a stranger's word: links, services of clouds, groups, reserved numbers.
    Blocked,
}

impl SsrfZone {
    /// The zone of a number.
    pub fn of(number: IpAddr) -> SsrfZone {
        match number {
            IpAddr::V4(number) => SsrfZone::of_four(number),
            IpAddr::V6(number) => SsrfZone::of_six(number),
        }
    }

    /// Whether a server in this zone may send us to a number of the other.
    pub fn may_redirect_to(self, other: SsrfZone) -> bool {
        match other {
            SsrfZone::Public => true,
            SsrfZone::Loopback | SsrfZone::Private => self == other,
            SsrfZone::Blocked => false,
        }
    }

    fn of_four(number: Ipv4Addr) -> SsrfZone {
        let [a, b, c, _] = number.octets();
        match (a, b, c) {
            (127, ..) => SsrfZone::Loopback,
            (10, ..) | (172, 16..=31, _) | (192, 168, _) | (100, 64..=127, _) => SsrfZone::Private,
            (0 | 224.., ..)
            | (169, 254, _)
            | (192, 0, 0 | 2)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113) => SsrfZone::Blocked,
            _ => SsrfZone::Public,
        }
    }

    fn of_six(number: Ipv6Addr) -> SsrfZone {
        let parts = number.segments();
        let last = |high: u16, low: u16| {
            let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
            SsrfZone::of_four(Ipv4Addr::new(a, b, c, d))
        };
        match parts {
            [0, 0, 0, 0, 0, 0, 0, 1] => SsrfZone::Loopback,
            // A number of the older kind in the dress of the newer one.
            [0, 0, 0, 0, 0, 0xffff, high, low] | [0, 0, 0, 0, 0xffff, 0, high, low] => {
                last(high, low)
            }
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
                match last(high, low) {
                    SsrfZone::Public => SsrfZone::Public,
                    _ => SsrfZone::Blocked,
                }
            }
            [first, ..] if first & 0xfe00 == 0xfc00 => SsrfZone::Private,
            [0x2001, 0xdb8 | 0, ..] => SsrfZone::Blocked,
            [first, ..] if first & 0xe000 == 0x2000 => SsrfZone::Public,
            _ => SsrfZone::Blocked,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_taken_is_written_so_that_it_is_taken_again(
            text in "(https?://)?(\\[::1\\]|[a-zA-Z0-9.@:-]{0,12})?[/?#]?.{0,30}",
        ) {
            let home = Address::parse("https://a.b/c/d?e").unwrap();
            for address in [Address::parse(&text), home.join(&text)].into_iter().flatten() {
                prop_assert_eq!(Address::parse(&address.to_string()), Ok(address));
            }
        }
    }

    #[test]
    fn addresses_are_taken_apart() {
        let address = Address::parse("HTTPS://Mcp.Example.com:8443/a/b?c=d#e").unwrap();
        assert_eq!(address.origin(), "https://mcp.example.com:8443");
        assert_eq!((address.target(), address.path()), ("/a/b?c=d", "/a/b"));
        assert_eq!(Address::parse("http://[::1]").unwrap().to_string(), "http://[::1]/");
        assert_eq!(Address::parse("https://a?x").unwrap().to_string(), "https://a/?x");
        assert_eq!(Address::parse("https://a/ü").unwrap().target(), "/%C3%BC");
        for (bad, why) in [
            ("ftp://a/", AddressError::Scheme),
            ("javascript:alert(1)", AddressError::Scheme),
            ("/a", AddressError::Scheme),
            ("https://", AddressError::Host),
            ("https://a b/", AddressError::Characters),
            ("https://a\nb/", AddressError::Characters),
            ("https://a\\@b/", AddressError::Characters),
            ("https://u:p@a/", AddressError::User),
            ("https://a:0/", AddressError::Port),
            ("https://a:99999/", AddressError::Port),
            ("https://$(id)/", AddressError::Host),
            ("https://[::1", AddressError::Host),
            ("https://[fe80::1%25eth0]/", AddressError::Host),
        ] {
            assert_eq!(Address::parse(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn references_lead_where_a_browser_would_go() {
        let base = Address::parse("https://a.b/c/d?e=f").unwrap();
        for (reference, expected) in [
            ("/m?s=1", "https://a.b/m?s=1"),
            ("m", "https://a.b/c/m"),
            ("?x", "https://a.b/c/d?x"),
            ("", "https://a.b/c/d?e=f"),
            ("//evil.example/x", "https://evil.example/x"),
            ("http://other/", "http://other/"),
        ] {
            assert_eq!(base.join(reference).unwrap().to_string(), expected, "{reference}");
        }
        assert!(base.join("javascript:alert(1)").is_err());
        assert!(base.join("/a\\b").is_err());
        assert!(!base.is_same_origin(&base.join("https://a.b:444/").unwrap()));
        assert!(base.is_same_origin(&base.join("https://A.b:443/").unwrap()));
    }

    #[test]
    fn zones() {
        for (number, zone) in [
            ("127.0.0.1", SsrfZone::Loopback),
            ("127.255.1.2", SsrfZone::Loopback),
            ("::1", SsrfZone::Loopback),
            ("::ffff:127.0.0.1", SsrfZone::Loopback),
            ("10.1.2.3", SsrfZone::Private),
            ("172.31.0.1", SsrfZone::Private),
            ("192.168.1.1", SsrfZone::Private),
            ("100.100.100.200", SsrfZone::Private),
            ("fd00::1", SsrfZone::Private),
            ("::ffff:10.0.0.1", SsrfZone::Private),
            ("169.254.169.254", SsrfZone::Blocked),
            ("::ffff:169.254.169.254", SsrfZone::Blocked),
            ("64:ff9b::a9fe:a9fe", SsrfZone::Blocked),
            ("64:ff9b::7f00:1", SsrfZone::Blocked),
            ("2002:7f00:1::", SsrfZone::Blocked),
            ("fe80::1", SsrfZone::Blocked),
            ("ff02::1", SsrfZone::Blocked),
            ("0.0.0.0", SsrfZone::Blocked),
            ("::", SsrfZone::Blocked),
            ("::7f00:1", SsrfZone::Blocked),
            ("224.0.0.1", SsrfZone::Blocked),
            ("255.255.255.255", SsrfZone::Blocked),
            ("192.0.2.1", SsrfZone::Blocked),
            ("2001:db8::1", SsrfZone::Blocked),
            ("1.1.1.1", SsrfZone::Public),
            ("172.32.0.1", SsrfZone::Public),
            ("2606:4700::1111", SsrfZone::Public),
        ] {
            assert_eq!(SsrfZone::of(number.parse().unwrap()), zone, "{number}");
        }
        assert!(
            SsrfZone::Loopback.may_redirect_to(SsrfZone::Loopback)
                && SsrfZone::Loopback.may_redirect_to(SsrfZone::Public)
        );
        assert!(
            !SsrfZone::Public.may_redirect_to(SsrfZone::Loopback)
                && !SsrfZone::Public.may_redirect_to(SsrfZone::Private)
        );
        assert!(
            !SsrfZone::Loopback.may_redirect_to(SsrfZone::Private)
                && !SsrfZone::Loopback.may_redirect_to(SsrfZone::Blocked)
        );
    }
}
