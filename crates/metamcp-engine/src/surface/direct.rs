//! Direct mode: the servers' own tools, resources and prompts; requests for them are forwarded unchanged.
//! Owns: which server a name or a URI belongs to, pages over several servers.      Never: changes a result, answers for a server.
//! In: requests of clients, raw.  Out: `Step`, as for every other surface.
//! Tests: `metamcp/tests/hazards/direct.rs`, the conformance suite in `metamcp/tests/real`.

mod capabilities;
mod lists;
mod owners;
mod tasks;

use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;
use metamcp_calls::pool::ServerId;
use metamcp_calls::replay::{Rule, is_harmless};
use metamcp_config::config::{Retry, ServerState};
use metamcp_config::settings::ToolSurface;
use metamcp_surface::direct::{self, Kind};
use metamcp_tools::tool::{Hints, Tool};
use metamcp_wire::modern::headers::{self, Mirror};
use metamcp_wire::scan::MAX_RESULT_DEPTH;
use metamcp_wire::{object, write};
use serde_json::Value;

use super::call::{blocked, usable};
use super::reply::{Code, ErrorObject};
use super::sub_request::SubRequests;
use super::{Finished, Step, View};
use crate::router::{
    CallErrorKind, CallOutcome, Caller, Entry, ResultMapper, UpstreamRequest, Verbatim,
};
pub(super) use owners::Owners;

/// The methods that are forwarded to servers besides `tools/call`.
const METHODS: [&str; 13] = [
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
    "tasks/result",
    "tasks/list",
];
/// The members of their params. A member that a lenient parser would take for one of them is refused, since the server
/// might have such a parser.
const MEMBERS: [&str; 11] = [
    "name",
    "arguments",
    "uri",
    "ref",
    "argument",
    "cursor",
    "_meta",
    "requestState",
    "inputResponses",
    "task",
    "taskId",
];

impl View {
    pub fn is_direct(&self) -> bool {
        self.tool_surface == ToolSurface::Direct
    }

