//! State that travels through a client and comes back: whatever the client does to it, we notice.
//! Owns: what is sealed, the seal, the digest of the request it belongs to.      Never: reads a clock, makes a key.
//! In: a `ResumeToken` and a key.  Out: text for `requestState`, or the ticket again, or why not.
//! Tests: `seal/tests.rs`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac;
use sha2::{Digest, Sha256};

use crate::object::{elements, members, text};
use crate::scan::MAX_DEPTH;

/// Longest text that is looked at: what a server may keep by a client, and the words around it, in base64.
pub const MAX_SEALED: usize = 128 * 1024;

/// The format of what is sealed; another one is not read.
const FORMAT: u8 = 1;
/// Bytes of the seal, which is HMAC-SHA256 and stands last.
const SEAL: usize = 32;

/// What a client carries for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResumeToken {
    /// Whose it is: nobody else may use it.
    pub principal: Vec<u8>,
    /// When it stops being good, in milliseconds of whatever clock the opener uses.
    pub expires: u64,
    /// Which request it belongs to; see [`digest`].
    pub request: [u8; 32],
    /// What to do with the retry.
    pub resume: Resume,
}

/// How a retry goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// A call is held open here.
    Suspended {
        /// Which.
        call: u64,
        /// How often it has asked: a ticket of an earlier round is used up.
        round: u32,
    },
    /// A server that keeps nothing gets its own state back.
    Relay {
        /// The server's name.
        server: String,
        /// Its state, if it gave any.
        state: Option<String>,
    },
}

/// Why a ticket is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// We did not write it, or not so.
    #[error("the requestState is not one of this gateway")]
    Forged,
    /// It was given to somebody else.
    #[error("the requestState belongs to somebody else")]
    Foreign,
    /// It is too old.
    #[error("the requestState has expired; send the request again without it")]
    Expired,
    /// It belongs to another request.
    #[error("the requestState belongs to a request with other arguments")]
    Other,
}

/// The key of one gateway process.
#[derive(Clone)]
pub struct Key(hmac::Key);

impl Key {
    /// A key from random bytes.
    pub fn new(bytes: [u8; 32]) -> Key {
        Key(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
    }

    /// Seals a ticket.
    pub fn seal(&self, token: &ResumeToken) -> String {
        let mut plain = encode(token);
        let mac = hmac::sign(&self.0, &plain);
        plain.extend_from_slice(mac.as_ref());
        URL_SAFE_NO_PAD.encode(&plain)
    }

    /// What a ticket says, if it is ours, whole, in time, and shown by the right one with the right request.
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
        hmac::verify(&self.0, plain, mac).map_err(|_| TokenError::Forged)?;
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

/// Which request this is: its method and what it asks, however it is spelt. What changes from one try to the next
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

/// The digest of a value: the order of members, the space between tokens and escapes in strings do not count.
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
        Resume::Suspended { call, round } => {
            out.push(0);
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
            let (&call, rest) = rest.split_first_chunk::<8>()?;
            let round: [u8; 4] = rest.try_into().ok()?;
            Resume::Suspended { call: u64::from_be_bytes(call), round: u32::from_be_bytes(round) }
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
