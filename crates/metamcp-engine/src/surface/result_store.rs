//! `@results`: a built-in server whose tools read stored results; and the storing of results too long to show.

use bytes::Bytes;
use metamcp_surface::excerpt::{self, Part};
use metamcp_tools::names;
use metamcp_types::nearest::nearest;
use metamcp_types::next::Audience;
use metamcp_types::text;
use serde_json::{Map, Value, json};

use super::reply::{Code, ErrorObject};
use super::tasks::Render;
use super::{Finished, View};
use crate::compute;
use crate::results::Stored;
use crate::router::{CallOutcome, ResultMapper};

/// Its name, which cannot collide with a configured server's.
pub(super) const SERVER: &str = "@results";
/// Its tools.
const TOOLS: [&str; 2] = ["read", "query"];

/// The outcome of a call as it is, but for what is too long to show.
struct Shortened;

impl Render for Shortened {
    fn render(&self, view: &View, outcome: CallOutcome) -> CallOutcome {
        match outcome {
            CallOutcome::Result(result) => CallOutcome::Result(view.shortened(result)),
            outcome => outcome,
        }
    }
}

impl View {
    /// A call to one of its tools.
    pub(super) async fn read_result(&self, tool: &str, arguments: &Value) -> Finished {
        if !TOOLS.contains(&tool) {
            let near = nearest(tool, TOOLS, 1).first().copied().unwrap_or("read");
            return Finished::error(
                &ErrorObject::new(Code::ToolNotFound, format!("{SERVER} has no tool {tool:?}"))
                    .hint(format!("Did you mean {near}? {USAGE}")),
            );
        }
        let arguments = &match known_names(arguments) {
            Ok(arguments) => arguments,
            Err(wrong) => return invalid(&wrong),
        };
        let Some(id) = arguments["id"].as_str() else {
            return invalid("`id` must be a handle from an earlier response");
        };
        let part = match Part::decode(arguments) {
            Ok(part) => part,
            Err(bad) => return invalid(&bad.to_string()),
        };
        let wants_whole = match &arguments["whole"] {
            Value::Null => false,
            Value::Bool(whole) => *whole,
            _ => return invalid("`whole` must be true or false"),
        };
        let Some(Stored { whole, value }) = self.surface.results.read(id, &self.owner()).await
        else {
            return Finished::error(&self.no_result(id));
        };
        let value = if wants_whole { whole } else { value };
        let cut = compute::run(move || {
            let text = part.of(&String::from_utf8_lossy(&value));
            json!({ "content": [{ "type": "text", "text": text }] }).to_string().into_bytes()
        });
        match cut.await {
            Ok(result) => Finished::Result(result),
            Err(failed) => Finished::error(&ErrorObject::new(Code::Internal, failed.to_string())),
        }
    }

    /// The error for a handle that nothing is stored under, or nothing for this reader.
    pub(super) fn no_result(&self, handle: &str) -> ErrorObject {
        let error = unknown(handle);
        match self.surface.keyring {
            None => error,
            Some(_) if self.surface.results.is_shared() => error,
            Some(_) => error.hint(ELSEWHERE),
        }
    }

    /// Follows a call of the client: a result that is too long to show is stored and shortened, and a call that takes long
    /// becomes a task.
    pub(super) fn call_follower(&self) -> Option<ResultMapper> {
        // A command in a shell waits for as long as it takes, and shows all of it.
        if self.audience == Audience::Shell {
            return None;
        }
        let limit = self.result_chars();
        let whole = if limit == 0 { usize::MAX } else { limit };
        Some(ResultMapper::following(self.outliving(Shortened)).cheap_up_to(whole))
    }

    fn shortened(&self, result: Bytes) -> Bytes {
        if !self.is_too_long(&result) {
            return result;
        }
        let handle = self.surface.results.put_result(&self.owner(), result.clone());
        let shown = excerpt::shortened(&result, self.result_chars(), &handle, self.audience);
        let kept = result.len().saturating_sub(shown.len());
        self.surface.router.observer.totals().cut(kept);
        Bytes::from(shown)
    }

