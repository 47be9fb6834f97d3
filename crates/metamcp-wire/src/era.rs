//! Which protocol revision is spoken: with a client per request, with a server per connection.
//! Owns: revisions, eras, and the only three functions that decide one: [`of_request`], [`of_initialize`], [`of_server`].      Never: sends anything.
//! In: the versions a peer names.  Out: `Revision`, `Era`.
//! Tests: below, each decision over a table.

use std::fmt;

use crate::modern::meta;

/// A revision that begins with `initialize`, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    /// The first published one.
    V2024_11_05,
    /// Brought batches and Streamable HTTP.
    V2025_03_26,
    /// Brought structured results and elicitation, took batches away.
    V2025_06_18,
    /// Brought icons and elicitation by URL.
    V2025_11_25,
}

impl Revision {
    /// Every revision we speak, oldest first.
    pub const ALL: [Revision; 4] = [
        Revision::V2024_11_05,
        Revision::V2025_03_26,
        Revision::V2025_06_18,
        Revision::V2025_11_25,
    ];
    /// What we offer to servers, and to a client that offers something unknown.
    pub const LATEST: Revision = Revision::V2025_11_25;

    /// The revision with this name.
    pub fn named(name: &str) -> Option<Revision> {
        Revision::ALL.into_iter().find(|revision| revision.name() == name)
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Revision::V2024_11_05 => "2024-11-05",
            Revision::V2025_03_26 => "2025-03-26",
            Revision::V2025_06_18 => "2025-06-18",
            Revision::V2025_11_25 => "2025-11-25",
        }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The revision without a handshake: each request names its version.
pub const STATELESS: &str = "2026-07-28";

/// How to talk to a peer: per connection, or per request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// A handshake, then a session in the agreed revision.
    Initialize(Revision),
    /// No handshake and no session; revision 2026-07-28.
    Stateless,
}

impl Era {
    /// The name of the revision spoken.
    pub fn name(self) -> &'static str {
        match self {
            Era::Initialize(revision) => revision.name(),
            Era::Stateless => STATELESS,
        }
    }

    /// The revision that a handshake agreed on, where there was one.
    pub fn revision(self) -> Option<Revision> {
        match self {
            Era::Initialize(revision) => Some(revision),
            Era::Stateless => None,
        }
    }

    /// Whether every request is self-contained, and results have a `resultType`.
    pub fn is_stateless(self) -> bool {
        self == Era::Stateless
    }

    /// All supported versions, newest first.
    pub fn supported() -> impl Iterator<Item = &'static str> {
        std::iter::once(STATELESS).chain(Revision::ALL.into_iter().rev().map(Revision::name))
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The header `MCP-Protocol-Version` of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionHeader {
    /// None: it did not come over HTTP, or is of a revision from before the header.
    Absent,
    Known(Era),
    Unknown,
}

impl VersionHeader {
    pub fn read(value: Option<&[u8]>) -> VersionHeader {
        match value.map(std::str::from_utf8) {
            None => VersionHeader::Absent,
            Some(Ok(STATELESS)) => VersionHeader::Known(Era::Stateless),
            Some(name) => {
                name.ok().and_then(Revision::named).map_or(VersionHeader::Unknown, |revision| {
                    VersionHeader::Known(Era::Initialize(revision))
                })
            }
        }
    }
}

/// A request names an unsupported version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownVersion;

/// The era of a client's request, by its header and its params; several messages at once have none of the latter. It
/// belongs to the stateless era if either of them says so, whatever came before it on its connection; that the two agree
/// is checked later. A client that says nothing is of the revision that had no header yet.
pub fn of_request(header: VersionHeader, params: Option<&[u8]>) -> Result<Era, UnknownVersion> {
    match header {
        VersionHeader::Known(Era::Stateless) => Ok(Era::Stateless),
        _ if meta::names_version(params) => Ok(Era::Stateless),
        VersionHeader::Known(era) => Ok(era),
        VersionHeader::Absent => Ok(Era::Initialize(Revision::V2025_03_26)),
        VersionHeader::Unknown => Err(UnknownVersion),
    }
}

/// The era of a client that begins with `initialize` and asks for this version: that one, or the latest we have of its
/// kind, which the client may decline.
pub fn of_initialize(requested: &str) -> Era {
    Era::Initialize(Revision::named(requested).unwrap_or(Revision::LATEST))
}

/// What a server reveals of its era.
#[derive(Clone, Copy, Debug)]
pub enum ServerSaid<'a> {
    /// It answered `initialize` with this version.
    Agreed(&'a str),
    /// It answered the probe `server/discover` with the versions that it supports.
    Supports(&'a [&'a str]),
    /// It answered the probe with anything else, or not at all.
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEra {
    Is(Era),
    /// Send `initialize`.
    Greet,
    /// No common version.
    Foreign,
}

