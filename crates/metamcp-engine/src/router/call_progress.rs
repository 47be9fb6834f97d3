//! Progress of a call toward a caller that wants it: the server's own, or start and end where the server reports none.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::progress::{self, DONE};
use metamcp_types::text;
use metamcp_wire::object;
use parking_lot::{Mutex, MutexGuard};
use serde_json::json;
use tokio::time::Instant;

use super::{Caller, Responder};
use crate::clock;
use crate::task;

/// How long a server may be silent before the start of its call is reported; most calls have ended by then, or have
/// reported progress themselves.
const SILENCE: Duration = Duration::from_millis(250);
/// Longest tool name in a message.
const MAX_NAME: usize = 160;

/// The progress of one call.
pub struct CallProgress {
    responder: Arc<dyn Responder>,
    tag: Bytes,
    /// The caller's own token, raw.
    token: Bytes,
    /// The name of the called tool.
    name: String,
    state: Mutex<progress::Progress>,
}

impl std::fmt::Debug for CallProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CallProgress({})", self.name)
    }
}

impl CallProgress {
    /// Progress under the caller's own token.
    pub fn new(caller: &Caller, token: &Bytes, name: &str) -> Arc<CallProgress> {
        Arc::new(CallProgress {
            responder: Arc::clone(&caller.responder),
            tag: caller.tag.clone(),
            token: token.clone(),
            name: text::clean_line(name, MAX_NAME).into_owned(),
            state: Mutex::default(),
        })
    }

    /// Forwards the server's progress, with the caller's token in it already.
    pub(super) fn own(&self, params: &[u8]) {
        let mut state = self.lock();
        let raw = object::pick(params, ["progress"]).ok().and_then(|[raw]| raw);
        let value = raw.and_then(|raw| std::str::from_utf8(raw).ok()?.parse::<f64>().ok());
        let params = match value.map(|value| (value, state.own(value))) {
            // Byte for byte, unless its value would not exceed what was reported in the server's place.
            Some((value, raised)) if raised != value => {
                let raised = raised.to_string();
                Cow::Owned(object::replace_member(params, "progress", raised.as_bytes()))
            }
            _ => Cow::Borrowed(params),
        };
        self.responder.progress(&self.tag, &params);
    }

    /// The call ended, `answered` unless it was cancelled. Sent before its response.
    pub fn end(&self, answered: bool) {
        let mut state = self.lock();
        let end = state.end(answered);
        if end.begin {
            self.report(0, None);
        }
        if end.end {
            self.report(DONE, Some(DONE));
        }
    }

    /// Under the lock, so that nothing follows the end.
    fn report(&self, progress: u32, total: Option<u32>) {
        let mut params = json!({ "progress": progress, "message": self.name });
        if let Some(total) = total {
            params["total"] = total.into();
        }
        let mut params = params.to_string().into_bytes();
        params.pop();
        params.extend_from_slice(b",\"progressToken\":");
        params.extend_from_slice(&self.token);
        params.push(b'}');
        self.responder.progress(&self.tag, &params);
    }

    fn lock(&self) -> MutexGuard<'_, progress::Progress> {
        self.state.lock()
    }
}

/// Something whose start is reported if nothing else was reported for a while.
pub trait Silent: Send + Sync {
    /// The delay has passed.
    fn silent(&self);
}

impl Silent for CallProgress {
    fn silent(&self) {
        let mut state = self.lock();
        if state.silent() {
            self.report(0, None);
        }
    }
}

/// Calls and scripts whose start may have to be reported. All have the same delay, so one task serves them in order.
#[derive(Default)]
pub(super) struct Silences(Mutex<VecDeque<(Instant, Weak<dyn Silent>)>>);

impl Silences {
    /// Reports the start of this one if it is silent and still running then.
    pub(super) fn watch(self: &Arc<Self>, whose: Weak<dyn Silent>) {
        let mut queue = self.lock();
        let is_first = queue.is_empty();
        queue.push_back((clock::instant() + SILENCE, whose));
        if is_first {
            task::spawn("silences", Arc::clone(self).serve());
        }
    }

    async fn serve(self: Arc<Self>) {
        loop {
            let Some(due) = self.lock().front().map(|(due, _)| *due) else { return };
            tokio::time::sleep_until(due).await;
            let mut queue = self.lock();
            let ready = queue.iter().take_while(|(at, _)| *at <= due).count();
            let ready: Vec<Weak<dyn Silent>> =
                queue.drain(..ready).map(|(_, whose)| whose).collect();
            // A call that arrives before the next check finds either this task running or an empty queue.
            let is_done = queue.is_empty();
            drop(queue);
            ready.iter().filter_map(Weak::upgrade).for_each(|whose| whose.silent());
            if is_done {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<(Instant, Weak<dyn Silent>)>> {
        self.0.lock()
    }
}
