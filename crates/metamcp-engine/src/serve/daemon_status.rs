//! The state of the daemon as `metamcp status` and `top` show it.
//! Owns: the words and units of it.      Never: gathers it (`serve/daemon` does), renders it.
//! In: JSON of a daemon, possibly of another version; what is missing is empty.  Out: the same for its reader.
//! Tests: `metamcp/src/commands/status.rs`, `metamcp/tests/daemon/status.rs`.

use serde::{Deserialize, Serialize};

use crate::audit::Health;

/// The whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct DaemonStatus {
    pub version: String,
    pub pid: u32,
    pub home: String,
    pub socket: String,
    pub log: String,
    pub uptime_ms: u64,
    /// Proportional set size where the system knows it, else what is resident.
    pub memory_bytes: Option<u64>,
    /// It takes no new sessions, and ends with its last one.
    pub draining: bool,
    /// How long it goes on without a session; `None` if it does so for ever.
    pub idle_exit_ms: Option<u64>,
    /// How the audit log is, if it is on.
    pub audit: Option<AuditStatus>,
    /// How many contexts it holds: folders with flags and variables that sessions came with.
    pub contexts: u32,
    /// Addresses on which it serves HTTP.
    pub listeners: Vec<String>,
    pub sessions: Vec<SessionStatus>,
    pub servers: Vec<ServerStatus>,
}

/// The audit log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AuditStatus {
    /// Lines that this process wrote.
    pub lines: u64,
    /// Events that it could not record and has forgotten.
    pub lost: u64,
    /// Why it cannot be written now.
    pub failing: Option<String>,
    /// The last line, as `metamcp audit head` prints it.
    pub head: Option<String>,
}

impl AuditStatus {
    pub(crate) fn of(health: &Health) -> AuditStatus {
        AuditStatus {
            lines: health.lines,
            lost: health.lost,
            failing: health.failing.as_deref().map(str::to_owned),
            head: health.head.map(|head| head.to_string()),
        }
    }
}

/// One client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct SessionStatus {
    /// Its number in this daemon.
    pub id: u64,
    /// `stdio`, `http` or `command`.
    pub kind: String,
    /// Name and version, as the client said them.
    pub client: String,
    /// The process of its connector.
    pub pid: Option<u32>,
    pub folder: String,
    pub age_ms: u64,
    /// Calls so far, and how many of them are open.
    pub calls: u64,
    pub in_flight: u32,
}

/// One definition of a server. Two contexts in which a name means different things have two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServerStatus {
    pub name: String,
    /// Who shares an instance: `machine`, `project` or `session`.
    pub scope: String,
    /// Calls that wait for an instance.
    pub queued: u32,
    /// `open` or `probing` where the circuit breaker of an instance is, else `normal`.
    pub breaker: String,
    /// Why it could not be used last, while that matters.
    pub failure: Option<String>,
    pub instances: Vec<InstanceStatus>,
}

/// One process of a server, or one connection to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceStatus {
    /// Whose it is: a folder for `project`, a client for `session`, empty for `machine`.
    pub of: String,
    /// `active`, `idle`, `connecting`, `failed`, `closed`, `stopped`.
    pub state: String,
    pub pid: Option<u32>,
    /// Its whole process tree.
    pub memory_bytes: Option<u64>,
    pub age_ms: Option<u64>,
    pub in_flight: u32,
    /// `normal`, `open` or `probing`.
    pub breaker: String,
    /// The ids of the sessions that use it.
    pub sessions: Vec<u64>,
    /// Why it could not be used last.
    pub failure: Option<String>,
}

/// The answer to `overview`: the status, and how much is going on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Overview {
    pub status: DaemonStatus,
    /// The last whole seconds, oldest first: calls, failures, the longest call in microseconds.
    pub rates: Vec<(u32, u32, u64)>,
    /// Latencies within these seconds.
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
    /// Calls and searches since the daemon started.
    pub calls: u64,
    pub searches: u64,
    /// The number of the newest event.
    pub last_event: u64,
    /// In the order of the status's servers.
    pub server_calls: Vec<ServerCalls>,
    pub pool: PoolUse,
}

/// What is counted of a server since the daemon started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServerCalls {
    pub name: String,
    pub calls: u64,
    pub failed: u64,
    pub p50_us: Option<u64>,
    pub p99_us: Option<u64>,
    /// When it was last called, in milliseconds since 1970.
    pub last_ms: Option<u64>,
}

/// How full the pool is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PoolUse {
    pub used: u64,
    pub size: u64,
    /// Servers that wait for a slot.
    pub waiting: u64,
}
