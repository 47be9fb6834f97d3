//! Calls that need a person's approval: they wait here, in front of the one path, until it was given.
//! Owns: those calls, whose turn it is to be asked, how long they wait.      Never: decides what needs an approval or whether one counts (`metamcp-calls` does), believes a model.
//! In: every call.  Out: the same calls to the audit log and the dispatch, or refused.
//! Tests: `metamcp/tests/surface/approvals.rs`, `metamcp-calls::approval` for the decisions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use metamcp_calls::approval::{Decision, Declared, Rule};
use metamcp_calls::dispatch::DispatchError;
use metamcp_config::config::{Approve, ServerConfig, ServerOrigin};
use metamcp_tools::tool::Hints;
use metamcp_types::moment::Moment;
use metamcp_types::text;
use metamcp_wire::canonical;
use metamcp_wire::scan::Defect;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

use super::{
    CallError, CallErrorKind, CallOutcome, Pending, Responder, Router, ServerRequest, Unrecorded,
};
use crate::approvals::{self, ApprovalStore, AskedCall, MAX_ARGUMENTS, Reply, Span};
use crate::clock::unix_millis;
use crate::compute;
use crate::observe::{Action, Event, Subject};
use crate::task;
use crate::upstream;
use crate::upstream::server_cache::fingerprint;

/// Most calls that wait for persons at once; more are refused, and approved one by one.
const MAX_WAITING: usize = 256;
/// How often it is looked whether somebody answered in a terminal or on the page.
const LOOK: Duration = Duration::from_secs(1);
/// Longest name of a client that is shown.
const MAX_CLIENT: usize = 100;

/// Why a call was not approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unapproved {
    /// Nobody could be asked, or nobody answered.
    Open {
        /// What a person approves, if there is somewhere to do so.
        id: Option<String>,
        /// As a clause.
        why: Cow<'static, str>,
    },
    /// A person said no.
    Declined,
}

/// See the module.
#[derive(Default)]
pub(super) struct Approving {
    store: OnceLock<(Arc<ApprovalStore>, Duration)>,
    waiting: Mutex<HashMap<u64, Waiting>>,
    /// One dialog at a time for each session.
    turns: Mutex<HashMap<u64, Arc<Semaphore>>>,
}

struct Waiting {
    pending: Pending,
    /// Dropped with the call, which ends whoever asks because of it.
    _ended: oneshot::Sender<()>,
}

/// What came of asking.
enum Outcome {
    /// It may run; by what.
    Allowed(&'static str),
    Refused(Unapproved),
}

impl Router {
    /// Where answers of persons are stored, and how long a call waits for one.
    pub fn ask_persons(&self, store: ApprovalStore, wait: Duration) {
        // Set once, at the start.
        drop(self.approving.store.set((Arc::new(store), wait)));
    }

    /// Passes a call on, once it is approved if it has to be.
    pub(super) fn gate(&self, pending: Pending, now: Moment) {
        let Some(config) = self.needs_approval(&pending) else { return self.admit(pending, now) };
        let Some(me) = self.me.upgrade() else { return };
        let ticket = {
            let mut state = self.lock();
            state.next_key += 1;
            state.next_key - 1
        };
        let (ended, end) = oneshot::channel();
        {
            let mut waiting = self.approving.waiting.lock();
            if waiting.len() >= MAX_WAITING {
                drop(waiting);
                let why = "too many calls wait for an approval already".into();
                return self.unapproved(pending, Unapproved::Open { id: None, why });
            }
            waiting.insert(ticket, Waiting { pending, _ended: ended });
        }
        task::spawn("approval", async move {
            tokio::select! {
                () = me.approve(ticket, &config) => {}
                // The call was given up.
                _ = end => {}
            }
        });
    }

