//! `@results`: a server that is not there, whose tools read values kept under a handle.

use metamcp_core::excerpt::Part;
use metamcp_core::nearest::nearest;
use serde_json::{Value, json};

use super::reply::{Code, ErrorObject};
use super::{Finished, Surface};

/// Its name, which no configured server can have been given by mistake.
pub(super) const SERVER: &str = "@results";
/// Its tools.
const TOOLS: [&str; 2] = ["read", "query"];

impl Surface {
    /// A call to one of its tools.
    pub(super) fn kept(&self, tool: &str, arguments: &Value) -> Finished {
        if !TOOLS.contains(&tool) {
            let near = nearest(tool, TOOLS, 1).first().copied().unwrap_or("read");
            return Finished::error(
                &ErrorObject::new(Code::ToolNotFound, format!("{SERVER} has no tool {tool:?}"))
                    .hint(format!("Did you mean {near}? {USAGE}")),
            );
        }
        let Some(id) = arguments["id"].as_str() else {
            return invalid("`id` must be a handle, as an answer gave it");
        };
        let part = match Part::decode(arguments) {
            Ok(part) => part,
            Err(bad) => return invalid(&bad.to_string()),
        };
        let Some(value) = self.results.read(id) else {
            return Finished::error(&unknown(id));
        };
        let text = part.of(&String::from_utf8_lossy(&value));
        let result = json!({ "content": [{ "type": "text", "text": text }] });
        Finished::Result(result.to_string().into_bytes())
    }
}

const USAGE: &str = "`read` takes id, offset and length; `query` takes id and a JSON `pointer` or a text to `grep` for.";

fn invalid(what: &str) -> Finished {
    Finished::error(&ErrorObject::new(Code::ValidationInput, what).hint(USAGE))
}

/// There is no such value.
pub(super) fn unknown(handle: &str) -> ErrorObject {
    ErrorObject::new(Code::ToolNotFound, format!("no result is kept under {handle:?}"))
        .hint("Results are kept for 30 minutes, and older ones make room for new ones. Run the call or the script again.")
}
