//! Who may share one instance of a server: all clients of a fleet, of the machine, of a principal, those of one project, or nobody.
//! Owns: the scopes, how one is derived, why.      Never: starts or asks a server.
//! In: a server's entry, what it said of itself.  Out: a `Scope` and a `Why` to show.
//! Tests: `scope/tests.rs`.
//!
//! The first row that decides is final; below it, the narrowest of what applies is taken. Sharing too little costs memory;
//! sharing too much shows one client the state of another.
//!
//! | what is known | scope |
//! |---|---|
//! | `share` in the config | that one |
//! | the server declares `session` or `project` | that one; its author knows better than our list |
//! | the server declares `machine`, `fleet` or `principal` | what is derived below, at least `project`: only the config shares with everybody |
//! | package, program, name or tools of one that keeps a client's state | `session`, wherever it runs |
//! | it asks its client for roots | `project`, wherever it runs |
//! | remote | `machine` |
//! | local with a fixed `cwd` | `machine` |
//! | local in the client's folder, or a folder relative to it | `project` |
//!
//! A remote server has no package, but its name and tools count as well: its connection is a session of the protocol, so a
//! client with a connection of its own has, for instance, a browser of its own.

mod package;
mod stateful;

use std::fmt;
use std::path::PathBuf;

use metamcp_types::text;
use serde_json::Value;

use self::package::packages;
use self::stateful::Kept;
use crate::config::ServerConfig;
use crate::settings::words;

words! {
    /// Who shares one instance of a server, the widest first.
    #[derive(PartialOrd, Ord)]
    Scope {
        Fleet = "fleet": "All clients of all gateways of a fleet; where there is none, as `machine`.",
        Machine = "machine": "All clients of yours on this machine.",
        Principal = "principal": "Clients that authenticate as the same principal, at all gateways of a fleet.",
        Project = "project": "Clients in the same folder, or with the same roots.",
        Session = "session": "Nobody: each client has one of its own.",
    }
}

/// Where a server says in its `initialize` result whom it may be shared by.
pub const SHARE_KEY: &str = "metamcp/share";

/// Longest name or path that is repeated.
const LONGEST: usize = 120;
/// Most tools that are looked at; what a server keeps for its clients shows in the first few.
const MOST_TOOLS: usize = 2_000;

/// What is known of a server from itself. Empty before it was first connected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SaidOfItself {
    /// It sent `roots/list`.
    pub asks_roots: bool,
    /// `serverInfo.name`.
    pub server_name: String,
    /// `serverInfo.title`.
    pub title: String,
    pub tool_names: Vec<String>,
    /// What [`declared_in`] found.
    pub declared: Option<Scope>,
}

