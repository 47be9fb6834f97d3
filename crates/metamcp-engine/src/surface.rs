//! What the model sees: a table of small tools over the core, and nothing else.
//! Owns: decoding of their arguments, rendering of their answers.      Never: calls a server but through the router, keeps state of calls.
//! In: `tools/call` params.  Out: `Step`: an answer now, later, or through the caller.
//! Tests: `metamcp/tests/`, snapshots of answers in the core.

pub mod call;
pub mod direct;
pub mod discover;
mod errand;
pub mod execute;
mod kept;
mod offers;
pub mod reply;
mod script;
pub mod semantic;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use metamcp_core::cursor::CursorKey;
use metamcp_core::nearest::nearest;
use metamcp_core::replay::Rule;
use metamcp_core::settings::Vocabulary;
use metamcp_wire::object;
use metamcp_wire::seal::Key;

use crate::catalog::Catalog;
use crate::habits::Memory;
use crate::held::Held;
use crate::results::Results;
use crate::router::{Caller, Entry, Router};
use crate::shapes::Shapes;
use execute::CodeMode;
use reply::ErrorObject;

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
    /// Where resources and prompts were seen.
    owners: Mutex<direct::Owners>,
}

/// The gateway as a client sees it: one core, and the vocabulary spoken over it.
#[derive(Clone)]
pub struct View {
    /// The core, the same for all.
    pub surface: Arc<Surface>,
    /// Which tools are shown.
    pub vocabulary: Vocabulary,
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
        Finished::Result(object.to_result())
    }
}

/// The tools there are, listed or not.
const NAMES: [&str; 3] = ["mcp_discover", "mcp_call", "mcp_execute"];

impl View {
    /// The `tools/list` result.
    pub async fn tools(&self) -> String {
        let surface = &self.surface;
        metamcp_core::discover::compact_tools(surface.catalog.digest().await, surface.code.is_on())
    }

    /// The `instructions` of the gateway.
    pub async fn instructions(&self) -> String {
        let surface = &self.surface;
        metamcp_core::discover::instructions(surface.catalog.digest().await, surface.code.is_on())
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
        self.surface.call(params, line, caller, tag)
    }
}

impl Surface {
    /// A surface over a router and its catalog.
    pub fn new(
        router: Arc<Router>,
        catalog: Arc<Catalog>,
        habits: Option<Arc<Memory>>,
        options: Options,
        code: CodeMode,
        shapes: Shapes,
    ) -> Surface {
        let mut key = [0; 32];
        // Without randomness cursors could be forged, which lets a client read a page it may read anyway.
        let _unseeded = getrandom::fill(&mut key);
        let (cursors, results) = (CursorKey::new(key), Results::default());
        let mut seal = [0; 32];
        // A seal that can be guessed would let a client answer for another one, which must not be risked.
        getrandom::fill(&mut seal).expect("the system has randomness");
        let held = Held::new(Key::new(seal));
        let owners = Mutex::default();
        Surface { router, catalog, habits, options, cursors, code, results, shapes, held, owners }
    }

    fn call(
        self: &Arc<Self>,
        params: Option<&[u8]>,
        line: &Bytes,
        caller: &Arc<dyn Caller>,
        tag: &Bytes,
    ) -> Step {
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
        let Some(name) = name.and_then(object::text) else {
            return invalid("tools/call needs a name, which is a string".to_owned());
        };
        match &*name {
            "mcp_call" => self.mcp_call(arguments, meta, line, caller, tag),
            "mcp_discover" => self.mcp_discover(arguments, caller),
            "mcp_execute" => self.mcp_execute(arguments, meta, caller, tag),
            unknown => {
                let near = nearest(unknown, NAMES, 2);
                let hint = if near.is_empty() { NAMES.join(" and ") } else { near.join(" or ") };
                invalid(format!(
                    "metamcp has no tool {unknown:?}; it has {hint}. Tools of the servers behind it are called with mcp_call."
                ))
            }
        }
    }

    /// The configured server of that name; `mcp.NAME` means the same where no server is called that.
    pub(crate) fn server(&self, name: &str) -> Option<Entry> {
        let servers = self.router.servers();
        let found = servers.named(name);
        found.or_else(|| servers.named(metamcp_core::discover::without_alias(name)?)).cloned()
    }
}
