//! A script's requests in flight, polled within a time budget.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Duration;

use super::{Answer, CallError, Op};
use crate::run_clock;

/// Time budget of one poll; above it the task yields.
const POLL_BUDGET: Duration = Duration::from_millis(1);

/// The worker's id of a request, and the response.
pub(super) type Answered = (u32, Result<String, CallError>);

/// Requests in flight, all polled by the task of their run: polling a handful is faster than waking a task for each.
/// Dropping them cancels them.
#[derive(Default)]
pub(super) struct PendingAnswers {
    list: Vec<PendingAnswer>,
    /// Whether the last poll held up other clients.
    has_worked: bool,
}

struct PendingAnswer {
    id: u32,
    is_question: bool,
    answer: Answer,
}

impl PendingAnswers {
    pub(super) fn add(&mut self, id: u32, op: Op, answer: Answer) {
        self.list.push(PendingAnswer { id, is_question: op != Op::Call, answer });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether the last poll did work that held up other clients.
    pub(super) fn has_worked(&self) -> bool {
        self.has_worked
    }

    /// The responses that are ready; pending until there is one. Calls wait for their servers, but all other requests
    /// are computed by the gateway, here: at most one in a poll, which ends when its budget is used up.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Vec<Answered>> {
        let mut done = Vec::new();
        let began = run_clock::now();
        self.has_worked = false;
        self.list.retain_mut(|PendingAnswer { id, is_question, answer }| {
            if self.has_worked {
                return true;
            }
            // A panic fails this request and nothing else.
            let polled = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)));
            match polled {
                Ok(Poll::Pending) => true,
                Ok(Poll::Ready(answer)) => {
                    done.push((*id, answer));
                    self.has_worked = *is_question || began.elapsed() > POLL_BUDGET;
                    false
                }
                Err(_) => {
                    let json =
                        r#"{"code":"internal","message":"the gateway failed while answering"}"#;
                    done.push((*id, Err(CallError { json: json.to_owned() })));
                    false
                }
            }
        });
        if done.is_empty() { Poll::Pending } else { Poll::Ready(done) }
    }
}
