//! Every decision of the gateway, as pure code that is told the time.
//! See ARCHITECTURE.md for the map.

pub mod breaker;
pub mod config;
pub mod dispatch;
pub mod failure;
pub mod ledger;
pub mod lifecycle;
pub mod limiter;
pub mod moment;
pub mod ladder;
pub mod nearest;
pub mod refresh;
pub mod replay;
pub mod secret;
pub mod settings;
pub mod slab;
pub mod arguments;
pub mod cursor;
pub mod discover;
pub mod nearest;
pub mod search;
pub mod signature;
pub mod text;
pub mod tool;
