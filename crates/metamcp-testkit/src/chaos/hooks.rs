//! The acts: each misbehaviour as one small function, grouped by where it strikes.
//! Owns: being wrong on purpose.  Never: decides when to strike; the stage does.
//! In: the stage, an amount, what arrived.  Out: wrong bytes, dead processes, and what to do next.
//! Tests: `tests/it/hazards.rs`.

pub(super) mod answers;
pub(super) mod calls;
pub(super) mod floods;
pub(super) mod handshake;
pub(super) mod lines;
pub(super) mod listing;
pub(super) mod processes;

/// What the server does after an act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Goes on as if nothing had happened.
    Honest,
    /// The act took care of the message.
    Done,
    /// The act took care of the message and nothing more shall be read.
    StopReading,
}
