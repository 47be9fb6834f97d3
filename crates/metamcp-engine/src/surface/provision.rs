//! `mcp_provision`: finds a tool here, else a server that could be installed, and installs it after approval.

use std::sync::Arc;
use std::time::Duration;

use metamcp_config::config::ServerState;
use metamcp_provisioning::provision::{
    BadRequest, Candidate, Consent, Plan, ProvisionRequest, Rejected, candidates_text, question,
};
use metamcp_search::search::{FITS, Hit, Strategy, meets};
use metamcp_surface::discover;
use metamcp_types::text;
use metamcp_wire::object;
use metamcp_wire::scan::MAX_DEPTH;
use serde_json::{Value, json};

use super::call::usable;
use super::reply::{self, Code, ErrorObject};
use super::{Finished, Step, View};
use crate::compute;
use crate::observe::{Identity, Observer};
use crate::provision::{Found, Provisioner, publish_decision};
use crate::router::{Caller, Entry, ServerRequest};
use crate::upstream::Reply;

/// Most tools shown of those that are here already.
const SHOWN: usize = 5;
/// Longest reason why a server that was installed does not work.
const MAX_TROUBLE: usize = 500;
/// Why its tools are not known, if there is no better reason.
const UNLISTED: &str = "it did not list its tools";
/// Why a client over HTTP gets no elicitation.
const NO_APPROVER: &str = "over HTTP the answer of this client does not count as an approval (the owner names approvers in serve.approvers)";
/// How long a person may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_mins(5);

/// The outcome of asking a person for approval.
enum ApprovalAnswer {
    Approved(Vec<(String, String)>),
    Declined,
    /// The client cannot be asked, or did not answer; and why.
    NoAnswer(&'static str),
}

impl View {
    pub(super) fn mcp_provision(&self, arguments: Option<&[u8]>, caller: &Caller) -> Step {
        let arguments = match arguments.map(|raw| object::strict_value(raw, MAX_DEPTH)).transpose()
        {
            Ok(arguments) => arguments,
            Err(defect) => {
                return Step::Now(Finished::invalid(format!(
                    "the arguments of mcp_provision cannot be used: {defect}"
                )));
            }
        };
        let request = match ProvisionRequest::decode(arguments.as_ref()) {
            Ok(request) => request,
            Err(bad @ BadRequest::Malformed { .. }) => {
                return Step::Now(Finished::invalid(bad.to_string()));
            }
            Err(bad @ (BadRequest::Missing | BadRequest::Unknown(_))) => {
                let hint = "Nothing was looked for. Call mcp_provision {\"intent\": \"what the tool should do\"}.";
                let wrong = ErrorObject::new(Code::ValidationInput, bad.to_string()).hint(hint);
                return Step::Now(Finished::error(&wrong));
            }
        };
        // A session restricted to a toolset gets nothing outside it.
        if !self.surface.provisioner.is_on() || self.scope.is_some() {
            let off = ErrorObject::new(Code::Denied, "provisioning is switched off here").hint(
                "Only the owner of the configuration can change that, with provision.enabled.",
            );
            return Step::Now(Finished::error(&off));
        }
        let (view, caller) = (self.clone(), caller.clone());
        Step::Later(Box::pin(async move { view.provision(&request, &caller).await }))
    }

    async fn provision(&self, request: &ProvisionRequest, caller: &Caller) -> Finished {
        if !request.force {
            let local = self.here_already(request).await;
            if !local.is_empty() {
                return respond("local", &local_text(&local), json!({ "tools": ids(&local) }));
            }
        }
        // Checked anew each time: servers come and go while a person decides.
        let taken = |name: &str| self.context().member(name).is_some();
        let found = self.surface.provisioner.find(&request.intent, &taken, request.force).await;
        if found.plans.is_empty() {
            return nothing(request, &found);
        }
        let choice = found.plans.iter().find(|(_, plan)| !plan.is_refused());
        match choice {
            Some((candidate, _))
                if request.wants_install
                    || self.surface.provisioner.installed(candidate).is_some() =>
            {
                self.obtain(candidate, &taken, (request, caller)).await
            }
            _ => candidates(&found, choice.is_some()),
        }
    }