    /// The server's configuration, if this call may not be sent without an approval.
    fn needs_approval(&self, pending: &Pending) -> Option<Arc<ServerConfig>> {
        let request = &pending.request;
        // A retry with answers continues a call that came by here: the gateway's seal binds it to the same arguments. In
        // direct mode a client may send answers that nobody asked for, which prove nothing.
        let is_sealed = request.input.as_ref().is_some_and(|input| input.is_sealed);
        if request.method() != "tools/call" || is_sealed {
            return None;
        }
        let config = self.ruled(request.server)?;
        let tool = request.sent_tool();
        let rule = match config.approve(tool) {
            Approve::Never => Rule::Never,
            Approve::Destructive => Rule::Destructive,
            Approve::Always => Rule::Always,
        };
        let declared = declared(request.hints, &config, tool);
        rule.covers(declared, &[tool, &request.tool]).then_some(config)
    }

    async fn approve(self: &Arc<Self>, ticket: u64, config: &ServerConfig) {
        let outcome = match self.asked_call(ticket, config).await {
            None => return,
            Some(Err(why)) => Outcome::Refused(Unapproved::Open { id: None, why: why.into() }),
            Some(Ok(call)) => {
                let outcome = self.decide_on(ticket, &call).await;
                let verdict = match &outcome {
                    Outcome::Allowed(how) => how,
                    Outcome::Refused(Unapproved::Declined) => "declined",
                    Outcome::Refused(Unapproved::Open { .. }) => "unapproved",
                };
                match self.record_decision(ticket, call, verdict).await {
                    Ok(()) => outcome,
                    Err(error) => {
                        let Some(pending) = self.taken_from_approving(ticket) else { return };
                        return self.unrecorded(pending, &error.to_string(), self.clock.now());
                    }
                }
            }
        };
        let Some(pending) = self.taken_from_approving(ticket) else { return };
        match outcome {
            Outcome::Allowed(_) => self.admit(pending, self.clock.now()),
            Outcome::Refused(why) => self.unapproved(pending, why),
        }
    }

    /// What a person has to see of a call; none if it is gone.
    async fn asked_call(
        &self,
        ticket: u64,
        config: &ServerConfig,
    ) -> Option<Result<AskedCall, String>> {
        let (call, sent) = {
            let waiting = self.approving.waiting.lock();
            let pending = &waiting.get(&ticket)?.pending;
            let request = &pending.request;
            let client = match &pending.record.identity.client {
                Some(client) => format!("{} {}", client.name, client.version),
                None => "a client without a name".to_owned(),
            };
            let by = format!("{client}, by {}", pending.record.origin.word());
            let call = AskedCall {
                server: request.server_name.to_string(),
                made_by: fingerprint(config),
                tool: request.sent_tool().to_owned(),
                shown_as: request.tool.to_string(),
                arguments: String::new(),
                digest: String::new(),
                client: text::spelt(&by, MAX_CLIENT),
                since: unix_millis(),
            };
            (call, request.sent_arguments().into_owned())
        };
        let secrets = self.values();
        let told = compute::run(move || {
            let form = canonical::canonical(&sent)?;
            let lines = match form.len() > MAX_ARGUMENTS {
                true => Vec::new(),
                false => canonical::on_lines(&sent)?,
            };
            let shown = String::from_utf8_lossy(&lines);
            let shown = secrets.redact_text(&shown);
            let arguments = text::escaped_json(&shown).into_owned();
            Ok::<_, Defect>(AskedCall { arguments, digest: approvals::digest_of(&form), ..call })
        });
        Some(match told.await {
            Ok(Ok(call)) => Ok(call),
            Ok(Err(defect)) => Err(format!("its arguments cannot be shown: {defect}")),
            Err(error) => Err(format!("it cannot be shown: {error}")),
        })
    }

