//! The connector: the process that a client starts, between it and the user's daemon.
//! Owns: whether there is one, its session with the daemon, words to the person behind it.      Never: decides what a lost daemon means (`calls::connector` does), knows servers.
//! In: the command line, stdin, stdout.  Out: an exit code, or that this process has to serve by itself.
//! Tests: `tests/daemon/`.
//!
//! A client starts one each, and most of the time they wait, so this is kept small: no clap, no runtime, no parsed JSON;
//! one thread and one `poll` (on Windows, where not everything can be polled, a runtime of one thread and what it needs).

mod answers;
mod buffer;
mod ends;
mod launch;
mod listen;
mod relay;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod streams;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread::JoinHandle;

use metamcp_config::settings::Given;
use metamcp_engine::runtime_folder::Places;
use metamcp_wire::local::{Code, Hello, Kind, Refusal};

use self::ends::Link;
use self::launch::{Launcher, Trouble};
use crate::commands::serve::ClientEnd;
use crate::exit::Exit;
use crate::{args, env, render};

pub(crate) use self::launch::start;
#[cfg(windows)]
pub(crate) use self::launch::start_apart;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Longest text of a daemon that is shown.
const MAX_SHOWN: usize = 4000;

/// Whether a daemon is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Auto,
    Require,
}

/// Serves the client through the daemon, to its end. `None`: this command line is not about that, or there is no daemon to
/// be had, which was said.
pub(crate) fn run() -> Option<ExitCode> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let given = args::serving(&words)?;
    let mode = mode(&given)?;
    let kind = if is_stdio(&given) { Kind::Session } else { Kind::Listen };
    let home = crate::home(given).ok()?.ok()?;
    let served = match session(&words, &home, mode, kind) {
        // Only who reads the configuration knows that it wants a listener.
        Err(Trouble::Refused(refusal)) if refusal.code == Code::Http => {
            session(&words, &home, mode, Kind::Listen)
        }
        served => served,
    };
    match served {
        Ok(code) => Some(code),
        Err(Trouble::Refused(refusal)) if refusal.code == Code::Off => None,
        Err(Trouble::Refused(refusal)) if refusal.code == Code::Config => Some(refused(&refusal)),
        Err(trouble) => without(mode, &trouble),
    }
}

fn session(words: &[OsString], home: &Path, mode: Mode, kind: Kind) -> Result<ExitCode, Trouble> {
    let unusable = |words: &str| Trouble::Unusable(words.to_owned());
    let hello = hello(words, kind).ok_or_else(|| {
        unusable("the working directory or a flag is not UTF-8, which the daemon cannot be told")
    })?;
    let places = Places::find(home).map_err(|error| Trouble::Unusable(error.to_string()))?;
    let mut launcher = Launcher::new(places, home.to_owned(), hello.to_line());
    let found = launcher.find()?;
    if hello.kind == Kind::Listen {
        return Ok(listen::run(launcher, hello, found).into());
    }
    tell(&found.accepted.remarks);
    if std::io::stdin().is_terminal() {
        say(
            "waiting for an MCP client on stdin; usually a client starts this. Try `metamcp demo` or `metamcp --help`; \
             Ctrl-C ends it.",
        );
    }
    Ok(relay::run(launcher, found, mode).into())
}

/// Who this is, for the daemon.
fn hello(words: &[OsString], kind: Kind) -> Option<Hello> {
    let folder = std::env::current_dir().ok()?.into_os_string().into_string().ok()?;
    let words: Option<Vec<&str>> = words.iter().map(|word| word.to_str()).collect();
    let mut flags = Vec::new();
    let mut words = words?.into_iter();
    while let Some(word) = words.next() {
        match word {
            "serve" => {}
            // It has been decided.
            "--daemon" => drop(words.next()),
            word if word.starts_with("--daemon=") => {}
            word => flags.push(word.to_owned()),
        }
    }
    let (version, pid) = (VERSION.to_owned(), std::process::id());
    Some(Hello { version, kind, pid, folder, flags, env: variables() })
}

