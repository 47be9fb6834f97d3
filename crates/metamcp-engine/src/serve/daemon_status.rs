//! The state of the daemon as `metamcp status` shows it.
//! Owns: the words and units of it.      Never: gathers it (`serve/daemon.rs` does), renders it.
//! In: JSON of a daemon, possibly of another version; what is missing is empty.  Out: the same for its reader.
//! Tests: `metamcp/src/commands/status.rs`, `metamcp/tests/daemon/status.rs`.

use serde::{Deserialize, Serialize};

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
    /// How many contexts it holds: folders with flags and variables that sessions came with.
    pub contexts: u32,
    /// Addresses on which it serves HTTP.
    pub listeners: Vec<String>,
    pub sessions: Vec<SessionStatus>,
    pub servers: Vec<ServerStatus>,
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
    /// The ids of the sessions that use it.
    pub sessions: Vec<u64>,
    /// Why it could not be used last.
    pub failure: Option<String>,
}
