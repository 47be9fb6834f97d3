//! The compact surface, and responses of `mcp_discover` as text for a model.
//! Owns: the arguments, how servers and hits are rendered, the server digest.      Never: searches, connects, decides an error.
//! In: a `DiscoverRequest` and what was found.  Out: text, or JSON for programs.
//! Tests: `discover/tests.rs`.

mod digest;
mod render;
mod surface;

use serde_json::Value;

use metamcp_search::search::{FITS, Hit};
use metamcp_types::nearest::mistaken_argument;
use metamcp_types::next::Audience;
use metamcp_types::strategy::Strategy;

pub use digest::{DigestLine, digest, digest_room};
pub(crate) use render::claims;
pub use render::{to_json, to_text};
pub use surface::{compact_list, compact_tools, instructions, provision_tool};

#[cfg(test)]
mod tests;

/// Default page size.
pub const DEFAULT_LIMIT: usize = 20;

/// Most hits on a page; more is clamped, not refused.
pub const MAX_LIMIT: usize = 100;

/// How much is said about each tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Detail {
    /// Id and first sentence.
    Brief,
    /// Signature and first sentence.
    #[default]
    Signature,
    /// The JSON Schema as well.
    Schema,
}

impl Detail {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "brief" => Detail::Brief,
            "signature" => Detail::Signature,
            "schema" => Detail::Schema,
            _ => return None,
        })
    }
}

/// The tool that was called: cursors of one are not valid for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Operation {
    /// `mcp_discover`.
    #[default]
    Discover,
    /// `search_tools`.
    Search,
    /// `list_tools`: all tools, unless a filter is given.
    List,
}

impl Operation {
    fn word(self) -> &'static str {
        match self {
            Operation::Discover => "discover",
            Operation::Search => "search",
            Operation::List => "list",
        }
    }
}

/// The arguments of `mcp_discover`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiscoverRequest {
    /// Which tool asks.
    pub operation: Operation,
    /// What the tool should do.
    pub query: Option<String>,
    /// Only this server.
    pub server: Option<String>,
    /// Exactly this tool.
    pub tool: Option<String>,
    /// How much to say.
    pub detail: Detail,
    /// Hits on a page; 0 stands for the default.
    pub limit: usize,
    /// Hits to skip, as decoded from the cursor.
    pub offset: usize,
    /// As the caller gave it.
    pub cursor: Option<String>,
}

/// The arguments of `mcp_discover` are malformed: an error of the protocol, not of a tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// Not an object.
    #[error("the arguments of mcp_discover must be an object")]
    NotAnObject,
    /// One argument has the wrong form.
    #[error("`{name}` of mcp_discover must be {expected}")]
    Malformed {
        name: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// An argument that it does not have, and hardly a stray one.
    #[error("{0}")]
    Unknown(String),
}

/// What `mcp_discover` takes.
const ARGUMENTS: [&str; 6] = ["query", "server", "tool", "detail", "limit", "cursor"];
/// What callers write for `query`, after the argument of `mcp_provision`.
const INTENT: &str = "intent";

