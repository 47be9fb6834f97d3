//! mcp_provision: what is here already, else what could be had; and, if a person says yes, having it.

use std::sync::Arc;
use std::time::Duration;

use metamcp_config::config::ServerState;
use metamcp_provisioning::provision::{
    Candidate, Consent, LOCAL_FLOOR, Plan, ProvisionRequest, Rejected, candidates_text, question,
};
use metamcp_search::search::{Hit, Strategy};
use metamcp_surface::discover;
use metamcp_types::text;
use metamcp_wire::object;
use metamcp_wire::scan::MAX_DEPTH;
use serde_json::{Value, json};

use super::call::usable;
use super::reply::{self, Code, ErrorObject};
use super::{Finished, Step, View};
use crate::compute;
use crate::provision::{Found, Provisioner};
use crate::router::{Caller, Entry, ServerRequest};
use crate::upstream::Reply;

/// Tools shown of those that are here already.
const SHOWN: usize = 5;
/// Longest reason why a server that was installed does not work.
const MAX_TROUBLE: usize = 500;
/// Why its tools are not known, if nothing better can be said.
const UNLISTED: &str = "it did not list its tools";
/// Why a client over HTTP is not asked.
const NO_APPROVER: &str = "over HTTP the answer of this client is not taken for a person's (the owner names people in serve.approvers)";
/// How long a person may think.
const THINKS: Duration = Duration::from_mins(5);

