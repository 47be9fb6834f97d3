//! The hooks: each hazard as one small function, grouped by where it takes effect.
//! Owns: being wrong on purpose.  Never: decides when to run; the server state does.
//! In: the server state, an amount, what arrived.  Out: wrong bytes, dead processes, and what to do next.
//! Tests: `tests/it/hazards.rs`.

pub(super) mod answers;
pub(super) mod calls;
pub(super) mod floods;
pub(super) mod handshake;
pub(super) mod lines;
pub(super) mod listing;
pub(super) mod processes;

/// What the server does after a hook has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Continues as if nothing had happened.
    Honest,
    /// The hook has handled the message.
    Done,
    /// The hook has handled the message and nothing more shall be read.
    StopReading,
}
