//! Tasks of servers: a server that answers a call with a handle is asked for the result until there is one. To the
//! dispatch the call stays on its connection; each sign of life from the server counts as progress of the call.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::dispatch::CallId;
use metamcp_surface::server_request;
use metamcp_wire::modern::input::{self, Question};
use metamcp_wire::server_task::{self, Created, InvalidTask, State};
use metamcp_wire::write;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::{Router, ServerRequest, from_number};
use crate::clock::Clock;
use crate::task;
use crate::upstream::{Connection, Listener, Reply};

/// How often it is checked whether anybody still waits for the call.
const CHECK: Duration = Duration::from_millis(200);
/// How long a server may take to say how a task is.
const ANSWERS_WITHIN: Duration = Duration::from_secs(30);
/// Most questions of one task.
const MOST_QUESTIONS: usize = 64;

/// A task that is being followed.
struct Followed {
    router: Weak<Router>,
    clock: Clock,
    conn: Arc<Connection>,
    /// As the connection knows the call.
    number: u64,
    id: String,
    /// The keys of questions that the client was asked already.
    asked: HashSet<String>,
}

/// What to do next.
enum Step {
    /// Look again after this.
    Wait(Duration),
    /// The call is answered.
    End(Reply),
    /// Nobody waits any more, or the connection is gone, which the dispatch deals with.
    Leave,
}

impl Router {
    /// The handle in the result of a call, if its server made a task of it that is ours to follow.
    pub(super) fn task_made(
        &self,
        conn: &Connection,
        number: u64,
        reply: &Reply,
    ) -> Option<Result<Created, InvalidTask>> {
        let Reply::Result(result) = reply else { return None };
        if conn.is_stateless() {
            if !metamcp_wire::modern::result::is_task(result) {
                return None;
            }
        } else if memchr::memmem::find(result, b"\"task\"").is_none() {
            return None;
        }
        let (call, _) = from_number(number)?;
        let state = self.lock();
        let request = &state.dispatch.payload(call)?.request;
        // In direct mode the client follows it.
        if request.verbatim.is_some() {
            return None;
        }
        match conn.is_stateless() {
            true => Some(server_task::created(result)),
            false if request.as_task => server_task::created_when_asked(result),
            false => None,
        }
    }

    pub(super) fn follow_task(&self, conn: &Arc<Connection>, number: u64, created: Created) {
        let Created { id, poll } = created;
        let (router, conn, clock) = (self.me.clone(), Arc::clone(conn), self.clock);
        let mut followed = Followed { router, clock, conn, number, id, asked: HashSet::new() };
        task::spawn("server task", async move {
            let mut pause = poll;
            loop {
                match followed.step(pause).await {
                    Step::Wait(next) => pause = next,
                    Step::Leave => return,
                    Step::End(reply) => {
                        if let Some(router) = followed.router.upgrade() {
                            router.on_response(&followed.conn, followed.number, reply);
                        }
                        return;
                    }
                }
            }
        });
    }
}

impl Followed {
    /// Waits, and looks how the task is.
    async fn step(&mut self, pause: Duration) -> Step {
        let mut waited = Duration::ZERO;
        while waited < pause {
            let slice = CHECK.min(pause.saturating_sub(waited));
            tokio::time::sleep(slice).await;
            waited += slice;
            if !self.is_wanted() {
                return self.give_up();
            }
        }
        let asked = self.conn.ask("tasks/get", &self.params());
        let Some(answered) = self.clock.timeout(ANSWERS_WITHIN, asked).await else {
            return Step::Wait(pause);
        };
        match answered {
            Ok(Reply::Result(result)) => self.seen(&result).await,
            Ok(Reply::Error(error)) => Step::End(Reply::Error(error)),
            Ok(Reply::Broke { .. }) => Step::Wait(pause),
            Ok(other) => Step::End(other),
            Err(_) => Step::Leave,
        }
    }

    async fn seen(&mut self, result: &[u8]) -> Step {
        let seen = match server_task::seen(result) {
            Ok(seen) => seen,
            Err(invalid) => {
                return failed(&format!("the answer to tasks/get cannot be used: {invalid}"));
            }
        };
        self.moved(seen.message.as_deref());
        match seen.state {
            State::Working => Step::Wait(seen.poll),
            State::InputRequired(questions) if self.conn.is_stateless() => {
                self.ask(questions);
                Step::Wait(seen.poll)
            }
            State::Completed(Some(result)) => {
                Step::End(Reply::Result(Bytes::copy_from_slice(result)))
            }
            State::Failed(Some(error)) => Step::End(Reply::Error(Bytes::copy_from_slice(error))),
            State::Cancelled => failed("the server cancelled its task"),
            State::Completed(None) | State::Failed(None) if self.conn.is_stateless() => {
                failed("the task ended without a result")
            }
            // There the result is asked for; so are the server's questions, which come while that request is open.
            State::Completed(None) | State::Failed(None) | State::InputRequired(_) => {
                self.result().await
            }
        }
    }

