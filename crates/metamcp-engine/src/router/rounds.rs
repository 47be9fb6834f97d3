//! Calls to servers that answer with questions, for clients that are asked one by one: the client is asked here, and the
//! call is made again with its answers. Between the two nothing waits at the server, and no slot is held.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use metamcp_core::dispatch::Verdict;
use metamcp_core::ledger::ConnId;
use metamcp_core::server_request;
use metamcp_wire::bridge::rounds::{Effect, Event, Why};
use metamcp_wire::modern::input;
use metamcp_wire::write;

use super::error::CallErrorKind;
use super::heard::failure;
use super::message::Input;
use super::relay::Question;
use super::{Caller, Outcome, Pending, Router};
use crate::task;
use crate::upstream::Connection;

/// How long a person may take to answer.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// Calls whose clients are being asked.
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
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// The id of a question of a round: no server writes one like it, and no other round has it.
pub(super) fn question_id(round: u64, key: &str) -> Bytes {
    Bytes::from(format!("round {round} {key}"))
}

impl Router {
    /// A server answered a call with questions.
    pub(super) fn required(&self, conn: &Arc<Connection>, mut pending: Pending, result: &Bytes) {
        // From here on nobody has the questions as the server wrote them.
        let presented = server_request::presented_in(&conn.name, result).map(Bytes::from);
        if let Ok(shown) = &presented
            && pending.caller.input_required(&pending.tag, &conn.name, shown)
        {
            return;
        }
        let required = match presented.and_then(|shown| Ok(input::required(&shown)?)) {
            Ok(required) => required,
            Err(unfit) => {
                let why = format!("answered with questions that cannot be put: {unfit}");
                let error = failure(conn, &pending, CallErrorKind::Unusable(why));
                return pending.answer(Outcome::Failed(error));
            }
        };
        let rounds = pending.rounds.get_or_insert_default();
        let effects = rounds.take(Event::Required(required));
        let asks = effects.iter().any(|effect| matches!(effect, Effect::Ask(_)));
        if !asks {
            return self.after_round(Row { pending, conn: Arc::clone(conn) }, effects);
        }
        let (caller, tag) = (Arc::clone(&pending.caller), pending.tag.clone());
        let number = {
            let mut rows = self.rounds.lock();
            rows.last += 1;
            let number = rows.last;
            rows.open.insert(number, Row { pending, conn: Arc::clone(conn) });
            number
        };
        self.expire(number);
        for effect in effects {
            let Effect::Ask(asked) = effect else { continue };
            let question = Question::of_round(number, asked, self.me.clone());
            if let Err(question) = caller.ask(Some(&tag), question) {
                question.refuse("the client behind metamcp cannot answer this");
            }
        }
    }

    /// The client answered a question of a round, or will not.
    pub(super) fn round_answered(&self, round: u64, key: &str, result: Option<Vec<u8>>) {
        self.step(round, Event::Answered { key: key.to_owned(), result });
    }

    /// Calls off what `caller` is being asked for, because of one call or of all.
    pub(super) fn cancel_rounds(&self, caller: &Arc<dyn Caller>, tag: Option<&[u8]>) {
        let matching: Vec<u64> = {
            let rows = self.rounds.lock();
            let own = |row: &Row| {
                Arc::as_ptr(&row.pending.caller).cast::<()>() == Arc::as_ptr(caller).cast::<()>()
                    && tag.is_none_or(|tag| row.pending.tag == tag)
            };
            rows.open.iter().filter(|(_, row)| own(row)).map(|(&number, _)| number).collect()
        };
        for number in matching {
            self.end(number, |_| Outcome::Cancelled);
        }
    }

    /// Answers every call whose client is being asked: nobody will come back to it.
    pub(super) fn stop_rounds(&self) {
        let open: Vec<u64> = self.rounds.lock().open.keys().copied().collect();
        for number in open {
            self.end(number, |row| {
                let verdict = Verdict::ShuttingDown { sent: true };
                Outcome::Failed(self.failed(&row.pending.request, verdict))
            });
        }
    }

    /// Sees to it that a client which never answers is not waited for.
    fn expire(&self, number: u64) {
        let router = self.me.clone();
        task::spawn("round", async move {
            let Some(clock) = router.upgrade().map(|router| router.clock) else { return };
            clock.sleep_until(clock.now() + PATIENCE).await;
            let Some(router) = router.upgrade() else { return };
            router.end(number, |row| {
                let verdict = Verdict::TimedOut { after: PATIENCE, sent: true };
                Outcome::Failed(router.failed(&row.pending.request, verdict))
            });
        });
    }

    fn step(&self, number: u64, event: Event) {
        let (row, effects) = {
            let mut rows = self.rounds.lock();
            let Some(row) = rows.open.get_mut(&number) else { return };
            let Some(rounds) = &mut row.pending.rounds else { return };
            let effects = rounds.take(event);
            if rounds.is_asking() {
                return;
            }
            let Some(row) = rows.open.remove(&number) else { return };
            (row, effects)
        };
        self.unask(number, &row, &effects);
        self.after_round(row, effects);
    }

    /// Ends a round from outside.
    fn end(&self, number: u64, outcome: impl FnOnce(&Row) -> Outcome) {
        let Some(mut row) = self.rounds.lock().open.remove(&number) else { return };
        let effects = row.pending.rounds.as_mut().map(|rounds| rounds.take(Event::Cancelled));
        self.unask(number, &row, &effects.unwrap_or_default());
        let outcome = outcome(&row);
        row.pending.answer(outcome);
    }

    fn unask(&self, number: u64, row: &Row, effects: &[Effect]) {
        let conn: ConnId = row.conn.id;
        for effect in effects {
            if let Effect::Unask(key) = effect {
                row.pending.caller.unask(conn, Some(&question_id(number, key)));
            }
        }
    }

    fn after_round(&self, row: Row, effects: Vec<Effect>) {
        let Row { mut pending, conn } = row;
        for effect in effects {
            match effect {
                Effect::Again { responses, state } => {
                    let state = state.map(|state| {
                        let mut quoted = Vec::with_capacity(state.len() + 2);
                        write::json_string(&mut quoted, &state);
                        Bytes::from(quoted)
                    });
                    let responses = Bytes::from(input::answering(&responses));
                    pending.request.input = Some(Arc::new(Input { responses, state }));
                    pending.sent_end = u64::MAX;
                    return self.enter(pending);
                }
                Effect::Fail(why) => {
                    let words = match why {
                        Why::Unanswered => "needs an answer that the client did not give",
                        Why::TooOften => "asks again and again without ever answering",
                    };
                    let error = failure(&conn, &pending, CallErrorKind::Unusable(words.to_owned()));
                    return pending.answer(Outcome::Failed(error));
                }
                Effect::Ask(_) | Effect::Unask(_) => {}
            }
        }
    }
}
