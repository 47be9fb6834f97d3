//! metamcp: one MCP server in front of all your MCP servers. See ARCHITECTURE.md for the map.

mod args;
mod commands;
mod connector;
mod console;
mod env;
mod example;
mod exit;
mod install_method;
mod isolation;
mod local_time;
mod progress;
mod prompt;
mod reference;
mod render;
mod terminal;
mod tokens;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use metamcp_config::settings::{CodeProfile, CodeSettings, Given};
use metamcp_engine::config::{self, LoadError, LoadOptions, Loaded, Remark};
#[cfg(target_os = "linux")]
use metamcp_engine::upstream::container_reaper::ARGUMENT as SWEEPER_ARGUMENT;
#[cfg(target_os = "linux")]
use metamcp_hardened::docker::relay;
use metamcp_search::search::Strategy;

use crate::args::{Args, Command, ConfigCommand, ServiceCommand};
use crate::commands::serve::ClientEnd;
use crate::exit::Exit;

/// The first argument with which the gateway starts itself as the parent process (shim) of a server.
pub(crate) const SHIM_ARGUMENT: &str = "__shim";

/// The first argument with which the gateway starts itself as the worker for one script.
const WORKER_ARGUMENT: &str = "__worker";

/// The same, for a worker in a container.
#[cfg(target_os = "linux")]
const CONTAINER_ARGUMENT: &str = "__container_worker";

/// The same, for a worker with the engine as WASM.
#[cfg(all(feature = "hardened", target_os = "linux"))]
const HARDENED_ARGUMENT: &str = "__hardened_worker";

/// The same, for the profile `wasm`.
#[cfg(feature = "hardened")]
const WASM_ARGUMENT: &str = "__wasm_worker";

/// The container client, looked up in `PATH`.
const CONTAINER_ENGINE: &str = "docker";

/// The first argument that turns the binary into one of the example servers.
const EXAMPLE_ARGUMENT: &str = "__example";

