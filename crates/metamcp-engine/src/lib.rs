//! The gateway as a library: acts on what the core decides. See ARCHITECTURE.md for the map.

pub mod catalog;
pub mod clock;
pub mod config;
pub mod files;
pub mod gateway;
pub mod habits;
pub mod held;
pub mod login;
pub mod notices;
pub mod outbox;
pub mod progress;
pub mod provision;
pub mod reload;
pub mod results;
pub mod router;
pub mod secrets;
pub mod serve;
pub mod shapes;
pub mod stream;
pub mod surface;
pub mod task;
pub mod telemetry;
pub mod upstream;
pub mod user_file;
pub mod vectors;
pub mod web;
