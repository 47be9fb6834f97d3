//! What the model sees: a small set of tools over the gateway, and nothing else.
//! Owns: decoding of their arguments, rendering of their responses.      Never: calls a server but through the router, keeps state of calls.
//! In: `tools/call` params.  Out: `Step`: a response now, later, or through the caller.
//! Tests: `metamcp/tests/`, snapshots of responses in `metamcp-surface`.

mod apps;
pub mod call;
mod command;
pub mod direct;
pub mod discover;
pub mod execute;
mod full;
mod names;
mod pins;
mod provision;
mod query_cache;
mod redactor;
pub mod reply;
mod result_store;
mod scope;
mod script;
mod script_error;
mod script_queries;
mod script_queue;
pub mod semantic;
mod sub_request;
pub mod tasks;
mod virtual_servers;

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::replay::Rule;
use metamcp_config::settings::ToolSurface;
use metamcp_surface::full_surface;
use metamcp_tools::cursor::CursorKey;
use metamcp_types::nearest::nearest;
use metamcp_types::next::Audience;
use metamcp_types::secret::Redactor;
use metamcp_types::text;
use metamcp_wire::object;
use metamcp_wire::scan::MAX_RESULT_DEPTH;
use metamcp_wire::trace_context::TraceContext;
use parking_lot::Mutex;
use serde_json::Value;

use crate::catalog::Catalog;
use crate::cluster_key::Keyring;
use crate::config::CurrentProject;
use crate::login::Tokens;
use crate::observe::{CallRecord, Event, Interest, Payload, Verdict};
use crate::provision::Provisioner;
use crate::results::Results;
use crate::router::{Caller, Context, Router, Seat};
use crate::shapes::Shapes;
use crate::usage_history::UsageStore;
use execute::CodeMode;
pub use redactor::SharedRedactor;
use reply::ErrorObject;
pub use scope::Scope;

/// Longest name of an unknown server or tool in a record.
const MAX_NAME: usize = 200;

/// Settings of the surface.
#[derive(Debug, Clone)]
pub struct Options {
    /// How tools are ranked.
    pub ranking: semantic::Ranking,
    /// How long discovery waits for servers that never listed their tools.
    pub discover_budget: Duration,
    /// How long a call waits for a server that has to list its tools first.
    pub list_wait: Duration,
    /// How long a call waits for a slot.
    pub pool_wait: Duration,
    /// The operator's setting for replays, over all servers.
    pub replay: Rule,
    /// Longest result that is shown whole, in characters of its text; zero for no limit.
    pub result_chars: usize,
    /// How long a call may take before it becomes a task; zero for never.
    pub task_after: Duration,
    /// Most tokens of pinned tools.
    pub pin_tokens: usize,
}

/// The parts a surface is built from.
pub struct Parts {
    /// The path of every call.
    pub router: Arc<Router>,
    /// What is known of tools.
    pub catalog: Arc<Catalog>,
    /// Usage history, unless the operator disabled it.
    pub usage_history: Option<Arc<UsageStore>>,
    /// Code mode as it is configured.
    pub code: Arc<CodeMode>,
    /// Learned result shapes.
    pub shapes: Arc<Shapes>,
    /// The result store.
    pub results: Arc<Results>,
    /// Whether secrets are redacted from all output.
    pub redacts: bool,
    /// OAuth tokens, which are secrets too.
    pub tokens: Arc<Tokens>,
    /// Finds and installs servers.
    pub provisioner: Provisioner,
    /// In a fleet: the key that its gateways share.
    pub keyring: Option<Arc<Keyring>>,
}

