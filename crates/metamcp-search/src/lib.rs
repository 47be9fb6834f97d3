//! Finds the tools for a query: keyword, BM25, hybrid and transformer ranking, usage history, evaluation.
//! Pure: no I/O, no clock, no environment. See ARCHITECTURE.md for the map.

pub mod eval;
pub mod search;
pub mod transformer;
pub mod usage_history;
