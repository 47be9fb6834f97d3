//! The table of all global settings. Flags, variables, file keys, help, docs and schema are made from it.

use std::borrow::Cow;
use std::path::PathBuf;

use super::Settings;
use super::value::{Kind, Value};
use super::words::{CodeProfile, Containment, LogLevel, Replay, SearchStrategy, Transport};

/// One global setting.
pub struct Setting {
    /// Its key in the file, with a dot between object and key; `None` where a file cannot set it.
    pub key: Option<&'static str>,
    /// Other names of the last part of the key.
    pub aliases: &'static [&'static str],
    /// Its flag without the dashes. Also what identifies the setting.
    pub flag: &'static str,
    /// Its environment variable.
    pub env: &'static str,
    /// Its type and range.
    pub kind: Kind,
    /// Its value where nobody says anything.
    pub default: Option<Value>,
    /// One line, for `--help`.
    pub help: &'static str,
    /// More, for the reference.
    pub doc: &'static str,
    /// Puts a value of this kind into its place.
    pub(super) store: fn(&mut Settings, &Value),
}

impl PartialEq for Setting {
    fn eq(&self, other: &Self) -> bool {
        self.flag == other.flag
    }
}

impl Eq for Setting {}

impl std::fmt::Debug for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Setting({})", self.flag)
    }
}

/// Variables of metatools that mean the same as ours, for those who come from there.
const METATOOLS: &[(&str, &[&str])] = &[
    ("transport", &["METATOOLS_TRANSPORT", "METATOOLS_TRANSPORT_TYPE"]),
    ("host", &["METATOOLS_HOST", "METATOOLS_TRANSPORT_STREAMABLE_HOST"]),
    ("port", &["METATOOLS_PORT", "METATOOLS_TRANSPORT_STREAMABLE_PORT"]),
    ("tls", &["METATOOLS_TLS", "METATOOLS_TRANSPORT_STREAMABLE_TLS_ENABLED"]),
    ("tls-cert", &["METATOOLS_TLS_CERT", "METATOOLS_TRANSPORT_STREAMABLE_TLS_CERT"]),
    ("tls-key", &["METATOOLS_TLS_KEY", "METATOOLS_TRANSPORT_STREAMABLE_TLS_KEY"]),
    ("stateless", &["METATOOLS_STATELESS", "METATOOLS_TRANSPORT_STREAMABLE_STATELESS"]),
    ("json-response", &["METATOOLS_JSON_RESPONSE", "METATOOLS_TRANSPORT_STREAMABLE_JSON_RESPONSE"]),
    (
        "session-timeout",
        &["METATOOLS_SESSION_TIMEOUT", "METATOOLS_TRANSPORT_STREAMABLE_SESSION_TIMEOUT"],
    ),
];

impl Setting {
    /// Other variables that set it, asked after its own.
    pub fn env_aliases(&self) -> &'static [&'static str] {
        METATOOLS.iter().find(|(flag, _)| *flag == self.flag).map_or(&[], |(_, names)| names)
    }
}

/// The setting with this key in the file, under its own name or another.
pub fn by_file_key(path: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| {
        let Some(key) = setting.key else { return false };
        key == path
            || setting.aliases.iter().any(|alias| match key.rsplit_once('.') {
                Some((object, _)) => {
                    path.strip_prefix(object).and_then(|rest| rest.strip_prefix('.'))
                        == Some(*alias)
                }
                None => path == *alias,
            })
    })
}

/// The setting with this flag, given without the dashes.
pub fn by_flag(flag: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.flag == flag)
}

/// No time limit needs more, and the sum of a few stays far from overflow.
const DAY: u64 = 86_400_000;
/// More child processes than one machine carries.
const MOST_CONNECTIONS: u64 = 4_096;

const TIME: Kind = Kind::Millis { min: 1, max: DAY };
const TIME_OR_ZERO: Kind = Kind::Millis { min: 0, max: DAY };

