//! Calls of a fleet: those for instances that may run on another gateway, and those of other gateways that run here.
//! Owns: which servers are the fleet's, calls that wait for what another node says, the callers of other nodes' calls.      Never: decides where a call runs (`metamcp-fleet` does).
//! In: calls on their one path, orders of the fleet.  Out: calls to the dispatch, or forwarded; their outcomes.
//! Tests: `metamcp/tests/fleet`.
//!
//! Where this node owns an instance, a call goes to the dispatch as it does without a fleet, with the grant beside it:
//! asked when the call comes, when its bytes leave and when its answer is there. Everything else waits here.

mod listing;
mod operated;
mod placed;
mod remote_caller;
mod wire;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::dispatch::{DispatchError, Removal};
use metamcp_calls::failure::{Fact, Failure};
use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_types::moment::Moment;
use metamcp_types::slab::Key;
use metamcp_wire::object;
use parking_lot::{Mutex, RwLock};

use super::error::CallErrorKind;
use super::relay::ServerRequest;
use super::{CallError, CallOutcome, Pending, Responder, Router, Slot};
use crate::fleet::{
    Body, CallId, Fleet, Grant, Host, InstanceId, NodeName, Part, Request, Run, Stamp, Unknown,
    Verdict, WhyNot,
};
use crate::task;
use crate::upstream::Reply;

use placed::Placed;
use remote_caller::RemoteCaller;
use wire::{Answered, Replied, Said};

/// How often a harmless call is given to another process after this node lost its lease.
const MOST_RERUNS: u32 = 2;
/// How soon a call that met no lease is tried again by its client.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What a call of the fleet carries along.
#[derive(Default)]
pub(super) struct CallPlace {
    /// By which lease it runs here.
    grant: Option<Arc<Grant>>,
    /// It is a call of another node, which has the record.
    is_foreign: bool,
    /// The gateway's own question, which is nobody's call.
    is_own: bool,
    /// Its process was ended because the lease was lost.
    is_fenced: bool,
    reruns: u32,
}

/// See the module.
#[derive(Default)]
pub(super) struct FleetCalls {
    fleet: OnceLock<Arc<Fleet>>,
    placed: RwLock<HashMap<ServerId, Arc<Placed>>>,
    /// Calls of our clients that the fleet has.
    waiting: Mutex<HashMap<u64, Waiting>>,
    last: AtomicU64,
    /// Calls of other nodes that run here.
    foreign: Mutex<BTreeMap<Run, Arc<RemoteCaller>>>,
    /// Servers whose tools are being listed elsewhere.
    listing: Mutex<Vec<ServerId>>,
}

struct Waiting {
    pending: Pending,
    chunks: Vec<Bytes>,
    length: usize,
    since: Moment,
}

impl Pending {
    /// For its record: another node sent it, nearly then.
    fn sent_elsewhere(&mut self, at: Moment) {
        self.record.sent.get_or_insert(at);
        self.record.attempts += 1;
    }
}

impl CallPlace {
    pub(super) fn is_recorded_elsewhere(&self) -> bool {
        self.is_foreign || self.is_own
    }

    /// Whether its bytes may leave for a process now.
    pub(super) fn may_be_sent(&self) -> bool {
        self.grant.as_ref().is_none_or(|grant| grant.may_act())
    }
}

impl Router {
    /// From now on servers with `share: fleet` run where the fleet has them.
    pub fn join_fleet(&self, fleet: &Arc<Fleet>) {
        drop(self.fleet.fleet.set(Arc::clone(fleet)));
    }

