//! The progress of a script or a chain: that of its calls, combined into one sequence for the client.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_types::text;
use metamcp_wire::object;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;

use crate::router::{Caller, Silent};

/// The least increment: progress has to rise with every notification.
const NUDGE: f64 = 1e-6;
/// Longest tool name in a message.
const MAX_NAME: usize = 160;

/// Progress and total.
type Position = (f64, Option<f64>);

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
    /// Whether anything was reported yet.
    reported: bool,
    total: Option<f64>,
    /// The progress at the start of the current step of a chain; a call's own progress is scaled into it.
    step: Option<f64>,
    /// Calls of a script that have begun.
    called: usize,
    /// The progress when a script first reported its own; from then on its calls no longer count as steps.
    own_from: Option<f64>,
    ended: bool,
}

impl Progress {
    /// For a client's request with this `_meta`.
    pub(in crate::surface) fn new(parent: &Caller, meta: Option<&[u8]>) -> Arc<Progress> {
        let token = meta
            .filter(|meta| meta.starts_with(b"{"))
            .and_then(|meta| object::pick(meta, ["progressToken"]).ok()?[0])
            .map(Bytes::copy_from_slice);
        Arc::new(Progress { parent: parent.clone(), token, state: Mutex::default() })
    }

    pub(in crate::surface) fn parent(&self) -> &Caller {
        &self.parent
    }

    /// Whether the client sent a progress token.
    pub(in crate::surface) fn is_followed(&self) -> bool {
        self.token.is_some()
    }

    /// A step of a chain starts: the progress of its call is scaled into it.
    pub(in crate::surface) fn step(&self, done: usize, of: usize, message: &str) {
        let mut state = self.lock();
        state.step = Some(done as f64);
        self.report(&mut state, Some((done as f64, Some(of as f64))), Some(message));
    }

    /// All steps are done, or one of them failed. Before the response.
    pub(in crate::surface) fn steps_ended(&self, of: usize, message: &str) {
        let mut state = self.lock();
        self.report(&mut state, Some((of as f64, Some(of as f64))), Some(message));
        state.ended = true;
    }

    /// A script makes a call: the next step, of an unknown number.
    pub(in crate::surface) fn script_calls(&self, server: &str, tool: &str) {
        let mut state = self.lock();
        self.script_began(&mut state);
        state.called += 1;
        let called = state.called;
        let what = text::clean_line(&format!("{server}:{tool}"), MAX_NAME).into_owned();
        let position = state.own_from.is_none().then_some((called as f64, None));
        self.report(&mut state, position, Some(&format!("call {called}: {what}")));
    }

    /// A script reports its own progress. Its numbers count from the progress of its calls before its first report.
    pub(in crate::surface) fn script_reports(
        &self,
        value: f64,
        total: Option<f64>,
        message: Option<&str>,
    ) {
        let mut state = self.lock();
        let reached = state.progress;
        let from = *state.own_from.get_or_insert(reached);
        let position = (from + value, total.map(|total| from + total));
        self.report(&mut state, Some(position), message);
    }

    /// A script ended, and its calls with it. Before its response.
    pub(in crate::surface) fn script_ended(&self) {
        let mut state = self.lock();
        if state.own_from.is_none() {
            self.script_began(&mut state);
            let all = state.called as f64 + 1.0;
            self.report(&mut state, Some((all, Some(all))), Some("the script ended"));
        }
        state.ended = true;
    }

    /// One of the calls reports progress.
    pub(super) fn part_moved(&self, params: &[u8]) {
        let mut state = self.lock();
        let message = object::pick(params, ["message"]).ok().and_then(|[raw]| raw);
        let position = scaled(&state, params);
        self.report(&mut state, position, message.and_then(object::text).as_deref());
    }

    /// Reports the start of a script, unless something was reported already.
    fn script_began(&self, state: &mut State) {
        if !state.reported {
            self.report(state, Some((0.0, None)), Some("the script began"));
        }
    }

    /// Sends progress to the client. The protocol requires it to rise, whatever a script or a tool reports. Under the
    /// lock, so that notifications stay in order and nothing follows the end.
    fn report(&self, state: &mut State, position: Option<Position>, message: Option<&str>) {
        let Some(token) = self.token.as_ref().filter(|_| !state.ended) else { return };
        let least = match state.reported {
            true => state.progress + NUDGE,
            false => 0.0,
        };
        state.reported = true;
        let (value, total) = position.unwrap_or((least, state.total));
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

/// A call's own progress scaled into its step of a chain.
fn scaled(state: &State, params: &[u8]) -> Option<Position> {
    let begin = state.step?;
    let [progress, total] = object::pick(params, ["progress", "total"]).ok()?;
    let number = |raw: Option<&[u8]>| std::str::from_utf8(raw?).ok()?.parse::<f64>().ok();
    let share = number(progress)? / number(total).filter(|total| *total > 0.0)?;
    // The chain itself reports the end of a step.
    Some((begin + share.clamp(0.0, 0.999), state.total))
}

impl Silent for Progress {
    fn silent(&self) {
        self.script_began(&mut self.lock());
    }
}