/// Stack of the thread that runs the command where the main thread's is too small: as large as a main thread's usually
/// is.
const STACK: usize = 8 * 1024 * 1024;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let first = arguments.nth(1);
    if first.as_ref().is_some_and(|first| first == SHIM_ARGUMENT) {
        let code = metamcp_child::shim_main(arguments);
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    #[cfg(target_os = "linux")]
    if first.as_ref().is_some_and(|first| first == WORKER_ARGUMENT) {
        let code = metamcp_sandbox::worker::worker_main(arguments);
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    #[cfg(target_os = "linux")]
    if first.as_ref().is_some_and(|first| first == CONTAINER_ARGUMENT) {
        let own = relay::Subcommands { worker: WORKER_ARGUMENT, sweeper: SWEEPER_ARGUMENT };
        return ExitCode::from(u8::try_from(relay::relay_main(arguments, own)).unwrap_or(1));
    }
    #[cfg(target_os = "linux")]
    if first.as_ref().is_some_and(|first| first == SWEEPER_ARGUMENT) {
        return ExitCode::from(u8::try_from(relay::sweeper_main(arguments)).unwrap_or(1));
    }
    #[cfg(all(feature = "hardened", target_os = "linux"))]
    if first.as_ref().is_some_and(|first| first == HARDENED_ARGUMENT) {
        let code = metamcp_hardened::worker::worker_main();
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    #[cfg(feature = "hardened")]
    if first.as_ref().is_some_and(|first| first == WASM_ARGUMENT) {
        let code = metamcp_hardened::worker::piped_worker_main();
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    if first.as_ref().is_some_and(|first| first == EXAMPLE_ARGUMENT) {
        return ended(example_server(arguments), false).into();
    }
    if let Some(shell) = env::lookup_os(commands::completions::VARIABLE) {
        return completed(&shell, arguments, first);
    }
    // Before everything that takes time or memory: most processes of this program only pass bytes on to the daemon.
    if let Some(code) = connector::run() {
        return code;
    }
    if metamcp_engine::rlimits::has_small_stack() {
        // The main thread's stack is smaller than what a command needs; a new thread gets the size we request.
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(command);
        if let Ok(code) = thread.map(std::thread::JoinHandle::join) {
            return code.unwrap_or(ExitCode::FAILURE);
        }
    }
    command()
}

/// Parses the command line and runs its command.
fn command() -> ExitCode {
    match args::parse(std::env::args_os()) {
        Ok(args) => {
            let wants_json = args.command.as_ref().is_some_and(Command::wants_json);
            let exit = match commands::remote::shell::attempt(&args) {
                Some(exit) => exit,
                None => run(args),
            };
            ended(exit, wants_json).into()
        }
        Err(error) => {
            // Help and version go to stdout and are not failures; clap knows which is which.
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Success };
            if error.use_stderr() && args::asks_for_json(std::env::args_os()) {
                let told = commands::config::failure_json(&args::what_is_wrong(&error));
                let _nobody_to_tell = writeln!(console::stdout(), "{told:#}");
            } else {
                let _nobody_to_tell = error.print();
            }
            code.into()
        }
    }
}

/// Answers a shell's completion script: `metamcp -- WORDS`.
fn completed(
    shell: &std::ffi::OsStr,
    words: impl Iterator<Item = std::ffi::OsString>,
    first: Option<std::ffi::OsString>,
) -> ExitCode {
    if first.is_none_or(|first| first != "--") {
        return Exit::Usage.into();
    }
    let answered = commands::completions::answer(shell, words.collect(), &mut io::stdout());
    // Whatever went wrong, an error message must not appear on the line somebody is typing.
    if answered.is_ok() { Exit::Success.into() } else { Exit::Failure.into() }
}

/// How to start a worker: from this binary, even after it was replaced on disk.
pub(crate) fn worker(code: &CodeSettings) -> metamcp_sandbox::host::Launch {
    let program = if cfg!(target_os = "linux") {
        "/proc/self/exe".into()
    } else {
        std::env::current_exe().unwrap_or_default()
    };
    let word = match code.profile {
        #[cfg(target_os = "linux")]
        CodeProfile::Docker => {
            let args = [CONTAINER_ARGUMENT, CONTAINER_ENGINE, &code.image].map(Into::into).to_vec();
            let own = |name: &&str| Some(((*name).into(), env::lookup_os(name)?));
            let env = relay::VARIABLES.iter().filter_map(own).collect();
            return metamcp_sandbox::host::Launch { program, args, env, forks: false };
        }
        #[cfg(all(feature = "hardened", target_os = "linux"))]
        CodeProfile::Hardened => HARDENED_ARGUMENT,
        #[cfg(feature = "hardened")]
        CodeProfile::Wasm => WASM_ARGUMENT,
        // Not in this build.
        #[cfg(not(feature = "hardened"))]
        CodeProfile::Wasm => {
            let (program, args) = Default::default();
            return metamcp_sandbox::host::Launch { program, args, env: Vec::new(), forks: false };
        }
        // Without the WASM engine built in, the worker reports no such layer, and the gateway refuses it.
        _ => WORKER_ARGUMENT,
    };
    let forks = word == WORKER_ARGUMENT;
    metamcp_sandbox::host::Launch { program, args: vec![word.into()], env: Vec::new(), forks }
}

fn example_server(arguments: impl Iterator<Item = std::ffi::OsString>) -> anyhow::Result<Exit> {
    let arguments: Vec<String> =
        arguments.map(|word| word.to_string_lossy().into_owned()).collect();
    let (name, rest) = arguments.split_first().context("which example server?")?;
    example::run(name, rest, &mut io::stdin().lock(), &mut io::stdout().lock())?;
    Ok(Exit::Success)
}

/// With `--json`, errors are JSON as well.
pub(crate) fn ended(exit: anyhow::Result<Exit>, wants_json: bool) -> Exit {
    exit.unwrap_or_else(|error| {
        let is_closed_pipe = error.chain().any(|cause| {
            cause
                .downcast_ref::<io::Error>()
                .is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
        });
        if !is_closed_pipe && wants_json {
            let told = commands::config::failure_json(&format!("{error:#}"));
            let _nobody_to_tell = writeln!(console::stdout(), "{told:#}");
        } else if !is_closed_pipe {
            let label = render::styled(render::RED, "error");
            let _nobody_to_tell =
                writeln!(console::stderr(), "{label}: {}", render::visible(&format!("{error:#}")));
        }
        Exit::of(&error)
    })
}

pub(crate) fn run(args: Args) -> anyhow::Result<Exit> {
    if !console::is_remote() {
        metamcp_engine::user_file::tell_of_waiting(|words| {
            let _nobody_to_tell = writeln!(console::stderr(), "metamcp: {words}");
        });
    }
    let Args { settings, command, quiet, verbose } = args;
    let mut out = console::stdout();
    let mut diagnostics = console::stderr();
    let command = command.unwrap_or(Command::Serve);
    let config_request = ConfigRequest { flags: settings.given, json: command.wants_json() };
    if quiet || config_request.json {
        terminal::keep_quiet();
    }
    // Log lines and a spinner would overwrite each other.
    if verbose > 0 || config_request.flags.iter().any(|given| given.setting.flag == "log-level") {
        terminal::keep_still();
    }
    match command {
        Command::Serve => serve(config_request.flags, ClientEnd::Usual, &mut diagnostics),
        // `--undo` must work even if the config file is broken, so that file is not loaded.
        Command::Init(args) if args.undo => match home(config_request.flags)? {
            Ok(home) => commands::init::undo(&home, &args, &mut out, &mut diagnostics),
            Err(error) => cannot_load(&error, config_request.json),
        },
        Command::Init(args) => with_config(config_request, |loaded| {
            commands::init::run(loaded, &args, &mut out, &mut diagnostics)
        }),
        Command::Add(args) => {
            let given = config_request.flags.clone();
            with_config(config_request, |loaded| {
                commands::servers::add(loaded, &given, &args, &mut out)
            })
        }
        Command::AddJson(args) => with_config(config_request, |loaded| {
            commands::servers::add_json(loaded, &args, &mut out)
        }),
        Command::Remove(args) => {
            with_config(config_request, |loaded| commands::servers::remove(loaded, &args, &mut out))
        }
        Command::Import(args) => {
            with_config(config_request, |loaded| commands::import::run(loaded, &args, &mut out))
        }
        Command::Enable(args) => with_config(config_request, |loaded| {
            commands::servers::switch(loaded, &args, true, &mut out)
        }),
        Command::Disable(args) => with_config(config_request, |loaded| {
            commands::servers::switch(loaded, &args, false, &mut out)
        }),
        Command::Trust(args) => commands::trust::run(config_request.flags, &args, &mut out),
        Command::Untrust(args) => {
            with_config(config_request, |loaded| commands::trust::undo(loaded, &args, &mut out))
        }
        Command::Doctor(args) => {
            commands::doctor::run(&load(config_request.flags)?, &args, &mut out)
        }
        Command::Status(args) => {
            with_home(config_request, |home| commands::status::run(home, &args, &mut out))
        }
        Command::Ui(args) => commands::ui::run(&config_request, &args, &mut out, &mut diagnostics),
        Command::Top(args) => {
            let given = config_request.flags.clone();
            with_home(config_request, |home| commands::top::run(home, given, args, &mut out))
        }
        Command::Calls(args) => {
            with_home(config_request, |home| commands::calls::run(home, &args, &mut out))
        }
        Command::Logs(args) => {
            let given = config_request.flags.clone();
            with_home(config_request, |home| commands::logs::run(home, given, &args, &mut out))
        }
        Command::Restart(args) => {
            let given = config_request.flags.clone();
            with_home(config_request, |home| commands::restart::run(home, given, &args, &mut out))
        }
        Command::Audit(command) => {
            with_home(config_request, |home| commands::audit::run(home, &command, &mut out))
        }
        Command::Daemon(command) => commands::daemon::run(config_request, &command, &mut out),
        Command::Fleet(command) => {
            with_config(config_request, |loaded| commands::fleet::run(loaded, &command, &mut out))
        }
        Command::Service(command) => with_home(config_request, |home| {
            let (is_install, args) = match command {
                ServiceCommand::Install(args) => (true, args),
                ServiceCommand::Uninstall(args) => (false, args),
            };
            commands::service::run(home, is_install, args, &mut out, &mut diagnostics)
        }),
        Command::List(args) => {
            with_servers(config_request, |loaded| commands::list::run(loaded, &args, &mut out))
        }
        Command::Tools(args) => {
            with_servers(config_request, |loaded| commands::list::tools(loaded, &args, &mut out))
        }
        Command::Get(args) => {
            with_servers(config_request, |loaded| commands::get::run(loaded, &args, &mut out))
        }
        Command::Search(args) => {
            with_servers(config_request, |loaded| commands::list::search(loaded, &args, &mut out))
        }
        Command::Call(args) => {
            with_servers(config_request, |loaded| commands::call::run(loaded, &args, &mut out))
        }
        Command::Run(args) => with_servers(config_request, |loaded| {
            commands::run::run(loaded, &args, &mut out, &mut diagnostics)
        }),
        // The transformer is stored in the home, which the configuration names; nothing else of it is used.
        Command::Eval(args) if args.strategy.as_deref() == Some(Strategy::Transformer.name()) => {
            with_config(config_request, |loaded| commands::eval::run(&args, Some(loaded), &mut out))
        }
        Command::Eval(args) => commands::eval::run(&args, None, &mut out),
        Command::Model(command) => {
            with_config(config_request, |loaded| commands::model::run(loaded, &command, &mut out))
        }
        Command::Forget(args) => {
            with_config(config_request, |loaded| commands::forget::run(loaded, &args, &mut out))
        }
        Command::Auth(command) => {
            with_servers(config_request, |loaded| commands::auth::run(loaded, &command, &mut out))
        }
        Command::Token(args) => with_config(config_request, |loaded| {
            commands::token::run(loaded, &args, &mut out, &mut diagnostics)
        }),
        Command::Approve(args) => {
            with_config(config_request, |loaded| commands::approve::run(loaded, &args, &mut out))
        }
        Command::Provisioned(command) => with_config(config_request, |loaded| {
            commands::provisioned::run(loaded, &command, &mut out)
        }),
        Command::Registry(command) => with_config(config_request, |loaded| {
            commands::registry::run(loaded, &command, &mut out)
        }),
        Command::Demo(args) => {
            commands::demo::run(args.json, &mut out, &mut diagnostics)?;
            Ok(Exit::Success)
        }
        Command::Config(ConfigCommand::Check(arguments)) => commands::config::check(
            load(config_request.flags)?,
            &arguments,
            &mut out,
            &mut diagnostics,
        ),
        Command::Config(ConfigCommand::Schema) => commands::config::schema(&mut out),
        Command::Config(ConfigCommand::Path(arguments)) => with_config(config_request, |loaded| {
            commands::config::path(loaded, &arguments, &mut out, &mut diagnostics)
        }),
        Command::Config(ConfigCommand::Edit(arguments)) => {
            let given = config_request.flags.clone();
            commands::edit::run(load(config_request.flags)?, &given, &arguments, &mut out)
        }
        Command::Config(ConfigCommand::Docs(arguments)) => commands::config::docs(&arguments),
        Command::Config(ConfigCommand::Man(arguments)) => commands::config::man(&arguments),
        Command::Completions(arguments) => commands::completions::run(&arguments, &mut out),
        Command::Version(arguments) => commands::version::run(&arguments, &mut out),
        Command::Upgrade(arguments) => commands::upgrade::run(&arguments, &mut out),
    }
}

/// What a command needs from the configuration, and how to report that there is none.
pub(crate) struct ConfigRequest {
    pub(crate) flags: Vec<Given>,
    pub(crate) json: bool,
}

/// Runs a command that needs the home of metamcp and nothing else, so that it works with a broken file too.
pub(crate) fn with_home(
    config_request: ConfigRequest,
    command: impl FnOnce(&Path) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    match home(config_request.flags)? {
        Ok(home) => command(&home),
        Err(error) => cannot_load(&error, config_request.json),
    }
}

/// Runs a command that works without a config file, but not with an invalid one.
fn with_config(
    config_request: ConfigRequest,
    command: impl FnOnce(&Loaded) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    match load(config_request.flags)? {
        Ok(loaded) => command(&loaded),
        Err(error) => cannot_load(&error, config_request.json),
    }
}

/// Serves, and reloads the configuration whenever one of its files changes.
fn serve(
    flags: Vec<Given>,
    client: ClientEnd,
    diagnostics: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let working_dir = console::folder().context("the working directory is not known")?;
    let load = move || {
        let flags = flags.clone();
        config::load(asked(flags, &working_dir))
    };
    match load() {
        Ok(loaded) => commands::serve::run(&loaded, Arc::new(load), client, diagnostics),
        Err(error) => cannot_load(&error, false),
    }
}

/// Runs a command that needs servers; with no file and nothing installed it prints how to get started.
fn with_servers(
    config_request: ConfigRequest,
    command: impl FnOnce(&Loaded) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let loaded = load(config_request.flags)?;
    // This explains to a person why a server is missing; scripts find it in the JSON. A variable with a typo in its
    // name may have been meant to request more isolation, so that is reported even with `--json`.
    if let Ok(loaded) = &loaded {
        let waiting = waiting(loaded).filter(|_| !config_request.json);
        let of_this_run = loaded.remarks.iter().filter(|remark| remark.path.is_none()).cloned();
        let told: Vec<Remark> = of_this_run.chain(waiting).collect();
        render::remarks(&mut console::stderr(), &told)?;
    }
    match loaded {
        Ok(loaded) => match commands::advice(&loaded) {
            None => command(&loaded),
            Some(_) if config_request.json => {
                let told = commands::config::nowhere_json(&loaded.source);
                writeln!(console::stdout(), "{told:#}")?;
                Ok(Exit::Config)
            }
            Some(advice) => {
                write!(console::stderr(), "{advice}")?;
                Ok(Exit::Config)
            }
        },
        Err(error) => cannot_load(&error, config_request.json),
    }
}

/// The remark about a project's file that is not trusted yet.
fn waiting(loaded: &Loaded) -> Option<Remark> {
    loaded.project.as_ref().filter(|project| project.is_waiting())?.remark()
}

/// The effective configuration. The outer error is not about the configuration.
pub(crate) fn load(flags: Vec<Given>) -> anyhow::Result<Result<Loaded, LoadError>> {
    if let Some(loaded) = console::loaded() {
        return Ok(Ok(Loaded::clone(&loaded)));
    }
    let working_dir = console::folder().context("the working directory is not known")?;
    Ok(config::load(asked(flags, &working_dir)))
}

/// The home of metamcp, without loading the configuration.
pub(crate) fn home(flags: Vec<Given>) -> anyhow::Result<Result<PathBuf, LoadError>> {
    let working_dir = console::folder().context("the working directory is not known")?;
    Ok(config::home(&asked(flags, &working_dir)))
}

/// The inputs that decide which configuration is loaded, taken from this process.
pub(crate) fn asked(flags: Vec<Given>, working_dir: &Path) -> LoadOptions<'_> {
    LoadOptions {
        flags,
        lookup: &env::lookup,
        variables: env::names(),
        lacks: &isolation::lacks,
        working_dir,
    }
}

pub(crate) fn cannot_load(error: &LoadError, json: bool) -> anyhow::Result<Exit> {
    if json {
        writeln!(console::stdout(), "{:#}", commands::config::error_json(error))?;
    } else {
        render::load_error(&mut console::stderr(), error)?;
    }
    Ok(Exit::Config)
}
