//! What the last process of each instance wrote to stderr, also after it has gone.

use std::collections::HashMap;

use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_child::StderrTail;
use parking_lot::Mutex;

use super::Router;
use crate::upstream::Connection;

/// Tails that are kept before those of servers that are gone from the configuration are dropped.
const MAX_TAILS: usize = 256;

pub(super) type Table = Mutex<HashMap<ServerId, (ConnId, StderrTail)>>;

impl Router {
    /// What the last process of an instance wrote to stderr, if one was started, and which that was.
    pub fn stderr_of(&self, server: ServerId) -> Option<(ConnId, StderrTail)> {
        self.stderr_tails.lock().get(&server).cloned()
    }

    pub(super) fn keep_stderr(&self, connection: &Connection) {
        let mut tails = self.stderr_tails.lock();
        if tails.len() >= MAX_TAILS {
            tails.retain(|server, _| self.instance_at(*server).is_some_and(|one| !one.is_gone));
        }
        tails.insert(connection.server, (connection.id, connection.stderr()));
    }
}
