//! `metamcp restart`: a server started anew.
//! Owns: its words and exit codes.      Never: ends a process: the daemon does.
//! In: the name of a server.  Out: what was restarted, as text or JSON.
//! Tests: `tests/daemon/admin.rs`.

use std::io::Write;
use std::path::Path;

use anyhow::Context;
use metamcp_config::settings::Given;
use metamcp_types::nearest::nearest;
use serde::Deserialize;
use serde_json::{Value, json};

use super::daemon_client::{Admin, Answered, Refused};
use super::live;
use crate::args::RestartArgs;
use crate::exit::{Exit, misuse};
use crate::render::visible;

/// What the daemon says of a restart.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Restarted {
    instances: Vec<Instance>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Instance {
    was_running: bool,
}

pub(crate) fn run(
    home: &Path,
    given: Vec<Given>,
    args: &RestartArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut admin = match Admin::connect(home)? {
        Ok(admin) => admin,
        Err(absent) => return Ok(live::absent(&absent, args.json, out)?),
    };
    match admin.ask("restart", &json!({ "server": args.server }))? {
        Answered::Value(value) if args.json => writeln!(out, "{value:#}")?,
        Answered::Value(value) => writeln!(out, "{}", words(&args.server, &value)?)?,
        Answered::Refused(refused) => match unknown(&args.server, given, &refused)? {
            NotInUse if args.json => {
                writeln!(out, "{:#}", json!({ "server": args.server, "instances": [] }))?;
            }
            NotInUse => {
                let server = visible(&args.server);
                writeln!(out, "{server} is not running; the next call starts it.")?;
            }
        },
    }
    Ok(Exit::Success)
}

/// What came of a restart, in a sentence.
pub(crate) fn words(server: &str, answer: &Value) -> anyhow::Result<String> {
    let restarted: Restarted = serde_json::from_value(answer.clone())
        .context("the daemon's answer to the restart cannot be read")?;
    let running = restarted.instances.iter().filter(|one| one.was_running).count();
    let server = visible(server);
    Ok(match running {
        0 => format!("{server} was not running; the next call starts it."),
        1 => format!("{server} ends once its calls are finished; the next call starts it anew."),
        _ => format!(
            "{running} processes of {server} end once their calls are finished; the next calls start them anew."
        ),
    })
}

/// A server is configured, but the daemon has nothing of it yet.
pub(crate) struct NotInUse;

/// What to make of it that the daemon does not know a server: an error, unless the configuration has it.
pub(crate) fn unknown(
    server: &str,
    given: Vec<Given>,
    refused: &Refused,
) -> anyhow::Result<NotInUse> {
    if refused.code != "not_found" {
        return Err(anyhow::anyhow!("{refused}"));
    }
    match configured(server, given) {
        Configured::Yes => Ok(NotInUse),
        Configured::Near(near) => {
            let message = visible(&refused.message);
            Err(misuse(format!("{message}; did you mean `{}`?", visible(&near))))
        }
        Configured::No => Err(misuse(refused.to_string())),
    }
}

/// Whether the configuration of this folder has a server.
enum Configured {
    Yes,
    /// No, but one with nearly that name.
    Near(String),
    No,
}

fn configured(server: &str, given: Vec<Given>) -> Configured {
    // A configuration that cannot be used has no servers; other commands say why.
    let Ok(Ok(loaded)) = crate::load(given) else { return Configured::No };
    let names = || loaded.config.servers.iter().map(|one| one.name.as_str());
    if names().any(|name| name == server) {
        return Configured::Yes;
    }
    let near = nearest(server, names(), 1);
    near.first().map_or(Configured::No, |near| Configured::Near((*near).to_owned()))
}