/// What became of a question to a person.
enum ApprovalAnswer {
    Yes(Vec<(String, String)>),
    No,
    /// It could not be asked, or did not answer.
    Nothing(&'static str),
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
            Err(bad) => return Step::Now(Finished::invalid(bad.to_string())),
        };
        // Whoever is kept to a part of everything gets nothing that is not in it.
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
        let local = self.here_already(request).await;
        if !local.is_empty() {
            return told("local", &local_text(&local), json!({ "tools": ids(&local) }));
        }
        // Asked anew each time: while a person thinks, servers come and go.
        let taken = |name: &str| self.surface.router.servers().named(name).is_some();
        let found = self.surface.provisioner.find(&request.need(), &taken).await;
        if found.plans.is_empty() {
            return nothing(request, &found);
        }
        let choice = found.plans.iter().find(|(_, plan)| !plan.is_refused());
        match choice {
            Some((candidate, _))
                if request.wants_install
                    || self.surface.provisioner.installed(candidate).is_some() =>
            {
                self.have(candidate, &taken, caller).await
            }
            _ => candidates(&found, choice.is_some()),
        }
    }

    /// Tools of the servers there are that meet the need with some certainty.
    async fn here_already(&self, request: &ProvisionRequest) -> Vec<Hit> {
        let query = discover::DiscoverRequest {
            query: Some(request.intent.clone()),
            limit: SHOWN,
            ..discover::DiscoverRequest::default()
        };
        // Whatever it finds, it makes the servers known.
        drop(self.discover(query).await);
        let (snapshot, intent) = (self.surface.catalog.snapshot(), request.intent.clone());
        let searching =
            compute::run(move || snapshot.index().search(&intent, Strategy::Hybrid, SHOWN, None));
        let hits = searching.await.unwrap_or_default();
        let sure = |hit: &Hit, floor: f32| hit.confidence.is_some_and(|chance| chance >= floor);
        if !hits.first().is_some_and(|first| sure(first, LOCAL_FLOOR)) {
            return Vec::new();
        }
        hits.into_iter().filter(|hit| sure(hit, metamcp_search::search::FITS)).collect()
    }

    /// Plans, asks, installs, and makes the tools known.
    async fn have(
        &self,
        candidate: &Candidate,
        taken: &(dyn Fn(&str) -> bool + Sync),
        caller: &Caller,
    ) -> Finished {
        let provisioner = &self.surface.provisioner;
        // After a yes in a terminal it is there already.
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
            let text = candidates_text(std::slice::from_ref(&plan));
            let refused =
                ErrorObject::new(Code::Denied, format!("metamcp does not install this:\n{text}"));
            return Finished::error(&refused.hint("Nothing was installed and nothing was run."));
        }
        let consent = match self.consent(&plan, caller).await {
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
        let what = format!("installed {} as {:?}", plan.package(), plan.server);
        tracing::info!("{what}");
        self.make_known(&plan.server).await;
        self.installed(&plan)
    }

    /// A person's yes to this very plan: given in advance, in a terminal, or now.
    async fn consent(&self, plan: &Plan, caller: &Caller) -> Result<Consent, Finished> {
        let provisioner = &self.surface.provisioner;
        if plan.verdict.granted
            && let Ok(consent) = plan.complete(&[])
        {
            return Ok(consent);
        }
        match provisioner.store.use_yes(plan) {
            Ok(Some(consent)) => return Ok(consent),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!("a yes was not used: {error}");
            }
        }
        let said = match self.approves {
            true => ask(provisioner, plan, caller).await,
            // Not even asked: a yes that does not count would only mislead who gives it.
            false => ApprovalAnswer::Nothing(NO_APPROVER),
        };
        let why = match said {
            ApprovalAnswer::Yes(values) => match plan.complete(&values) {
                Ok(consent) => {
                    provisioner.store.forget_pending(plan);
                    return Ok(consent);
                }
                Err(rejected) => return Err(Finished::error(&unusable(plan, &rejected))),
            },
            ApprovalAnswer::No => {
                provisioner.store.forget_pending(plan);
                let denied = ErrorObject::new(Code::Denied, "the user said no")
                    .hint("Nothing was installed. Do not ask for it again.");
                return Err(Finished::error(&denied));
            }
            ApprovalAnswer::Nothing(why) => why,
        };
        let id = provisioner.store.wait_for_yes(plan).map_err(|error| {
            let failed =
                ErrorObject::new(Code::Internal, format!("the plan cannot be kept: {error}"));
            Finished::error(&failed)
        })?;
        let text = format!(
            "Nothing was installed: a person has to agree first, and {why}.\n{}\
             Ask the user to run `metamcp approve {id}` in a terminal, which installs it, then call mcp_provision again with the same arguments.",
            candidates_text(std::slice::from_ref(plan))
        );
        Err(told("needs_approval", &text, json!({ "id": id, "server": plan.server })))
    }

    /// Why a server that was started is not there, with the last thing it said.
    fn trouble(&self, entry: &Entry) -> Option<String> {
        let failure = self.surface.router.view(entry.id).and_then(|view| view.last_failure)?;
        let config = self
            .surface
            .router
            .entry(entry.id)
            .map_or_else(|| Arc::clone(&entry.config), |now| now.config);
        let told = format!("it {}", reply::told(&failure, Some(&config)));
        Some(text::clean_line(&told, MAX_TROUBLE).into_owned())
    }

    fn installed(&self, plan: &Plan) -> Finished {
        let name = &plan.server;
        let Some(entry) = self.server(name) else {
            let lost = ErrorObject::new(
                Code::Internal,
                format!("the server {name:?} is installed but not in use"),
            );
            return Finished::error(&lost.hint("Start metamcp again."));
        };
        let snapshot = self.surface.catalog.snapshot();
        let against = entry.config.state.against();
        let hits: Vec<Hit> = match snapshot.known(entry.id).filter(|_| against.is_none()) {
            Some(known) => Hit::all_of(&entry.name, &known.tools),
            None => {
                let why = against.map_or_else(
                    || {
                        let failure = snapshot.failure(entry.id).map(ToString::to_string);
                        failure
                            .or_else(|| self.trouble(&entry))
                            .unwrap_or_else(|| UNLISTED.to_owned())
                    },
                    str::to_owned,
                );
                let package = plan.package();
                let text =
                    format!("Installed {package} as {name:?}, but its tools are not known: {why}.");
                return told("installed", &text, json!({ "server": name, "tools": [] }));
            }
        };
        let mut text = format!(
            "Installed {} as {name:?}. Its tools are pinned as they are here, and can be called now with mcp_call:\n",
            plan.package()
        );
        text.push_str(&lines(&hits));
        text.push_str(&format!(
            "Show the user what these tools say of themselves; `metamcp provisioned show {name}` does too."
        ));
        told("installed", &text, json!({ "server": name, "tools": ids(&hits) }))
    }
}

