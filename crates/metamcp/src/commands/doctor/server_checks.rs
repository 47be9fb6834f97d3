//! Starts every server to list its tools.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metamcp_calls::failure::{Category, Fact, Failure};
use metamcp_child::process_sandbox::in_path;
use metamcp_config::config::{ServerConfig, ServerState};
use metamcp_engine::clock;
use metamcp_engine::config::{Loaded, Remark};
use metamcp_engine::gateway::Gateway;
use metamcp_engine::provision;
use metamcp_engine::surface::reply::Code;
use metamcp_engine::task;
use metamcp_types::next::quoted;
use metamcp_types::secret::redact;
use tokio::sync::Semaphore;

use super::{Finding, Level, machine};
use crate::commands::gateway;
use crate::render::plural;

const AREA: &str = "servers";

/// How long a server may wait for a pool slot: longer than all the others can take to start.
const IN_LINE: Duration = Duration::from_hours(1);

/// Starts all usable servers, as many at once as the pool allows. The time of each counts from when it has a slot, so
/// that none times out in the queue. Returns the findings, and the servers whose program is missing. With names, only
/// those.
pub(super) fn servers(
    loaded: &Loaded,
    only: &[String],
) -> anyhow::Result<(Vec<Finding>, Vec<String>)> {
    let mut servers = loaded.config.servers.clone();
    for (server, _) in provision::installed(&loaded.config.settings.home) {
        let is_chosen = only.is_empty() || only.contains(&server.name);
        if is_chosen && loaded.config.server(&server.name).is_none() {
            servers.push(server);
        }
    }
    let supplied = machine::supplied();
    if !servers.iter().any(ServerConfig::is_enabled) {
        let left = servers.iter().map(|server| left_out(loaded, server, &supplied));
        return Ok((left.collect(), Vec::new()));
    }
    let pool = &loaded.config.settings.pool;
    let places = usize::try_from(pool.size).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
    let places = Arc::new(Semaphore::new(places));
    // Even with a slot, a server waits for the process before it to exit.
    let mut patient = loaded.clone();
    patient.config.settings.pool.wait_timeout = pool.wait_timeout.max(IN_LINE);
    gateway::with(&patient, async |gateway| {
        let started: Vec<_> = servers
            .iter()
            .map(|server| {
                let (view, name) = (gateway.view.clone(), server.name.clone());
                let places = Arc::clone(&places);
                server.is_enabled().then(|| {
                    task::spawn("doctor", async move {
                        let _place = places.acquire().await;
                        let began = clock::std_instant();
                        let tried = view.try_out(&name).await;
                        let refused =
                            tried.err().map(|error| (error.code(), error.message().to_owned()));
                        (refused, began.elapsed())
                    })
                })
            })
            .collect();
        let (mut findings, mut missing) = (Vec::new(), Vec::new());
        for (server, started) in servers.iter().zip(started) {
            let Some(started) = started else {
                findings.push(left_out(loaded, server, &supplied));
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
        findings.extend(pins(gateway).await);
        (findings, missing)
    })
}

/// Whether there is room for what the user wants listed beside our own tools.
async fn pins(gateway: &Gateway) -> Option<Finding> {
    let choice = gateway.view.choose_pins().await;
    let count = plural(choice.listed.len(), "pinned tool");
    let words = format!("{count} in the list of tools, about {} tokens", choice.tokens);
    if choice.left_out.is_empty() {
        return (!choice.listed.is_empty()).then(|| Finding::new(Level::Good, "pins", words));
    }
    let mut finding =
        Finding::new(Level::Warning, "pins", format!("{words}, and no room for the others"));
    let left = choice.left_out.iter();
    finding.lines = left.map(|(name, tokens)| format!("{name}: about {tokens} tokens")).collect();
    Some(finding.hint("raise pins.maxTokens, or take `pin` off a tool"))
}

/// Whether a server could not be started because its program is missing.
fn is_missing(gateway: &Gateway, server: &ServerConfig) -> bool {
    let Some(command) = server.transport.command() else { return false };
    let failure = gateway
        .servers()
        .named(&server.name)
        .and_then(|entry| gateway.router.view(entry.id)?.last_failure);
    let is_spawn = |failure: &Failure| matches!(failure.fact, Fact::SpawnFailed { .. });
    failure.is_some_and(|failure| is_spawn(&failure)) && in_path(command.as_ref()).is_none()
}

/// The server that a remark reports as disabled, if that is all it says: the server's own finding covers it.
pub(super) fn left_out_for<'a>(loaded: &'a Loaded, remark: &Remark) -> Option<&'a ServerConfig> {
    let at = &remark.place.as_ref()?.path;
    loaded.config.servers.iter().find(|server| {
        match &server.state {
            ServerState::Disabled { reason } => {
                at.contains(&server.name) && remark.message.starts_with(reason.as_str())
            }
            // The reason has only the first of several; the others are reported on their own.
            ServerState::Invalid { reason } => {
                at.contains(&server.name) && reason.contains(&remark.message)
            }
            ServerState::Enabled | ServerState::Withheld { .. } => false,
        }
    })
}

