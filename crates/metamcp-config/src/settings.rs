//! Global settings: each declared once, with its flag, variable, file key and default.
//! Owns: the table, the typed values, the precedence of sources.      Never: reads files, flags or variables itself.
//! In: the values of each source, weakest first.  Out: `Resolved`: the values, each with its origin.
//! Tests: below and `settings/value.rs`; the flags are checked against the table in the binary.

mod reference;
mod runtime;
mod table;
mod unknown;
mod value;
mod words;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use metamcp_types::strategy::Strategy;

pub use self::reference::settings_markdown;
pub use self::runtime::{RequestedRuntime, requested as requested_runtime};
pub use self::table::{SETTINGS, Setting, by_file_key, by_flag};
pub use self::unknown::{UnknownVariable, unknown_variables};
pub use self::value::{Kind, Value, ValueError};
pub(crate) use self::words::words;
pub use self::words::{
    Approve, CodeProfile, Containment, DaemonMode, LogLevel, OtlpProtocol, Replay, TokenStore,
    ToolSurface, Transport, Word,
};
pub(crate) use metamcp_types::text::shown;

/// The values of all global settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The one file to read, where the user named it.
    pub config: Option<PathBuf>,
    /// Where the gateway keeps its files; `~` is not yet replaced here.
    pub home: PathBuf,
    /// The pool and the breaker.
    pub pool: PoolSettings,
    pub timeouts: TimeoutSettings,
    /// Size and number limits.
    pub limits: LimitSettings,
    /// How long a tool list counts as fresh.
    pub catalog_ttl: Duration,
    /// Whether a call may be sent twice at all.
    pub replay: Replay,
    /// Which tools a client is shown.
    pub surface: ToolSurface,
    /// Which calls need a person's approval.
    pub approvals: ApprovalSettings,
    /// Whether secrets are taken out of what leaves toward a model.
    pub redact: bool,
    /// Most tokens of pinned tools.
    pub pin_tokens: usize,
    /// The toolset clients may use; empty for everything.
    pub toolset: String,
    /// How tools are ranked.
    pub search: Strategy,
    /// How the strategy `bm25` weighs.
    pub bm25: Bm25Settings,
    /// Where vectors come from, for the strategy that wants them from elsewhere.
    pub embedding: EmbeddingSettings,
    /// Whether use is remembered.
    pub learn: bool,
    /// How servers are found and installed.
    pub provision: ProvisionSettings,
    /// Limits of code mode.
    pub code: CodeSettings,
    /// How clients reach the gateway.
    pub serve: ServeSettings,
    /// What gateways of a fleet share.
    pub cluster: ClusterSettings,
    /// The one process that clients share.
    pub daemon: DaemonSettings,
    /// What is recorded of calls and decisions.
    pub audit: AuditSettings,
    /// List-changed notifications.
    pub notify: NotifySettings,
    /// Whether calls are counted for `/metrics`.
    pub metrics: bool,
    /// Where telemetry is sent.
    pub otel: OtelSettings,
    /// How server processes are prevented from outliving the gateway.
    pub containment: Containment,
    /// Names of variables that every server gets beside the usual ones, with commas between them.
    pub pass_env: String,
    /// Where the encryption key of OAuth tokens is.
    pub token_store: TokenStore,
    /// How much is logged.
    pub log_level: LogLevel,
}

impl Default for Settings {
    fn default() -> Self {
        resolve([]).settings
    }
}

/// An API that makes embeddings; all empty where there is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EmbeddingSettings {
    pub url: String,
    /// The model to ask for.
    pub model: String,
    /// The variable that holds its key.
    pub key_env: String,
}

/// How the strategy `bm25` weighs and what it looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bm25Settings {
    /// What a word in a tool's name counts.
    pub name_boost: u32,
    /// What a word in the server's name counts.
    pub namespace_boost: u32,
    /// What a word in a title or a tag counts.
    pub tags_boost: u32,
    /// Most tools looked at; zero for all.
    pub max_tools: usize,
    /// Characters of a description looked at; zero for the usual.
    pub max_text: usize,
}

