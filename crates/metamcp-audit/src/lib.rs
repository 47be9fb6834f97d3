//! The audit log as bytes: one JSON line for each event, each with the hash of the line before it.
//! Owns: the form of a line, the chain, its verification, queries.      Never: opens a file, reads a clock, decides what is recorded.
//! In: entries, bytes of files, a filter.  Out: lines, a report on them, the lines that were asked for.
//! Tests: beside the code, and `tests/damage.rs`.

mod chain;
mod csv;
mod entry;
mod head;
mod line;
mod query;
mod tail;
mod time_span;
mod verify;

pub use chain::Chain;
pub use csv::{HEADER, row};
pub use entry::{Digest, Entry, Fact, Kind, Part, Who, digest};
pub use head::{Hash, Head, HeadError, HeadNote};
pub use line::{Framed, Line, MAX_LINE};
pub use query::Filter;
pub use tail::Tail;
pub use time_span::moment;
pub use verify::{Cut, Expected, FileName, Finding, Report, Verifier};
