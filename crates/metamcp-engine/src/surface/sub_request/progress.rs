//! The progress of a script or a chain, told to its client as that of one whole.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_types::text;
use metamcp_wire::object;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use crate::router::{Caller, Silent};

/// How much a call's own progress moves that of the whole, which has to rise with every word.
const NUDGE: f64 = 1e-6;
/// Longest name of a tool that is told.
const MAX_NAME: usize = 160;

/// How far something is, and of how much.
type Stand = (f64, Option<f64>);

/// See the module.
pub(in crate::surface) struct Progress {
    parent: Caller,
    /// The progress token of the client's request, if it gave one.
    token: Option<Bytes>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    progress: f64,
    told: bool,
    total: Option<f64>,
    /// Where the call that is under way begins, if its own progress is one step of the whole.
    step: Option<f64>,
    /// Calls of a script that have begun.
    called: usize,
    /// Where a script stood when it first told how far it is itself; from then on its calls are no steps of ours.
    speaks: Option<f64>,
    /// Nothing more is told.
    over: bool,
}

impl Progress {
    /// Of a client's request with this `_meta`.
    pub(in crate::surface) fn new(parent: &Caller, meta: Option<&[u8]>) -> Arc<Progress> {
        let token = meta
            .filter(|meta| meta.starts_with(b"{"))
            .and_then(|meta| object::pick(meta, ["progressToken"]).ok()?[0])
            .map(Bytes::copy_from_slice);
        Arc::new(Progress { parent: parent.clone(), token, state: Mutex::default() })
    }

    pub(super) fn parent(&self) -> &Caller {
        &self.parent
    }

    /// Whether anybody wants to hear of it.
    pub(in crate::surface) fn is_followed(&self) -> bool {
        self.token.is_some()
    }

    /// What is done now is one step of so many: its own progress is told within it.
    pub(in crate::surface) fn step(&self, done: usize, of: usize, message: &str) {
        let mut state = self.lock();
        state.step = Some(done as f64);
        self.tell(&mut state, Some((done as f64, Some(of as f64))), Some(message));
    }

    /// All steps are done, or one of them failed. Before the answer.
    pub(in crate::surface) fn steps_ended(&self, of: usize, message: &str) {
        let mut state = self.lock();
        self.tell(&mut state, Some((of as f64, Some(of as f64))), Some(message));
        state.over = true;
    }

    /// A script makes a call: the next step, of nobody knows how many.
    pub(in crate::surface) fn script_calls(&self, server: &str, tool: &str) {
        let mut state = self.lock();
        self.script_began(&mut state);
        state.called += 1;
        let called = state.called;
        let what = text::clean_line(&format!("{server}:{tool}"), MAX_NAME).into_owned();
        let stand = state.speaks.is_none().then_some((called as f64, None));
        self.tell(&mut state, stand, Some(&format!("call {called}: {what}")));
    }

    /// A script says how far it is. Its numbers count from where it stood by its calls before it first said so.
    pub(in crate::surface) fn script_speaks(
        &self,
        value: f64,
        total: Option<f64>,
        message: Option<&str>,
    ) {
        let mut state = self.lock();
        let stood = state.progress;
        let from = *state.speaks.get_or_insert(stood);
        let stand = (from + value, total.map(|total| from + total));
        self.tell(&mut state, Some(stand), message);
    }

    /// It ended, well or not, and its calls with it. Before its answer.
    pub(in crate::surface) fn script_ended(&self) {
        let mut state = self.lock();
        if state.speaks.is_none() {
            self.script_began(&mut state);
            let all = state.called as f64 + 1.0;
            self.tell(&mut state, Some((all, Some(all))), Some("the script ended"));
        }
        state.over = true;
    }

    /// A call of it tells its own progress.
    pub(super) fn part_moved(&self, params: &[u8]) {
        let mut state = self.lock();
        let message = object::pick(params, ["message"]).ok().and_then(|[raw]| raw);
        let stand = scaled(&state, params);
        self.tell(&mut state, stand, message.and_then(object::text).as_deref());
    }

    /// Tells that a script began, unless something was told of it already.
    fn script_began(&self, state: &mut State) {
        if !state.told {
            self.tell(state, Some((0.0, None)), Some("the script began"));
        }
    }

    /// Progress to the client. The protocol wants it to rise, whatever a script or a tool says. Under the lock, so that
    /// all of it comes in order and nothing follows the end.
    fn tell(&self, state: &mut State, stand: Option<Stand>, message: Option<&str>) {
        let Some(token) = self.token.as_ref().filter(|_| !state.over) else { return };
        let least = match state.told {
            true => state.progress + NUDGE,
            false => 0.0,
        };
        state.told = true;
        let (value, total) = stand.unwrap_or((least, state.total));
        state.progress = if value.is_finite() { value.max(least) } else { least };
        state.total = total;
        let mut params = json!({ "progress": state.progress });
        if let Some(total) = total {
            params["total"] = total.into();
        }
        if let Some(message) = message {
            params["message"] = message.into();
        }
        let mut params = params.to_string();
        params.truncate(params.len() - 1);
        params.push_str(",\"progressToken\":");
        let mut params = params.into_bytes();
        params.extend_from_slice(token);
        params.push(b'}');
        self.parent.responder.progress(&self.parent.tag, &params);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Where a call's own progress stands in the whole, if it is a step of it.
fn scaled(state: &State, params: &[u8]) -> Option<Stand> {
    let begin = state.step?;
    let [progress, total] = object::pick(params, ["progress", "total"]).ok()?;
    let number = |raw: Option<&[u8]>| std::str::from_utf8(raw?).ok()?.parse::<f64>().ok();
    let share = number(progress)? / number(total).filter(|total| *total > 0.0)?;
    // The end of a step is told by whoever made it.
    Some((begin + share.clamp(0.0, 0.999), state.total))
}

impl Silent for Progress {
    fn silent(&self) {
        self.script_began(&mut self.lock());
    }
}
