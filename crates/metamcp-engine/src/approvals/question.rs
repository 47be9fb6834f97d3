//! How a call that needs an approval is shown, and what an answer to it means.

use metamcp_types::text;
use metamcp_wire::object;
use metamcp_wire::scan::MAX_DEPTH;
use serde_json::{Value, json};

use super::{AskedCall, HOUR_MS, Span};

/// Longest arguments in a client's dialog. Longer ones are shown in a terminal or on the page, whole.
const MAX_IN_DIALOG: usize = 4_000;
/// Longest name of a server or tool that is shown.
const MAX_NAME: usize = 300;
/// Longest beginning of arguments in a list.
const MAX_BEGINNING: usize = 120;

impl AskedCall {
    /// Exactly what would run, for a person.
    pub fn told(&self) -> String {
        let name = |name: &str| text::spelt(name, MAX_NAME);
        let mut told =
            format!("  server     {}\n  tool       {}", name(&self.server), name(&self.tool));
        if self.shown_as != self.tool {
            told.push_str(&format!("\n  shown as   {}", name(&self.shown_as)));
        }
        told.push_str(&format!(
            "\n  asked by   {}\n  arguments  sha256 {}\n",
            self.client, self.digest
        ));
        for line in self.arguments.lines() {
            told.push_str("    ");
            told.push_str(line);
            told.push('\n');
        }
        told
    }

    /// The question as an elicitation, unless it would be too long to be read in a dialog.
    pub fn elicitation(&self) -> Option<Value> {
        if self.arguments.len() > MAX_IN_DIALOG {
            return None;
        }
        let message = format!(
            "A tool is to be called that needs your approval. Approve only if you want exactly this to run.\n\n{}",
            self.told()
        );
        let properties = json!({
            "run": {
                "type": "boolean",
                "title": format!("Run {}", text::spelt(&self.shown_as, MAX_NAME)),
                "description": "Exactly what is shown",
                "default": false,
            },
            "for": {
                "type": "string",
                "title": "How long this counts for these arguments",
                "enum": ["once", "an hour", "always"],
                "default": "once",
            },
        });
        Some(json!({
            "mode": "form",
            "message": message,
            "requestedSchema": { "type": "object", "properties": properties, "required": ["run"] },
        }))
    }
}

/// What a person answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reply {
    Approved(Span),
    Declined,
    /// The question was closed without an answer.
    Dismissed,
}

/// Reads a client's answer. Only an accepted form that says `run` is an approval.
pub fn read(raw: &[u8]) -> Option<Reply> {
    let reply = object::strict_value(raw, MAX_DEPTH).ok()?;
    let content = reply.get("content");
    let runs = content.and_then(|content| content.get("run")).and_then(Value::as_bool);
    let span = match content.and_then(|content| content.get("for")) {
        None | Some(Value::Null) => Some(Span::Once),
        Some(word) => match word.as_str() {
            Some("once") => Some(Span::Once),
            Some("an hour") => Some(Span::Millis(HOUR_MS)),
            Some("always") => Some(Span::Always),
            _ => None,
        },
    };
    match reply.get("action").and_then(Value::as_str)? {
        // A time that was not offered is no approval for longer.
        "accept" if runs == Some(true) => Some(Reply::Approved(span.unwrap_or(Span::Once))),
        "accept" | "decline" => Some(Reply::Declined),
        _ => Some(Reply::Dismissed),
    }
}

/// The beginning of the arguments on one line, for a list.
pub(super) fn beginning(call: &AskedCall) -> String {
    let line: Vec<&str> = call.arguments.split_whitespace().collect();
    text::cut(&line.join(" "), MAX_BEGINNING).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_form_that_says_run_is_an_approval() {
        let hour = Reply::Approved(Span::Millis(HOUR_MS));
        for (reply, expect) in [
            (
                json!({ "action": "accept", "content": { "run": true } }),
                Reply::Approved(Span::Once),
            ),
            (json!({ "action": "accept", "content": { "run": true, "for": "an hour" } }), hour),
            (
                json!({ "action": "accept", "content": { "run": true, "for": "always" } }),
                Reply::Approved(Span::Always),
            ),
            (
                json!({ "action": "accept", "content": { "run": true, "for": "forever" } }),
                Reply::Approved(Span::Once),
            ),
            (json!({ "action": "accept", "content": { "run": false } }), Reply::Declined),
            (json!({ "action": "accept", "content": { "run": "true" } }), Reply::Declined),
            (json!({ "action": "accept" }), Reply::Declined),
            (json!({ "action": "decline", "content": { "run": true } }), Reply::Declined),
            (json!({ "action": "cancel", "content": { "run": true } }), Reply::Dismissed),
        ] {
            assert_eq!(read(reply.to_string().as_bytes()), Some(expect), "{reply}");
        }
        for nonsense in ["", "[]", r#"{"content":{"run":true}}"#] {
            assert_eq!(read(nonsense.as_bytes()), None, "{nonsense}");
        }
        let twice = br#"{"action":"accept","content":{"run":false,"run":true}}"#;
        assert_eq!(read(twice), None);
    }
}
