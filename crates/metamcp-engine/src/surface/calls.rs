//! Calls made for one request of a client, by a script or by the steps of a chain: each goes the way of every other, is
//! called off when whoever made it ends, and what servers say or ask meanwhile reaches the client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use metamcp_calls::pool::ConnId;
use metamcp_types::text;
use metamcp_wire::{object, write};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::call::{Dispatched, RawCall, Rejected};
use super::reply::{Code, ErrorObject};
use super::{Finished, View};
use crate::router::{CallOutcome, Caller, ServerRequest, Silent};

/// How much a call's own progress moves that of the whole, which has to rise with every word.
const NUDGE: f64 = 1e-6;
/// Longest name of a tool that is told.
const MAX_NAME: usize = 160;
/// Calls ask for progress, which gives them their time again; they need not be told apart by it.
const META: &[u8] = br#"{"progressToken":"within"}"#;

/// Who asked, and by which request.
pub(super) struct Client {
    pub(super) caller: Arc<dyn Caller>,
    /// The tag of the request.
    pub(super) tag: Bytes,
    /// Its own progress token, if it gave one.
    pub(super) token: Option<Bytes>,
}

impl Client {
    pub(super) fn new(caller: &Arc<dyn Caller>, tag: &Bytes, meta: Option<&[u8]>) -> Client {
        let token = meta
            .filter(|meta| meta.starts_with(b"{"))
            .and_then(|meta| object::pick(meta, ["progressToken"]).ok()?[0])
            .map(Bytes::copy_from_slice);
        Client { caller: Arc::clone(caller), tag: tag.clone(), token }
    }
}

/// The calls of one request, toward the router; and what is told of its progress.
pub(super) struct Calls {
    client: Client,
    state: Mutex<CallState>,
}

#[derive(Default)]
struct CallState {
    last: u64,
    waiting: HashMap<Bytes, oneshot::Sender<CallOutcome>>,
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

/// Makes one call and waits for its result.
pub(super) async fn make(
    view: &View,
    calls: &Arc<Calls>,
    by: &'static str,
    (server, tool): (Option<&str>, &str),
    arguments: &Bytes,
) -> Result<Bytes, ErrorObject> {
    let raw_call = RawCall {
        by,
        server: server.map(str::to_owned),
        tool: tool.to_owned(),
        args: Some(arguments),
        meta: Some(META),
    };
    let call_request = match view.resolve_call(raw_call, arguments) {
        Ok(call_request) => call_request,
        Err(Rejected::Invalid(message)) => {
            return Err(ErrorObject::new(Code::ValidationInput, message));
        }
        Err(Rejected::Refused(refused)) => return Err(*refused),
        Err(Rejected::StoredResult(tool, arguments)) => {
            return match view.read_result(&tool, &arguments).await {
                Finished::Result(result) => Ok(Bytes::from(result)),
                Finished::Refused(refused) => Err(*refused),
                Finished::Protocol { message, .. } => {
                    Err(ErrorObject::new(Code::ValidationInput, message))
                }
                Finished::Dispatched => Err(cancelled()),
            };
        }
    };
    let (entry, tool) = (call_request.entry.clone(), Arc::clone(&call_request.tool));
    let (tag, answered) = calls.expect();
    // Its end, whatever ends it, takes the call back if it is still under way.
    let _under_way = UnderWay { view: view.clone(), calls: Arc::clone(calls), tag: tag.clone() };
    let caller: Arc<dyn Caller> = Arc::clone(calls) as Arc<dyn Caller>;
    match view.begin(call_request, &caller, &tag) {
        Dispatched::Sent => {}
        Dispatched::Refused(refused) => return Err(*refused),
        Dispatched::Later(later) => later.await?,
    }
    match answered.await {
        Ok(CallOutcome::Result(result)) => Ok(match write::one_line(&result) {
            std::borrow::Cow::Borrowed(_) => result,
            std::borrow::Cow::Owned(mended) => Bytes::from(mended),
        }),
        Ok(CallOutcome::Failed(error)) => Err(ErrorObject::from_call(&error, Some(&entry.config))),
        Ok(CallOutcome::Cancelled) | Err(_) => Err(cancelled().at(&entry.name, Some(&tool))),
    }
}

fn cancelled() -> ErrorObject {
    ErrorObject::new(Code::Cancelled, "the call was cancelled")
        .hint("It may have run all the same: verify before repeating it.")
}

/// A call that is called off when this goes.
struct UnderWay {
    view: View,
    calls: Arc<Calls>,
    tag: Bytes,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.calls.lock().waiting.remove(&self.tag).is_some() {
            let caller: Arc<dyn Caller> = Arc::clone(&self.calls) as Arc<dyn Caller>;
            self.view.surface.router.cancel(&caller, &self.tag);
        }
    }
}

impl Calls {
    pub(super) fn new(client: Client) -> Arc<Calls> {
        Arc::new(Calls { client, state: Mutex::default() })
    }

