//! `@tasks`: a built-in server whose tools wait for a call that takes long, cancel it, or list all of them; for clients
//! without the protocol's own way.

use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::tasks::Status;
use metamcp_types::nearest::nearest;
use metamcp_types::next::{Advice, Audience, Next};
use metamcp_types::text;
use serde_json::{Value, json};

use super::Task;
use super::task::{Ending, run};
use crate::surface::reply::{Code, ErrorObject, from_rpc};
use crate::surface::{Finished, View};

/// Its name, which cannot collide with a configured server's.
pub(in crate::surface) const SERVER: &str = "@tasks";
const TOOLS: [&str; 3] = ["wait", "cancel", "list"];
const USAGE: &str =
    "`wait` takes id and, if you like, seconds; `cancel` takes id; `list` takes nothing.";
/// The longest that one `wait` takes. Who asks for so long knows that the client's own time limit allows it.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// A cancelled call ends at once, but for what the server still has to be told.
const CANCELLED_WITHIN: Duration = Duration::from_secs(2);

/// The answer to a call that goes on.
pub(super) fn became_task(task: &Task, age: Duration, audience: Audience) -> Vec<u8> {
    let wait = Next::Task { tool: "wait", id: task.id.clone() };
    let advice = Advice::from(format!(
        "{} is still running after {} s and goes on as task {}. There is no result yet; do not repeat the call. Get its result with ",
        task.name,
        age.as_secs(),
        task.id
    ))
    .step(wait, "; `cancel` in place of `wait` ends it.");
    let text = advice.words(audience);
    json!({ "content": [{ "type": "text", "text": text }] }).to_string().into_bytes()
}

impl View {
    /// A call to one of its tools.
    pub(in crate::surface) async fn task_tool(&self, tool: &str, arguments: &Value) -> Finished {
        if !TOOLS.contains(&tool) {
            let near = nearest(tool, TOOLS, 1).first().copied().unwrap_or("wait");
            let object =
                ErrorObject::new(Code::ToolNotFound, format!("{SERVER} has no tool {tool:?}"));
            return Finished::error(&object.hint(format!("Did you mean {near}? {USAGE}")));
        }
        let known: &[&str] = match tool {
            "wait" => &["id", "seconds"],
            "cancel" => &["id"],
            _ => &[],
        };
        let given = arguments.as_object().into_iter().flatten();
        let mut unknown = given.filter(|(name, _)| !known.contains(&name.as_str()));
        if let Some((name, _)) = unknown.next() {
            return invalid(&format!("`{tool}` has no argument `{}`", text::shown(name)));
        }
        if tool == "list" {
            return self.task_list();
        }
        let Some(id) = arguments["id"].as_str() else {
            return invalid("`id` must be the id of a task from an earlier response");
        };
        let now = self.surface.router.clock.now();
        let Some(task) = self.surface.tasks.find(id, &self.owner(), now) else {
            return Finished::error(&no_such_task(id));
        };
        let patience = match (tool, &arguments["seconds"]) {
            ("cancel", _) => {
                task.cancel();
                CANCELLED_WITHIN
            }
            (_, Value::Null) => self.surface.options.task_after.max(Duration::from_secs(1)),
            (_, seconds) => match seconds.as_f64().filter(|seconds| *seconds >= 0.0) {
                Some(seconds) => Duration::from_secs_f64(seconds.min(LONGEST_WAIT.as_secs_f64())),
                None => return invalid("`seconds` must be a number, zero or more"),
            },
        };
        let ended = async {
            let mut seen = task.changes.now();
            while task.ending().is_none() {
                task.changes.moved_on(&mut seen).await;
            }
        };
        self.surface.router.clock.timeout(patience, ended).await;
        self.task_now(&task)
    }

    /// Its result, or how far it is.
    fn task_now(&self, task: &Arc<Task>) -> Finished {
        let (server, tool) = task.name.split_once(':').unwrap_or((&task.name, ""));
        let (server, tool) = (Arc::from(server), Arc::from(tool));
        match task.ending() {
            Some(Ending::Result(result)) => Finished::Result(result.to_vec()),
            Some(Ending::Error(error)) => {
                Finished::error(&from_rpc(&server, &error).at(&server, Some(&tool)))
            }
            Some(Ending::Cancelled) => {
                let object =
                    ErrorObject::new(Code::Cancelled, format!("{} was cancelled", task.name))
                        .hint("It may have run in part: verify before you call it again.");
                Finished::error(&object.at(&server, Some(&tool)))
            }
            None => {
                let wait = Next::Task { tool: "wait", id: task.id.clone() };
                let begin = format!("{} There is no result yet. ", self.task_line(task));
                let advice = Advice::from(begin).step(wait, " waits again.");
                let text = advice.words(self.audience);
                let result = json!({ "content": [{ "type": "text", "text": text }] });
                Finished::Result(result.to_string().into_bytes())
            }
        }
    }

    fn task_list(&self) -> Finished {
        let tasks = self.surface.tasks.of(&self.owner(), self.surface.router.clock.now());
        let lines: Vec<String> = tasks.iter().map(|task| self.task_line(task)).collect();
        let text = match lines.is_empty() {
            true => "There are no tasks: every call that was made has been answered.".to_owned(),
            false => lines.join("\n"),
        };
        let result = json!({ "content": [{ "type": "text", "text": text }] });
        Finished::Result(result.to_string().into_bytes())
    }

    fn task_line(&self, task: &Task) -> String {
        let now = self.surface.router.clock.now();
        let ago = |then| now.since(then).as_secs();
        let what = match (task.status(), task.ended()) {
            (Status::Working, _) => format!("running for {} s", ago(task.created())),
            (Status::InputRequired, _) => "waits for an answer of the user".to_owned(),
            (status, ended) => {
                let since = ended.map_or(0, ago);
                format!("{} {since} s ago", status.word())
            }
        };
        let message = task.message().map(|said| format!(" (the server says: {said:?})"));
        format!("{} {}: {what}{}.", task.id, task.name, message.unwrap_or_default())
    }
}

/// Why there is no such task, as far as its id says.
pub(super) fn no_such_task(id: &str) -> ErrorObject {
    let is_id = |id: &str| id.len() == 41 && id[1..].bytes().all(|byte| byte.is_ascii_hexdigit());
    let of_run = id.strip_prefix('t').and_then(|rest| u32::from_str_radix(rest.get(..8)?, 16).ok());
    let shown = text::shown(id);
    if id.is_ascii() && is_id(id) && of_run.is_some_and(|other| other != run()) {
        let object = ErrorObject::new(
            Code::OutcomeUnknown,
            format!("the task {shown} is gone: metamcp was restarted since"),
        );
        return object.hint("Its call may have run. Verify before you call again.").retryable(None);
    }
    ErrorObject::new(Code::ToolNotFound, format!("there is no task {shown}")).hint(
        "Results of tasks are kept for an hour, and only who made a call sees its task. `list` of @tasks shows yours.",
    )
}

fn invalid(what: &str) -> Finished {
    Finished::error(&ErrorObject::new(Code::ValidationInput, what).hint(USAGE))
}