    /// Looks for an answer that was given before, and asks for one.
    async fn decide_on(self: &Arc<Self>, ticket: u64, call: &AskedCall) -> Outcome {
        let Some((store, wait)) = self.approving.store.get() else {
            let why = "there is nowhere to ask for it".into();
            return Outcome::Refused(Unapproved::Open { id: None, why });
        };
        if let Some(outcome) = stored(store, call).await {
            return outcome;
        }
        let why = match self.clock.timeout(*wait, self.ask_person(ticket, store, call)).await {
            Some(Ok(outcome)) => return outcome,
            Some(Err(why)) => why,
            None => "nobody answered in time",
        };
        if call.arguments.is_empty() {
            let why = "its arguments are too long to be shown to anybody".into();
            return Outcome::Refused(Unapproved::Open { id: None, why });
        }
        let (asking, asked) = (Arc::clone(store), call.clone());
        let id = tokio::task::spawn_blocking(move || asking.ask(&asked)).await;
        let id = match id {
            Ok(Ok(id)) => Some(id),
            Ok(Err(error)) => {
                tracing::error!("a call that needs an approval cannot be stored: {error}");
                None
            }
            Err(_) => None,
        };
        Outcome::Refused(Unapproved::Open { id, why: why.into() })
    }

    /// Asks the person behind the client, in turn. The error says why there was no answer.
    async fn ask_person(
        self: &Arc<Self>,
        ticket: u64,
        store: &Arc<ApprovalStore>,
        call: &AskedCall,
    ) -> Result<Outcome, &'static str> {
        let caller = {
            let waiting = self.approving.waiting.lock();
            waiting.get(&ticket).map(|waiting| waiting.pending.caller.clone())
        };
        let caller = caller.ok_or("the call was given up")?;
        if !caller
            .client
            .capabilities()
            .get("elicitation")
            .is_some_and(serde_json::Value::is_object)
        {
            return Err("this client cannot ask one");
        }
        // Over HTTP any program with a token can answer; so the owner names whose answers count.
        if !caller.client.may_approve() {
            return Err(
                "an answer of this client does not count (the owner names approvers in serve.approvers)",
            );
        }
        let question =
            call.elicitation().ok_or("its arguments are too long for a dialog of this client")?;
        let turn = self.turn_of(caller.client.identity().session);
        let _turn = turn.acquire().await.map_err(|_| "the gateway is ending")?;
        // Whoever asked before may have been given an answer for this as well.
        if let Some(outcome) = stored(store, call).await {
            return Ok(outcome);
        }
        // Shown in a terminal and on the page as well, for as long as nobody answered.
        let (asking, asked) = (Arc::clone(store), call.clone());
        drop(tokio::task::spawn_blocking(move || asking.ask(&asked)).await);
        let (elicitation, mut answer) = ServerRequest::of_gateway("elicitation/create", &question);
        if caller.client.ask(Some(&caller.request), elicitation).is_err() {
            return Err("this client cannot ask one");
        }
        let reply = loop {
            tokio::select! {
                reply = &mut answer => break reply,
                () = self.clock.sleep_until(self.clock.now() + LOOK) => {
                    if let Some(outcome) = stored(store, call).await {
                        return Ok(outcome);
                    }
                }
            }
        };
        let Ok(upstream::Reply::Result(reply)) = reply else {
            return Err("the client did not show the question");
        };
        let reply = approvals::read_reply(&reply).ok_or("the client's answer cannot be read")?;
        let (approved, span) = match reply {
            Reply::Approved(span) => (true, span),
            Reply::Declined => (false, Span::Once),
            Reply::Dismissed => return Err("the question was closed without an answer"),
        };
        let (asking, asked) = (Arc::clone(store), call.clone());
        let keep = move || {
            // An approval of this one call is used at once.
            if approved && span == Span::Once {
                asking.forget_asked(&asked.id());
                return Ok(());
            }
            asking.answer(&asked, approved, span, false).map(drop)
        };
        if let Ok(Err(error)) = tokio::task::spawn_blocking(keep).await {
            tracing::error!("an answer counts for this call only, it cannot be stored: {error}");
        }
        Ok(match approved {
            true => Outcome::Allowed("approved"),
            false => Outcome::Refused(Unapproved::Declined),
        })
    }

