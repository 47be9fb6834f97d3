//! Opaque pagination cursors, authenticated with an HMAC over offset, generation and request.
//! Owns: the format of a cursor, its HMAC.      Never: generates the key, knows what is listed.
//! In: key, generation, offset, request.  Out: a short text, and back.
//! Tests: below; the HMAC against the vectors of RFC 4231.

use sha2::{Digest, Sha256};

/// Marks the layout, so that a later one cannot be mistaken for this.
const VERSION: u8 = 1;

/// Version, generation, offset, digest of the request.
const BODY: usize = 1 + 8 + 4 + 8;

/// Bytes of the HMAC in a cursor: forging one takes 2^96 tries within one process's life.
const SEAL: usize = 12;

/// Why a cursor cannot be used. Both mean: ask again without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// Not made by this process, damaged, or made for another request.
    #[error("the cursor does not belong to this request; repeat the request without a cursor")]
    Forged,
    /// The list has changed since.
    #[error(
        "the cursor is stale because the list of tools has changed; repeat the request without a cursor"
    )]
    Stale,
}

/// Seals cursors under a key that lives as long as the process.
#[derive(Clone)]
pub struct CursorKey([u8; 32]);

impl std::fmt::Debug for CursorKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CursorKey")
    }
}

impl CursorKey {
    /// `key` must be random and stay within the process.
    pub fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// A cursor that goes on at `offset`. `request` names the operation, the query and the filters.
    pub fn encode(&self, generation: u64, offset: u32, request: &str) -> String {
        let mut bytes = Vec::with_capacity(BODY + SEAL);
        bytes.push(VERSION);
        bytes.extend_from_slice(&generation.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&digest(request));
        let seal = hmac_sha256(&self.0, &bytes);
        bytes.extend_from_slice(&seal[..SEAL]);
        to_base64url(&bytes)
    }

    /// The offset in a cursor made for the same request while the list was the same.
    pub fn decode(&self, cursor: &str, generation: u64, request: &str) -> Result<u32, CursorError> {
        let (then, offset) = self.open(cursor, request)?;
        if then == generation { Ok(offset) } else { Err(CursorError::Stale) }
    }

    /// The generation and the offset in a cursor made for the same request, for those who know only later whether the
    /// list is the same.
    pub fn open(&self, cursor: &str, request: &str) -> Result<(u64, u32), CursorError> {
        let bytes = from_base64url(cursor)
            .filter(|bytes| bytes.len() == BODY + SEAL)
            .ok_or(CursorError::Forged)?;
        let (body, seal) = bytes.split_at(BODY);
        let wanted = hmac_sha256(&self.0, body);
        // Compared without an early end, so that timing reveals nothing about the HMAC.
        let differing = seal.iter().zip(&wanted[..SEAL]).fold(0, |sum, (a, b)| sum | (a ^ b));
        if differing != 0 || body[0] != VERSION || body[13..] != digest(request) {
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

/// RFC 2104 over SHA-256.
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner =
        Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// RFC 4648 section 5, without padding.
fn to_base64url(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = (0..3)
            .fold(0u32, |group, at| group << 8 | u32::from(chunk.get(at).copied().unwrap_or(0)));
        for digit in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(group >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    text
}

fn from_base64url(text: &str) -> Option<Vec<u8>> {
    // Far longer than any cursor; a longer text is not decoded at all.
    if text.len() > 256 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let (mut bits, mut held) = (0u32, 0);
    for c in text.bytes() {
        let digit = ALPHABET.iter().position(|one| *one == c)?;
        bits = bits << 6 | u32::try_from(digit).ok()?;
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 255).ok()?);
        }
    }
    // Left-over bits must be zero, or one cursor would have several spellings.
    (held < 6 && bits & ((1 << held) - 1) == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_seal_follows_rfc_4231() {
        let cases: [(&[u8], &[u8], &str); 5] = [
            (&[0x0b; 20], b"Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"),
            (b"Jefe", b"what do ya want for nothing?", "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"),
            (&[0xaa; 20], &[0xdd; 50], "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"),
            (
                &[0xaa; 131],
                b"Test Using Larger Than Block-Size Key - Hash Key First",
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            ),
            (
                &[0xaa; 131],
                b"This is a test using a larger than block-size key and a larger than block-size data. The key needs to be hashed before being used by the HMAC algorithm.",
                "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
            ),
        ];
        for (key, message, seal) in cases {
            assert_eq!(hex(&hmac_sha256(key, message)), seal);
        }
    }

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

    proptest! {
        #[test]
        fn every_cursor_comes_back(key: [u8; 32], generation: u64, offset: u32, request: String) {
            let key = CursorKey::new(key);
            prop_assert_eq!(key.decode(&key.encode(generation, offset, &request), generation, &request), Ok(offset));
        }

        #[test]
        fn no_change_of_one_character_passes(at in 0usize..44, to in 0usize..64) {
            let key = CursorKey::new([1; 32]);
            let cursor = key.encode(1, 20, "q");
            let mut other = cursor.clone().into_bytes();
            prop_assert_eq!(other.len(), 44);
            other[at] = ALPHABET[to];
            let other = String::from_utf8(other).unwrap();
            prop_assert_eq!(key.decode(&other, 1, "q").is_ok(), other == cursor);
        }

        #[test]
        fn any_text_is_survived(text: String) {
            prop_assert_eq!(CursorKey::new([1; 32]).decode(&text, 0, ""), Err(CursorError::Forged));
        }

        #[test]
        fn base64url_comes_back(bytes: Vec<u8>) {
            prop_assume!(bytes.len() < 150);
            prop_assert_eq!(from_base64url(&to_base64url(&bytes)), Some(bytes));
        }
    }
}