    /// The fleet that this gateway is part of.
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.fleet.get()
    }

    /// The server of an instance of the fleet, for people.
    pub fn name_of_instance(&self, instance: InstanceId) -> Option<Arc<str>> {
        let placed = self.placed_by(|placed| placed.instance == instance)?;
        Some(self.name_of(placed.server))
    }

    /// A call on its way to the dispatch: returned if it is to run here, else it is the fleet's.
    pub(super) fn to_fleet(&self, mut pending: Pending, now: Moment) -> Option<Pending> {
        let Some(fleet) = self.fleet.fleet.get() else { return Some(pending) };
        if pending.fleet.grant.is_some() {
            return Some(pending);
        }
        let Some(placed) = self.placed(pending.request.server) else { return Some(pending) };
        if let Some(grant) = fleet.grant(placed.instance).filter(|grant| grant.is_open()) {
            pending.fleet.grant = Some(grant);
            return Some(pending);
        }
        self.forward(fleet, &placed, pending, now);
        None
    }

    fn forward(&self, fleet: &Arc<Fleet>, placed: &Placed, pending: Pending, now: Moment) {
        let body = wire::call(placed, &pending);
        let request = Request {
            instance: placed.instance,
            requirements: Arc::clone(&placed.requirements),
            is_harmless: pending.request.harmless,
            body,
        };
        let id = self.fleet.last.fetch_add(1, Ordering::Relaxed) + 1;
        let waiting = Waiting { pending, chunks: Vec::new(), length: 0, since: now };
        self.fleet.waiting.lock().insert(id, waiting);
        if !fleet.call(CallId(id), request)
            && let Some(waiting) = self.fleet.waiting.lock().remove(&id)
        {
            self.fail_in_fleet(waiting.pending, DispatchError::Overloaded, now);
        }
    }

    /// What became of a call that ran here: returned unless it goes on elsewhere.
    pub(super) fn after_fleet(
        &self,
        mut pending: Pending,
        outcome: CallOutcome,
        now: Moment,
    ) -> Option<(Pending, CallOutcome)> {
        let Some(grant) = pending.fleet.grant.clone() else { return Some((pending, outcome)) };
        if pending.fleet.is_foreign {
            return Some((pending, outcome));
        }
        let is_over = pending.fleet.is_fenced || !grant.may_act();
        let is_sent = pending.record.attempts > 0;
        let is_cancelled = matches!(outcome, CallOutcome::Cancelled);
        let is_withdrawn = matches!(
            &outcome,
            CallOutcome::Failed(CallError {
                kind: CallErrorKind::Dispatch { error: DispatchError::Removed, .. },
                ..
            })
        );
        if is_cancelled && !pending.fleet.is_fenced {
            return Some((pending, outcome));
        }
        let goes_on = is_over || (is_withdrawn && !is_sent);
        if !goes_on {
            return Some((pending, outcome));
        }
        pending.fleet.grant = None;
        pending.fleet.is_fenced = false;
        if is_sent {
            pending.fleet.reruns += 1;
            if !pending.request.harmless || pending.fleet.reruns > MOST_RERUNS {
                let error =
                    unknown("this gateway lost its lease of the server, and ended its process");
                let failed = self.failed(&pending.request, error);
                return Some((pending, CallOutcome::Failed(failed)));
            }
        }
        let pending = self.to_fleet(pending, now)?;
        // The lease is ours again.
        self.enter(pending, now);
        None
    }

    fn fail_in_fleet(&self, pending: Pending, error: DispatchError, now: Moment) {
        let failed = self.failed(&pending.request, error);
        self.answer(pending, CallOutcome::Failed(failed), now);
    }

    /// Answers calls that matched while the fleet had them.
    pub(super) fn cancel_in_fleet(&self, responder: &Arc<dyn Responder>, tag: Option<&[u8]>) {
        let Some(fleet) = self.fleet.fleet.get() else { return };
        let taken: Vec<(u64, Waiting)> = {
            let mut waiting = self.fleet.waiting.lock();
            waiting.extract_if(|_, waiting| waiting.pending.is_of(responder, tag)).collect()
        };
        for (id, waiting) in taken {
            fleet.cancel(CallId(id));
            self.answer(waiting.pending, CallOutcome::Cancelled, self.clock.now());
        }
    }

    pub(super) fn count_in_fleet(&self, is_its: impl Fn(&Pending) -> bool) -> usize {
        let waiting = self.fleet.waiting.lock();
        waiting.values().filter(|waiting| is_its(&waiting.pending)).count()
    }

    /// Ends what still waits, because this gateway ends.
    pub(super) fn stop_in_fleet(&self) {
        let taken = std::mem::take(&mut *self.fleet.waiting.lock());
        for waiting in taken.into_values() {
            // Whether it was sent is not known here any more.
            let error = DispatchError::ShuttingDown { sent: true };
            self.fail_in_fleet(waiting.pending, error, self.clock.now());
        }
    }

    /// Whether a process of this server may be started here now.
    pub(super) fn may_start(&self, server: ServerId) -> bool {
        let Some(fleet) = self.fleet.fleet.get() else { return true };
        let Some(placed) = self.placed(server) else { return true };
        fleet.grant(placed.instance).is_some_and(|grant| grant.may_act())
    }

    fn take(&self, call: CallId) -> Option<Waiting> {
        self.fleet.waiting.lock().remove(&call.0)
    }

    fn said(&self, call: CallId, rerun: u32, said: Said) {
        let whose = {
            let waiting = self.fleet.waiting.lock();
            waiting.get(&call.0).map(|waiting| {
                let request = &waiting.pending.request;
                let progress = (request.progress.clone(), request.call_progress.clone());
                (waiting.pending.caller.clone(), progress)
            })
        };
        let Some((caller, (token, steps))) = whose else { return };
        match said {
            Said::Progress(params) => {
                let Some(token) = token else { return };
                let params = object::replace_member(&params.0, "progressToken", &token);
                match steps {
                    Some(call_progress) => call_progress.own(&params),
                    None => caller.responder.progress(&caller.tag, &params),
                }
            }
            Said::Log(params) => caller.client.log(Some(&caller.request), &params.0),
            Said::Withdrawn { ask } => {
                let id = ask_id(call, rerun, ask);
                caller.client.cancel_ask(nobody(), Some(&id));
            }
            Said::Asked { ask, method, params } => {
                let Some(fleet) = self.fleet.fleet.get() else { return };
                let params = params.map(|params| params.0);
                let origin = FleetAsk { fleet: Arc::clone(fleet), call, rerun, ask };
                let id = ask_id(call, rerun, ask);
                let server_request = ServerRequest::of_fleet(id, method, params, origin);
                if let Err(server_request) =
                    caller.client.ask(Some(&caller.request), server_request)
                {
                    server_request.refuse("the client behind metamcp cannot answer this");
                }
            }
        }
    }

    fn told(&self, call: CallId, rerun: u32, body: &Body) {
        match wire::read::<Said>(&body.0) {
            Some(said) => self.said(call, rerun, said),
            None => tracing::warn!("another gateway said something of a call that makes no sense"),
        }
    }
}

