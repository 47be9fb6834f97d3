//! Answers to a script that are under way, looked at a few at a time.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::{Answer, CallError, Op};

/// Looks at answers that may take longer than this are followed by a turn of everybody else.
const TURN: Duration = Duration::from_millis(1);

/// The worker's number of a question, and the answer.
pub(super) type Answered = (u32, Result<String, CallError>);

/// Answers under way, all in the task of their run: a handful of them is looked at faster than a thread
/// is woken. Dropping them cancels them.
#[derive(Default)]
pub(super) struct PendingAnswers {
    list: Vec<PendingAnswer>,
    /// Whether the last look did work that others had to wait for.
    has_worked: bool,
}

struct PendingAnswer {
    id: u32,
    is_question: bool,
    answer: Answer,
}

impl PendingAnswers {
    /// One more.
    pub(super) fn add(&mut self, id: u32, op: Op, answer: Answer) {
        self.list.push(PendingAnswer { id, is_question: op != Op::Call, answer });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether the last look did work that others had to wait for.
    pub(super) fn has_worked(&self) -> bool {
        self.has_worked
    }

    /// Those that are done; waits until there is one. Calls wait for their servers, but questions are answered by
    /// the gateway itself, here: one of them at a time, and whatever took long ends the look.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Vec<Answered>> {
        let mut done = Vec::new();
        let began = Instant::now();
        self.has_worked = false;
        self.list.retain_mut(|PendingAnswer { id, is_question, answer }| {
            if self.has_worked {
                return true;
            }
            // A panic of the gateway ends this call and nothing else.
            let polled = catch_unwind(AssertUnwindSafe(|| answer.as_mut().poll(context)));
            match polled {
                Ok(Poll::Pending) => true,
                Ok(Poll::Ready(answer)) => {
                    done.push((*id, answer));
                    self.has_worked = *is_question || began.elapsed() > TURN;
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
