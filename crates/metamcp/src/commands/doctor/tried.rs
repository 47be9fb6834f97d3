//! Every server, started and asked for its tools.

use std::time::Instant;

use metamcp_core::config::{ServerConfig, ServerState};
use metamcp_core::secret::scrub;
use metamcp_core::settings::LogLevel;
use metamcp_engine::config::Loaded;
use metamcp_engine::gateway::Gateway;
use metamcp_engine::provision;
use metamcp_engine::task;

use super::{Finding, Level};
use crate::commands::gateway;
use crate::render::plural;

const AREA: &str = "servers";

/// Starts all that may be used, as many at once as the pool allows.
pub(super) fn servers(loaded: &Loaded) -> anyhow::Result<Vec<Finding>> {
    let mut servers = loaded.config.servers.clone();
    for (server, _) in provision::installed(&loaded.config.settings.home) {
        if loaded.config.server(&server.name).is_none() {
            servers.push(server);
        }
    }
    if !servers.iter().any(ServerConfig::is_enabled) {
        return Ok(servers.iter().map(left_out).collect());
    }
    // What the log would say is in the findings.
    let mut loaded = loaded.clone();
    loaded.config.settings.log_level = LogLevel::Off;
    gateway::with(&loaded, async |gateway| {
        let started: Vec<_> = servers
            .iter()
            .map(|server| {
                let (view, name) = (gateway.view.clone(), server.name.clone());
                server.is_enabled().then(|| {
                    task::spawn("doctor", async move {
                        let began = Instant::now();
                        let tried = view.try_out(&name).await;
                        (tried.err().map(|error| error.message().to_owned()), began.elapsed())
                    })
                })
            })
            .collect();
        let mut findings = Vec::new();
        for (server, started) in servers.iter().zip(started) {
            findings.push(match started {
                None => left_out(server),
                Some(started) => {
                    let (refused, took) = started.await.unwrap_or_default();
                    let mut finding = finding(gateway, server, refused);
                    finding.millis = Some(took.as_millis());
                    finding
                }
            });
        }
        findings
    })
}

fn left_out(server: &ServerConfig) -> Finding {
    let ServerState::Disabled { reason } = &server.state else {
        return Finding::new(Level::Note, AREA, server.name.clone());
    };
    let words = format!("{} is left out: {reason}", server.name);
    match reason.strip_prefix("environment variable ").and_then(|rest| rest.split(' ').next()) {
        Some(name) => Finding::new(Level::Problem, AREA, words)
            .cure(format!("set {name}, or give a default: ${{{name}:-…}}")),
        None if reason.starts_with("it needs ") => {
            let name = &server.name;
            Finding::new(Level::Problem, AREA, words).cure(format!(
                "set it where metamcp is started; or metamcp remove {name}, and add it again with -e KEY=VALUE"
            ))
        }
        None => Finding::new(Level::Note, AREA, words),
    }
}

fn finding(gateway: &Gateway, server: &ServerConfig, refused: Option<String>) -> Finding {
    let servers = gateway.router.servers();
    let Some(entry) = servers.named(&server.name) else {
        return Finding::new(Level::Problem, AREA, format!("{} is gone", server.name));
    };
    let snapshot = gateway.catalog.snapshot();
    let live = snapshot.known(entry.id).filter(|known| known.listed_at.is_some());
    if let Some(known) = live {
        let words = format!("{} lists {}", server.name, plural(known.tools.tools.len(), "tool"));
        return Finding::new(Level::Good, AREA, words);
    }
    let failure = gateway.router.view(entry.id).and_then(|view| view.last_failure);
    let secrets = || entry.config.secrets();
    let told = snapshot.failure(entry.id).map(ToString::to_string);
    let fact = failure.as_ref().map(|failure| failure.fact.to_string());
    let why = fact.or(told).or(refused).unwrap_or_else(|| "did not list its tools".to_owned());
    let mut finding =
        Finding::new(Level::Problem, AREA, format!("{}: {}", server.name, scrub(&why, secrets())));
    let last_words = failure.map(|failure| failure.last_words.clone()).unwrap_or_default();
    finding.lines = last_words.iter().map(|line| scrub(line, secrets()).into_owned()).collect();
    let name = &server.name;
    finding.cure(format!(
        "run its command in a terminal to see more; `metamcp disable {name}` leaves it out until then"
    ))
}