/// What is not UTF-8 no configuration could name.
fn variables() -> Vec<(String, String)> {
    let text = |(name, value): (OsString, OsString)| {
        let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
        // Some shells export functions under names that are none.
        Some((name, value)).filter(|(name, _)| !name.is_empty() && !name.contains('='))
    };
    env::all().into_iter().filter_map(text).collect()
}

/// `None` where no daemon is wanted, or the value is wrong, which is reported where settings are read.
fn mode(given: &[Given]) -> Option<Mode> {
    let flag = given.iter().find(|given| given.setting.flag == "daemon");
    let said = flag.map(|given| given.value.text().into_owned());
    match said.or_else(|| env::lookup("METAMCP_DAEMON")).as_deref() {
        None | Some("" | "auto") => Some(Mode::Auto),
        Some("require") => Some(Mode::Require),
        Some(_) => None,
    }
}

fn is_stdio(given: &[Given]) -> bool {
    let flag = given.iter().find(|given| given.setting.flag == "transport");
    let said = flag.map(|given| given.value.text().into_owned());
    said.or_else(|| env::lookup("METAMCP_TRANSPORT")).is_none_or(|word| word == "stdio")
}

/// There is no daemon to be had: service goes on in this process, unless one is required.
fn without(mode: Mode, trouble: &Trouble) -> Option<ExitCode> {
    match mode {
        Mode::Auto => {
            say(&format!("serving this client without the daemon: {trouble}"));
            None
        }
        Mode::Require => {
            say(&format!("the daemon is required and cannot be had: {trouble}"));
            Some(Exit::Unavailable.into())
        }
    }
}

/// The configuration cannot be used, whoever would serve.
fn refused(refusal: &Refusal) -> ExitCode {
    let mut err = anstream::stderr();
    let label = render::styled(render::RED, "error");
    let _nobody_to_tell = writeln!(err, "{label}: {}", shown(&refusal.error));
    if let Some(hint) = &refusal.hint {
        let _nobody_to_tell = writeln!(err, "  {}", shown(hint));
    }
    tell(&refusal.remarks);
    refusal.exit.map_or_else(|| Exit::Config.into(), ExitCode::from)
}

fn tell(remarks: &[String]) {
    for remark in remarks {
        let _nobody_to_tell = writeln!(std::io::stderr(), "{}", shown(remark));
    }
}

/// One line to the person, or to the client's log.
fn say(words: &str) {
    let _nobody_to_tell = writeln!(std::io::stderr(), "metamcp: {}", shown(words));
}

fn shown(words: &str) -> String {
    metamcp_types::text::clean(words.trim_end(), MAX_SHOWN).into_owned()
}

/// Serves on a socket instead of stdin and stdout, as the daemon would: for when there is none any more.
fn serve_alone() -> std::io::Result<(Link, JoinHandle<()>)> {
    /// As large as a main thread's.
    const STACK: usize = 8 * 1024 * 1024;
    #[cfg(unix)]
    let (ours, theirs) = Link::pair()?;
    #[cfg(windows)]
    let (ours, theirs) = ends::pair();
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let flags = args::serving(&words).unwrap_or_default();
    let thread = std::thread::Builder::new().name("gateway".to_owned()).stack_size(STACK);
    #[cfg(unix)]
    let client = ClientEnd::Socket(theirs);
    #[cfg(windows)]
    let client = ClientEnd::Here(theirs);
    let gateway = thread.spawn(move || {
        if let Err(error) = crate::serve(flags, client, &mut std::io::stderr()) {
            say(&format!("{error:#}"));
        }
    })?;
    Ok((ours, gateway))
}

/// The program to start as the daemon: this one, even after it was replaced on disk.
fn program() -> PathBuf {
    if cfg!(target_os = "linux") {
        "/proc/self/exe".into()
    } else {
        std::env::current_exe().unwrap_or_default()
    }
}
