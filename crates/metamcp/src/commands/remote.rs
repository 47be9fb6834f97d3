//! A command of a shell that runs inside the daemon, where the servers are: what it needs comes with its hello.
//! Owns: the daemon's side: which commands may run there, their frames, their end.      Never: connects (`remote/shell.rs` does), loads a configuration.
//! In: a hello with its context's configuration and gateway.  Out: frames, the last one with the exit code.
//! Tests: below, and `tests/daemon/commands.rs`.

pub(crate) mod shell;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use metamcp_engine::config::Loaded;
use metamcp_engine::gateway::Gateway;
use metamcp_engine::serve::daemon::CommandOutput;
use metamcp_wire::local::{CommandLine, Frame, Hello};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;

use crate::args;
use crate::console::{self, Output, Shell};
use crate::exit::Exit;

/// Frames that may wait for a shell that reads slowly; the command waits with them.
const FRAMES: usize = 8;

/// A command with its context.
pub(crate) struct Job {
    pub(crate) hello: Hello,
    pub(crate) line: CommandLine,
    pub(crate) loaded: Arc<Loaded>,
    pub(crate) gateway: Arc<Gateway>,
}

/// Serves one command on a connection whose hello was accepted, to its last frame. The other side ends it by closing.
pub(crate) async fn serve(
    job: Job,
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let (say, mut said) = mpsc::channel(FRAMES);
    let (tell, gone) = watch::channel(false);
    let runtime = Handle::current();
    let running = spawn_blocking(move || {
        let closed = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        run_in_daemon(job, runtime, gone, move |frame| say.blocking_send(frame).map_err(closed))
    });
    let mut ignored = [0; 1024];
    loop {
        tokio::select! {
            frame = said.recv() => match frame {
                Some(frame) => output.write_all(&frame.to_line()).await?,
                None => break,
            },
            // A shell says nothing after its hello, so it only matters when it ends.
            read = input.read(&mut ignored) => if matches!(read, Ok(0) | Err(_)) {
                said.close();
                // The command may have ended just now.
                tell.send(true).ok();
                return Ok(());
            },
        }
    }
    let code = match running.await {
        Ok(code) => code,
        Err(_) => {
            let words =
                "error: the command failed inside the daemon; `metamcp daemon logs` has more\n";
            output.write_all(&Frame::Err(words.to_owned()).to_line()).await?;
            Exit::Failure.code()
        }
    };
    output.write_all(&Frame::Exit(code).to_line()).await?;
    output.shutdown().await
}

/// Runs a command on this thread, which may block. Returns its exit code.
pub(crate) fn run_in_daemon(
    job: Job,
    runtime: Handle,
    gone: watch::Receiver<bool>,
    mut out: impl FnMut(Frame) -> io::Result<()> + 'static,
) -> u8 {
    let Job { hello, line, loaded, gateway } = job;
    let CommandLine { args, stdin, files, terminal } = line;
    let sink = move |output: Output, text: String| {
        out(match output {
            Output::Stdout => Frame::Out(text),
            Output::Stderr => Frame::Err(text),
        })
    };
    let shell = Shell {
        folder: PathBuf::from(hello.folder),
        variables: hello.env.into_iter().collect(),
        stdin: stdin.unwrap_or_default(),
        files: files.into_iter().map(|(name, content)| (PathBuf::from(name), content)).collect(),
        width: terminal.stdout.then(|| usize::from(terminal.width)),
        sink: Some(Box::new(sink)),
        loaded: Some(loaded),
        gateway: Some((runtime, gateway)),
        gone: Some(gone),
    };
    let words = std::iter::once("metamcp".to_owned()).chain(args).map(Into::into);
    let words: Vec<std::ffi::OsString> = words.collect();
    let is_allowed = |args: &args::Args| shell::manner(args).is_some();
    console::for_shell(shell, || command(&words, &is_allowed)).code()
}

/// Most that is read of what a command prints for the page.
const MAX_PRINTED: usize = 16 * 1024 * 1024;

/// Runs a command for the daemon's page on this thread, which may block, and returns what it printed.
pub(crate) fn run_for_page(job: Job, runtime: Handle) -> CommandOutput {
    let Job { hello, line, loaded, gateway } = job;
    let printed = std::rc::Rc::new(std::cell::RefCell::new(CommandOutput::default()));
    let sink = {
        let printed = std::rc::Rc::clone(&printed);
        move |output: Output, text: String| {
            let mut printed = printed.borrow_mut();
            if printed.out.len() + printed.err.len() + text.len() > MAX_PRINTED {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match output {
                Output::Stdout => printed.out.push_str(&text),
                Output::Stderr => printed.err.push_str(&text),
            }
            Ok(())
        }
    };
    let shell = Shell {
        folder: PathBuf::from(hello.folder),
        variables: hello.env.into_iter().collect(),
        sink: Some(Box::new(sink)),
        loaded: Some(loaded),
        gateway: Some((runtime, gateway)),
        ..Shell::default()
    };
    let words = std::iter::once("metamcp".to_owned()).chain(line.args).map(Into::into);
    let words: Vec<std::ffi::OsString> = words.collect();
    let code = console::for_shell(shell, || command(&words, &is_of_page)).code();
    let printed = printed.take();
    let plain = |text: &str| anstream::adapter::strip_str(text).to_string();
    CommandOutput { code, out: plain(&printed.out), err: plain(&printed.err) }
}

/// Whether the page runs this command: those that show or edit the configuration, those that ask a fleet, and nothing that asks or approves.
fn is_of_page(args: &args::Args) -> bool {
    use args::{Command, ConfigCommand};
    matches!(
        args.command,
        Some(
            Command::Get(_)
                | Command::Enable(_)
                | Command::Disable(_)
                | Command::Config(ConfigCommand::Check(_))
                // Asks the fleet, whose nodes decide whether they do it.
                | Command::Fleet(_)
        )
    )
}

fn command(words: &[std::ffi::OsString], is_allowed: &dyn Fn(&args::Args) -> bool) -> Exit {
    let args = match args::parse(words.iter().cloned()) {
        Ok(args) => args,
        // The shell parsed the same line; only one of another version reads it differently.
        Err(error) => {
            let mut stream = if error.use_stderr() { console::stderr() } else { console::stdout() };
            let _nobody_to_tell = write!(stream, "{}", error.render().ansi());
            return if error.use_stderr() { Exit::Usage } else { Exit::Success };
        }
    };
    if !is_allowed(&args) {
        let words = "error: this command does not run in the daemon";
        let _nobody_to_tell = writeln!(console::stderr(), "{words}");
        return Exit::Failure;
    }
    let wants_json = args.command.as_ref().is_some_and(args::Command::wants_json);
    crate::ended(crate::run(args), wants_json)
}
