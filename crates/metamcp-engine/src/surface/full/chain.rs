//! `run_chain`: calls one after the other. A failed step ends the chain; the results of earlier steps are returned.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use metamcp_surface::excerpt;
use metamcp_surface::full_surface::{
    self, BadArguments, ChainRequest, CompletedStep, StepResponse,
};
use metamcp_types::text;
use metamcp_wire::write;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::run::{millis, who};
use crate::clock;
use crate::observe::Origin;
use crate::router::{Caller, Entry};
use crate::surface::reply::{Code, ErrorObject};
use crate::surface::sub_request::{Progress, SubRequests};
use crate::surface::{Finished, Running, Step, View};

const OP: &str = "run_chain";

struct Plan {
    steps: Vec<Planned>,
    include_backends: bool,
    include_tools: bool,
    timeout: Option<Duration>,
}

struct Planned {
    tool_id: String,
    args: Option<Bytes>,
    use_previous: bool,
    id: Option<String>,
}

/// How far a chain has come, for a response that cannot wait for its end.
struct Progressed {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    steps: Vec<StepResponse>,
    /// Content that is not text, of all steps.
    others: Vec<Bytes>,
    /// The last good value, as it is shown.
    last: Option<Vec<u8>>,
    /// Bytes of shown values so far.
    shown: usize,
}

impl View {
    pub(super) fn run_chain(
        &self,
        arguments: Option<&[u8]>,
        meta: Option<&[u8]>,
        line: &Bytes,
        caller: &Caller,
    ) -> Result<Step, BadArguments> {
        let request = ChainRequest::decode(arguments)?;
        let plan = Plan {
            steps: request
                .steps
                .into_iter()
                .map(|step| Planned {
                    tool_id: step.tool_id,
                    args: step.args.map(|args| line.slice_ref(args)),
                    use_previous: step.use_previous,
                    id: step.id,
                })
                .collect(),
            include_backends: request.include_backends,
            include_tools: request.include_tools,
            timeout: request.timeout_ms.map(Duration::from_millis),
        };
        let record = Arc::new(Progressed { began: clock::std_instant(), state: Mutex::default() });
        let (view, progress) = (self.clone(), Progress::new(caller, meta));
        let so_far = Arc::clone(&record);
        let (unended, count) = (Arc::clone(&progress), plan.steps.len());
        let final_response = move || {
            unended.steps_ended(count, "metamcp is shutting down");
            let index = so_far.lock().steps.len();
            let cause = ErrorObject::new(Code::ShuttingDown, "metamcp is shutting down")
                .hint("The step in progress may have run: verify before repeating it.");
            Finished::Result(so_far.answer(Some(&failed(index, None, &cause))))
        };
        let future = async move {
            let error = view.chain(&plan, &progress, &record).await.err();
            progress.steps_ended(count, if error.is_some() { "ended by an error" } else { "done" });
            Finished::Result(record.answer(error.as_ref()))
        };
        Ok(Step::Running(Running {
            future: Box::pin(future),
            final_response: Box::new(final_response),
        }))
    }

    /// Makes the steps; ends with the first that fails.
    async fn chain(
        &self,
        plan: &Plan,
        progress: &Arc<Progress>,
        record: &Progressed,
    ) -> Result<(), ErrorObject> {
        let (clock, sub_requests) =
            (self.surface.router.clock, SubRequests::within(progress, Origin::Chain));
        let deadline = plan.timeout.map(|timeout| clock.now() + timeout);
        let mut values: Vec<(Option<&str>, Bytes)> = Vec::new();
        let count = plan.steps.len();
        for (index, step) in plan.steps.iter().enumerate() {
            let shown = text::clean_line(&step.tool_id, 160);
            progress.step(index, count, &format!("step {} of {count}: {shown}", index + 1));
            let began = clock::std_instant();
            let made = self.made(step, &sub_requests, &values, deadline).await;
            let entry = self.entry_of(&step.tool_id);
            let known = |wanted: bool| entry.as_ref().filter(|_| wanted);
            let mut done = StepResponse {
                tool_id: step.tool_id.clone(),
                id: step.id.clone(),
                structured: b"null".to_vec(),
                error: None,
                duration_ms: millis(began),
                tool: known(plan.include_tools)
                    .and_then(|(entry, tool)| self.definition(entry, tool)),
                backend: known(plan.include_backends).map(|(entry, _)| who(entry)),
                mcp_result: None,
            };
            let cause = match (made, &entry) {
                (Ok(result), Some((entry, tool))) => {
                    let outcome = self.done(&result, (entry, tool), OP);
                    let mut state = record.lock();
                    done.structured = if outcome.is_stored {
                        outcome.shown.to_vec()
                    } else {
                        self.shown(&outcome.shown, &mut state)
                    };
                    let is_whole = outcome.is_plain || outcome.is_stored;
                    if !is_whole && self.has_room(result.len(), &mut state) {
                        done.mcp_result = Some(write::one_line(&result).into_owned());
                        let parts = outcome.others.iter().map(|part| result.slice_ref(part));
                        state.others.extend(parts);
                    }
                    if outcome.error.is_none() {
                        state.last = Some(done.structured.clone());
                        drop(state);
                        let value = Bytes::from(outcome.value.into_owned());
                        values.push((step.id.as_deref(), value));
                    }
                    outcome.error
                }
                // A stored result: it belongs to no server.
                (Ok(result), None) => {
                    let value = full_surface::read(&result).structured.into_owned();
                    let mut state = record.lock();
                    done.structured = self.shown(&value, &mut state);
                    state.last = Some(done.structured.clone());
                    drop(state);
                    values.push((step.id.as_deref(), Bytes::from(value)));
                    None
                }
                (Err(cause), _) => Some(cause.by(OP)),
            };
            done.error = cause.as_ref().map(ErrorObject::to_json);
            record.lock().steps.push(done);
            if let Some(cause) = cause {
                return Err(failed(index, Some(&step.tool_id), &cause));
            }
        }
        Ok(())
    }

