//! The stateless revision 2026-07-28: `_meta` of requests, `resultType` of results, and its errors.
//! Owns: names and shapes of that revision.      Never: sends, waits, changes other bytes than needed.
//! In: raw params, results, headers.  Out: parsed values, new text with single members spliced in, a `Fault`.
//! Tests: below and in each file.

pub mod headers;
pub mod input;
pub mod listen;
pub mod meta;
pub mod result;

use serde_json::json;

use crate::era::Era;

/// The headers of an HTTP request do not agree with its body.
pub const HEADER_MISMATCH: i64 = -32020;
/// The client has not declared a capability that the request needs.
pub const MISSING_CAPABILITY: i64 = -32021;
/// The request is in a version that is not spoken here.
pub const UNSUPPORTED_VERSION: i64 = -32022;

/// Why a request is refused: the JSON-RPC error and its HTTP status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub code: i64,
    pub message: String,
    pub data: Option<Vec<u8>>,
    pub status: u16,
}

impl Fault {
    /// Invalid params.
    pub fn invalid(message: impl Into<String>) -> Fault {
        Fault { code: -32602, message: message.into(), data: None, status: 400 }
    }

    /// No such method in this revision.
    pub fn no_such_method(method: &str) -> Fault {
        let shown: String = method.chars().take(100).collect();
        Fault {
            code: -32601,
            message: format!("metamcp does not know the method {shown:?}"),
            data: None,
            status: 404,
        }
    }

    /// Unsupported version.
    pub fn unsupported(requested: &str) -> Fault {
        let requested: String = requested.chars().take(100).collect();
        let supported: Vec<&str> = Era::supported().collect();
        Fault {
            code: UNSUPPORTED_VERSION,
            message: "Unsupported protocol version".to_owned(),
            data: Some(
                json!({ "supported": supported, "requested": requested }).to_string().into_bytes(),
            ),
            status: 400,
        }
    }

    /// A required client capability is missing.
    pub fn missing(capability: &str, why: impl Into<String>) -> Fault {
        let mut needed = serde_json::Map::new();
        needed.insert(capability.to_owned(), json!({}));
        Fault {
            code: MISSING_CAPABILITY,
            message: why.into(),
            data: Some(json!({ "requiredCapabilities": needed }).to_string().into_bytes()),
            status: 400,
        }
    }

    /// The same for an extension.
    pub fn missing_extension(extension: &str, why: impl Into<String>) -> Fault {
        let mut needed = serde_json::Map::new();
        needed.insert(extension.to_owned(), json!({}));
        let needed = json!({ "requiredCapabilities": { "extensions": needed } });
        let data = Some(needed.to_string().into_bytes());
        Fault { code: MISSING_CAPABILITY, message: why.into(), data, status: 400 }
    }

    pub fn header(message: impl Into<String>) -> Fault {
        Fault { code: HEADER_MISMATCH, message: message.into(), data: None, status: 400 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_say_what_would_help() {
        let fault = Fault::unsupported("1900-01-01");
        let data: serde_json::Value = serde_json::from_slice(&fault.data.unwrap()).unwrap();
        assert_eq!(data["requested"], "1900-01-01");
        assert_eq!(data["supported"][0], "2026-07-28");
        assert_eq!((fault.code, fault.status), (-32022, 400));
        let fault = Fault::missing("elicitation", "why");
        let data: serde_json::Value = serde_json::from_slice(&fault.data.unwrap()).unwrap();
        assert_eq!(data, json!({"requiredCapabilities": {"elicitation": {}}}));
        assert_eq!(Fault::no_such_method("ping").status, 404);
    }
}