impl Bm25Settings {
    /// What is used where nobody says anything.
    pub const USUAL: Bm25Settings = Bm25Settings {
        name_boost: 2,
        namespace_boost: 1,
        tags_boost: 1,
        max_tools: 0,
        max_text: 0,
    };
}

/// How servers are found and installed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProvisionSettings {
    /// Whether it is done at all.
    pub is_on: bool,
    /// Addresses of registries, each with the variable of its token behind a bar.
    pub registries: String,
    /// How many days old a version must be.
    pub least_days: u64,
}

/// Which calls need a person's approval, whatever their server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalSettings {
    /// For tools whose server says nothing of its own.
    pub rule: Approve,
    /// Patterns of tools that always need one, with commas between them.
    pub always: String,
    /// How long a call waits for an answer.
    pub wait: Duration,
}

/// Limits of the pool of connections, and of the breaker of each server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// Most connections alive at once.
    pub size: u32,
    /// Connections above `size` that open after waiting.
    pub reserve_size: u32,
    /// Connections the idle sweep leaves alone.
    pub min_size: u32,
    /// How long the first in the queue waits before the reserve opens; zero keeps it shut.
    pub reserve_timeout: Duration,
    /// How long a call waits for a slot.
    pub wait_timeout: Duration,
    /// How long a connection may be idle.
    pub idle_timeout: Duration,
    /// Failures in a row that open a server's breaker.
    pub failure_threshold: u32,
    /// How long an open breaker refuses.
    pub cooldown: Duration,
}

/// Time limits of what the gateway does with a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimeoutSettings {
    /// From spawn to the end of the handshake.
    pub connect: Duration,
    /// The same while an installer shows life.
    pub install: Duration,
    /// One `tools/list`.
    pub list: Duration,
    /// One `tools/call`.
    pub call: Duration,
    /// How long discovery waits for servers that are not cached.
    pub discover_budget: Duration,
    /// How long a call may take before it becomes a task; zero for never.
    pub task_after: Duration,
    /// How long calls in flight may take when the gateway ends.
    pub drain: Duration,
}

/// Sizes and numbers that a child may not exceed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitSettings {
    /// Longest line read from a child.
    pub line_bytes: usize,
    /// Longest result that is shown whole, in characters of its text; zero for no limit.
    pub result_chars: usize,
    /// Calls in flight per server.
    pub in_flight: u32,
    /// Tools taken from one server.
    pub tools_per_server: usize,
}

/// What a script written by a model may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodeSettings {
    /// The sandbox of scripts.
    pub profile: CodeProfile,
    /// The image of a container, for the profile that uses one.
    pub image: String,
    /// Wall-clock limit of a script.
    pub timeout: Duration,
    pub cpu: Duration,
    /// Memory of the engine.
    pub heap_bytes: usize,
    /// Stack of the engine.
    pub stack_bytes: usize,
    /// Longest script.
    pub source_bytes: usize,
    /// Most tool calls.
    pub calls: u32,
    /// Most tool calls at once.
    pub in_flight: u32,
    /// The same for each server.
    pub per_server: u32,
    /// Longest single sleep.
    pub sleep: Duration,
    /// Most bytes of console output.
    pub log_bytes: usize,
    /// Most bytes of output shown.
    pub shown_log_bytes: usize,
    /// Largest value returned.
    pub result_bytes: usize,
    /// Most scripts at once.
    pub executions: u32,
}

/// How clients reach the gateway, and which may.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServeSettings {
    pub transport: Transport,
    /// The address to listen on.
    pub host: String,
    /// The port; 0 lets the system choose.
    pub port: u32,
    /// Whether with TLS.
    pub tls: bool,
    /// The certificate chain, as PEM.
    pub tls_cert: Option<PathBuf>,
    /// Its key, as PEM.
    pub tls_key: Option<PathBuf>,
    /// Whether each request stands alone.
    pub stateless: bool,
    /// Whether answers are always single documents.
    pub json_response: bool,
    /// Whether ordinary POST requests are read without hyper.
    pub http_fast_path: bool,
    /// How long a session may be idle.
    pub session_timeout: Duration,
    /// A file with bearer tokens, one a line.
    pub token_file: Option<PathBuf>,
    /// The variable that holds a bearer token.
    pub token_env: String,
    /// Where the keys of signed tokens are: a file or an address.
    pub jwks: String,
    /// Who must have issued them.
    pub jwt_issuer: String,
    /// Whom they must be for.
    pub jwt_audience: String,
    /// Names clients may reach us by, separated by commas.
    pub allowed_hosts: String,
    /// Web origins that may use us, separated by commas.
    pub allowed_origins: String,
    /// Principals whose answers approve installations, separated by commas.
    pub approvers: String,
    /// Whether everybody on this machine may come in.
    pub no_auth: bool,
    /// Whether anybody may come in from elsewhere.
    pub allow_unauthenticated: bool,
}

