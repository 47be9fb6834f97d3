//! One task: toward the router the caller of its call, and the client behind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_calls::tasks::{self, Effect, Event, Status};
use metamcp_types::date;
use metamcp_types::moment::Moment;
use metamcp_types::text;
use metamcp_wire::modern::{MISSING_CAPABILITY, input};
use metamcp_wire::{object, write};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::EXTENSION;
use crate::change_counter::ChangeCounter;
use crate::clock::{Clock, unix_millis};
use crate::observe::{ClientLink, Identity};
use crate::results::Owner;
use crate::router::{
    CallErrorKind, CallOutcome, Caller, Client, LongCall, Responder, ServerRequest,
};
use crate::surface::View;
use crate::surface::reply::ErrorObject;
use crate::upstream::Reply;

/// Longest number that is repeated as a server wrote it.
const MAX_NUMBER: usize = 24;
/// Longest message of a server about how far it is.
const MAX_MESSAGE: usize = 300;
/// How often a client may ask how a task is, in milliseconds.
const POLL_MS: u64 = 2_000;
/// Questions of a server to the client that may be open at once.
const MOST_OPEN: usize = 16;

/// See the module.
pub(in crate::surface) struct Task {
    pub(in crate::surface) id: String,
    pub(super) owner: Owner,
    /// `server:tool`.
    pub(super) name: String,
    /// Whether its client has the extension; others are told of `@tasks`.
    is_of_protocol: bool,
    is_stateless: bool,
    client: Arc<dyn Client>,
    clock: Clock,
    /// Milliseconds since 1970.
    created: u64,
    state: Mutex<State>,
    pub(super) changes: ChangeCounter,
}

struct State {
    task: tasks::Task,
    ending: Option<Ending>,
    /// What the server says about how far it is.
    message: Option<String>,
    questions: BTreeMap<u64, ServerRequest>,
    last_question: u64,
    changed: u64,
    /// Keeps alive what the call needs, until it ends: its session may be gone.
    view: Option<View>,
}

/// How its call ended.
#[derive(Debug, Clone)]
pub(in crate::surface) enum Ending {
    Result(Bytes),
    /// A protocol error.
    Error(Bytes),
    Cancelled,
}

impl Task {
    pub(super) fn of(view: &View, call: &LongCall<'_>) -> Arc<Task> {
        let clock = view.surface.router.clock;
        // Unguessable, so that one client's tasks are not found by counting.
        let half = || getrandom::u64().unwrap_or_default();
        let id = format!("t{:08x}{:016x}{:016x}", run(), half(), half());
        let capabilities = call.caller.client.capabilities();
        let is_stateless = call.caller.responder.is_stateless();
        let has_extension = capabilities["extensions"][EXTENSION].is_object();
        let created = unix_millis();
        Arc::new(Task {
            id,
            owner: view.owner(),
            name: format!("{}:{}", call.server, text::clean_line(call.tool, MAX_MESSAGE)),
            is_of_protocol: is_stateless && has_extension,
            is_stateless,
            client: Arc::clone(&call.caller.client),
            clock,
            created,
            state: Mutex::new(State {
                task: tasks::Task::new(clock.now()),
                ending: None,
                message: None,
                questions: BTreeMap::new(),
                last_question: 0,
                changed: created,
                view: Some(view.clone()),
            }),
            changes: ChangeCounter::default(),
        })
    }

    pub(super) fn is_of_protocol(&self) -> bool {
        self.is_of_protocol
    }

    /// Itself as the caller of its call from now on.
    pub(super) fn caller(self: &Arc<Self>, before: &Caller) -> Caller {
        Caller {
            responder: Arc::clone(self) as Arc<dyn Responder>,
            tag: Bytes::from_static(b"task"),
            client: Arc::clone(self) as Arc<dyn Client>,
            ..before.clone()
        }
    }

    pub(super) fn created(&self) -> Moment {
        self.lock().task.created()
    }

    /// When its call ended.
    pub(super) fn ended(&self) -> Option<Moment> {
        let state = self.lock();
        state.task.status().is_final().then(|| state.task.changed())
    }

    pub(super) fn ending(&self) -> Option<Ending> {
        self.lock().ending.clone()
    }

