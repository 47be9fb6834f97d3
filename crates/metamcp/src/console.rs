//! Where a command reads and writes: its own process or, inside the daemon, the process of the shell it runs for.
//! Owns: streams, working directory, variables and given files of the command that runs on this thread.      Never: decides what a command does.
//! In: a `Shell`, from `commands/remote.rs`; without one, this process.  Out: streams, paths, values.
//! Tests: below, and `tests/daemon`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use metamcp_engine::config::Loaded;
use metamcp_engine::env::found;
use metamcp_engine::gateway::Gateway;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Bytes written together: what a screen shows comes in one piece, and a long result in pieces that fit any queue.
const PIECE: usize = 16 * 1024;

/// A stream of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Stdout,
    Stderr,
}

/// Takes what a command writes to the other process; an error means that nobody reads it any more.
pub(crate) type Sink = Box<dyn FnMut(Output, String) -> io::Result<()>>;

/// The process that a command runs for, as it described itself.
#[derive(Default)]
pub(crate) struct Shell {
    pub(crate) folder: PathBuf,
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) stdin: Vec<u8>,
    /// Files that only it can read, or that it read already, by the names on its command line.
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    /// The columns of its terminal, if its stdout is one.
    pub(crate) width: Option<usize>,
    pub(crate) sink: Option<Sink>,
    /// The configuration of its context.
    pub(crate) loaded: Option<Arc<Loaded>>,
    /// The gateway of its context, with the runtime that drives it.
    pub(crate) gateway: Option<(Handle, Arc<Gateway>)>,
    /// Closed or true once nobody waits for the command any more.
    pub(crate) gone: Option<watch::Receiver<bool>>,
}

/// A shell with what its command wrote and did not send yet.
struct Served {
    shell: Shell,
    pending: Vec<u8>,
    is_of: Output,
    is_quiet: bool,
}

thread_local! {
    /// The shell that the command on this thread runs for; none for a command of this process.
    static SERVED: RefCell<Option<Rc<RefCell<Served>>>> = const { RefCell::new(None) };
}

/// Runs `command` for another process. It must not hand work to other threads that asks for streams or variables.
pub(crate) fn for_shell<T>(shell: Shell, command: impl FnOnce() -> T) -> T {
    /// Resets the thread, which serves other commands later, even after a panic.
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            SERVED.set(None);
        }
    }
    let served = Served { shell, pending: Vec::new(), is_of: Output::Stdout, is_quiet: false };
    SERVED.set(Some(Rc::new(RefCell::new(served))));
    let _leave = Leave;
    let done = command();
    // Nobody may be there to read it any more.
    drop(stdout().flush());
    done
}

/// Asks the shell of this thread's command; `None` where it is a command of this process.
fn served<T>(ask: impl FnOnce(&mut Served) -> T) -> Option<T> {
    let served = SERVED.with_borrow(Clone::clone)?;
    let mut served = served.borrow_mut();
    Some(ask(&mut served))
}

/// Whether this command runs for another process.
pub(crate) fn is_remote() -> bool {
    served(|_| ()).is_some()
}

/// The gateway that a command inside the daemon has to use.
pub(crate) fn gateway() -> Option<(Handle, Arc<Gateway>)> {
    served(|served| served.shell.gateway.clone()).flatten()
}

/// The configuration that a command inside the daemon has to use.
pub(crate) fn loaded() -> Option<Arc<Loaded>> {
    served(|served| served.shell.loaded.clone()).flatten()
}

/// Completes when nobody waits for this command any more; never in a process of its own, which is simply ended.
pub(crate) async fn abandoned() {
    match served(|served| served.shell.gone.clone()).flatten() {
        // An error means that whoever would have told us is gone.
        Some(mut gone) => drop(gone.wait_for(|is_gone| *is_gone).await),
        None => std::future::pending().await,
    }
}

/// Standard output. Colours are escape codes, stripped where there is no terminal; the shell's process does that for
/// commands inside the daemon.
pub(crate) fn stdout() -> Stream {
    stream(Output::Stdout)
}

/// Standard error, in the same way.
pub(crate) fn stderr() -> Stream {
    stream(Output::Stderr)
}

