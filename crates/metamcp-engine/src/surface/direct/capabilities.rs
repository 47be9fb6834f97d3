//! What the gateway can do for a client where servers are shown as they are: what they said, and no more.

use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::notify::List;
use metamcp_wire::handshake::Peer;
use metamcp_wire::modern::listen::Filter;
use serde_json::{Map, Value, json};

use crate::router::Entry;
use crate::surface::View;

/// How long an answer waits for servers to start that have to be asked first: a list without them is of little use, but a
/// client waits for a minute at most.
pub(super) const INTRODUCTION: Duration = Duration::from_secs(20);

impl View {
    /// What the gateway can do for a client of this view.
    pub async fn capabilities(&self) -> Value {
        if !self.is_direct() {
            return json!({ "tools": { "listChanged": false }, "logging": {} });
        }
        if let Some(only) = self.only() {
            self.introduced(&only, INTRODUCTION).await;
        }
        self.known_capabilities()
    }

    /// The same, as far as it is known at once: of one server what it said, of several what any of them may have.
    fn known_capabilities(&self) -> Value {
        let router = &self.surface.router;
        let tells = router.change_notifier.tells();
        let peer = self.only().and_then(|only| router.peer(only.id));
        let peer = peer.filter(|peer| peer.capabilities.is_object());
        let is_beside = |name: &str| matches!(name, "resources" | "prompts" | "completions");
        let has_tools_only = !self.enabled().is_empty() && self.offering().is_empty();
        let can = |name: &str| {
            !(has_tools_only && is_beside(name)) && peer.as_ref().is_none_or(|peer| peer.can(name))
        };
        let also = |name: &str, part: &str| {
            peer.as_ref().is_none_or(|peer: &Arc<Peer>| peer.can_also(name, part))
        };
        let mut able = Map::new();
        if can("tools") {
            // Of several it is the gateway's own promise: one that comes or goes is a change. One alone is shown as it is.
            let listed = tells && also("tools", "listChanged");
            able.insert("tools".into(), json!({ "listChanged": listed }));
        }
        if can("resources") {
            let listed = tells && also("resources", "listChanged");
            let resources =
                json!({ "subscribe": also("resources", "subscribe"), "listChanged": listed });
            able.insert("resources".into(), resources);
        }
        if can("prompts") {
            let listed = tells && also("prompts", "listChanged");
            able.insert("prompts".into(), json!({ "listChanged": listed }));
        }
        for name in ["completions", "logging"] {
            if can(name) {
                able.insert(name.into(), json!({}));
            }
        }
        Value::Object(able)
    }

    /// What a client may listen to.
    pub fn offered(&self) -> Filter {
        if !self.is_direct() {
            return Filter::default();
        }
        let able = self.known_capabilities();
        let has = |list: List| able[list.capability()]["listChanged"] == true;
        let subscribe = able["resources"]["subscribe"] == true;
        Filter {
            tools: has(List::Tools),
            prompts: has(List::Prompts),
            resources: has(List::Resources),
            uris: if subscribe { vec!["*".to_owned()] } else { Vec::new() },
        }
    }
}

impl View {
    /// Waits until a server has said what it can do, or has failed to, or the time is over.
    pub(in crate::surface) async fn introduced(
        &self,
        entry: &Entry,
        patience: Duration,
    ) -> Option<Arc<Peer>> {
        let router = &self.surface.router;
        // Who was waited for in vain before is not waited for again: when it comes, clients are told.
        let patience = if router.is_missed(entry.id) { Duration::ZERO } else { patience };
        let mut seen = router.state_changes.now();
        let known = async {
            while router.peer(entry.id).is_none() {
                router.state_changes.moved_on(&mut seen).await;
            }
        };
        if router.peer(entry.id).is_none() {
            // Why it is not there is said by what is asked of it next.
            tokio::select! {
                () = known => {}
                _ = self.listed(entry) => {}
                () = tokio::time::sleep(patience) => {}
            }
        }
        router.peer(entry.id)
    }
}