/// See the module.
pub struct Surface {
    pub(crate) router: Arc<Router>,
    pub(crate) catalog: Arc<Catalog>,
    /// Usage history, unless the operator disabled it.
    pub(crate) usage_history: Option<Arc<UsageStore>>,
    pub(crate) options: Options,
    /// The key of cursors, where no fleet shares one.
    cursors: CursorKey,
    /// In a fleet: the key that its gateways share.
    pub(crate) keyring: Option<Arc<Keyring>>,
    pub(crate) code: Arc<CodeMode>,
    /// The result store.
    pub(crate) results: Arc<Results>,
    /// Calls that go on after their request was answered.
    pub tasks: tasks::Tasks,
    /// Learned result shapes, for declarations.
    pub(crate) shapes: Arc<Shapes>,
    /// Finds and installs servers.
    pub(crate) provisioner: Provisioner,
    /// The project's file and its trust state; it may wait for approval.
    pub project: CurrentProject,
    /// Searches that were told to ask again, while servers were starting.
    unfinished_searches: Mutex<discover::UnfinishedSearches>,
    /// Where resources and prompts were seen.
    owners: Mutex<direct::Owners>,
    redactor: SharedRedactor,
}

/// The gateway as a client sees it: one shared surface, and the tool surface shown of it.
#[derive(Clone)]
pub struct View {
    /// The surface, shared by all views.
    pub surface: Arc<Surface>,
    /// Its session's place: which instance of each server it uses.
    pub seat: Arc<Seat>,
    /// Which tools are shown.
    pub tool_surface: ToolSurface,
    /// The scope it is restricted to, if any.
    pub scope: Option<Arc<Scope>>,
    /// Whose wording it uses for next steps.
    pub audience: Audience,
    /// Whose stored results it writes and reads: those of the same token, or everybody's.
    pub principal: u64,
    /// Who that is for every gateway of a fleet, where it is known.
    pub lasting: Option<[u8; 32]>,
    /// The same for people: `owner`, `token:NAME`, `sub:NAME`.
    pub principal_name: Arc<str>,
    /// Whether an answer of its client counts as an approval. Over stdio the owner's own client is asked; over HTTP any
    /// program with a token can answer, so there the owner names the approvers.
    pub approves: bool,
}

/// How a meta-tool call continues.
pub enum Step {
    /// Answered.
    Now(Finished),
    /// The router has it; the caller gets the response from there.
    Dispatched,
    /// It takes a while.
    Later(Work),
    /// It takes a while, and has a final response even if it is cut short.
    Running(Running),
}

/// A pending response.
pub type Work = Pin<Box<dyn Future<Output = Finished> + Send>>;

/// Work in progress with visible side effects, such as a script.
pub struct Running {
    /// The work.
    pub future: Work,
    /// The response if it has to be sent at once.
    pub final_response: Box<dyn Fn() -> Finished + Send + Sync>,
}

/// The result of a meta-tool call.
#[derive(Debug)]
pub enum Finished {
    /// A tool result, as JSON.
    Result(Vec<u8>),
    /// A failure, to be worded for its reader.
    Refused(Box<ErrorObject>),
    /// The request itself was wrong: a JSON-RPC error.
    Protocol {
        /// The JSON-RPC code.
        code: i64,
        /// What is wrong.
        message: String,
    },
    /// The router has it after all.
    Dispatched,
}

impl Finished {
    pub(crate) fn invalid(message: impl Into<String>) -> Finished {
        Finished::Protocol { code: -32602, message: message.into() }
    }

    pub(crate) fn error(object: &ErrorObject) -> Finished {
        Finished::Refused(Box::new(object.clone()))
    }

    /// A failure worded for the compact surface; everything else unchanged.
    pub fn in_words(self) -> Finished {
        self.to(Audience::Compact)
    }

    /// A failure worded for its reader; everything else unchanged.
    pub fn to(self, audience: Audience) -> Finished {
        match self {
            Finished::Refused(object) => Finished::Result(object.to(audience).to_result()),
            other => other,
        }
    }
}

/// The tools of the compact surface. Those of both surfaces can be called, listed or not.
const COMPACT: [&str; 4] = ["mcp_discover", "mcp_call", "mcp_execute", "mcp_provision"];

