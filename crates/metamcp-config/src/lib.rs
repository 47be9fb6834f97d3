//! Configuration: the file and its schema, settings, the known MCP clients, edits that preserve every other byte.
//! Pure: no I/O, no clock, no environment. See ARCHITECTURE.md for the map.

pub mod clients;
pub mod config;
pub mod edit;
pub mod scope;
pub mod settings;
