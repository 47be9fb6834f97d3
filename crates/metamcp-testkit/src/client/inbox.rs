//! Every line in order of arrival, and which request each of them answers.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// One received line.
#[derive(Clone, Debug)]
pub struct Line {
    /// The bytes without the newline.
    pub bytes: Arc<[u8]>,
    /// When its last byte was read.
    pub at: Instant,
    pub kind: Kind,
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A response, with the id as it was written.
    Answer(String),
    /// A server request, by method.
    Question(String),
    /// A notification, by method.
    Notification(String),
    /// Nothing a client can use; also recorded as a violation.
    Unusable,
}

/// The response to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The whole message.
    pub value: Value,
    /// The raw line.
    pub raw: Arc<[u8]>,
    /// Its index among all lines received.
    pub index: usize,
    pub at: Instant,
}

impl Answer {
    /// The result, unless it is an error.
    pub fn result(&self) -> Option<&Value> {
        self.value.get("result")
    }

    /// The result's bytes exactly as received.
    pub fn raw_result(&self) -> Option<&str> {
        #[derive(Deserialize)]
        struct Raw<'a> {
            #[serde(borrow)]
            result: Option<&'a RawValue>,
        }
        serde_json::from_slice::<Raw<'_>>(&self.raw).ok()?.result.map(RawValue::get)
    }

    /// The text of the first content block of a tool's result.
    pub fn text(&self) -> Option<&str> {
        self.result()?["content"][0]["text"].as_str()
    }

    /// The value of a script that succeeded; see [`returned`].
    pub fn returned(&self) -> Option<Value> {
        returned(self.result()?)
    }
}

/// The value in the result of a script that succeeded: its text without output and calls, as JSON where it is that.
/// Nothing is beside the text.
pub fn returned(result: &Value) -> Option<Value> {
    let is_text_only = result.get("structuredContent").is_none() && result["isError"] != true;
    let text = result["content"][0]["text"].as_str().filter(|_| is_text_only)?;
    let mut value = text;
    for mark in
        ["\n\nconsole:\n", "\n\ncalls made: ", "\n\ncalls that failed: ", "\n[nothing was returned"]
    {
        value = value.split(mark).next().unwrap_or(value);
    }
    Some(serde_json::from_str(value).unwrap_or_else(|_| Value::from(value)))
}

pub(super) struct Question {
    pub id: String,
    pub method: String,
    pub params: Value,
}

#[derive(Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    arrival: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<Line>,
    /// How many responses each id may get: one per request that carried it.
    expected: HashMap<String, usize>,
    /// The lines that answered each id, in order.
    answers: HashMap<String, Vec<usize>>,
    violations: Vec<String>,
    ended: bool,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    jsonrpc: Version,
    #[serde(borrow, default, deserialize_with = "written")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// An id that is present, even if it is null: errors about unreadable requests have a null id.
fn written<'de: 'a, 'a, D: Deserializer<'de>>(
    id: D,
) -> std::result::Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(id).map(Some)
}

/// Without its version a line is not a message, whatever else it contains.
#[derive(Deserialize)]
enum Version {
    #[serde(rename = "2.0")]
    Two,
}

impl Inbox {
    /// Allows one more response to this id.
    pub(super) fn expect(&self, id: &str) {
        *self.lock().expected.entry(id.to_owned()).or_default() += 1;
    }

