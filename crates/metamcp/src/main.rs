//! metamcp: one MCP server in front of all your MCP servers. See ARCHITECTURE.md for the map.

mod args;
mod commands;
mod env;
mod example;
mod exit;
mod isolation;
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

use crate::args::{Args, Command, ConfigCommand};
use crate::exit::Exit;

/// The first argument by which the gateway starts itself as the parent of a child server.
pub(crate) const SHIM_ARGUMENT: &str = "__shim";

/// The first argument by which the gateway starts itself as a worker for one script.
const WORKER_ARGUMENT: &str = "__worker";

/// The same for a worker in a container.
#[cfg(target_os = "linux")]
const CONTAINER_ARGUMENT: &str = "__container_worker";

/// The same with the engine as WASM.
#[cfg(feature = "hardened")]
const HARDENED_ARGUMENT: &str = "__hardened_worker";

/// What is asked for containers, looked for like any command.
const CONTAINER_ENGINE: &str = "docker";

/// The first argument that makes the binary one of the example servers.
const EXAMPLE_ARGUMENT: &str = "__example";

/// Stack of the thread that works where the system gives the first one too little: as much as that usually has.
const STACK: usize = 8 * 1024 * 1024;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os();
    let first = arguments.nth(1);
    if first.as_ref().is_some_and(|first| first == SHIM_ARGUMENT) {
        let code = metamcp_child::shim_main(arguments);
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
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
    #[cfg(feature = "hardened")]
    if first.as_ref().is_some_and(|first| first == HARDENED_ARGUMENT) {
        let code = metamcp_hardened::worker::worker_main();
        return ExitCode::from(u8::try_from(code).unwrap_or(1));
    }
    if first.as_ref().is_some_and(|first| first == EXAMPLE_ARGUMENT) {
        return ended(example_server(arguments), false);
    }
    if let Some(shell) = env::lookup_os(commands::completions::VARIABLE) {
        return completed(&shell, arguments, first);
    }
    if metamcp_engine::rlimits::has_small_stack() {
        // What the system gives us is not what it takes, but a thread has what we say.
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(command);
        if let Ok(code) = thread.map(std::thread::JoinHandle::join) {
            return code.unwrap_or(ExitCode::FAILURE);
        }
    }
    command()
}

/// What the command line asks for.
fn command() -> ExitCode {
    match args::parse(std::env::args_os()) {
        Ok(args) => {
            let wants_json = args.command.as_ref().is_some_and(Command::wants_json);
            ended(run(args), wants_json)
        }
        Err(error) => {
            // Help and version go to stdout and are no failure; clap knows which is which.
            let code = if error.use_stderr() { Exit::Usage } else { Exit::Success };
            if error.use_stderr() && args::asks_for_json(std::env::args_os()) {
                let told = commands::config::failure_json(&args::what_is_wrong(&error));
                let _nobody_to_tell = writeln!(anstream::stdout(), "{told:#}");
            } else {
                let _nobody_to_tell = error.print();
            }
            code.into()
        }
    }
}

/// Answers the completion script of a shell: `metamcp -- WORDS`.
fn completed(
    shell: &std::ffi::OsStr,
    words: impl Iterator<Item = std::ffi::OsString>,
    first: Option<std::ffi::OsString>,
) -> ExitCode {
    if first.is_none_or(|first| first != "--") {
        return Exit::Usage.into();
    }
    let answered = commands::completions::answer(shell, words.collect(), &mut io::stdout());
    // Whatever went wrong, a person who presses a key wants no error among what they type.
    if answered.is_ok() { Exit::Success.into() } else { Exit::Failure.into() }
}

/// How a worker is started: this binary, also after it was replaced on disk.
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
        #[cfg(feature = "hardened")]
        CodeProfile::Hardened => HARDENED_ARGUMENT,
        // Where the engine as WASM was not built in, the worker that starts has no such layer, and is refused.
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