    /// The method, if it is forwarded to servers in this view.
    pub fn passes_on(&self, method: &str) -> Option<&'static str> {
        METHODS.into_iter().find(|known| *known == method).filter(|_| self.is_direct())
    }

    /// Forwards a request of a client.
    pub fn pass_on(&self, method: &'static str, params: Option<&[u8]>, caller: &Caller) -> Step {
        if let Some(refused) = self.too_late().or_else(|| ambiguous(method, params)) {
            return Step::Now(refused);
        }
        if self.offering().is_empty() {
            return Step::Now(self.no_server(method));
        }
        if let Some(only) = self.only() {
            return self.forward(&only, method, about(method, params), params, caller);
        }
        match method {
            "tasks/list" => Step::Now(Finished::invalid(
                "tasks/list is answered where there is one server; ask for each task by its id",
            )),
            of_task if of_task.starts_with("tasks/") => {
                self.forward_about_task(method, params, caller)
            }
            _ => self.forward_to_owner(method, params, caller),
        }
    }

    /// The response to requests during shutdown.
    fn too_late(&self) -> Option<Finished> {
        let message = "metamcp is shutting down; nothing was run".to_owned();
        self.seat.is_draining().then_some(Finished::Protocol { code: -32000, message })
    }

    /// Whether any server of this view may have resources or prompts.
    pub fn offers_any(&self) -> bool {
        !self.offering().is_empty()
    }

    /// The servers that may have a resource.
    pub fn owners_of(&self, uri: &str) -> Vec<ServerId> {
        match self.owner_of(uri) {
            Some(owner) => vec![owner.id],
            None => self.offering().iter().map(|entry| entry.id).collect(),
        }
    }

    /// Whether the server itself has to answer a subscription: there is one server, and it has `resources/subscribe`.
    pub fn subscribes_at_server(&self) -> bool {
        self.only().filter(|only| self.has_all_of(only)).is_some_and(|only| {
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
        let tool = snapshot.known(entry.definition).and_then(|known| known.any_tool(&tool));
        let Some(schema) = tool.and_then(|tool| tool.input_schema()) else { return Vec::new() };
        // Few tools have any, and most requests must not pay for it.
        if memmem::find(schema.as_bytes(), b"x-mcp-header").is_none() {
            return Vec::new();
        }
        let schema: Value = serde_json::from_str(schema).unwrap_or_default();
        // Clients skip a tool whose annotations are wrong.
        headers::mirrors(&schema).unwrap_or_default()
    }

    /// A call of a tool by the name it is shown under.
    pub(super) fn direct_call(&self, params: Option<&[u8]>, caller: &Caller) -> Step {
        if let Some(refused) = self.too_late().or_else(|| ambiguous("tools/call", params)) {
            return Step::Now(refused);
        }
        let name = params.and_then(|params| object::pick(params, ["name"]).ok()?[0]);
        let Some(name) = name.and_then(object::text) else {
            let why = "tools/call needs params with a name, which is a string";
            return Step::Now(Finished::invalid(why));
        };
        // Such a name is never listed, and a server might read it as another one.
        if direct::is_unseen(&name) {
            return Step::Now(unknown(&name));
        }
        if let Some(refused) = self.withheld(&name) {
            return Step::Now(Finished::error(&refused));
        }
        if let Some((entry, tool)) = self.shown_as(&name) {
            return self.call_shown(&entry, &tool, &name, params, caller);
        }
        if let Some(only) = self.only().filter(|only| self.is_for(only, &name)) {
            return self.call_shown(&only, &(*name).into(), &name, params, caller);
        }
        // It may belong to a server that has not listed its tools yet.
        let (view, name) = (self.clone(), name.into_owned());
        let params = params.map(Bytes::copy_from_slice);
        let mut caller = caller.clone();
        caller.arrived = Some(self.surface.router.clock.now());
        Step::Later(Box::pin(async move {
            view.surface.catalog.loaded().await;
            let only = view.only();
            match &only {
                Some(only) => {
                    if let Err(refused) = view.listed(only).await {
                        return Finished::error(&refused.at(&only.name, None));
                    }
                }
                None => view.wake_enabled().await,
            }
            let meant = view.shown_as(&name).or_else(|| {
                let only = only.filter(|only| view.is_for(only, &name))?;
                Some((only, name.as_str().into()))
            });
            let params = params.as_deref();
            let Some((entry, tool)) = meant else {
                // A page calls the tools of its own server by their own names.
                let of_app = view.app_call(&name, params.unwrap_or(b"{}"), &caller);
                return match of_app {
                    Some(Step::Now(finished)) => finished,
                    Some(_) => Finished::Dispatched,
                    None => unknown(&name),
                };
            };
            match view.call_shown(&entry, &tool, &name, params, &caller) {
                Step::Now(finished) => finished,
                _ => Finished::Dispatched,
            }
        }))
    }
}

impl View {
    /// A server of this view that may have prompts, by its index.
    fn at(&self, server: ServerId) -> Option<Entry> {
        self.offering().into_iter().find(|entry| entry.id == server)
    }

    /// Why no server can be used, where there is none.
    fn without_servers(&self) -> &'static str {
        if self.servers().iter().next().is_some() {
            "none of the configured servers can be used: all are disabled, or lack something they need"
        } else {
            "no server is configured"
        }
    }

    /// The response where no server can be used.
    fn no_server(&self, method: &str) -> Finished {
        match Kind::listed_by(method) {
            Some(kind) => Finished::Result(format!("{{\"{}\":[]}}", kind.member()).into_bytes()),
            None if self.enabled().is_empty() => Finished::invalid(self.without_servers()),
            None => Finished::invalid(format!(
                "the toolset of this session has tools only, so {method} reaches no server"
            )),
        }
    }

    /// The servers that can be used, in the order of the file.
    pub(super) fn enabled(&self) -> Vec<Entry> {
        let servers = self.servers();
        servers.iter().filter(|entry| entry.config.is_enabled()).cloned().collect()
    }

    /// Those of them whose resources and prompts are in this view: not those of a server with only some of its tools.
    pub(super) fn offering(&self) -> Vec<Entry> {
        let mut servers = self.enabled();
        servers.retain(|entry| self.has_all_of(entry));
        servers
    }

    /// The only server, if just one is configured and it can be used. Disabled ones count: names must not change their
    /// meaning because a variable is not set or a server is disabled for a while.
    pub(super) fn only(&self) -> Option<Entry> {
        self.alone().filter(|entry| entry.config.is_enabled())
    }

    /// The only server that is configured, whether it can be used or not.
    fn alone(&self) -> Option<Entry> {
        let servers = self.servers();
        let mut all = servers.iter();
        let first = all.next()?;
        all.next().is_none().then(|| first.clone())
    }

    /// The server that listed a URI, as far as known.
    fn owner_of(&self, uri: &str) -> Option<Entry> {
        let offering = self.offering();
        let is_there = |server: ServerId| offering.iter().any(|entry| entry.id == server);
        let owner = self.surface.owners().of_uri(uri, is_there)?;
        offering.into_iter().find(|entry| entry.id == owner)
    }

    /// Whether a call of a name that the only server did not list goes to it all the same: none of its tools is filtered,
    /// so it may answer for itself. A filtered or blocked name goes there too, where the refusal names the reason.
    fn is_for(&self, only: &Entry, name: &str) -> bool {
        let filter = &only.config.tools;
        if !only.config.permits(name) || self.surface.catalog.is_blocked(only.definition, name) {
            return true;
        }
        // While its tools are unknown it may be the shortened form of a longer name.
        let may_be_short = name.chars().count() == direct::MAX_NAME
            && self.snapshot().known(only.definition).is_none();
        // The name of a tool that has another one now means nothing.
        let is_named_anew = !only.config.overrides.is_empty();
        filter.is_open() && self.scope.is_none() && !may_be_short && !is_named_anew
    }

    /// The error for a tool whose server was withheld after its name was listed.
    fn withheld(&self, name: &str) -> Option<Box<ErrorObject>> {
        let servers = self.servers();
        let is_withheld =
            |entry: &&Entry| matches!(entry.config.state, ServerState::Withheld { .. });
        let withheld = |server: &str| servers.named(server).filter(is_withheld);
        let split = direct::split(name, |server| withheld(server).is_some());
        let entry = split.and_then(|(server, _)| withheld(server)).cloned();
        // A single server was listed under its own tool names.
        usable(&entry.or_else(|| self.alone().filter(|alone| is_withheld(&alone)))?).err()
    }

    /// The tool shown under a name, and its server.
    fn shown_as(&self, name: &str) -> Option<(Entry, Arc<str>)> {
        if let Some(only) = self.only() {
            let snapshot = self.snapshot();
            let known = snapshot.known(only.definition)?;
            let tool = known
                .any_tool(name)
                .or_else(|| known.tools.all().find(|tool| direct::own_name(&tool.name) == name))?;
            return Some((only, (*tool.name).into()));
        }
        let (servers, snapshot) = (self.servers(), self.snapshot());
        let enabled = |entry: &&Entry| entry.config.is_enabled();
        let named = |server: &str| servers.named(server).filter(enabled);
        if let Some((server, tool)) = direct::split(name, |server| named(server).is_some()) {
            let entry = named(server)?;
            let known = snapshot.known(entry.definition).and_then(|known| known.any_tool(tool));
            if let Some(tool) = known {
                return Some((entry.clone(), (*tool.name).into()));
            }
        }
        // A shortened name with a digest is found by computing all of them.
        servers.iter().filter(enabled).find_map(|entry| {
            let known = snapshot.known(entry.definition)?;
            let is_meant = |tool: &&Tool| direct::name(&entry.name, &tool.name) == name;
            let tool = known.tools.all().find(is_meant)?;
            Some((entry.clone(), (*tool.name).into()))
        })
    }

    pub(super) fn call_shown(
        &self,
        entry: &Entry,
        tool: &Arc<str>,
        shown: &str,
        params: Option<&[u8]>,
        caller: &Caller,
    ) -> Step {
        let refuse = |error: &ErrorObject| {
            self.surface.refused(caller, (&entry.name, tool), error);
            Step::Now(Finished::error(error))
        };
        if !entry.config.permits(tool) {
            let denied = format!(
                "the configuration of the server {:?} does not permit the tool {tool:?}",
                entry.name
            );
            let hint =
                "The call was not sent. Only the owner of the configuration can change that.";
            let denied = ErrorObject::new(Code::Denied, denied).hint(hint);
            return refuse(&denied.at(&entry.name, Some(tool)));
        }
        if let Err(refused) = self.permits(entry, tool) {
            return refuse(&refused.at(&entry.name, Some(tool)));
        }
        if self.surface.catalog.is_blocked(entry.definition, tool) {
            return refuse(&blocked(&entry.name, tool));
        }
        if shown == &**tool {
            return self.forward(entry, "tools/call", Arc::clone(tool), params, caller);
        }
        let params = renamed(params.unwrap_or(b"{}"), "name", tool);
        self.forward(entry, "tools/call", Arc::clone(tool), Some(&params), caller)
    }

    /// Gives a request to the router, unchanged, if this session can use the server here.
    fn forward(
        &self,
        entry: &Entry,
        method: &'static str,
        about: Arc<str>,
        params: Option<&[u8]>,
        caller: &Caller,
    ) -> Step {
        if let Err(refused) = self.has_here(entry) {
            let message = refused.message().to_owned();
            return Step::Now(Finished::Protocol { code: -32000, message });
        }
        if method == "resources/read" && about.starts_with("ui://") {
            self.seat.open_app(&entry.name);
        }
        let mut request = self.request(entry, method, about, params, caller.responder.input());
        request.result_mapper = match Kind::listed_by(method) {
            Some(kind) => Some(self.tidying(entry, kind)),
            None if method == "tools/call" && self.only().is_none() => Some(tasks::naming(entry)),
            None => None,
        };
        self.surface.router.call(request, caller.clone());
        Step::Dispatched
    }

    /// Removes elements that clients reject from a server's own list.
    fn tidying(&self, entry: &Entry, kind: Kind) -> ResultMapper {
        let (surface, entry) = (Arc::clone(&self.surface), entry.clone());
        ResultMapper::new(move |outcome| match outcome {
            CallOutcome::Result(page) => {
                let log = |key: &str, why| surface.log_skipped(&entry, kind.word(), key, why);
                let tidied = direct::tidied(kind, &page, log);
                CallOutcome::Result(tidied.map_or(page, Bytes::from))
            }
            other => other,
        })
    }

    /// A request as it goes to a server.
    pub(super) fn request(
        &self,
        entry: &Entry,
        method: &'static str,
        about: Arc<str>,
        params: Option<&[u8]>,
        input: Option<Arc<crate::router::Input>>,
    ) -> UpstreamRequest {
        let meta = params.and_then(|params| object::pick(params, ["_meta"]).ok()?[0]);
        let meta = meta.filter(|meta| meta.starts_with(b"{"));
        let progress = meta.and_then(|meta| object::pick(meta, ["progressToken"]).ok()?[0]);
        let mut hints = Hints::default();
        let (read_only, idempotent) = match method {
            "tools/call" => {
                let snapshot = self.snapshot();
                let tool =
                    snapshot.known(entry.definition).and_then(|known| known.any_tool(&about));
                hints = tool.map(|tool| tool.hints).unwrap_or_default();
                (hints.read_only.unwrap_or(false), hints.idempotent.unwrap_or(false))
            }
            _ => (true, true),
        };
        let rule = match (
            self.surface.options.replay,
            entry.config.retry.for_tool(entry.config.overrides.original(&about)),
        ) {
            (Rule::Never, _) | (_, Retry::Never) => Rule::Never,
            (_, Retry::Always) => Rule::Always,
            (_, Retry::Annotated) => Rule::Annotated,
        };
        UpstreamRequest {
            server: entry.id,
            server_name: Arc::clone(&entry.name),
            tool: about,
            arguments: None,
            meta: meta.map(Bytes::copy_from_slice),
            progress: progress.map(Bytes::copy_from_slice),
            call_progress: None,
            harmless: is_harmless(rule, read_only, idempotent),
            hints,
            input,
            verbatim: Some(Verbatim::new(method, params)),
            as_task: false,
            rewritten: None,
            result_mapper: None,
        }
    }

    /// Forwards a request to the server it belongs to, of several.
    fn forward_to_owner(
        &self,
        method: &'static str,
        params: Option<&[u8]>,
        caller: &Caller,
    ) -> Step {
        let sub_requests = SubRequests::new(caller);
        let view = self.clone();
        if let Some(kind) = Kind::listed_by(method) {
            let cursor = params.and_then(|params| object::pick(params, ["cursor"]).ok()?[0]);
            let cursor = cursor.and_then(object::text).map(std::borrow::Cow::into_owned);
            return Step::Later(Box::pin(async move {
                view.page_among(kind, cursor.as_deref(), &sub_requests).await
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
            return self.forward(&entry, method, prompt, Some(&params), caller);
        }
        if let Some(entry) = self.owner_of(&meant) {
            return self.forward(&entry, method, (*meant).into(), Some(params), caller);
        }
        let (params, uri) = (Bytes::copy_from_slice(params), meant.into_owned());
        Step::Later(Box::pin(
            async move { view.first_of(method, &params, &uri, &sub_requests).await },
        ))
    }

    /// Tries one server after the other, since no list has the URI.
    async fn first_of(
        &self,
        method: &'static str,
        params: &[u8],
        uri: &str,
        sub_requests: &Arc<SubRequests>,
    ) -> Finished {
        let needed = if method == "completion/complete" { "completions" } else { "resources" };
        let mut refused = None;
        for entry in self.offering() {
            let peer = self.introduced(&entry, capabilities::INTRODUCTION).await;
            if !peer.is_some_and(|peer| peer.can(needed)) {
                continue;
            }
            let request = self.request(&entry, method, uri.into(), Some(params), None);
            match sub_requests.send(&self.surface.router, request).await {
                // The owner is not recorded: the first result says little about whose it is.
                CallOutcome::Result(result) => return Finished::Result(result.to_vec()),
                CallOutcome::Failed(error) => {
                    if let CallErrorKind::Rpc(raw) = &error.kind {
                        refused.get_or_insert_with(|| raw.clone());
                    }
                }
                CallOutcome::Cancelled => return Finished::Dispatched,
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
        let seen = self.surface.owners().of_prompt(name);
        if let Some((server, prompt)) = seen {
            return Some((self.at(server)?, prompt));
        }
        let servers = self.servers();
        let offers = |entry: &&Entry| entry.config.is_enabled() && self.has_all_of(entry);
        let named = |server: &str| servers.named(server).filter(offers);
        let (server, prompt) = direct::split(name, |server| named(server).is_some())?;
        Some((named(server)?.clone(), prompt.into()))
    }
}

/// Refuses params that two JSON parsers could read differently.
fn ambiguous(method: &str, params: Option<&[u8]>) -> Option<Finished> {
    let params = params?;
    let read = object::unambiguous(params, MAX_RESULT_DEPTH)
        .and_then(|()| object::pick(params, MEMBERS).map(drop));
    let defect = read.err()?;
    Some(Finished::invalid(format!(
        "the params of {method} cannot be used: {defect}; nothing was run"
    )))
}

fn unknown(tool: &str) -> Finished {
    Finished::invalid(format!("unknown tool: {tool:?}"))
}

/// The subject of a request, for messages.
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
