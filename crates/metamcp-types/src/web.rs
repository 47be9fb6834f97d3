//! Addresses on the web: taken apart, joined, compared, and which of them a stranger may send us to. Read by `url`, as
//! browsers do, after what browsers forgive is refused.
//! Owns: which `http` addresses are taken, zones of the network.      Never: looks a name up, connects.
//! In: addresses as text, numbers as the name service gives them.  Out: `Address`es, a `SsrfZone`.
//! Tests: below.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fmt;

use url::{Host, ParseError, Position, Url};

/// Longest address that is looked at: a target whose every byte is escaped, and what stands before it.
const MAX_LENGTH: usize = 16 * 1024;
/// Longest path and query, as it goes over the wire.
const MAX_TARGET: usize = 8192;

/// An absolute address, without user, password and fragment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address(Url);

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
        // A browser takes line breaks out and backslashes for slashes; who writes such has something in mind.
        if text.len() > MAX_LENGTH
            || text.bytes().any(|byte| byte <= b' ' || byte == 0x7f || byte == b'\\')
        {
            return Err(AddressError::Characters);
        }
        let (scheme, rest) = text.split_once("://").ok_or(AddressError::Scheme)?;
        if !["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
            return Err(AddressError::Scheme);
        }
        let (authority, target) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(AddressError::User);
        }
        // A browser would look for the host behind more slashes.
        if authority.is_empty() {
            return Err(AddressError::Host);
        }
        let written = format!("{scheme}://{authority}{}", escaped(target));
        let url = Url::parse(&written).map_err(|error| match error {
            ParseError::InvalidPort => AddressError::Port,
            _ => AddressError::Host,
        })?;
        // A name has few characters, and a browser lets more pass than the name service knows.
        let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if let Some(Host::Domain(name)) = url.host()
            && (name.len() > 255 || !name.bytes().all(named))
        {
            return Err(AddressError::Host);
        }
        if url.port() == Some(0) {
            return Err(AddressError::Port);
        }
        bounded(url)
    }

    /// Where a reference leads that was found at this address.
    pub fn join(&self, reference: &str) -> Result<Address, AddressError> {
        let reference = reference.trim();
        let scheme = reference.split(['/', '?', '#']).next().unwrap_or_default();
        if scheme.contains(':') {
            return Address::parse(reference);
        }
        if reference.starts_with("//") {
            return Address::parse(&format!("{}:{reference}", self.0.scheme()));
        }
        if reference.bytes().any(|byte| byte < b' ' || byte == 0x7f || byte == b'\\') {
            return Err(AddressError::Characters);
        }
        bounded(self.0.join(&escaped(reference)).map_err(|_| AddressError::Characters)?)
    }

    /// The same place without the query.
    pub fn without_query(&self) -> Address {
        let mut url = self.0.clone();
        url.set_query(None);
        Address(url)
    }

    /// Whether nobody on the way can listen.
    pub fn is_secure(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// The host: a name, or a number without brackets.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default().trim_matches(['[', ']'])
    }

    /// The port, also where it is the usual one.
    pub fn port(&self) -> u16 {
        self.0.port_or_known_default().unwrap_or_default()
    }

    /// The path without the query.
    pub fn path(&self) -> &str {
        self.0.path()
    }

    /// Path and query.
    pub fn target(&self) -> &str {
        &self.0[Position::BeforePath..]
    }

    /// Scheme, host and port as browsers write them.
    pub fn origin(&self) -> String {
        self.0[..Position::BeforePath].to_owned()
    }

    /// Whether scheme, host and port are the same.
    pub fn is_same_origin(&self, other: &Address) -> bool {
        self.0[..Position::BeforePath] == other.0[..Position::BeforePath]
    }

    /// Whether it is written so that it can only mean this machine.
    pub fn is_here(&self) -> bool {
        let number = match self.0.host() {
            Some(Host::Domain(name)) => return name == "localhost",
            Some(Host::Ipv4(number)) => IpAddr::V4(number),
            Some(Host::Ipv6(number)) => IpAddr::V6(number),
            None => return false,
        };
        SsrfZone::of(number) == SsrfZone::Loopback
    }

    /// Whether secrets may go there: nobody can listen on the way.
    pub fn is_confidential(&self) -> bool {
        self.is_secure() || self.is_here()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// The same without its fragment, if it is short enough.
fn bounded(mut url: Url) -> Result<Address, AddressError> {
    url.set_fragment(None);
    let address = Address(url);
    if address.target().len() > MAX_TARGET { Err(AddressError::Characters) } else { Ok(address) }
}

/// In characters that every server takes: a browser leaves some as they are that not all do.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if !b"\"<>`{}|^".contains(&byte) => escaped.push(char::from(byte)),
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
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

/// The path that a `file:` address names, without a final slash.
pub fn file_path(uri: &str) -> Option<std::path::PathBuf> {
    let url = url::Url::parse(uri).ok().filter(|url| url.scheme() == "file")?;
    Some(url.to_file_path().ok()?.components().collect())
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
            ("https:///a", AddressError::Host),
            ("https:/a", AddressError::Scheme),
            ("https://@a/", AddressError::User),
            ("https://a:b/", AddressError::Port),
            ("https://1.2.3.4.5/", AddressError::Host),
            ("https://256.1.1.1/", AddressError::Host),
        ] {
            assert_eq!(Address::parse(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn a_number_is_known_however_it_is_written() {
        for spelt in [
            "127.0.0.1",
            "127.1",
            "0x7f.1",
            "2130706433",
            "0177.0.0.1",
            "%31%32%37.1",
            "１２７.0.0.1",
        ] {
            let address = Address::parse(&format!("http://{spelt}/")).unwrap();
            assert!(address.is_here() && address.host() == "127.0.0.1", "{spelt}");
        }
        let mapped = Address::parse("http://[::ffff:127.0.0.1]/").unwrap();
        assert!(mapped.is_here() && mapped.host().parse::<IpAddr>().is_ok());
        assert_eq!(
            Address::parse("https://bücher.example/").unwrap().host(),
            "xn--bcher-kva.example"
        );
        for not in ["127.0.0.1.example", "localhost.example", "xn--localhost"] {
            let address = Address::parse(&format!("http://{not}/"));
            assert!(!address.is_ok_and(|address| address.is_here()), "{not}");
        }
    }

    #[test]
    fn references_lead_where_a_browser_would_go() {
        let base = Address::parse("https://a.b/c/d?e=f").unwrap();
        for (reference, expected) in [
            ("/m?s=1", "https://a.b/m?s=1"),
            ("m", "https://a.b/c/m"),
            ("?x", "https://a.b/c/d?x"),
            ("../m", "https://a.b/m"),
            ("m n|o", "https://a.b/c/m%20n%7Co"),
            ("#e", "https://a.b/c/d?e=f"),
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
