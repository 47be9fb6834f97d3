//! The shell's side: hands a command to the daemon, if there is one for it, and prints what it says.
//! Owns: which commands go there, what goes with them, when they run here instead.      Never: runs one twice that may have had an effect.
//! In: the parsed command line.  Out: the exit code; `None` where the command has to run in this process.
//! Tests: `tests/config/daemon.rs` with false daemons, `tests/daemon/commands.rs` with a real one.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use metamcp_config::settings::{DaemonMode, Given, Origin};
use metamcp_wire::local::{CommandLine, Frame, Hello, Kind, MAX_HELLO, Refusal, Reply, Terminal};

use crate::args::{Args, Command};
use crate::commands::daemon_client::{self, Absent, Connection};
use crate::commands::{call, config, run};
use crate::exit::Exit;
use crate::{console, env, progress, render};

/// Longest frame: text of a piece (`console::PIECE`), each byte escaped, and room for a daemon with larger ones.
const MAX_FRAME: usize = 1024 * 1024;

/// The setting that says whether there is a daemon, as a flag and as a variable.
const FLAG: &str = "daemon";
const VARIABLE: &str = "METAMCP_DAEMON";

/// How a command uses a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Manner {
    /// It starts one, so that the next of its kind finds servers warm.
    starts: bool,
    /// It changes nothing, so it may run again here if the daemon ends meanwhile.
    repeats: bool,
}

/// How this command uses a daemon; `None` if it does not.
pub(crate) fn manner(args: &Args) -> Option<Manner> {
    // Whoever asks for the log of a command wants it on the screen; that of the daemon is in a file.
    let is_logged = |given: &Given| {
        given.setting.flag == "log-level" && given.origin != Origin::Flag { name: "quiet" }
    };
    if args.verbose > 0 || args.settings.given.iter().any(is_logged) {
        return None;
    }
    match args.command.as_ref()? {
        Command::Call(_) | Command::Run(_) => Some(Manner { starts: true, repeats: false }),
        Command::List(_)
        | Command::Tools(_)
        | Command::Get(_)
        | Command::Search(_)
        | Command::Doctor(_) => Some(Manner { starts: false, repeats: true }),
        _ => None,
    }
}

/// Runs the command in the daemon.
pub(crate) fn attempt(args: &Args) -> Option<anyhow::Result<Exit>> {
    let manner = manner(args)?;
    let mode = mode(args);
    if mode == Some(DaemonMode::Off) {
        return None;
    }
    let is_required = mode == Some(DaemonMode::Require);
    let hello = hello(args)?;
    let home = crate::home(args.settings.given.clone()).ok()?.ok()?;
    let wants_json = args.command.as_ref().is_some_and(Command::wants_json);
    let connection = match connect(&home, &hello, manner, args) {
        Ok(connection) => connection,
        // A command that starts none is not refused because there is none.
        Err(absent) if is_required && (manner.starts || !matches!(absent, Absent::NotRunning)) => {
            return Some(Err(anyhow::anyhow!("{absent}")));
        }
        Err(_) => return None,
    };
    match &connection.reply {
        Reply::Accepted(accepted) => {
            for remark in &accepted.remarks {
                let _nobody_to_tell = writeln!(console::stderr(), "{}", render::visible(remark));
            }
        }
        Reply::Refused(Refusal { error, .. }) if is_required => {
            return Some(Err(anyhow::anyhow!("{}", render::visible(error))));
        }
        // A configuration that cannot be used is explained here as well as there, and what the daemon has no room for
        // is done here.
        Reply::Refused(_) => return None,
    }
    match printed(connection, &mut console::stdout(), &mut console::stderr()) {
        Ok(Ended::Exit(code)) => Some(Ok(Exit::from_code(code))),
        Ok(Ended::Broken { silent: true }) if manner.repeats => None,
        Ok(Ended::Broken { .. }) => Some(unknown(wants_json)),
        Err(error) => Some(Err(error.into())),
    }
}

/// The mode as far as it is known before a configuration is read; the daemon reads that, and refuses where it says off.
fn mode(args: &Args) -> Option<DaemonMode> {
    let given = args.settings.given.iter().find(|given| given.setting.flag == FLAG);
    let given = given.map(|given| given.value.text().into_owned());
    DaemonMode::from_word(given.or_else(|| env::lookup(VARIABLE))?.trim())
}

