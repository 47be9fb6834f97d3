//! `metamcp get`: one server's effective configuration, and where it comes from.

use std::ffi::OsString;
use std::io::Write;

use metamcp_calls::lifecycle::State;
use metamcp_calls::pool::ServerId;
use metamcp_child::environment;
use metamcp_config::config::{
    Lifecycle, LocalCommand, PassEnv, RemoteEndpoint, ServerConfig, ServerOrigin, ServerState,
};
use metamcp_config::scope::Scope;
use metamcp_engine::catalog::schema_cache::SchemaCache;
use metamcp_engine::clock::unix_millis;
use metamcp_engine::config::Loaded;
use metamcp_engine::provision;
use metamcp_engine::router::Instance;
use metamcp_types::nearest::nearest;
use metamcp_types::next::quoted;
use metamcp_types::secret::{Secret, shown};
use metamcp_types::text;
use serde_json::json;

use super::{config, gateway};
use crate::args::GetArgs;
use crate::console;
use crate::exit::{Exit, misuse};
use crate::render::{self, BOLD, GREEN, YELLOW, styled, visible};
use crate::terminal;

/// Stands in for a redacted value.
const MASKED: &str = "***";

pub(crate) fn run(loaded: &Loaded, args: &GetArgs, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let (server, from) = found(loaded, &args.name)?;
    let known = SchemaCache::new(&loaded.config.settings.home)
        .read_header(&server.name, unix_millis())
        .ok()
        .and_then(metamcp_engine::catalog::schema_cache::Lookup::found)
        .map(|header| header.tools);
    let global = PassEnv::from_text(&loaded.config.settings.pass_env);
    let running = running(loaded, &server.name)?;
    if args.json {
        let mut told = config::server_json(&server);
        told["from"] = json!(from);
        told["inherits"] = json!(inherited(&server, &global));
        told["timeoutMs"] = json!(server.timeout.map(|limit| limit.as_millis()));
        told["idleTimeoutMs"] = json!(server.idle_timeout.map(|limit| limit.as_millis()));
        told["maxInFlight"] = json!(server.max_in_flight);
        told["share"] = json!(server.share.map(Scope::as_str));
        told["instances"] = json!(server.instances);
        told["exclusive"] = json!(server.exclusive);
        told["tags"] = json!(server.tags);
        told["allowedTools"] = json!(server.tools.allow.as_ref().map(|all| patterns(all)));
        told["deniedTools"] = json!(patterns(&server.tools.deny));
        told["sandboxed"] = json!(server.sandbox_policy.is_some());
        told["toolsKnown"] = json!(known);
        // Only the daemon knows.
        if let Some(running) = running {
            told["running"] = json!(running);
        }
        writeln!(out, "{told:#}")?;
        return Ok(Exit::Success);
    }
    let state = match &server.state {
        ServerState::Enabled => styled(GREEN, "enabled"),
        ServerState::Disabled { reason } | ServerState::Invalid { reason } => {
            format!("{} {}", styled(YELLOW, "disabled:"), visible(reason))
        }
        ServerState::Withheld { reason, cure } => {
            format!("{} {}; {}", styled(YELLOW, "withheld:"), visible(reason), visible(cure))
        }
    };
    writeln!(out, "{}  {state}", styled(BOLD, &visible(&server.name)))?;
    let mut rows = facts(&server, &from, known, &global);
    rows.extend(running.map(|count| ("running", in_words(count))));
    render::facts(out, &rows, terminal::width())?;
    Ok(Exit::Success)
}

/// How many processes or connections of the server the daemon has; `None` for a command that is not in it.
fn running(loaded: &Loaded, name: &str) -> anyhow::Result<Option<usize>> {
    if !console::is_remote() {
        return Ok(None);
    }
    let count = gateway::with(loaded, async |gateway| {
        let definition = gateway.context.member(name)?.id;
        let runs = |(id, one): &(ServerId, Instance)| {
            let state = gateway.router.view(*id).and_then(|view| view.state);
            let is_up =
                matches!(state, Some(State::Connecting | State::Active { .. } | State::Idle));
            one.definition.id == definition && is_up
        };
        Some(gateway.router.instances().iter().filter(|one| runs(one)).count())
    })?;
    Ok(Some(count.unwrap_or_default()))
}

fn in_words(running: usize) -> String {
    match running {
        0 => "no".to_owned(),
        1 => "yes".to_owned(),
        count => format!("{count} instances; `metamcp status` shows for whom"),
    }
}

/// The server and the file or store it comes from.
fn found(loaded: &Loaded, name: &str) -> anyhow::Result<(ServerConfig, String)> {
    if let Some(server) = loaded.config.server(name) {
        let file = match server.origin {
            ServerOrigin::Project => loaded.project.as_ref().map(|project| project.path.as_path()),
            _ => loaded.source.path(),
        };
        return Ok((
            server.clone(),
            file.map(|path| path.display().to_string()).unwrap_or_default(),
        ));
    }
    let installed = provision::installed(&loaded.config.settings.home);
    if let Some((server, _)) = installed.iter().find(|(server, _)| server.name == name) {
        return Ok((server.clone(), "installed by metamcp".to_owned()));
    }
    let names = loaded.config.servers.iter().chain(installed.iter().map(|(server, _)| server));
    let near = nearest(name, names.map(|server| server.name.as_str()), 1);
    let hint = near.first().map(|near| format!("; did you mean `{}`?", visible(near)));
    let hint = hint.unwrap_or_else(|| "; `metamcp list` lists the servers".to_owned());
    Err(misuse(format!("there is no server `{}`{hint}", visible(name))))
}

