//! What the model sees: a table of small tools over the core, and nothing else.
//! Owns: decoding of their arguments, rendering of their answers.      Never: calls a server but through the router, keeps state of calls.
//! In: `tools/call` params.  Out: `Step`: an answer now, later, or through the caller.
//! Tests: `metamcp/tests/`, snapshots of answers in the core.

mod answers;
pub mod call;
mod calls;
pub mod direct;
pub mod discover;
mod errand;
pub mod execute;
mod full;
mod kept;
mod offers;
mod provision;
mod questions;
pub mod reply;
mod scope;
mod script;
pub mod semantic;
mod turns;

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use metamcp_core::cursor::CursorKey;
use metamcp_core::nearest::nearest;
use metamcp_core::next::Audience;
use metamcp_core::replay::Rule;
use metamcp_core::secret::Scrubber;
use metamcp_core::settings::{LogLevel, Vocabulary};
use metamcp_core::vocabulary;
use metamcp_wire::object;
use metamcp_wire::scan::MAX_RESULT_DEPTH;
use metamcp_wire::seal::Key;

use crate::catalog::Catalog;
use crate::config::CurrentProject;
use crate::habits::Memory;
use crate::held::Held;
use crate::login::Tokens;
use crate::provision::Provisioner;
use crate::results::Results;
use crate::router::{Caller, Entry, Router, Servers};
use crate::shapes::Shapes;
use crate::telemetry;
use execute::CodeMode;
use reply::ErrorObject;
pub use scope::Scope;

/// What the surface needs to know.
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
    /// What the operator says about replaying, over all servers.
    pub replay: Rule,
    /// Most text of a result that is shown whole; zero for all of it.
    pub result_bytes: usize,
}

/// What a surface is put together from.
pub struct Parts {
    /// The path of every call.
    pub router: Arc<Router>,
    /// What is known of tools.
    pub catalog: Arc<Catalog>,
    /// What was learnt from use, unless the operator wants none of it.
    pub habits: Option<Arc<Memory>>,
    /// Code mode as it is configured.
    pub code: CodeMode,
    /// What results look like.
    pub shapes: Shapes,
    /// Values too long to show.
    pub results: Results,
    /// Whether secrets are taken out of everything that leaves.
    pub scrubs: bool,
    /// Tokens of logins, which are secrets too.
    pub tokens: Arc<Tokens>,
    /// Finds and installs servers.
    pub provisioner: Provisioner,
}

/// See the module.
pub struct Surface {
    pub(crate) router: Arc<Router>,
    pub(crate) catalog: Arc<Catalog>,
    /// What was learnt from use, unless the operator wants none of it.
    pub(crate) habits: Option<Arc<Memory>>,
    pub(crate) options: Options,
    pub(crate) cursors: CursorKey,
    pub(crate) code: CodeMode,
    /// Values too long to show.
    pub(crate) results: Results,
    /// What results look like, for declarations.
    pub(crate) shapes: Shapes,
    /// Calls that wait for their client to come back.
    pub(crate) held: Held,
    /// Finds and installs servers.
    pub(crate) provisioner: Provisioner,
    /// The project's file as it stands, which may wait for a person.
    pub project: CurrentProject,
    /// Where resources and prompts were seen.
    owners: Mutex<direct::Owners>,
    /// What takes secrets out of everything that leaves, and whose secrets it knows.
    scrubber: Mutex<Scrubbing>,
    scrubs: bool,
    tokens: Arc<Tokens>,
    /// Secrets taken out so far.
    scrubbed: AtomicU64,
    /// No new calls: the gateway is going to end.
    draining: AtomicBool,
}

/// A scrubber, with the servers and the state of the tokens that it was made for.
struct Scrubbing {
    servers: Arc<Servers>,
    version: u64,
    scrubber: Arc<Scrubber>,
}

/// The gateway as a client sees it: one core, and the vocabulary spoken over it.
#[derive(Clone)]
pub struct View {
    /// The core, the same for all.
    pub surface: Arc<Surface>,
    /// Which tools are shown.
    pub vocabulary: Vocabulary,
    /// The part of everything it is kept to, where it is.
    pub scope: Option<Arc<Scope>>,
    /// Whose words it speaks of next steps.
    pub audience: Audience,
    /// Whose values it keeps and reads: whoever showed the same token, or everybody.
    pub principal: u64,
    /// Whether an answer of its client counts as an approval. Over stdio the owner's own client is asked; over HTTP any
    /// program with a token can answer, so there the owner says who is a person.
    pub approves: bool,
}

