//! Requests about one server: what it is and how it is, starting it again, switching it on and off, signing in.

use std::sync::Arc;

use metamcp_config::config::{Grant, SWITCHED_OFF, ServerConfig, ServerOrigin};
use metamcp_types::web::Address;
use serde_json::{Value, json};

use super::AdminError;
use super::contextual::{Asking, text_of};
use crate::login::{self, Login, LoginStorage};
use crate::provision::Store;
use crate::router::Definition;
use crate::task;

/// How a missing variable is told in the reasons of a server's state.
const UNSET: (&str, &str) = ("environment variable ", " is not set");
/// Longest address of a sign-in.
const MAX_ADDRESS: usize = 8 * 1024;

/// Every server of the context, whether or not anything of it runs.
pub(super) async fn configured(asking: &Asking) -> Value {
    let gateway = asking.gateway();
    gateway.catalog.loaded().await;
    let snapshot = gateway.catalog.snapshot();
    let (members, servers) = (gateway.context.members(), gateway.servers());
    let router = &asking.daemon.machine.router;
    let all = members.iter().map(|definition| {
        let config = definition.config();
        let known = snapshot.known(definition.id);
        let view = servers.named(&config.name).and_then(|entry| router.view(entry.id));
        let failure = view.as_ref().and_then(|view| view.last_failure.as_ref());
        json!({
            "name": config.name,
            "failure": failure.map(|failure| failure.fact.to_string()),
            "breaker": view.as_ref().map(|view| view.breaker.word()),
            "enabled": config.is_enabled(),
            "against": config.state.against(),
            "remote": config.transport.is_remote(),
            "origin": config.origin.as_str(),
            "tools": known.map(|known| known.tools.tools.len()),
            "misfits": gateway.catalog.misfits(definition.id),
        "listFailure": snapshot.failure(definition.id).map(ToString::to_string),
        })
    });
    json!({ "servers": all.collect::<Vec<_>>() })
}

/// One server: its configuration with its values masked, its state, what it lacks.
pub(super) async fn one(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let definition = named(asking, params)?;
    let config = definition.config();
    let shown = asking.command_json(&["get", "--json", "--", &config.name]).await?;
    let gateway = asking.gateway();
    gateway.catalog.loaded().await;
    let snapshot = gateway.catalog.snapshot();
    let known = snapshot.known(definition.id);
    let record = Store::new(&asking.settings().home).record(&config.name).ok();
    let login = match login_of(asking, &config) {
        Ok(login) => login.status().await.ok().flatten().map(|status| {
            json!({ "issuer": status.issuer, "scopes": status.scopes, "expiresInMs": status.expires_in_ms, "refreshes": status.refreshes })
        }),
        Err(_) => None,
    };
    let scope = gateway.context.scope_of(&definition).0;
    Ok(json!({
        "name": config.name,
        "config": shown,
        "against": config.state.against(),
        "missing": config.state.against().map(missing).unwrap_or_default(),
        "enabled": config.is_enabled(),
        "switchedOff": config.state.against().is_some_and(|why| why.contains(SWITCHED_OFF)),
        "remote": config.transport.is_remote(),
        "scope": scope.as_str(),
        "about": known.and_then(|known| known.tools.server_about.clone()),
        "title": known.and_then(|known| known.tools.server_title.clone()),
        "version": known.and_then(|known| known.tools.server_version.clone()),
        "tools": known.map(|known| known.tools.tools.len()),
        "leftOut": known.and_then(|known| known.tools.left_out()),
        "listFailure": snapshot.failure(definition.id).map(ToString::to_string),
        "login": login,
        "installed": record.as_ref().map(|record| json!({
            "package": record.plan.package(),
            "pins": record.pins.len(),
            "blocked": record.blocked.keys().collect::<Vec<_>>(),
            "withheld": record.quarantine,
        })),
    }))
}

/// The variables that a reason says are not set.
fn missing(against: &str) -> Vec<String> {
    let of = |part: &str| Some(part.strip_prefix(UNSET.0)?.strip_suffix(UNSET.1)?.to_owned());
    against.split("; ").filter_map(of).collect()
}

