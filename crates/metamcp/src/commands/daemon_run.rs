//! `metamcp daemon run`: the daemon itself, and how it reads a client's configuration.
//! Owns: its start, what it tells who started it.      Never: serves (`metamcp_engine::serve::daemon` does).
//! In: the home of metamcp.  Out: one line on stdout when it is ready; the log on stderr.
//! Tests: `tests/daemon/`.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context;
use metamcp_child::ShimCommand;
use metamcp_config::settings::{Settings, Transport};
use metamcp_engine::config::{self, LoadError, LoadOptions, Loaded};
use metamcp_engine::gateway::Machine;
use metamcp_engine::runtime_folder::Places;
use metamcp_engine::serve::daemon::{
    Boxed, ClientContext, Command, CommandOutput, Daemon, Host, VERSION, local,
};
use metamcp_engine::serve::http::Plan;
use metamcp_engine::{rlimits, telemetry};
use metamcp_sandbox::host::Launch;
use metamcp_wire::local::{Code, Refusal};

use super::{remote, serve};
use crate::args::{self, DaemonRunArgs};
use crate::exit::Exit;
use crate::{ConfigRequest, cannot_load, env, isolation, render};

/// The line that says that connectors may come.
const READY: &str = "ready";

pub(crate) fn run(
    config_request: ConfigRequest,
    args: &DaemonRunArgs,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    #[cfg(windows)]
    if args.apart {
        crate::connector::start_apart()?;
        return Ok(Exit::Success);
    }
    // It outlives the terminal it was started from. Where it leads a group already, as under a service manager, it has none.
    #[cfg(unix)]
    nix::unistd::setsid().ok();
    // It outlives the folder it was started in.
    std::env::set_current_dir(root()).context("the root folder cannot be entered")?;
    let settings = match own_settings(config_request) {
        Ok(settings) => settings,
        Err(error) => return cannot_load(&error, false),
    };
    start_log(&settings);
    let places = Places::find(&settings.home)?;
    let Some(held) = places.hold()? else {
        writeln!(out, "{READY}: another daemon runs already")?;
        return Ok(Exit::Success);
    };
    let shim = ShimCommand::this_binary(crate::SHIM_ARGUMENT)
        .context("the path of this program is not known")?;
    rlimits::prepare().map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        rlimits::survive_large_files();
        let stop = serve::stop_signals()?;
        let listener = places.bind(&held).context("the local socket cannot be opened")?;
        let listener = local::Listener::new(listener)?;
        let machine = Machine::start(&settings, shim);
        let daemon = Daemon::new(machine, settings, Arc::new(Program), places, held);
        if let Some(old) = &args.take_over {
            // Without them its HTTP clients come back by themselves; the rest is not affected.
            daemon.take_over(old);
        }
        // Who started it may have been killed meanwhile; others come all the same.
        writeln!(out, "{READY}").and_then(|()| out.flush()).ok();
        daemon.serve(listener, stop).await;
        anyhow::Ok(())
    })?;
    runtime.shutdown_background();
    Ok(Exit::Success)
}

/// The settings that hold for all clients together: those of the user's own file. A file that cannot be used must not keep
/// clients away that have another one; whoever has this one is told what is wrong with it.
fn own_settings(config_request: ConfigRequest) -> Result<Settings, LoadError> {
    let root = root();
    let loaded = config::load(crate::asked(config_request.flags.clone(), &root));
    if let Ok(loaded) = loaded {
        return Ok(loaded.config.settings);
    }
    let home = config::home(&crate::asked(config_request.flags, &root));
    home.map(|home| Settings { home, ..Settings::default() })
}

/// A folder that stays.
fn root() -> PathBuf {
    let drive = if cfg!(windows) { env::lookup("SystemDrive") } else { None };
    drive.map_or_else(|| PathBuf::from("/"), |drive| PathBuf::from(drive + "\\"))
}

/// Who started it gave it the log as its stderr.
#[cfg(unix)]
fn start_log(settings: &Settings) {
    telemetry::start(settings.log_level);
}

