//! Which lines are asked for.
//! Owns: the filter.      Never: reads files.
//! In: conditions, and a line.  Out: whether it meets all of them.
//! Tests: below.

use metamcp_types::pattern::Pattern;

use crate::entry::Kind;
use crate::line::Line;

/// Conditions, all of which a line has to meet; an empty one is met by every line. Names may contain `*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// From here on, and before this, in milliseconds since 1970.
    pub since: Option<u64>,
    pub until: Option<u64>,
    pub kinds: Vec<Kind>,
    pub verdicts: Vec<String>,
    pub servers: Vec<String>,
    pub tools: Vec<String>,
    pub clients: Vec<String>,
    pub principals: Vec<String>,
    /// Only what did not go well.
    pub failed: bool,
}

/// Verdicts of what went well. Whatever is not known counts as failed.
const FINE: [&str; 18] = [
    "ok",
    "input_required",
    "sending",
    "approved",
    "granted_before",
    "installed",
    "removed",
    "accepted",
    "allowed",
    "trusted",
    "forgotten",
    "changed",
    "started",
    "stopped",
    "granted",
    "refreshed",
    "opened",
    "needed",
];

impl Filter {
    pub fn takes(&self, line: &Line) -> bool {
        self.takes_time(line)
            && (self.kinds.is_empty() || line.kind().is_some_and(|kind| self.kinds.contains(&kind)))
            && (self.verdicts.is_empty() || self.verdicts.iter().any(|one| one == line.verdict()))
            && any(&self.servers, line.what("server"))
            && any(&self.tools, line.what("tool"))
            && any(&self.clients, line.who("client"))
            && any(&self.principals, line.who("principal"))
            && (!self.failed || !FINE.contains(&line.verdict()))
    }

    fn takes_time(&self, line: &Line) -> bool {
        if self.since.is_none() && self.until.is_none() {
            return true;
        }
        let Some(at) = line.at_ms() else { return false };
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }
}

fn any(wanted: &[String], found: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| Pattern::new(wanted.as_str()).matches(found))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_condition_counts() {
        let line = Line(json!({
            "v": 1, "seq": 1, "time": "1970-01-01T00:00:05.000Z", "kind": "call",
            "who": { "principal": "owner", "pid": 1, "client": "claude-code" },
            "what": { "server": "files", "tool": "read_file" }, "verdict": "tool_error",
        }));
        let of = |change: fn(&mut Filter)| {
            let mut filter = Filter::default();
            change(&mut filter);
            filter.takes(&line)
        };
        assert!(of(|_| {}));
        assert!(of(|filter| filter.since = Some(5000)) && !of(|filter| filter.since = Some(5001)));
        assert!(of(|filter| filter.until = Some(5001)) && !of(|filter| filter.until = Some(5000)));
        assert!(of(|filter| filter.kinds = vec![Kind::Login, Kind::Call]));
        assert!(!of(|filter| filter.kinds = vec![Kind::Login]));
        assert!(of(|filter| filter.servers = vec!["fi*".into()]));
        assert!(!of(|filter| filter.servers = vec!["git*".into()]));
        assert!(of(|filter| filter.tools = vec!["x".into(), "read_file".into()]));
        assert!(of(|filter| filter.clients = vec!["claude*".into()]));
        assert!(!of(|filter| filter.clients = vec!["cursor".into()]));
        assert!(of(|filter| filter.principals = vec!["owner".into()]));
        assert!(of(|filter| filter.verdicts = vec!["tool_error".into()]));
        assert!(!of(|filter| filter.verdicts = vec!["ok".into()]));
        assert!(of(|filter| filter.failed = true));
    }

    #[test]
    fn what_went_well_is_no_failure() {
        let filter = Filter { failed: true, ..Filter::default() };
        for verdict in FINE {
            assert!(!filter.takes(&Line(json!({ "v": 1, "verdict": verdict }))), "{verdict}");
        }
    }
}
