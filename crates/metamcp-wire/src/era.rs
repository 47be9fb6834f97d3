//! Which protocol a connection speaks. Decided per connection, never assumed for the whole gateway.
//! Owns: revisions and eras.      Never: sends anything.
//! In: version strings.  Out: `Revision`, `Era`.
//! Tests: below.

use std::fmt;

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
    /// What we ask servers for, and answer to a client that asks for something unknown.
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

/// The revision without a handshake: each request says itself what it speaks.
pub const STATELESS: &str = "2026-07-28";

/// How a peer is spoken to: for the length of a connection, or request by request.
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

    /// Whether every request carries what it needs, and results say of which type they are.
    pub fn is_stateless(self) -> bool {
        self == Era::Stateless
    }

    /// Everything we speak, newest first, as clients are told.
    pub fn supported() -> impl Iterator<Item = &'static str> {
        std::iter::once(STATELESS).chain(Revision::ALL.into_iter().rev().map(Revision::name))
    }
}

impl fmt::Display for Era {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