    fn expect(&self) -> (Bytes, oneshot::Receiver<CallOutcome>) {
        let (answer, answered) = oneshot::channel();
        let mut state = self.lock();
        state.last += 1;
        let tag = Bytes::from(state.last.to_string());
        state.waiting.insert(tag.clone(), answer);
        (tag, answered)
    }

    /// Whether anybody wants to hear of their progress.
    pub(super) fn are_followed(&self) -> bool {
        self.client.token.is_some()
    }

    /// What is done now is one step of so many: its own progress is told within it.
    pub(super) fn step(&self, done: usize, of: usize, message: &str) {
        self.lock().step = Some(done as f64);
        self.tell(Some((done as f64, Some(of as f64))), Some(message));
    }

    /// All steps are done, or one of them failed. Before the answer.
    pub(super) fn steps_ended(&self, of: usize, message: &str) {
        let mut state = self.lock();
        self.tell_in(&mut state, Some((of as f64, Some(of as f64))), Some(message));
        state.over = true;
    }

    /// A script makes a call: the next step, of nobody knows how many.
    pub(super) fn script_calls(&self, server: &str, tool: &str) {
        let mut state = self.lock();
        self.script_began(&mut state);
        state.called += 1;
        let called = state.called;
        let what = text::clean_line(&format!("{server}:{tool}"), MAX_NAME).into_owned();
        let stand = state.speaks.is_none().then_some((called as f64, None));
        self.tell_in(&mut state, stand, Some(&format!("call {called}: {what}")));
    }

    /// A script says how far it is. Its numbers count from where it stood by its calls before it first said so.
    pub(super) fn script_speaks(&self, value: f64, total: Option<f64>, message: Option<&str>) {
        let mut state = self.lock();
        let stood = state.progress;
        let from = *state.speaks.get_or_insert(stood);
        let stand = (from + value, total.map(|total| from + total));
        self.tell_in(&mut state, Some(stand), message);
    }

    /// It ended, well or not, and its calls with it. Before its answer.
    pub(super) fn script_ended(&self) {
        let mut state = self.lock();
        if state.speaks.is_none() {
            self.script_began(&mut state);
            let all = state.called as f64 + 1.0;
            self.tell_in(&mut state, Some((all, Some(all))), Some("the script ended"));
        }
        state.over = true;
    }

    /// Tells that a script began, unless something was told of it already.
    fn script_began(&self, state: &mut CallState) {
        if !state.told {
            self.tell_in(state, Some((0.0, None)), Some("the script began"));
        }
    }

    /// Progress to the client. The protocol wants it to rise, whatever a script or a tool says.
    pub(super) fn tell(&self, stand: Option<(f64, Option<f64>)>, message: Option<&str>) {
        self.tell_in(&mut self.lock(), stand, message);
    }

    /// Under the lock, so that all of it comes in order and nothing follows the end.
    fn tell_in(
        &self,
        state: &mut CallState,
        stand: Option<(f64, Option<f64>)>,
        message: Option<&str>,
    ) {
        let Some(token) = self.client.token.as_ref().filter(|_| !state.over) else { return };
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
        self.client.caller.progress(&self.client.tag, &params);
    }

    /// Where a call's own progress stands in the whole.
    fn scaled(&self, params: &[u8]) -> Option<(f64, Option<f64>)> {
        let state = self.lock();
        let begin = state.step?;
        let [progress, total] = object::pick(params, ["progress", "total"]).ok()?;
        let number = |raw: Option<&[u8]>| std::str::from_utf8(raw?).ok()?.parse::<f64>().ok();
        let share = number(progress)? / number(total).filter(|total| *total > 0.0)?;
        // The end of a step is told by whoever made it.
        Some((begin + share.clamp(0.0, 0.999), state.total))
    }

    fn lock(&self) -> MutexGuard<'_, CallState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Silent for Calls {
    fn silent(&self) {
        self.script_began(&mut self.lock());
    }
}

impl Caller for Calls {
    fn answer(&self, tag: &Bytes, outcome: CallOutcome) {
        let waiting = self.lock().waiting.remove(tag);
        if let Some(waiting) = waiting {
            // Nobody waits any more when the script or the chain has just ended.
            drop(waiting.send(outcome));
        }
    }

    fn progress(&self, _tag: &Bytes, params: &[u8]) {
        let message = object::pick(params, ["message"]).ok().and_then(|[raw]| raw);
        self.tell(self.scaled(params), message.and_then(object::text).as_deref());
    }

    fn log(&self, _tag: Option<&Bytes>, params: &[u8]) {
        self.client.caller.log(Some(&self.client.tag), params);
    }

    fn ask(
        &self,
        _tag: Option<&Bytes>,
        server_request: ServerRequest,
    ) -> Result<(), ServerRequest> {
        self.client.caller.ask(Some(&self.client.tag), server_request)
    }

    fn cancel_ask(&self, conn: ConnId, id: Option<&[u8]>) {
        self.client.caller.cancel_ask(conn, id);
    }

    fn capabilities(&self) -> Value {
        self.client.caller.capabilities()
    }

    fn client(&self) -> usize {
        self.client.caller.client()
    }
}