/// Why a server was skipped. A variable that is unset here but comes from a client (`supplied`) is nothing to fix.
fn left_out(
    loaded: &Loaded,
    server: &ServerConfig,
    supplied: &BTreeMap<String, &'static str>,
) -> Finding {
    let reason = match &server.state {
        ServerState::Enabled => return Finding::new(Level::Note, AREA, server.name.clone()),
        ServerState::Disabled { reason } => reason,
        ServerState::Invalid { reason } => {
            let words = format!("{} is disabled: {reason}", server.name);
            let hint =
                "correct its entry in the config file; `metamcp config check` shows the line";
            return Finding::new(Level::Problem, AREA, words).hint(hint);
        }
        ServerState::Withheld { reason, cure: hint } => {
            let words = format!("{} is withheld: {reason}", server.name);
            return Finding::new(Level::Problem, AREA, words).hint(hint.clone());
        }
    };
    let missing = reason.split("; ").map(|one| {
        let name = one.strip_prefix("environment variable ")?.split(' ').next()?;
        Some((name, *supplied.get(name)?))
    });
    if let Some(given) = missing.collect::<Option<Vec<_>>>().filter(|given| !given.is_empty()) {
        let given: Vec<String> =
            given.iter().map(|(name, client)| format!("{name} comes from {client}")).collect();
        let words = format!("{} was not tried: {}", server.name, given.join(", "));
        return Finding::new(Level::Note, AREA, words);
    }
    let is_of_it =
        |remark: &&Remark| left_out_for(loaded, remark).is_some_and(|it| it.name == server.name);
    let at = loaded.remarks.iter().find(is_of_it).and_then(|remark| {
        let (path, place) = (remark.path.as_ref()?, remark.place.as_ref()?);
        Some(format!(" ({}:{}:{})", path.display(), place.line, place.column))
    });
    let words = format!("{} is disabled: {reason}{}", server.name, at.unwrap_or_default());
    match reason.strip_prefix("environment variable ").and_then(|rest| rest.split(' ').next()) {
        Some(name) => Finding::new(Level::Problem, AREA, words)
            .hint(format!("set {name}, or give a default: ${{{name}:-…}}")),
        None if reason.starts_with("it needs ") => {
            let name = &server.name;
            Finding::new(Level::Problem, AREA, words).hint(format!(
                "set it where metamcp is started; or metamcp remove {name}, and add it again with -e KEY=VALUE"
            ))
        }
        None => Finding::new(Level::Note, AREA, words),
    }
}