/// Here it inherits nothing, and opens the log itself.
#[cfg(windows)]
fn start_log(settings: &Settings) {
    /// The log is moved aside beyond this.
    const MAX_LOG: u64 = 4 * 1024 * 1024;
    let path = settings.home.join("daemon.log");
    // Without a log it works as well.
    std::fs::create_dir_all(&settings.home).ok();
    if std::fs::symlink_metadata(&path).is_ok_and(|found| found.len() > MAX_LOG) {
        std::fs::rename(&path, path.with_extension("log.1")).ok();
    }
    match std::fs::OpenOptions::new().append(true).create(true).open(&path) {
        Ok(log) => telemetry::start_in(settings.log_level, log),
        Err(_) => telemetry::start(settings.log_level),
    }
    std::panic::set_hook(Box::new(|panicked| tracing::error!("{panicked}")));
}

/// This program, as the daemon needs it.
struct Program;

impl Host for Program {
    fn load(&self, client: &ClientContext) -> Result<Loaded, Refusal> {
        let lookup = |name: &str| client.variables.get(name);
        let misused = |words: String| {
            let exit = Some(Exit::Usage.code());
            Refusal { exit, ..Refusal::new(VERSION, Code::Config, words) }
        };
        let words = std::iter::once("metamcp").chain(client.flags.iter().map(String::as_str));
        let flags =
            args::parse(words.map(Into::into)).map_err(|error| misused(error.to_string()))?;
        config::above(&lookup).map_err(|error| misused(error.to_string()))?;
        let options = LoadOptions {
            flags: flags.settings.given,
            lookup: &lookup,
            variables: client.variables.names(),
            lacks: &isolation::lacks,
            working_dir: &client.folder,
        };
        let mut loaded = config::load(options).map_err(|error| unusable(&error))?;
        let settings = &loaded.config.settings;
        if settings.serve.transport != Transport::Stdio
            && Plan::of(&loaded.config, &lookup).is_ok_and(|plan| plan.is_open())
        {
            let closed = serve::without_provisioning(&loaded);
            loaded.config = closed.map_err(|error| misused(format!("{error:#}")))?;
        }
        Ok(loaded)
    }

    fn plan(
        &self,
        loaded: &Loaded,
        client: &ClientContext,
    ) -> Result<(Plan, Vec<String>), Refusal> {
        let plan = Plan::of(&loaded.config, &|name: &str| client.variables.get(name));
        let plan = plan.map_err(|error| {
            let exit = Some(Exit::Failure.code());
            Refusal {
                exit,
                ..Refusal::new(VERSION, Code::Config, format!("{:#}", anyhow::Error::from(error)))
            }
        })?;
        let mut told = Vec::new();
        serve::tell_who_comes_in(&plan, &mut told).ok();
        Ok((plan, lines(&told)))
    }

    fn worker(&self, loaded: &Loaded) -> Launch {
        crate::worker(&loaded.config.settings.code)
    }

    fn remarks(&self, loaded: &Loaded) -> Vec<String> {
        let mut told = Vec::new();
        // Writing to memory does not fail.
        serve::tell_remarks(loaded, &mut told).ok();
        lines(&told)
    }

    fn command(&self, command: Command, stream: local::Stream) -> Boxed<()> {
        Box::pin(async move {
            let Command { hello, line, loaded, gateway } = command;
            let (input, output) = stream.into_split();
            let served = remote::serve(remote::Job { hello, line, loaded, gateway }, input, output);
            // An error means that nobody reads its frames any more.
            drop(served.await);
        })
    }

    fn run(&self, command: Command) -> Boxed<CommandOutput> {
        Box::pin(async move {
            let Command { hello, line, loaded, gateway } = command;
            let job = remote::Job { hello, line, loaded, gateway };
            let runtime = tokio::runtime::Handle::current();
            let ran = tokio::task::spawn_blocking(move || remote::run_for_page(job, runtime)).await;
            ran.unwrap_or_else(|_| CommandOutput {
                code: Exit::Failure.code(),
                err: "the command failed inside the daemon".to_owned(),
                ..CommandOutput::default()
            })
        })
    }
}

/// What is wrong with a configuration, as the same program would have said it by itself.
fn unusable(error: &LoadError) -> Refusal {
    let mut told = Vec::new();
    render::load_error(&mut told, error).ok();
    let told = anstream::adapter::strip_str(&String::from_utf8_lossy(&told)).to_string();
    let words = told.trim_end().strip_prefix("error: ").unwrap_or(told.trim_end());
    Refusal { exit: Some(Exit::Config.code()), ..Refusal::new(VERSION, Code::Config, words) }
}

fn lines(told: &[u8]) -> Vec<String> {
    let told = anstream::adapter::strip_str(&String::from_utf8_lossy(told)).to_string();
    told.lines().map(str::to_owned).collect()
}
