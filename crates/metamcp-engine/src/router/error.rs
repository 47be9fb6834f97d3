//! How a call fails, in facts: what happened, to which server and tool, and which names are similar.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_calls::dispatch::DispatchError;
use metamcp_calls::failure::Failure;
use metamcp_calls::pool::ServerId;
use metamcp_wire::scan::Defect;

use super::{Router, UpstreamRequest};
use crate::observe::Verdict;

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
    /// The dispatch ended it.
    Verdict {
        /// Its error.
        verdict: DispatchError,
        /// Names of the servers that occupy the pool's slots, where that is the cause.
        holders: Vec<Arc<str>>,
    },
    /// The server answered with a JSON-RPC error.
    Rpc(Bytes),
    /// The server's response is not a message.
    Malformed(Defect),
    /// The server's response is a message, but unusable; in words that follow its name.
    Unusable(String),
    /// The server's response exceeds the line limit.
    Oversize {
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: usize,
    },
}

impl CallError {
    /// How the call ended, for its record.
    pub(super) fn verdict(&self) -> Verdict {
        match &self.kind {
            CallErrorKind::Verdict { verdict, .. } => Verdict::Failed(verdict.word()),
            CallErrorKind::Rpc(_) => Verdict::RpcError,
            CallErrorKind::Malformed(_)
            | CallErrorKind::Unusable(_)
            | CallErrorKind::Oversize { .. } => Verdict::BadResponse,
        }
    }

    /// What went wrong with the server, where that ended the call.
    pub(super) fn cause(&self) -> Option<&Arc<Failure>> {
        match &self.kind {
            CallErrorKind::Verdict { verdict, .. } => verdict.failure(),
            _ => None,
        }
    }
}

impl Router {
    /// The names of the servers that occupy the pool's slots.
    pub fn holders(&self) -> Vec<Arc<str>> {
        let holders: Vec<ServerId> =
            self.lock().dispatch.pool().all().map(|(_, held)| held.server).collect();
        let servers = self.servers();
        let entry = |id| servers.at(id);
        holders.into_iter().filter_map(entry).map(|entry| Arc::clone(&entry.name)).collect()
    }

    pub(super) fn failed(&self, request: &UpstreamRequest, verdict: DispatchError) -> CallError {
        let servers = self.servers();
        let name = |id: ServerId| {
            servers.at(id).map_or_else(|| Arc::from("?"), |entry| Arc::clone(&entry.name))
        };
        let holders = match &verdict {
            DispatchError::PoolExhausted { holders, .. } => {
                holders.iter().map(|&id| name(id)).collect()
            }
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
