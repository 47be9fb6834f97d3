//! The arguments of `mcp_provision`.

use serde_json::Value;

/// Longest need that is looked at.
const MAX_INTENT: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvisionRequest {
    pub intent: String,
    /// What else may help to find it.
    pub context: Option<String>,
    /// Whether to ask the user for approval. It cannot approve anything itself.
    pub wants_install: bool,
}

/// The arguments are malformed: an error of the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` of mcp_provision must be {expected}")]
pub struct BadRequest {
    name: &'static str,
    expected: &'static str,
}

impl ProvisionRequest {
    pub fn decode(arguments: Option<&Value>) -> Result<ProvisionRequest, BadRequest> {
        let member = |name: &str| arguments.and_then(|all| all.get(name)).filter(|v| !v.is_null());
        let words = |name: &'static str| match member(name) {
            None => Ok(None),
            Some(Value::String(text)) => {
                let text: String = text.trim().chars().take(MAX_INTENT).collect();
                Ok(Some(text).filter(|text| !text.is_empty()))
            }
            Some(_) => Err(BadRequest { name, expected: "a string" }),
        };
        let missing = BadRequest { name: "intent", expected: "a string that says what is needed" };
        let intent = words("intent")?.ok_or(missing)?;
        let wants_install = match member("autoProvision") {
            None => false,
            Some(Value::Bool(wanted)) => *wanted,
            Some(_) => {
                return Err(BadRequest { name: "autoProvision", expected: "true or false" });
            }
        };
        Ok(ProvisionRequest { intent, context: words("context")?, wants_install })
    }

    /// Everything that is searched with.
    pub fn need(&self) -> String {
        match &self.context {
            Some(context) => format!("{} {context}", self.intent),
            None => self.intent.clone(),
        }
    }
}
