//! Bytes that only those with the cluster's key can write or read.
//! Owns: keys derived for one life of a process, the form of a sealed message.      Never: sends, knows what is inside.
//! In: the cluster's keys, a place, bytes.  Out: the same, sealed (AES-256-GCM) or opened.
//! Tests: below.
//!
//! Each life of a process derives a key of its own by a salt that travels with each message, and counts its nonces. A key is
//! then never used twice with one nonce, however many nodes write. What is sealed belongs to one place (a subject, or a key
//! of a bucket) and opens nowhere else: a recorded message cannot be played back under another name.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};

use super::error::BusError;

/// The form of a message. A node that reads another one refuses it and says so.
const VERSION: u8 = 1;
const ID: usize = 4;
const SALT: usize = 16;
const COUNTER: usize = 8;
const HEAD: usize = 1 + ID + SALT + COUNTER;
const TAG: usize = 16;
/// Keys of other lives that are kept: more than a fleet has nodes. Another one costs 2 us to derive again.
const MAX_KEYS: usize = 2048;

/// The secret that all nodes share, and the one before it while they change from one to the other.
#[derive(Clone)]
pub struct ClusterKeys {
    current: [u8; 32],
    previous: Option<[u8; 32]>,
}

impl ClusterKeys {
    pub fn new(current: [u8; 32], previous: Option<[u8; 32]>) -> ClusterKeys {
        ClusterKeys { current, previous }
    }
}

impl std::fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClusterKeys(..)")
    }
}

/// Why something from the bus is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum NotOpened {
    #[error("it is not a message of a gateway")]
    Malformed,
    #[error("it is in form {0}, which this version does not read")]
    Version(u8),
    #[error("its writer has another cluster key")]
    OtherKey,
    #[error("it was changed, or belongs to another subject")]
    Forged,
}

/// A secret and its public name, by which a reader knows which of two keys was used.
struct Root {
    secret: [u8; 32],
    id: [u8; ID],
}

pub(super) struct Sealer {
    roots: Vec<Root>,
    own: LessSafeKey,
    salt: [u8; SALT],
    counter: AtomicU64,
    others: Mutex<HashMap<[u8; ID + SALT], LessSafeKey>>,
}

impl Sealer {
    pub(super) fn new(keys: &ClusterKeys) -> Result<Sealer, BusError> {
        let mut salt = [0; SALT];
        getrandom::fill(&mut salt).map_err(|_| BusError::NoRandom)?;
        let roots: Vec<Root> = [Some(keys.current), keys.previous]
            .into_iter()
            .flatten()
            .map(|secret| Root { secret, id: derived(&secret, b"id") })
            .collect();
        let own = message_key(&keys.current, &salt).ok_or(BusError::NoRandom)?;
        Ok(Sealer { roots, own, salt, counter: AtomicU64::new(0), others: Mutex::default() })
    }

    /// The bytes, for that place only.
    pub(super) fn seal(&self, place: &str, plain: &[u8]) -> Result<Bytes, BusError> {
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut sealed = Vec::with_capacity(HEAD + plain.len() + TAG);
        sealed.push(VERSION);
        sealed.extend_from_slice(&self.roots[0].id);
        sealed.extend_from_slice(&self.salt);
        sealed.extend_from_slice(&counter.to_be_bytes());
        sealed.extend_from_slice(plain);
        let (_, body) = sealed.split_at_mut(HEAD);
        let tag = self
            .own
            .seal_in_place_separate_tag(nonce(counter), Aad::from(place.as_bytes()), body)
            .map_err(|_| BusError::TooLong { bytes: plain.len(), limit: usize::MAX })?;
        sealed.extend_from_slice(tag.as_ref());
        Ok(sealed.into())
    }