impl std::ops::Deref for View {
    type Target = Surface;

    fn deref(&self) -> &Surface {
        &self.surface
    }
}

/// How a meta-tool call goes on.
pub enum Step {
    /// Answered.
    Now(Finished),
    /// The router has it; the caller hears from there.
    Handed,
    /// It takes a while.
    Later(Work),
    /// It takes a while, and leaves something behind even if it is not allowed to end.
    Running(Running),
}

/// An answer in the making.
pub type Work = Pin<Box<dyn Future<Output = Finished> + Send>>;

/// Work under way that others can see, such as a script.
pub struct Running {
    /// The work.
    pub future: Work,
    /// The answer, should it have to be given at once.
    pub last_words: Box<dyn Fn() -> Finished + Send + Sync>,
}

/// The end of a meta-tool call.
#[derive(Debug)]
pub enum Finished {
    /// A tool result, as JSON.
    Result(Vec<u8>),
    /// A failure, to be put into the words of whoever asked.
    Refused(Box<ErrorObject>),
    /// The request itself was wrong: a JSON-RPC error.
    Protocol {
        /// The JSON-RPC code.
        code: i64,
        /// What is wrong.
        message: String,
    },
    /// The router has it after all.
    Handed,
}

impl Finished {
    pub(crate) fn invalid(message: impl Into<String>) -> Finished {
        Finished::Protocol { code: -32602, message: message.into() }
    }

    pub(crate) fn error(object: &ErrorObject) -> Finished {
        Finished::Refused(Box::new(object.clone()))
    }

    /// A failure in the words of the compact vocabulary; everything else as it is.
    pub fn in_words(self) -> Finished {
        self.to(Audience::Compact)
    }

    /// A failure in the words of its reader; everything else as it is.
    pub fn to(self, audience: Audience) -> Finished {
        match self {
            Finished::Refused(object) => Finished::Result(object.to(audience).to_result()),
            other => other,
        }
    }
}

/// The tools of the compact vocabulary. Those of both can be called, listed or not.
const COMPACT: [&str; 4] = ["mcp_discover", "mcp_call", "mcp_execute", "mcp_provision"];

impl View {
    /// The `tools/list` result.
    pub async fn tools(&self) -> String {
        let (digest, code) = (self.digest().await, self.code.is_on());
        // Whoever is kept to a part of everything gets nothing that is not in it.
        let provisions = self.provisioner.is_on() && self.scope.is_none();
        let mut tools = Vec::new();
        if self.vocabulary != Vocabulary::Full {
            tools = metamcp_core::discover::compact_list(digest, code, provisions);
        }
        if matches!(self.vocabulary, Vocabulary::Full | Vocabulary::Both) {
            tools.extend(vocabulary::tools(digest, code));
        }
        if self.vocabulary == Vocabulary::Full && provisions {
            tools.push(metamcp_core::discover::provision_tool());
        }
        serde_json::json!({ "tools": tools }).to_string()
    }

    /// The `instructions` of the gateway.
    pub async fn instructions(&self) -> String {
        let (digest, code) = (self.digest().await, self.code.is_on());
        match self.vocabulary {
            Vocabulary::Full => vocabulary::instructions(digest, code),
            _ => metamcp_core::discover::instructions(digest, code),
        }
    }

    /// The same view of one part of everything.
    pub fn kept_to(&self, scope: Arc<Scope>) -> View {
        View { scope: Some(scope), ..self.clone() }
    }