    /// Tools of configured servers that probably meet the need.
    async fn here_already(&self, request: &ProvisionRequest) -> Vec<Hit> {
        let query = discover::DiscoverRequest {
            query: Some(request.intent.clone()),
            limit: SHOWN,
            ..discover::DiscoverRequest::default()
        };
        // Run for its side effect: it starts servers whose tools are unknown.
        drop(self.discover(query).await);
        let (snapshot, intent) = (self.surface.catalog.snapshot(), request.intent.clone());
        let searching = compute::run(move || {
            let hits = snapshot.index().search(&intent, Strategy::Hybrid, SHOWN, None);
            if meets(&intent, &hits) { hits } else { Vec::new() }
        });
        let hits = searching.await.unwrap_or_default();
        let fits = |hit: &Hit| hit.confidence.is_some_and(|chance| chance >= FITS);
        hits.into_iter().filter(fits).collect()
    }

    /// Plans, asks for approval, installs, and lists the tools.
    async fn obtain(
        &self,
        candidate: &Candidate,
        taken: &(dyn Fn(&str) -> bool + Sync),
        (request, caller): (&ProvisionRequest, &Caller),
    ) -> Finished {
        let provisioner = &self.surface.provisioner;
        // After an approval in a terminal it is installed already.
        if let Some(record) = provisioner.installed(candidate) {
            if let Some(entry) = self.server(&record.plan.server)
                && matches!(entry.config.state, ServerState::Withheld { .. })
                && let Err(withheld) = usable(&entry)
            {
                return Finished::error(&withheld);
            }
            if self.server(&record.plan.server).is_none() {
                provisioner.put_to_use(&record);
            }
            self.make_known(&record.plan.server).await;
            return self.installed(&record.plan);
        }
        let plan = match provisioner.plan(candidate, taken, true).await {
            Ok(plan) => plan,
            Err(error) => {
                let failed = ErrorObject::new(
                    Code::ExecutionFailed,
                    format!("no plan for {}: {error}", candidate.package()),
                );
                return Finished::error(&failed.hint("Nothing was installed and nothing was run."));
            }
        };
        if plan.is_refused() {
            provisioner.decided(&plan, Some(&caller.client.identity()), "refused");
            let text = candidates_text(std::slice::from_ref(&plan));
            let refused =
                ErrorObject::new(Code::Denied, format!("metamcp does not install this:\n{text}"));
            return Finished::error(&refused.hint("Nothing was installed and nothing was run."));
        }
        let context = request.context.as_deref();
        let consent = match self.consent(&plan, context, caller).await {
            Ok(consent) => consent,
            Err(finished) => return finished,
        };
        if let Err(error) = provisioner.install(&plan, &consent, taken).await {
            let failed = ErrorObject::new(
                Code::ExecutionFailed,
                format!("{} was not installed: {error}", plan.package()),
            );
            return Finished::error(
                &failed.hint("Nothing of it is left, and nothing of it was run."),
            );
        }
        tracing::info!("installed {} as {:?}", plan.package(), plan.server);
        self.make_known(&plan.server).await;
        self.installed(&plan)
    }

    /// A person's approval of this very plan: given in advance, in a terminal, or now.
    async fn consent(
        &self,
        plan: &Plan,
        context: Option<&str>,
        caller: &Caller,
    ) -> Result<Consent, Finished> {
        let provisioner = &self.surface.provisioner;
        if plan.verdict.granted
            && let Ok(consent) = plan.complete(&[])
        {
            self.decide(plan, None, "granted_before").await?;
            return Ok(consent);
        }
        match provisioner.store.use_yes(plan) {
            Ok(Some(consent)) => return Ok(consent),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("an approval was not used: {error}");
            }
        }
        let answer = match self.approves {
            true => ask(provisioner, plan, context, caller).await,
            // Not even asked: an approval that does not count would only mislead the person who gives it.
            false => ApprovalAnswer::NoAnswer(NO_APPROVER),
        };
        let identity = caller.client.identity();
        let why = match answer {
            ApprovalAnswer::Approved(values) => match plan.complete(&values) {
                Ok(consent) => {
                    self.decide(plan, Some(identity), "approved").await?;
                    provisioner.store.forget_pending(plan);
                    return Ok(consent);
                }
                Err(rejected) => return Err(Finished::error(&unusable(plan, &rejected))),
            },
            ApprovalAnswer::Declined => {
                provisioner.decided(plan, Some(&identity), "declined");
                provisioner.store.forget_pending(plan);
                let denied = ErrorObject::new(Code::Denied, "the user declined")
                    .hint("Nothing was installed. Do not request it again.");
                return Err(Finished::error(&denied));
            }
            ApprovalAnswer::NoAnswer(why) => why,
        };
        let id = provisioner.store.wait_for_yes(plan).map_err(|error| {
            let failed =
                ErrorObject::new(Code::Internal, format!("the plan cannot be stored: {error}"));
            Finished::error(&failed)
        })?;
        let text = format!(
            "Nothing was installed: a person has to approve it first, and {why}.\n{}\
             Ask the user to run `metamcp approve {id}` in a terminal, which installs it, then call mcp_provision again with the same arguments.",
            candidates_text(std::slice::from_ref(plan))
        );
        Err(respond("needs_approval", &text, json!({ "id": id, "server": plan.server })))
    }

