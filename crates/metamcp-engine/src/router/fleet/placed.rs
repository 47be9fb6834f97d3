//! Servers that are the fleet's: their instances by the same name on every node.

use std::sync::Arc;

use metamcp_calls::pool::ServerId;
use metamcp_config::config::ServerConfig;
use metamcp_config::scope::Scope;
use sha2::{Digest, Sha256};

use super::super::servers::{Definition, ScopeKey};
use super::Router;
use crate::fleet::{InstanceId, NodeName, Requirements};

/// One of them, as this node has it.
#[derive(Debug)]
pub(in crate::router) struct Placed {
    pub(super) server: ServerId,
    pub(super) instance: InstanceId,
    pub(super) definition: u128,
    pub(super) requirements: Arc<Requirements>,
    /// Whose it is, where each principal has one of its own.
    pub(super) principal: Option<u128>,
    config: Arc<ServerConfig>,
}

impl Router {
    /// What a server is in the fleet; `None` for one that stays on its node.
    pub(super) fn placed(&self, server: ServerId) -> Option<Arc<Placed>> {
        let known = self.fleet.placed.read().get(&server).cloned();
        let instance = self.instance_at(server).filter(|one| !one.is_gone)?;
        let principal = match instance.key {
            ScopeKey::Fleet => None,
            ScopeKey::Principal(principal) => Some(principal),
            ScopeKey::Machine | ScopeKey::Project(_) | ScopeKey::Session(_) => return None,
        };
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
            instance: instance_of(definition, principal),
            definition,
            requirements: Arc::new(requirements),
            principal,
            config,
        });
        self.fleet.placed.write().insert(server, Arc::clone(&placed));
        Some(placed)
    }

    pub(super) fn placed_by(&self, which: impl Fn(&Placed) -> bool) -> Option<Arc<Placed>> {
        let placed = self.fleet.placed.read();
        let found: Vec<Arc<Placed>> = placed.values().filter(|one| which(one)).cloned().collect();
        drop(placed);
        // As it is now: a reload may have put another in its place.
        found.into_iter().filter_map(|one| self.placed(one.server)).find(|one| which(one))
    }

    /// Every server that was or is that instance.
    pub(super) fn servers_of(&self, instance: InstanceId) -> Vec<ServerId> {
        let placed = self.fleet.placed.read();
        placed.values().filter(|one| one.instance == instance).map(|one| one.server).collect()
    }

    /// Whether the configuration has that definition.
    pub(super) fn defines(&self, definition: u128) -> bool {
        self.defined_as(definition).is_some()
    }

    /// The server of a definition, everybody's or a principal's own, made known if the configuration has it.
    pub(super) fn placed_as(
        &self,
        definition: u128,
        principal: Option<u128>,
    ) -> Option<Arc<Placed>> {
        let is_it =
            |placed: &Placed| placed.definition == definition && placed.principal == principal;
        if let Some(placed) = self.placed_by(is_it) {
            return Some(placed);
        }
        let wanted = self.defined_as(definition)?;
        let key = match (principal, wanted.config().share) {
            (None, Some(Scope::Fleet)) => ScopeKey::Fleet,
            (Some(principal), Some(Scope::Principal)) => ScopeKey::Principal(principal),
            _ => return None,
        };
        let surroundings = Arc::clone(&wanted.contexts().first()?.surroundings);
        let server = self.instance(&wanted, key, &surroundings);
        self.placed(server)
    }

    fn defined_as(&self, definition: u128) -> Option<Arc<Definition>> {
        self.definitions().into_iter().find(|one| {
            let config = one.config();
            matches!(config.share, Some(Scope::Fleet | Scope::Principal))
                && config.is_enabled()
                && digest_of(&config) == definition
        })
    }
}

fn instance_of(definition: u128, principal: Option<u128>) -> InstanceId {
    let definition = definition.to_be_bytes();
    InstanceId(match principal {
        None => digest(&[b"fleet instance", &definition]),
        Some(principal) => {
            digest(&[b"principal's instance", &definition, &principal.to_be_bytes()])
        }
    })
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