/// What the daemon has to know; `None` if it cannot be said, or would be too long.
fn hello(args: &Args) -> Option<Vec<u8>> {
    let mut words = std::env::args_os().skip(1).map(std::ffi::OsString::into_string);
    let words = words.by_ref().collect::<Result<Vec<String>, _>>().ok()?;
    // A problem with them is reported by the command itself, here.
    match args.command.as_ref()? {
        Command::Call(args) => call::read_inputs(args).ok()?,
        Command::Run(args) => drop(run::read(&args.file).ok()?),
        _ => {}
    }
    let console::Inputs { stdin, files } = console::inputs();
    let named = |(path, content): (PathBuf, Vec<u8>)| {
        Some((path.into_os_string().into_string().ok()?, content))
    };
    let line = CommandLine {
        args: words,
        stdin,
        files: files.into_iter().map(named).collect::<Option<_>>()?,
        terminal: Terminal {
            stdout: io::stdout().is_terminal(),
            stderr: io::stderr().is_terminal(),
            width: console::columns().map_or(0, |width| u16::try_from(width).unwrap_or(u16::MAX)),
        },
    };
    let hello = hello_of(Kind::Command(line), &args.settings.given)?;
    let line = hello.to_line();
    (line.len() <= MAX_HELLO).then_some(line)
}

/// A hello of this process with its context; `None` if that cannot be said in UTF-8.
pub(crate) fn hello_of(kind: Kind, given: &[Given]) -> Option<Hello> {
    let utf8 = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    Some(Hello {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kind,
        pid: std::process::id(),
        folder: console::folder().ok()?.into_os_string().into_string().ok()?,
        flags: flags(given),
        env: env::all().into_iter().filter_map(utf8).collect(),
    })
}

/// The flags that are part of a context: all but those of the command itself.
fn flags(given: &[Given]) -> Vec<String> {
    let is_of_context = |given: &&Given| !["log-level", FLAG].contains(&given.setting.flag);
    // In one word, so that no value is taken for a flag.
    let word = |given: &Given| format!("--{}={}", given.setting.flag, given.value.text());
    given.iter().filter(is_of_context).map(word).collect()
}

fn connect(home: &Path, hello: &[u8], manner: Manner, args: &Args) -> Result<Connection, Absent> {
    match daemon_client::ask(home, hello) {
        Err(Absent::NotRunning) if manner.starts && wants_one(args) => {
            daemon_client::start(home).map_err(|error| Absent::Unusable(format!("{error:#}")))?;
            daemon_client::ask(home, hello)
        }
        asked => asked,
    }
}

/// Whether the configuration wants a daemon started. What is wrong with it is explained by the command, here.
fn wants_one(args: &Args) -> bool {
    let loaded = crate::load(args.settings.given.clone());
    let loaded = loaded.ok().and_then(Result::ok);
    loaded.is_some_and(|loaded| loaded.config.settings.daemon.mode != DaemonMode::Off)
}

/// How a command in the daemon ended.
#[derive(Debug, PartialEq, Eq)]
enum Ended {
    Exit(u8),
    /// The connection ended first; whether nothing had been printed.
    Broken {
        silent: bool,
    },
}

/// Prints frames until the last.
fn printed(
    mut connection: Connection,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<Ended> {
    let mut working = Some(progress::step("working"));
    let mut silent = true;
    loop {
        let frame = match daemon_client::line(&mut connection.input, MAX_FRAME) {
            Ok(Some(line)) => Frame::parse(&line).ok(),
            Ok(None) | Err(_) => None,
        };
        drop(working.take());
        match frame {
            Some(Frame::Out(text)) => {
                silent = false;
                out.write_all(text.as_bytes())?;
                out.flush()?;
            }
            Some(Frame::Err(text)) => {
                silent = false;
                err.write_all(text.as_bytes())?;
            }
            Some(Frame::Exit(code)) => return Ok(Ended::Exit(code)),
            None => return Ok(Ended::Broken { silent }),
        }
    }
}

/// The daemon ended before the command did.
fn unknown(wants_json: bool) -> anyhow::Result<Exit> {
    let words = "the daemon ended before the command did; whether it took effect is not known";
    if wants_json {
        writeln!(console::stdout(), "{:#}", config::failure_json(words))?;
    } else {
        let label = render::styled(render::RED, "error");
        writeln!(console::stderr(), "{label}: {words}")?;
        let hint = "`metamcp daemon logs` may say why; check before you repeat it";
        render::hint(&mut console::stderr(), Some(hint))?;
    }
    Ok(Exit::Unavailable)
}
