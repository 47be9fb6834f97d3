//! The capabilities declared in direct mode: those of the servers, and no more.

use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::notify::List;
use metamcp_surface::apps;
use metamcp_wire::handshake::Peer;
use metamcp_wire::modern::listen::Filter;
use metamcp_wire::server_task::TASKS;
use serde_json::{Map, Value, json};

use crate::router::Entry;
use crate::surface::View;

/// How long a response waits for servers to start: a list without them is of little use, but a client waits for a
/// minute at most.
pub(super) const INTRODUCTION: Duration = Duration::from_secs(20);

impl View {
    pub async fn capabilities(&self, shows_apps: bool) -> Value {
        if !self.is_direct() {
            let mut own = json!({ "tools": { "listChanged": false }, "logging": {} });
            if shows_apps {
                own["resources"] = json!({});
                own["extensions"][apps::EXTENSION] = json!({});
            }
            return own;
        }
        if let Some(only) = self.only() {
            self.introduced(&only, INTRODUCTION).await;
        }
        self.known_capabilities()
    }

    /// The same without waiting: of one server its own, of several what any of them may have.
    fn known_capabilities(&self) -> Value {
        let router = &self.surface.router;
        let tells = self.context().change_notifier.tells();
        let peer = self.only().and_then(|only| router.peer(only.id));
        let peer = peer.filter(|peer| peer.capabilities.is_object());
        let is_optional = |name: &str| matches!(name, "resources" | "prompts" | "completions");
        let has_tools_only = !self.enabled().is_empty() && self.offering().is_empty();
        let can = |name: &str| {
            !(has_tools_only && is_optional(name))
                && peer.as_ref().is_none_or(|peer| peer.can(name))
        };
        let also = |name: &str, part: &str| {
            peer.as_ref().is_none_or(|peer: &Arc<Peer>| peer.can_also(name, part))
        };
        let mut capabilities = Map::new();
        if can("tools") {
            // Of several it is the gateway's own: a server that is added or removed is a change.
            let listed = tells && also("tools", "listChanged");
            capabilities.insert("tools".into(), json!({ "listChanged": listed }));
        }
        if can("resources") {
            let listed = tells && also("resources", "listChanged");
            let resources =
                json!({ "subscribe": also("resources", "subscribe"), "listChanged": listed });
            capabilities.insert("resources".into(), resources);
        }
        if can("prompts") {
            let listed = tells && also("prompts", "listChanged");
            capabilities.insert("prompts".into(), json!({ "listChanged": listed }));
        }
        for name in ["completions", "logging"] {
            if can(name) {
                capabilities.insert(name.into(), json!({}));
            }
        }
        // Whose tasks they are is known once a server has said so.
        let of_tasks = |known: &Peer| known.capabilities["extensions"][TASKS].is_object();
        let known = self.enabled().into_iter().filter_map(|entry| router.peer(entry.id));
        if known.into_iter().any(|known| of_tasks(&known)) {
            capabilities.insert("extensions".into(), json!({ TASKS: {} }));
        }
        // Those of 2025-11-25 have a list, which is one server's.
        if let Some(tasks) = peer.as_ref().map(|peer| &peer.capabilities["tasks"])
            && tasks.is_object()
        {
            capabilities.insert("tasks".into(), tasks.clone());
        }
        Value::Object(capabilities)
    }

    /// The notifications a client may subscribe to.
    pub fn offered(&self) -> Filter {
        if !self.is_direct() {
            return Filter::default();
        }
        let capabilities = self.known_capabilities();
        let has = |list: List| capabilities[list.capability()]["listChanged"] == true;
        let subscribe = capabilities["resources"]["subscribe"] == true;
        Filter {
            tools: has(List::Tools),
            prompts: has(List::Prompts),
            resources: has(List::Resources),
            uris: if subscribe { vec!["*".to_owned()] } else { Vec::new() },
        }
    }
}

impl View {
    /// Waits until a server has declared its capabilities, has failed to, or the timeout passed.
    pub(in crate::surface) async fn introduced(
        &self,
        entry: &Entry,
        timeout: Duration,
    ) -> Option<Arc<Peer>> {
        let router = &self.surface.router;
        // A server that was not ready in time before is not waited for again: clients are notified when it connects.
        let timeout = if router.is_missed(entry.id) { Duration::ZERO } else { timeout };
        let mut seen = router.state_changes.now();
        let known = async {
            while router.peer(entry.id).is_none() {
                router.state_changes.moved_on(&mut seen).await;
            }
        };
        if router.peer(entry.id).is_none() {
            // The next request to it reports why it is unavailable.
            tokio::select! {
                () = known => {}
                _ = self.listed(entry) => {}
                () = tokio::time::sleep(timeout) => {}
            }
        }
        router.peer(entry.id)
    }
}
