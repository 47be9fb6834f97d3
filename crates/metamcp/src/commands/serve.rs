//! `metamcp serve`: the gateway on stdin and stdout.

use std::io::Write;

use anyhow::Context;
use metamcp_child::ShimCommand;
use metamcp_core::config::Severity;
use metamcp_core::settings::LogLevel;
use metamcp_engine::config::Loaded;
use metamcp_engine::gateway::Gateway;
use metamcp_engine::{serve, stream};

use crate::exit::Exit;
use crate::render;

/// Serves until the client goes or a signal comes. `diagnostics` is where people look: stdout belongs to the client.
pub(crate) fn run(loaded: &Loaded, diagnostics: &mut dyn Write) -> anyhow::Result<Exit> {
    tell(loaded, diagnostics)?;
    let settings = &loaded.config.settings;
    let shim = ShimCommand::this_binary(crate::SHIM_ARGUMENT)
        .context("the path of this program is not known")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let stop = stop_signal()?;
        let gateway = Gateway::start(&loaded.config, shim);
        let limit = settings.limits.line_bytes;
        serve::stdio::serve(&gateway, stream::input(), stream::output(), limit, stop).await;
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(Exit::Success)
}

/// What the operator should know before it starts, as far as the log level lets it through.
fn tell(loaded: &Loaded, diagnostics: &mut dyn Write) -> std::io::Result<()> {
    let level = loaded.config.settings.log_level;
    let is_shown = |severity: Severity| match severity {
        Severity::Warning => !matches!(level, LogLevel::Off | LogLevel::Error),
        Severity::Note => matches!(level, LogLevel::Info | LogLevel::Debug | LogLevel::Trace),
    };
    let shown: Vec<_> =
        loaded.remarks.iter().filter(|remark| is_shown(remark.severity)).cloned().collect();
    render::remarks(diagnostics, &shown)?;
    match loaded.source.advice() {
        Some(advice) if is_shown(Severity::Warning) => {
            writeln!(diagnostics, "metamcp: serving without servers: {advice}")
        }
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