    /// Asks for the result of a task of 2025-11-25, which the server gives when there is one.
    async fn result(&mut self) -> Step {
        let mut asked = self.conn.ask("tasks/result", &self.params());
        loop {
            tokio::select! {
                answered = &mut asked => return match answered {
                    Ok(reply) => Step::End(reply),
                    Err(_) => Step::Leave,
                },
                () = tokio::time::sleep(CHECK) => {}
            }
            if !self.is_wanted() {
                return self.give_up();
            }
            self.moved(None);
        }
    }

    /// Passes questions that are new on to the client, and its answers to the server.
    fn ask(&mut self, questions: Vec<Question>) {
        let Some(router) = self.router.upgrade() else { return };
        let Some((call, _)) = from_number(self.number) else { return };
        for question in questions {
            if self.asked.len() >= MOST_QUESTIONS || !self.asked.insert(question.key.clone()) {
                continue;
            }
            let Some(answer) = self.put(&router, call, &question) else {
                let _unread = self.conn.ask("tasks/cancel", &self.params());
                continue;
            };
            let (conn, id, weak) = (Arc::clone(&self.conn), self.id.clone(), self.router.clone());
            task::spawn("answer to a task", async move {
                let Ok(Reply::Result(result)) = answer.await else {
                    let _unread =
                        conn.ask("tasks/cancel", json!({ "taskId": id }).to_string().as_bytes());
                    return;
                };
                let mut params = json!({ "taskId": id }).to_string().into_bytes();
                params.pop();
                params.extend_from_slice(b",\"inputResponses\":");
                params.extend_from_slice(&input::answering(&[(question.key, result.to_vec())]));
                params.push(b'}');
                let _unread = conn.ask("tasks/update", &params);
                if let Some(router) = weak.upgrade() {
                    let now = router.clock.now();
                    router.with(|dispatch, _| dispatch.resumed(call, now));
                }
            });
        }
    }

    fn put(
        &self,
        router: &Arc<Router>,
        call: CallId,
        question: &Question,
    ) -> Option<oneshot::Receiver<Reply>> {
        let params = question.params.as_deref();
        let shown = server_request::presented(&self.conn.name, &question.method, params).ok()?;
        let shown: Value =
            shown.and_then(|raw| serde_json::from_slice(&raw).ok()).unwrap_or_else(|| json!({}));
        let caller = {
            let mut state = router.lock();
            let caller = state.dispatch.payload(call)?.caller.clone();
            state.dispatch.paused(call);
            caller
        };
        let (server_request, answer) = ServerRequest::of_gateway(&question.method, &shown);
        caller.client.ask(Some(&caller.request), server_request).ok()?;
        Some(answer)
    }

    /// A sign of life: the call has its time again, and its caller hears what the server says.
    fn moved(&self, message: Option<&str>) {
        let Some((router, (call, _))) = self.router.upgrade().zip(from_number(self.number)) else {
            return;
        };
        let now = router.clock.now();
        let told = {
            let mut state = router.lock();
            state.dispatch.progressed(call, now);
            let Some(pending) = state.dispatch.payload(call) else { return };
            (pending.caller.clone(), pending.request.progress.clone())
        };
        let (caller, Some(token)) = told else { return };
        let Some(message) = message else { return };
        let mut params = json!({ "progress": 0, "message": message }).to_string().into_bytes();
        params.pop();
        params.extend_from_slice(b",\"progressToken\":");
        params.extend_from_slice(&token);
        params.push(b'}');
        if self.conn.admits_notification(now) {
            caller.responder.progress(&caller.tag, &params);
        }
    }

    /// Whether the call still waits for this task.
    fn is_wanted(&self) -> bool {
        let Some((router, (call, attempt))) = self.router.upgrade().zip(from_number(self.number))
        else {
            return false;
        };
        let state = router.lock();
        state.dispatch.is_on(call, self.conn.id) && state.dispatch.attempts(call) % 2 == attempt
    }

    fn give_up(&self) -> Step {
        // Nobody reads the answer: a server that cannot cancel goes on for nobody.
        let _unread = self.conn.ask("tasks/cancel", &self.params());
        Step::Leave
    }

    fn params(&self) -> Vec<u8> {
        json!({ "taskId": self.id }).to_string().into_bytes()
    }
}

/// An error in the server's place.
fn failed(why: &str) -> Step {
    let mut error = Vec::new();
    write::error_object(&mut error, -32000, why, None);
    Step::End(Reply::Error(Bytes::from(error)))
}
