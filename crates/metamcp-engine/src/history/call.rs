//! One call as people see it: a row of a table, and its timeline.

use std::time::Duration;

use metamcp_types::moment::Moment;
use metamcp_types::text;
use serde::{Deserialize, Serialize};

use crate::observe::{CallRecord, Origin, Verdict};

/// Longest name and longest reason that is shown.
const MAX_NAME: usize = 200;
const MAX_WHY: usize = 500;

/// How a call ended, as coarse as a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    #[default]
    Ok,
    /// The tool says that it failed.
    ToolError,
    /// It did not get a result.
    Failed,
    /// Its caller gave it up, or was asked something first.
    Other,
}

impl Outcome {
    pub fn of(verdict: Verdict) -> Outcome {
        match verdict {
            Verdict::Ok => Outcome::Ok,
            Verdict::ToolError => Outcome::ToolError,
            Verdict::RpcError | Verdict::BadResponse | Verdict::Failed(_) | Verdict::Refused(_) => {
                Outcome::Failed
            }
            Verdict::InputRequired | Verdict::Cancelled => Outcome::Other,
        }
    }

    pub fn is_failure(self) -> bool {
        matches!(self, Outcome::ToolError | Outcome::Failed)
    }
}

/// Which calls are wanted.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub server: Option<String>,
    pub tool: Option<String>,
    pub session: Option<u64>,
    /// Calls of the script with this number.
    pub script: Option<u64>,
    pub only_failed: bool,
    pub slower_than: Option<Duration>,
}

impl Filter {
    pub fn fits(&self, record: &CallRecord) -> bool {
        self.server.as_deref().is_none_or(|server| *record.server == *server)
            && self.tool.as_deref().is_none_or(|tool| *record.tool == *tool)
            && self.session.is_none_or(|session| record.identity.session == session)
            && self.script.is_none_or(|number| record.origin == Origin::Script(number))
            && (!self.only_failed || Outcome::of(record.verdict).is_failure())
            && self.slower_than.is_none_or(|least| took(record) >= least)
    }
}

/// A call in a table.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CallRow {
    /// Its number in this daemon.
    pub id: u64,
    /// When it ended, in milliseconds since 1970.
    pub at_ms: u64,
    pub server: String,
    pub tool: String,
    pub method: String,
    /// What made it: `mcp_call`, `script`, `command` and so on.
    pub origin: String,
    /// The script that made it.
    pub script: Option<u64>,
    pub session: u64,
    pub client: String,
    pub principal: String,
    pub outcome: Outcome,
    /// The same in one word of many.
    pub verdict: String,
    pub took_us: u64,
    /// Until it was first sent.
    pub waited_us: Option<u64>,
    pub attempts: u32,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// The node of the fleet that ran it, where that was another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// A call with all that is known of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CallDetail {
    pub call: CallRow,
    /// What went wrong with the server, where that ended the call.
    pub cause: Option<String>,
    /// Oldest first.
    pub steps: Vec<Step>,
}

/// A point of a timeline.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Step {
    /// Since the call arrived.
    pub at_us: u64,
    /// `arrived`, `starting`, `opened`, `ready`, `sent`, `first byte`, `lost`, `answered` or `ended`.
    pub what: String,
    pub why: Option<String>,
}

