//! Every decision of the gateway, as pure code that is told the time.
//! See ARCHITECTURE.md for the map.

pub mod ladder;
pub mod nearest;
