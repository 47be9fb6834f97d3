//! Vectors in memory: those of tools by the digest of their text, those of recent queries by their text.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::unavailable::Failure;

/// Enough for 50,000 tools with a thousand dimensions each; the rest is read from disk again.
const MAX_BYTES: usize = 256 * 1024 * 1024;
/// Models tend to repeat queries within a conversation.
const MAX_QUERIES: usize = 128;

#[derive(Debug)]
pub(super) struct VectorCache {
    tools: HashMap<[u8; 32], CachedVector>,
    queries: VecDeque<(Box<str>, Arc<[f32]>)>,
    dimensions: Dimensions,
    bytes: usize,
    uses: u64,
    most: usize,
}

#[derive(Debug)]
struct CachedVector {
    vector: Arc<[f32]>,
    used: u64,
}

/// The dimensions of the model's vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dimensions {
    Unknown,
    /// Those of the vectors on disk. The model may have changed under its name since.
    Remembered(usize),
    /// Those of the API's response.
    Answered(usize),
}

impl VectorCache {
    pub(super) fn new() -> VectorCache {
        VectorCache {
            tools: HashMap::new(),
            queries: VecDeque::new(),
            dimensions: Dimensions::Unknown,
            bytes: 0,
            uses: 0,
            most: MAX_BYTES,
        }
    }

    pub(super) fn holds(&self, digest: &[u8; 32]) -> bool {
        self.tools.contains_key(digest)
    }

    pub(super) fn tool(&mut self, digest: &[u8; 32]) -> Option<Arc<[f32]>> {
        self.uses += 1;
        let kept = self.tools.get_mut(digest)?;
        kept.used = self.uses;
        Some(kept.vector.clone())
    }

    /// The vector of a recent query.
    pub(super) fn query(&mut self, text: &str) -> Option<Arc<[f32]>> {
        let at = self.queries.iter().position(|(known, _)| **known == *text)?;
        let found = self.queries.remove(at)?;
        let vector = found.1.clone();
        self.queries.push_front(found);
        Some(vector)
    }

    /// Whether vectors have this length, as far as is known.
    pub(super) fn fits(&self, length: usize) -> bool {
        match self.dimensions {
            Dimensions::Unknown => true,
            Dimensions::Remembered(known) | Dimensions::Answered(known) => known == length,
        }
    }

    /// Adds a vector from disk, unless its length differs from the others.
    pub(super) fn remember(&mut self, digest: [u8; 32], vector: &Arc<[f32]>) -> bool {
        if self.dimensions == Dimensions::Unknown {
            self.dimensions = Dimensions::Remembered(vector.len());
        }
        let fits = self.fits(vector.len());
        if fits {
            self.keep(digest, vector);
        }
        fits
    }

    /// Checks the length of vectors in a response. If those from disk differ, the model has changed and they are dropped; if an
    /// earlier response differs, the API is inconsistent.
    pub(super) fn answered(&mut self, length: usize) -> Result<(), Failure> {
        match self.dimensions {
            Dimensions::Answered(expected) if expected != length => {
                return Err(Failure::WrongDimensions { expected, found: length });
            }
            Dimensions::Remembered(known) if known != length => {
                self.tools.clear();
                self.queries.clear();
                self.bytes = 0;
            }
            _ => {}
        }
        self.dimensions = Dimensions::Answered(length);
        Ok(())
    }

    pub(super) fn keep(&mut self, digest: [u8; 32], vector: &Arc<[f32]>) {
        self.uses += 1;
        let kept = CachedVector { vector: vector.clone(), used: self.uses };
        self.bytes += size(vector);
        if let Some(before) = self.tools.insert(digest, kept) {
            self.bytes -= size(&before.vector);
        }
        if self.bytes > self.most {
            self.shrink();
        }
    }

    pub(super) fn keep_query(&mut self, text: &str, vector: &Arc<[f32]>) {
        self.queries.push_front((text.into(), vector.clone()));
        self.queries.truncate(MAX_QUERIES);
    }

    /// Evicts the least recently used quarter, so that it happens rarely.
    fn shrink(&mut self) {
        let mut used: Vec<(u64, [u8; 32])> =
            self.tools.iter().map(|(digest, kept)| (kept.used, *digest)).collect();
        used.sort_unstable();
        for (_, digest) in used {
            if self.bytes <= self.most / 4 * 3 {
                break;
            }
            if let Some(gone) = self.tools.remove(&digest) {
                self.bytes -= size(&gone.vector);
            }
        }
    }
}

fn size(vector: &Arc<[f32]>) -> usize {
    // Including the overhead of the map and the counters.
    size_of_val::<[f32]>(vector) + 80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(length: usize) -> Arc<[f32]> {
        vec![1.0; length].into()
    }

    #[test]
    fn recently_used_vectors_stay() {
        let mut vector_cache = VectorCache::new();
        vector_cache.most = 20 * size(&vector(8));
        for n in 0..20 {
            vector_cache.keep([n; 32], &vector(8));
        }
        assert!(vector_cache.tool(&[0; 32]).is_some());
        vector_cache.keep([20; 32], &vector(8));
        assert!(
            vector_cache.holds(&[0; 32])
                && vector_cache.holds(&[20; 32])
                && !vector_cache.holds(&[1; 32])
        );
        assert!(vector_cache.bytes <= vector_cache.most);
        assert_eq!(vector_cache.bytes, vector_cache.tools.len() * size(&vector(8)));
    }

    #[test]
    fn queries_are_few() {
        let mut vector_cache = VectorCache::new();
        for n in 0..MAX_QUERIES + 5 {
            vector_cache.keep_query(&n.to_string(), &vector(1));
            assert!(vector_cache.query("0").is_some(), "used all the time");
        }
        assert_eq!(vector_cache.queries.len(), MAX_QUERIES);
        assert!(vector_cache.query("1").is_none());
    }

    #[test]
    fn the_api_decides_the_dimensions() {
        let mut vector_cache = VectorCache::new();
        assert!(vector_cache.remember([1; 32], &vector(3)));
        assert!(!vector_cache.remember([2; 32], &vector(4)));
        vector_cache.answered(4).unwrap();
        assert!(!vector_cache.holds(&[1; 32]) && vector_cache.bytes == 0);
        assert!(!vector_cache.remember([1; 32], &vector(3)));
        let failure = Failure::WrongDimensions { expected: 4, found: 3 };
        assert_eq!(vector_cache.answered(3).unwrap_err(), failure);
        vector_cache.answered(4).unwrap();
    }
}