    /// What was sealed for that place by somebody with one of our keys.
    pub(super) fn open(&self, place: &str, sealed: &[u8]) -> Result<Bytes, NotOpened> {
        let version = *sealed.first().ok_or(NotOpened::Malformed)?;
        if sealed.len() < HEAD + TAG {
            return Err(NotOpened::Malformed);
        }
        if version != VERSION {
            return Err(NotOpened::Version(version));
        }
        let (head, body) = sealed.split_at(HEAD);
        let whose: [u8; ID + SALT] =
            head[1..=ID + SALT].try_into().map_err(|_| NotOpened::Malformed)?;
        let (id, salt) = whose.split_at(ID);
        let counter = head[1 + ID + SALT..].try_into().map_err(|_| NotOpened::Malformed)?;
        let root = self.roots.iter().find(|root| root.id == id).ok_or(NotOpened::OtherKey)?;
        let mut plain = body.to_vec();
        let open = |key: &LessSafeKey, plain: &mut Vec<u8>| {
            let nonce = nonce(u64::from_be_bytes(counter));
            let opened = key.open_in_place(nonce, Aad::from(place.as_bytes()), plain);
            opened.map(|opened| opened.len()).map_err(|_| NotOpened::Forged)
        };
        let known = self.others.lock().get(&whose).cloned();
        let length = if let Some(key) = known {
            open(&key, &mut plain)?
        } else {
            let key = message_key(&root.secret, salt).ok_or(NotOpened::Malformed)?;
            let length = open(&key, &mut plain)?;
            // Only after it opened: a stranger cannot fill this.
            let mut others = self.others.lock();
            if others.len() >= MAX_KEYS {
                others.clear();
            }
            others.insert(whose, key);
            length
        };
        plain.truncate(length);
        Ok(plain.into())
    }
}

fn nonce(counter: u64) -> Nonce {
    let mut bytes = [0; 12];
    bytes[4..].copy_from_slice(&counter.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}

fn message_key(secret: &[u8; 32], salt: &[u8]) -> Option<LessSafeKey> {
    let pseudorandom = Salt::new(HKDF_SHA256, salt).extract(secret);
    let material = pseudorandom.expand(&[b"metamcp bus message"], &AES_256_GCM).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(material)))
}

fn derived(secret: &[u8; 32], purpose: &[u8]) -> [u8; ID] {
    let pseudorandom = Salt::new(HKDF_SHA256, b"metamcp bus").extract(secret);
    let mut bytes = [0; 32];
    let mut id = [0; ID];
    if let Ok(material) = pseudorandom.expand(&[purpose], HKDF_SHA256)
        && material.fill(&mut bytes).is_ok()
    {
        id.copy_from_slice(&bytes[..ID]);
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "metamcp.to.b.node.a";

    fn sealer(current: u8, previous: Option<u8>) -> Sealer {
        Sealer::new(&ClusterKeys::new([current; 32], previous.map(|key| [key; 32]))).unwrap()
    }

    #[test]
    fn what_is_sealed_opens_for_those_with_the_key_and_nobody_else() {
        let (a, b, stranger) = (sealer(1, None), sealer(1, None), sealer(2, None));
        for text in [&b""[..], b"x", &[7; 300_000]] {
            let sealed = a.seal(PLACE, text).unwrap();
            assert_eq!(b.open(PLACE, &sealed).unwrap(), text);
            assert_eq!(stranger.open(PLACE, &sealed), Err(NotOpened::OtherKey));
            assert_eq!(b.open("metamcp.to.b.node.c", &sealed), Err(NotOpened::Forged));
        }
    }

    #[test]
    fn no_changed_byte_goes_unnoticed() {
        let (a, b) = (sealer(1, None), sealer(1, None));
        let sealed = a.seal(PLACE, b"a message").unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[at] ^= 1;
            assert!(b.open(PLACE, &changed).is_err(), "byte {at}");
            assert!(b.open(PLACE, &sealed[..at]).is_err(), "cut at {at}");
        }
        assert_eq!(b.open(PLACE, &[9; 60]), Err(NotOpened::Version(9)));
        assert!(b.others.lock().is_empty(), "strangers cannot fill the list of keys");
    }

    #[test]
    fn a_key_is_changed_while_nodes_speak() {
        // First all learn the new key as the second one, then each changes its first, then the old one is dropped.
        let (old, both, new) = (sealer(1, Some(2)), sealer(2, Some(1)), sealer(2, None));
        for (from, to) in [(&old, &both), (&both, &old), (&both, &new), (&new, &both)] {
            let sealed = from.seal(PLACE, b"hello").unwrap();
            assert_eq!(to.open(PLACE, &sealed).unwrap(), &b"hello"[..]);
        }
    }

    #[test]
    fn the_same_bytes_are_never_sealed_alike() {
        let a = sealer(1, None);
        assert_ne!(a.seal(PLACE, b"x").unwrap(), a.seal(PLACE, b"x").unwrap());
        assert_ne!(a.seal(PLACE, b"x").unwrap(), sealer(1, None).seal(PLACE, b"x").unwrap());
    }
}
