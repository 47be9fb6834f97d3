//! Direct mode: what servers have is shown as it is, and what a client asks of it is passed on as it was written.
//! Owns: which server a name or an address belongs to, pages over several servers.      Never: changes a result, answers for a server.
//! In: requests of clients, raw.  Out: `Step`, as for every other surface.
//! Tests: `metamcp/tests/hazards/direct.rs`, the conformance suite in `metamcp/tests/real`.

mod able;
mod lists;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;
use metamcp_core::config::{Retry, ServerState};
use metamcp_core::direct::{self, Kind};
use metamcp_core::ledger::ServerId;
use metamcp_core::replay::{Rule, is_harmless};
use metamcp_core::settings::Vocabulary;
use metamcp_core::tool::Tool;
use metamcp_wire::modern::headers::{self, Mirror};
use metamcp_wire::{object, write};
use serde_json::Value;

use super::call::usable;
use super::errand::{self, Client};
use super::reply::{Code, ErrorObject};
use super::{Finished, Step, Surface, View};
use crate::router::{CallErrorKind, Caller, Entry, Outcome, Request, Verbatim};

/// What is passed on to servers beside calls of tools.
const METHODS: [&str; 8] = [
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
];
/// Addresses and names remembered with their servers. Past it all are forgotten, and learnt again as they are listed.
const MAX_OWNERS: usize = 20_000;

/// Which server an address or a name was seen at.
#[derive(Default)]
pub(super) struct Owners {
    uris: HashMap<String, ServerId>,
    prompts: HashMap<String, (ServerId, Arc<str>)>,
}

impl Owners {
    fn has_uri(&mut self, uri: String, server: ServerId) {
        if self.uris.len() >= MAX_OWNERS {
            self.uris.clear();
        }
        // The first of several servers keeps it.
        self.uris.entry(uri).or_insert(server);
    }

    fn has_prompt(&mut self, name: String, server: ServerId, prompt: String) {
        if self.prompts.len() >= MAX_OWNERS {
            self.prompts.clear();
        }
        self.prompts.entry(name).or_insert_with(|| (server, prompt.into()));
    }
}

impl View {
    /// Whether servers are shown as they are.
    pub fn is_direct(&self) -> bool {
        self.vocabulary == Vocabulary::Direct
    }

    /// The method, if it is one that is passed on to servers here.
    pub fn passes_on(&self, method: &str) -> Option<&'static str> {
        METHODS.into_iter().find(|known| *known == method).filter(|_| self.is_direct())
    }

    /// A request that is passed on.
    pub fn pass_on(
        &self,
        method: &'static str,
        params: Option<&[u8]>,
        caller: &Arc<dyn Caller>,
        tag: &Bytes,
    ) -> Step {
        if let Some(only) = self.only() {
            self.hand(&only, method, about(method, params), params, caller, tag);
            return Step::Handed;
        }
        if self.enabled().is_empty() {
            return Step::Now(nothing(method));
        }
        self.among(method, params, caller, tag)
    }

    /// The servers that may have a resource.
    pub fn owners_of(&self, uri: &str) -> Vec<ServerId> {
        let owner = self.surface.owners().uris.get(uri).copied();
        match owner.and_then(|owner| self.at(owner)) {
            Some(owner) => vec![owner.id],
            None => self.enabled().iter().map(|entry| entry.id).collect(),
        }
    }

    /// Whether a subscription has to be passed on to learn whether it can be had: there is one server, and it takes
    /// subscriptions one by one.
    pub fn subscribes_at_server(&self) -> bool {
        self.only().is_some_and(|only| {
            let peer = self.surface.router.peer(only.id);
            !peer.is_some_and(|peer| peer.era.is_stateless())
        })
    }

    /// The parameters of a tool call that have to be repeated in headers, as far as the tool is known.
    pub fn mirrors(&self, params: Option<&[u8]>) -> Vec<Mirror> {
        let name = params.and_then(|params| object::pick(params, ["name"]).ok()?[0]);
        let Some(name) = name.and_then(object::text).filter(|_| self.is_direct()) else {
            return Vec::new();
        };
        let Some((entry, tool)) = self.shown_as(&name) else { return Vec::new() };
        let snapshot = self.snapshot();
        let tool = snapshot.known(entry.id).and_then(|known| known.tool(&tool));
        let Some(schema) = tool.and_then(|tool| tool.input_schema()) else { return Vec::new() };
        // Few tools have any, and most requests must not pay for it.
        if memmem::find(schema.as_bytes(), b"x-mcp-header").is_none() {
            return Vec::new();
        }
        let schema: Value = serde_json::from_str(schema).unwrap_or_default();
        // A tool whose annotations are wrong is one that clients leave out.
        headers::mirrors(&schema).unwrap_or_default()
    }

    /// A call of a tool by the name it is shown under.
    pub(super) fn direct_call(
        &self,
        params: Option<&[u8]>,
        caller: &Arc<dyn Caller>,
        tag: &Bytes,
    ) -> Step {
        let name = params.and_then(|params| object::pick(params, ["name"]).ok()?[0]);
        let Some(name) = name.and_then(object::text) else {
            let why = "tools/call needs params with a name, which is a string";
            return Step::Now(Finished::invalid(why));
        };
        if let Some(refused) = self.withheld(&name) {
            return Step::Now(Finished::error(&refused));
        }
        if let Some((entry, tool)) = self.shown_as(&name) {
            return self.call_shown(&entry, &tool, &name, params, caller, tag);
        }
        // It may be of a server that has not listed its tools yet.
        let (view, name) = (self.clone(), name.into_owned());
        let (params, client) = (params.map(Bytes::copy_from_slice), Client::new(caller, tag));
        Step::Later(Box::pin(async move {
            view.surface.catalog.loaded().await;
            view.wake_enabled().await;
            let Some((entry, tool)) = view.shown_as(&name) else {
                return Finished::invalid(format!("unknown tool: {name:?}"));
            };
            let params = params.as_deref();
            match view.call_shown(&entry, &tool, &name, params, &client.caller, &client.tag) {
                Step::Now(finished) => finished,
                _ => Finished::Handed,
            }
        }))
    }
}