    /// One step, within the time that is left.
    async fn made(
        &self,
        step: &Planned,
        sub_requests: &Arc<SubRequests>,
        values: &[(Option<&str>, Bytes)],
        deadline: Option<metamcp_types::moment::Moment>,
    ) -> Result<Bytes, ErrorObject> {
        let done: Vec<CompletedStep<'_>> =
            values.iter().map(|(id, value)| CompletedStep { id: *id, structured: value }).collect();
        let arguments = full_surface::arguments_of(step.args.as_deref(), step.use_previous, &done)
            .map_err(|bad| {
                ErrorObject::new(Code::ValidationInput, bad.to_string())
                    .hint("The step was not run. The results of the steps before it are above.")
            })?;
        let arguments = Bytes::from(write::one_line(&arguments).into_owned());
        let call = sub_requests.call_tool(self, OP, (None, &step.tool_id), &arguments);

        match deadline {
            None => call.await,
            Some(deadline) => {
                let clock = self.surface.router.clock;
                let left = deadline.since(clock.now());
                clock.timeout(left, call).await.ok_or_else(out_of_time)?
            }
        }
    }

    fn entry_of(&self, id: &str) -> Option<(Entry, Arc<str>)> {
        // Stored results belong to no server.
        self.tool_named(None, id).ok().filter(|_| !id.trim_start().starts_with('@'))
    }

    /// A value as it is shown: one that exceeds the limit is stored, and a preview is shown.
    fn shown(&self, value: &[u8], state: &mut State) -> Vec<u8> {
        if self.has_room(value.len(), state) {
            return value.to_vec();
        }
        let handle = self.surface.results.put(&self.owner(), Bytes::copy_from_slice(value));
        excerpt::preview(value, self.result_chars(), &handle).to_string().into_bytes()
    }

    /// Reserves so many bytes if they fit: all steps together show no more than one result would.
    fn has_room(&self, bytes: usize, state: &mut State) -> bool {
        let limit = self.result_chars();
        let fits = limit == 0 || state.shown + bytes <= limit;
        if fits {
            state.shown += bytes;
        }
        fits
    }
}

impl Progressed {
    fn answer(&self, error: Option<&ErrorObject>) -> Vec<u8> {
        let state = self.lock();
        let error_json: Option<Value> = error.map(ErrorObject::to_json);
        let last = state.last.as_deref().unwrap_or(b"null");
        let answer =
            full_surface::chain(&state.steps, last, error_json.as_ref(), millis(self.began));
        let line = error.map(ErrorObject::to_line);
        let others: Vec<&[u8]> = state.others.iter().map(|part| &**part).collect();
        full_surface::answer(&answer, line.as_deref(), &others)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn out_of_time() -> ErrorObject {
    ErrorObject::new(Code::Timeout, "the time limit of the whole chain passed during this step")
        .hint("The step was cancelled and may have run: verify before repeating it. Raise `timeout_ms`, or use fewer steps.")
        .detail("outcome", "unknown")
}

/// The failure of a chain, with that of its step.
fn failed(index: usize, tool_id: Option<&str>, cause: &ErrorObject) -> ErrorObject {
    let which = tool_id.map_or(String::new(), |id| format!(" ({})", text::clean_line(id, 160)));
    let message = format!("step {index}{which} failed: {}", cause.message());
    let done = match index {
        0 => "No step was completed.".to_owned(),
        1 => "Step 0 was completed, and its result is included.".to_owned(),
        more => format!("Steps 0 to {} were completed, and their results are included.", more - 1),
    };
    let hint = match cause.next() {
        Some(next) => format!("{done} {next}"),
        None => done,
    };
    ErrorObject::new(Code::ChainStepFailed, message)
        .hint(hint)
        .like(cause)
        .by(OP)
        .step(index)
        .detail("cause", cause.to_json())
}
