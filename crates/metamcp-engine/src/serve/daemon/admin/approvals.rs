//! Requests about what waits for a person: installations, project files, changed tools, calls. What is approved is named by the
//! hash of what was shown, so that nothing is approved that nobody saw.

use std::collections::HashMap;
use std::sync::Arc;

use metamcp_provisioning::provision::{self, Contained, Input, Plan};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::AdminError;
use super::contextual::{Asking, text_of};
use crate::approvals::{ApprovalError, ApprovalStore, AskedCall, Span, StoredAnswer};
use crate::config::{Project, ProjectTrust};
use crate::observe::{Action, Event, Observer, Subject};
use crate::provision::{Record, Store, publish_decision};
use crate::router::Unrecorded;

/// Everything that waits, and the project files that were declined.
pub(super) async fn list(asking: &Asking) -> Result<Value, AdminError> {
    let home = asking.settings().home.clone();
    let read = move || {
        let calls = ApprovalStore::new(&home);
        let granted = calls.answers().map_err(|error| error.to_string());
        (Store::new(&home).pending(), Store::new(&home).records(), calls.asked(), granted)
    };
    let (pending, records, calls, granted) = tokio::task::spawn_blocking(read)
        .await
        .map_err(|_| AdminError::failed("the plans cannot be read"))?;
    let plans = pending.iter().map(|(id, pending)| plan(id, &pending.plan, pending.since));
    let changed = records.iter().filter(|one| !one.blocked.is_empty() || one.quarantine.is_some());
    Ok(json!({
        "mayApprove": asking.opener.is_person,
        "plans": plans.collect::<Vec<_>>(),
        "projects": projects(asking).iter().map(|one| project(one)).collect::<Vec<_>>(),
        "changes": changed.map(change).collect::<Vec<_>>(),
        "calls": calls.iter().map(call).collect::<Vec<_>>(),
        "granted": granted.iter().flatten().map(answer).collect::<Vec<_>>(),
        "grantedError": granted.as_ref().err(),
    }))
}

/// How much of it waits for a decision.
pub(super) async fn waiting(asking: &Asking) -> Result<usize, AdminError> {
    let told = list(asking).await?;
    let count = |name: &str| told[name].as_array().map_or(0, Vec::len);
    let declined = told["projects"].as_array().into_iter().flatten();
    let declined = declined.filter(|one| one["state"] == "declined").count();
    let all = ["plans", "projects", "changes", "calls"];
    Ok(all.into_iter().map(count).sum::<usize>() - declined)
}

fn plan(id: &str, plan: &Plan, since: u64) -> Value {
    let input = |input: &Input| {
        json!({
            "name": input.name, "description": input.description, "required": input.required,
            "secret": input.is_secret(), "default": input.default,
        })
    };
    let contained = match &plan.contained {
        Contained::Sandbox => "a sandbox: its own folder only".to_owned(),
        Contained::Container => "a container".to_owned(),
        Contained::Elsewhere => "another machine".to_owned(),
        Contained::Nothing { why } => format!("nothing: {why}"),
    };
    json!({
        "id": id,
        "digest": plan.digest(),
        "server": plan.server,
        "package": plan.package(),
        "description": plan.description,
        "told": provision::told(plan),
        "contained": contained,
        "refused": plan.is_refused(),
        "since": since,
        "asked": plan.asked.iter().map(input).collect::<Vec<_>>(),
        "environment": plan.environment.iter().map(input).collect::<Vec<_>>(),
    })
}

/// The project files of all contexts that somebody may want to decide about.
fn projects(asking: &Asking) -> Vec<Arc<Project>> {
    let mut all: HashMap<_, Arc<Project>> = HashMap::new();
    for context in asking.daemon.contexts.all() {
        let now = context.gateway.view.surface.project.borrow().clone();
        let now = now.or_else(|| context.loaded().project.clone().map(Arc::new));
        if let Some(project) = now
            && matches!(project.trust, ProjectTrust::Waiting { .. } | ProjectTrust::Declined)
        {
            all.insert((project.path.clone(), project.sha256.clone()), project);
        }
    }
    let mut all: Vec<_> = all.into_values().collect();
    all.sort_by(|one, other| one.path.cmp(&other.path));
    all
}

fn project(project: &Project) -> Value {
    json!({
        "file": project.path,
        "link": project.link,
        "sha256": project.sha256,
        "state": match project.trust {
            ProjectTrust::Waiting { changed: true } => "changed",
            ProjectTrust::Waiting { changed: false } => "waiting",
            _ => "declined",
        },
        "told": project.preview.told(),
        "cut": project.preview.is_cut,
    })
}

fn change(record: &Record) -> Value {
    let tools = record.blocked.iter().map(|(name, tool)| {
        json!({ "name": name, "isNew": tool.is_new, "signature": tool.signature, "description": tool.description })
    });
    json!({
        "server": record.plan.server,
        "package": record.plan.package(),
        "withheld": record.quarantine,
        "tools": tools.collect::<Vec<_>>(),
        "digest": digest(record),
    })
}