    pub(super) fn status(&self) -> Status {
        self.lock().task.status()
    }

    pub(super) fn message(&self) -> Option<String> {
        self.lock().message.clone()
    }

    /// Cancels its call, which then ends it.
    pub(super) fn cancel(self: &Arc<Self>) {
        let (effect, view) = {
            let mut state = self.lock();
            (state.task.take(Event::Cancelled, self.clock.now()), state.view.clone())
        };
        if let (Effect::CancelCall, Some(view)) = (effect, view) {
            let responder: Arc<dyn Responder> = Arc::clone(self) as Arc<dyn Responder>;
            view.surface.router.cancel_all(&responder);
        }
    }

    /// Passes the client's answers on to the server that waits for them; keys it does not know are ignored.
    pub(super) fn answered(&self, answers: input::Responses) {
        for (key, answer) in answers {
            let question = number_of(&key).and_then(|number| {
                let mut state = self.lock();
                let question = state.questions.remove(&number)?;
                self.moved(&mut state, Event::Settled(number));
                Some(question)
            });
            if let Some(question) = question {
                question.answer(&Reply::Result(Bytes::from(answer)));
            }
        }
        self.changes.step();
    }

    /// What a client gets in place of the result: `CreateTaskResult`.
    pub(super) fn creation(&self) -> Vec<u8> {
        let mut whole = self.head();
        whole["resultType"] = "task".into();
        whole.to_string().into_bytes()
    }

    /// All of it, as `tasks/get` answers.
    pub(super) fn detailed(&self) -> Vec<u8> {
        let mut whole = self.head().to_string().into_bytes();
        let state = self.lock();
        let mut add = |name: &str, raw: &[u8]| {
            whole.pop();
            whole.push(b',');
            write::json_string(&mut whole, name);
            whole.push(b':');
            whole.extend_from_slice(raw);
            whole.push(b'}');
        };
        match &state.ending {
            Some(Ending::Result(result)) => add("result", &write::one_line(result)),
            Some(Ending::Error(error)) => add("error", &write::one_line(error)),
            Some(Ending::Cancelled) => {}
            None if !state.questions.is_empty() => {
                let keys: Vec<String> =
                    state.questions.keys().map(|number| key_of(*number)).collect();
                let questions = state.questions.values().zip(&keys);
                let asked = input::asking(
                    questions.map(|(one, key)| (&**key, &*one.method, one.params.as_deref())),
                    "",
                );
                let requests = object::pick(&asked, ["inputRequests"]).ok().and_then(|[it]| it);
                add("inputRequests", requests.unwrap_or(b"{}"));
            }
            None => {}
        }
        whole
    }

    fn head(&self) -> Value {
        let state = self.lock();
        let keep = u64::try_from(tasks::KEEP.as_millis()).unwrap_or(u64::MAX);
        // How long it runs is not known before; what is known is how long its result is kept after that.
        let ttl = state
            .task
            .status()
            .is_final()
            .then(|| state.changed.saturating_sub(self.created) + keep);
        let mut head = json!({
            "taskId": self.id,
            "status": state.task.status().word(),
            "createdAt": date::day(self.created),
            "lastUpdatedAt": date::day(state.changed),
            "ttlMs": ttl,
            "pollIntervalMs": POLL_MS,
        });
        if let Some(message) = &state.message {
            head["statusMessage"] = message.as_str().into();
        }
        head
    }

    fn moved(&self, state: &mut State, event: Event) -> Effect {
        let before = state.task.changed();
        let effect = state.task.take(event, self.clock.now());
        if state.task.changed() != before {
            state.changed = unix_millis();
        }
        effect
    }

