//! Requests about the gallery: its servers, which of them answer a need, and what installing one would do. Nobody is asked
//! for it and nothing is installed: that begins in a terminal, or with a model's request.

use metamcp_provisioning::provision::{self, Candidate, Listed, Plan, described, gallery, told};
use serde_json::{Value, json};

use super::AdminError;
use super::contextual::{Asking, text_of};
use crate::clock::unix_millis;

/// All servers, with the most needed of each; with a `need`, those that answer it, as `mcp_provision` would.
pub(super) async fn list(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let provisioner = &asking.gateway().view.surface.provisioner;
    if let Some(need) = text_of(params, "need") {
        let taken = |name: &str| asking.gateway().context.member(name).is_some();
        let found = provisioner.find_in_gallery(need, &taken).await;
        let found: Vec<Value> = found.iter().map(|(one, plan)| full(one, plan)).collect();
        return Ok(json!({ "need": need, "servers": found }));
    }
    let servers: Vec<Value> = gallery().iter().map(brief).collect();
    Ok(json!({ "servers": servers }))
}

/// One server, with the plan that installing it would begin with.
pub(super) fn one(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let name = text_of(params, "name").ok_or_else(|| AdminError::wanted("name"))?;
    let listed = gallery().iter().find(|one| one.name() == name);
    let listed =
        listed.ok_or_else(|| AdminError::missing("no server of the gallery has that name"))?;
    let gateway = asking.gateway();
    let taken = |name: &str| gateway.context.member(name).is_some();
    let plan = gateway.view.surface.provisioner.listed_plan(listed, &taken);
    let (candidate, plan) =
        plan.ok_or_else(|| AdminError::missing("this server was not checked yet"))?;
    let installed = gateway.view.surface.provisioner.installed(&candidate);
    let mut shown = full(&candidate, &plan);
    shown["installed"] = json!(installed.map(|record| record.plan.server));
    Ok(shown)
}

fn brief(listed: &Listed) -> Value {
    let Listed { candidate, group, checked, .. } = listed;
    json!({
        "name": listed.name(),
        "group": group,
        "about": candidate.description,
        "package": candidate.package(),
        "tools": checked.as_ref().map(|checked| checked.tools),
        "needs": candidate.offer.environment.iter().any(|input| input.required),
    })
}

fn full(candidate: &Candidate, plan: &Plan) -> Value {
    let mut shown = described(plan, unix_millis());
    let listed = provision::listed(candidate);
    let name = listed.map_or_else(|| candidate.name.clone(), Listed::name);
    shown["add"] = json!(format!("metamcp add {name}"));
    shown["name"] = json!(name);
    shown["group"] = json!(listed.map(|listed| &listed.group));
    shown["told"] = json!(told(plan));
    shown["refused"] = json!(plan.is_refused());
    shown
}
