//! A server's list of tools on its way to the other gateways of a fleet, so that one which never started the server lists
//! and searches its tools all the same. What arrives is a file of the schema cache, and is read as hostile as one.

use std::io::Read as _;
use std::sync::Arc;

use flate2::Compression;
use flate2::read::{DeflateDecoder, DeflateEncoder};
use sha2::{Digest as _, Sha256};

use super::schema_cache::{MAX_FILE_BYTES, SchemaCache};
use super::{Catalog, DefinitionId, cache_key, fingerprint};
use crate::clock::unix_millis;
use metamcp_config::config::ServerConfig;

/// What became of a list of another gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Received {
    /// It is used from now on.
    Taken,
    /// It is known, or this gateway has heard the server itself.
    Known,
    /// Of a server that is not configured here, or is another one here.
    Stranger,
    /// No list that any gateway would have sent.
    Unusable,
}

/// The name of a list for every gateway that has this server: its name, and what is started or reached under it.
fn key(config: &ServerConfig) -> String {
    let mut hash = Sha256::new();
    hash.update(config.name.as_bytes());
    hash.update([0]);
    hash.update(fingerprint(config).as_bytes());
    hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

impl Catalog {
    /// Waits until a server has listed something new, and says which.
    pub async fn next_listed(&self) -> DefinitionId {
        loop {
            let changed = self.listed_news.notified();
            if let Some(server) = self.unshared.lock().pop_first() {
                return server;
            }
            changed.await;
        }
    }

    /// Other gateways have to hear of this list.
    pub fn has_listed(&self, server: DefinitionId) {
        self.unshared.lock().insert(server);
        self.listed_news.notify_one();
    }

    /// Every server that has a list.
    pub fn all_listed(&self) -> Vec<DefinitionId> {
        let snapshot = self.snapshot();
        let configs = self.configs();
        configs.keys().filter(|server| snapshot.known(**server).is_some()).copied().collect()
    }

    /// The list of a server for other gateways: its key, and the bytes.
    pub async fn packed(self: &Arc<Self>, server: DefinitionId) -> Option<(String, Vec<u8>)> {
        let config = self.configs().get(&server).cloned()?;
        let catalog = Arc::clone(self);
        let packed = tokio::task::spawn_blocking(move || {
            let made_by = fingerprint(&config);
            let cache = catalog.cache.as_ref()?;
            let raw = cache.raw(cache_key(&config, &made_by), unix_millis())?;
            let mut packed = Vec::new();
            DeflateEncoder::new(&raw[..], Compression::fast()).read_to_end(&mut packed).ok()?;
            Some((key(&config), packed))
        });
        packed.await.ok()?
    }

    /// Takes the list of another gateway, unless this one has heard the server itself.
    pub async fn unpack(self: &Arc<Self>, key_of_list: &str, packed: &[u8]) -> Received {
        let found = self
            .configs()
            .iter()
            .find(|(_, config)| key(config) == key_of_list)
            .map(|(server, config)| (*server, Arc::clone(config)));
        let Some((server, config)) = found else { return Received::Stranger };
        let is_live = |catalog: &Catalog| {
            catalog.snapshot().known(server).is_some_and(|known| known.listed_at.is_some())
        };
        if is_live(self) {
            return Received::Known;
        }
        let (catalog, packed) = (Arc::clone(self), packed.to_vec());
        let written = tokio::task::spawn_blocking(move || {
            let Some(cache) = &catalog.cache else { return Received::Known };
            let Some(raw) = unpacked(&packed) else { return Received::Unusable };
            let made_by = fingerprint(&config);
            imported(cache, &config, &made_by, &raw)
        });
        let received = written.await.unwrap_or(Received::Unusable);
        if received == Received::Taken {
            // Never over what the server itself has said here meanwhile.
            self.look_again(&[server]).await;
        }
        received
    }
}

fn imported(cache: &SchemaCache, config: &ServerConfig, made_by: &str, raw: &[u8]) -> Received {
    match cache.import(cache_key(config, made_by), raw, unix_millis()) {
        Some(true) => Received::Taken,
        Some(false) => Received::Known,
        None => Received::Unusable,
    }
}

/// Never longer than a file of the cache may be, whatever it claims to be.
fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
    let mut raw = Vec::new();
    DeflateDecoder::new(packed).take(MAX_FILE_BYTES + 1).read_to_end(&mut raw).ok()?;
    (raw.len() as u64 <= MAX_FILE_BYTES).then_some(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_would_fill_the_memory_is_refused() {
        let zeros = std::io::repeat(0).take(MAX_FILE_BYTES * 4);
        let mut bomb = Vec::new();
        DeflateEncoder::new(zeros, Compression::best()).read_to_end(&mut bomb).unwrap();
        assert!(bomb.len() < 100_000);
        assert_eq!(unpacked(&bomb), None);
        assert_eq!(unpacked(b"not deflated at all"), None);
    }
}