    fn turn_of(&self, session: u64) -> Arc<Semaphore> {
        let mut turns = self.approving.turns.lock();
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(session).or_insert_with(|| Arc::new(Semaphore::new(1))))
    }

    async fn record_decision(
        &self,
        ticket: u64,
        call: AskedCall,
        verdict: &'static str,
    ) -> Result<(), Unrecorded> {
        let identity = {
            let waiting = self.approving.waiting.lock();
            waiting.get(&ticket).map(|waiting| Arc::clone(&waiting.pending.record.identity))
        };
        self.decide(move |observer| {
            let AskedCall { server, tool, digest, .. } = &call;
            let action = Action::new(Subject::Call { server, tool, arguments: digest }, verdict);
            observer.publish(&Event::Action(Action { identity: identity.as_deref(), ..action }));
        })
        .await
    }

    fn taken_from_approving(&self, ticket: u64) -> Option<Pending> {
        self.approving.waiting.lock().remove(&ticket).map(|waiting| waiting.pending)
    }

    fn unapproved(&self, pending: Pending, why: Unapproved) {
        let request = &pending.request;
        let error = CallError {
            server: Arc::clone(&request.server_name),
            tool: Arc::clone(&request.tool),
            method: request.method(),
            kind: CallErrorKind::Unapproved(why),
        };
        self.answer(pending, CallOutcome::Failed(error), self.clock.now());
    }

    /// Answers calls that matched before they were approved.
    pub(super) fn cancel_approving(&self, responder: &Arc<dyn Responder>, tag: Option<&[u8]>) {
        for pending in self.approving.taken(|pending| pending.is_of(responder, tag)) {
            self.answer(pending, CallOutcome::Cancelled, self.clock.now());
        }
    }

    /// Refuses all calls that wait, since the gateway ends.
    pub(super) fn stop_approving(&self) {
        for pending in self.approving.taken(|_| true) {
            let error = DispatchError::ShuttingDown { sent: false };
            let error = self.failed(&pending.request, error);
            self.answer(pending, CallOutcome::Failed(error), self.clock.now());
        }
    }

    /// How many calls of a responder wait.
    pub(super) fn approving_of(&self, is_its: impl Fn(&Pending) -> bool) -> usize {
        let waiting = self.approving.waiting.lock();
        waiting.values().filter(|waiting| is_its(&waiting.pending)).count()
    }
}

impl Approving {
    fn taken(&self, which: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let mut waiting = self.waiting.lock();
        let taken = waiting.extract_if(|_, waiting| which(&waiting.pending));
        taken.map(|(_, waiting)| waiting.pending).collect()
    }
}

/// What is declared of a tool, and whether the user did that. What a project's file says makes nothing harmless: only
/// what it calls destructive counts.
fn declared(hints: Hints, config: &ServerConfig, tool: &str) -> Declared {
    let own = config.overrides.for_tool(tool).map(|one| &one.annotations);
    let says = |hint: &str| own.is_some_and(|own| own.contains_key(hint));
    let is_overridden = says("readOnlyHint") || says("destructiveHint");
    let Hints { read_only, destructive, .. } = hints;
    if is_overridden && config.origin == ServerOrigin::Project {
        return Declared::default();
    }
    Declared { read_only, destructive, is_vouched: is_overridden }
}

/// What an answer that was given before means for a call, if there is one that counts.
async fn stored(store: &Arc<ApprovalStore>, call: &AskedCall) -> Option<Outcome> {
    let (store, call) = (Arc::clone(store), call.clone());
    let decided = tokio::task::spawn_blocking(move || store.decide(&call)).await.ok()?;
    match decided {
        Ok((Decision::Allow(_), answer)) => Some(Outcome::Allowed(match answer {
            Some(answer) if answer.once => "approved_before",
            _ => "rule",
        })),
        Ok((Decision::Refuse, _)) => Some(Outcome::Refused(Unapproved::Declined)),
        Ok((Decision::Ask, _)) => None,
        Err(error) => {
            tracing::error!("no approval that was given before counts: {error}");
            None
        }
    }
}
