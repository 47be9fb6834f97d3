//! Every decision about a call: dispatch, pool, breaker, retry, lifecycle of a connection.
//! Pure: no I/O, no clock, no environment. See ARCHITECTURE.md for the map.

pub mod approval;
pub mod breaker;
pub mod connector;
pub mod dispatch;
pub mod failure;
pub mod fair_share;
pub mod lifecycle;
pub mod notification_limiter;
pub mod notify;
pub mod pool;
pub mod progress;
pub mod refresh;
pub mod replay;
pub mod restart_backoff;
pub mod shutdown;
pub mod siblings;
pub mod state_change;
pub mod tasks;
pub mod turns;
