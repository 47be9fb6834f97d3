//! Input-required retries for clients with a handshake: each server request is sent to the client from here, and the
//! call is retried with the answers. In between nothing waits at the server, and no slot is occupied.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::dispatch::DispatchError;
use metamcp_calls::pool::ConnId;
use metamcp_surface::server_request;
use metamcp_wire::bridge::input_retries::{Effect, Event, RetryError};
use metamcp_wire::modern::input;
use metamcp_wire::write;
use parking_lot::{Mutex, MutexGuard};

use super::error::CallErrorKind;
use super::inbound::failure;
use super::message::Input;
use super::relay::ServerRequest;
use super::{CallOutcome, Pending, Responder, Router};
use crate::observe::Verdict;
use crate::task;
use crate::upstream::Connection;

/// How long a person may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_mins(10);

/// Calls suspended until their clients answered.
#[derive(Default)]
pub(super) struct Table {
    inner: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    last: u64,
    open: HashMap<u64, Row>,
}

struct Row {
    pending: Pending,
    conn: Arc<Connection>,
}

impl Table {
    pub(super) fn count_of(&self, wanted: impl Fn(&Pending) -> bool) -> usize {
        self.lock().open.values().filter(|row| wanted(&row.pending)).count()
    }

    fn lock(&self) -> MutexGuard<'_, Rows> {
        self.inner.lock()
    }
}

/// The id of a server request from `input_required`: no server writes one like it, and no other retry uses it.
pub(super) fn server_request_id(round: u64, key: &str) -> Bytes {
    Bytes::from(format!("round {round} {key}"))
}

impl Router {
    /// A server answered a call with `input_required`.
    pub(super) fn on_input_required(
        &self,
        conn: &Arc<Connection>,
        mut pending: Pending,
        result: &Bytes,
    ) {
        // From here on the requests are sanitized for the client.
        let presented = server_request::presented_in(&conn.name, result).map(Bytes::from);
        if let Ok(shown) = &presented
            && pending.caller.responder.input_required(&pending.caller.tag, &conn.name, shown)
        {
            // The client has its response, and comes back with another call.
            let now = self.clock.now();
            return self.publish(&mut pending, Verdict::InputRequired, Some(result), now);
        }
        let required = match presented.and_then(|shown| Ok(input::required(&shown)?)) {
            Ok(required) => required,
            Err(unfit) => {
                let why = format!("answered with requests that cannot be relayed: {unfit}");
                let error = failure(conn, &pending, CallErrorKind::Unusable(why));
                return self.answer(pending, CallOutcome::Failed(error), self.clock.now());
            }
        };
        let input_retries = pending.input_retries.get_or_insert_default();
        let effects = input_retries.take(Event::Required(required));
        let asks = effects.iter().any(|effect| matches!(effect, Effect::Ask(_)));
        if !asks {
            return self.after_input(Row { pending, conn: Arc::clone(conn) }, effects);
        }
        let caller = pending.caller.clone();
        let number = {
            let mut rows = self.input_required.lock();
            rows.last += 1;
            let number = rows.last;
            rows.open.insert(number, Row { pending, conn: Arc::clone(conn) });
            number
        };
        self.expire(number);
        for effect in effects {
            let Effect::Ask(question) = effect else { continue };
            let router = self.me.clone();
            let server_request = ServerRequest::for_input_required(number, question, router);
            if let Err(server_request) = caller.client.ask(Some(&caller.request), server_request) {
                server_request.refuse("the client behind metamcp cannot answer this");
            }
        }
    }

    /// The client answered a request of an input-required retry, or refused.
    pub(super) fn input_answered(&self, round: u64, key: &str, result: Option<Vec<u8>>) {
        self.step(round, Event::Answered { key: key.to_owned(), result });
    }

