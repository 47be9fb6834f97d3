//! Configuration: the servers behind the gateway, as a validated model.
//! Owns: the model, the reader of `.mcp.json`, its schema, the difference of two.      Never: opens files, reads variables itself.
//! In: text and a way to look up variables.  Out: `Loaded`, or a `ConfigError` with line and column.
//! Tests: `config/tests.rs`, beside the parts, and `tests/examples.rs`.

mod approve;
mod diff;
mod expand;
mod filter;
mod keys;
mod names;
mod parse;
mod preview;
mod read;
mod reference;
mod report;
mod schema;
mod server;
mod syntax;
mod toolset;
mod transport;

use std::path::PathBuf;
use std::time::Duration;

pub use self::approve::{ApprovalRules, ApproveRule, Everywhere, tightened};
pub use self::diff::{Diff, diff};
pub use self::filter::ToolFilter;
pub use self::names::LONGEST_NAME;
pub(crate) use self::parse::DIALECT;
#[doc(hidden)]
pub use self::parse::fuzz_config;
pub use self::parse::{Loaded, decode, parse, parse_as_written};
pub use self::preview::{ConfigPreview, EffectiveConfig};
pub use self::reference::config_markdown;
pub(crate) use self::report::under;
pub use self::report::{ConfigError, Place, Problem, Severity, Warning};
pub use self::schema::json_schema;
pub use self::server::{ITSELF, SWITCHED_OFF};
pub use self::toolset::Toolset;
pub use self::transport::{
    ApiEndpoint, Grant, HttpKind, HttpOptions, IdentityProvider, LocalCommand, Login,
    OAuthEndpoints, RemoteEndpoint, TlsFiles, Transport, is_called_as_we_are,
};
use crate::scope::Scope;
use crate::settings::words;
pub use crate::settings::{Approve, Containment, Settings};
pub use metamcp_types::pass_env::PassEnv;
pub use metamcp_types::pattern::Pattern;
pub use metamcp_types::sandbox_policy::SandboxPolicy;
use metamcp_types::secret::Secret;
pub use metamcp_types::tool_override::{Hidden, Pin, ToolOverride, ToolOverrides};

/// The whole configuration: the servers in the order of the file, and the global settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// The servers, in file order. Names are unique.
    pub servers: Vec<ServerConfig>,
    pub settings: Settings,
    /// Named parts of what there is, in file order.
    pub toolsets: Vec<Toolset>,
}

impl Config {
    /// The toolset of this name.
    pub fn toolset(&self, name: &str) -> Option<&Toolset> {
        self.toolsets.iter().find(|toolset| toolset.name == name)
    }

    /// The server of this name.
    pub fn server(&self, name: &str) -> Option<&ServerConfig> {
        self.servers.iter().find(|server| server.name == name)
    }
}

/// One server behind the gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerConfig {
    /// The key in the file; the part before the colon in `server:tool`.
    pub name: String,
    pub origin: ServerOrigin,
    /// How it is reached.
    pub transport: Transport,
    /// Whether it may be used, and if not, why.
    pub state: ServerState,
    /// The operator's description.
    pub description: Option<String>,
    /// Words to find it and to group it by.
    pub tags: Vec<String>,
    /// Arguments to show as examples, by tool.
    pub examples: Vec<(String, Vec<serde_json::Value>)>,
    /// Time limit of a call, where it differs from the global one.
    pub timeout: Option<Duration>,
    /// May be restarted for a retry more than once.
    pub vital: bool,
    /// How long it stays once idle, by kind.
    pub lifecycle: Lifecycle,
    /// Own idle timeout, where it differs from the global one.
    pub idle_timeout: Option<Duration>,
    /// Which calls may be sent again after a crash.
    pub retry: RetryRule,
    /// Which calls need a person's approval.
    pub approvals: ApprovalRules,
    /// Whether it starts with the gateway, before anybody calls it.
    pub eager: bool,
    /// One call at a time.
    pub exclusive: bool,
    /// Own limit of concurrent calls.
    pub max_in_flight: Option<u32>,
    /// Who shares an instance of it, where the file says so; `scope::of` decides otherwise.
    pub share: Option<Scope>,
    /// Labels that a gateway of a fleet must have to run it, by name.
    pub requires: Vec<(String, String)>,
    /// The gateway of a fleet that runs it, or none does.
    pub pin: Option<String>,
    /// Most instances that serve the same clients.
    pub instances: u32,
    /// Which tools may be seen and called.
    pub tools: ToolFilter,
    /// What the user says of its tools in its place.
    pub overrides: ToolOverrides,
    /// Which of the gateway's own variables it gets.
    pub pass_env: PassEnv,
    /// Own choice of containment.
    pub containment: Option<Containment>,
    /// Its sandbox policy; none for servers of the user's own file.
    pub sandbox_policy: Option<SandboxPolicy>,
    /// Whether its command is a `docker run` of ours, whose container has to be gone when the command is.
    pub in_container: bool,
    /// The folder it was installed into, whose files are verified before it starts.
    pub installed_in: Option<Installed>,
    /// Variables that name a secret and were put into the command, its arguments, its directory or the address.
    pub expanded_secrets: Vec<Secret>,
    /// Arguments that are secrets, for servers that take them no other way.
    pub secret_arguments: Option<SecretArguments>,
}