fn stream(output: Output) -> Stream {
    Stream(match (is_remote(), output) {
        (true, output) => Inner::Served(output),
        (false, Output::Stdout) => Inner::Own(Box::new(anstream::stdout())),
        (false, Output::Stderr) => Inner::Own(Box::new(anstream::stderr())),
    })
}

/// Where a command writes.
pub(crate) struct Stream(Inner);

enum Inner {
    Own(Box<dyn Write>),
    Served(Output),
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Inner::Own(own) => own.write(bytes),
            Inner::Served(output) => {
                let output = *output;
                served(|served| served.write(output, bytes)).unwrap_or(Ok(()))?;
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Inner::Own(own) => own.flush(),
            Inner::Served(_) => served(|served| served.send(true)).unwrap_or(Ok(())),
        }
    }
}

impl Served {
    fn write(&mut self, output: Output, bytes: &[u8]) -> io::Result<()> {
        if self.is_of != output {
            // What was written first is shown first.
            self.send(true)?;
            self.is_of = output;
        }
        for part in bytes.chunks(PIECE) {
            self.pending.extend_from_slice(part);
            if self.pending.len() >= PIECE {
                self.send(false)?;
            }
        }
        Ok(())
    }

    /// Sends what is pending. A character that was written by half waits for its rest, unless this is `all`.
    fn send(&mut self, all: bool) -> io::Result<()> {
        let whole = match std::str::from_utf8(&self.pending) {
            Err(error) if error.error_len().is_none() && !all => error.valid_up_to(),
            _ => self.pending.len(),
        };
        let rest = self.pending.split_off(whole);
        let ready = std::mem::replace(&mut self.pending, rest);
        if ready.is_empty() {
            return Ok(());
        }
        let text = String::from_utf8(ready)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        self.shell.sink.as_mut().map_or(Ok(()), |sink| sink(self.is_of, text))
    }
}

/// What this process has read. A pipe can be read once, but the command may be tried in the daemon first, and then run
/// here.
static READ: Mutex<Inputs> = Mutex::new(Inputs { stdin: None, files: BTreeMap::new() });

/// Contents of a command's inputs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inputs {
    pub(crate) stdin: Option<Vec<u8>>,
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
}

/// What this process has read so far.
pub(crate) fn inputs() -> Inputs {
    READ.lock().clone()
}

/// All of standard input. It can be read once.
pub(crate) fn read_stdin() -> io::Result<String> {
    if let Some(stdin) = served(|served| std::mem::take(&mut served.shell.stdin)) {
        return utf8(stdin);
    }
    let mut read = READ.lock();
    if read.stdin.is_none() {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes)?;
        read.stdin = Some(bytes);
    }
    utf8(read.stdin.clone().unwrap_or_default())
}

/// A file named on the command line.
pub(crate) fn read_file(path: &Path) -> io::Result<String> {
    if let Some(given) = served(|served| served.shell.files.get(path).cloned()) {
        return given.map_or_else(|| std::fs::read_to_string(absolute(path)), utf8);
    }
    let mut read = READ.lock();
    if let Some(bytes) = read.files.get(path) {
        return utf8(bytes.clone());
    }
    let bytes = std::fs::read(path)?;
    read.files.insert(path.to_owned(), bytes.clone());
    utf8(bytes)
}

fn utf8(bytes: Vec<u8>) -> io::Result<String> {
    let invalid =
        || io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8");
    String::from_utf8(bytes).map_err(|_| invalid())
}

/// A path as the command means it: relative to its working directory, which is not always that of the process.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    served(|served| served.shell.folder.join(path)).unwrap_or_else(|| path.to_owned())
}

/// The working directory.
pub(crate) fn folder() -> io::Result<PathBuf> {
    served(|served| served.shell.folder.clone()).map_or_else(std::env::current_dir, Ok)
}

/// The variables of the other process; `None` for a command of this one.
pub(crate) fn variables() -> Option<Vec<(OsString, OsString)>> {
    let own = |(name, value): (&String, &String)| (name.into(), value.into());
    served(|served| served.shell.variables.iter().map(own).collect())
}

/// One of its variables; `own` has those of a command of this process.
pub(crate) fn variable<T: From<String>>(name: &str, own: impl FnOnce() -> Option<T>) -> Option<T> {
    served(|served| found(&served.shell.variables, name).cloned().map(T::from)).unwrap_or_else(own)
}

