//! `@results`: a built-in server whose tools read stored results; and the storing of results too long to show.

use bytes::Bytes;
use metamcp_surface::excerpt::{self, Part};
use metamcp_types::nearest::nearest;
use serde_json::{Value, json};

use super::reply::{Code, ErrorObject};
use super::{Finished, View};
use crate::compute;
use crate::results::Stored;
use crate::router::{CallOutcome, ResultMapper};

/// Its name, which cannot collide with a configured server's.
pub(super) const SERVER: &str = "@results";
/// Its tools.
const TOOLS: [&str; 2] = ["read", "query"];

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
            return Finished::error(&unknown(id));
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

    /// Stores results that are too long to show and shortens them, unless there is no limit.
    pub(super) fn result_shortener(&self) -> Option<ResultMapper> {
        let limit = self.surface.options.result_chars;
        if limit == 0 {
            return None;
        }
        let view = self.clone();
        let shortener = ResultMapper::new(move |outcome| match outcome {
            CallOutcome::Result(result) if view.is_too_long(&result) => {
                let handle = view.surface.results.put_result(&view.owner(), result.clone());
                let shown = excerpt::shortened(&result, limit, &handle, view.audience);
                CallOutcome::Result(Bytes::from(shown))
            }
            outcome => outcome,
        });
        Some(shortener.cheap_up_to(limit))
    }

    /// The longest text that is shown whole.
    pub(super) fn shown_chars(&self) -> usize {
        match self.surface.options.result_chars {
            0 => usize::MAX,
            limit => limit,
        }
    }

    /// Whether a result is too long to show. For most the length of the JSON decides.
    pub(super) fn is_too_long(&self, result: &[u8]) -> bool {
        let limit = self.surface.options.result_chars;
        limit > 0 && result.len() > limit && excerpt::text_chars(result) > limit
    }
}

const USAGE: &str = "`read` takes id, offset and length; `query` takes id and a JSON `pointer` or a text to `grep` for. With `whole` both read the whole result instead of its value.";

fn invalid(what: &str) -> Finished {
    Finished::error(&ErrorObject::new(Code::ValidationInput, what).hint(USAGE))
}

pub(super) fn unknown(handle: &str) -> ErrorObject {
    ErrorObject::new(Code::ToolNotFound, format!("no result is stored under {handle:?}"))
        .hint("Results are stored for 30 minutes, and new ones evict the oldest. Run the call or the script again.")
}
