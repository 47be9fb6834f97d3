//! Every server, started and asked for its tools.

use std::time::Instant;

use metamcp_child::walls::in_path;
use metamcp_core::config::{ServerConfig, ServerState, Transport};
use metamcp_core::failure::{Category, Fact, Failure};
use metamcp_core::next::quoted;
use metamcp_core::secret::scrub;
use metamcp_engine::config::{Loaded, Remark};
use metamcp_engine::gateway::Gateway;
use metamcp_engine::provision;
use metamcp_engine::task;

use super::{Finding, Level};
use crate::commands::gateway;
use crate::render::plural;

const AREA: &str = "servers";

/// Starts all that may be used, as many at once as the pool allows. Besides the findings, the servers whose program is
/// not there.
pub(super) fn servers(loaded: &Loaded) -> anyhow::Result<(Vec<Finding>, Vec<String>)> {
    let mut servers = loaded.config.servers.clone();
    for (server, _) in provision::installed(&loaded.config.settings.home) {
        if loaded.config.server(&server.name).is_none() {
            servers.push(server);
        }
    }
    if !servers.iter().any(ServerConfig::is_enabled) {
        return Ok((servers.iter().map(|server| left_out(loaded, server)).collect(), Vec::new()));
    }
    gateway::with(loaded, async |gateway| {
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
        let (mut findings, mut missing) = (Vec::new(), Vec::new());
        for (server, started) in servers.iter().zip(started) {
            let Some(started) = started else {
                findings.push(left_out(loaded, server));
                continue;
            };
            let (refused, took) = started.await.unwrap_or_default();
            if is_missing(gateway, server) && loaded.config.server(&server.name).is_some() {
                missing.push(server.name.clone());
                let words = format!("{} was not started: see programs", server.name);
                findings.push(Finding::new(Level::Note, AREA, words));
                continue;
            }
            let mut finding = finding(gateway, server, refused);
            finding.millis = Some(took.as_millis());
            findings.push(finding);
        }
        (findings, missing)
    })
}

/// Whether a server could not be started because its program is not there.
fn is_missing(gateway: &Gateway, server: &ServerConfig) -> bool {
    let Transport::Stdio { command, .. } = &server.transport else { return false };
    let failure = gateway
        .router
        .servers()
        .named(&server.name)
        .and_then(|entry| gateway.router.view(entry.id)?.last_failure);
    let is_spawn = |failure: &Failure| matches!(failure.fact, Fact::SpawnFailed { .. });
    failure.is_some_and(|failure| is_spawn(&failure)) && in_path(command.as_ref()).is_none()
}

/// The server that a remark says is left out, where that is all it says: the server's own finding has it too.
pub(super) fn left_out_for<'a>(loaded: &'a Loaded, remark: &Remark) -> Option<&'a ServerConfig> {
    let at = &remark.place.as_ref()?.path;
    loaded.config.servers.iter().find(|server| {
        let ServerState::Disabled { reason } = &server.state else { return false };
        at.contains(&server.name) && remark.message.starts_with(reason.as_str())
    })
}

fn left_out(loaded: &Loaded, server: &ServerConfig) -> Finding {
    let reason = match &server.state {
        ServerState::Enabled => return Finding::new(Level::Note, AREA, server.name.clone()),
        ServerState::Disabled { reason } => reason,
        ServerState::Withheld { reason, cure } => {
            let words = format!("{} is withheld: {reason}", server.name);
            return Finding::new(Level::Problem, AREA, words).cure(cure.clone());
        }
    };
    let is_of_it =
        |remark: &&Remark| left_out_for(loaded, remark).is_some_and(|it| it.name == server.name);
    let at = loaded.remarks.iter().find(is_of_it).and_then(|remark| {
        let (path, place) = (remark.path.as_ref()?, remark.place.as_ref()?);
        Some(format!(" ({}:{}:{})", path.display(), place.line, place.column))
    });
    let words = format!("{} is left out: {reason}{}", server.name, at.unwrap_or_default());
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
    let last_words = failure.as_ref().map(|failure| failure.last_words.clone()).unwrap_or_default();
    finding.lines = last_words.iter().map(|line| scrub(line, secrets()).into_owned()).collect();
    let cure = cure(server, failure.as_ref().map(|failure| &failure.fact));
    finding.cure(cure)
}

/// What helps against a failure of that kind.
fn cure(server: &ServerConfig, fact: Option<&Fact>) -> String {
    let name = quoted(&server.name);
    let is_remote = matches!(server.transport, Transport::Http { .. });
    let first = match fact {
        Some(fact) if fact.category() == Category::Auth => {
            return format!("metamcp auth login {name}, or put a token into its `headers`");
        }
        Some(Fact::SpawnFailed { .. }) => "check its `command` in the config file",
        Some(Fact::StartTimedOut { .. }) => {
            "try again, since what it fetched so far is kept; or raise timeouts.connectTimeoutMs"
        }
        Some(Fact::Unreachable { .. } | Fact::StreamDropped) => {
            "check that it runs, and its `url` in the config file"
        }
        Some(Fact::Insecure { .. }) => "check its `url`, and its `tls` in the config file",
        Some(Fact::Limited { .. }) => "wait as long as it asks for, then look again",
        Some(Fact::HandshakeRefused { .. }) if !is_remote => {
            "run its command in a terminal: this may be no MCP server"
        }
        Some(_) if is_remote => "check its `url` in the config file: this may be no MCP server",
        None if is_remote => "check that it runs, and its `url` in the config file",
        Some(_) | None => "run its command in a terminal to see more",
    };
    format!("{first}; `metamcp disable {name}` leaves it out until then")
}
