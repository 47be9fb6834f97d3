//! Tasks: a call that takes long goes on under a handle, while its client does something else or comes back later.
//! Owns: the tasks and their results, which call becomes one.      Never: decides their states (`calls::tasks` does), calls a server.
//! In: a call that has been under way for a while.  Out: a handle for its client, and under that handle the result.
//! Tests: `metamcp/tests/surface/tasks.rs`.

mod built_in;
mod protocol;
mod task;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::tasks::{self, Standing};
use metamcp_types::moment::Moment;
use parking_lot::Mutex;

use super::View;
use crate::results::Owner;
use crate::router::{CallOutcome, Follow, LongCall, TakenOver};
pub(super) use built_in::SERVER;
pub use protocol::METHODS;
pub(super) use task::Task;

pub use metamcp_wire::server_task::TASKS as EXTENSION;

/// See the module.
#[derive(Default)]
pub struct Tasks {
    by_id: Mutex<HashMap<String, Arc<Task>>>,
}

impl Tasks {
    /// Adds one, unless its owner has too many.
    fn add(&self, task: &Arc<Task>, now: Moment) -> bool {
        let mut by_id = self.by_id.lock();
        let (mut ids, mut all) = (Vec::new(), Vec::new());
        for (id, task) in by_id.iter() {
            ids.push(id.clone());
            all.push(Standing { owner: task.owner.principal, ended: task.ended() });
        }
        for at in tasks::to_forget(&all, now) {
            by_id.remove(&ids[at]);
        }
        let has_room = tasks::has_room(&all, task.owner.principal);
        if has_room {
            by_id.insert(task.id.clone(), Arc::clone(task));
        }
        has_room
    }

    /// The task of that id, if this reader may see it.
    fn find(&self, id: &str, reader: &Owner, now: Moment) -> Option<Arc<Task>> {
        let task = Arc::clone(self.by_id.lock().get(id)?);
        let is_old = task.ended().is_some_and(|ended| now.since(ended) >= tasks::KEEP);
        (!is_old && reader.may_read(&task.owner)).then_some(task)
    }

    /// Those that this reader may see, the newest first.
    fn of(&self, reader: &Owner, now: Moment) -> Vec<Arc<Task>> {
        let by_id = self.by_id.lock();
        let is_seen = |task: &&Arc<Task>| {
            let is_old = task.ended().is_some_and(|ended| now.since(ended) >= tasks::KEEP);
            !is_old && reader.may_read(&task.owner)
        };
        let mut seen: Vec<Arc<Task>> = by_id.values().filter(is_seen).cloned().collect();
        seen.sort_by_key(|task| std::cmp::Reverse(task.created()));
        seen
    }

    /// Whether any of them still runs: nothing that it needs may end before.
    pub fn are_running(&self) -> bool {
        self.by_id.lock().values().any(|task| task.ended().is_none())
    }
}

/// Follows a call that a client made itself: its result is shortened, or rendered, as ever; and if it takes long, it
/// becomes a task.
pub(super) struct Outliving<M> {
    view: View,
    after: Duration,
    map: M,
    /// How the first answer reads, as the outcome of the call would.
    is_taken: bool,
}

/// How the outcome of a call reads in a surface.
pub(super) trait Render: Send + 'static {
    fn render(&self, view: &View, outcome: CallOutcome) -> CallOutcome;
}

impl View {
    /// Follows a call, which becomes a task if it takes longer than the setting says.
    pub(super) fn outliving<M: Render>(&self, map: M) -> Outliving<M> {
        let after = self.surface.options.task_after;
        if !after.is_zero() {
            self.surface.router.watch_long_calls();
        }
        Outliving { view: self.clone(), after, map, is_taken: false }
    }
}

impl<M: Render> Follow for Outliving<M> {
    fn map(self: Box<Self>, outcome: CallOutcome) -> CallOutcome {
        let Outliving { view, map, .. } = *self;
        map.render(&view, outcome)
    }

    fn outlives(&mut self, call: &LongCall<'_>) -> Option<TakenOver> {
        if self.is_taken || self.after.is_zero() || call.age < self.after {
            return None;
        }
        // Once: a call whose owner has too many tasks is not looked at again.
        self.is_taken = true;
        let task = Task::of(&self.view, call);
        if !self.view.surface.tasks.add(&task, self.view.surface.router.clock.now()) {
            return None;
        }
        let response = match task.is_of_protocol() {
            true => CallOutcome::Result(Bytes::from(task.creation())),
            false => {
                let told = built_in::became_task(&task, call.age, self.view.audience);
                self.map.render(&self.view, CallOutcome::Result(Bytes::from(told)))
            }
        };
        let CallOutcome::Result(response) = response else { return None };
        let is_handle = task.is_of_protocol();
        Some(TakenOver { caller: task.caller(call.caller), response, is_handle })
    }
}