    /// Records a decision before it is carried out, or says why it must not be.
    async fn decide(
        &self,
        plan: &Plan,
        by: Option<Arc<Identity>>,
        verdict: &'static str,
    ) -> Result<(), Finished> {
        let decided = plan.clone();
        let publish = move |observer: &Observer| {
            publish_decision(observer, &decided, by.as_deref(), verdict);
        };
        self.surface.router.decide(publish).await.map_err(|error| {
            let failed = ErrorObject::new(
                Code::AuditUnavailable,
                format!("{} was not installed: {error}", plan.package()),
            );
            Finished::error(&failed.hint("Nothing was installed and nothing was run."))
        })
    }

    /// Why a server that was started is unavailable, with its stderr.
    fn trouble(&self, entry: &Entry) -> Option<String> {
        let failure = self.surface.router.view(entry.id).and_then(|view| view.last_failure)?;
        let config = self
            .surface
            .router
            .entry(entry.id)
            .map_or_else(|| Arc::clone(&entry.config), |now| now.config);
        let why = format!("it {}", reply::describe(&failure, Some(&config)));
        Some(text::clean_line(&why, MAX_TROUBLE).into_owned())
    }

    fn installed(&self, plan: &Plan) -> Finished {
        let name = &plan.server;
        let Some(entry) = self.server(name) else {
            let lost = ErrorObject::new(
                Code::Internal,
                format!("the server {name:?} is installed but not in use"),
            );
            return Finished::error(&lost.hint("Restart metamcp."));
        };
        let snapshot = self.surface.catalog.snapshot();
        let against = entry.config.state.against();
        let hits: Vec<Hit> = match snapshot.known(entry.definition).filter(|_| against.is_none()) {
            Some(known) => Hit::all_of(&entry.name, &known.tools),
            None => {
                let why = against.map_or_else(
                    || {
                        let failure = snapshot.failure(entry.definition).map(ToString::to_string);
                        failure
                            .or_else(|| self.trouble(&entry))
                            .unwrap_or_else(|| UNLISTED.to_owned())
                    },
                    str::to_owned,
                );
                let package = plan.package();
                let text =
                    format!("Installed {package} as {name:?}, but its tools are not known: {why}.");
                return respond("installed", &text, json!({ "server": name, "tools": [] }));
            }
        };
        let mut text = format!(
            "Installed {} as {name:?}. Its tools are pinned as listed here, and can be called now with mcp_call:\n",
            plan.package()
        );
        text.push_str(&lines(&hits));
        text.push_str(&format!(
            "Show the user these descriptions; `metamcp provisioned show {name}` prints them too."
        ));
        respond("installed", &text, json!({ "server": name, "tools": ids(&hits) }))
    }
}

