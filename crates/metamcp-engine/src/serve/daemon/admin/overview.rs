//! The state of everything on one page: the daemon, its sessions and servers, and how much is going on.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{AdminError, Answer};
use crate::history::Latencies;
use crate::serve::daemon::{Daemon, report};

/// Seconds that rates are told of, unless it is said.
const SECONDS: usize = 60;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Params {
    /// How many of the last seconds to tell of.
    seconds: Option<usize>,
}

pub(super) async fn overview(daemon: &Arc<Daemon>, params: Params) -> Answer {
    let status = daemon.status();
    // Reading what processes use takes milliseconds each.
    let status = tokio::task::spawn_blocking(|| report::with_memory(status)).await;
    let status =
        status.map_err(|_| AdminError::new("internal", "the state could not be gathered"))?;
    let history = &daemon.history;
    let (seconds, latencies) = history.seconds(params.seconds.unwrap_or(SECONDS));
    let rates: Vec<Value> =
        seconds.iter().map(|one| json!([one.calls, one.failed, micros(one.slowest)])).collect();
    let totals = history.totals();
    let servers: Vec<Value> = status
        .servers
        .iter()
        .map(|server| {
            let known = history.of_server(&server.name);
            json!({
                "name": server.name,
                "calls": known.calls,
                "failed": known.failed,
                "p50Us": quantile(&known.latencies, 0.5),
                "p99Us": quantile(&known.latencies, 0.99),
                "lastMs": (known.calls > 0).then(|| history.unix_ms(known.last)),
            })
        })
        .collect();
    let tokens = daemon.machine.router.observer.totals().snapshot();
    let (used, waiting) = daemon.machine.router.pool_use();
    Ok(json!({
        "status": status,
        "rates": rates,
        "p50Us": quantile(&latencies, 0.5),
        "p99Us": quantile(&latencies, 0.99),
        "calls": totals.calls,
        "searches": totals.searches,
        "lastEvent": totals.events,
        "tokens": { "shown": tokens.shown, "saved": tokens.saved },
        "serverCalls": servers,
        "pool": { "used": used, "size": daemon.settings.pool.size, "waiting": waiting },
    }))
}

fn micros(length: Duration) -> u64 {
    u64::try_from(length.as_micros()).unwrap_or(u64::MAX)
}

fn quantile(latencies: &Latencies, part: f64) -> Option<u64> {
    latencies.quantile(part).map(micros)
}
