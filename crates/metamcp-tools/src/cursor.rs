//! Opaque cursors: where to go on in a list, and proof that this is still the same list.
//! Owns: the form of a cursor, its seal.      Never: makes the key, knows what is listed.
//! In: key, generation, offset, what was asked.  Out: a short text, and back.
//! Tests: below.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Marks the layout, so that a later one cannot be mistaken for this.
const VERSION: u8 = 1;

/// Version, generation, offset, digest of the request.
const BODY: usize = 1 + 8 + 4 + 8;

/// Bytes of the HMAC that are kept: forging one is not worth 2^96 tries within one process's life, and a model copies each
/// cursor letter by letter.
const SEAL: usize = 12;

/// Letters of a cursor.
const LENGTH: usize = (BODY + SEAL).div_ceil(3) * 4;

/// Why a cursor cannot be used. Both mean: ask again without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// Not made with this key, damaged, or made for another request.
    #[error("the cursor does not belong to this request; repeat the request without a cursor")]
    Forged,
    /// The list has changed since.
    #[error(
        "the cursor is stale because the list of tools has changed; repeat the request without a cursor"
    )]
    Stale,
}

/// Seals cursors under a key that lives as long as the process, or that a fleet shares.
#[derive(Clone)]
pub struct CursorKey {
    seals: hmac::Key,
    /// Also accepted, while keys are replaced.
    other: Option<hmac::Key>,
}

impl std::fmt::Debug for CursorKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CursorKey")
    }
}

impl CursorKey {
    /// `key` must be random and secret.
    pub fn new(key: [u8; 32]) -> Self {
        Self::with_other(key, None)
    }

    /// The same, and another key whose cursors are still accepted.
    pub fn with_other(key: [u8; 32], other: Option<[u8; 32]>) -> Self {
        let key_of = |key: [u8; 32]| hmac::Key::new(hmac::HMAC_SHA256, &key);
        Self { seals: key_of(key), other: other.map(key_of) }
    }

    /// A cursor that goes on at `offset`. `request` names the operation, the query and the filters.
    pub fn encode(&self, generation: u64, offset: u32, request: &str) -> String {
        let mut bytes = Vec::with_capacity(BODY + SEAL);
        bytes.push(VERSION);
        bytes.extend_from_slice(&generation.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&digest(request));
        let seal = hmac::sign(&self.seals, &bytes);
        bytes.extend_from_slice(&seal.as_ref()[..SEAL]);
        URL_SAFE_NO_PAD.encode(&bytes)
    }

    /// The offset in a cursor made for the same request while the list was the same.
    pub fn decode(&self, cursor: &str, generation: u64, request: &str) -> Result<u32, CursorError> {
        let (then, offset) = self.open(cursor, request)?;
        if then == generation { Ok(offset) } else { Err(CursorError::Stale) }
    }

    /// The generation and the offset in a cursor made for the same request, for those who know only later whether the
    /// list is the same.
    pub fn open(&self, cursor: &str, request: &str) -> Result<(u64, u32), CursorError> {
        // A longer text is not decoded at all. Spare bits must be zero, or one cursor would have several spellings.
        if cursor.len() > LENGTH {
            return Err(CursorError::Forged);
        }
        let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| CursorError::Forged)?;
        if bytes.len() != BODY + SEAL {
            return Err(CursorError::Forged);
        }
        let (body, seal) = bytes.split_at(BODY);
        // `hmac::verify` takes whole seals only.
        let is_of =
            |key: &hmac::Key| bool::from(seal.ct_eq(&hmac::sign(key, body).as_ref()[..SEAL]));
        let ours = is_of(&self.seals) || self.other.as_ref().is_some_and(is_of);
        if !ours || body[0] != VERSION || body[13..] != digest(request) {
            return Err(CursorError::Forged);
        }
        let number = |part: &[u8]| part.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        let offset = u32::try_from(number(&body[9..13])).unwrap_or(u32::MAX);
        Ok((number(&body[1..9]), offset))
    }
}

fn digest(request: &str) -> [u8; 8] {
    let mut short = [0; 8];
    short.copy_from_slice(&Sha256::digest(request.as_bytes())[..8]);
    short
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cursor_fits_only_its_request_its_list_and_its_process() {
        let key = CursorKey::new([7; 32]);
        let cursor = key.encode(3, 40, "discover q=files");
        assert_eq!(key.decode(&cursor, 3, "discover q=files"), Ok(40));
        assert_eq!(key.decode(&cursor, 4, "discover q=files"), Err(CursorError::Stale));
        assert_eq!(key.decode(&cursor, 3, "discover q=mail"), Err(CursorError::Forged));
        assert_eq!(
            CursorKey::new([8; 32]).decode(&cursor, 3, "discover q=files"),
            Err(CursorError::Forged)
        );
    }

    #[test]
    fn a_key_that_is_being_replaced_still_opens() {
        let (old, new) = ([7; 32], [8; 32]);
        let both = CursorKey::with_other(new, Some(old));
        assert_eq!(both.decode(&CursorKey::new(old).encode(3, 40, "q"), 3, "q"), Ok(40));
        assert_eq!(CursorKey::new(new).decode(&both.encode(3, 40, "q"), 3, "q"), Ok(40));
        let stale = CursorKey::new(old).decode(&both.encode(3, 40, "q"), 3, "q");
        assert_eq!(stale, Err(CursorError::Forged));
    }

    proptest! {
        #[test]
        fn every_cursor_comes_back(key: [u8; 32], generation: u64, offset: u32, request: String) {
            let key = CursorKey::new(key);
            prop_assert_eq!(key.decode(&key.encode(generation, offset, &request), generation, &request), Ok(offset));
        }

        #[test]
        fn no_change_of_one_character_passes(at in 0..LENGTH, to in "[A-Za-z0-9_-]") {
            let key = CursorKey::new([1; 32]);
            let cursor = key.encode(1, 20, "q");
            prop_assert_eq!(cursor.len(), LENGTH);
            let mut other = cursor.clone();
            other.replace_range(at..=at, &to);
            prop_assert_eq!(key.decode(&other, 1, "q").is_ok(), other == cursor);
        }

        #[test]
        fn any_text_is_survived(text: String) {
            prop_assert_eq!(CursorKey::new([1; 32]).decode(&text, 0, ""), Err(CursorError::Forged));
        }
    }
}
