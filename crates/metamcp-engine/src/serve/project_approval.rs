//! Asks the person behind a local client whether a project's file may be used.
//! Owns: that a client is asked once about one content, what its answer means.      Never: asks over a network, shows only a part of the preview.
//! In: the current project file.  Out: a decision in the `TrustStore`, which `reload` follows.
//! Tests: `metamcp/tests/config/trust.rs`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use metamcp_wire::object;
use metamcp_wire::scan::MAX_DEPTH;
use serde_json::Value;

use super::Session;
use crate::config::Project;
use crate::observe::{Action, Event, Observer, Subject};
use crate::router::{Client as _, ServerRequest};
use crate::surface::View;
use crate::upstream::Reply;

/// How long a person may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_mins(10);

/// Asks while the client is connected, each time the file has a content without a decision.
pub(super) async fn follow(session: Arc<Session>, view: View) {
    session.introduced().await;
    let can_ask = session.peer().is_some_and(|peer| peer.can("elicitation"));
    // A session restricted to a toolset decides nothing about the whole configuration.
    if !can_ask || view.scope.is_some() {
        return;
    }
    let mut files = view.surface.project.subscribe();
    let mut asked = HashSet::new();
    loop {
        let now = files.borrow_and_update().clone();
        if let Some(project) = now.filter(|project| project.is_waiting())
            && asked.insert((project.path.clone(), project.sha256.clone()))
        {
            ask(&session, &view, &project).await;
        }
        if files.changed().await.is_err() {
            return;
        }
    }
}

async fn ask(session: &Arc<Session>, view: &View, project: &Project) {
    let mut preview = project.preview.clone();
    preview.replaces(|name| view.context().member(name).map(|known| known.config().origin));
    let path = metamcp_types::text::spelt(&project.path.to_string_lossy(), LONGEST_PATH);
    let Some(question) = preview.question(&path) else { return };
    let (elicitation, answer) = ServerRequest::of_gateway("elicitation/create", &question);
    if session.ask(None, elicitation).is_err() {
        return;
    }
    let answer = tokio::time::timeout(ANSWER_WITHIN, answer).await;
    let Ok(Ok(Reply::Result(reply))) = answer else { return };
    let Ok(reply) = object::strict_value(&reply, MAX_DEPTH) else { return };
    let Some(is_trusted) = decision(&reply) else { return };
    let verdict = if is_trusted { "approved" } else { "declined" };
    let (identity, decided) = (session.identity(), project.clone());
    let publish = move |observer: &Observer| {
        let (file, sha256) = (decided.path.to_string_lossy(), decided.sha256.as_str());
        let action = Action::new(Subject::Trust { file: &file, sha256 }, verdict).by(&identity);
        observer.publish(&Event::Action(action));
    };
    if let Err(error) = view.surface.router.decide(publish).await {
        return tracing::error!("the decision on {path} was not carried out: {error}");
    }
    let project = project.clone();
    let decide = move || if is_trusted { project.approve() } else { project.decline() };
    // Off the runtime's threads: the disk may be slow.
    if let Ok(Err(error)) = tokio::task::spawn_blocking(decide).await {
        tracing::error!("the decision was not saved: {error}");
    }
}

/// Longest path in a question.
const LONGEST_PATH: usize = 500;

/// Approved, declined, or `None`: a dismissed question is no decision.
fn decision(reply: &Value) -> Option<bool> {
    let agreed = reply.get("content").and_then(|content| content.get("trust")?.as_bool());
    match reply.get("action").and_then(Value::as_str)? {
        "accept" => Some(agreed == Some(true)),
        "decline" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::decision;

    #[test]
    fn only_an_accepted_trust_is_an_approval() {
        for (reply, expect) in [
            (json!({ "action": "accept", "content": { "trust": true } }), Some(true)),
            (json!({ "action": "accept", "content": { "trust": false } }), Some(false)),
            (json!({ "action": "accept", "content": { "trust": "true" } }), Some(false)),
            (json!({ "action": "accept", "content": {} }), Some(false)),
            (json!({ "action": "accept" }), Some(false)),
            (json!({ "action": "decline", "content": { "trust": true } }), Some(false)),
            (json!({ "action": "cancel", "content": { "trust": true } }), None),
            (json!({ "content": { "trust": true } }), None),
            (json!([]), None),
        ] {
            assert_eq!(decision(&reply), expect, "{reply}");
        }
    }
}