/// The era of a server. If it supports both, it is used without a handshake.
pub fn of_server(said: ServerSaid<'_>) -> ServerEra {
    match said {
        ServerSaid::Agreed(version) => Revision::named(version)
            .map_or(ServerEra::Foreign, |revision| ServerEra::Is(Era::Initialize(revision))),
        ServerSaid::Supports(versions) if versions.contains(&STATELESS) => {
            ServerEra::Is(Era::Stateless)
        }
        ServerSaid::Supports(versions)
            if !versions.iter().any(|version| Revision::named(version).is_some()) =>
        {
            ServerEra::Foreign
        }
        // Older servers answer an unknown method in many different ways.
        ServerSaid::Supports(_) | ServerSaid::Nothing => ServerEra::Greet,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODERN: &[u8] = br#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}"#;
    /// A version of the stateless era that is not ours: its request is refused as one of that era.
    const LATER: &[u8] = br#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01"}}"#;
    const PLAIN: &[u8] = br#"{"_meta":{"progressToken":1},"name":"x"}"#;

    #[test]
    fn the_era_of_a_request() {
        let stateless = Ok(Era::Stateless);
        let silent = Ok(Era::Initialize(Revision::V2025_03_26));
        let session = Ok(Era::Initialize(Revision::V2025_06_18));
        for (header, params, expected) in [
            // Over stdio, where there are no headers, and over HTTP from clients that send none.
            (None, None, silent),
            (None, Some(PLAIN), silent),
            (None, Some(MODERN), stateless),
            (None, Some(LATER), stateless),
            // The header of a session.
            (Some("2025-06-18"), None, session),
            (Some("2025-06-18"), Some(PLAIN), session),
            (Some("2025-06-18"), Some(MODERN), stateless),
            // The header of the stateless era, whatever the params say.
            (Some("2026-07-28"), None, stateless),
            (Some("2026-07-28"), Some(PLAIN), stateless),
            (Some("2026-07-28"), Some(MODERN), stateless),
            // A header that says nothing to us.
            (Some("1999-01-01"), None, Err(UnknownVersion)),
            (Some("1999-01-01"), Some(PLAIN), Err(UnknownVersion)),
            (Some("1999-01-01"), Some(MODERN), stateless),
            (Some(""), None, Err(UnknownVersion)),
            (Some(" 2025-06-18"), None, Err(UnknownVersion)),
        ] {
            let read = VersionHeader::read(header.map(str::as_bytes));
            let words = params.map(String::from_utf8_lossy);
            assert_eq!(of_request(read, params), expected, "{header:?} {words:?}");
        }
        assert_eq!(VersionHeader::read(Some(b"\xff")), VersionHeader::Unknown);
    }

    #[test]
    fn the_era_of_a_client_that_initializes() {
        for revision in Revision::ALL {
            assert_eq!(of_initialize(revision.name()), Era::Initialize(revision));
        }
        for unknown in ["2026-07-28", "2099-01-01", ""] {
            assert_eq!(of_initialize(unknown), Era::Initialize(Revision::LATEST), "{unknown}");
        }
    }

    #[test]
    fn the_era_of_a_server() {
        use ServerSaid::{Agreed, Nothing, Supports};
        for (said, expected) in [
            (Agreed("2024-11-05"), ServerEra::Is(Era::Initialize(Revision::V2024_11_05))),
            (Agreed("2026-07-28"), ServerEra::Foreign),
            (Agreed("1999-01-01"), ServerEra::Foreign),
            (Supports(&["2027-01-01", "2026-07-28"]), ServerEra::Is(Era::Stateless)),
            (Supports(&["2025-11-25", "2026-07-28"]), ServerEra::Is(Era::Stateless)),
            (Supports(&["2030-01-01", "2025-11-25"]), ServerEra::Greet),
            (Supports(&["2030-01-01"]), ServerEra::Foreign),
            (Supports(&[]), ServerEra::Foreign),
            (Nothing, ServerEra::Greet),
        ] {
            assert_eq!(of_server(said), expected, "{said:?}");
        }
    }

    #[test]
    fn names_round_trip_and_are_in_order() {
        for revision in Revision::ALL {
            assert_eq!(Revision::named(revision.name()), Some(revision));
        }
        assert!(Revision::ALL.is_sorted());
        assert_eq!(Revision::named("2026-07-28"), None);
    }

    #[test]
    fn what_is_supported_is_named_newest_first() {
        let names: Vec<&str> = Era::supported().collect();
        assert_eq!(names[..2], ["2026-07-28", "2025-11-25"]);
        assert!(names.is_sorted_by(|a, b| a > b));
    }
}