impl View {
    /// The `tools/list` result; with tools that have pages for a host that shows those.
    pub async fn tools(&self, shows_apps: bool) -> String {
        let (digest, caps) = (self.digest().await, self.surface.code.caps());
        let caps = caps.as_deref();
        let provisions = self.provisions();
        let mut tools = Vec::new();
        if self.tool_surface != ToolSurface::Full {
            tools = metamcp_surface::discover::compact_list(digest, caps, provisions);
        }
        if matches!(self.tool_surface, ToolSurface::Full | ToolSurface::Both) {
            tools.extend(full_surface::tools(digest, caps));
        }
        if self.tool_surface == ToolSurface::Full && provisions {
            tools.push(metamcp_surface::discover::provision_tool());
        }
        tools.extend(self.pins().await.iter().map(|pin| pin.definition.clone()));
        if shows_apps {
            // No page may call what reaches every server.
            for tool in &mut tools {
                tool["_meta"]["ui"]["visibility"] = serde_json::json!(["model"]);
            }
            let is_new = |app: &Value| tools.iter().all(|known| known["name"] != app["name"]);
            let mut of_apps = self.app_definitions().await;
            of_apps.retain(is_new);
            tools.extend(of_apps);
        }
        serde_json::json!({ "tools": tools }).to_string()
    }

    /// Whether it can install servers. A view restricted to a scope shows nothing outside it.
    fn provisions(&self) -> bool {
        self.surface.provisioner.is_on() && self.scope.is_none()
    }

    /// The `instructions` of the gateway.
    pub fn instructions(&self) -> String {
        let code = self.surface.code.is_on();
        match self.tool_surface {
            ToolSurface::Full => full_surface::instructions(code),
            _ => metamcp_surface::discover::instructions(code),
        }
    }

    /// The same view for another session.
    pub fn seated(&self, seat: Arc<Seat>) -> View {
        View { seat, ..self.clone() }
    }

    /// The configuration behind it.
    pub fn context(&self) -> &Arc<Context> {
        self.seat.context()
    }

    /// The same view, restricted to a scope.
    pub fn restricted_to(&self, scope: Arc<Scope>) -> View {
        View { scope: Some(scope), ..self.clone() }
    }

    /// A `tools/call` of a client.
    pub fn call(&self, params: Option<&[u8]>, line: &Bytes, caller: Caller) -> Step {
        if self.is_direct() {
            return self.direct_call(params, &caller);
        }
        let invalid = |message: String| Step::Now(Finished::invalid(message));
        let Some(params) = params else {
            return invalid("tools/call needs params with a name".to_owned());
        };
        let picked = match object::pick(params, ["name", "arguments", "_meta"]) {
            Ok(picked) => picked,
            Err(defect) => {
                return invalid(format!("the params of tools/call cannot be used: {defect}"));
            }
        };
        let [name, arguments, meta] = picked;
        // It is forwarded to the server unchanged.
        if let Some(Err(defect)) = meta.map(|meta| object::unambiguous(meta, MAX_RESULT_DEPTH)) {
            return invalid(format!("the _meta of tools/call cannot be used: {defect}"));
        }
        let Some(name) = name.and_then(object::text) else {
            return invalid("tools/call needs a name, which is a string".to_owned());
        };
        if self.seat.is_draining() {
            return Step::Now(full::too_late(&name));
        }
        let mut caller = caller;
        if self.surface.router.observer.tracer().is_some() {
            let own = meta.and_then(TraceContext::of_meta).map(Arc::new);
            caller.trace = own.or(caller.trace);
        }
        match &*name {
            "mcp_call" => self.mcp_call(arguments, meta, line, caller),
            "mcp_discover" => self.mcp_discover(arguments, &caller),
            "mcp_execute" => self.mcp_execute(arguments, meta, &caller),
            "mcp_provision" => self.mcp_provision(arguments, &caller),
            name if full_surface::NAMES.contains(&name) => {
                self.full(name, arguments, meta, line, &caller)
            }
            unknown => {
                if let Some(step) = self.app_call(unknown, params, &caller) {
                    return step;
                }
                if let Some(step) = self.pinned_call(unknown, arguments, meta, &caller) {
                    return step;
                }
                let names = COMPACT.iter().chain(&full_surface::NAMES).copied();
                let near = nearest(unknown, names, 2);
                let (listed, call): (&[&str], &str) = match self.tool_surface {
                    ToolSurface::Full => (&full_surface::NAMES, "run_tool"),
                    _ => (&COMPACT, "mcp_call"),
                };
                let hint = if near.is_empty() { listed.join(" and ") } else { near.join(" or ") };
                invalid(format!(
                    "metamcp has no tool {unknown:?}; it has {hint}. Tools of the servers behind it are called with {call}."
                ))
            }
        }
    }
}

