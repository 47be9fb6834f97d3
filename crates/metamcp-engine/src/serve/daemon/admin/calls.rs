//! Calls, scripts, events and what servers write to stderr: the newest, and everything after a number.

use std::sync::Arc;
use std::time::Duration;

use metamcp_types::secret::redact;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{AdminError, Answer};
use crate::history::{Filter, Page};
use crate::serve::daemon::Daemon;

/// Rows of an answer, unless it is said, and at most.
const ROWS: usize = 100;
const MAX_ROWS: usize = 1_000;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Calls {
    after: u64,
    most: Option<usize>,
    server: Option<String>,
    tool: Option<String>,
    session: Option<u64>,
    script: Option<u64>,
    failed: bool,
    slower_than_ms: Option<u64>,
}

fn rows(most: Option<usize>) -> usize {
    most.unwrap_or(ROWS).min(MAX_ROWS)
}

pub(super) fn calls(daemon: &Arc<Daemon>, params: Calls) -> Value {
    let filter = Filter {
        server: params.server,
        tool: params.tool,
        session: params.session,
        script: params.script,
        only_failed: params.failed,
        slower_than: params.slower_than_ms.map(Duration::from_millis),
    };
    let Page { rows, last, skipped } =
        daemon.history.calls(params.after, rows(params.most), &filter);
    json!({ "calls": rows, "last": last, "skipped": skipped })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Call {
    id: u64,
}

pub(super) fn call(daemon: &Arc<Daemon>, params: &Call) -> Answer {
    let Some(mut detail) = daemon.history.call(params.id) else {
        let words = format!("there is no call {} any more, or there never was", params.id);
        return Err(AdminError::not_found(words).hint("`metamcp calls` lists those that are kept"));
    };
    let secrets = daemon.machine.router.secrets();
    let hidden = |words: &mut String| *words = redact(words, &secrets).into_owned();
    detail.cause.iter_mut().for_each(&hidden);
    detail.steps.iter_mut().filter_map(|step| step.why.as_mut()).for_each(hidden);
    Ok(json!(detail))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Scripts {
    most: Option<usize>,
}

pub(super) fn scripts(daemon: &Arc<Daemon>, params: &Scripts) -> Value {
    let mut scripts = daemon.history.scripts(rows(params.most));
    let secrets = daemon.machine.router.secrets();
    for script in &mut scripts {
        script.head = redact(&script.head, &secrets).into_owned();
    }
    json!({ "scripts": scripts })
}

/// One script: its code, its logs; its calls are asked for by its number.
pub(super) fn script(daemon: &Arc<Daemon>, params: &Call) -> Answer {
    let Some(mut detail) = daemon.history.script(params.id) else {
        let words = format!("there is no script {} any more, or there never was", params.id);
        return Err(AdminError::not_found(words));
    };
    let secrets = daemon.machine.router.secrets();
    let hidden = |words: &mut String| *words = redact(words, &secrets).into_owned();
    hidden(&mut detail.code);
    hidden(&mut detail.script.head);
    detail.error.iter_mut().for_each(&hidden);
    detail.logs.iter_mut().for_each(|line| hidden(&mut line.text));
    Ok(json!(detail))
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Events {
    after: u64,
    most: Option<usize>,
    server: Option<String>,
}

pub(super) fn events(daemon: &Arc<Daemon>, params: &Events) -> Value {
    let Page { rows, last, .. } =
        daemon.history.events(params.after, rows(params.most), params.server.as_deref());
    json!({ "events": rows, "last": last })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Logs {
    server: String,
    /// For each process, how many bytes of it were read before: what this answered last.
    after: std::collections::BTreeMap<String, u64>,
    most: Option<usize>,
}

/// What the processes of a server wrote to stderr, the last one of each instance.
pub(super) fn logs(daemon: &Arc<Daemon>, params: &Logs) -> Answer {
    let router = &daemon.machine.router;
    let secrets = router.secrets();
    let (mut instances, mut is_known) = (Vec::new(), false);
    for (id, instance) in router.instances() {
        if *instance.definition.name != *params.server {
            continue;
        }
        is_known = true;
        let Some((conn, tail)) = router.stderr_of(id) else { continue };
        // Each process of an instance counts its bytes from the beginning.
        let key = format!("{}-{}", id.0, conn.0.number());
        let after = params.after.get(&key).copied();
        let pid = router.pid_of(id);
        let (lines, total, is_cut) =
            tail.lines_after(after.unwrap_or(0), rows(params.most), pid.is_none());
        let lines: Vec<String> =
            lines.iter().map(|line| redact(line, &secrets).into_owned()).collect();
        instances.push(json!({
            "instance": key,
            "pid": pid,
            "lines": lines,
            "last": total,
            "cut": is_cut,
        }));
    }
    if !is_known {
        return Err(super::server_actions::unused(&params.server));
    }
    Ok(json!({ "server": params.server, "instances": instances }))
}
