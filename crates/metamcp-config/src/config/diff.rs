//! What changed between two configurations, server by server.

use super::{Config, ServerConfig, ServerOrigin};

/// Server names by what happened to them, each list in file order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Diff {
    /// In the new configuration only.
    pub added: Vec<String>,
    /// In both, with a different meaning.
    pub changed: Vec<String>,
    /// In the old configuration only.
    pub removed: Vec<String>,
}

impl Diff {
    /// Whether no server differs.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// Compares by meaning: comments, the order of servers and the order of variables do not count.
pub fn diff(old: &Config, new: &Config) -> Diff {
    let mut diff = Diff::default();
    for server in &new.servers {
        match old.server(&server.name) {
            None => diff.added.push(server.name.clone()),
            Some(before) if canonical(before) != canonical(server) => {
                diff.changed.push(server.name.clone());
            }
            Some(_) => {}
        }
    }
    diff.removed = old
        .servers
        .iter()
        .filter(|server| new.server(&server.name).is_none())
        .map(|server| server.name.clone())
        .collect();
    diff
}

/// The same server with everything whose order has no meaning put in order.
fn canonical(server: &ServerConfig) -> ServerConfig {
    let mut server = server.clone();
    // The same server in another file is the same server.
    server.origin = ServerOrigin::default();
    server.transport.given_mut().sort_by(|a, b| a.0.cmp(&b.0));
    let by_text = |patterns: &mut Vec<super::Pattern>| {
        patterns.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        patterns.dedup();
    };
    if let Some(allow) = server.tools.allow.as_mut() {
        by_text(allow);
    }
    by_text(&mut server.tools.deny);
    server
}