fn call(call: &AskedCall) -> Value {
    json!({
        "id": call.id(),
        "server": call.server,
        "tool": call.tool,
        "told": call.told(),
        "since": call.since,
    })
}

fn answer(answer: &StoredAnswer) -> Value {
    json!({
        "id": answer.id(),
        "server": answer.server,
        "tool": answer.tool,
        "about": answer.about,
        "anyArguments": answer.digest.is_none(),
        "approved": answer.approved,
        "once": answer.once,
        "until": answer.until,
    })
}

/// Covers what of a record is shown for acceptance.
fn digest(record: &Record) -> String {
    let shown = (&record.plan.server, &record.blocked, &record.quarantine);
    // Text and lists of it, which can always be written.
    let hash = Sha256::digest(serde_json::to_vec(&shown).unwrap_or_default());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Approves a plan as it was shown, and installs it.
pub(super) async fn approve(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    by_a_person(asking)?;
    let shown = pending(asking, params)?;
    let values: Vec<(String, String)> = match params.get("values") {
        None => Vec::new(),
        Some(values) => serde_json::from_value::<HashMap<String, String>>(values.clone())
            .map_err(|_| AdminError::wanted("values"))?
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .collect(),
    };
    let refused = |error: &dyn std::fmt::Display| AdminError::refused(error.to_string());
    let has =
        |name: &str| asking.opener.client.variables.get(name).is_some_and(|one| !one.is_empty());
    let lacks: Vec<String> =
        shown.missing(&values, &has).into_iter().map(|input| input.name.clone()).collect();
    if !lacks.is_empty() {
        return Err(AdminError::refused(format!("still missing: {}", lacks.join(", "))));
    }
    // Checked before anything is stored.
    shown.complete(&values).map_err(|error| refused(&error))?;
    let gateway = asking.gateway();
    let provisioner = &gateway.view.surface.provisioner;
    decide_on(asking, &shown, "approved").await?;
    let values = provisioner.put_away(&shown, values).await.map_err(|error| refused(&error))?;
    provisioner.store.agree(&shown, values).map_err(|error| refused(&error))?;
    let consent = provisioner.store.use_yes(&shown).map_err(|error| refused(&error))?;
    let Some(consent) = consent else {
        // The model repeated its request just now, and its gateway used the approval.
        return Ok(json!({ "server": shown.server, "installed": true }));
    };
    let taken = |name: &str| gateway.context.member(name).is_some();
    provisioner.install(&shown, &consent, &taken).await.map_err(|error| {
        AdminError::failed(format!("{} was not installed: {error}", shown.package()))
    })?;
    tracing::info!("installed {} as {:?}, approved on the page", shown.package(), shown.server);
    let view = gateway.session_view();
    view.make_known(&shown.server).await;
    Ok(json!({ "server": shown.server, "installed": true }))
}

/// The plan is dropped; a model may ask again.
pub(super) async fn deny(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let shown = pending(asking, params)?;
    decide_on(asking, &shown, "declined").await?;
    asking.gateway().view.surface.provisioner.store.forget_pending(&shown);
    Ok(json!({ "server": shown.server, "denied": true }))
}

/// Records a decision on a plan before it is carried out, or says why it must not be.
async fn decide_on(asking: &Asking, plan: &Plan, verdict: &'static str) -> Result<(), AdminError> {
    let plan = plan.clone();
    let publish = move |observer: &Observer| publish_decision(observer, &plan, None, verdict);
    asking.daemon.machine.router.decide(publish).await.map_err(|error| unrecorded(&error))
}

fn unrecorded(error: &Unrecorded) -> AdminError {
    AdminError::refused(error.to_string()).hint(
        "make room on the disk or mend the folder of the log; `metamcp status` shows how it is",
    )
}

fn pending(asking: &Asking, params: &Value) -> Result<Plan, AdminError> {
    let digest = text_of(params, "digest").ok_or_else(|| AdminError::wanted("digest"))?;
    let all = Store::new(&asking.settings().home).pending();
    let found =
        all.into_iter().map(|(_, pending)| pending.plan).find(|plan| plan.digest() == digest);
    found.ok_or_else(|| {
        AdminError::missing("this plan is no longer pending: it was used, replaced, or has expired")
    })
}

/// Approves a project's file, or declines it, as it was shown.
pub(super) async fn trust(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let approves = params["approve"] == true;
    if approves {
        by_a_person(asking)?;
    }
    let file = text_of(params, "file").ok_or_else(|| AdminError::wanted("file"))?;
    let sha256 = text_of(params, "sha256").ok_or_else(|| AdminError::wanted("sha256"))?;
    let is_it = |one: &Arc<Project>| one.path.to_str() == Some(file) && one.sha256 == sha256;
    let project = projects(asking).into_iter().find(is_it).ok_or_else(|| {
        AdminError::missing(
            "this file changed since it was shown, or was decided about; look at it again",
        )
    })?;
    let verdict = if approves { "approved" } else { "declined" };
    let decided = (file.to_owned(), sha256.to_owned());
    let publish = move |observer: &Observer| {
        let (file, sha256) = (&*decided.0, &*decided.1);
        observer.publish(&Event::Action(Action::new(Subject::Trust { file, sha256 }, verdict)));
    };
    asking.daemon.machine.router.decide(publish).await.map_err(|error| unrecorded(&error))?;
    let decide = move || if approves { project.approve() } else { project.decline() };
    tokio::task::spawn_blocking(decide)
        .await
        .map_err(|_| AdminError::failed("the decision was not saved"))?
        .map_err(|error| AdminError::failed(format!("the decision was not saved: {error}")))?;
    Ok(json!({ "file": file, "trusted": approves }))
}

/// Accepts the changed tools of an installed server, or its withdrawal, as they were shown.
pub(super) async fn accept(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    by_a_person(asking)?;
    let wanted = text_of(params, "digest").ok_or_else(|| AdminError::wanted("digest"))?;
    let store = Store::new(&asking.settings().home);
    let shown = store.records().into_iter().find(|record| digest(record) == wanted);
    let shown = shown.ok_or_else(|| {
        AdminError::missing("this changed since it was shown, or was accepted; look at it again")
    })?;
    decide_on(asking, &shown.plan, "accepted").await?;
    let record = store.accept(&shown).map_err(|error| AdminError::refused(error.to_string()))?;
    Ok(json!({ "server": record.plan.server, "accepted": true }))
}

/// Answers a call as it was shown: it may run, or it may not. Its id covers server, tool and arguments.
pub(super) async fn answer_call(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let approved = params["approve"] == true;
    if approved {
        by_a_person(asking)?;
    }
    let id = text_of(params, "id").ok_or_else(|| AdminError::wanted("id"))?;
    let span = match text_of(params, "for").unwrap_or("once") {
        "once" => Span::Once,
        "hour" => Span::Millis(60 * 60 * 1000),
        "always" => Span::Always,
        _ => return Err(AdminError::wanted("for")),
    };
    let any_arguments = params["anyArguments"] == true;
    if any_arguments && span == Span::Once {
        return Err(AdminError::wanted("for"));
    }
    let store = ApprovalStore::new(&asking.settings().home);
    let call = store.asked().into_iter().find(|call| call.id() == id).ok_or_else(|| {
        AdminError::missing("this call no longer waits: it was answered, or is older than an hour")
    })?;
    let arguments = if any_arguments { "*".to_owned() } else { call.digest.clone() };
    let verdict = if approved { "approved" } else { "declined" };
    decide_on_calls(asking, &call.server, &call.tool, arguments, verdict).await?;
    let told = json!({ "server": call.server, "tool": call.tool, "approved": approved });
    stored(move || store.answer(&call, approved, span, any_arguments)).await?;
    Ok(told)
}

/// Revokes a stored answer.
pub(super) async fn revoke(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let id = text_of(params, "id").ok_or_else(|| AdminError::wanted("id"))?.to_owned();
    let store = ApprovalStore::new(&asking.settings().home);
    let known = store.answers().map_err(|error| AdminError::failed(error.to_string()))?;
    let known = known.into_iter().find(|answer| answer.id() == id);
    let known = known.ok_or_else(|| AdminError::missing("this approval counts no longer"))?;
    let arguments = known.digest.clone().unwrap_or_else(|| "*".to_owned());
    decide_on_calls(asking, &known.server, &known.tool, arguments, "revoked").await?;
    stored(move || store.revoke(Some(&id))).await?;
    Ok(json!({ "server": known.server, "tool": known.tool, "revoked": true }))
}

async fn stored<T: Send + 'static>(
    change: impl FnOnce() -> Result<T, ApprovalError> + Send + 'static,
) -> Result<T, AdminError> {
    tokio::task::spawn_blocking(change)
        .await
        .map_err(|_| AdminError::failed("the answer was not stored"))?
        .map_err(|error| AdminError::failed(format!("the answer was not stored: {error}")))
}

/// Records a decision on calls before it is carried out, or says why it must not be.
async fn decide_on_calls(
    asking: &Asking,
    server: &str,
    tool: &str,
    arguments: String,
    verdict: &'static str,
) -> Result<(), AdminError> {
    let (server, tool) = (server.to_owned(), tool.to_owned());
    let publish = move |observer: &Observer| {
        let subject = Subject::Call { server: &server, tool: &tool, arguments: &arguments };
        observer.publish(&Event::Action(Action::new(subject, verdict)));
    };
    asking.daemon.machine.router.decide(publish).await.map_err(|error| unrecorded(&error))
}

/// What a program can type, a model can make a program type: only a link that was asked for at a terminal approves.
fn by_a_person(asking: &Asking) -> Result<(), AdminError> {
    if asking.opener.is_person {
        return Ok(());
    }
    let words = "this page was opened by a program, so it cannot approve anything";
    Err(AdminError::refused(words).hint("run `metamcp ui` in a terminal, and approve on that page"))
}
