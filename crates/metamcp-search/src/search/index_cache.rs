//! Serialization of one server's part of the index, so that the next start need not rebuild it. It is read back bit for
//! bit, or rejected: bytes that could not have been written here are never used.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::{About, ServerIndex, Tuning, bm25, hybrid, ranked_chars};
use metamcp_tools::tool::ServerTools;

/// Moves whenever the same tools give other bytes: with the tokenizer, the fields, the table of vectors or the layout
/// below. A test fails when it should have been moved.
const FORM: u32 = 3;

/// All that a part is made from, in short: two parts of one recipe are made from the same tools and words. Their bytes
/// may differ, since a tool whose parameters only change their order is the same tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexCacheKey(pub [u8; 32]);

impl IndexCacheKey {
    /// The recipe of what [`ServerIndex::build_tuned`] makes of the same.
    pub fn new(
        server: &str,
        about: About<'_>,
        tools: &ServerTools,
        tuning: &Tuning,
    ) -> IndexCacheKey {
        let mut all = Vec::with_capacity(256 + tools.tools.len() * 32);
        let mut add = |bytes: &[u8]| {
            all.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
            all.extend_from_slice(bytes);
        };
        // Another release is made anew even if somebody forgot to move the form.
        add(env!("CARGO_PKG_VERSION").as_bytes());
        add(&FORM.to_le_bytes());
        add(&(ranked_chars(tuning) as u64).to_le_bytes());
        add(server.as_bytes());
        for text in [about.description, tools.server_title.as_deref()] {
            add(&[u8::from(text.is_some())]);
            add(text.unwrap_or_default().as_bytes());
        }
        add(about.tags.join(" ").as_bytes());
        // In their order: a part counts them through.
        tools.tools.iter().for_each(|tool| add(&tool.fingerprint.0));
        IndexCacheKey(Sha256::digest(&all).into())
    }
}

impl ServerIndex {
    /// What it was made from.
    pub fn cache_key(&self) -> IndexCacheKey {
        self.cache_key
    }

    /// Serializes the part without its tools.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.fields.write(&mut bytes);
        self.meanings.write(&mut bytes);
        bytes
    }

    /// Deserializes the part of this recipe; nothing if the bytes are not of such a part. They are believed
    /// as far as they make sense: the caller ensures that they were stored under this recipe.
    pub fn from_bytes(
        cache_key: IndexCacheKey,
        server: &str,
        tools: &Arc<ServerTools>,
        mut bytes: &[u8],
    ) -> Option<Self> {
        let count = tools.tools.len();
        let fields = bm25::Fields::read(&mut bytes, count)?;
        let meanings = hybrid::Meanings::read(&mut bytes, count)?;
        bytes.is_empty().then(|| Self {
            server: server.into(),
            tools: tools.clone(),
            cache_key,
            fields,
            meanings,
        })
    }
}

/// Four bytes.
pub(super) fn push(bytes: &mut Vec<u8>, number: usize) {
    // What is counted here is bounded by the caps on a server's tools.
    bytes.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

/// The number that `push` wrote.
pub(super) fn take(bytes: &mut &[u8]) -> Option<usize> {
    let (number, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*number) as usize)
}

/// So many elements of a few bytes each. They are there before room is made for what becomes of them, so that no number
/// asks for more than the file holds.
pub(super) fn take_all<'a, const SIZE: usize>(
    bytes: &mut &'a [u8],
    count: usize,
) -> Option<&'a [[u8; SIZE]]> {
    let (own, rest) = bytes.split_at_checked(count.checked_mul(SIZE)?)?;
    *bytes = rest;
    Some(own.as_chunks::<SIZE>().0)
}

#[cfg(test)]
mod tests;
