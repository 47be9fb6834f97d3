//! The MCP wire as pure code: lines, envelopes, raw JSON, and what is written back.
//! See ARCHITECTURE.md.

pub mod bridge;
pub mod canonical;
pub mod cluster_key;
pub mod envelope;
pub mod era;
pub mod frame;
pub mod glance;
pub mod handshake;
pub mod local;
pub mod modern;
pub mod object;
pub mod scan;
pub mod seal;
pub mod server_task;
pub mod session_ticket;
pub mod sse;
pub mod trace_context;
pub mod write;
