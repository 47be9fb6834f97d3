//! How a call fails, in facts: what happened, to which server and tool, and what its neighbours are called.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_core::dispatch::Verdict;
use metamcp_core::ledger::ServerId;
use metamcp_wire::scan::Defect;

use super::{Request, Router};

/// A call that has no result.
#[derive(Debug)]
pub struct CallError {
    /// Its server.
    pub server: Arc<str>,
    /// Its tool.
    pub tool: Arc<str>,
    /// The method of the request.
    pub method: &'static str,
    /// What happened.
    pub kind: CallErrorKind,
}

/// What happened.
#[derive(Debug)]
pub enum CallErrorKind {
    /// The gateway's own verdict.
    Verdict {
        /// The verdict.
        verdict: Verdict,
        /// Names of the servers that hold the pool's slots, where that is the point.
        holders: Vec<Arc<str>>,
    },
    /// The server answered with a JSON-RPC error.
    Rpc(Bytes),
    /// The server answered with something that is not a message.
    Malformed(Defect),
    /// The server's answer is a message, but not one that can be used; in words that follow its name.
    Unusable(String),
    /// The server's answer is longer than a line may be.
    Oversize {
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
}

impl Router {
    /// The names of the servers that hold the pool's slots.
    pub fn holders(&self) -> Vec<Arc<str>> {
        let holders: Vec<ServerId> =
            self.lock().dispatch.ledger().all().map(|(_, held)| held.server).collect();
        let servers = self.servers();
        let entry = |id| servers.at(id);
        holders.into_iter().filter_map(entry).map(|entry| Arc::clone(&entry.name)).collect()
    }

    pub(super) fn failed(&self, request: &Request, verdict: Verdict) -> CallError {
        let servers = self.servers();
        let name = |id: ServerId| {
            servers.at(id).map_or_else(|| Arc::from("?"), |entry| Arc::clone(&entry.name))
        };
        let holders = match &verdict {
            Verdict::PoolExhausted { holders, .. } => holders.iter().map(|&id| name(id)).collect(),
            _ => Vec::new(),
        };
        CallError {
            server: name(request.server),
            tool: Arc::clone(&request.tool),
            method: request.method(),
            kind: CallErrorKind::Verdict { verdict, holders },
        }
    }
}