    fn end(&self, ending: Ending) {
        let status = match &ending {
            Ending::Result(_) => Status::Completed,
            Ending::Error(_) => Status::Failed,
            Ending::Cancelled => Status::Cancelled,
        };
        let mut state = self.lock();
        if self.moved(&mut state, Event::Ended(status)) != Effect::Finished {
            return;
        }
        state.ending = Some(ending);
        let left = (state.view.take(), std::mem::take(&mut state.questions));
        drop(state);
        // Its session's servers may end with it, which must not happen under the lock.
        drop(left);
        self.changes.step();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Tells this run of metamcp from others, so that a task of another is not merely unknown.
pub(super) fn run() -> u32 {
    static RUN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *RUN.get_or_init(|| getrandom::u32().unwrap_or(1))
}

fn key_of(question: u64) -> String {
    format!("question-{question}")
}

fn number_of(key: &str) -> Option<u64> {
    key.strip_prefix("question-")?.parse().ok()
}

impl Responder for Task {
    fn respond(&self, _tag: &Bytes, outcome: CallOutcome) {
        self.end(match outcome {
            CallOutcome::Result(result) => Ending::Result(result),
            CallOutcome::Cancelled => Ending::Cancelled,
            CallOutcome::Failed(error) => match &error.kind {
                CallErrorKind::Rpc(raw) if code_of(raw) == Some(MISSING_CAPABILITY) => {
                    Ending::Error(raw.clone())
                }
                _ => {
                    let view = self.lock().view.clone();
                    let entry = view.as_ref().and_then(|view| view.any_server(&error.server));
                    let config = entry.as_ref().map(|entry| &*entry.config);
                    let object = ErrorObject::from_call(&error, config);
                    Ending::Result(Bytes::from(object.to_result()))
                }
            },
        });
    }

    fn progress(&self, _tag: &Bytes, params: &[u8]) {
        let picked = object::pick(params, ["message", "progress", "total"]).unwrap_or([None; 3]);
        let [said, progress, total] = picked;
        let number = |raw: Option<&[u8]>| {
            let text = std::str::from_utf8(raw?).ok()?;
            (text.len() < MAX_NUMBER).then(|| text.to_owned())
        };
        let how_far = match (number(progress), number(total)) {
            (Some(progress), Some(total)) => Some(format!("{progress} of {total}")),
            (progress, _) => progress,
        };
        let said = said.and_then(object::text);
        let said = said.map(|said| text::clean_line(&said, MAX_MESSAGE).into_owned());
        let mut state = self.lock();
        state.message = said.or(how_far);
        state.changed = unix_millis();
    }
}

impl Client for Task {
    fn identity(&self) -> Arc<Identity> {
        self.client.identity()
    }

    fn link(&self) -> ClientLink {
        self.client.link()
    }

    fn uses(&self, server: ServerId) -> bool {
        self.client.uses(server)
    }

    fn capabilities(&self) -> Value {
        self.client.capabilities()
    }

    fn log(&self, _request: Option<&Bytes>, params: &[u8]) {
        // The request is answered, so a stateless client can be told nothing; others have a general stream.
        if !self.is_stateless {
            self.client.log(None, params);
        }
    }

    fn ask(
        &self,
        _request: Option<&Bytes>,
        server_request: ServerRequest,
    ) -> Result<(), ServerRequest> {
        if !self.is_stateless {
            return self.client.ask(None, server_request);
        }
        let params = server_request.params.as_deref();
        let permitted = input::permits(&self.client.capabilities(), &server_request.method, params);
        let mut state = self.lock();
        let is_over = state.task.status().is_final() || state.questions.len() >= MOST_OPEN;
        if !self.is_of_protocol || !permitted || is_over {
            drop(state);
            return Err(server_request);
        }
        state.last_question += 1;
        let number = state.last_question;
        state.questions.insert(number, server_request);
        self.moved(&mut state, Event::Asked(number));
        drop(state);
        self.changes.step();
        Ok(())
    }

    fn cancel_ask(&self, conn: ConnId, id: Option<&[u8]>) {
        if !self.is_stateless {
            return self.client.cancel_ask(conn, id);
        }
        let mut state = self.lock();
        let is_gone = |one: &(&u64, &ServerRequest)| one.1.is_from(conn, id);
        let gone: Vec<u64> =
            state.questions.iter().filter(is_gone).map(|(number, _)| *number).collect();
        let mut dropped = Vec::new();
        for number in gone {
            dropped.extend(state.questions.remove(&number));
            self.moved(&mut state, Event::Settled(number));
        }
        drop(state);
        drop(dropped);
    }
}

fn code_of(error: &[u8]) -> Option<i64> {
    let [code] = object::pick(error, ["code"]).ok()?;
    std::str::from_utf8(code?).ok()?.parse().ok()
}
