//! Shared test infrastructure: hostile and fast child servers, a client, a temporary home.
//! Owns: the small programs, the client, the journal, the census, the expectations.  Never: ships.
//! In: a command to run and the behaviour of its children.  Out: every line received, every execution, every process.
//! Tests: beside each module, and `tests/it` for the programs as processes.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "programs of tests start, wait and measure for themselves"
)]

pub mod balancer;
pub mod bench;
pub mod call_outcome;
pub mod census;
pub mod chaos;
pub mod client;
pub mod echo;
pub mod expectations;
pub mod faults;
pub mod journal;
pub mod line_journal;
pub mod link;
pub mod listings;
pub mod nats;
pub mod network;
pub mod patience;
pub mod programs;
pub mod relay;
pub mod replay;
pub mod site;
pub mod stand_in;
pub mod workspace;

pub use call_outcome::{CallOutcome, stored_handle};
pub use client::{Answer, Client, returned};
pub use expectations::{EXPECTATIONS, Expectation, ExpectedOutcome};
pub use journal::{EventKind, Journal, Record};
pub use patience::eventually;
pub use workspace::{DAEMON, Server, Workspace, chaos as chaos_server, echo as echo_server};
