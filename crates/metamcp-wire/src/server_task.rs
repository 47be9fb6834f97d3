//! Tasks of servers: a result that is a handle, and what a server says of the task later. Of both kinds: the extension of
//! the stateless era, where the server decides, and the tasks of 2025-11-25, which have to be asked for.
//! Owns: what is read of them, within bounds.      Never: asks for one.
//! In: raw results.  Out: ids, states, questions.
//! Tests: below.

use std::time::Duration;

use crate::modern::input::{InvalidInput, Question, required};
use crate::object::{pick, text};

/// The extension of the stateless era, by its name in capabilities.
pub const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Longest id of a task that is repeated to its server.
const MAX_ID: usize = 1024;
/// Longest message about a task.
const MAX_MESSAGE: usize = 300;
/// How often a server is asked, whatever it wishes.
const OFTENEST: Duration = Duration::from_millis(200);
const RAREST: Duration = Duration::from_secs(30);
/// Without a wish.
const USUAL: Duration = Duration::from_secs(1);

/// The handle of a task, in place of a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Created {
    pub id: String,
    pub poll: Duration,
}

/// What `tasks/get` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen<'a> {
    pub state: State<'a>,
    pub message: Option<String>,
    pub poll: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State<'a> {
    Working,
    /// In the stateless era with the questions; in the older one they come as requests of the server.
    InputRequired(Vec<Question>),
    /// In the stateless era with the result.
    Completed(Option<&'a [u8]>),
    /// In the stateless era with the error.
    Failed(Option<&'a [u8]>),
    Cancelled,
}

/// What cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTask {
    #[error("it has no usable {0}")]
    Member(&'static str),
    #[error("its state is unknown")]
    State,
    #[error(transparent)]
    Input(#[from] InvalidInput),
}

/// The task that a result of the stateless era stands for, whose type says that it is one.
pub fn created(result: &[u8]) -> Result<Created, InvalidTask> {
    let [id, poll] =
        pick(result, ["taskId", "pollIntervalMs"]).map_err(|_| InvalidTask::Member("members"))?;
    Ok(Created { id: id_of(id)?, poll: interval(poll) })
}

/// The same for 2025-11-25; nothing if the server answered with a result at once.
pub fn created_when_asked(result: &[u8]) -> Option<Result<Created, InvalidTask>> {
    let [task, content] = pick(result, ["task", "content"]).ok()?;
    let task = task.filter(|task| task.starts_with(b"{") && content.is_none())?;
    let Ok([id, poll]) = pick(task, ["taskId", "pollInterval"]) else {
        return Some(Err(InvalidTask::Member("members")));
    };
    Some(id_of(id).map(|id| Created { id, poll: interval(poll) }))
}

/// The answer to `tasks/get`, of either era.
pub fn seen(result: &[u8]) -> Result<Seen<'_>, InvalidTask> {
    let wanted = ["status", "statusMessage", "pollIntervalMs", "pollInterval", "result", "error"];
    let [status, message, modern, older, outcome, error] =
        pick(result, wanted).map_err(|_| InvalidTask::Member("members"))?;
    let status = status.and_then(text).ok_or(InvalidTask::Member("status"))?;
    let object = |raw: Option<&'_ [u8]>| raw.is_some_and(|raw| raw.starts_with(b"{"));
    let state = match &*status {
        "working" => State::Working,
        "input_required" => State::InputRequired(questions(result)?),
        "completed" => State::Completed(outcome.filter(|_| object(outcome))),
        "failed" => State::Failed(error.filter(|_| object(error))),
        "cancelled" => State::Cancelled,
        _ => return Err(InvalidTask::State),
    };
    let message = message.and_then(text).map(|message| {
        message.chars().filter(|c| !c.is_control()).take(MAX_MESSAGE).collect::<String>()
    });
    let message = message.filter(|message| !message.is_empty());
    Ok(Seen { state, message, poll: interval(modern.or(older)) })
}

fn questions(result: &[u8]) -> Result<Vec<Question>, InvalidTask> {
    let [requests] = pick(result, ["inputRequests"]).map_err(|_| InvalidTask::Member("members"))?;
    match requests {
        Some(_) => Ok(required(result)?.questions),
        None => Ok(Vec::new()),
    }
}

fn id_of(raw: Option<&[u8]>) -> Result<String, InvalidTask> {
    let id = raw.and_then(text).filter(|id| !id.is_empty() && id.len() <= MAX_ID);
    id.map(std::borrow::Cow::into_owned).ok_or(InvalidTask::Member("taskId"))
}

fn interval(raw: Option<&[u8]>) -> Duration {
    let millis = raw.and_then(|raw| std::str::from_utf8(raw).ok()?.parse::<f64>().ok());
    let millis = millis.filter(|millis| millis.is_finite() && *millis >= 0.0);
    millis.map_or(USUAL, |millis| {
        Duration::from_secs_f64((millis / 1000.0).min(RAREST.as_secs_f64())).max(OFTENEST)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_is_read_in_both_eras_and_a_result_is_none() {
        let modern = br#"{"resultType":"task","taskId":"a","status":"working","pollIntervalMs":5}"#;
        assert_eq!(created(modern).unwrap(), Created { id: "a".into(), poll: OFTENEST });
        let older = br#"{"task":{"taskId":"b","status":"working","pollInterval":2000}}"#;
        let asked = created_when_asked(older).unwrap().unwrap();
        assert_eq!(asked, Created { id: "b".into(), poll: Duration::from_secs(2) });
        for result in
            [&br#"{"content":[],"task":{"taskId":"x"}}"#[..], b"{}", b"7", br#"{"task":7}"#]
        {
            assert_eq!(created_when_asked(result), None);
        }
        for broken in
            [&br#"{"task":{}}"#[..], br#"{"task":{"taskId":""}}"#, br#"{"task":{"taskId":7}}"#]
        {
            assert!(created_when_asked(broken).unwrap().is_err());
        }
        let long = format!("{{\"taskId\":\"{}\"}}", "x".repeat(MAX_ID + 1));
        assert!(created(long.as_bytes()).is_err());
    }

    #[test]
    fn what_a_server_says_of_a_task_is_bounded() {
        let told = |json: &'static str| seen(json.as_bytes());
        assert_eq!(told(r#"{"status":"working"}"#).unwrap().poll, USUAL);
        assert_eq!(told(r#"{"status":"working","pollIntervalMs":1e300}"#).unwrap().poll, RAREST);
        assert_eq!(told(r#"{"status":"working","pollIntervalMs":-5}"#).unwrap().poll, USUAL);
        let done = told(r#"{"status":"completed","result":{"content":[]}}"#).unwrap();
        assert_eq!(done.state, State::Completed(Some(br#"{"content":[]}"#)));
        assert_eq!(
            told(r#"{"status":"completed","result":7}"#).unwrap().state,
            State::Completed(None)
        );
        let asks = told(
            r#"{"status":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{}}}}"#,
        );
        let State::InputRequired(questions) = asks.unwrap().state else { panic!() };
        assert_eq!((questions.len(), &*questions[0].key), (1, "k"));
        assert!(
            told(r#"{"status":"input_required","inputRequests":{"k":{"method":"tools/call"}}}"#)
                .is_err()
        );
        for broken in ["{}", "7", r#"{"status":"dreaming"}"#, r#"{"status":7}"#] {
            assert!(told(broken).is_err(), "{broken}");
        }
        let said = told("{\"status\":\"working\",\"statusMessage\":\"a\\u001b[31mb\"}").unwrap();
        assert_eq!(said.message.as_deref(), Some("a[31mb"));
    }
}