    /// JSON on its way to a model, without secrets.
    pub fn clean<'a>(&self, json: &'a [u8]) -> Cow<'a, [u8]> {
        let scrubber = self.scrubber();
        let clean = scrubber.scrub(json);
        if clean.removed > 0 {
            let before = self.scrubbed.fetch_add(clean.removed as u64, Ordering::Relaxed);
            let all = before + clean.removed as u64;
            telemetry::log(
                LogLevel::Info,
                &format!("took {} secrets out of an answer, {all} so far", clean.removed),
            );
        }
        clean.json
    }

    /// The same of a text that is no JSON.
    pub fn clean_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.scrubber().scrub_text(text)
    }

    /// A `tools/call` of a client.
    pub fn call(
        &self,
        params: Option<&[u8]>,
        line: &Bytes,
        caller: &Arc<dyn Caller>,
        tag: &Bytes,
    ) -> Step {
        if self.is_direct() {
            return self.direct_call(params, caller, tag);
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
        // It goes on to the server as it is.
        if let Some(Err(defect)) = meta.map(|meta| object::unambiguous(meta, MAX_RESULT_DEPTH)) {
            return invalid(format!("the _meta of tools/call cannot be used: {defect}"));
        }
        let Some(name) = name.and_then(object::text) else {
            return invalid("tools/call needs a name, which is a string".to_owned());
        };
        if self.is_draining() {
            return Step::Now(full::too_late(&name));
        }
        match &*name {
            "mcp_call" => self.mcp_call(arguments, meta, line, caller, tag),
            "mcp_discover" => self.mcp_discover(arguments, caller),
            "mcp_execute" => self.mcp_execute(arguments, meta, caller, tag),
            "mcp_provision" => self.mcp_provision(arguments, caller, tag),
            name if vocabulary::NAMES.contains(&name) => {
                self.full(name, arguments, meta, line, (caller, tag))
            }
            unknown => {
                let names = COMPACT.iter().chain(&vocabulary::NAMES).copied();
                let near = nearest(unknown, names, 2);
                let (listed, call): (&[&str], &str) = match self.vocabulary {
                    Vocabulary::Full => (&vocabulary::NAMES, "run_tool"),
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
        // Without randomness cursors could be forged, which lets a client read a page it may read anyway.
        let _unseeded = getrandom::fill(&mut key);
        let mut seal = [0; 32];
        // A seal that can be guessed would let a client answer for another one, which must not be risked.
        getrandom::fill(&mut seal).expect("the system has randomness");
        let Parts { router, catalog, habits, code, shapes, results, .. } = parts;
        let Parts { scrubs, tokens, provisioner, .. } = parts;
        let servers = router.servers();
        let scrubber = Mutex::new(Scrubbing::new(servers, &tokens, scrubs));
        Surface {
            router,
            catalog,
            habits,
            options,
            cursors: CursorKey::new(key),
            code,
            results,
            shapes,
            held: Held::new(Key::new(seal)),
            project: CurrentProject::new(None),
            owners: Mutex::default(),
            scrubber,
            scrubs,
            tokens,
            provisioner,
            scrubbed: AtomicU64::new(0),
            draining: AtomicBool::new(false),
        }
    }

    /// The scrubber for the servers as they are configured now, with the secrets that were looked up for them.
    fn scrubber(&self) -> Arc<Scrubber> {
        let servers = self.router.servers();
        let mut last = self.scrubber.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&last.servers, &servers) || last.version != self.tokens.version() {
            *last = Scrubbing::new(servers, &self.tokens, self.scrubs);
        }
        Arc::clone(&last.scrubber)
    }

    /// How many secrets were taken out of answers so far.
    pub fn scrubbed(&self) -> u64 {
        self.scrubbed.load(Ordering::Relaxed)
    }

    /// No new calls of clients from now on; what scripts and chains under way still call is let through.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Removes what must not outlive the gateway.
    pub fn end(&self) {
        self.results.end();
    }

    /// The configured server of that name; `mcp.NAME` means the same where no server is called that.
    pub(crate) fn server(&self, name: &str) -> Option<Entry> {
        let servers = self.router.servers();
        let found = servers.named(name);
        found.or_else(|| servers.named(metamcp_core::discover::without_alias(name)?)).cloned()
    }
}

impl Scrubbing {
    fn new(servers: Arc<Servers>, tokens: &Tokens, scrubs: bool) -> Scrubbing {
        // Read before the values: one that comes in between is then looked for the next time.
        let version = tokens.version();
        let tokens = tokens.secrets();
        let scrubber = match scrubs {
            true => Scrubber::new(servers.secrets().chain(&tokens)),
            false => Scrubber::off(),
        };
        Scrubbing { servers, version, scrubber: Arc::new(scrubber) }
    }
}
