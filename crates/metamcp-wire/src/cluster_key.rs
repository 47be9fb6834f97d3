//! The secret that all gateways of a fleet share, and what is derived from it.
//! Owns: its text form and minimum strength, a subkey for each purpose, authenticated encryption with both keys of a rotation.      Never: reads a file, makes randomness, prints a key.
//! In: the text of one or two keys; bytes to seal with randomness; sealed bytes.  Out: a [`Sealer`] for a purpose; the bytes again, or why not.
//! Tests: `cluster_key/tests.rs`.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::{hkdf, hmac};

/// Bytes of randomness that a seal needs. They are never used twice by chance, however many messages a fleet sends.
pub const RANDOM: usize = 24;
/// What sealing adds to the length.
pub const OVERHEAD: usize = 1 + KEY_ID + RANDOM + TAG;
/// Shortest key: 256 bits, as `openssl rand -base64 32` makes them.
const SHORTEST: usize = 32;
/// Longest key; more adds nothing and is most likely another file.
const LONGEST: usize = 256;
/// Random bytes have about 30 different values among 32; a key that was typed or filled up has few.
const DIFFERENT: usize = 16;
/// The first key seals and both open.
const KEYS: usize = 2;
/// The format of what is sealed; others are not opened.
const FORMAT: u8 = 1;
/// Bytes that name the key: they choose among two, and tell a wrong key from a broken message.
const KEY_ID: usize = 4;
const TAG: usize = 16;
/// The part of the randomness from which the key of one message is derived; the rest is its nonce.
const DERIVING: usize = RANDOM - NONCE_LEN;
/// Keys of another version derive other subkeys.
const SALT: &[u8] = b"metamcp cluster key 1";

/// What a subkey is for. What was sealed for one purpose does not open for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Ids of sessions, which carry what a gateway has to know of its client.
    SessionIds,
    /// `requestState` of suspended and relayed calls.
    ResumeTokens,
    /// Cursors of lists.
    Cursors,
    /// What nodes say to each other.
    NodeMessages,
    /// What is kept on the bus: tokens, results, definitions.
    AtRest,
}

impl Purpose {
    const ALL: [Purpose; 5] = [
        Purpose::SessionIds,
        Purpose::ResumeTokens,
        Purpose::Cursors,
        Purpose::NodeMessages,
        Purpose::AtRest,
    ];

    fn label(self) -> &'static [u8] {
        match self {
            Purpose::SessionIds => b"session ids",
            Purpose::ResumeTokens => b"resume tokens",
            Purpose::Cursors => b"cursors",
            Purpose::NodeMessages => b"messages between nodes",
            Purpose::AtRest => b"at rest on the bus",
        }
    }
}

/// Why a text is no cluster key. Nothing of the text is repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClusterKeyError {
    #[error("there is no key in it")]
    Empty,
    #[error(
        "there are more than two keys in it: one that seals, and in the second line one that is still accepted"
    )]
    TooMany,
    #[error(
        "line {line} is no key: a key is at least 32 random bytes in base64 or hexadecimal digits, as `openssl rand -base64 32` prints them"
    )]
    Form { line: usize },
    #[error(
        "the key in line {line} has {bytes} bytes; a key has {SHORTEST} to {LONGEST} random ones, as `openssl rand -base64 32` prints them"
    )]
    Length { line: usize, bytes: usize },
    #[error("the key in line {line} is not random; make one with `openssl rand -base64 32`")]
    NotRandom { line: usize },
    #[error("both keys are the same")]
    Same,
}

/// Why sealed bytes do not open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("it was sealed with a cluster key that this gateway does not have")]
    OtherKey,
    /// Not sealed by us, for this purpose and in this context, or changed since.
    #[error("it is not what a gateway of this fleet sealed")]
    Broken,
}

/// One or two keys: the first seals, both open.
#[derive(Clone)]
pub struct ClusterKeys(Vec<ClusterKey>);

/// What is derived from a key; itself it is not kept.
#[derive(Clone)]
struct ClusterKey {
    id: [u8; KEY_ID],
    /// In the order of [`Purpose::ALL`].
    subkeys: [[u8; 32]; Purpose::ALL.len()],
}

impl ClusterKeys {
    /// Reads keys, one a line. Empty lines and those that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<ClusterKeys, ClusterKeyError> {
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let mut found: Vec<Vec<u8>> = Vec::new();
        for (line, written) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        {
            if found.len() == KEYS {
                return Err(ClusterKeyError::TooMany);
            }
            found.push(key_bytes(written, line)?);
        }
        match found.as_slice() {
            [] => Err(ClusterKeyError::Empty),
            [one, other] if one == other => Err(ClusterKeyError::Same),
            all => Ok(ClusterKeys(all.iter().map(|bytes| ClusterKey::of(bytes)).collect())),
        }
    }

    /// The subkeys for a purpose.
    pub fn sealer(&self, purpose: Purpose) -> Sealer {
        let subkey = |key: &ClusterKey| Subkey { id: key.id, key: key.subkeys[purpose as usize] };
        Sealer(self.0.iter().map(subkey).collect())
    }

    /// The bytes of the subkeys for a purpose, for those who have a format of their own.
    pub fn derived(&self, purpose: Purpose) -> (Subbytes, Option<Subbytes>) {
        let bytes = |key: &ClusterKey| Subbytes(key.subkeys[purpose as usize]);
        (bytes(&self.0[0]), self.0.get(1).map(bytes))
    }

    /// What may be shown and compared: which key seals here. Says nothing about the key itself.
    pub fn name(&self) -> String {
        hex(&self.0[0].id)
    }

    /// The name of the other key, which is only accepted.
    pub fn other_name(&self) -> Option<String> {
        self.0.get(1).map(|key| hex(&key.id))
    }
}