/// Whether somebody could be asked: stdin is a terminal of this process.
pub(crate) fn is_stdin_terminal() -> bool {
    !is_remote() && io::stdin().is_terminal()
}

/// Whether stderr is a terminal of this process. A display that changes in place is shown by the process that has it.
pub(crate) fn is_stderr_terminal() -> bool {
    !is_remote() && io::stderr().is_terminal()
}

/// The columns of the terminal, as reported, if stdout is one.
pub(crate) fn columns() -> Option<usize> {
    if let Some(width) = served(|served| served.shell.width) {
        return width;
    }
    io::stdout().is_terminal().then(|| usize::from(::console::Term::stdout().size().1))
}

/// Sets `--quiet` for this command; false where it is a command of this process, which has a switch of its own.
pub(crate) fn keep_quiet() -> bool {
    served(|served| served.is_quiet = true).is_some()
}

/// Whether `--quiet` is set for this command; `None` for a command of this process.
pub(crate) fn is_quiet() -> Option<bool> {
    served(|served| served.is_quiet)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{SyncSender, sync_channel};

    use super::*;

    /// More than a test writes.
    const PIECES: usize = 64;

    fn shell(say: SyncSender<(Output, String)>) -> Shell {
        let sink: Sink = Box::new(move |output, text| {
            say.send((output, text)).map_err(|_| io::ErrorKind::BrokenPipe.into())
        });
        Shell { sink: Some(sink), ..Shell::default() }
    }

    #[test]
    fn what_is_written_arrives_in_its_order_and_in_whole_characters() {
        let (say, heard) = sync_channel(PIECES);
        for_shell(shell(say), || {
            let (mut out, mut err) = (stdout(), stderr());
            write!(out, "one ").unwrap();
            write!(out, "two").unwrap();
            write!(err, "careful").unwrap();
            let long = "é".repeat(PIECE);
            out.write_all(b"x").unwrap();
            for byte in long.as_bytes() {
                out.write_all(&[*byte]).unwrap();
            }
        });
        let all: Vec<(Output, String)> = heard.iter().collect();
        assert_eq!(all[0], (Output::Stdout, "one two".to_owned()));
        assert_eq!(all[1], (Output::Stderr, "careful".to_owned()));
        let rest: String = all[2..].iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(rest, format!("x{}", "é".repeat(PIECE)));
        assert!(all[2..].iter().all(|(_, text)| text.len() <= PIECE + 1), "in pieces");
    }

    #[test]
    fn a_reader_that_is_gone_is_a_closed_pipe() {
        let (say, heard) = sync_channel(PIECES);
        drop(heard);
        for_shell(shell(say), || {
            let mut out = stdout();
            write!(out, "x").unwrap();
            assert_eq!(out.flush().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        });
    }

    #[test]
    fn a_command_sees_its_shell_and_the_thread_is_clean_afterwards() {
        let folder = std::env::temp_dir();
        let shell = Shell {
            folder: folder.clone(),
            variables: [("ONLY_THERE".to_owned(), "1".to_owned())].into(),
            stdin: b"typed".to_vec(),
            files: [(PathBuf::from("/dev/fd/63"), b"piped".to_vec())].into(),
            width: Some(77),
            ..Shell::default()
        };
        for_shell(shell, || {
            assert_eq!(super::folder().unwrap(), folder);
            assert_eq!(absolute(Path::new("a")), folder.join("a"));
            assert_eq!(crate::env::lookup("ONLY_THERE").as_deref(), Some("1"));
            assert_eq!(crate::env::lookup("PATH"), None);
            assert_eq!(crate::env::names(), ["ONLY_THERE"]);
            assert_eq!(read_stdin().unwrap(), "typed");
            assert_eq!(read_file(Path::new("/dev/fd/63")).unwrap(), "piped");
            assert_eq!(columns(), Some(77));
            assert!(!is_stdin_terminal() && !is_stderr_terminal());
            assert!(keep_quiet());
            assert_eq!(is_quiet(), Some(true));
        });
        assert!(!is_remote() && is_quiet().is_none());
        assert!(crate::env::lookup("PATH").is_some());
    }
}