fn took(record: &CallRecord) -> Duration {
    record.ended.since(record.arrived)
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

fn name(words: &str) -> String {
    text::clean_line(words, MAX_NAME).into_owned()
}

impl CallRow {
    pub fn of(id: u64, record: &CallRecord, at_ms: u64) -> CallRow {
        let identity = &record.identity;
        let client = identity.client.as_ref();
        CallRow {
            id,
            at_ms,
            server: name(&record.server),
            tool: name(&record.tool),
            method: record.method.to_owned(),
            origin: record.origin.word().to_owned(),
            script: match record.origin {
                Origin::Script(number) => Some(number),
                _ => None,
            },
            session: identity.session,
            client: client
                .map(|one| name(&format!("{} {}", one.name, one.version)))
                .unwrap_or_default(),
            principal: name(&identity.principal_name),
            outcome: Outcome::of(record.verdict),
            verdict: record.verdict.word().to_owned(),
            took_us: micros(took(record)),
            waited_us: record.sent.map(|sent| micros(sent.since(record.arrived))),
            attempts: record.attempts,
            bytes_in: record.bytes_in as u64,
            bytes_out: record.bytes_out as u64,
            node: record.node.as_deref().map(str::to_owned),
        }
    }
}

impl CallDetail {
    pub fn of(id: u64, record: &CallRecord, at_ms: u64) -> CallDetail {
        let cause = record.cause.as_ref();
        let cause = cause.map(|cause| text::clean(&cause.fact.to_string(), MAX_WHY).into_owned());
        CallDetail { call: CallRow::of(id, record, at_ms), cause, steps: steps(record) }
    }
}

/// The timeline of a call. Parts of a start before the call arrived are left out: it did not wait for them.
fn steps(record: &CallRecord) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut step = |at: Moment, what: &str, why: Option<String>| {
        let at_us = micros(at.since(record.arrived));
        steps.push(Step { at_us, what: what.to_owned(), why });
    };
    step(record.arrived, "arrived", None);
    let last = record.all_attempts().count();
    for (number, attempt) in record.all_attempts().enumerate() {
        let start = attempt.start.as_deref().map(|start| {
            [(start.begun, "starting"), (start.opened, "opened"), (start.ready, "ready")]
        });
        for (at, what) in start.into_iter().flatten().filter(|(at, _)| *at >= record.arrived) {
            step(at, what, None);
        }
        let again = (number > 0)
            .then(|| "sent again: it cannot have run, or it is harmless to repeat".to_owned());
        step(attempt.sent, "sent", again);
        if let Some(at) = attempt.first_byte {
            step(at, "first byte", None);
        }
        // How the last one ended is how the call ended.
        if let Some((at, failure)) = attempt.lost.as_deref() {
            let fact = text::clean(&failure.fact.to_string(), MAX_WHY).into_owned();
            step(*at, "lost", Some(fact));
        } else if number + 1 < last {
            step(attempt.sent, "lost", None);
        }
    }
    let is_answer = matches!(
        record.verdict,
        Verdict::Ok | Verdict::ToolError | Verdict::RpcError | Verdict::InputRequired
    );
    let verdict = record.verdict.word().to_owned();
    step(record.ended, if is_answer { "answered" } else { "ended" }, Some(verdict));
    steps
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metamcp_calls::failure::{Fact, Failure};

    use super::*;
    use crate::observe::{Identity, StartTimes};

    #[test]
    fn a_timeline_of_a_call_that_was_sent_twice() {
        let at = Moment::millis;
        let names = (Arc::from("s\u{1b}[2J"), Arc::from("t"));
        let identity = Arc::new(Identity::owner());
        let mut record =
            CallRecord::arriving(identity, Origin::Script(7), names, "tools/call", None, at(100));
        let start = StartTimes { begun: at(90), opened: at(110), ready: at(120) };
        record.sending(at(121), Some(start));
        record.lost(at(130), Arc::new(Failure::new(Fact::OutputClosed)));
        record
            .sending(at(140), Some(StartTimes { begun: at(131), opened: at(135), ready: at(139) }));
        record.attempt.as_mut().unwrap().first_byte = Some(at(150));
        (record.ended, record.verdict) = (at(160), Verdict::Ok);
        let detail = CallDetail::of(3, &record, 1_000);
        let steps: Vec<_> =
            detail.steps.iter().map(|one| format!("{} {}", one.at_us / 1000, one.what)).collect();
        assert_eq!(
            steps,
            [
                "0 arrived",
                "10 opened",
                "20 ready",
                "21 sent",
                "30 lost",
                "31 starting",
                "35 opened",
                "39 ready",
                "40 sent",
                "50 first byte",
                "60 answered"
            ]
        );
        assert_eq!((detail.call.took_us, detail.call.waited_us), (60_000, Some(21_000)));
        assert_eq!((detail.call.script, detail.call.attempts), (Some(7), 2));
        assert!(!detail.call.server.contains('\u{1b}'));
        let again: CallDetail =
            serde_json::from_value(serde_json::to_value(&detail).unwrap()).unwrap();
        assert_eq!(again, detail);
    }

    #[test]
    fn a_call_that_was_never_sent_says_so() {
        let names = (Arc::from("s"), Arc::from("t"));
        let identity = Arc::new(Identity::owner());
        let mut record = CallRecord::arriving(
            identity,
            Origin::McpCall,
            names,
            "tools/call",
            None,
            Moment::millis(5),
        );
        (record.ended, record.verdict) = (Moment::millis(6), Verdict::Refused("circuit_open"));
        let detail = CallDetail::of(1, &record, 0);
        assert_eq!(detail.steps.len(), 2);
        assert_eq!(detail.steps[1].why.as_deref(), Some("circuit_open"));
        assert_eq!((detail.call.outcome, detail.call.waited_us), (Outcome::Failed, None));
    }
}
