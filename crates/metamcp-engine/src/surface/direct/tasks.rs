//! Tasks in direct mode: the client follows them itself, at the server that made them. Of several servers the id says
//! which, as the names of tools do.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_wire::{object, write};

use crate::router::{CallOutcome, Caller, Entry, ResultMapper};
use crate::surface::{Finished, Step, View};

/// Between the name of a server and its own id of a task.
const BETWEEN: &str = "__";

impl View {
    /// Forwards a request about a task to the server that its id names, of several.
    pub(super) fn forward_about_task(
        &self,
        method: &'static str,
        params: Option<&[u8]>,
        caller: &Caller,
    ) -> Step {
        let params = params.unwrap_or(b"{}");
        let id = object::pick(params, ["taskId"]).ok().and_then(|[id]| id).and_then(object::text);
        let Some(id) = id else {
            return Step::Now(Finished::invalid(format!("{method} needs taskId, a string")));
        };
        let servers = self.enabled();
        let owner = servers.iter().find_map(|entry| {
            let rest = id.strip_prefix(&*entry.name)?.strip_prefix(BETWEEN)?;
            Some((entry, rest.to_owned()))
        });
        let Some((entry, own)) = owner.filter(|(entry, _)| self.has_all_of(entry)) else {
            return Step::Now(Finished::invalid("Failed to retrieve task: no server has made it"));
        };
        let params = with_id(params, &own);
        let mut request = self.request(
            entry,
            method,
            own.as_str().into(),
            Some(&params),
            caller.responder.input(),
        );
        request.result_mapper = Some(naming(entry));
        self.surface.router.call(request, caller.clone());
        Step::Dispatched
    }
}

/// Puts the server's name in front of the id of a task in a result.
pub(super) fn naming(entry: &Entry) -> ResultMapper {
    let server = Arc::clone(&entry.name);
    ResultMapper::new(move |outcome| match outcome {
        CallOutcome::Result(result) => CallOutcome::Result(named(&server, result)),
        outcome => outcome,
    })
}

fn named(server: &str, result: Bytes) -> Bytes {
    // Nearly every result is none.
    if memchr::memmem::find(&result, b"\"taskId\"").is_none() {
        return result;
    }
    let own = |raw: &[u8]| {
        let [id] = object::pick(raw, ["taskId"]).ok()?;
        let id = object::text(id?)?.into_owned();
        Some(with_id(raw, &format!("{server}{BETWEEN}{id}")))
    };
    let [task, content] = object::pick(&result, ["task", "content"]).unwrap_or([None; 2]);
    if content.is_some() {
        return result;
    }
    let renamed = match task.filter(|task| task.starts_with(b"{")) {
        Some(task) => own(task).map(|task| object::replace_member(&result, "task", &task)),
        None => own(&result),
    };
    renamed.map_or(result, Bytes::from)
}

fn with_id(raw: &[u8], id: &str) -> Vec<u8> {
    let mut quoted = Vec::with_capacity(id.len() + 2);
    write::json_string(&mut quoted, id);
    object::replace_member(raw, "taskId", &quoted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(result: &'static str) -> String {
        String::from_utf8(named("files", Bytes::from_static(result.as_bytes())).to_vec()).unwrap()
    }

    #[test]
    fn only_the_id_of_a_task_is_renamed() {
        assert_eq!(
            seen(r#"{"resultType":"task","taskId":"a\"b","ttlMs": 1.50}"#),
            r#"{"resultType":"task","taskId":"files__a\"b","ttlMs": 1.50}"#
        );
        assert_eq!(
            seen(r#"{"task":{"status":"working","taskId":"x"}}"#),
            r#"{"task":{"status":"working","taskId":"files__x"}}"#
        );
        for plain in [
            r#"{"content":[{"type":"text","text":"\"taskId\""}]}"#,
            r#"{"content":[],"taskId":"mine"}"#,
            r#"{"structuredContent":{"taskId":"mine"}}"#,
            r#"{"taskId":7}"#,
        ] {
            assert_eq!(seen(plain), plain);
        }
    }
}