impl Surface {
    /// A surface over a router and its catalog.
    pub fn new(parts: Parts, options: Options) -> Surface {
        let mut key = [0; 32];
        // Without randomness cursors could be forged, which only lets a client read a page it may read anyway.
        let _unseeded = getrandom::fill(&mut key);
        let Parts { router, catalog, usage_history, code, shapes, results, .. } = parts;
        let Parts { redacts, tokens, provisioner, keyring, .. } = parts;
        let redactor = SharedRedactor::new(&router, tokens, redacts);
        Surface {
            router,
            catalog,
            usage_history,
            options,
            cursors: CursorKey::new(key),
            keyring,
            code,
            results,
            tasks: tasks::Tasks::default(),
            shapes,
            project: CurrentProject::new(None),
            unfinished_searches: Mutex::default(),
            owners: Mutex::default(),
            redactor,
            provisioner,
        }
    }

    /// The key of cursors.
    pub(crate) fn cursor_key(&self) -> CursorKey {
        let shared = self.keyring.as_ref().map(|keyring| keyring.cursor_key());
        shared.unwrap_or_else(|| self.cursors.clone())
    }

    /// Redacts JSON on its way to a model.
    pub fn clean<'a>(&self, json: &'a [u8]) -> Cow<'a, [u8]> {
        let redactor = self.redactor();
        let clean = redactor.redact(json);
        if clean.removed > 0 {
            let removed = clean.removed as u64;
            self.router.observer.publish(&Event::Redaction { removed });
        }
        clean.json
    }

    /// The same for text that is not JSON.
    pub fn clean_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.redactor().redact_text(text)
    }

    fn redactor(&self) -> Arc<Redactor> {
        self.redactor.now()
    }

    /// Publishes the record of a call that was refused before the router saw it.
    fn refused(&self, caller: &Caller, (server, tool): (&str, &str), error: &ErrorObject) {
        let observer = &self.router.observer;
        if observer.wants(Interest::CALLS) {
            let (identity, now) = (caller.client.identity(), self.router.clock.now());
            let name = |name: &str| Arc::from(&*text::clean_line(name, MAX_NAME));
            let names = (name(server), name(tool));
            let (origin, arrived) = (caller.origin, caller.arrived.unwrap_or(now));
            let mut record =
                CallRecord::arriving(identity, origin, names, "tools/call", None, arrived);
            record.ended = now;
            record.verdict = Verdict::Refused(error.code().word());
            observer.publish(&Event::Call(&record, Payload::default()));
        }
    }

    /// Publishes a search of a client, and the tools it was shown.
    fn searched(&self, caller: &Caller, query: &str, ids: &[String]) {
        let (identity, at) = (caller.client.identity(), self.router.clock.now());
        self.router.observer.publish(&Event::Search { identity: &identity, query, ids, at });
    }

    /// Removes what must not outlive the gateway.
    pub fn end(&self) {
        self.results.end();
    }
}