/// A request of a server on another node, on its way to the client.
pub(super) struct FleetAsk {
    fleet: Arc<Fleet>,
    call: CallId,
    rerun: u32,
    ask: u64,
}

impl std::fmt::Debug for FleetAsk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FleetAsk({:?}, {})", self.call, self.ask)
    }
}

impl FleetAsk {
    pub(super) fn answer(&self, reply: &Reply) {
        self.send(match reply {
            Reply::Result(result) => Replied::Result(Body(result.clone())),
            Reply::Error(error) => Replied::Error(Body(error.clone())),
            Reply::Malformed(_) | Reply::Oversize(_) | Reply::Broke { .. } => Replied::Unreadable,
        });
    }

    pub(super) fn refuse(&self, why: &str) {
        self.send(Replied::Refused(why.to_owned()));
    }

    fn send(&self, replied: Replied) {
        let body = wire::written(&(self.ask, replied));
        self.fleet.answer(self.call, self.rerun, body);
    }
}

fn ask_id(call: CallId, rerun: u32, ask: u64) -> Bytes {
    Bytes::from(format!("fleet {} {rerun} {ask}", call.0))
}

/// A connection that there never is: what a server on another node asks has none here.
fn nobody() -> ConnId {
    ConnId(Key::default())
}

fn unknown(reason: &str) -> DispatchError {
    let fact = Fact::Unreachable { reason: reason.to_owned() };
    DispatchError::OutcomeUnknown { failure: Arc::new(Failure::new(fact)) }
}