/// Everything that is not at its default, by the keys of the config file.
fn facts(
    server: &ServerConfig,
    from: &str,
    known: Option<usize>,
    global: &PassEnv,
) -> Vec<(&'static str, String)> {
    let clean = |words: &str| visible(&shown(words, server.secrets()));
    let mut rows = vec![("from", visible(from))];
    let masked = |named: &[(String, Secret)]| {
        let all: Vec<String> = named
            .iter()
            .map(|(name, value)| match value.is_reference() {
                true => format!("{}={}", visible(name), clean(value.expose())),
                false => format!("{}={MASKED}", visible(name)),
            })
            .collect();
        all.join("\n")
    };
    if let Some(LocalCommand { command, env, cwd, .. }) = server.transport.local() {
        let words = server.transport.words().into_iter();
        let words: Vec<String> = words.map(|word| quoted(&clean(word)).into_owned()).collect();
        // An entry that could not be parsed has none.
        if !command.is_empty() {
            rows.push(("command", words.join(" ")));
        }
        if let Some(cwd) = cwd {
            rows.push(("cwd", visible(&cwd.display().to_string())));
        }
        if !env.is_empty() {
            rows.push(("env", masked(env)));
        }
        rows.push(("inherits", inherited(server, global).join(" ")));
    }
    if let Some(RemoteEndpoint { url, headers, .. }) = server.transport.remote() {
        if let Some(api) = server.transport.api() {
            rows.push(("openapi", clean(&api.description)));
            for (word, rules) in [("include", &api.include), ("exclude", &api.exclude)] {
                if !rules.is_empty() {
                    rows.push((word, visible(&rules.join(", "))));
                }
            }
        }
        if !url.is_empty() {
            rows.push(("url", clean(url)));
        }
        rows.push(("type", server.transport.name().to_owned()));
        if !headers.is_empty() {
            rows.push(("headers", masked(headers)));
        }
    }
    if let Some(words) = &server.description {
        rows.push(("description", text::clean_line(words, usize::MAX).into_owned()));
    }
    if !server.tags.is_empty() {
        rows.push(("tags", visible(&server.tags.join(", "))));
    }
    if let Some(allow) = &server.tools.allow {
        rows.push(("allowed", visible(&patterns(allow).join(", "))));
    }
    if !server.tools.deny.is_empty() {
        rows.push(("denied", visible(&patterns(&server.tools.deny).join(", "))));
    }
    if let Some(limit) = server.timeout {
        rows.push(("timeout", text::duration(limit)));
    }
    if let Some(limit) = server.idle_timeout {
        rows.push(("idle timeout", text::duration(limit)));
    }
    match server.lifecycle {
        Lifecycle::Default => {}
        Lifecycle::KeepAlive { .. } => rows.push(("lifecycle", "keep-alive".to_owned())),
        Lifecycle::Ephemeral => rows.push(("lifecycle", "ephemeral".to_owned())),
    }
    if server.exclusive {
        rows.push(("calls", "one at a time".to_owned()));
    } else if let Some(most) = server.max_in_flight {
        rows.push(("calls", format!("at most {most} at once")));
    }
    if let Some(share) = server.share {
        rows.push(("share", share.as_str().to_owned()));
    }
    if server.instances > 1 {
        rows.push(("instances", format!("at most {}", server.instances)));
    }
    if let Some(sandbox_policy) = &server.sandbox_policy {
        let open: Vec<String> =
            sandbox_policy.writes.iter().map(|path| path.display().to_string()).collect();
        let open =
            if open.is_empty() { String::new() } else { format!(", and {}", open.join(", ")) };
        let home = sandbox_policy.home.display();
        rows.push(("sandbox", visible(&format!("may change {home}{open}"))));
    }
    let tools = match known {
        Some(count) => format!("{}, as listed last", render::plural(count, "tool")),
        None => "not known yet".to_owned(),
    };
    rows.push(("tools", tools));
    rows
}

/// Names of our own variables that the server inherits, besides those its entry names.
fn inherited(server: &ServerConfig, global: &PassEnv) -> Vec<String> {
    let Some(LocalCommand { env, .. }) = server.transport.local() else { return Vec::new() };
    let home = server.sandbox_policy.as_ref().map(|sandbox_policy| sandbox_policy.home.as_path());
    let pass = server.pass_env.with(global);
    let all: Vec<(OsString, OsString)> =
        environment::for_server(crate::env::all(), &[], &pass, home);
    let names = all.into_iter().map(|(name, _)| visible(&name.to_string_lossy()));
    names.filter(|name| !env.iter().any(|(own, _)| own == name)).collect()
}

fn patterns(all: &[metamcp_config::config::Pattern]) -> Vec<&str> {
    all.iter().map(metamcp_config::config::Pattern::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_masked_and_references_are_not() {
        let mut server = ServerConfig::stdio("x", "prog", &["--key=hunter2-and-more"]);
        let env = server.transport.given_mut();
        env.push(("API_KEY".to_owned(), Secret::new("API_KEY", "hunter2-and-more")));
        env.push(("TOKEN".to_owned(), Secret::reference("TOKEN", "op://work/x/token")));
        let told: Vec<String> = facts(&server, "file", None, &PassEnv::Least)
            .into_iter()
            .map(|(key, words)| key.to_owned() + &words)
            .collect();
        let told = told.join("\n");
        assert!(!told.contains("hunter2"), "{told}");
        assert!(told.contains("API_KEY=***\nTOKEN=op://work/x/token"), "{told}");
    }
}