impl ServerConfig {
    /// A server started by `command` with everything else at its default.
    pub fn stdio(name: impl Into<String>, command: impl Into<String>, args: &[&str]) -> Self {
        Self {
            name: name.into(),
            origin: ServerOrigin::default(),
            transport: Transport::from(LocalCommand {
                command: command.into(),
                args: args.iter().map(|&arg| arg.to_owned()).collect(),
                ..LocalCommand::default()
            }),
            state: ServerState::Enabled,
            description: None,
            tags: Vec::new(),
            examples: Vec::new(),
            timeout: None,
            vital: false,
            lifecycle: Lifecycle::Default,
            idle_timeout: None,
            retry: RetryRule::default(),
            approvals: ApprovalRules::default(),
            eager: false,
            exclusive: false,
            max_in_flight: None,
            share: None,
            requires: Vec::new(),
            pin: None,
            instances: 1,
            tools: ToolFilter::default(),
            overrides: ToolOverrides::default(),
            pass_env: PassEnv::Usual(Vec::new()),
            containment: None,
            sandbox_policy: None,
            in_container: false,
            installed_in: None,
            expanded_secrets: Vec::new(),
            secret_arguments: None,
        }
    }

    /// A server whose entry cannot be used; what is wrong with it is all there is to say.
    pub(crate) fn invalid(name: impl Into<String>, reason: impl Into<String>) -> Self {
        let state = ServerState::Invalid { reason: reason.into() };
        Self { state, ..Self::stdio(name, "", &[]) }
    }

    /// The operator's examples for one of its tools.
    pub fn examples_of(&self, tool: &str) -> &[serde_json::Value] {
        let original = self.overrides.original(tool);
        let found = self.examples.iter().find(|(name, _)| name == tool || name == original);
        found.map_or(&[], |(_, examples)| examples)
    }

    /// Whether a tool of this name, as it is shown, may be listed and called.
    pub fn permits(&self, tool: &str) -> bool {
        self.tools.permits(self.overrides.original(tool))
    }

    /// Whether it may be used at all.
    pub fn is_enabled(&self) -> bool {
        self.state == ServerState::Enabled
    }

    /// When an idle connection to it is closed, given the global idle timeout.
    pub fn idle_rule(&self, global: Duration) -> IdleRule {
        match self.lifecycle {
            Lifecycle::Ephemeral => IdleRule::AtOnce,
            Lifecycle::KeepAlive { idle_timeout } => {
                idle_timeout.or(self.idle_timeout).map_or(IdleRule::Never, IdleRule::After)
            }
            Lifecycle::Default => IdleRule::After(self.idle_timeout.unwrap_or(global)),
        }
    }

    /// How many calls may run at once, given the global limit.
    pub fn in_flight_limit(&self, global: u32) -> u32 {
        if self.exclusive { 1 } else { self.max_in_flight.unwrap_or(global) }
    }