/// A fleet of gateways.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterSettings {
    /// Where the shared key is: a path or a secret reference; empty where there is no fleet.
    pub key: String,
    /// How long another gateway may continue a session.
    pub session_lifetime: Duration,
    /// The servers of the bus, with commas; empty where there is none.
    pub servers: String,
    /// A file with a JWT and a seed.
    pub credentials: String,
    pub user: String,
    /// A secret reference, as the next two.
    pub password: String,
    pub nkey: String,
    pub token: String,
    pub ca: String,
    pub cert: String,
    pub cert_key: String,
    /// The name of this gateway; empty for one made from the host's.
    pub node: String,
    /// `NAME=VALUE`, with commas.
    pub labels: String,
    /// On how many servers of the bus everything is kept.
    pub replicas: u32,
    /// What subjects and buckets begin with.
    pub prefix: String,
    /// How long a lease lasts without its owner.
    pub lease: Duration,
    /// How many instances this gateway takes.
    pub capacity: u32,
}

/// The one process that all clients of a user share.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DaemonSettings {
    /// Whether there is one.
    pub mode: DaemonMode,
    /// How long it stays after its last client has gone; zero for ever.
    pub idle_exit: Duration,
    /// The port of its page; zero for a free one.
    pub ui_port: u16,
}

/// The audit log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AuditSettings {
    /// Whether there is one.
    pub is_on: bool,
    /// Whether a call that cannot be recorded is refused.
    pub is_required: bool,
    /// Whether values are recorded beside their digests.
    pub has_values: bool,
    /// Size at which a new file begins.
    pub file_bytes: u64,
    /// Most files.
    pub files: u64,
}

/// List-changed notifications.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NotifySettings {
    /// Whether they are sent.
    pub list_changed: bool,
    /// How long a list has to be quiet first.
    pub debounce: Duration,
    /// When one is sent for a list that keeps changing.
    pub max_wait: Duration,
}

/// Traces, metrics and logs by OTLP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtelSettings {
    /// The collector; empty where variables or nobody names one.
    pub endpoint: String,
    pub protocol: OtlpProtocol,
    /// How many of 100 traces that begin here are recorded.
    pub sample_percent: u32,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    File {
        path: PathBuf,
        line: usize,
    },
    Environment {
        name: &'static str,
    },
    /// A flag on the command line.
    Flag {
        /// Its name without the dashes.
        name: &'static str,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment { name } => write!(f, "variable {name}"),
            Self::Flag { name } => write!(f, "flag --{name}"),
        }
    }
}

/// One source's word on one setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    pub setting: &'static Setting,
    /// What it is set to.
    pub value: Value,
    pub origin: Origin,
}

/// The settings after all sources were heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    pub settings: Settings,
    /// What was given for each setting, with its origin, in the order of the table. Settings nobody mentioned and that
    /// have no default are absent.
    pub values: Vec<Given>,
    /// Combinations that make no sense and what was done about them.
    pub notes: Vec<String>,
}

impl Resolved {
    /// The value of a setting and where it comes from.
    pub fn value(&self, flag: &str) -> Option<&Given> {
        self.values.iter().find(|given| given.setting.flag == flag)
    }
}