fn not_run(reason: String) -> DispatchError {
    let failure = Arc::new(Failure::new(Fact::Unreachable { reason }));
    DispatchError::Unavailable { failure, retry_after: Some(TRY_AGAIN) }
}

impl Host for Router {
    fn knows(&self, definition: u128) -> bool {
        self.defines(definition)
    }

    fn run_ours(&self, call: CallId, grant: &Arc<Grant>) {
        let Some(Waiting { mut pending, .. }) = self.take(call) else { return };
        pending.fleet.grant = Some(Arc::clone(grant));
        self.enter(pending, self.clock.now());
    }

    fn run(&self, run: Run, grant: &Arc<Grant>, body: &Body) {
        let Some(fleet) = self.fleet.fleet.get() else { return };
        let refuse = |why: &str| {
            let answered = Answered::not_run(why);
            fleet.result(&run, &wire::written(&answered).0);
        };
        let Some(call) = wire::read::<wire::Call>(&body.0) else {
            return refuse("the gateway that runs it does not understand the call");
        };
        let Some(placed) = self.placed_as(call.definition, call.owner) else {
            fleet.leave(grant.instance, None, TRY_AGAIN);
            return refuse(
                "the gateway that ran it does not have it in its configuration any more",
            );
        };
        let Some(me) = self.me.upgrade() else { return };
        let Some(pending) = remote_caller::pending(&me, fleet, &run, &placed, grant, call) else {
            return refuse("the gateway that runs it does not know the method");
        };
        let now = self.clock.now();
        grant.is_open();
        self.enter(pending, now);
    }

    fn input(&self, run: &Run, body: &Body) {
        let whose = self.fleet.foreign.lock().get(run).cloned();
        if let (Some(whose), Some((ask, replied))) = (whose, wire::read(&body.0)) {
            whose.replied(ask, replied);
        }
    }

    fn abort(&self, run: &Run) {
        let whose = self.fleet.foreign.lock().remove(run);
        if let Some(whose) = whose {
            whose.abandon();
            self.cancel_all(&(whose as Arc<dyn Responder>));
        }
    }

    fn part(&self, call: CallId, rerun: u32, owner: Option<&NodeName>, part: Part<Body>) {
        match part {
            Part::Notification(body) | Part::Request(body) => self.told(call, rerun, &body),
            Part::Chunk(Body(chunk)) => {
                let mut all = self.fleet.waiting.lock();
                let Some(waiting) = all.get_mut(&call.0) else { return };
                waiting.length += chunk.len();
                // No server here may answer with more; the rest is not kept.
                if waiting.length <= self.timing.line_bytes + wire::HEAD {
                    waiting.chunks.push(chunk);
                }
            }
            Part::Last(Body(last)) => {
                let Some(mut waiting) = self.take(call) else { return };
                waiting.length += last.len();
                let now = self.clock.now();
                let mut pending = waiting.pending;
                pending.sent_elsewhere(waiting.since);
                pending.record.node = owner.map(|owner| owner.as_str().into());
                let limit = self.timing.line_bytes;
                let answered = if waiting.length > limit + wire::HEAD {
                    Some(Answered::Oversize { bytes: waiting.length as u64, limit })
                } else if waiting.chunks.is_empty() {
                    wire::read(&last)
                } else {
                    waiting.chunks.push(last);
                    wire::read(&waiting.chunks.concat())
                };
                let answered = answered.unwrap_or_else(|| {
                    Answered::Unusable(
                        "answered through a gateway that this one does not understand".to_owned(),
                    )
                });
                let outcome = answered.outcome(self, &pending.request);
                self.answer(pending, outcome, now);
            }
        }
    }