    /// Longest result that is shown whole, in characters; zero for no limit. A command in a shell has no later call that
    /// could fetch the rest.
    pub(super) fn result_chars(&self) -> usize {
        match self.audience {
            Audience::Shell => 0,
            _ => self.surface.options.result_chars,
        }
    }

    /// The longest text that is shown whole.
    pub(super) fn shown_chars(&self) -> usize {
        match self.result_chars() {
            0 => usize::MAX,
            limit => limit,
        }
    }

    /// Whether a result is too long to show. For most the length of the JSON decides.
    pub(super) fn is_too_long(&self, result: &[u8]) -> bool {
        let limit = self.result_chars();
        limit > 0 && result.len() > limit && excerpt::text_chars(result) > limit
    }
}

const ELSEWHERE: &str = "In a fleet a long result stays at the gateway that stored it, and this may be another one: call the tool again, or ask it for less.";

const USAGE: &str = "`read` takes id, offset and length; `query` takes id and a JSON `pointer` or a text to `grep` for. With `whole` both read the whole result instead of its value.";

/// The arguments of both tools, and what else callers write for them.
const ARGUMENTS: [(&str, &[&str]); 6] = [
    ("id", &["handle", "result", "result_id", "resultId"]),
    ("offset", &["start", "from", "skip"]),
    ("length", &["limit", "size", "max_chars", "maxChars", "count"]),
    ("grep", &["query", "search", "pattern", "text", "contains"]),
    ("pointer", &["path", "json_pointer", "jsonPointer"]),
    ("whole", &[]),
];

/// The arguments under their own names. One that stands for nothing is an error: dropped, it would change what is read.
fn known_names(given: &Value) -> Result<Value, String> {
    let mut arguments = Map::new();
    for (name, value) in given.as_object().into_iter().flatten().filter(|(_, v)| !v.is_null()) {
        let is_meant = |(own, others): &&(&str, &[&str])| {
            *own == name || others.iter().any(|other| names::same(other, name))
        };
        let Some((own, _)) = ARGUMENTS.iter().find(is_meant) else {
            let known = ARGUMENTS.iter().map(|(own, _)| *own);
            let near = nearest(name, known, 1).first().copied();
            let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(format!("{SERVER} takes no argument `{}`{hint}", text::shown(name)));
        };
        if arguments.insert((*own).to_owned(), value.clone()).is_some() {
            return Err(format!("`{own}` is given twice, as `{}` too", text::shown(name)));
        }
    }
    Ok(Value::Object(arguments))
}

fn invalid(what: &str) -> Finished {
    Finished::error(&ErrorObject::new(Code::ValidationInput, what).hint(USAGE))
}

fn unknown(handle: &str) -> ErrorObject {
    ErrorObject::new(Code::ToolNotFound, format!("no result is stored under {handle:?}"))
        .hint("Results are stored for 30 minutes, and new ones evict the oldest. Run the call or the script again.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callers_write_for_an_argument_is_understood_or_refused() {
        let read = known_names(&json!({ "handle": "r1", "limit": 10, "query": "x" })).unwrap();
        assert_eq!(read, json!({ "id": "r1", "length": 10, "grep": "x" }));
        let pointed = known_names(&json!({ "id": "r1", "jsonPointer": "/a", "whole": null }));
        assert_eq!(pointed.unwrap(), json!({ "id": "r1", "pointer": "/a" }));
        for (given, said) in [
            (json!({ "id": "r1", "lenght": 5 }), "did you mean `length`?"),
            (json!({ "id": "r1", "zebra": 5 }), "takes no argument `zebra`"),
            (json!({ "id": "r1", "limit": 5, "length": 6 }), "given twice"),
        ] {
            let wrong = known_names(&given).unwrap_err();
            assert!(wrong.contains(said), "{wrong}");
        }
        assert_eq!(known_names(&Value::Null).unwrap(), json!({}));
    }
}
