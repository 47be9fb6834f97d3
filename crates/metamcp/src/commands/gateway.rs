//! A gateway for the length of one command: the same core as `serve`, without a client.

use anyhow::Context;
use metamcp_child::ShimCommand;
use metamcp_engine::config::Loaded;
use metamcp_engine::gateway::Gateway;
use metamcp_engine::surface::Finished;
use metamcp_engine::telemetry;
use serde_json::Value;

/// Runs `work` on a gateway, then ends every server it started.
pub(crate) fn with<T>(loaded: &Loaded, work: impl AsyncFnOnce(&Gateway) -> T) -> anyhow::Result<T> {
    telemetry::start(loaded.config.settings.log_level);
    let shim = ShimCommand::this_binary(crate::SHIM_ARGUMENT)
        .context("the path of this program is not known")?;
    let mut config = loaded.config.clone();
    // Nobody could come back for what is kept.
    config.settings.limits.result_bytes = 0;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let gateway = Gateway::start(&config, shim, crate::worker(&loaded.config.settings.code));
        let done = work(&gateway).await;
        gateway.router.stop_now();
        gateway.router.emptied().await;
        gateway.catalog.written().await;
        gateway.view.surface.end();
        done
    });
    runtime.shutdown_background();
    Ok(done)
}

/// A tool result as a program reads it; a malformed request becomes the error it is.
pub(crate) fn result(finished: Finished) -> anyhow::Result<Value> {
    match finished.in_words() {
        Finished::Refused(_) => anyhow::bail!("the call was refused without a word"),
        Finished::Result(result) => Ok(serde_json::from_slice(&result)?),
        Finished::Protocol { message, .. } => anyhow::bail!(message),
        Finished::Handed => anyhow::bail!("the call was handed on without an answer"),
    }
}
