//! The outcome of a call, as its caller sees it.
//! Owns: parsing a response.  Never: judges it; the expectations do.
//! In: a response.  Out: one of four outcomes.
//! Tests: below.

use std::fmt;

use serde_json::Value;

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum CallOutcome {
    /// The tool's own result.
    Success,
    /// The tool itself reports an error.
    ToolError,
    /// The gateway reports an error.
    GatewayError(ErrorObject),
    /// A protocol error.
    Protocol {
        /// The JSON-RPC error code.
        code: i64,
        message: String,
    },
}

/// The handle of a truncated result, in the call that reads on.
pub fn stored_handle(result: &Value) -> Option<&str> {
    let text = result["content"][0]["text"].as_str()?;
    text.rsplit_once("\"id\": \"")?.1.split('"').next()
}

/// The gateway's error, as its callers see it.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorObject {
    /// One of the documented error codes.
    pub code: String,
    /// What happened and how to fix it.
    pub message: String,
    /// The server it happened with.
    pub server: Option<String>,
    /// Whether a retry can help.
    pub retryable: bool,
    /// The category of the failure, where a child was involved.
    pub category: Option<String>,
    /// The whole object.
    pub whole: Value,
}

impl CallOutcome {
    /// Parses the response to a `tools/call`.
    pub fn of(answer: &Value) -> Self {
        if let Some(error) = answer.get("error") {
            return Self::Protocol {
                code: error["code"].as_i64().unwrap_or_default(),
                message: error["message"].as_str().unwrap_or_default().to_owned(),
            };
        }
        let result = &answer["result"];
        if result["isError"] != true {
            return Self::Success;
        }
        let object = &result["structuredContent"];
        let text = |name: &str| object[name].as_str().map(str::to_owned);
        match (text("code"), text("message"), object["retryable"].as_bool()) {
            (Some(code), Some(message), Some(retryable)) => Self::GatewayError(ErrorObject {
                code,
                message,
                server: text("server"),
                retryable,
                category: object["details"]["category"].as_str().map(str::to_owned),
                whole: object.clone(),
            }),
            _ => Self::ToolError,
        }
    }

    /// Checks what the caller was told against how often its tool really ran.
    pub fn check_executions(&self, times: usize) -> Result<(), String> {
        let (must, may) = match self {
            Self::Success | Self::ToolError => (true, true),
            Self::GatewayError(error) => match error.code.as_str() {
                // A response arrived but could not be forwarded.
                "execution_failed" => (true, true),
                "outcome_unknown" | "limit_exceeded" => (false, true),
                "timeout" | "shutting_down" => (false, error.whole["details"]["sent"] == true),
                _ => (false, false),
            },
            Self::Protocol { .. } => (false, false),
        };
        match times {
            0 if must => Err(format!("it never ran, but its caller was told: {self}")),
            1.. if !may => Err(format!("it ran, but its caller was told: {self}")),
            _ => Ok(()),
        }
    }

    /// The gateway's error code, if the gateway reported an error.
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::GatewayError(error) => Some(&error.code),
            Self::Success | Self::ToolError | Self::Protocol { .. } => None,
        }
    }
}

impl fmt::Display for CallOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => write!(f, "fine"),
            Self::ToolError => write!(f, "tool error"),
            Self::GatewayError(error) => write!(f, "{}: {}", error.code, error.message),
            Self::Protocol { code, message } => write!(f, "protocol error {code}: {message}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reports_match_what_happened() {
        let refused = |code: &str, sent: bool| {
            CallOutcome::of(&json!({"result": {"isError": true, "structuredContent":
                {"code": code, "message": "m", "retryable": false, "details": {"sent": sent}}}}))
        };
        for (outcome, not_run, run) in [
            (CallOutcome::Success, false, true),
            (CallOutcome::ToolError, false, true),
            (refused("execution_failed", true), false, true),
            (refused("outcome_unknown", true), true, true),
            (refused("timeout", true), true, true),
            (refused("timeout", false), true, false),
            (refused("server_unavailable", false), true, false),
            (CallOutcome::Protocol { code: -32000, message: String::new() }, true, false),
        ] {
            assert_eq!(outcome.check_executions(0).is_ok(), not_run, "{outcome}");
            assert_eq!(outcome.check_executions(1).is_ok(), run, "{outcome}");
        }
    }

    #[test]
    fn the_four_outcomes() {
        assert_eq!(CallOutcome::of(&json!({"result": {"content": []}})), CallOutcome::Success);
        let child = json!({"result": {"isError": true, "structuredContent": {"code": "E", "message": "m"}}});
        assert_eq!(
            CallOutcome::of(&child),
            CallOutcome::ToolError,
            "a child's own error has no retryable"
        );
        let gateway = json!({"result": {"isError": true, "structuredContent":
            {"code": "timeout", "message": "m", "server": "a", "retryable": false, "details": {"category": "other"}}}});
        let outcome = CallOutcome::of(&gateway);
        assert_eq!(outcome.code(), Some("timeout"));
        assert_eq!(outcome.to_string(), "timeout: m");
        let protocol = json!({"error": {"code": -32602, "message": "m"}});
        assert_eq!(
            CallOutcome::of(&protocol),
            CallOutcome::Protocol { code: -32602, message: "m".to_owned() }
        );
    }
}