/// Every global setting, in the order of the reference.
pub static SETTINGS: &[Setting] = &[
    Setting {
        key: None,
        aliases: &[],
        flag: "config",
        env: "METAMCP_CONFIG",
        kind: Kind::Path,
        default: None,
        help: "Read this file, and no other",
        doc: "Without it, `.mcp.json` in the working directory is read, else `mcp.json` in the home directory of metamcp. \
              The file named here is the only one read: settings of the user's own file do not apply beneath it.",
        store: |settings, value| settings.config = Some(PathBuf::from(&*value.text())),
    },
    Setting {
        key: None,
        aliases: &[],
        flag: "home",
        env: "METAMCP_HOME",
        kind: Kind::Path,
        default: Some(Value::Path(Cow::Borrowed("~/.metamcp"))),
        help: "Keep the user's own config file and the caches in this directory",
        doc: "Created when first needed, readable by its owner only. Several gateways may share one home. \
              A file cannot set it, since it decides where files are looked for.",
        store: |settings, value| settings.home = PathBuf::from(&*value.text()),
    },
    Setting {
        key: Some("pool.poolSize"),
        aliases: &["maxConnections"],
        flag: "max-connections",
        env: "METAMCP_MAX_CONNECTIONS",
        kind: Kind::Count { min: 1, max: MOST_CONNECTIONS },
        default: Some(Value::Number(20)),
        help: "Most child servers connected at once",
        doc: "When the pool is full, the server that has been idle longest makes room for the next one; \
              when none is idle, the call waits. A call to a server that is connected never waits for a slot.",
        store: |settings, value| settings.pool.size = value.count(),
    },
    Setting {
        key: Some("pool.resPoolSize"),
        aliases: &[],
        flag: "reserve-connections",
        env: "METAMCP_RESERVE_CONNECTIONS",
        kind: Kind::Count { min: 0, max: MOST_CONNECTIONS },
        default: Some(Value::Number(0)),
        help: "Connections above the maximum that open after waiting",
        doc: "They open one at a time, for the call that has waited `resPoolTimeout`, and close as soon as they are idle. \
              0 means no reserve.",
        store: |settings, value| settings.pool.reserve_size = value.count(),
    },
    Setting {
        key: Some("pool.minPoolSize"),
        aliases: &[],
        flag: "min-connections",
        env: "METAMCP_MIN_CONNECTIONS",
        kind: Kind::Count { min: 0, max: MOST_CONNECTIONS },
        default: Some(Value::Number(0)),
        help: "Connections that idle time does not close",
        doc: "Counted over all servers. It guards against the idle timeout; a full pool may still swap one server for another, \
              since the number stays the same.",
        store: |settings, value| settings.pool.min_size = value.count(),
    },
    Setting {
        key: Some("pool.resPoolTimeout"),
        aliases: &["resPoolTimeoutMs"],
        flag: "reserve-timeout",
        env: "METAMCP_RESERVE_TIMEOUT",
        kind: TIME_OR_ZERO,
        default: Some(Value::Number(5_000)),
        help: "How long a call waits before the reserve opens for it",
        doc: "0 keeps the reserve shut.",
        store: |settings, value| settings.pool.reserve_timeout = value.millis(),
    },
    Setting {
        key: Some("pool.poolWaitTimeoutMs"),
        aliases: &[],
        flag: "pool-wait-timeout",
        env: "METAMCP_POOL_WAIT_TIMEOUT",
        kind: TIME,
        default: Some(Value::Number(30_000)),
        help: "How long a call waits for a free connection",
        doc: "After that it fails and says who holds the connections. Keep it below the client's own time limit, often 60 s.",
        store: |settings, value| settings.pool.wait_timeout = value.millis(),
    },
    Setting {
        key: Some("pool.idleTimeoutMs"),
        aliases: &[],
        flag: "idle-timeout",
        env: "METAMCP_IDLE_TIMEOUT",
        kind: TIME,
        default: Some(Value::Number(300_000)),
        help: "How long a server may be idle before it is stopped",
        doc: "A server's own `idleTimeoutMs` and `lifecycle` go before it.",
        store: |settings, value| settings.pool.idle_timeout = value.millis(),
    },
    Setting {
        key: Some("pool.failureThreshold"),
        aliases: &[],
        flag: "failure-threshold",
        env: "METAMCP_FAILURE_THRESHOLD",
        kind: Kind::Count { min: 1, max: 1_000 },
        default: Some(Value::Number(5)),
        help: "Failures in a row after which a server is left alone",
        doc: "Counted per server. A tool that answers with an error, a refused login and a cancelled call are not failures of the server.",
        store: |settings, value| settings.pool.failure_threshold = value.count(),
    },
    Setting {
        key: Some("pool.cooldownMs"),
        aliases: &[],
        flag: "cooldown",
        env: "METAMCP_COOLDOWN",
        kind: TIME,
        default: Some(Value::Number(30_000)),
        help: "How long a failing server is left alone",
        doc: "Calls to it fail at once meanwhile. Then one call is let through to try; if it fails, the time starts again.",
        store: |settings, value| settings.pool.cooldown = value.millis(),
    },
    Setting {
        key: Some("timeouts.connectTimeoutMs"),
        aliases: &[],
        flag: "connect-timeout",
        env: "METAMCP_CONNECT_TIMEOUT",
        kind: TIME,
        default: Some(Value::Number(60_000)),
        help: "Time limit from starting a server to the end of its handshake",
        doc: "A server that is still being installed has longer: see `installTimeoutMs`.",
        store: |settings, value| settings.timeouts.connect = value.millis(),
    },
    Setting {
        key: Some("timeouts.installTimeoutMs"),
        aliases: &[],
        flag: "install-timeout",
        env: "METAMCP_INSTALL_TIMEOUT",
        kind: TIME,
        default: Some(Value::Number(300_000)),
        help: "The same limit while npx, uvx or docker are at work",
        doc: "The first start of a package may download it. As long as the installer shows life, it is not interrupted before this.",
        store: |settings, value| settings.timeouts.install = value.millis(),
    },
    Setting {
        key: Some("timeouts.listTimeoutMs"),
        aliases: &[],
        flag: "list-timeout",
        env: "METAMCP_LIST_TIMEOUT",
        kind: TIME,
        default: Some(Value::Number(15_000)),
        help: "Time limit for a server to list its tools",
        doc: "For each page of the list.",
        store: |settings, value| settings.timeouts.list = value.millis(),
    },
    Setting {
        key: Some("timeouts.callTimeoutMs"),
        aliases: &[],
        flag: "call-timeout",
        env: "METAMCP_CALL_TIMEOUT",
        kind: TIME,
        default: Some(Value::Number(60_000)),
        help: "Time limit of a tool call",
        doc: "A server's own `timeoutMs` goes before it. Progress reported by the tool starts the time again, up to ten times the limit. \
              A call that runs out of time may still have run: it is reported so and never sent again.",
        store: |settings, value| settings.timeouts.call = value.millis(),
    },
    Setting {
        key: Some("timeouts.discoverBudgetMs"),
        aliases: &[],
        flag: "discover-budget",
        env: "METAMCP_DISCOVER_BUDGET",
        kind: TIME_OR_ZERO,
        default: Some(Value::Number(1_500)),
        help: "How long discovery waits for servers it knows nothing about yet",
        doc: "Servers that take longer are named as pending and show up in the next answer. 0 never waits.",
        store: |settings, value| settings.timeouts.discover_budget = value.millis(),
    },
    Setting {
        key: Some("limits.maxLineBytes"),
        aliases: &[],
        flag: "max-line-bytes",
        env: "METAMCP_MAX_LINE_BYTES",
        kind: Kind::Bytes { min: 65_536, max: 1 << 30 },
        default: Some(Value::Number(16 << 20)),
        help: "Longest message accepted from a server",
        doc: "A longer one is thrown away as it arrives, and the call it answers fails with that reason.",
        store: |settings, value| settings.limits.line_bytes = value.size(),
    },
    Setting {
        key: Some("limits.maxInFlight"),
        aliases: &[],
        flag: "max-in-flight",
        env: "METAMCP_MAX_IN_FLIGHT",
        kind: Kind::Count { min: 1, max: 65_536 },
        default: Some(Value::Number(64)),
        help: "Most calls a server is given at once",
        doc: "A server's own `maxInFlight` and `exclusive` go before it.",
        store: |settings, value| settings.limits.in_flight = value.count(),
    },
    Setting {
        key: Some("limits.maxToolsPerServer"),
        aliases: &[],
        flag: "max-tools-per-server",
        env: "METAMCP_MAX_TOOLS_PER_SERVER",
        kind: Kind::Count { min: 1, max: 100_000 },
        default: Some(Value::Number(2_000)),
        help: "Most tools taken from one server",
        doc: "The rest of a longer list is left out, with a warning.",
        store: |settings, value| settings.limits.tools_per_server = value.size(),
    },
    Setting {
        key: Some("catalogTtlMs"),
        aliases: &[],
        flag: "catalog-ttl",
        env: "METAMCP_CATALOG_TTL",
        kind: TIME_OR_ZERO,
        default: Some(Value::Number(3_600_000)),
        help: "How long a server's list of tools counts as fresh",
        doc: "An older list is still shown, and read anew in the background.",
        store: |settings, value| settings.catalog_ttl = value.millis(),
    },
    Setting {
        key: Some("replay"),
        aliases: &[],
        flag: "replay",
        env: "METAMCP_REPLAY",
        kind: Kind::Word(Replay::WORDS),
        default: Some(Value::Word("annotated")),
        help: "Whether a call may be sent again after its server died",
        doc: "A server's own `retry` refines it. A call that ran out of time is never sent again.",
        store: |settings, value| {
            settings.replay = Replay::from_word(&value.text()).unwrap_or(settings.replay);
        },
    },
    Setting {
        key: Some("search.strategy"),
        aliases: &[],
        flag: "search",
        env: "METAMCP_SEARCH",
        kind: Kind::Word(SearchStrategy::WORDS),
        default: Some(Value::Word("hybrid")),
        help: "How tools are ranked for a query",
        doc: "",
        store: |settings, value| {
            settings.search = SearchStrategy::from_word(&value.text()).unwrap_or(settings.search);
        },
    },
    Setting {
        key: Some("search.embeddingUrl"),
        aliases: &[],
        flag: "embedding-url",
        env: "METAMCP_EMBEDDING_URL",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "Where the strategy `embedding` gets its vectors",
        doc: "Any OpenAI-compatible address, such as `https://api.openai.com/v1/embeddings`, or one of Ollama, such as `http://localhost:11434/api/embed`.",
        store: |settings, value| settings.embedding.url = value.text().into_owned(),
    },
    Setting {
        key: Some("search.embeddingModel"),
        aliases: &[],
        flag: "embedding-model",
        env: "METAMCP_EMBEDDING_MODEL",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "The model to ask that address for",
        doc: "Such as `text-embedding-3-small` or `nomic-embed-text`.",
        store: |settings, value| settings.embedding.model = value.text().into_owned(),
    },
    Setting {
        key: Some("search.embeddingKeyEnv"),
        aliases: &[],
        flag: "embedding-key-env",
        env: "METAMCP_EMBEDDING_KEY_ENV",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "The environment variable that holds the key for that address",
        doc: "The name of the variable, never the key itself. A key that belongs to one company is sent to no other.",
        store: |settings, value| settings.embedding.key_env = value.text().into_owned(),
    },
    Setting {
        key: Some("search.learn"),
        aliases: &[],
        flag: "learn",
        env: "METAMCP_LEARN",
        kind: Kind::Switch,
        default: Some(Value::Switch(true)),
        help: "Whether tools that worked after a search rank higher next time",
        doc: "Remembered are hashes of a query's words, the tool called next and whether it worked; never arguments, never results. \
              It stays in `habits.json` in the home of metamcp, fades within months, and `metamcp forget` removes it. \
              It lifts tools that match well anyway, for the strategies `bm25` and `hybrid`, and never above a tool that was asked for by its name.",
        store: |settings, value| settings.learn = value.is_on(),
    },
    Setting {
        key: Some("code.profile"),
        aliases: &[],
        flag: "code-profile",
        env: "METAMCP_CODE_PROFILE",
        kind: Kind::Word(CodeProfile::WORDS),
        default: Some(Value::Word("standard")),
        help: "How code written by a model is kept apart",
        doc: "What this machine cannot provide is refused with the reason, never replaced by something weaker.",
        store: |settings, value| {
            settings.code.profile =
                CodeProfile::from_word(&value.text()).unwrap_or(settings.code.profile);
        },
    },
    Setting {
        key: Some("code.timeoutMs"),
        aliases: &[],
        flag: "code-timeout",
        env: "METAMCP_CODE_TIMEOUT",
        kind: TIME,
        default: Some(Value::Number(120_000)),
        help: "Time limit of a script, waiting for tools included",
        doc: "A script may ask for less with `timeoutMs`, never for more.",
        store: |settings, value| settings.code.timeout = value.millis(),
    },
    Setting {
        key: Some("code.cpuMs"),
        aliases: &[],
        flag: "code-cpu-time",
        env: "METAMCP_CODE_CPU_TIME",
        kind: Kind::Millis { min: 1, max: 60_000 },
        default: Some(Value::Number(5_000)),
        help: "Processor time of a script",
        doc: "Waiting for tools and sleeping do not count.",
        store: |settings, value| settings.code.cpu = value.millis(),
    },
    Setting {
        key: Some("code.heapBytes"),
        aliases: &[],
        flag: "code-heap-bytes",
        env: "METAMCP_CODE_HEAP_BYTES",
        kind: Kind::Bytes { min: 4 << 20, max: 128 << 20 },
        default: Some(Value::Number(64 << 20)),
        help: "Memory of a script",
        doc: "A worker's address space is fixed before its script is known, hence the upper bound.",
        store: |settings, value| settings.code.heap_bytes = value.size(),
    },
    Setting {
        key: Some("code.stackBytes"),
        aliases: &[],
        flag: "code-stack-bytes",
        env: "METAMCP_CODE_STACK_BYTES",
        kind: Kind::Bytes { min: 64 << 10, max: 4 << 20 },
        default: Some(Value::Number(512 << 10)),
        help: "Stack of a script",
        doc: "",
        store: |settings, value| settings.code.stack_bytes = value.size(),
    },
    Setting {
        key: Some("code.sourceBytes"),
        aliases: &[],
        flag: "code-source-bytes",
        env: "METAMCP_CODE_SOURCE_BYTES",
        kind: Kind::Bytes { min: 1 << 10, max: 64 << 10 },
        default: Some(Value::Number(64 << 10)),
        help: "Longest script accepted",
        doc: "",
        store: |settings, value| settings.code.source_bytes = value.size(),
    },
    Setting {
        key: Some("code.maxCalls"),
        aliases: &[],
        flag: "code-max-calls",
        env: "METAMCP_CODE_MAX_CALLS",
        kind: Kind::Count { min: 1, max: 100_000 },
        default: Some(Value::Number(250)),
        help: "Most tool calls of one script",
        doc: "",
        store: |settings, value| settings.code.calls = value.count(),
    },
    Setting {
        key: Some("code.maxInFlight"),
        aliases: &[],
        flag: "code-max-in-flight",
        env: "METAMCP_CODE_MAX_IN_FLIGHT",
        kind: Kind::Count { min: 1, max: 1_024 },
        default: Some(Value::Number(16)),
        help: "Most tool calls of one script at once",
        doc: "Further ones wait their turn.",
        store: |settings, value| settings.code.in_flight = value.count(),
    },
    Setting {
        key: Some("code.maxPerServer"),
        aliases: &[],
        flag: "code-max-per-server",
        env: "METAMCP_CODE_MAX_PER_SERVER",
        kind: Kind::Count { min: 1, max: 1_024 },
        default: Some(Value::Number(8)),
        help: "The same for each server",
        doc: "",
        store: |settings, value| settings.code.per_server = value.count(),
    },
    Setting {
        key: Some("code.maxSleepMs"),
        aliases: &[],
        flag: "code-max-sleep",
        env: "METAMCP_CODE_MAX_SLEEP",
        kind: TIME,
        default: Some(Value::Number(30_000)),
        help: "Longest single sleep of a script",
        doc: "",
        store: |settings, value| settings.code.sleep = value.millis(),
    },
    Setting {
        key: Some("code.logBytes"),
        aliases: &[],
        flag: "code-log-bytes",
        env: "METAMCP_CODE_LOG_BYTES",
        kind: Kind::Bytes { min: 1 << 10, max: 64 << 20 },
        default: Some(Value::Number(256 << 10)),
        help: "How much a script may print",
        doc: "What comes after is dropped, and the answer says so.",
        store: |settings, value| settings.code.log_bytes = value.size(),
    },
    Setting {
        key: Some("code.shownLogBytes"),
        aliases: &[],
        flag: "code-shown-log-bytes",
        env: "METAMCP_CODE_SHOWN_LOG_BYTES",
        kind: Kind::Bytes { min: 0, max: 64 << 20 },
        default: Some(Value::Number(8 << 10)),
        help: "How much of that the answer shows",
        doc: "",
        store: |settings, value| settings.code.shown_log_bytes = value.size(),
    },
    Setting {
        key: Some("code.resultBytes"),
        aliases: &[],
        flag: "code-result-bytes",
        env: "METAMCP_CODE_RESULT_BYTES",
        kind: Kind::Bytes { min: 1 << 10, max: 64 << 20 },
        default: Some(Value::Number(10 << 20)),
        help: "Largest value a script may return",
        doc: "",
        store: |settings, value| settings.code.result_bytes = value.size(),
    },
    Setting {
        key: Some("code.shownResultChars"),
        aliases: &[],
        flag: "code-shown-result-chars",
        env: "METAMCP_CODE_SHOWN_RESULT_CHARS",
        kind: Kind::Count { min: 100, max: 10_000_000 },
        default: Some(Value::Number(24_000)),
        help: "How much of it the answer shows",
        doc: "The rest is kept for 30 minutes and read by its handle.",
        store: |settings, value| settings.code.shown_result_chars = value.size(),
    },
    Setting {
        key: Some("code.maxExecutions"),
        aliases: &[],
        flag: "code-max-executions",
        env: "METAMCP_CODE_MAX_EXECUTIONS",
        kind: Kind::Count { min: 1, max: 64 },
        default: Some(Value::Number(4)),
        help: "Most scripts running at once",
        doc: "Further ones wait their turn.",
        store: |settings, value| settings.code.executions = value.count(),
    },
    Setting {
        key: Some("serve.transport"),
        aliases: &[],
        flag: "transport",
        env: "METAMCP_TRANSPORT",
        kind: Kind::Word(Transport::WORDS),
        default: Some(Value::Word("stdio")),
        help: "How clients reach the gateway",
        doc: "",
        store: |settings, value| {
            settings.serve.transport =
                Transport::from_word(&value.text()).unwrap_or(settings.serve.transport);
        },
    },
    Setting {
        key: Some("serve.host"),
        aliases: &[],
        flag: "host",
        env: "METAMCP_HOST",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed("127.0.0.1"))),
        help: "Address to listen on, over HTTP",
        doc: "With an address that other machines can reach, clients have to show a token: see `token-file`, `token-env` and `jwks`.",
        store: |settings, value| settings.serve.host = value.text().into_owned(),
    },
    Setting {
        key: Some("serve.port"),
        aliases: &[],
        flag: "port",
        env: "METAMCP_PORT",
        kind: Kind::Count { min: 0, max: 65_535 },
        default: Some(Value::Number(8080)),
        help: "Port to listen on, over HTTP",
        doc: "0 lets the system choose one; the line on stderr says which.",
        store: |settings, value| settings.serve.port = value.count(),
    },
    Setting {
        key: Some("serve.tls"),
        aliases: &[],
        flag: "tls",
        env: "METAMCP_TLS",
        kind: Kind::Switch,
        default: Some(Value::Switch(false)),
        help: "Listen with TLS",
        doc: "Needs `tls-cert` and `tls-key`. The files are read again when they change.",
        store: |settings, value| settings.serve.tls = value.is_on(),
    },
    Setting {
        key: Some("serve.tlsCert"),
        aliases: &[],
        flag: "tls-cert",
        env: "METAMCP_TLS_CERT",
        kind: Kind::Path,
        default: None,
        help: "Certificate chain, as PEM",
        doc: "",
        store: |settings, value| settings.serve.tls_cert = Some(PathBuf::from(&*value.text())),
    },
    Setting {
        key: Some("serve.tlsKey"),
        aliases: &[],
        flag: "tls-key",
        env: "METAMCP_TLS_KEY",
        kind: Kind::Path,
        default: None,
        help: "Key of the certificate, as PEM",
        doc: "",
        store: |settings, value| settings.serve.tls_key = Some(PathBuf::from(&*value.text())),
    },
    Setting {
        key: Some("serve.stateless"),
        aliases: &[],
        flag: "stateless",
        env: "METAMCP_STATELESS",
        kind: Kind::Switch,
        default: Some(Value::Switch(false)),
        help: "No sessions: each HTTP request stands alone",
        doc: "Servers cannot ask the client anything then, and a client that closes its request cancels it.",
        store: |settings, value| settings.serve.stateless = value.is_on(),
    },
    Setting {
        key: Some("serve.jsonResponse"),
        aliases: &[],
        flag: "json-response",
        env: "METAMCP_JSON_RESPONSE",
        kind: Kind::Switch,
        default: Some(Value::Switch(false)),
        help: "Always answer with one JSON document, never with a stream",
        doc: "Progress and questions of servers then go to the stream a client opens with GET, if it has one open.",
        store: |settings, value| settings.serve.json_response = value.is_on(),
    },
    Setting {
        key: Some("serve.sessionTimeoutMs"),
        aliases: &[],
        flag: "session-timeout",
        env: "METAMCP_SESSION_TIMEOUT",
        kind: TIME,
        default: Some(Value::Number(1_800_000)),
        help: "How long an HTTP session may be idle",
        doc: "A client that comes back later is told to start anew.",
        store: |settings, value| settings.serve.session_timeout = value.millis(),
    },
    Setting {
        key: Some("serve.tokenFile"),
        aliases: &[],
        flag: "token-file",
        env: "METAMCP_TOKEN_FILE",
        kind: Kind::Path,
        default: None,
        help: "Bearer tokens that let a client in, one a line",
        doc: "Lines that are empty or start with `#` do not count. Each token is a client of its own: it cannot use the sessions of another.",
        store: |settings, value| settings.serve.token_file = Some(PathBuf::from(&*value.text())),
    },
    Setting {
        key: Some("serve.tokenEnv"),
        aliases: &[],
        flag: "token-env",
        env: "METAMCP_TOKEN_ENV",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "Name of a variable that holds one more such token",
        doc: "",
        store: |settings, value| settings.serve.token_env = value.text().into_owned(),
    },
    Setting {
        key: Some("serve.jwks"),
        aliases: &[],
        flag: "jwks",
        env: "METAMCP_JWKS",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "Keys of signed tokens (JWKS) that let a client in: file or URL",
        doc: "A token must be signed by one of these keys (RS256, ES256 or EdDSA), come from `jwt-issuer`, be meant for `jwt-audience`, and not be out of date.",
        store: |settings, value| settings.serve.jwks = value.text().into_owned(),
    },
    Setting {
        key: Some("serve.jwtIssuer"),
        aliases: &[],
        flag: "jwt-issuer",
        env: "METAMCP_JWT_ISSUER",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "Who must have issued signed tokens",
        doc: "Also named to clients without a token as the place to get one.",
        store: |settings, value| settings.serve.jwt_issuer = value.text().into_owned(),
    },
    Setting {
        key: Some("serve.jwtAudience"),
        aliases: &[],
        flag: "jwt-audience",
        env: "METAMCP_JWT_AUDIENCE",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "Whom signed tokens must be for",
        doc: "The address of this gateway as clients know it. Never passed on to servers.",
        store: |settings, value| settings.serve.jwt_audience = value.text().into_owned(),
    },
    Setting {
        key: Some("serve.allowedHosts"),
        aliases: &[],
        flag: "allowed-hosts",
        env: "METAMCP_ALLOWED_HOSTS",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "More names clients may reach the gateway by",
        doc: "Separated by commas. A request for any other name is refused, which keeps web pages from reaching the gateway under a name of their own. `localhost` is always among them, and so is any bare address when `host` is not a local one.",
        store: |settings, value| settings.serve.allowed_hosts = value.text().into_owned(),
    },
    Setting {
        key: Some("serve.allowedOrigins"),
        aliases: &[],
        flag: "allowed-origins",
        env: "METAMCP_ALLOWED_ORIGINS",
        kind: Kind::Text,
        default: Some(Value::Text(Cow::Borrowed(""))),
        help: "Web origins whose pages may use the gateway",
        doc: "Such as `https://app.example.org`, separated by commas. Requests of other pages are refused; those of pages on this machine are answered, but browsers do not show them the answer.",
        store: |settings, value| settings.serve.allowed_origins = value.text().into_owned(),
    },
    Setting {
        key: None,
        aliases: &[],
        flag: "allow-unauthenticated",
        env: "METAMCP_ALLOW_UNAUTHENTICATED",
        kind: Kind::Switch,
        default: Some(Value::Switch(false)),
        help: "Let anybody in who can reach the port",
        doc: "For a gateway that something else guards, such as the network of a container. A file cannot set it.",
        store: |settings, value| settings.serve.allow_unauthenticated = value.is_on(),
    },
    Setting {
        key: Some("containment"),
        aliases: &[],
        flag: "containment",
        env: "METAMCP_CONTAINMENT",
        kind: Kind::Word(Containment::WORDS),
        default: Some(Value::Word("auto")),
        help: "How servers are kept from outliving the gateway",
        doc: "A server's own `containment` goes before it.",
        store: |settings, value| {
            settings.containment =
                Containment::from_word(&value.text()).unwrap_or(settings.containment);
        },
    },
    Setting {
        key: Some("logLevel"),
        aliases: &[],
        flag: "log-level",
        env: "METAMCP_LOG_LEVEL",
        kind: Kind::Word(LogLevel::WORDS),
        default: Some(Value::Word("warn")),
        help: "How much is written to the log on stderr",
        doc: "",
        store: |settings, value| {
            settings.log_level = LogLevel::from_word(&value.text()).unwrap_or(settings.log_level);
        },
    },
];
