//! What ranks a set here: `hybrid`, or the transformer with its vectors of the set's tools.
//! Owns: those vectors, kept in a file between runs.      Never: fits.
//! In: a model, or none; catalogs of tools that were read before.  Out: hits, candidates.
//! Tests: below.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result};
use metamcp_search::search::{Hit, Index, Nearness, Seen, Strategy, Table, document};
use metamcp_search::transformer::Model;
use parking_lot::Mutex;

/// A transformer, and what it made of tools so far.
pub(crate) struct Embedder {
    model: Model,
    /// Of the model's file, so that vectors of another are not taken for its own.
    identity: u64,
    vectors: Mutex<HashMap<u64, Arc<[f32]>>>,
    kept: Option<PathBuf>,
}

impl Embedder {
    /// The model in a file, with the vectors kept in another, if one is named.
    pub(crate) fn open(path: &Path, kept: Option<PathBuf>) -> Result<Embedder> {
        let bytes =
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let model = Model::read(&bytes)?;
        let mut identity = DefaultHasher::new();
        bytes.hash(&mut identity);
        let width = model.shape().width;
        let vectors = match kept.as_ref().map(std::fs::read) {
            Some(Ok(bytes)) => unpacked(&bytes, width),
            _ => HashMap::new(),
        };
        Ok(Embedder { model, identity: identity.finish(), vectors: Mutex::new(vectors), kept })
    }

    fn key(&self, document: &str) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.identity, document).hash(&mut hasher);
        hasher.finish()
    }

    /// Reads the tools that were not read before, on all cores.
    fn read(&self, index: &Index) -> Result<()> {
        let known = self.vectors.lock();
        let mut new: Vec<(u64, String)> = documents(index)
            .map(|document| (self.key(&document), document))
            .filter(|(key, _)| !known.contains_key(key))
            .collect();
        drop(known);
        new.sort_unstable();
        new.dedup_by_key(|(key, _)| *key);
        if new.is_empty() {
            return Ok(());
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for share in new.chunks(new.len().div_ceil(cores)) {
                scope.spawn(move || {
                    for (key, document) in share {
                        let vector = self.model.tool(document).into();
                        self.vectors.lock().insert(*key, vector);
                    }
                });
            }
        });
        if let Some(path) = &self.kept {
            let all = self.vectors.lock();
            std::fs::write(path, packed(&all))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    fn tables(&self, index: &Index) -> Vec<Arc<Table>> {
        let vectors = self.vectors.lock();
        let width = self.model.shape().width;
        let table = |part: &Arc<metamcp_search::search::ServerIndex>| {
            let tools = &part.tools().tools;
            let mut table = Table::new(tools.len(), width);
            for (at, tool) in tools.iter().enumerate() {
                if let Some(vector) = vectors.get(&self.key(&document(part.server(), tool))) {
                    table.set(at, vector);
                }
            }
            Arc::new(table)
        };
        index.servers().iter().map(table).collect()
    }
}

fn documents(index: &Index) -> impl Iterator<Item = String> {
    index.servers().iter().flat_map(|part| {
        part.tools().tools.iter().map(|tool| document(part.server(), tool)).collect::<Vec<_>>()
    })
}

/// Keys and vectors one after the other.
fn packed(vectors: &HashMap<u64, Arc<[f32]>>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (key, vector) in vectors {
        bytes.extend(key.to_le_bytes());
        vector.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    }
    bytes
}

fn unpacked(bytes: &[u8], width: usize) -> HashMap<u64, Arc<[f32]>> {
    let one = |record: &[u8]| {
        let (key, vector) = record.split_first_chunk::<8>()?;
        let vector = vector.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        Some((u64::from_le_bytes(*key), vector.collect()))
    };
    bytes.chunks_exact(8 + 4 * width).filter_map(one).collect()
}

/// One catalog, ready to be searched.
pub(crate) struct Reader<'a> {
    index: &'a Index,
    embedder: Option<(&'a Embedder, Vec<Arc<Table>>)>,
}

impl<'a> Reader<'a> {
    /// Reads the tools with the transformer, if there is one.
    pub(crate) fn new(index: &'a Index, embedder: Option<&'a Embedder>) -> Result<Reader<'a>> {
        let embedder = match embedder {
            Some(embedder) => {
                embedder.read(index)?;
                Some((embedder, embedder.tables(index)))
            }
            None => None,
        };
        Ok(Reader { index, embedder })
    }

    fn nearness(&self, query: &str) -> Option<Nearness> {
        let (embedder, tables) = self.embedder.as_ref()?;
        Nearness::new(tables, &embedder.model.asked(query))
    }

    /// The first hits, as a search finds them.
    pub(crate) fn hits(&self, query: &str, limit: usize) -> Vec<Hit> {
        match self.nearness(query) {
            Some(nearness) => self.index.page_by(&nearness, query, (0, limit), None, None).hits,
            None => self.index.search(query, Strategy::Hybrid, limit, None),
        }
    }

    /// The candidates, with what is seen of them.
    pub(crate) fn candidates(&self, query: &str) -> Vec<Seen> {
        match self.nearness(query) {
            Some(nearness) => self.index.candidates_near(query, None, &nearness),
            None => self.index.candidates(query, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_kept_as_they_are() {
        let vectors = HashMap::from([(7, Arc::from([0.5f32, -1.0])), (9, Arc::from([0.25, 2.0]))]);
        assert_eq!(unpacked(&packed(&vectors), 2), vectors);
        assert!(unpacked(&[1, 2, 3], 2).is_empty());
    }
}
