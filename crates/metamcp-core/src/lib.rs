//! Every decision of the gateway, as pure code that is told the time.
//! See ARCHITECTURE.md for the map.

pub mod arguments;
pub mod cursor;
pub mod discover;
pub mod nearest;
pub mod search;
pub mod signature;
pub mod text;
pub mod tool;