    /// Cancels the open requests to clients because of calls of this responder, one or all.
    pub(super) fn cancel_input_required(&self, responder: &Arc<dyn Responder>, tag: Option<&[u8]>) {
        let matching: Vec<u64> = {
            let rows = self.input_required.lock();
            let own = |row: &Row| row.pending.is_of(responder, tag);
            rows.open.iter().filter(|(_, row)| own(row)).map(|(&number, _)| number).collect()
        };
        for number in matching {
            self.end(number, |_| CallOutcome::Cancelled);
        }
    }

    /// Ends every suspended call.
    pub(super) fn stop_input_required(&self) {
        let open: Vec<u64> = self.input_required.lock().open.keys().copied().collect();
        for number in open {
            self.end(number, |row| {
                let error = DispatchError::ShuttingDown { sent: true };
                CallOutcome::Failed(self.failed(&row.pending.request, error))
            });
        }
    }

    /// Starts the timeout for a client that never answers.
    fn expire(&self, number: u64) {
        let router = self.me.clone();
        task::spawn("round", async move {
            let Some(clock) = router.upgrade().map(|router| router.clock) else { return };
            clock.sleep_until(clock.now() + ANSWER_WITHIN).await;
            let Some(router) = router.upgrade() else { return };
            router.end(number, |row| {
                let error = DispatchError::TimedOut { after: ANSWER_WITHIN, sent: true };
                CallOutcome::Failed(router.failed(&row.pending.request, error))
            });
        });
    }

    fn step(&self, number: u64, event: Event) {
        let (row, effects) = {
            let mut rows = self.input_required.lock();
            let Some(row) = rows.open.get_mut(&number) else { return };
            let Some(input_retries) = &mut row.pending.input_retries else { return };
            let effects = input_retries.take(event);
            if input_retries.is_asking() {
                return;
            }
            let Some(row) = rows.open.remove(&number) else { return };
            (row, effects)
        };
        self.cancel_ask(number, &row, &effects);
        self.after_input(row, effects);
    }

    /// Ends an input-required retry from outside.
    fn end(&self, number: u64, outcome: impl FnOnce(&Row) -> CallOutcome) {
        let Some(mut row) = self.input_required.lock().open.remove(&number) else { return };
        let effects = row
            .pending
            .input_retries
            .as_mut()
            .map(|input_retries| input_retries.take(Event::Cancelled));
        self.cancel_ask(number, &row, &effects.unwrap_or_default());
        let outcome = outcome(&row);
        self.answer(row.pending, outcome, self.clock.now());
    }

    fn cancel_ask(&self, number: u64, row: &Row, effects: &[Effect]) {
        let conn: ConnId = row.conn.id;
        for effect in effects {
            if let Effect::Withdraw(key) = effect {
                row.pending.caller.client.cancel_ask(conn, Some(&server_request_id(number, key)));
            }
        }
    }

    fn after_input(&self, row: Row, effects: Vec<Effect>) {
        let Row { mut pending, conn } = row;
        for effect in effects {
            match effect {
                Effect::Retry { responses, state } => {
                    let state = state.map(|state| {
                        let mut quoted = Vec::with_capacity(state.len() + 2);
                        write::json_string(&mut quoted, &state);
                        Bytes::from(quoted)
                    });
                    let responses = Bytes::from(input::answering(&responses));
                    pending.request.input = Some(Arc::new(Input { responses, state, is_sealed: true }));
                    pending.sent_end = u64::MAX;
                    return self.enter(pending, self.clock.now());
                }
                Effect::Fail(why) => {
                    let why = match why {
                        RetryError::Unanswered => "needs an answer that the client did not give",
                        RetryError::TooOften => "asks for input again and again without a result",
                    };
                    let error = failure(&conn, &pending, CallErrorKind::Unusable(why.to_owned()));
                    return self.answer(pending, CallOutcome::Failed(error), self.clock.now());
                }
                Effect::Ask(_) | Effect::Withdraw(_) => {}
            }
        }
    }
}
