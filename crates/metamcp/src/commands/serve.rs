//! `metamcp serve`: the gateway on stdin and stdout, or over HTTP.

use std::borrow::Cow;
use std::io::{IsTerminal, Write};
use std::sync::Arc;

use anyhow::{Context, bail};
use metamcp_child::ShimCommand;
use metamcp_config::config::{Config, Severity};
use metamcp_config::settings::{Given, LogLevel, Origin, Settings, Transport};
use metamcp_engine::cluster_key::Keyring;
use metamcp_engine::config::Loaded;
use metamcp_engine::gateway::Gateway;
use metamcp_engine::serve::http::Plan;
use metamcp_engine::{reload, rlimits, serve, stream, task, telemetry};
use tokio::sync::mpsc;

use crate::env;
use crate::exit::Exit;
use crate::render;

/// Signals that may be queued; more add nothing.
const SIGNALS: usize = 4;

/// How long calls may go on after Windows said that this process will end: of the five seconds that it has, enough are
/// left to end its servers.
#[cfg(windows)]
const LAST_GRACE: std::time::Duration = std::time::Duration::from_secs(2);

/// Where the client is.
pub(crate) enum ClientEnd {
    /// On stdin and stdout, or it comes over HTTP: the configuration decides.
    Usual,
    /// At the other end of a socket: a connector of this very process that has lost its daemon.
    #[cfg(unix)]
    Socket(std::os::unix::net::UnixStream),
    /// The same without sockets.
    #[cfg(windows)]
    Here(tokio::io::DuplexStream),
}

/// Serves until the client disconnects or a signal arrives. `diagnostics` is for people: stdout belongs to the client.
/// `load` is called again whenever a config file changes.
pub(crate) fn run(
    loaded: &Loaded,
    load: Arc<reload::Load>,
    client: ClientEnd,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    metamcp_engine::config::above(&env::lookup)?;
    let is_usual = matches!(client, ClientEnd::Usual);
    if is_usual {
        tell(loaded, diagnostics)?;
    }
    let settings = &loaded.config.settings;
    telemetry::start(settings.log_level);
    let shim = ShimCommand::this_binary(crate::SHIM_ARGUMENT)
        .context("the path of this program is not known")?;
    let mut plan = match settings.serve.transport {
        _ if !is_usual => None,
        Transport::Stdio => None,
        Transport::Http | Transport::Sse => Some(Plan::of(&loaded.config, &env::lookup)?),
    };
    let config = match &plan {
        Some(plan) if plan.is_open() => Cow::Owned(without_provisioning(loaded)?),
        _ => Cow::Borrowed(&loaded.config),
    };
    rlimits::prepare().map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        rlimits::survive_large_files();
        let stop = stop_signals()?;
        // The port before everything else: without it there is no reason to start anything.
        let bound = match &plan {
            Some(plan) => Some(plan.listen().await?),
            None => None,
        };
        let keyring = in_fleet(plan.as_mut(), settings).await?;
        let worker = crate::worker(&settings.code);
        let gateway = Gateway::start_in_fleet(&config, shim, worker, keyring);
        gateway.join_fleet(settings).await?;
        gateway.warm(&gateway.view, settings.pool.min_size as usize);
        reload::watch(&gateway, loaded, load);
        match plan.zip(bound) {
            Some((plan, (listener, address))) => {
                // In one piece: whoever started it reads the line, and other threads write to stderr too.
                diagnostics.write_all(format!("metamcp: listening on {address}\n").as_bytes())?;
                tell_who_comes_in(&plan, diagnostics)?;
                serve::http::serve(&gateway, listener, plan, settings.timeouts.drain, stop).await;
            }
            None => {
                let options = serve::stdio::Options {
                    line_limit: settings.limits.line_bytes,
                    drain: settings.timeouts.drain,
                    ends_lines: false,
                    roots: None,
                    can_answer: Arc::new(stream::has_reader),
                };
                match client {
                    ClientEnd::Usual => {
                        let (input, output) = (stream::input(), stream::output());
                        serve::stdio::serve(&gateway, input, output, options, stop).await;
                    }
                    #[cfg(unix)]
                    ClientEnd::Socket(socket) => {
                        socket.set_nonblocking(true)?;
                        let socket = tokio::net::UnixStream::from_std(socket)?;
                        let (input, output) = socket.into_split();
                        serve::stdio::serve(&gateway, input, output, options, stop).await;
                    }
                    #[cfg(windows)]
                    ClientEnd::Here(stream) => {
                        let (input, output) = tokio::io::split(stream);
                        serve::stdio::serve(&gateway, input, output, options, stop).await;
                    }
                }
            }
        }
        gateway.catalog.written().await;
        gateway.view.surface.end();
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(Exit::Success)
}

/// Reads the key of a fleet, where it is one of a fleet's gateways that shall serve. Without a bus a client on a pipe stays
/// with its process, so only those over HTTP make a fleet.
async fn in_fleet(
    plan: Option<&mut Plan>,
    settings: &Settings,
) -> anyhow::Result<Option<Arc<Keyring>>> {
    if plan.is_none() && settings.cluster.servers.is_empty() {
        return Ok(None);
    }
    let Some(keyring) = Keyring::load(&settings.cluster).await? else { return Ok(None) };
    keyring.keep_reading();
    if let Some(plan) = plan {
        plan.share(Arc::clone(&keyring), &settings.cluster);
    }
    Ok(Some(keyring))
}