/// Asks the person behind the client to approve the plan, with an elicitation.
async fn ask(
    provisioner: &Provisioner,
    plan: &Plan,
    context: Option<&str>,
    caller: &Caller,
) -> ApprovalAnswer {
    if plan.asks_for_a_secret() {
        return ApprovalAnswer::NoAnswer("it needs a secret, which is given in a terminal only");
    }
    let Ok(_turn) = provisioner.asking.try_acquire() else {
        return ApprovalAnswer::NoAnswer("another approval is being asked for already");
    };
    let question = question(plan, context);
    let (elicitation, answer) = ServerRequest::of_gateway("elicitation/create", &question);
    if caller.client.ask(Some(&caller.request), elicitation).is_err() {
        return ApprovalAnswer::NoAnswer("this client cannot ask one");
    }
    let reply = match tokio::time::timeout(ANSWER_WITHIN, answer).await {
        Ok(Ok(Reply::Result(reply))) => reply,
        Ok(_) => return ApprovalAnswer::NoAnswer("the client did not show the question"),
        Err(_) => return ApprovalAnswer::NoAnswer("nobody answered"),
    };
    let Ok(reply) = object::strict_value(&reply, MAX_DEPTH) else {
        return ApprovalAnswer::NoAnswer("the client's answer cannot be read");
    };
    let content = reply.get("content");
    let agreed = content.and_then(|content| content.get("install")).and_then(Value::as_bool);
    match (reply.get("action").and_then(Value::as_str), agreed) {
        (Some("accept"), Some(true)) => {
            let value = |name: &String| {
                let value = content?.get(name)?.as_str()?.to_owned();
                Some((name.clone(), value))
            };
            let inputs = plan.asked.iter().filter(|input| !input.is_secret());
            ApprovalAnswer::Approved(inputs.filter_map(|input| value(&input.name)).collect())
        }
        (Some("accept" | "decline"), _) => ApprovalAnswer::Declined,
        _ => ApprovalAnswer::NoAnswer("the question was dismissed"),
    }
}

fn unusable(plan: &Plan, rejected: &Rejected) -> ErrorObject {
    ErrorObject::new(
        Code::ValidationInput,
        format!("{} was not installed: {rejected}", plan.identifier),
    )
    .hint("Nothing was run. Call again, and let the user enter the value.")
}

fn candidates(found: &Found, is_installable: bool) -> Finished {
    let plans: Vec<Plan> = found.plans.iter().map(|(_, plan)| plan.clone()).collect();
    let mut text = String::from("No tool here does that. These servers could be installed:\n");
    text.push_str(&candidates_text(&plans));
    text.push_str(if is_installable {
        "Call again with \"autoProvision\": true to ask the user about the first that is not refused. Nothing runs without their approval."
    } else {
        "None of them may be installed. Say what is needed in other words, or ask the user to configure a server."
    });
    text.push_str(&noted(&found.notes));
    let listed: Vec<Value> = plans.iter().map(plan_json).collect();
    respond("candidates", &text, json!({ "candidates": listed }))
}

fn plan_json(plan: &Plan) -> Value {
    let refusals: Vec<String> = plan.verdict.refusals.iter().map(ToString::to_string).collect();
    let variables: Vec<Value> = plan
        .environment
        .iter()
        .map(|input| json!({ "name": input.name, "required": input.required }))
        .collect();
    json!({
        "server": plan.server,
        "source": plan.kind.word(),
        "package": plan.identifier,
        "version": plan.version,
        "integrity": plan.integrity,
        "environment": variables,
        "contained": plan.contained,
        "verdict": plan.verdict.word(),
        "reasons": if refusals.is_empty() { plan.verdict.reasons.clone() } else { refusals },
    })
}

fn nothing(request: &ProvisionRequest, found: &Found) -> Finished {
    let text = format!(
        "Nothing was found for {:?}, neither here nor in the registries nor among well-known servers. \
         Say what is needed in other words, or ask the user to add a server to the configuration.{}",
        text::clean_line(&request.intent, 200),
        noted(&found.notes)
    );
    respond("nothing", &text, json!({}))
}

fn noted(notes: &[String]) -> String {
    let note = |note: &String| format!("\nNote: {}", text::clean_line(note, 600));
    notes.iter().map(note).collect()
}

fn local_text(hits: &[Hit]) -> String {
    format!(
        "Tools that are here already may do it, through mcp_call:\n{}If none of them does, call mcp_provision again with \"force\": true to look for a server.",
        lines(hits)
    )
}

fn lines(hits: &[Hit]) -> String {
    let line = |hit: &Hit| {
        let about = text::first_sentence(&hit.tool().description, 160);
        format!("{}:{}  {about}\n", hit.server, hit.tool().signature())
    };
    hits.iter().map(line).collect()
}

fn ids(hits: &[Hit]) -> Vec<String> {
    hits.iter().map(Hit::id).collect()
}

/// The answer as text, which says all of it. Programs find the parts in `_meta`, where no client shows them to a model a
/// second time.
fn respond(status: &str, text: &str, mut more: Value) -> Finished {
    more["status"] = json!(status);
    let result = json!({
        "content": [{ "type": "text", "text": text.trim_end() }],
        "_meta": { "metamcp/provision": more },
    });
    Finished::Result(result.to_string().into_bytes())
}
