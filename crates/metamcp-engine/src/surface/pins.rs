//! Pins: tools of servers that are listed beside the gateway's own, and called by their own names.
//! Owns: what a session was listed, which stays as it is while the session lives.      Never: calls a server; a pinned tool takes the path of `mcp_call`.
//! In: overrides, the catalog, the usage history.  Out: definitions; calls in the form of `mcp_call`.
//! Tests: `metamcp/tests/surface/pins.rs`, `metamcp_surface::pins` for the choice.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use metamcp_config::config::Pin;
use metamcp_surface::direct;
use metamcp_surface::pins::{self, Candidate, Choice};
use metamcp_wire::write;

use super::{COMPACT, Finished, Step, View};
use crate::router::{Caller, PinnedTool};

impl View {
    /// The tools that this session lists beside the gateway's own.
    pub(super) async fn pins(&self) -> Arc<Vec<PinnedTool>> {
        if let Some(known) = self.seat.pins() {
            return known;
        }
        let listed = self.choose_pins().await.listed.into_iter();
        let pins = listed.map(|one| PinnedTool {
            definition: one.definition,
            name: one.name.into(),
            server: one.server.into(),
            tool: one.tool.into(),
        });
        self.seat.keep_pins(pins.collect())
    }

    /// What would be listed in a new session, and what there is no room for.
    pub async fn choose_pins(&self) -> Choice {
        let servers = self.servers();
        let wants = |config: &metamcp_config::config::ServerConfig| {
            config.is_enabled()
                && config.overrides.by_tool.iter().any(|(_, one)| one.pin != Pin::No)
        };
        if !servers.iter().any(|entry| wants(&entry.config)) {
            return Choice::default();
        }
        self.surface.catalog.loaded().await;
        let mut used: HashMap<String, f32> = HashMap::new();
        if let Some(history) = &self.surface.usage_history {
            history.refresh(self.principal).await;
            used = history.used(self.principal);
        }
        let snapshot = self.snapshot();
        let mut candidates = Vec::new();
        for entry in servers.iter().filter(|entry| wants(&entry.config)) {
            let Some(known) = snapshot.known(entry.definition) else { continue };
            let overrides = &entry.config.overrides;
            for tool in &known.tools.tools {
                let pin = overrides.for_tool(overrides.original(&tool.name)).map(|one| one.pin);
                let used = match pin.unwrap_or_default() {
                    Pin::No => continue,
                    Pin::Yes => None,
                    Pin::Auto => {
                        let id = format!("{}:{}", entry.name, tool.name);
                        Some(used.get(&id).copied().unwrap_or_default())
                    }
                };
                let name = direct::name(&entry.name, &tool.name);
                candidates.push(Candidate::new(name, &entry.name, tool, used));
            }
        }
        let mut choice = pins::choose(candidates, self.surface.options.pin_tokens);
        // Never under a name that means something else here.
        choice.listed.retain(|one| !is_ours(&one.name));
        choice
    }

    /// A call of a pinned tool by its own name, if there is one.
    pub(super) fn pinned_call(
        &self,
        name: &str,
        arguments: Option<&[u8]>,
        meta: Option<&[u8]>,
        caller: &Caller,
    ) -> Option<Step> {
        if let Some(pins) = self.seat.pins() {
            let pin = pins.iter().find(|pin| *pin.name == *name)?;
            return Some(self.call_pin(pin, arguments, meta, caller.clone()));
        }
        let servers = self.servers();
        let pins_any = |config: &metamcp_config::config::ServerConfig| {
            config.overrides.by_tool.iter().any(|(_, one)| one.pin != Pin::No)
        };
        if !servers.iter().any(|entry| pins_any(&entry.config)) {
            return None;
        }
        // A client may call what an earlier session listed.
        let (view, name, caller) = (self.clone(), name.to_owned(), caller.clone());
        let [arguments, meta] = [arguments, meta].map(|raw| raw.map(Bytes::copy_from_slice));
        Some(Step::Later(Box::pin(async move {
            let pins = view.pins().await;
            let Some(pin) = pins.iter().find(|pin| *pin.name == *name) else {
                return Finished::invalid(format!("metamcp has no tool {name:?}"));
            };
            match view.call_pin(pin, arguments.as_deref(), meta.as_deref(), caller) {
                Step::Now(finished) => finished,
                Step::Dispatched => Finished::Dispatched,
                Step::Later(later) => later.await,
                Step::Running(running) => running.future.await,
            }
        })))
    }

    fn call_pin(
        &self,
        pin: &PinnedTool,
        arguments: Option<&[u8]>,
        meta: Option<&[u8]>,
        caller: Caller,
    ) -> Step {
        let mut line = b"{\"server\":".to_vec();
        write::json_string(&mut line, &pin.server);
        line.extend_from_slice(b",\"tool\":");
        write::json_string(&mut line, &pin.tool);
        line.extend_from_slice(b",\"args\":");
        line.extend_from_slice(arguments.unwrap_or(b"{}"));
        line.push(b'}');
        let line = Bytes::from(line);
        self.mcp_call(Some(&line), meta, &line, caller)
    }
}

fn is_ours(name: &str) -> bool {
    COMPACT.contains(&name) || metamcp_surface::full_surface::NAMES.contains(&name)
}
