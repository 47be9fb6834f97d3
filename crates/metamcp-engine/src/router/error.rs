//! How a call fails: the error, its server and tool.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_calls::dispatch::DispatchError;
use metamcp_calls::failure::Failure;
use metamcp_calls::pool::ServerId;
use metamcp_tools::overrides::Mismatch;
use metamcp_wire::object;
use metamcp_wire::scan::Defect;

use super::{Router, Unapproved, UpstreamRequest};
use crate::observe::Verdict;

/// A call that ended without a result.
#[derive(Debug)]
pub struct CallError {
    pub server: Arc<str>,
    pub tool: Arc<str>,
    /// The method of the request.
    pub method: &'static str,
    pub kind: CallErrorKind,
}

#[derive(Debug)]
pub enum CallErrorKind {
    /// The dispatch ended it.
    Dispatch {
        error: DispatchError,
        /// Names of the servers that occupy the pool's slots, where that is the cause.
        holders: Vec<Arc<str>>,
    },
    /// The server answered with a JSON-RPC error.
    Rpc(Bytes),
    /// The server's response is not a message.
    Malformed(Defect),
    /// The server's response is a message, but unusable; a predicate that follows the server's name.
    Unusable(String),
    /// It could not be recorded in the audit log, and was not sent.
    Unrecorded(String),
    /// It needs a person's approval, has none, and was not sent.
    Unapproved(Unapproved),
    /// The arguments do not fit what the user says of the tool; it was not sent.
    Mismatch(Mismatch),
    /// The server's response exceeds the line limit.
    Oversize { bytes: u64, limit: usize },
}

impl CallError {
    /// How the call ended, for its record.
    pub(super) fn verdict(&self) -> Verdict {
        match &self.kind {
            CallErrorKind::Dispatch { error, .. } => Verdict::Failed(error.word()),
            CallErrorKind::Rpc(_) => Verdict::RpcError,
            CallErrorKind::Unrecorded(_) => Verdict::Refused("audit_unavailable"),
            CallErrorKind::Unapproved(Unapproved::Declined) => Verdict::Refused("declined"),
            CallErrorKind::Unapproved(Unapproved::Open { .. }) => {
                Verdict::Refused("approval_required")
            }
            CallErrorKind::Mismatch(_) => Verdict::Refused("validation_input"),
            CallErrorKind::Malformed(_)
            | CallErrorKind::Unusable(_)
            | CallErrorKind::Oversize { .. } => Verdict::BadResponse,
        }
    }

    /// The code of the JSON-RPC error that the server answered with.
    pub(super) fn rpc_code(&self) -> Option<i64> {
        let CallErrorKind::Rpc(error) = &self.kind else { return None };
        let [code] = object::pick(error, ["code"]).ok()?;
        std::str::from_utf8(code?).ok()?.parse().ok()
    }

    /// What went wrong with the server, where that ended the call.
    pub(super) fn cause(&self) -> Option<&Arc<Failure>> {
        match &self.kind {
            CallErrorKind::Dispatch { error, .. } => error.failure(),
            _ => None,
        }
    }
}

impl Router {
    /// The names of the servers that occupy the pool's slots.
    pub fn holders(&self) -> Vec<Arc<str>> {
        let holders: Vec<ServerId> =
            self.lock().dispatch.pool().all().map(|(_, slot)| slot.server).collect();
        holders.into_iter().map(|id| self.name_of(id)).collect()
    }

    pub(super) fn failed(&self, request: &UpstreamRequest, error: DispatchError) -> CallError {
        let holders = match &error {
            DispatchError::PoolExhausted { holders, .. } => {
                holders.iter().map(|&id| self.name_of(id)).collect()
            }
            _ => Vec::new(),
        };
        CallError {
            server: self.name_of(request.server),
            tool: Arc::clone(&request.tool),
            method: request.method(),
            kind: CallErrorKind::Dispatch { error, holders },
        }
    }
}