impl fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKeys({})", self.name())
    }
}

/// A derived key that cannot be printed.
#[derive(Clone)]
pub struct Subbytes([u8; 32]);

impl Subbytes {
    pub fn expose(&self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Debug for Subbytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Subbytes(..)")
    }
}

impl ClusterKey {
    fn of(bytes: &[u8]) -> ClusterKey {
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, SALT).extract(bytes);
        let derive = |label: &[u8]| {
            let mut out = [0; 32];
            root.expand(&[label], hkdf::HKDF_SHA256)
                .and_then(|key| key.fill(&mut out))
                .expect("32 bytes are what this algorithm gives");
            out
        };
        let mut id = [0; KEY_ID];
        id.copy_from_slice(&derive(b"name")[..KEY_ID]);
        ClusterKey { id, subkeys: Purpose::ALL.map(|purpose| derive(purpose.label())) }
    }
}

/// Authenticated encryption for one purpose.
#[derive(Clone)]
pub struct Sealer(Vec<Subkey>);

#[derive(Clone)]
struct Subkey {
    id: [u8; KEY_ID],
    key: [u8; 32],
}

impl Sealer {
    /// Seals with the first key. `context` is not part of the result; who opens it has to know it. `random` is used once.
    pub fn seal(&self, random: [u8; RANDOM], context: &[u8], plain: &[u8]) -> Vec<u8> {
        let subkey = &self.0[0];
        let mut out = Vec::with_capacity(plain.len() + OVERHEAD);
        out.push(FORMAT);
        out.extend_from_slice(&subkey.id);
        out.extend_from_slice(&random);
        let (key, nonce) = subkey.of_message(&random);
        let mut secret = plain.to_vec();
        key.seal_in_place_append_tag(nonce, Aad::from(context), &mut secret)
            .expect("a message is shorter than 64 GB");
        out.extend_from_slice(&secret);
        out
    }

    /// Opens what was sealed with either key in the same context.
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (&format, rest) = sealed.split_first().ok_or(SealError::Broken)?;
        let (id, rest) = rest.split_first_chunk::<KEY_ID>().ok_or(SealError::Broken)?;
        let (random, secret) = rest.split_first_chunk::<RANDOM>().ok_or(SealError::Broken)?;
        if format != FORMAT || secret.len() < TAG {
            return Err(SealError::Broken);
        }
        let subkey = self.0.iter().find(|one| one.id == *id).ok_or(SealError::OtherKey)?;
        let (key, nonce) = subkey.of_message(random);
        let mut secret = secret.to_vec();
        let opened = key.open_in_place(nonce, Aad::from(context), &mut secret);
        let length = opened.map_err(|_| SealError::Broken)?.len();
        secret.truncate(length);
        Ok(secret)
    }

    /// Whether it was sealed with the key that seals today. What lasts longer than a rotation is then sealed again.
    pub fn is_current(&self, sealed: &[u8]) -> bool {
        sealed.get(1..=KEY_ID).is_some_and(|id| id == self.0[0].id)
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(..)")
    }
}

impl Subkey {
    /// A key of its own for each message: 12 random bytes alone would meet again after some billions of messages.
    fn of_message(&self, random: &[u8; RANDOM]) -> (LessSafeKey, Nonce) {
        let (deriving, nonce) = random.split_at(DERIVING);
        let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.key), deriving);
        let key = UnboundKey::new(&CHACHA20_POLY1305, key.as_ref())
            .expect("an HMAC of SHA-256 is as long as this key");
        let nonce = Nonce::try_assume_unique_for_key(nonce).expect("what is left is a nonce");
        (LessSafeKey::new(key), nonce)
    }
}

fn key_bytes(written: &str, line: usize) -> Result<Vec<u8>, ClusterKeyError> {
    let bytes = of_hex(written).or_else(|| of_base64(written));
    let bytes = bytes.ok_or(ClusterKeyError::Form { line })?;
    if !(SHORTEST..=LONGEST).contains(&bytes.len()) {
        return Err(ClusterKeyError::Length { line, bytes: bytes.len() });
    }
    let mut seen = [false; 256];
    for &byte in &bytes {
        seen[usize::from(byte)] = true;
    }
    if seen.iter().filter(|seen| **seen).count() < DIFFERENT {
        return Err(ClusterKeyError::NotRandom { line });
    }
    Ok(bytes)
}

fn of_hex(written: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = written.chars().map(|c| c.to_digit(16)).collect::<Option<_>>()?;
    digits
        .len()
        .is_multiple_of(2)
        .then(|| digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
}

/// With the letters of either alphabet, filled up with `=` or not.
fn of_base64(written: &str) -> Option<Vec<u8>> {
    let lenient =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    [alphabet::STANDARD, alphabet::URL_SAFE]
        .iter()
        .find_map(|letters| GeneralPurpose::new(letters, lenient).decode(written).ok())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
