//! What an operator does to a server that runs: starts it anew.

use std::sync::Arc;

use metamcp_calls::pool::ServerId;
use metamcp_types::text;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AdminError, Answer, MAX_QUOTED};
use crate::serve::daemon::Daemon;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Restart {
    server: String,
}

/// Lets all instances of a server finish their calls and end; the next call starts it anew.
pub(super) fn restart(daemon: &Arc<Daemon>, params: &Restart) -> Answer {
    let router = &daemon.machine.router;
    let of_server: Vec<(ServerId, Option<u32>)> = router
        .instances()
        .into_iter()
        .filter(|(_, one)| *one.definition.name == *params.server)
        .map(|(id, _)| (id, router.pid_of(id)))
        .collect();
    if of_server.is_empty() {
        return Err(unused(&params.server));
    }
    let ids: Vec<ServerId> = of_server.iter().map(|(id, _)| *id).collect();
    let was_running = |id: &ServerId| router.view(*id).is_some_and(|view| view.state.is_some());
    let running: Vec<ServerId> = ids.iter().filter(|id| was_running(id)).copied().collect();
    let restarted = router.restart(&ids);
    let instances: Vec<Value> = of_server
        .iter()
        .filter(|(id, _)| restarted.contains(id))
        .map(|(id, pid)| {
            json!({ "instance": id.0.to_string(), "pid": pid, "wasRunning": running.contains(id) })
        })
        .collect();
    tracing::info!(server = %params.server, instances = instances.len(), "restarted by an operator");
    Ok(json!({ "server": params.server, "instances": instances }))
}

/// No client has the server in its configuration, so the daemon has nothing of it.
pub(super) fn unused(server: &str) -> AdminError {
    let server = text::clean_line(server, MAX_QUOTED);
    AdminError::not_found(format!("no client of the daemon uses a server {server:?}"))
        .hint("`metamcp list` lists the servers, `metamcp status` those in use")
}
