//! Follows the roots of a client: servers that work in a project are shared with those who have the same ones.
//! Owns: when the client is asked: a local one at once, one over HTTP on the stream of a call that depends on it.      Never: passes roots to a server (the router relays those requests).
//! In: a session whose client has roots.  Out: their digest, in its seat.
//! Tests: below, `metamcp/tests/daemon/`.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_types::web::file_path;
use metamcp_wire::object;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Session;
use crate::router::{Client as _, Seat, ServerRequest};
use crate::upstream::Reply;

/// How long the client may take: it answers by itself, without a person.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// Asks once the client is initialized, and whenever its roots changed. `knows` becomes true when it has answered for the
/// first time, or will not.
pub(super) async fn follow(session: Arc<Session>, seat: Arc<Seat>, knows: watch::Sender<bool>) {
    let mut steps = session.steps();
    if steps.wait_for(|steps| *steps > 0).await.is_err() {
        return;
    }
    if !session.peer().is_some_and(|peer| peer.can("roots")) {
        return;
    }
    loop {
        steps.mark_unchanged();
        if !ask(&session, &seat, None).await {
            return;
        }
        knows.send_replace(true);
        if steps.changed().await.is_err() {
            return;
        }
    }
}

/// Asks the client, on the stream of this request of its own if one is given. False if it cannot be asked.
pub(super) async fn ask(session: &Session, seat: &Seat, request: Option<&Bytes>) -> bool {
    let (question, answer) = ServerRequest::of_gateway("roots/list", &json!({}));
    if session.ask(request, question).is_err() {
        return false;
    }
    if let Ok(Ok(Reply::Result(result))) = tokio::time::timeout(ANSWER_WITHIN, answer).await {
        let folder = seat.context().surroundings.folder.clone();
        seat.set_roots(digest(&result, folder.as_deref()));
    }
    true
}

/// What tells one set of roots from another; nothing where they are just the folder of the client.
fn digest(result: &[u8], folder: Option<&Path>) -> Option<u64> {
    let [roots] = object::pick(result, ["roots"]).ok()?;
    let roots: Vec<Value> = serde_json::from_slice(roots?).ok()?;
    let mut uris: Vec<&str> = roots.iter().filter_map(|root| root["uri"].as_str()).collect();
    uris.sort_unstable();
    uris.dedup();
    match (uris.as_slice(), folder) {
        ([], _) => None,
        ([only], Some(folder)) if file_path(only).as_deref() == Some(folder) => None,
        _ => {
            let mut hasher = DefaultHasher::new();
            uris.hash(&mut hasher);
            Some(hasher.finish())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(uris: &[&str]) -> Option<u64> {
        let roots: Vec<Value> = uris.iter().map(|uri| json!({ "uri": uri })).collect();
        digest(json!({ "roots": roots }).to_string().as_bytes(), Some(Path::new("/work/a b")))
    }

    #[test]
    fn the_clients_own_folder_is_no_difference_and_the_order_is_none() {
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["file:///work/a%20b"]), None);
        assert_eq!(of(&["file:///work/a%20b/"]), None);
        assert!(of(&["file:///work/c"]).is_some());
        assert_eq!(of(&["file:///c", "file:///d"]), of(&["file:///d", "file:///c", "file:///d"]));
        assert_ne!(of(&["file:///c"]), of(&["file:///d"]));
        assert_eq!(digest(b"nothing", None), None);
    }
}