/// Whoever asked for JSON gets JSON, however it ended.
fn ended(exit: anyhow::Result<Exit>, wants_json: bool) -> ExitCode {
    exit.unwrap_or_else(|error| {
        let is_closed_pipe = error.chain().any(|cause| {
            cause
                .downcast_ref::<io::Error>()
                .is_some_and(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
        });
        if !is_closed_pipe && wants_json {
            let told = commands::config::failure_json(&format!("{error:#}"));
            let _nobody_to_tell = writeln!(anstream::stdout(), "{told:#}");
        } else if !is_closed_pipe {
            let label = render::styled(render::RED, "error");
            let _nobody_to_tell =
                writeln!(anstream::stderr(), "{label}: {}", render::visible(&format!("{error:#}")));
        }
        Exit::of(&error)
    })
    .into()
}

fn run(args: Args) -> anyhow::Result<Exit> {
    metamcp_engine::user_file::tell_of_waiting(|words| {
        let _nobody_to_tell = writeln!(anstream::stderr(), "metamcp: {words}");
    });
    let Args { settings, command, quiet, verbose } = args;
    let mut out = anstream::stdout();
    let mut diagnostics = anstream::stderr();
    let command = command.unwrap_or(Command::Serve);
    let config_request = ConfigRequest { flags: settings.given, json: command.wants_json() };
    if quiet || config_request.json {
        terminal::keep_quiet();
    }
    // A log and a spinner would write over each other.
    if verbose > 0 || config_request.flags.iter().any(|given| given.setting.flag == "log-level") {
        terminal::keep_still();
    }
    match command {
        Command::Serve => serve(config_request.flags, &mut diagnostics),
        // Taking it back is what is left to somebody whose file was broken, so that file is not asked.
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
        // The transformer lies in the home, which the configuration names; nothing else is asked of that.
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
        Command::Approve(args) => with_config(config_request, |loaded| {
            commands::provisioned::approve(loaded, &args, &mut out)
        }),
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
        Command::Completions(arguments) => commands::completions::run(&arguments, &mut out),
        Command::Version(arguments) => commands::version::run(&arguments, &mut out),
    }
}

/// What a command wants of the configuration, and how it wants to hear that there is none.
struct ConfigRequest {
    flags: Vec<Given>,
    json: bool,
}

/// Runs a command that works without a config file as well, but not with one that cannot be used.
fn with_config(
    config_request: ConfigRequest,
    command: impl FnOnce(&Loaded) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    match load(config_request.flags)? {
        Ok(loaded) => command(&loaded),
        Err(error) => cannot_load(&error, config_request.json),
    }
}

/// Serves, and reads the configuration again whenever one of its files changes.
fn serve(flags: Vec<Given>, diagnostics: &mut dyn Write) -> anyhow::Result<Exit> {
    let working_dir = std::env::current_dir().context("the working directory is not known")?;
    let load = move || {
        let flags = flags.clone();
        config::load(asked(flags, &working_dir))
    };
    match load() {
        Ok(loaded) => commands::serve::run(&loaded, Arc::new(load), diagnostics),
        Err(error) => cannot_load(&error, false),
    }
}

/// Runs a command that makes no sense without servers; without a file and without one installed it says how to begin.
fn with_servers(
    config_request: ConfigRequest,
    command: impl FnOnce(&Loaded) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let loaded = load(config_request.flags)?;
    // Whoever looks for a server that is not there finds here why; scripts find it in the answer. A variable with a
    // mistake in its name may be a wish for more isolation, so that it is told even where only data is wanted.
    if let Ok(loaded) = &loaded {
        let waiting = waiting(loaded).filter(|_| !config_request.json);
        let of_this_run = loaded.remarks.iter().filter(|remark| remark.path.is_none()).cloned();
        let told: Vec<Remark> = of_this_run.chain(waiting).collect();
        render::remarks(&mut anstream::stderr(), &told)?;
    }
    match loaded {
        Ok(loaded) => match commands::advice(&loaded) {
            None => command(&loaded),
            Some(_) if config_request.json => {
                let told = commands::config::nowhere_json(&loaded.source);
                writeln!(anstream::stdout(), "{told:#}")?;
                Ok(Exit::Config)
            }
            Some(advice) => {
                write!(anstream::stderr(), "{advice}")?;
                Ok(Exit::Config)
            }
        },
        Err(error) => cannot_load(&error, config_request.json),
    }
}

/// What is to be said of a project's file that is not used.
fn waiting(loaded: &Loaded) -> Option<Remark> {
    loaded.project.as_ref().filter(|project| project.is_waiting())?.remark()
}

/// The configuration in force. The outer error is not about the configuration.
fn load(flags: Vec<Given>) -> anyhow::Result<Result<Loaded, LoadError>> {
    let working_dir = std::env::current_dir().context("the working directory is not known")?;
    Ok(config::load(asked(flags, &working_dir)))
}

/// The home of metamcp, without a look at the configuration.
fn home(flags: Vec<Given>) -> anyhow::Result<Result<PathBuf, LoadError>> {
    let working_dir = std::env::current_dir().context("the working directory is not known")?;
    Ok(config::home(&asked(flags, &working_dir)))
}

/// What decides which configuration is loaded, as this process finds it.
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
        writeln!(anstream::stdout(), "{:#}", commands::config::error_json(error))?;
    } else {
        render::load_error(&mut anstream::stderr(), error)?;
    }
    Ok(Exit::Config)
}
