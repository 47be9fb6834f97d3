//! Every decision of the gateway, as pure code that is told the time.
//! See ARCHITECTURE.md for the map.

pub mod arguments;
pub mod breaker;
pub mod chatter;
pub mod config;
pub mod cursor;
pub mod declarations;
pub mod direct;
pub mod discover;
pub mod dispatch;
pub mod eval;
pub mod excerpt;
pub mod execution;
pub mod failure;
pub mod habits;
pub mod ladder;
pub mod ledger;
pub mod lifecycle;
pub mod limiter;
pub mod moment;
pub mod nearest;
pub mod notify;
pub mod oauth;
pub mod provision;
pub mod refresh;
pub mod replay;
pub mod search;
pub mod secret;
pub mod settings;
pub mod signature;
pub mod slab;
pub mod text;
pub mod tool;
pub mod vocabulary;
pub mod web;