/// Ends its processes and starts them again; with `now`, calls in flight are given up.
pub(super) fn restart(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let definition = named(asking, params)?;
    if let Some(why) = definition.config().state.against() {
        return Err(AdminError::refused(format!("{:?} cannot be started: {why}", definition.name)));
    }
    let router = &asking.daemon.machine.router;
    let mut started = router.renew(&definition, params["now"] == true);
    if started == 0 {
        // Nobody has it yet: its tools are listed, so that its state is known.
        let view = asking.gateway().session_view();
        if let Some(entry) = view.seat.servers().named(&definition.name) {
            started = usize::from(router.wake(entry.id).is_ok());
        }
    }
    Ok(json!({ "server": &*definition.name, "restarted": started }))
}

/// Writes it into the configuration that the server is on or off; running gateways follow.
pub(super) async fn switch(asking: &Asking, params: &Value, on: bool) -> Result<Value, AdminError> {
    let definition = named(asking, params)?;
    let config = definition.config();
    let word = if on { "enable" } else { "disable" };
    let scope = match config.origin {
        ServerOrigin::Project => "--scope=project",
        ServerOrigin::Provisioned => {
            let words = "a server that metamcp installed is not switched off but removed";
            let hint = format!("metamcp remove {}", config.name);
            return Err(AdminError::refused(words).hint(hint));
        }
        _ => "",
    };
    let words: Vec<&str> = [word, "--json", scope, "--", &config.name]
        .into_iter()
        .filter(|word| !word.is_empty())
        .collect();
    asking.command_json(&words).await
}

/// Begins a sign-in at a remote server; the answer has the address for the browser.
pub(super) async fn log_in(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let definition = named(asking, params)?;
    let config = definition.config();
    let login = login_of(asking, &config)?;
    let told = |error: login::LoginError| AdminError::failed(error.to_string());
    let options = config.transport.remote().map(|remote| &remote.options);
    if options.is_some_and(|options| options.login.grant == Grant::Machine) {
        login::start_machine(&login).await.map_err(told)?;
        return Ok(json!({ "server": config.name, "done": true }));
    }
    let started = login::start(&login).await.map_err(told)?;
    let address = Address::parse(&started.address)
        .ok()
        .filter(|address| address.is_confidential() && started.address.len() <= MAX_ADDRESS);
    let Some(address) = address else {
        return Err(AdminError::refused("the address to sign in at is not encrypted"));
    };
    let (name, router) = (config.name.clone(), Arc::clone(&asking.daemon.machine.router));
    task::spawn("sign-in from the page", async move {
        match started.done.await {
            // What was refused for want of a token is tried again.
            Ok(Ok(())) => drop(router.renew(&definition, false)),
            Ok(Err(why)) => tracing::warn!("the sign-in at {name:?} failed: {why}"),
            Err(_) => tracing::warn!("the sign-in at {name:?} was abandoned"),
        }
    });
    Ok(json!({ "server": config.name, "url": address.to_string() }))
}

/// Deletes the token of a remote server.
pub(super) async fn log_out(asking: &Asking, params: &Value) -> Result<Value, AdminError> {
    let definition = named(asking, params)?;
    let config = definition.config();
    let forgotten = login_of(asking, &config)?.forget().await;
    let forgotten = forgotten.map_err(|error| AdminError::failed(error.to_string()))?;
    Ok(json!({ "server": config.name, "forgotten": forgotten }))
}

fn login_of(asking: &Asking, config: &ServerConfig) -> Result<Arc<Login>, AdminError> {
    let Some(remote) = config.transport.remote() else {
        let words = format!("{:?} is a local server: there is nothing to sign in to", config.name);
        return Err(AdminError::refused(words));
    };
    let address = Address::parse(&remote.url)
        .map_err(|_| AdminError::refused(format!("the url of {:?} is invalid", config.name)))?;
    let settings = asking.settings();
    let storage = LoginStorage::new(&settings.home, settings.token_store)
        .observed_by(Arc::clone(&asking.daemon.machine.router.observer));
    Ok(Login::new(address, &remote.options, &storage))
}

pub(super) fn named(asking: &Asking, params: &Value) -> Result<Arc<Definition>, AdminError> {
    let name = text_of(params, "name").ok_or_else(|| AdminError::wanted("name"))?;
    let found = asking.gateway().context.member(name);
    found.ok_or_else(|| AdminError::missing(format!("there is no server {name:?} here")))
}

#[cfg(test)]
mod tests {
    use super::missing;

    #[test]
    fn missing_variables_are_named_alone() {
        let told = "environment variable A is not set; environment variable B_2 is not set; turned off in the config file";
        assert_eq!(missing(told), ["A", "B_2"]);
        assert!(missing("turned off in the config file").is_empty());
    }
}
