//! Every metric by name: the one table that registration and the documentation are checked against.

use std::sync::Arc;

use metamcp_types::text;
use prometheus_client::registry::{Registry, Unit};

/// A metric as it is exported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metric {
    /// Without the prefix `metamcp_` and without what its kind adds (`_total`, `_bucket`).
    pub name: &'static str,
    /// The end of its name, where it has a unit.
    pub unit: &'static str,
    pub kind: &'static str,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

const fn metric(
    name: &'static str,
    unit: &'static str,
    kind: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, unit, kind, labels, help }
}

/// In the order of the documentation.
pub const METRICS: &[Metric] = &[
    metric("build", "", "info", &["version"], "Version of the gateway"),
    metric("calls", "", "counter", &["server", "tool", "verdict"], "Calls that ended"),
    metric(
        "call_duration",
        "seconds",
        "histogram",
        &["server"],
        "Time from the arrival of a call to its end",
    ),
    metric(
        "call_queue",
        "seconds",
        "histogram",
        &["server"],
        "Time from the arrival of a call until it was first sent: start, pool and queue",
    ),
    metric("calls_sent_again", "", "counter", &["server"], "Calls that were sent more than once"),
    metric("call_arguments", "bytes", "counter", &["server"], "Bytes of arguments"),
    metric("call_results", "bytes", "counter", &["server"], "Bytes of results"),
    metric("calls_open", "", "gauge", &[], "Calls without an end yet"),
    metric("calls_in_flight", "", "gauge", &["server"], "Calls that a server is working on"),
    metric("calls_queued", "", "gauge", &["server"], "Calls that wait for a server"),
    metric("searches", "", "counter", &[], "Searches of clients for tools"),
    metric("scripts", "", "counter", &["verdict"], "Scripts of code mode that ended"),
    metric("script_duration", "seconds", "histogram", &[], "Time that scripts took"),
    metric("script_calls", "", "counter", &[], "Calls that scripts made"),
    metric(
        "tokens_shown",
        "",
        "counter",
        &[],
        "Tokens that lists and answers of the gateway's own tools cost models; estimated as bytes / 4",
    ),
    metric(
        "tokens_saved",
        "",
        "counter",
        &["by"],
        "Tokens that models did not have to read, by lists, scripts and cuts; estimated as bytes / 4",
    ),
    metric("redactions", "", "counter", &[], "Secrets redacted from what clients received"),
    metric(
        "server_starts",
        "",
        "counter",
        &["server"],
        "Connections to a server that were started",
    ),
    metric(
        "server_restarts",
        "",
        "counter",
        &["server"],
        "Those of them that followed a failure of the server",
    ),
    metric("server_failures", "", "counter", &["server"], "Connections that broke"),
    metric("server_instances", "", "gauge", &["server", "state"], "Instances of a server by state"),
    metric(
        "server_memory",
        "bytes",
        "gauge",
        &["server"],
        "Memory of the process trees of a server (PSS)",
    ),
    metric(
        "breakers",
        "",
        "gauge",
        &["server", "phase"],
        "Circuit breakers by phase; each instance has one",
    ),
    metric("breaker_openings", "", "counter", &["server"], "How often a circuit breaker opened"),
    metric(
        "pool_slots",
        "",
        "gauge",
        &[],
        "Connections that the pool may have at once, without its reserve",
    ),
    metric(
        "pool_slots_used",
        "",
        "gauge",
        &[],
        "Connections that the pool has, ending ones included",
    ),
    metric("pool_waiting", "", "gauge", &[], "Servers that wait for a slot of the pool"),
    metric(
        "pool_wait",
        "seconds",
        "histogram",
        &[],
        "Time that servers waited for a slot they got",
    ),
    metric("pool_evictions", "", "counter", &[], "Idle connections closed to make room"),
    metric(
        "logins",
        "",
        "counter",
        &["server", "change"],
        "Sign-ins at remote servers, by what became of them",
    ),
    metric("sessions", "", "gauge", &[], "Sessions of clients that are open"),
    metric(
        "fleet_ready",
        "",
        "gauge",
        &[],
        "Whether this gateway of a fleet is to be given clients",
    ),
    metric("fleet_servers", "", "gauge", &[], "Servers of the fleet that this gateway owns"),
    metric("fleet_calls_for_others", "", "gauge", &[], "Calls of other gateways that run here"),
    metric(
        "fleet_calls_elsewhere",
        "",
        "gauge",
        &[],
        "Calls of this gateway's clients that run on others or wait for one",
    ),
    metric("memory", "bytes", "gauge", &[], "Memory of the gateway itself (PSS)"),
    metric("uptime", "seconds", "gauge", &[], "Time since the gateway started"),
];

/// What stands behind names beyond a bound.
pub(super) const OTHER: &str = "other";
/// Servers and tools with labels of their own. A machine has tens and hundreds of them; a hostile list has any number.
pub(super) const MAX_SERVERS: usize = 200;
pub(super) const MAX_TOOLS: usize = 2000;
/// Longest name in a label.
pub(super) const MAX_NAME: usize = 100;

pub(super) fn by_name(name: &str) -> &'static Metric {
    METRICS.iter().find(|metric| metric.name == name).expect("every metric is in the table")
}

pub(super) fn help(name: &str) -> &'static str {
    by_name(name).help
}

/// A metric under its name, with its unit and its help from the table.
pub(super) fn register(
    registry: &mut Registry,
    name: &str,
    metric: impl prometheus_client::registry::Metric,
) {
    let known = by_name(name);
    match unit(known) {
        Some(unit) => registry.register_with_unit(known.name, known.help, unit, metric),
        None => registry.register(known.name, known.help, metric),
    }
}

pub(super) fn unit(metric: &Metric) -> Option<Unit> {
    match metric.unit {
        "seconds" => Some(Unit::Seconds),
        "bytes" => Some(Unit::Bytes),
        _ => None,
    }
}

/// A name as a label: bounded, without what could confuse who reads it.
pub(super) fn label(name: &str) -> Arc<str> {
    match name {
        "" => Arc::from(OTHER),
        name => Arc::from(&*text::clean_line(name, MAX_NAME)),
    }
}