/// Puts the plan to the person behind the client.
async fn ask(provisioner: &Provisioner, plan: &Plan, caller: &Caller) -> ApprovalAnswer {
    if plan.asks_for_a_secret() {
        return ApprovalAnswer::Nothing("it needs a secret, which is given in a terminal only");
    }
    let Ok(_turn) = provisioner.asking.try_acquire() else {
        return ApprovalAnswer::Nothing("another question is open already");
    };
    let (asked, answer) = ServerRequest::of_gateway("elicitation/create", &question(plan));
    if caller.client.ask(Some(&caller.request), asked).is_err() {
        return ApprovalAnswer::Nothing("this client cannot ask one");
    }
    let reply = match tokio::time::timeout(THINKS, answer).await {
        Ok(Ok(Reply::Result(reply))) => reply,
        Ok(_) => return ApprovalAnswer::Nothing("the client did not put the question"),
        Err(_) => return ApprovalAnswer::Nothing("nobody answered"),
    };
    let Ok(reply) = object::strict_value(&reply, MAX_DEPTH) else {
        return ApprovalAnswer::Nothing("the client's answer cannot be read");
    };
    let content = reply.get("content");
    let agreed = content.and_then(|content| content.get("install")).and_then(Value::as_bool);
    match (reply.get("action").and_then(Value::as_str), agreed) {
        (Some("accept"), Some(true)) => {
            let value = |name: &String| {
                let value = content?.get(name)?.as_str()?.to_owned();
                Some((name.clone(), value))
            };
            let asked = plan.asked.iter().filter(|input| !input.is_secret());
            ApprovalAnswer::Yes(asked.filter_map(|input| value(&input.name)).collect())
        }
        (Some("accept" | "decline"), _) => ApprovalAnswer::No,
        _ => ApprovalAnswer::Nothing("the question was put aside"),
    }
}

fn unusable(plan: &Plan, rejected: &Rejected) -> ErrorObject {
    ErrorObject::new(
        Code::ValidationInput,
        format!("{} was not installed: {rejected}", plan.identifier),
    )
    .hint("Nothing was run. Ask again, and let the user give the value.")
}

fn candidates(found: &Found, may_be_had: bool) -> Finished {
    let plans: Vec<Plan> = found.plans.iter().map(|(_, plan)| plan.clone()).collect();
    let mut text = String::from("No tool here does that. These servers could be installed:\n");
    text.push_str(&candidates_text(&plans));
    text.push_str(if may_be_had {
        "Call again with \"autoProvision\": true to ask the user for the first that is not refused. Nothing runs without their yes."
    } else {
        "None of them may be installed. Say what is needed in other words, or ask the user to configure a server."
    });
    text.push_str(&noted(&found.notes));
    let listed: Vec<Value> = plans.iter().map(plan_json).collect();
    told("candidates", &text, json!({ "candidates": listed }))
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
    told("nothing", &text, json!({}))
}

fn noted(notes: &[String]) -> String {
    let note = |note: &String| format!("\nNote: {}", text::clean_line(note, 600));
    notes.iter().map(note).collect()
}

fn local_text(hits: &[Hit]) -> String {
    format!(
        "Nothing needs to be installed; these tools are here, to be called with mcp_call:\n{}",
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

fn told(status: &str, text: &str, mut more: Value) -> Finished {
    more["status"] = json!(status);
    let result = json!({
        "content": [{ "type": "text", "text": text.trim_end() }],
        "structuredContent": more,
    });
    Finished::Result(result.to_string().into_bytes())
}