/// The configuration for a gateway without authentication: any program could request the installation of servers and
/// approve it in the user's place. What the operator enabled explicitly is not disabled silently.
pub(super) fn without_provisioning(loaded: &Loaded) -> anyhow::Result<Config> {
    let is_wished = |given: &Given| {
        given.setting.flag == "provision"
            && given.origin != Origin::Default
            && loaded.config.settings.provision.is_on
    };
    if let Some(wish) = loaded.values.iter().find(|given| is_wished(given)) {
        bail!(
            "provisioning is on ({}) and no token is required: any program that reaches the port could have servers installed; \
             set --provision false, or remove --no-auth and --allow-unauthenticated so that clients need a token",
            wish.origin
        );
    }
    let mut config = loaded.config.clone();
    config.settings.provision.is_on = false;
    Ok(config)
}

/// How clients authenticate. The token itself is only in its file: stderr ends up in logs.
pub(super) fn tell_who_comes_in(plan: &Plan, diagnostics: &mut dyn Write) -> std::io::Result<()> {
    if plan.is_open() {
        writeln!(
            diagnostics,
            "metamcp: warning: no token is required: every program and every user that reaches this port, sandboxed \
             servers included, can use all of your servers; provisioning is off"
        )?;
    }
    if let Some(path) = &plan.generated {
        writeln!(
            diagnostics,
            "metamcp: clients need the token in {}, as the header `Authorization: Bearer TOKEN`; `metamcp token` prints \
             it, and `metamcp init --http` writes it into your clients",
            path.display()
        )?;
    }
    Ok(())
}

/// Remarks for the operator before start-up, filtered by the log level.
fn tell(loaded: &Loaded, diagnostics: &mut dyn Write) -> std::io::Result<()> {
    tell_remarks(loaded, diagnostics)?;
    let is_stdio = loaded.config.settings.serve.transport == Transport::Stdio;
    if is_stdio && std::io::stdin().is_terminal() {
        // Somebody typed the bare command: nothing would ever happen, with no explanation.
        writeln!(
            diagnostics,
            "metamcp: waiting for an MCP client on stdin; usually a client starts this. \
             Try `metamcp demo` or `metamcp --help`; Ctrl-C ends it."
        )?;
    }
    Ok(())
}

/// Those about the configuration.
pub(super) fn tell_remarks(loaded: &Loaded, diagnostics: &mut dyn Write) -> std::io::Result<()> {
    let level = loaded.config.settings.log_level;
    let is_shown = |severity: Severity| match severity {
        Severity::Error => level != LogLevel::Off,
        Severity::Warning => !matches!(level, LogLevel::Off | LogLevel::Error),
        Severity::Note => matches!(level, LogLevel::Info | LogLevel::Debug | LogLevel::Trace),
    };
    let shown: Vec<_> =
        loaded.remarks.iter().filter(|remark| is_shown(remark.severity)).cloned().collect();
    render::remarks(diagnostics, &shown)?;
    match super::advice(loaded) {
        Some(advice) if is_shown(Severity::Warning) => {
            writeln!(diagnostics, "metamcp: serving without servers: {advice}")
        }
        _ => Ok(()),
    }
}

/// One message per termination signal: the first requests a graceful shutdown, the second an immediate one.
#[cfg(unix)]
pub(super) fn stop_signals() -> anyhow::Result<mpsc::Receiver<()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A closing terminal: without this the process would end on the spot, with its calls unanswered.
    let mut hangup = signal(SignalKind::hangup())?;
    let (say, heard) = mpsc::channel(SIGNALS);
    task::spawn("signals", async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
            }
            if say.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok(heard)
}

/// The same for what Windows tells a console program. When its window is closed, its user logs off or the system shuts
/// down, it has five seconds, so there the second message follows by itself.
#[cfg(windows)]
pub(super) fn stop_signals() -> anyhow::Result<mpsc::Receiver<()>> {
    use tokio::signal::windows::{ctrl_break, ctrl_c, ctrl_close, ctrl_logoff, ctrl_shutdown};
    let (mut interrupt, mut brk) = (ctrl_c()?, ctrl_break()?);
    let (mut close, mut logoff, mut shutdown) = (ctrl_close()?, ctrl_logoff()?, ctrl_shutdown()?);
    let (say, heard) = mpsc::channel(SIGNALS);
    task::spawn("signals", async move {
        loop {
            let is_last = tokio::select! {
                _ = interrupt.recv() => false,
                _ = brk.recv() => false,
                _ = close.recv() => true,
                _ = logoff.recv() => true,
                _ = shutdown.recv() => true,
            };
            if say.send(()).await.is_err() {
                return;
            }
            if is_last {
                tokio::time::sleep(LAST_GRACE).await;
                if say.send(()).await.is_err() {
                    return;
                }
            }
        }
    });
    Ok(heard)
}