fn finding(gateway: &Gateway, server: &ServerConfig, refused: Option<(Code, String)>) -> Finding {
    let servers = gateway.servers();
    let Some(entry) = servers.named(&server.name) else {
        return Finding::new(Level::Problem, AREA, format!("{} is gone", server.name));
    };
    let snapshot = gateway.catalog.snapshot();
    let live = snapshot.known(entry.definition).filter(|known| known.listed_at.is_some());
    if let Some(known) = live {
        let peer = gateway.router.peer(entry.id);
        let announces = peer.is_none_or(|peer| peer.can("tools") || !peer.capabilities.is_object());
        if known.tools.tools.is_empty() && !announces {
            let words = format!("{} announces no tools and lists none", server.name);
            let hint =
                "if it should have some, see its documentation: it may need a setting or a sign-in";
            return Finding::new(Level::Note, AREA, words).hint(hint);
        }
        let words = format!("{} lists {}", server.name, plural(known.tools.tools.len(), "tool"));
        if known.tools.skipped.is_empty() {
            let misfits = gateway.catalog.misfits(entry.definition);
            if misfits.is_empty() {
                return Finding::new(Level::Good, AREA, words);
            }
            let words = format!("{words}, and not all of its `overrides` fits them");
            let mut finding = Finding::new(Level::Warning, AREA, words);
            finding.lines = misfits;
            return finding.hint("correct `overrides` of the server in the config file");
        }
        let mut finding =
            Finding::new(Level::Warning, AREA, format!("{words}, and not all can be used"));
        finding.lines = known.tools.skipped.iter().map(ToString::to_string).collect();
        return finding.hint(
            "report it to the server's author; or raise limits.maxToolsPerServer, if that limit was hit",
        );
    }
    let failure = gateway.router.view(entry.id).and_then(|view| view.last_failure);
    let secrets = || entry.config.secrets();
    let told = snapshot.failure(entry.definition).map(ToString::to_string);
    let fact = failure.as_ref().map(|failure| failure.fact.to_string());
    let in_line = refused.as_ref().is_some_and(|(code, _)| *code == Code::PoolExhausted);
    let refused = refused.map(|(_, message)| message);
    let why = fact.or(told).or(refused).unwrap_or_else(|| "did not list its tools".to_owned());
    let mut finding =
        Finding::new(Level::Problem, AREA, format!("{}: {}", server.name, redact(&why, secrets())));
    let last_words = failure.as_ref().map(|failure| failure.last_words.clone()).unwrap_or_default();
    finding.lines = last_words.iter().map(|line| redact(line, secrets()).into_owned()).collect();
    if in_line && failure.is_none() {
        return finding.hint(
            "it was not tried: raise pool.poolSize, or try again when fewer servers are in use",
        );
    }
    let said = !finding.lines.is_empty();
    let hint = hint(server, failure.as_ref().map(|failure| &failure.fact), said);
    finding.hint(hint)
}

/// The hint for a failure of that kind.
fn hint(server: &ServerConfig, fact: Option<&Fact>, said: bool) -> String {
    let name = quoted(&server.name);
    let is_remote = server.transport.is_remote();
    let is_api = server.transport.api().is_some();
    let first = match fact {
        Some(Fact::Unreachable { .. } | Fact::StreamDropped | Fact::StartTimedOut { .. })
            if is_api =>
        {
            "check that the API runs, and its `baseUrl` and `openapi` in the config file"
        }
        Some(Fact::Unsupported { .. }) if is_api => {
            "change its entry in the config file, or the description"
        }
        Some(fact) if fact.category() == Category::Auth => {
            return format!("metamcp auth login {name}, or put a token into its `headers`");
        }
        Some(Fact::SpawnFailed { .. }) => "check its `command` in the config file",
        Some(Fact::StartTimedOut { .. }) if is_remote => {
            "check that something answers at its `url`; or raise timeouts.connectTimeoutMs"
        }
        Some(Fact::OutOfFiles { .. }) => "raise the limit on open files (`ulimit -n`)",
        Some(Fact::OutOfProcesses { .. }) => {
            "raise the limit on processes (`ulimit -u`), or end other programs of this user"
        }
        Some(Fact::SecretMissing { .. }) => {
            "check the file, program or keyring entry that holds the secret, and the reference in its `env` or `headers`"
        }
        Some(Fact::StartTimedOut { .. }) if said => {
            "read its stderr: it may wait for a sign-in, or not be an MCP server; raise timeouts.connectTimeoutMs if it is only slow"
        }
        Some(Fact::StartTimedOut { .. }) if metamcp_engine::upstream::installs(server) => {
            "try again, since downloads are cached; or raise timeouts.connectTimeoutMs"
        }
        Some(Fact::StartTimedOut { .. }) => {
            "run its command in a terminal to see what it waits for; or raise timeouts.connectTimeoutMs"
        }
        Some(Fact::Unreachable { .. } | Fact::StreamDropped) => {
            "check that it runs, and its `url` in the config file"
        }
        Some(Fact::Insecure { .. }) => "check its `url`, and its `tls` in the config file",
        Some(Fact::Limited { .. } | Fact::Busy { .. }) => "wait for that long, then try again",
        Some(Fact::HandshakeRefused { .. }) if !is_remote => {
            "run its command in a terminal: this may be no MCP server"
        }
        Some(_) if is_remote => "check its `url` in the config file: this may be no MCP server",
        None if is_remote => "check that it runs, and its `url` in the config file",
        Some(_) | None => "run its command in a terminal to see more",
    };
    format!("{first}; `metamcp disable {name}` disables it until then")
}