    fn discard(&self, call: CallId) {
        if let Some(waiting) = self.fleet.waiting.lock().get_mut(&call.0) {
            waiting.chunks.clear();
            waiting.length = 0;
        }
    }

    fn verdict(&self, call: CallId, verdict: Verdict) {
        let error = match verdict {
            Verdict::Answered => return,
            Verdict::OutcomeUnknown(why) => unknown(match why {
                Unknown::OwnerSilent => "the gateway that ran the call is dead or cut off",
                Unknown::NotAccepted => {
                    "the gateway that was to run the call did not say that it has it"
                }
                Unknown::LeaseGone => "the gateway that ran the call lost its lease of the server",
                Unknown::Forgotten => "the gateway that ran the call does not know it any more",
                Unknown::Fenced => "this gateway lost its lease of the server",
            }),
            Verdict::NotRun(why) => not_run(match why {
                WhyNot::NoNode(why) => format!("no gateway of the fleet can run it: {why}"),
                WhyNot::NotTaken(why) => {
                    format!("the gateways of the fleet did not take the call ({why:?})")
                }
                WhyNot::NoOwner => "no gateway of the fleet ran it in time".to_owned(),
                WhyNot::NotInFleet => "this gateway has no part in the fleet any more".to_owned(),
            }),
        };
        if let Some(mut waiting) = self.take(call) {
            if matches!(verdict, Verdict::OutcomeUnknown(_)) {
                waiting.pending.sent_elsewhere(waiting.since);
            }
            self.fail_in_fleet(waiting.pending, error, self.clock.now());
        }
    }

    fn is_running(&self, instance: InstanceId) -> bool {
        self.servers_of(instance).iter().any(|server| self.has_connection(*server))
    }

    fn end(&self, instance: InstanceId, epoch: Stamp, at_once: bool) {
        let Some(fleet) = self.fleet.fleet.get() else { return };
        // More than one where a reload put another in its place, the calls of which are still under way.
        let servers = self.servers_of(instance);
        let now = self.clock.now();
        let removal = if at_once { Removal::AtOnce } else { Removal::Finish };
        for &server in &servers {
            if at_once {
                self.kill(server);
            }
            self.with(|dispatch, effects| dispatch.remove_server(server, removal, now, effects));
            // Known again at once: another lease may come.
            if let Some(policy) = self.policy_of(server) {
                self.with(|dispatch, effects| dispatch.change_server(server, policy, now, effects));
            }
        }
        let Some(me) = self.me.upgrade() else { return };
        let fleet = Arc::clone(fleet);
        task::spawn("fleet end", async move {
            let mut seen = me.state_changes.now();
            while servers.iter().any(|server| me.has_connection(*server)) {
                me.state_changes.moved_on(&mut seen).await;
            }
            fleet.ended(instance, epoch);
        });
    }
}

impl Router {
    /// Ends the processes of a server now, whatever they do; of its calls nothing more is believed.
    fn kill(&self, server: ServerId) {
        let mut state = self.lock();
        for call in state.dispatch.find(|pending| pending.request.server == server) {
            if let Some(pending) = state.dispatch.payload_mut(call) {
                pending.fleet.is_fenced = true;
            }
        }
        for slot in state.slots.values() {
            if let Slot::Live { conn, .. } = slot
                && conn.server == server
            {
                conn.transport.kill();
            }
        }
    }

    fn has_connection(&self, server: ServerId) -> bool {
        self.lock().dispatch.pool().all().any(|(_, slot)| slot.server == server)
    }
}
