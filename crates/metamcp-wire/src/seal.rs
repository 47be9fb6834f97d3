//! Authenticated state that travels through a client and comes back: tampering is detected.
//! Owns: the format, the HMAC, the digest of the request it belongs to.      Never: reads a clock, creates a key.
//! In: a `ResumeToken` and a key.  Out: text for `requestState`, or the token again, or why not.
//! Tests: `seal/tests.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use sha2::{Digest, Sha256};

use crate::object::{elements, members, text};
use crate::scan::MAX_DEPTH;

/// Longest text accepted: a server's longest state with the other fields, in base64.
pub const MAX_SEALED: usize = 128 * 1024;

/// The format version; others are not accepted.
const FORMAT: u8 = 2;
/// Bytes of the HMAC-SHA256, which comes last.
const SEAL: usize = 32;

/// The state that a client carries for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeToken {
    /// Its owner: nobody else may use it.
    pub principal: Vec<u8>,
    /// When it expires, in milliseconds of the opener's clock.
    pub expires: u64,
    /// Which request it belongs to; see [`digest`].
    pub request: [u8; 32],
    /// What to do with the retry.
    pub resume: Resume,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// A call is suspended in this process.
    Suspended {
        gateway: u64,
        call: u64,
        /// Which retry it is for: a token of an earlier one is used up.
        round: u32,
    },
    /// A stateless server gets its own state back.
    Relay { server: String, state: Option<String> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not written by us, or modified.
    #[error("the requestState is not one of this gateway")]
    Forged,
    #[error("the requestState belongs to somebody else")]
    Foreign,
    #[error("the requestState has expired; send the request again without it")]
    Expired,
    #[error("the requestState belongs to a request with other arguments")]
    Other,
}

/// The key of one gateway process, or those of a fleet.
#[derive(Clone)]
pub struct Key {
    seals: hmac::Key,
    /// Also accepted, while keys are replaced.
    other: Option<hmac::Key>,
}

impl Key {
    /// A key from random bytes.
    pub fn new(bytes: [u8; 32]) -> Key {
        Key::with_other(bytes, None)
    }

    /// The same, and another key whose tokens are still accepted.
    pub fn with_other(bytes: [u8; 32], other: Option<[u8; 32]>) -> Key {
        let key = |bytes: [u8; 32]| hmac::Key::new(hmac::HMAC_SHA256, &bytes);
        Key { seals: key(bytes), other: other.map(key) }
    }

    pub fn seal(&self, token: &ResumeToken) -> String {
        let mut plain = encode(token);
        let mac = hmac::sign(&self.seals, &plain);
        plain.extend_from_slice(mac.as_ref());
        URL_SAFE_NO_PAD.encode(&plain)
    }

