//! Incoming messages, with ids preserved byte for byte.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// Any incoming message: a request, a notification, or a response to a server request.
#[derive(Debug, Deserialize)]
pub(super) struct Incoming {
    pub id: Option<Box<RawValue>>,
    pub method: Option<String>,
    #[serde(default)]
    pub params: Value,
    pub result: Option<Value>,
    pub error: Option<Value>,
}

/// A request: it has an id and expects a response.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// The id exactly as the peer wrote it.
    pub id: String,
    pub params: Value,
}

/// A `tools/call`, numbered within this process.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub id: String,
    pub tool: String,
    pub arguments: Value,
    pub meta: Value,
    pub key: String,
    /// 1 for the first call of this process.
    pub number: u64,
    /// Whether it belongs to the stateless revision.
    pub stateless: bool,
    /// The input responses of an input-required retry.
    pub input: Value,
    /// The request state of an input-required retry.
    pub state: String,
}

impl Call {
    pub(super) fn new(request: &Request, number: u64) -> Self {
        let params = &request.params;
        let arguments = params["arguments"].clone();
        let text_of = |name: &str| arguments[name].as_str().map(str::to_owned);
        Self {
            id: request.id.clone(),
            tool: params["name"].as_str().unwrap_or_default().to_owned(),
            key: text_of("key").or_else(|| text_of("text")).unwrap_or_default(),
            meta: params["_meta"].clone(),
            arguments,
            number,
            stateless: false,
            input: params["inputResponses"].clone(),
            state: params["requestState"].as_str().unwrap_or_default().to_owned(),
        }
    }

    pub(super) fn amount(&self, name: &str, default: u64) -> u64 {
        self.arguments[name].as_u64().unwrap_or(default)
    }
}

pub(super) fn result_line(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

pub(super) fn error_line(id: &str, error: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#)
}

pub(super) fn notification_line(method: &str, params: &Value) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#)
}

pub(super) fn request_line(id: &str, method: &str, params: impl std::fmt::Display) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}