impl Surface {
    pub(super) fn owners(&self) -> std::sync::MutexGuard<'_, Owners> {
        self.owners.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl View {
    /// A server of this view that can be used, by its place.
    fn at(&self, server: ServerId) -> Option<Entry> {
        self.enabled().into_iter().find(|entry| entry.id == server)
    }

    /// The servers that can be used, in the order of the file.
    pub(super) fn enabled(&self) -> Vec<Entry> {
        let servers = self.servers();
        servers.iter().filter(|entry| entry.config.is_enabled()).cloned().collect()
    }

    /// The one server that can be used, if there is just one.
    pub(super) fn only(&self) -> Option<Entry> {
        let servers = self.servers();
        let mut enabled = servers.iter().filter(|entry| entry.config.is_enabled());
        let first = enabled.next()?;
        enabled.next().is_none().then(|| first.clone())
    }

    /// Why a tool is not called whose server was kept from use after its name was shown.
    fn withheld(&self, name: &str) -> Option<Box<ErrorObject>> {
        let servers = self.servers();
        let is_withheld =
            |entry: &&Entry| matches!(entry.config.state, ServerState::Withheld { .. });
        let withheld = |server: &str| servers.named(server).filter(is_withheld);
        let split = direct::split(name, |server| withheld(server).is_some());
        // One that was alone was shown with the names it has itself.
        let alone = || servers.iter().next().filter(|_| servers.iter().count() == 1);
        let entry = split.and_then(|(server, _)| withheld(server));
        usable(entry.or_else(|| alone().filter(is_withheld))?).err()
    }

    /// The tool shown under a name, and its server. With one server every name is its own.
    fn shown_as(&self, name: &str) -> Option<(Entry, Arc<str>)> {
        if let Some(only) = self.only() {
            return Some((only, name.into()));
        }
        let (servers, snapshot) = (self.servers(), self.snapshot());
        let enabled = |entry: &&Entry| entry.config.is_enabled();
        let named = |server: &str| servers.named(server).filter(enabled);
        if let Some((server, tool)) = direct::split(name, |server| named(server).is_some()) {
            let entry = named(server)?;
            let known = snapshot.known(entry.id).and_then(|known| known.tool(tool));
            if let Some(tool) = known {
                return Some((entry.clone(), (*tool.name).into()));
            }
        }
        // A name with a digest is found by making all of them.
        servers.iter().filter(enabled).find_map(|entry| {
            let known = snapshot.known(entry.id)?;
            let is_meant = |tool: &&Tool| direct::name(&entry.name, &tool.name) == name;
            let tool = known.tools.tools.iter().find(is_meant)?;
            Some((entry.clone(), (*tool.name).into()))
        })
    }

    fn call_shown(
        &self,
        entry: &Entry,
        tool: &Arc<str>,
        shown: &str,
        params: Option<&[u8]>,
        caller: &Arc<dyn Caller>,
        tag: &Bytes,
    ) -> Step {
        if !entry.config.tools.permits(tool) {
            let denied = format!(
                "the configuration of the server {:?} does not permit the tool {tool:?}",
                entry.name
            );
            let hint =
                "The call was not sent. Only the owner of the configuration can change that.";
            let denied = ErrorObject::new(Code::Denied, denied).hint(hint);
            return Step::Now(Finished::error(&denied.at(&entry.name, Some(tool))));
        }
        if let Err(refused) = self.permits(entry, tool) {
            return Step::Now(Finished::error(&refused.at(&entry.name, Some(tool))));
        }
        caller.calling(tag, &entry.name, tool);
        if shown == &**tool {
            self.hand(entry, "tools/call", Arc::clone(tool), params, caller, tag);
        } else {
            let params = renamed(params.unwrap_or(b"{}"), "name", tool);
            self.hand(entry, "tools/call", Arc::clone(tool), Some(&params), caller, tag);
        }
        Step::Handed
    }

    /// Gives a request to the router, as it is.
    fn hand(
        &self,
        entry: &Entry,
        method: &'static str,
        about: Arc<str>,
        params: Option<&[u8]>,
        caller: &Arc<dyn Caller>,
        tag: &Bytes,
    ) {
        let request = self.request(entry, method, about, params, caller.input());
        self.surface.router.call(request, Arc::clone(caller), tag.clone());
    }

    /// A request as it goes to a server.
    pub(super) fn request(
        &self,
        entry: &Entry,
        method: &'static str,
        about: Arc<str>,
        params: Option<&[u8]>,
        input: Option<Arc<crate::router::Input>>,
    ) -> Request {
        let meta = params.and_then(|params| object::pick(params, ["_meta"]).ok()?[0]);
        let meta = meta.filter(|meta| meta.starts_with(b"{"));
        let progress = meta.and_then(|meta| object::pick(meta, ["progressToken"]).ok()?[0]);
        let (read_only, idempotent) = match method {
            "tools/call" => {
                let snapshot = self.snapshot();
                let tool = snapshot.known(entry.id).and_then(|known| known.tool(&about));
                let hints = tool.map(|tool| tool.hints).unwrap_or_default();
                (hints.read_only.unwrap_or(false), hints.idempotent.unwrap_or(false))
            }
            _ => (true, true),
        };
        let rule = match (self.surface.options.replay, entry.config.retry.for_tool(&about)) {
            (Rule::Never, _) | (_, Retry::Never) => Rule::Never,
            (_, Retry::Always) => Rule::Always,
            (_, Retry::Annotated) => Rule::Annotated,
        };
        Request {
            server: entry.id,
            tool: about,
            arguments: None,
            meta: meta.map(Bytes::copy_from_slice),
            progress: progress.map(Bytes::copy_from_slice),
            harmless: is_harmless(rule, read_only, idempotent),
            input,
            verbatim: Some(Verbatim::new(method, params)),
            dress: None,
        }
    }

    /// A request that one of several servers has to answer.
    fn among(
        &self,
        method: &'static str,
        params: Option<&[u8]>,
        caller: &Arc<dyn Caller>,
        tag: &Bytes,
    ) -> Step {
        let client = Client::new(caller, tag);
        let view = self.clone();
        if let Some(kind) = Kind::listed_by(method) {
            let cursor = params.and_then(|params| object::pick(params, ["cursor"]).ok()?[0]);
            let cursor = cursor.and_then(object::text).map(std::borrow::Cow::into_owned);
            return Step::Later(Box::pin(async move {
                view.page_among(kind, cursor.as_deref(), &client).await
            }));
        }
        let params = params.unwrap_or(b"{}");
        let (place, raw) = match method {
            "prompts/get" => ("name", params),
            "completion/complete" => {
                let reference = object::pick(params, ["ref"]).ok().and_then(|[raw]| raw);
                let Some(reference) = reference else {
                    return Step::Now(Finished::invalid("completion/complete needs `ref`"));
                };
                let kind = object::pick(reference, ["type"]).ok().and_then(|[kind]| kind);
                (if kind == Some(b"\"ref/prompt\"") { "name" } else { "uri" }, reference)
            }
            _ => ("uri", params),
        };
        let meant = object::pick(raw, [place]).ok().and_then(|[raw]| object::text(raw?));
        let Some(meant) = meant else {
            return Step::Now(Finished::invalid(format!("{method} needs `{place}`, a string")));
        };
        if place == "name" {
            let Some((entry, prompt)) = self.prompt_meant(&meant) else {
                return Step::Now(Finished::invalid(format!("unknown prompt: {meant:?}")));
            };
            let mut params = params.to_vec();
            if method == "prompts/get" {
                params = renamed(&params, "name", &prompt);
            } else {
                let reference = renamed(raw, "name", &prompt);
                params = object::replace_member(&params, "ref", &reference);
            }
            self.hand(&entry, method, prompt, Some(&params), caller, tag);
            return Step::Handed;
        }
        let owner = self.surface.owners().uris.get(&*meant).copied();
        if let Some(entry) = owner.and_then(|owner| self.at(owner)) {
            self.hand(&entry, method, (*meant).into(), Some(params), caller, tag);
            return Step::Handed;
        }
        let (params, uri) = (Bytes::copy_from_slice(params), meant.into_owned());
        Step::Later(Box::pin(async move { view.first_of(method, &params, &uri, &client).await }))
    }

    /// Asks one server after the other, since nothing says whose resource it is.
    async fn first_of(
        &self,
        method: &'static str,
        params: &[u8],
        uri: &str,
        client: &Client,
    ) -> Finished {
        let needed = if method == "completion/complete" { "completions" } else { "resources" };
        let mut refused = None;
        for entry in self.enabled() {
            let peer = self.introduced(&entry, able::INTRODUCTION).await;
            if !peer.is_some_and(|peer| peer.can(needed)) {
                continue;
            }
            let request = self.request(&entry, method, uri.into(), Some(params), None);
            match errand::run(&self.surface, request, client).await {
                Outcome::Result(result) => {
                    if method == "resources/read" {
                        self.surface.owners().has_uri(uri.to_owned(), entry.id);
                    }
                    return Finished::Result(result.to_vec());
                }
                Outcome::Failed(error) => {
                    if let CallErrorKind::Rpc(raw) = &error.kind {
                        refused.get_or_insert_with(|| raw.clone());
                    }
                }
                Outcome::Cancelled => return Finished::Handed,
            }
        }
        let [code, message] = refused
            .as_deref()
            .and_then(|raw| object::pick(raw, ["code", "message"]).ok())
            .unwrap_or([None, None]);
        let code = code.and_then(|raw| std::str::from_utf8(raw).ok()?.parse().ok());
        let message = message.and_then(object::text).map(std::borrow::Cow::into_owned);
        Finished::Protocol {
            code: code.unwrap_or(-32602),
            message: message.unwrap_or_else(|| format!("no server has the resource {uri:?}")),
        }
    }

    /// The prompt shown under a name among several servers, and its server.
    fn prompt_meant(&self, name: &str) -> Option<(Entry, Arc<str>)> {
        let seen = self.surface.owners().prompts.get(name).cloned();
        if let Some((server, prompt)) = seen {
            return Some((self.at(server)?, prompt));
        }
        let servers = self.servers();
        let enabled = |entry: &&Entry| entry.config.is_enabled();
        let named = |server: &str| servers.named(server).filter(enabled);
        let (server, prompt) = direct::split(name, |server| named(server).is_some())?;
        Some((named(server)?.clone(), prompt.into()))
    }
}

/// What a request is about, for words about it.
fn about(method: &'static str, params: Option<&[u8]>) -> Arc<str> {
    let key = match method {
        "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        _ => return method.into(),
    };
    let named = params.and_then(|params| object::pick(params, [key]).ok()?[0]);
    named.and_then(object::text).map_or_else(|| method.into(), |named| (*named).into())
}

/// `raw` with another name in it.
fn renamed(raw: &[u8], key: &str, name: &str) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(name.len() + 2);
    write::json_string(&mut quoted, name);
    object::replace_member(raw, key, &quoted)
}

/// The answer where no server is configured.
fn nothing(method: &str) -> Finished {
    match Kind::listed_by(method) {
        Some(kind) => Finished::Result(format!("{{\"{}\":[]}}", kind.member()).into_bytes()),
        None => Finished::invalid("no server is configured"),
    }
}