    /// How many instances may serve the clients that share one. A client's own state is in one process, never in two.
    pub fn instances_in(&self, scope: Scope) -> u32 {
        if matches!(scope, Scope::Session | Scope::Fleet | Scope::Principal) {
            1
        } else {
            self.instances
        }
    }

    /// The values to keep out of errors and logs: sensitive variables, and every header.
    pub fn secrets(&self) -> Vec<&Secret> {
        let named = self.transport.secrets().filter(|value| !value.is_reference());
        let hidden = self.overrides.texts().filter(|text| !text.is_reference());
        named.chain(&self.expanded_secrets).chain(hidden).collect()
    }
}

words! {
    /// Who named a server.
    #[derive(Default)]
    ServerOrigin {
        #[default]
        User = "user": "Your own file.",
        Project = "project": "The `.mcp.json` of the folder, which you approved.",
        Flag = "flag": "The file that `--config` names.",
        Provisioned = "provisioned": "It was installed by metamcp after you approved it.",
    }
}

/// Arguments that are secrets. Whatever stands in a command line can be read by every user of the machine, so there they
/// are only named: a small program of ours, which the command line has in front of the server's own, puts the values into
/// their places before anything of the server runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretArguments {
    /// Whose arguments they are.
    pub runtime: Runtime,
    /// The file that our program is in.
    pub starter: PathBuf,
    /// Each by its place among the arguments of the server itself. It may say where the secret is, and is then looked up
    /// when the server starts.
    pub values: Vec<(usize, Secret)>,
}

/// What runs a server's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// `node`.
    Node,
    /// A Python.
    Python,
}

/// What was installed for a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    pub folder: PathBuf,
    /// The digest of its recorded files, if there is one.
    pub manifest: Option<String>,
}

/// Whether a server may be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    /// It may.
    Enabled,
    /// It may not; it is still named in discovery and in errors.
    Disabled {
        /// The message, as a fragment without a full stop.
        reason: String,
    },
    /// Its entry in the file cannot be used.
    Invalid {
        /// What is wrong with it and where, as a fragment without a full stop.
        reason: String,
    },
    /// Withheld until a person accepts it.
    Withheld {
        /// Why, as a fragment without a full stop.
        reason: String,
        /// What the person can do, as a sentence.
        cure: String,
    },
}

impl ServerState {
    /// Why it may not be used, if it may not.
    pub fn against(&self) -> Option<&str> {
        match self {
            ServerState::Enabled => None,
            ServerState::Disabled { reason }
            | ServerState::Invalid { reason }
            | ServerState::Withheld { reason, .. } => Some(reason),
        }
    }
}

/// How long a server stays connected once idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Lifecycle {
    /// Until the idle timeout.
    #[default]
    Default,
    /// For ever, or until an idle timeout of its own.
    KeepAlive {
        /// The timeout of its own, if one is set.
        idle_timeout: Option<Duration>,
    },
    /// Not at all.
    Ephemeral,
}

/// When an idle connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IdleRule {
    /// As soon as it is idle.
    AtOnce,
    /// After this long without a call.
    After(Duration),
    /// Never by the sweep.
    Never,
}

words! {
    /// Whether a call that was sent may be sent again after the server died.
    #[derive(Default)]
    Retry {
        #[default]
        Annotated = "annotated": "Only where the tool says that it reads only or that repeating is harmless.",
        Always = "always": "Always: you vouch that repeating a call of this server does no harm.",
        Never = "never": "Never, whatever the tool says.",
    }
}

/// The rule of one server, with exceptions by tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryRule {
    /// For every tool not named below.
    pub default: Retry,
    /// Exceptions in file order; an exact name goes before a pattern, then the first that fits.
    pub per_tool: Vec<(Pattern, Retry)>,
}

impl RetryRule {
    /// The rule for one tool.
    pub fn for_tool(&self, tool: &str) -> Retry {
        let exact = self.per_tool.iter().find(|(pattern, _)| pattern.as_str() == tool);
        exact
            .or_else(|| self.per_tool.iter().find(|(pattern, _)| pattern.matches(tool)))
            .map_or(self.default, |(_, retry)| *retry)
    }
}

#[cfg(test)]
mod tests;
