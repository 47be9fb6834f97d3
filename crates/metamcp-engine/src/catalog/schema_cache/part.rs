//! A server's part of the search index, cached beside its tools to speed up the next start. It may be deleted at any time;
//! one that is damaged, or was built from other tools, is rebuilt and replaced.

use std::sync::Arc;

use metamcp_search::search::{Index, IndexCacheKey, ServerIndex, Strategy};
use metamcp_tools::tool::Listing;
use sha2::{Digest, Sha256};

use super::{CacheError, MAX_FILE_BYTES, SchemaCache, file_error};

pub(super) const FILE: &str = "index.bin";

/// The file signature: the version of this container, not of its content.
const MAGIC: &[u8; 8] = b"METAIDX1";

impl SchemaCache {
    /// The cached part for this key, if there is one and it is valid.
    pub fn read_part(&self, server: &str, cache_key: &IndexCacheKey) -> Option<Vec<u8>> {
        let folder = self.server_folder(server).ok()??;
        let mut bytes = folder.open(FILE).ok()??.read(MAX_FILE_BYTES).ok()?;
        let start = content(&bytes, cache_key)?;
        bytes.drain(..start);
        Some(bytes)
    }

    /// Writes a part, replacing any other.
    pub fn write_part(
        &self,
        server: &str,
        cache_key: &IndexCacheKey,
        part: &[u8],
        now_ms: u64,
    ) -> Result<(), CacheError> {
        let bytes = [MAGIC, &cache_key.0[..], &Sha256::digest(part), part].concat();
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(CacheError::TooLarge { server: server.to_owned(), bytes: bytes.len() });
        }
        let folder = self.server_folder_or_create(server, now_ms);
        let replaced = folder.and_then(|folder| folder.replace(FILE, &bytes));
        replaced.map_err(|source| file_error(server, source))
    }
}

/// Where the part starts in a valid file with this key.
fn content(bytes: &[u8], cache_key: &IndexCacheKey) -> Option<usize> {
    let rest = bytes.strip_prefix(MAGIC)?.strip_prefix(&cache_key.0[..])?;
    let (digest, part) = rest.split_first_chunk::<32>()?;
    (Sha256::digest(part)[..] == digest[..]).then_some(bytes.len() - part.len())
}

/// Searches an index made of arbitrary bytes; for fuzzing.
pub(super) fn survive(data: &[u8]) {
    let mut listing = Listing::new();
    let page = listing.page(br#"{"tools":[{"name":"read_file"},{"name":"send"}]}"#);
    page.expect("the list is plain");
    let tools = Arc::new(listing.finish(None, None));
    if let Some(part) = ServerIndex::from_bytes(IndexCacheKey([0; 32]), "fuzz", &tools, data) {
        let index = Index::new(vec![Arc::new(part)]);
        index.search("read the file", Strategy::Hybrid, 5, None);
    }
}
