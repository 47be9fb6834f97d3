//! Servers that are the fleet's: their instances by the same name on every node.

use std::sync::Arc;

use metamcp_calls::pool::ServerId;
use metamcp_config::config::ServerConfig;
use metamcp_config::scope::Scope;
use sha2::{Digest, Sha256};

use super::super::servers::ScopeKey;
use super::Router;
use crate::fleet::{InstanceId, NodeName, Requirements};

/// One of them, as this node has it.
#[derive(Debug)]
pub(in crate::router) struct Placed {
    pub(super) server: ServerId,
    pub(super) instance: InstanceId,
    pub(super) definition: u128,
    pub(super) requirements: Arc<Requirements>,
    config: Arc<ServerConfig>,
}

impl Router {
    /// What a server is in the fleet; `None` for one that stays on its node.
    pub(super) fn placed(&self, server: ServerId) -> Option<Arc<Placed>> {
        let known = self.fleet.placed.read().get(&server).cloned();
        let instance = self.instance_at(server).filter(|one| one.key == ScopeKey::Fleet)?;
        let config = instance.definition.config();
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.config, &config)) {
            return Some(known);
        }
        let definition = digest_of(&config);
        let requirements = Requirements {
            definition,
            labels: config
                .requires
                .iter()
                .map(|(k, v)| (k.as_str().into(), v.as_str().into()))
                .collect(),
            pinned: config.pin.as_deref().and_then(NodeName::parse),
            preferred: None,
        };
        let placed = Arc::new(Placed {
            server,
            instance: InstanceId(digest(&[b"fleet instance", &definition.to_be_bytes()])),
            definition,
            requirements: Arc::new(requirements),
            config,
        });
        self.fleet.placed.write().insert(server, Arc::clone(&placed));
        Some(placed)
    }

    pub(super) fn placed_by(&self, which: impl Fn(&Placed) -> bool) -> Option<Arc<Placed>> {
        let placed = self.fleet.placed.read();
        placed.values().find(|placed| which(placed)).cloned()
    }

    /// The server of a definition, made known if the configuration has it.
    pub(super) fn placed_by_definition(&self, definition: u128) -> Option<Arc<Placed>> {
        let known = self.placed_by(|placed| placed.definition == definition);
        // As it is now: a reload may have changed what stands under that id.
        if let Some(placed) = known.and_then(|known| self.placed(known.server))
            && placed.definition == definition
        {
            return Some(placed);
        }
        let wanted = self.definitions().into_iter().find(|one| {
            let config = one.config();
            config.share == Some(Scope::Fleet)
                && config.is_enabled()
                && digest_of(&config) == definition
        })?;
        let surroundings = Arc::clone(&wanted.contexts().first()?.surroundings);
        let server = self.instance(&wanted, ScopeKey::Fleet, &surroundings);
        self.placed(server)
    }
}

/// What makes two entries the same server: its name, and how it is started or reached. Secrets count by their names.
fn digest_of(config: &ServerConfig) -> u128 {
    let started = format!("{:?}", config.transport);
    digest(&[b"fleet definition", config.name.as_bytes(), started.as_bytes()])
}

fn digest(parts: &[&[u8]]) -> u128 {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize()[..16]);
    u128::from_be_bytes(bytes)
}