/// Hears the sources from the weakest to the strongest: user file, project file, environment, flags.
pub fn resolve(sources: impl IntoIterator<Item = Given>) -> Resolved {
    let heard: Vec<Given> = sources.into_iter().collect();
    let mut settings = blank();
    let mut values = Vec::with_capacity(SETTINGS.len());
    for setting in SETTINGS.iter() {
        let given = heard.iter().rev().find(|given| given.setting.flag == setting.flag).cloned();
        let default = || {
            let value = setting.default.clone()?;
            Some(Given { setting, value, origin: Origin::Default })
        };
        if let Some(given) = given.or_else(default) {
            (setting.store)(&mut settings, &given.value);
            values.push(given);
        }
    }
    let notes = reconcile(&mut settings);
    Resolved { settings, values, notes }
}

/// The value of a setting from the environment, where the variable is set and not empty.
pub fn from_environment(lookup: &dyn Fn(&str) -> Option<String>) -> (Vec<Given>, Vec<ValueError>) {
    let mut given = Vec::new();
    let mut errors = Vec::new();
    for setting in SETTINGS.iter() {
        let mut names = std::iter::once(setting.env).chain(setting.env_aliases().iter().copied());
        let said =
            names.find_map(|name| Some((name, lookup(name).filter(|text| !text.is_empty())?)));
        let Some((name, text)) = said else { continue };
        let origin = Origin::Environment { name };
        match setting.kind.from_text(&text) {
            Ok(value) => given.push(Given { setting, value, origin }),
            Err(error) => errors.push(error.at(origin)),
        }
    }
    (given, errors)
}

/// Every field is stored from the table before anyone sees it; these values are never observed.
fn blank() -> Settings {
    Settings {
        config: None,
        home: PathBuf::new(),
        pool: PoolSettings::default(),
        timeouts: TimeoutSettings::default(),
        limits: LimitSettings::default(),
        catalog_ttl: Duration::ZERO,
        replay: Replay::Annotated,
        surface: ToolSurface::Compact,
        approvals: ApprovalSettings::default(),
        redact: true,
        pin_tokens: 0,
        toolset: String::new(),
        search: Strategy::Auto,
        bm25: Bm25Settings::USUAL,
        embedding: EmbeddingSettings::default(),
        learn: false,
        provision: ProvisionSettings::default(),
        code: CodeSettings::default(),
        serve: ServeSettings::default(),
        cluster: ClusterSettings::default(),
        daemon: DaemonSettings::default(),
        audit: AuditSettings::default(),
        notify: NotifySettings::default(),
        metrics: true,
        otel: OtelSettings::default(),
        containment: Containment::Auto,
        pass_env: String::new(),
        token_store: TokenStore::Auto,
        log_level: LogLevel::Warn,
    }
}

/// Settles combinations that contradict each other, and says so.
fn reconcile(settings: &mut Settings) -> Vec<String> {
    let mut notes = Vec::new();
    // What must be recorded is recorded.
    settings.audit.is_on |= settings.audit.is_required;
    // Clients of a fleet come to any of its gateways; one that many configurations share is not any of them.
    if !settings.cluster.key.is_empty() && settings.serve.transport != Transport::Stdio {
        if settings.daemon.mode == DaemonMode::Require {
            notes.push("daemon.mode `require` has no effect with cluster-key: a gateway of a fleet is a process of its own".to_owned());
        }
        settings.daemon.mode = DaemonMode::Off;
    }
    if !settings.cluster.servers.is_empty() {
        settings.daemon.mode = DaemonMode::Off;
    }
    let pool = &mut settings.pool;
    if pool.min_size > pool.size {
        notes.push(format!(
            "minPoolSize {} is more than poolSize {}; {} is used",
            pool.min_size, pool.size, pool.size
        ));
        pool.min_size = pool.size;
    }
    if pool.reserve_size > 0 && pool.reserve_timeout.is_zero() {
        notes.push(format!(
            "resPoolSize {} has no effect because resPoolTimeout is 0",
            pool.reserve_size
        ));
    }
    let timeouts = &mut settings.timeouts;
    if timeouts.install < timeouts.connect {
        notes.push(format!(
            "installTimeoutMs {} is less than connectTimeoutMs {}; {} is used",
            timeouts.install.as_millis(),
            timeouts.connect.as_millis(),
            timeouts.connect.as_millis()
        ));
        timeouts.install = timeouts.connect;
    }
    notes
}

#[cfg(test)]
mod tests;
