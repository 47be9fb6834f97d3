//! Bytes that only those with the cluster's key can write or read.
//! Owns: what each seal is bound to.      Never: keeps a key.
//! In: a place (a subject, or a key of a bucket), bytes.  Out: the same, sealed or opened.
//! Tests: `metamcp/tests/fleet/messages.rs`; `metamcp_wire::cluster_key`.
//!
//! What is sealed belongs to one place and opens nowhere else: a recorded message cannot be played back under another name,
//! nor a value under another key.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_wire::cluster_key::{Purpose, SealError};

use crate::cluster_key::Keyring;

pub(super) struct Seal {
    keyring: Arc<Keyring>,
}

impl Seal {
    pub(super) fn new(keyring: Arc<Keyring>) -> Seal {
        Seal { keyring }
    }

    /// A message for that subject.
    pub(super) fn message(&self, subject: &str, plain: &[u8]) -> Bytes {
        self.keyring.seal(Purpose::NodeMessages, subject.as_bytes(), plain).into()
    }

    pub(super) fn open_message(&self, subject: &str, sealed: &[u8]) -> Result<Bytes, SealError> {
        let sealer = self.keyring.sealer(Purpose::NodeMessages);
        sealer.open(subject.as_bytes(), sealed).map(Bytes::from)
    }

    /// A value that is kept in that place.
    pub(super) fn value(&self, place: &str, plain: &[u8]) -> Bytes {
        self.keyring.seal(Purpose::AtRest, place.as_bytes(), plain).into()
    }

    pub(super) fn open_value(&self, place: &str, sealed: &[u8]) -> Result<Bytes, SealError> {
        let sealer = self.keyring.sealer(Purpose::AtRest);
        sealer.open(place.as_bytes(), sealed).map(Bytes::from)
    }
}
