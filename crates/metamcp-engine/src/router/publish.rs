//! The end of a call: its record is completed and published, then its one response delivered. And the changes that the
//! dispatch reports, for whoever observes them.

use std::sync::Arc;

use bytes::Bytes;
use metamcp_calls::state_change::StateChange;
use metamcp_types::moment::Moment;

use super::{CallError, CallErrorKind, CallOutcome, Caller, Pending, ResultMapper, Router, State};
use crate::observe::{Event, Interest, Origin, Payload, Verdict};
use crate::{compute, task};

/// A call whose result is being mapped; counted until this is dropped.
struct Mapping {
    router: Arc<Router>,
    responder: usize,
}

impl Mapping {
    fn begin(router: Arc<Router>, caller: &Caller) -> Mapping {
        let responder = Arc::as_ptr(&caller.responder).cast::<()>().addr();
        router.mapping.lock().push(responder);
        Mapping { router, responder }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let mut mapping = self.router.mapping.lock();
        if let Some(at) = mapping.iter().position(|responder| *responder == self.responder) {
            mapping.swap_remove(at);
        }
    }
}

impl Router {
    /// Delivers the one response to a call, after its record.
    pub(super) fn answer(
        &self,
        #[cfg_attr(feature = "fleet", expect(unused_mut, reason = "another one takes its place"))]
        mut pending: Pending,
        outcome: CallOutcome,
        now: Moment,
    ) {
        #[cfg(feature = "fleet")]
        let Some((mut pending, outcome)) = self.after_fleet(pending, outcome, now) else { return };
        if let Some(call_progress) = pending.request.call_progress.take() {
            call_progress.end(!matches!(outcome, CallOutcome::Cancelled));
        }
        let verdict = match &outcome {
            CallOutcome::Result(result) => Verdict::of_result(result),
            CallOutcome::Failed(error) => error.verdict(),
            CallOutcome::Cancelled => Verdict::Cancelled,
        };
        let (result, error) = match &outcome {
            CallOutcome::Result(result) => (Some(result), None),
            CallOutcome::Failed(error) => (None, Some(error)),
            CallOutcome::Cancelled => (None, None),
        };
        pending.record.cause = error.and_then(CallError::cause).cloned();
        pending.record.rpc_code = error.and_then(CallError::rpc_code);
        self.publish(&mut pending, verdict, result, now);
        match pending.request.result_mapper.take() {
            Some(result_mapper) => self.map_and_respond(pending, outcome, result_mapper),
            None => pending.caller.responder.respond(&pending.caller.tag, outcome),
        }
    }

    /// Responds with a mapped outcome. One that takes long is mapped off the thread that relays everybody's calls; until
    /// then the call still counts as in flight.
    fn map_and_respond(&self, pending: Pending, outcome: CallOutcome, result_mapper: ResultMapper) {
        let Pending { caller, request, record, .. } = pending;
        match (&outcome, self.me.upgrade()) {
            // A caller that cancelled gets no response.
            (CallOutcome::Cancelled, _) => caller.responder.respond(&caller.tag, outcome),
            (CallOutcome::Result(result), Some(router))
                if result.len() > result_mapper.cheap_up_to =>
            {
                let mapping = Mapping::begin(router, &caller);
                task::spawn("map result", async move {
                    let mapped = compute::run(move || result_mapper.follow.map(outcome)).await;
                    let outcome = mapped.unwrap_or_else(|error| {
                        let kind = CallErrorKind::Unusable(format!("gave a result, but {error}"));
                        let (server, tool) = (record.server, record.tool);
                        let method = request.method();
                        CallOutcome::Failed(CallError { server, tool, method, kind })
                    });
                    caller.responder.respond(&caller.tag, outcome);
                    drop(mapping);
                });
            }
            _ => caller.responder.respond(&caller.tag, result_mapper.follow.map(outcome)),
        }
    }

    /// Completes the record of a call that ended, and publishes it.
    pub(super) fn publish(
        &self,
        pending: &mut Pending,
        verdict: Verdict,
        result: Option<&Bytes>,
        now: Moment,
    ) {
        // Whoever made the call has its record.
        #[cfg(feature = "fleet")]
        if pending.fleet.is_recorded_elsewhere() {
            return;
        }
        let record = &mut pending.record;
        record.ended = now;
        record.verdict = verdict;
        record.bytes_out = result.map_or(0, Bytes::len);
        if matches!(record.origin, Origin::Script(_) | Origin::Chain) {
            self.observer.totals().read_by_script(record.bytes_out);
        }
        let arguments = pending.request.arguments.as_ref();
        let body = pending.request.body();
        let payload = Payload { arguments, body, result };
        self.observer.publish(&Event::Call(&pending.record, payload));
    }

    /// What the dispatch changed, as far as anybody wants to know. Allocates only if there is something to tell.
    pub(super) fn changes_to_publish(&self, state: &mut State) -> Vec<StateChange> {
        let activity = self.observer.wants(Interest::ACTIVITY);
        let changes = state.dispatch.take_changes();
        changes.filter(|change| activity || !change.is_activity()).collect()
    }

    /// Publishes what the dispatch changed.
    pub(super) fn publish_changes(&self, changes: &[StateChange]) {
        for change in changes {
            let server = self.name_of(change.server());
            self.observer.publish(&Event::State { server: &server, change });
        }
    }
}