/// Why a server has its scope; displayed as one sentence without a full stop, with the scope in front.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Why {
    scope: Scope,
    reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Reason {
    Config,
    Declared,
    /// It declared `machine`, which it cannot grant itself.
    DeclaredTooWide,
    Keeps {
        who: Evidence,
        what: &'static str,
    },
    AsksRoots,
    Remote,
    FixedFolder(PathBuf),
    RelativeFolder(PathBuf),
    ClientsFolder,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Evidence {
    /// A package, an image or a program.
    Package(String),
    /// The name or title it gives itself.
    Name(String),
    Tool(String),
}

/// The scope of a server, and why.
pub fn of(server: &ServerConfig, said: &SaidOfItself) -> (Scope, Why) {
    let (scope, reason) = decide(server, said);
    (scope, Why { scope, reason })
}

fn decide(server: &ServerConfig, said: &SaidOfItself) -> (Scope, Reason) {
    if let Some(scope) = server.share {
        return (scope, Reason::Config);
    }
    match said.declared {
        Some(scope @ (Scope::Session | Scope::Project)) => (scope, Reason::Declared),
        Some(Scope::Fleet | Scope::Machine | Scope::Principal) => match derived(server, said) {
            (Scope::Session, _) => (Scope::Project, Reason::DeclaredTooWide),
            derived => derived,
        },
        None => derived(server, said),
    }
}

fn derived(server: &ServerConfig, said: &SaidOfItself) -> (Scope, Reason) {
    if let Some((who, kept)) = state_of_clients(server, said) {
        return (Scope::Session, Reason::Keeps { who, what: kept.what() });
    }
    if said.asks_roots {
        return (Scope::Project, Reason::AsksRoots);
    }
    let Some(local) = server.transport.local() else { return (Scope::Machine, Reason::Remote) };
    match &local.cwd {
        Some(folder) if folder.is_absolute() => {
            (Scope::Machine, Reason::FixedFolder(folder.clone()))
        }
        Some(folder) => (Scope::Project, Reason::RelativeFolder(folder.clone())),
        None => (Scope::Project, Reason::ClientsFolder),
    }
}

/// What the server keeps for a client, and what shows it.
fn state_of_clients(server: &ServerConfig, said: &SaidOfItself) -> Option<(Evidence, Kept)> {
    let started = server.transport.local().map(packages).unwrap_or_default();
    let by_package = started.into_iter().find_map(|name| {
        let kept = stateful::of_package(&name)?;
        Some((Evidence::Package(name), kept))
    });
    let by_name = || {
        let said = [&said.server_name, &said.title];
        said.into_iter().find_map(|name| {
            // Not the end of a long text, which is prose.
            let name: String = name.chars().take(LONGEST).collect();
            Some((Evidence::Name(name.clone()), stateful::of_name(&name)?))
        })
    };
    let by_tools = || {
        let names: Vec<String> =
            said.tool_names.iter().take(MOST_TOOLS).map(|name| stateful::folded(name)).collect();
        let (at, kept) = stateful::of_tools(&names)?;
        Some((Evidence::Tool(said.tool_names[at].clone()), kept))
    };
    by_package.or_else(by_name).or_else(by_tools)
}

/// The scope that a server declares in its `initialize` result: under [`SHARE_KEY`] in `_meta`, or in
/// `capabilities.experimental`, where only objects are allowed and `{ "scope": … }` is read. Of two, the narrower.
pub fn declared_in(initialize_result: &Value) -> Option<Scope> {
    let places = [&initialize_result["_meta"], &initialize_result["capabilities"]["experimental"]];
    let said = places.into_iter().filter_map(|place| {
        let value = &place[SHARE_KEY];
        Scope::from_word(value.as_str().or_else(|| value["scope"].as_str())?)
    });
    said.max()
}

impl Why {
    /// Whether the config says so, and nothing was derived.
    pub fn is_configured(&self) -> bool {
        self.reason == Reason::Config
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clean = |text: &str| text::clean_line(text, LONGEST).into_owned();
        write!(f, "{}: ", self.scope.as_str())?;
        match &self.reason {
            Reason::Config => f.write_str("`share` in the config says so"),
            Reason::Declared => f.write_str("the server itself asks for it"),
            Reason::DeclaredTooWide => {
                write!(f, "the server itself asks for `machine`, which only the config can give{SHARE_IT}")
            }
            Reason::Keeps { who, what } => {
                match who {
                    Evidence::Package(name) => write!(f, "{} keeps ", clean(name))?,
                    Evidence::Name(name) => write!(f, "it calls itself {}, which keeps ", clean(name))?,
                    Evidence::Tool(name) => write!(f, "it has the tool {}, so it keeps ", clean(name))?,
                }
                write!(f, "{what} per client{SHARE_IT}")
            }
            Reason::AsksRoots => {
                write!(f, "it asks its client for the folders to work in{SHARE_IT}")
            }
            Reason::Remote => {
                f.write_str("it is remote; set \"share\": \"session\" to give each client a connection of its own")
            }
            Reason::FixedFolder(folder) => {
                write!(f, "it always runs in {} (`cwd`)", clean(&folder.to_string_lossy()))
            }
            Reason::RelativeFolder(folder) => {
                let folder = clean(&folder.to_string_lossy());
                write!(f, "its `cwd` {folder} is relative to the client's folder{SHARE_IT}")
            }
            Reason::ClientsFolder => write!(f, "it runs in the client's folder{SHARE_IT}"),
        }
    }
}

/// What to do about a scope that is narrower than it has to be.
const SHARE_IT: &str = "; set \"share\": \"machine\" to share it";

#[cfg(test)]
mod tests;
