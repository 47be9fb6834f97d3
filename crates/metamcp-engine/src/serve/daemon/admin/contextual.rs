//! Requests that are made in somebody's context: the folder, flags and variables with which the page was opened. What
//! has no context is asked of the whole daemon.

use std::sync::Arc;

use metamcp_config::settings::Settings;
use metamcp_types::text;
use metamcp_wire::local::{CommandLine, Hello};
use serde_json::{Value, json};

use super::{AdminError, Answer, approvals, gallery, servers, settings, tools};
use crate::gateway::Gateway;
use crate::serve::daemon::contexts::OpenContext;
use crate::serve::daemon::{ClientContext, Command, Daemon, VERSION};

/// Longest text of an error.
const MAX_WORDS: usize = 2_000;

impl AdminError {
    fn said(code: &'static str, message: impl AsRef<str>) -> AdminError {
        AdminError::new(code, text::clean(message.as_ref(), MAX_WORDS))
    }

    /// A parameter is missing or is not what it should be.
    pub(in crate::serve::daemon) fn wanted(name: &str) -> AdminError {
        AdminError::params(&format!("{name:?} is missing or is not what it should be"))
    }

    pub(in crate::serve::daemon) fn missing(message: impl AsRef<str>) -> AdminError {
        AdminError::said("not_found", message)
    }

    pub(in crate::serve::daemon) fn refused(message: impl AsRef<str>) -> AdminError {
        AdminError::said("refused", message)
    }

    pub(in crate::serve::daemon) fn failed(message: impl AsRef<str>) -> AdminError {
        AdminError::said("failed", message)
    }
}

/// Who opened the page, and from where.
#[derive(Debug)]
pub(in crate::serve::daemon) struct Opener {
    pub(in crate::serve::daemon) hello: Hello,
    pub(in crate::serve::daemon) client: ClientContext,
    /// Whether it was asked for at a terminal, so that its approvals count as a person's.
    pub(in crate::serve::daemon) is_person: bool,
}

/// One request's surroundings.
pub(in crate::serve::daemon) struct Asking {
    pub(in crate::serve::daemon) daemon: Arc<Daemon>,
    pub(in crate::serve::daemon) context: Arc<OpenContext>,
    pub(in crate::serve::daemon) opener: Arc<Opener>,
}

/// Its context counts as used until the request is over, or was given up.
impl Drop for Asking {
    fn drop(&mut self) {
        self.context.left(self.daemon.now());
    }
}

impl Asking {
    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        &self.context.gateway
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.daemon.settings
    }

    /// What a command of ours prints in this context, as JSON.
    pub(super) async fn command_json(&self, words: &[&str]) -> Result<Value, AdminError> {
        let args = self.opener.hello.flags.iter().map(String::as_str).chain(words.iter().copied());
        let line =
            CommandLine { args: args.map(str::to_owned).collect(), ..CommandLine::default() };
        let (loaded, gateway) = (self.context.loaded(), Arc::clone(self.gateway()));
        let hello = self.opener.hello.clone();
        let ran = self.daemon.host.run(Command { hello, line, loaded, gateway }).await;
        let told: Option<Value> = serde_json::from_str(&ran.out).ok();
        match told {
            // A configuration with problems is told as JSON too.
            Some(told) if ran.code == 0 || told.get("settings").is_some() => Ok(told),
            Some(told) => {
                let words = told["errors"][0]["message"].as_str().unwrap_or("the command failed");
                Err(AdminError::refused(words))
            }
            None => Err(AdminError::failed(ran.err.trim().trim_start_matches("error: "))),
        }
    }
}

/// Answers one request.
pub(in crate::serve::daemon) async fn answer(
    asking: &Asking,
    name: &str,
    params: &Value,
) -> Answer {
    match name {
        "server" => servers::one(asking, params).await,
        "restart" => servers::restart(asking, params),
        "enable" => servers::switch(asking, params, true).await,
        "disable" => servers::switch(asking, params, false).await,
        "login" => servers::log_in(asking, params).await,
        "logout" => servers::log_out(asking, params).await,
        "tools" => tools::list(asking, params).await,
        "tool" => tools::one(asking, params).await,
        "search" => tools::search(asking, params).await,
        "run" => tools::run(asking, params).await,
        "approvals" => approvals::list(asking).await,
        "approve" => approvals::approve(asking, params).await,
        "deny" => approvals::deny(asking, params).await,
        "trust" => approvals::trust(asking, params).await,
        "accept" => approvals::accept(asking, params).await,
        "answer_call" => approvals::answer_call(asking, params).await,
        "revoke" => approvals::revoke(asking, params).await,
        "gallery" => gallery::list(asking, params).await,
        "listed" => gallery::one(asking, params),
        "settings" => settings::all(asking).await,
        "configured" => Ok(servers::configured(asking).await),
        "fleet" => asking.command_json(&["fleet", "status", "--json"]).await,
        "fleet_drain" => {
            let node = text_of(params, "node").ok_or_else(|| AdminError::wanted("node"))?;
            asking.command_json(&["fleet", "drain", "--wait", "0s", "--json", "--", node]).await
        }
        "fleet_move" => {
            let server = text_of(params, "server").ok_or_else(|| AdminError::wanted("server"))?;
            asking.command_json(&["fleet", "move", "--json", "--", server]).await
        }
        "head" => head(asking).await,
        _ => super::answer(&asking.daemon, name, params.clone()).await,
    }
}

/// What every view shows: whose daemon this is, and whether something waits for a person.
async fn head(asking: &Asking) -> Answer {
    let daemon = &asking.daemon;
    let waiting = approvals::waiting(asking).await?;
    let uptime = daemon.now().since(daemon.started).as_millis();
    Ok(json!({
        "daemon": {
            "version": VERSION,
            "pid": std::process::id(),
            "uptimeMs": u64::try_from(uptime).unwrap_or(u64::MAX),
            "draining": daemon.is_draining.load(std::sync::atomic::Ordering::Relaxed),
        },
        "folder": asking.opener.client.folder,
        "approvals": waiting,
        "fleet": !asking.context.loaded().config.settings.cluster.servers.is_empty(),
    }))
}

pub(super) fn text_of<'a>(params: &'a Value, name: &str) -> Option<&'a str> {
    params.get(name)?.as_str()
}

pub(super) fn number(params: &Value, name: &str) -> Option<usize> {
    usize::try_from(params.get(name)?.as_u64()?).ok()
}
