//! The record of one script: who ran it, when, how it ended and what it made of how much.

use std::sync::Arc;

use metamcp_types::moment::Moment;

use super::{CallTrace, Identity};

/// A script that ended.
#[derive(Clone, Debug)]
pub struct ScriptRecord {
    /// Its number, which the records of its calls carry in `Origin::Script`.
    pub number: u64,
    pub identity: Arc<Identity>,
    pub began: Moment,
    pub ended: Moment,
    /// `ok`, `failed`, `limit`, `cancelled`; or the code of the error because of which it was not run.
    pub verdict: &'static str,
    pub calls: usize,
    /// Bytes of the value it returned.
    pub bytes_out: usize,
    /// The tool of ours that ran it.
    pub tool: &'static str,
    /// Where it stands in a trace that is recorded.
    pub trace: Option<Box<CallTrace>>,
}

/// What a script was and said. Subscribers may read it; it is not part of the record, because it may contain secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct ScriptPayload<'a> {
    pub code: &'a str,
    /// Level and text of each line, in order, as far as they were kept.
    pub logs: &'a [(&'static str, &'a str)],
    /// Message of the error that ended it.
    pub error: Option<&'a str>,
}