    /// Records a line; returns it if it is a server request that needs a response.
    pub(super) fn take(&self, bytes: Vec<u8>) -> Option<Question> {
        let at = Instant::now();
        let (kind, question) = match serde_json::from_slice::<Envelope<'_>>(&bytes) {
            Ok(Envelope {
                jsonrpc: Version::Two,
                id: Some(id),
                method: Some(method),
                params,
                ..
            }) => {
                let params =
                    params.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
                let question =
                    Question { id: id.get().to_owned(), method: method.into_owned(), params };
                (Kind::Question(question.method.clone()), Some(question))
            }
            Ok(Envelope { id: None, method: Some(method), .. }) => {
                (Kind::Notification(method.into_owned()), None)
            }
            Ok(Envelope { id: Some(id), result, error, .. })
                if result.is_some() != error.is_some() =>
            {
                (Kind::Answer(id.get().to_owned()), None)
            }
            Ok(_) | Err(_) => (Kind::Unusable, None),
        };
        let mut state = self.lock();
        let index = state.lines.len();
        match &kind {
            Kind::Answer(id) => {
                let asked = state.expected.get(id).copied().unwrap_or_default();
                let answers = state.answers.entry(id.clone()).or_default();
                answers.push(index);
                if answers.len() > asked {
                    let violation = format!(
                        "answer {} to {id}, which was asked {asked} times: {}",
                        answers.len(),
                        excerpt(&bytes)
                    );
                    state.violations.push(violation);
                }
            }
            Kind::Unusable => {
                state.violations.push(format!("an unusable line: {}", excerpt(&bytes)));
            }
            Kind::Question(_) | Kind::Notification(_) => {}
        }
        state.lines.push(Line { bytes: bytes.into(), at, kind });
        drop(state);
        self.arrival.notify_all();
        question
    }

    pub(super) fn complain(&self, violation: String) {
        self.lock().violations.push(violation);
    }

    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.arrival.notify_all();
    }

    /// Waits for the response to an id; of several requests with one id, `earlier` is the number of responses to skip.
    pub(super) fn wait(&self, id: &str, earlier: usize, deadline: Duration) -> Result<Answer> {
        let end = Instant::now() + deadline;
        let mut state = self.lock();
        loop {
            if let Some(&index) = state.answers.get(id).and_then(|lines| lines.get(earlier)) {
                let line = state.lines[index].clone();
                drop(state);
                let value = serde_json::from_slice(&line.bytes)?;
                return Ok(Answer { value, raw: line.bytes, index, at: line.at });
            }
            if state.ended {
                bail!(
                    "request {id} was not answered before the output ended; violations: {:?}",
                    state.violations
                );
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                bail!(
                    "request {id} was not answered within {deadline:?}; violations: {:?}",
                    state.violations
                );
            }
            state =
                self.arrival.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        self.lock().lines.clone()
    }

    pub(super) fn notifications(&self, method: &str) -> Vec<Value> {
        let lines: Vec<Line> = self.lock().lines.clone();
        lines
            .iter()
            .filter(|line| matches!(&line.kind, Kind::Notification(name) if name == method))
            .filter_map(|line| serde_json::from_slice::<Value>(&line.bytes).ok())
            .map(|mut message| message["params"].take())
            .collect()
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.lock().ended
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Enough of a line to recognise it.
fn excerpt(bytes: &[u8]) -> String {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(300)]).into_owned();
    format!("{head:?} ({} bytes)", bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_classified_and_violations_noted() {
        let inbox = Inbox::default();
        inbox.expect("1");
        assert!(
            inbox
                .take(br#"{"jsonrpc":"2.0","method":"notifications/x","params":{"n":1}}"#.to_vec())
                .is_none()
        );
        assert!(inbox.take(br#"{"jsonrpc":"2.0","id":"q","method":"ping"}"#.to_vec()).is_some());
        assert!(
            inbox.take(br#"{"jsonrpc":"2.0","id":1,"result":{"b":1, "a":2}}"#.to_vec()).is_none()
        );
        assert_eq!(inbox.violations(), Vec::<String>::new());
        let answer = inbox.wait("1", 0, Duration::ZERO).unwrap();
        assert_eq!(answer.raw_result(), Some(r#"{"b":1, "a":2}"#), "bytes as they came");
        assert_eq!(inbox.notifications("notifications/x"), [serde_json::json!({"n": 1})]);

        for sin in [
            &br#"{"jsonrpc":"2.0","id":1,"result":{}}"#[..],
            br#"{"jsonrpc":"2.0","id":2,"result":{}}"#,
            br#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
            br#"{"jsonrpc":"2.0","id":null,"error":{"code":1}}"#,
            br#"{"id":1,"result":{}}"#,
            b"hello",
            b"{\"jsonrpc\":\"2.0\",\"method\":\"\xff\"}",
            br#"{"jsonrpc":"2.0","id":"1","result":{}}"#,
            br#"{"jsonrpc":"2.0","id":1.0,"result":{}}"#,
        ] {
            let before = inbox.violations().len();
            inbox.take(sin.to_vec());
            assert_eq!(inbox.violations().len(), before + 1, "{}", String::from_utf8_lossy(sin));
        }
    }

    #[test]
    fn an_id_asked_twice_is_answered_twice() {
        let inbox = Inbox::default();
        inbox.expect("\"a\"");
        inbox.expect("\"a\"");
        for result in ["1", "2"] {
            inbox.take(format!(r#"{{"jsonrpc":"2.0","id":"a","result":{result}}}"#).into_bytes());
        }
        assert_eq!(inbox.violations(), Vec::<String>::new());
        assert_eq!(inbox.wait("\"a\"", 1, Duration::ZERO).unwrap().raw_result(), Some("2"));
        assert!(inbox.wait("\"a\"", 2, Duration::ZERO).is_err());
    }
}
