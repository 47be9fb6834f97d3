//! Shared by every crate: time since start, sanitized text, secrets, URLs, how a process is started and stopped.
//! Pure: no I/O, no clock, no environment. See ARCHITECTURE.md for the map.

pub mod date;
pub mod escalation;
pub mod moment;
pub mod nearest;
pub mod next;
pub mod pass_env;
pub mod pattern;
pub mod sandbox_policy;
pub mod secret;
pub mod slab;
pub mod strategy;
pub mod suspend_clock;
pub mod text;
pub mod tool_override;
pub mod web;
