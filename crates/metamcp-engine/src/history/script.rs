//! One script as people see it: a row of a table, and its code and logs, cut to what a person reads.

use metamcp_types::text;
use serde::{Deserialize, Serialize};

use crate::observe::{ScriptPayload, ScriptRecord};

/// Longest code, message and line of a log that is kept.
const MAX_CODE: usize = 32 * 1024;
const MAX_MESSAGE: usize = 2_000;
const MAX_LINE: usize = 1_000;
/// Lines of a log that are kept: the first ones.
const MAX_LINES: usize = 200;
const MAX_NAME: usize = 200;

/// A script in a table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ScriptRow {
    /// The number that its calls have as `script`.
    pub id: u64,
    /// When it ended, in milliseconds since 1970.
    pub at_ms: u64,
    pub session: u64,
    pub client: String,
    /// `ok`, `failed`, `limit`, `cancelled`, or why it was not run.
    pub verdict: String,
    pub took_us: u64,
    pub calls: u64,
    pub bytes_out: u64,
    /// The beginning of its code.
    pub head: String,
}

/// A script with all that is kept of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ScriptDetail {
    pub script: ScriptRow,
    pub code: String,
    /// Whether code or logs are longer than what is here.
    pub is_cut: bool,
    pub logs: Vec<LogLine>,
    pub error: Option<String>,
}

/// A line that a script logged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LogLine {
    pub level: String,
    pub text: String,
}

impl ScriptDetail {
    pub fn of(record: &ScriptRecord, payload: &ScriptPayload<'_>, at_ms: u64) -> ScriptDetail {
        let client = record.identity.client.as_ref();
        let client = client.map(|one| format!("{} {}", one.name, one.version));
        let took = record.ended.since(record.began).as_micros();
        let head = payload.code.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let line = |(level, words): &(&'static str, &str)| LogLine {
            level: (*level).to_owned(),
            text: text::clean(words, MAX_LINE).into_owned(),
        };
        ScriptDetail {
            script: ScriptRow {
                id: record.number,
                at_ms,
                session: record.identity.session,
                client: text::clean_line(&client.unwrap_or_default(), MAX_NAME).into_owned(),
                verdict: record.verdict.to_owned(),
                took_us: u64::try_from(took).unwrap_or(u64::MAX),
                calls: record.calls as u64,
                bytes_out: record.bytes_out as u64,
                head: text::clean_line(head.trim(), MAX_NAME).into_owned(),
            },
            code: text::clean(payload.code, MAX_CODE).into_owned(),
            is_cut: payload.code.len() > MAX_CODE || payload.logs.len() > MAX_LINES,
            logs: payload.logs.iter().take(MAX_LINES).map(line).collect(),
            error: payload.error.map(|words| text::clean(words, MAX_MESSAGE).into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metamcp_types::moment::Moment;

    use super::*;
    use crate::observe::Identity;

    #[test]
    fn what_is_kept_of_a_script_is_bounded_and_clean() {
        let record = ScriptRecord {
            tool: "mcp_execute",
            trace: None,
            number: 7,
            identity: Arc::new(Identity::owner()),
            began: Moment::millis(5),
            ended: Moment::millis(9),
            verdict: "failed",
            calls: 3,
            bytes_out: 0,
        };
        let code = format!("\n  const a = 1;\u{1b}[2J\n{}", "x".repeat(2 * MAX_CODE));
        let logs = vec![("info", "a\u{202e}b"); 3 * MAX_LINES];
        let error = Some("went \u{7}wrong");
        let payload = ScriptPayload { code: &code, logs: &logs, error };
        let detail = ScriptDetail::of(&record, &payload, 1);
        assert!(detail.is_cut && detail.code.len() <= MAX_CODE + 8);
        assert_eq!((detail.logs.len(), detail.script.took_us), (MAX_LINES, 4_000));
        assert!(detail.script.head.starts_with("const a = 1;"), "{}", detail.script.head);
        let all = serde_json::to_string(&detail).unwrap();
        assert!(!all.contains("u001b") && !all.contains('\u{202e}') && !all.contains("u0007"));
        let again: ScriptDetail = serde_json::from_str(&all).unwrap();
        assert_eq!(again, detail);
    }
}
