//! The arguments of `mcp_provision`.

use metamcp_types::nearest::mistaken_argument;
use serde_json::Value;

/// Longest need that is looked at.
const MAX_INTENT: usize = 1000;

/// What it takes.
const ARGUMENTS: [&str; 4] = ["intent", "context", "autoProvision", "force"];
/// What callers write for `intent`, after the argument of `mcp_discover`.
const QUERY: &str = "query";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvisionRequest {
    /// What is needed; all that is searched with.
    pub intent: String,
    /// Why it is needed, for the person who approves. It is not searched with: it speaks of the task, and a word of it
    /// would find the tools for the other parts of that task.
    pub context: Option<String>,
    /// Whether to ask the user for approval. It cannot approve anything itself.
    pub wants_install: bool,
    /// Whether to look elsewhere without looking at the tools there are.
    pub force: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRequest {
    /// An argument is malformed: an error of the protocol.
    #[error("`{name}` of mcp_provision must be {expected}")]
    Malformed { name: &'static str, expected: &'static str },
    /// Nothing says what is needed.
    #[error("mcp_provision needs `intent`, which says what the missing tool should do")]
    Missing,
    /// An argument that it does not have, and hardly a stray one.
    #[error("{0}")]
    Unknown(String),
}

impl ProvisionRequest {
    pub fn decode(arguments: Option<&Value>) -> Result<ProvisionRequest, BadRequest> {
        let names = arguments.and_then(Value::as_object).into_iter().flat_map(|all| all.keys());
        for name in names.filter(|name| *name != QUERY && !ARGUMENTS.contains(&name.as_str())) {
            if let Some(wrong) = mistaken_argument("mcp_provision", name, &ARGUMENTS) {
                return Err(BadRequest::Unknown(wrong));
            }
        }
        let member = |name: &str| arguments.and_then(|all| all.get(name)).filter(|v| !v.is_null());
        let words = |name: &'static str| match member(name) {
            None => Ok(None),
            Some(Value::String(text)) => {
                let text: String = text.trim().chars().take(MAX_INTENT).collect();
                Ok(Some(text).filter(|text| !text.is_empty()))
            }
            Some(_) => Err(BadRequest::Malformed { name, expected: "a string" }),
        };
        let flag = |name: &'static str| match member(name) {
            None => Ok(false),
            Some(Value::Bool(wanted)) => Ok(*wanted),
            Some(_) => Err(BadRequest::Malformed { name, expected: "true or false" }),
        };
        let intent = match words("intent")? {
            None => words(QUERY)?,
            intent => intent,
        };
        Ok(ProvisionRequest {
            intent: intent.ok_or(BadRequest::Missing)?,
            context: words("context")?,
            wants_install: flag("autoProvision")?,
            force: flag("force")?,
        })
    }
}
