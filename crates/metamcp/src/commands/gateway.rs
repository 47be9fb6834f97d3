//! The gateway of one command: its own, the same core as `serve` without a client; inside the daemon, that of the
//! command's context, whose servers are shared and stay.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use metamcp_child::ShimCommand;
use metamcp_config::settings::{Given, LogLevel, Origin};
use metamcp_engine::config::Loaded;
use metamcp_engine::gateway::Gateway;
use metamcp_engine::surface::Finished;
use metamcp_engine::surface::discover::Discovered;
use metamcp_engine::{rlimits, telemetry};
use metamcp_surface::discover::DiscoverRequest;
use metamcp_types::next::Audience;
use serde_json::Value;
use tokio::runtime::Handle;

use crate::console;
use crate::exit::misuse;
use crate::progress::Progress;

/// How long a command waits for servers that have never listed their tools: npx and uvx may have to download them
/// first. A model gets its response within the budget of `mcp_discover`.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Runs `work` on a gateway, then stops every server it started; inside the daemon none: other sessions use them, and
/// the next command finds them warm.
pub(crate) fn with<T>(loaded: &Loaded, work: impl AsyncFnOnce(&Gateway) -> T) -> anyhow::Result<T> {
    if let Some((runtime, gateway)) = console::gateway() {
        return shared(&runtime, &gateway, work);
    }
    telemetry::start(log_level(loaded));
    let shim = ShimCommand::this_binary(crate::SHIM_ARGUMENT)
        .context("the path of this program is not known")?;
    rlimits::prepare().map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        rlimits::survive_large_files();
        let worker = crate::worker(&loaded.config.settings.code);
        let gateway = Gateway::start(&loaded.config, shim, worker).for_shell();
        gateway.view.surface.project.send_replace(loaded.project.clone().map(Arc::new));
        let progress = Progress::begin();
        let done = tokio::select! {
            done = work(&gateway) => done,
            never = progress.watch(&gateway) => match never {},
        };
        drop(progress);
        gateway.router.stop_now();
        gateway.router.emptied().await;
        gateway.catalog.written().await;
        gateway.view.surface.end();
        done
    });
    runtime.shutdown_background();
    Ok(done)
}

/// Runs `work` on the gateway of the daemon, from a thread of its own. What it spawns lives on the daemon's runtime.
fn shared<T>(
    runtime: &Handle,
    gateway: &Gateway,
    work: impl AsyncFnOnce(&Gateway) -> T,
) -> anyhow::Result<T> {
    let gateway = gateway.for_shell();
    runtime.block_on(async {
        tokio::select! {
            biased;
            done = work(&gateway) => Ok(done),
            () = console::abandoned() => {
                // Nobody reads this; whoever waited closed the connection.
                Err(io::Error::from(io::ErrorKind::BrokenPipe).into())
            }
        }
    })
}

/// Server failures are part of the output; the log repeats them only if a log level was set.
fn log_level(loaded: &Loaded) -> LogLevel {
    let level = loaded.config.settings.log_level;
    let is_asked_for =
        |given: &Given| given.setting.flag == "log-level" && given.origin != Origin::Default;
    match loaded.values.iter().any(is_asked_for) {
        true => level,
        false => LogLevel::Error,
    }
}

/// A command's output with secrets redacted, as for a model: what is on a screen or in a pipe soon ends in a log.
pub(crate) fn clean(gateway: &Gateway, finished: Finished) -> Finished {
    let view = &gateway.view;
    match finished.to(Audience::Shell) {
        Finished::Result(result) => Finished::Result(view.surface.clean(&result).into_owned()),
        Finished::Protocol { code, message } => {
            Finished::Protocol { code, message: view.surface.clean_text(&message).into_owned() }
        }
        other => other,
    }
}

/// Discovers tools and servers, redacted the same way.
pub(crate) async fn discover(
    gateway: &Gateway,
    request: DiscoverRequest,
) -> Result<Discovered, Finished> {
    let view = &gateway.view;
    match view.discover(request).await {
        Ok(found) => Ok(Discovered {
            text: view.surface.clean_text(&found.text).into_owned(),
            json: serde_json::from_slice(&view.surface.clean(found.json.to_string().as_bytes()))
                .unwrap_or_default(),
            offers: found.offers.map(|offers| view.surface.clean_text(&offers).into_owned()),
            ids: found.ids,
        }),
        Err(finished) => Err(clean(gateway, finished)),
    }
}

/// A tool result as JSON; a malformed request becomes an error.
pub(crate) fn result(finished: Finished) -> anyhow::Result<Value> {
    match finished.to(Audience::Shell) {
        Finished::Refused(_) => anyhow::bail!("the call was rejected without an error"),
        Finished::Result(result) => Ok(serde_json::from_slice(&result)?),
        Finished::Protocol { message, .. } => Err(misuse(message)),
        Finished::Dispatched => anyhow::bail!("the call was dispatched without a response"),
    }
}
