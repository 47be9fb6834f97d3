//! The bridge between the protocol eras, as two state machines: server requests of one era, answered in the other.
//! Owns: which server requests are open, who waits, when it is over.      Never: does I/O, reads a clock, knows servers or clients.
//! In: (state, event, now).  Out: effects, in the order they are to be carried out.
//! Tests: `bridge/tests.rs`: every short history, long random ones; `fuzz/fuzz_targets/bridge.rs`.
//!
//! | client \ server | with a handshake | stateless |
//! |---|---|---|
//! | with a handshake | server requests are relayed, no state machine needed | `input_retries`: its questions go to the client, its call is made again with the answers |
//! | stateless | `suspension`: the call stays open, the client is answered `input_required` and comes again | the server's state is sealed and travels with the client, no machine needed |

pub mod input_retries;
pub mod suspension;

pub use input_retries::InputRetries;
pub use suspension::Suspension;

/// Most input-required retries of one call: a person would have given up long before.
pub const MAX_INPUT_ROUNDS: u32 = 16;

#[cfg(test)]
mod tests;
