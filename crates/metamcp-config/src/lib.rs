//! Configuration: the file and its schema, settings, the MCP clients people use, edits that keep every other byte.
//! Pure: no I/O, no clock, no environment. See ARCHITECTURE.md for the map.

pub mod clients;
pub mod config;
pub mod edit;
pub mod settings;