    /// Opens a token, if it is ours, intact, not expired, and presented by its owner with the right request.
    pub fn open(
        &self,
        sealed: &str,
        principal: &[u8],
        now: u64,
        request: &[u8; 32],
    ) -> Result<Resume, TokenError> {
        if sealed.len() > MAX_SEALED {
            return Err(TokenError::Forged);
        }
        let bytes = URL_SAFE_NO_PAD.decode(sealed).map_err(|_| TokenError::Forged)?;
        let (plain, mac) = bytes.split_last_chunk::<SEAL>().ok_or(TokenError::Forged)?;
        let is_of = |key: &hmac::Key| hmac::verify(key, plain, mac).is_ok();
        if !is_of(&self.seals) && !self.other.as_ref().is_some_and(is_of) {
            return Err(TokenError::Forged);
        }
        let token = decode(plain).ok_or(TokenError::Forged)?;
        if token.principal != principal {
            return Err(TokenError::Foreign);
        }
        if now >= token.expires {
            return Err(TokenError::Expired);
        }
        if token.request != *request {
            return Err(TokenError::Other);
        }
        Ok(token.resume)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The digest of a request's method and params, independent of their spelling. What changes between retries
/// (`_meta`, `inputResponses`, `requestState`) is not part of it.
pub fn digest(method: &str, params: Option<&[u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(method.as_bytes());
    hash.update([0]);
    let mut parts: Vec<(Vec<u8>, [u8; 32])> = members(params.unwrap_or(b"{}"))
        .filter(|(name, _)| !matches!(&**name, "_meta" | "inputResponses" | "requestState"))
        .map(|(name, value)| (name.as_bytes().to_vec(), digest_of(value, 1)))
        .collect();
    parts.sort();
    for (name, value) in parts {
        hash.update((name.len() as u64).to_be_bytes());
        hash.update(&name);
        hash.update(value);
    }
    hash.finalize().into()
}

/// The digest of a value: the order of members, white space and escapes do not count.
fn digest_of(raw: &[u8], depth: usize) -> [u8; 32] {
    let mut hash = Sha256::new();
    match raw.first() {
        Some(b'{') if depth < MAX_DEPTH => {
            let mut parts: Vec<(Vec<u8>, [u8; 32])> = members(raw)
                .map(|(name, value)| (name.as_bytes().to_vec(), digest_of(value, depth + 1)))
                .collect();
            parts.sort();
            hash.update(b"{");
            for (name, value) in parts {
                hash.update((name.len() as u64).to_be_bytes());
                hash.update(&name);
                hash.update(value);
            }
        }
        Some(b'[') if depth < MAX_DEPTH => {
            hash.update(b"[");
            for element in elements(raw) {
                hash.update(digest_of(element, depth + 1));
            }
        }
        Some(b'"') => {
            hash.update(b"\"");
            hash.update(text(raw).unwrap_or_default().as_bytes());
        }
        _ => {
            hash.update(b"=");
            hash.update(raw);
        }
    }
    hash.finalize().into()
}

fn encode(token: &ResumeToken) -> Vec<u8> {
    let mut out = vec![FORMAT];
    out.extend_from_slice(&token.expires.to_be_bytes());
    out.extend_from_slice(&token.request);
    put(&mut out, &token.principal);
    match &token.resume {
        Resume::Suspended { gateway, call, round } => {
            out.push(0);
            out.extend_from_slice(&gateway.to_be_bytes());
            out.extend_from_slice(&call.to_be_bytes());
            out.extend_from_slice(&round.to_be_bytes());
        }
        Resume::Relay { server, state } => {
            out.push(if state.is_some() { 2 } else { 1 });
            put(&mut out, server.as_bytes());
            out.extend_from_slice(state.as_deref().unwrap_or_default().as_bytes());
        }
    }
    out
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    let length =
        u32::try_from(bytes.len()).expect("principals and names are far shorter than 4 GB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

fn decode(plain: &[u8]) -> Option<ResumeToken> {
    let (&format, rest) = plain.split_first()?;
    (format == FORMAT).then_some(())?;
    let (&expires, rest) = rest.split_first_chunk::<8>()?;
    let (&request, rest) = rest.split_first_chunk::<32>()?;
    let (principal, rest) = take(rest)?;
    let (&kind, rest) = rest.split_first()?;
    let words = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let resume = match kind {
        0 => {
            let (&gateway, rest) = rest.split_first_chunk::<8>()?;
            let (&call, rest) = rest.split_first_chunk::<8>()?;
            let round: [u8; 4] = rest.try_into().ok()?;
            let (gateway, call) = (u64::from_be_bytes(gateway), u64::from_be_bytes(call));
            Resume::Suspended { gateway, call, round: u32::from_be_bytes(round) }
        }
        1 | 2 => {
            let (server, state) = take(rest)?;
            let state = if kind == 2 { Some(words(state)?) } else { None };
            Resume::Relay { server: words(server)?, state }
        }
        _ => return None,
    };
    let expires = u64::from_be_bytes(expires);
    Some(ResumeToken { principal: principal.to_vec(), expires, request, resume })
}

fn take(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(u32::from_be_bytes(length) as usize)
}

#[cfg(test)]
mod tests;
