//! The methods of the protocol's task extension: `tasks/get`, `tasks/update`, `tasks/cancel`.

use metamcp_wire::modern::input;
use metamcp_wire::object;

use super::built_in::no_such_task;
use crate::surface::{Finished, View};

/// The methods, for clients that declare the extension.
pub const METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

impl View {
    /// A request about a task of this view.
    pub fn task_request(&self, method: &str, params: &[u8]) -> Finished {
        let picked = match object::pick(params, ["taskId", "inputResponses"]) {
            Ok(picked) => picked,
            Err(defect) => {
                return Finished::invalid(format!(
                    "the params of {method} cannot be used: {defect}"
                ));
            }
        };
        let [id, responses] = picked;
        let Some(id) = id.and_then(object::text) else {
            return Finished::invalid(format!("{method} needs taskId, a string"));
        };
        let now = self.surface.router.clock.now();
        let Some(task) = self.surface.tasks.find(&id, &self.owner(), now) else {
            return Finished::invalid(no_such_task(&id).to_line());
        };
        match method {
            "tasks/get" => return Finished::Result(task.detailed()),
            "tasks/cancel" => task.cancel(),
            _ => match input::responses(responses.unwrap_or(b"{}")) {
                Ok(answers) => task.answered(answers),
                Err(unfit) => {
                    return Finished::invalid(format!("inputResponses cannot be used: {unfit}"));
                }
            },
        }
        Finished::Result(b"{}".to_vec())
    }
}
