//! Who a client is: by the bearer token it shows.
//! Owns: static tokens, signed tokens and the keys they are checked with.      Never: compares a token byte by byte (digests are), passes one on.
//! In: the `Authorization` header.  Out: a `Principal`, or why not.
//! Tests: below `access/`; `metamcp/tests/http`.

mod jwt;
mod keys;
mod source;

use std::hash::{BuildHasher, RandomState};

use sha2::{Digest, Sha256};

pub use jwt::{Expected, JwtError};
pub use keys::{KeyError, KeySet};
pub use source::{KeySource, SourceError};

/// The longest token looked at: far more than any issuer makes.
const MAX_TOKEN: usize = 16 * 1024;

/// Whoever shows the same token, or one issued to the same subject. Sessions belong to a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Principal(pub u64);

impl Principal {
    /// Everybody, where no tokens are asked for.
    pub const ANYBODY: Principal = Principal(0);
}

/// Why a client does not come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// It showed nothing.
    #[error("this gateway asks for a bearer token; send it as \"Authorization: Bearer …\"")]
    Missing,
    /// It showed something else.
    #[error("the bearer token is not valid here")]
    Invalid,
    /// It showed a signed token that does not fit.
    #[error("the bearer token is not valid here: {0}")]
    Signed(JwtError),
}

/// What lets a client in.
pub struct Access {
    tokens: Vec<[u8; 32]>,
    signed: Option<Signed>,
    /// Subjects of signed tokens become numbers by it; nobody can aim at another's.
    subjects: RandomState,
}

/// Signed tokens: by whom and for whom.
pub struct Signed {
    /// The keys, as they are now.
    pub keys: std::sync::RwLock<KeySet>,
    /// What a token has to say.
    pub expected: Expected,
    /// Told when a token has a key that is not known.
    pub unknown: tokio::sync::Notify,
}

impl Access {
    /// Lets clients in that show one of these tokens, or a signed one.
    pub fn new(tokens: impl IntoIterator<Item = String>, signed: Option<Signed>) -> Access {
        let tokens = tokens.into_iter().map(|token| digest(token.as_bytes())).collect();
        Access { tokens, signed, subjects: RandomState::new() }
    }

    /// Whether anybody comes in.
    pub fn is_open(&self) -> bool {
        self.tokens.is_empty() && self.signed.is_none()
    }

    /// Signed tokens, where they are taken.
    pub fn signed(&self) -> Option<&Signed> {
        self.signed.as_ref()
    }

    /// Whose request it is, by its `Authorization` header; `unix` is the present second.
    pub fn principal(&self, authorization: Option<&str>, unix: u64) -> Result<Principal, Denied> {
        if self.is_open() {
            return Ok(Principal::ANYBODY);
        }
        let token = authorization.and_then(bearer).ok_or(Denied::Missing)?;
        if token.is_empty() || token.len() > MAX_TOKEN {
            return Err(Denied::Invalid);
        }
        let shown = digest(token.as_bytes());
        let mut found = None;
        // All are looked at, so that the time says nothing about which one fits.
        for (at, known) in self.tokens.iter().enumerate() {
            if is_same(known, &shown) {
                found = Some(Principal(at as u64 + 1));
            }
        }
        if let Some(found) = found {
            return Ok(found);
        }
        let Some(signed) = &self.signed else { return Err(Denied::Invalid) };
        let keys = signed.keys.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let subject = jwt::verify(token, &keys, &signed.expected, unix).map_err(|error| {
            if error == JwtError::Signature {
                signed.unknown.notify_one();
            }
            Denied::Signed(error)
        })?;
        // Above every number of a plain token.
        Ok(Principal(self.subjects.hash_one(subject) | 1 << 63))
    }
}

/// The tokens of a file: one a line.
pub fn tokens_of(file: &str) -> impl Iterator<Item = String> {
    let lines = file.lines().map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned)
}

fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn digest(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// Equality that looks at every byte.
fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let different = one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b));
    std::hint::black_box(different) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_a_principal_and_nothing_else_is() {
        let access = Access::new(["first".to_owned(), "second".to_owned()], None);
        let principal = |header: Option<&str>| access.principal(header, 0);
        assert_eq!(principal(Some("Bearer first")), Ok(Principal(1)));
        assert_eq!(principal(Some("bearer  second")), Ok(Principal(2)));
        assert_eq!(principal(None), Err(Denied::Missing));
        assert_eq!(principal(Some("first")), Err(Denied::Missing));
        assert_eq!(principal(Some("Basic first")), Err(Denied::Missing));
        for wrong in ["Bearer ", "Bearer firs", "Bearer firstx", "Bearer FIRST", "Bearer a.b.c"] {
            assert_eq!(principal(Some(wrong)), Err(Denied::Invalid), "{wrong}");
        }
        let long = format!("Bearer {}", "x".repeat(MAX_TOKEN + 1));
        assert_eq!(principal(Some(&long)), Err(Denied::Invalid));
    }

    #[test]
    fn without_tokens_everybody_is_the_same() {
        let access = Access::new([], None);
        assert_eq!(access.principal(Some("Bearer whatever"), 0), Ok(Principal::ANYBODY));
    }

    #[test]
    fn a_file_holds_a_token_a_line() {
        let tokens: Vec<String> = tokens_of("# for the laptop\n  one \n\ntwo\r\n").collect();
        assert_eq!(tokens, ["one", "two"]);
    }
}
