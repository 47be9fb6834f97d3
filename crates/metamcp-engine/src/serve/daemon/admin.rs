//! The admin API: what an operator asks of the daemon, from a terminal over the local socket or from the page.
//! Owns: the names of requests, how they are answered and refused.      Never: lets anybody in (the socket and the page do), renders.
//! In: a name and JSON params.  Out: JSON, or an `AdminError`.
//! Tests: below, `metamcp/tests/daemon/admin.rs`.
//!
//! Everything is a question with one answer. Whoever follows something asks again with the number of the last row it has:
//! so nobody who reads slowly makes the daemon keep anything, and rates are bounded by who asks.

mod approvals;
mod calls;
pub(super) mod contextual;
mod gallery;
pub(super) mod overview;
mod server_actions;
mod servers;
mod settings;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use metamcp_types::text;
use metamcp_wire::local::Hello;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::{Daemon, local, page};
use crate::metrics::Format;

/// Longest request: arguments of a tool call.
const MAX_REQUEST: u64 = 8 * 1024 * 1024;
/// How long an answer may take to be read.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest part of a stranger's words in an answer.
const MAX_QUOTED: usize = 200;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminError {
    pub code: &'static str,
    pub message: String,
    pub hint: Option<String>,
}

impl AdminError {
    pub fn new(code: &'static str, message: impl Into<String>) -> AdminError {
        AdminError { code, message: message.into(), hint: None }
    }

    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> AdminError {
        AdminError { hint: Some(hint.into()), ..self }
    }

    /// There is no such thing.
    pub fn not_found(message: impl Into<String>) -> AdminError {
        AdminError::new("not_found", message)
    }

    /// The params are not what they should be.
    pub fn params(why: &str) -> AdminError {
        let why = text::clean_line(why, MAX_QUOTED);
        AdminError::new("bad_params", format!("the params of this request cannot be used: {why}"))
    }

    pub fn to_json(&self) -> Value {
        json!({ "code": self.code, "message": self.message, "hint": self.hint })
    }
}

/// An answer or why there is none.
pub type Answer = Result<Value, AdminError>;

/// Answers one request.
pub async fn answer(daemon: &Arc<Daemon>, ask: &str, params: Value) -> Answer {
    match ask {
        "overview" => overview::overview(daemon, read(params)?).await,
        "calls" => Ok(calls::calls(daemon, read(params)?)),
        "call" => calls::call(daemon, &read(params)?),
        "scripts" => Ok(calls::scripts(daemon, &read(params)?)),
        "script" => calls::script(daemon, &read(params)?),
        "events" => Ok(calls::events(daemon, &read(params)?)),
        "logs" => calls::logs(daemon, &read(params)?),
        "restart" => server_actions::restart(daemon, &read(params)?),
        "metrics" => metrics(daemon).await,
        _ => {
            let ask = text::clean_line(ask, MAX_QUOTED);
            Err(AdminError::new("unknown_request", format!("there is no request {ask:?}"))
                .hint("`metamcp daemon restart` makes daemon and command the same version"))
        }
    }
}

/// Everything that is counted, as `OpenMetrics`.
async fn metrics(daemon: &Arc<Daemon>) -> Answer {
    let Some(metrics) = daemon.machine.metrics.clone() else {
        return Err(AdminError::new("off", "nothing is counted here")
            .hint("set metrics.enabled, and run `metamcp daemon restart`"));
    };
    let rendered = tokio::task::spawn_blocking(move || metrics.render(Format::OpenMetrics));
    let text = rendered.await;
    let text = text.map_err(|_| AdminError::new("internal", "the metrics could not be read"))?;
    Ok(json!({ "text": text }))
}

/// The params of a request; what is not known is ignored, so that either side may be newer.
fn read<P: DeserializeOwned + Default>(params: Value) -> Result<P, AdminError> {
    match params {
        Value::Null => Ok(P::default()),
        params => {
            serde_json::from_value(params).map_err(|why| AdminError::params(&why.to_string()))
        }
    }
}

#[derive(Deserialize)]
struct Request {
    ask: String,
    #[serde(default)]
    params: Value,
}

/// Answers requests on a local connection, one line each, until it closes.
pub(super) async fn serve(daemon: &Arc<Daemon>, hello: &Hello, stream: local::Stream) {
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input);
    let mut stopping = daemon.stopping.subscribe();
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut input).take(MAX_REQUEST);
        let read = tokio::select! {
            read = limited.read_until(b'\n', &mut line) => read,
            _ = stopping.wait_for(|stops| *stops) => return,
        };
        if !matches!(read, Ok(1..)) || line.pop_if(|last| *last == b'\n').is_none() {
            return;
        }
        let answered = match serde_json::from_slice::<Request>(&line) {
            Ok(request) if request.ask == page::OPEN => {
                page::asked(daemon, hello, &request.params).await
            }
            Ok(request) => answer(daemon, &request.ask, request.params).await,
            Err(why) => Err(AdminError::params(&why.to_string())),
        };
        let told = match answered {
            Ok(value) => json!({ "ok": value }),
            Err(error) => json!({ "error": error.to_json() }),
        };
        let line = format!("{told}\n");
        let written = tokio::time::timeout(WRITE_TIMEOUT, output.write_all(line.as_bytes())).await;
        if !matches!(written, Ok(Ok(()))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize, PartialEq)]
    #[serde(default, rename_all = "camelCase")]
    struct Params {
        most: usize,
    }

    #[test]
    fn params_may_be_missing_or_newer_but_not_wrong() {
        assert_eq!(read::<Params>(Value::Null), Ok(Params::default()));
        assert_eq!(read::<Params>(json!({ "most": 3, "weather": 1 })), Ok(Params { most: 3 }));
        let error = read::<Params>(json!({ "most": "three\u{1b}" })).unwrap_err();
        assert_eq!(error.code, "bad_params");
        assert!(!error.message.contains('\u{1b}'));
    }
}