impl DiscoverRequest {
    /// Reads the arguments. Blank texts count as absent, limits are clamped, arguments that are like none of these are
    /// ignored.
    pub fn decode(arguments: Option<&Value>) -> Result<Self, BadRequest> {
        let map = match arguments {
            None | Some(Value::Null) => {
                return Ok(Self { limit: DEFAULT_LIMIT, ..Self::default() });
            }
            Some(Value::Object(map)) => map,
            Some(_) => return Err(BadRequest::NotAnObject),
        };
        let unknown =
            map.keys().filter(|name| *name != INTENT && !ARGUMENTS.contains(&name.as_str()));
        for name in unknown {
            if let Some(wrong) = mistaken_argument("mcp_discover", name, &ARGUMENTS) {
                return Err(BadRequest::Unknown(wrong));
            }
        }
        let words = |name: &'static str| match map.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => {
                Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
            }
            Some(_) => Err(BadRequest::Malformed { name, expected: "a string" }),
        };
        let detail = match words("detail")? {
            None => Detail::default(),
            Some(name) => Detail::named(&name).ok_or(BadRequest::Malformed {
                name: "detail",
                expected: "\"brief\", \"signature\" or \"schema\"",
            })?,
        };
        let limit = match map.get("limit") {
            None | Some(Value::Null) => DEFAULT_LIMIT,
            Some(value) => {
                let whole = value.as_f64().filter(|number| number.fract() == 0.0);
                let number = whole
                    .ok_or(BadRequest::Malformed { name: "limit", expected: "a whole number" })?;
                number.clamp(1.0, MAX_LIMIT as f64) as usize
            }
        };
        let (server, tool) = (words("server")?, words("tool")?);
        let (server, tool) = match (server, tool) {
            (None, Some(id)) => match split_id(&id) {
                Some((server, tool)) => (Some(server.to_owned()), Some(tool.to_owned())),
                None => (None, Some(id)),
            },
            both => both,
        };
        Ok(Self {
            operation: Operation::Discover,
            query: match words("query")? {
                None => words(INTENT)?,
                query => query,
            },
            server,
            tool,
            detail,
            limit,
            offset: 0,
            cursor: words("cursor")?,
        })
    }

    /// Whether only the servers are wanted.
    pub fn is_overview(&self) -> bool {
        let is_open = self.query.is_none() && self.tool.is_none() && self.server.is_none();
        is_open && self.operation == Operation::Discover
    }

    /// What a cursor is bound to: everything that decides which hits there are and in which order.
    pub fn binding(&self) -> String {
        let part = |text: &Option<String>| Value::from(text.as_deref()).to_string();
        let (query, server, tool) = (part(&self.query), part(&self.server), part(&self.tool));
        format!("{} {query} {server} {tool}", self.operation.word())
    }
}

/// `server:tool`, split at the first colon.
pub fn split_id(id: &str) -> Option<(&str, &str)> {
    id.split_once(':').filter(|(server, tool)| !server.is_empty() && !tool.is_empty())
}

/// `mcp.<server>` is another way to write the server's name, for callers that know ids in that form.
/// To be tried after the name as written, because a server may be called that.
pub fn without_alias(server: &str) -> Option<&str> {
    server.strip_prefix("mcp.").filter(|name| !name.is_empty())
}

/// What a server is doing, in one word or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// Nothing has needed it yet.
    NotStarted,
    /// On its way up.
    Connecting,
    /// Calls are running.
    Active,
    /// Up, nothing to do.
    Idle,
    /// The last attempt failed, or too many did.
    Failed,
    /// Switched off in the configuration, or not startable.
    Disabled,
}

impl ServerState {
    /// The word, for whoever reads it. A command at a shell starts nothing to tell it, and other gateways may run the
    /// server: all it knows is that the server may be used.
    pub fn word(self, audience: Audience) -> &'static str {
        match self {
            ServerState::NotStarted if audience == Audience::Shell => "enabled",
            ServerState::NotStarted => "not started",
            ServerState::Connecting => "connecting",
            ServerState::Active => "active",
            ServerState::Idle => "idle",
            ServerState::Failed => "failed",
            ServerState::Disabled => "disabled",
        }
    }
}

/// One configured server, started or not.
#[derive(Debug, Clone)]
pub struct ServerLine<'a> {
    /// Its key in the configuration.
    pub name: &'a str,
    /// Who named it: `user`, `project`, `flag` or `provisioned`.
    pub origin: &'a str,
    /// What it is doing.
    pub state: ServerState,
    /// Why, where that is not obvious.
    pub reason: Option<&'a str>,
    /// Tools, if they are known from the server or from the cache.
    pub tools: Option<usize>,
    /// From the configuration, else what the server or its tools say.
    pub description: Option<&'a str>,
}

/// A server whose tools could not be listed.
#[derive(Debug, Clone)]
pub struct FailedServer<'a> {
    pub name: &'a str,
    /// What happened, as a short message.
    pub reason: &'a str,
}

/// Everything an answer is made of.
#[derive(Debug, Clone, Default)]
pub struct DiscoverResponse<'a> {
    /// All configured servers, or the requested one.
    pub servers: &'a [ServerLine<'a>],
    /// The hits of this page.
    pub hits: &'a [Hit],
    pub total: usize,
    /// Where the next page starts.
    pub next_cursor: Option<&'a str>,
    /// Servers that are still starting; their tools are not in the hits.
    pub pending: &'a [&'a str],
    /// Servers whose tools are not in the hits because something went wrong.
    pub failed: &'a [FailedServer<'a>],
    /// What the reader should know of the ranking.
    pub note: Option<&'a str>,
    /// What ranked the hits.
    pub strategy: Option<Strategy>,
    pub audience: Audience,
}
