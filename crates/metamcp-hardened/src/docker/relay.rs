//! One container from start to end, in a process of the gateway's: it looks to the gateway like any other worker.
//!
//! What arrives on the socket goes to `docker run`, what that says goes back. Whatever stands in the way
//! is told as a worker tells it, as a layer that is not to be had, so that the gateway refuses with the reason.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use metamcp_sandbox::layer;
use metamcp_sandbox::protocol::{FromWorker, MissingLayer};
use metamcp_sandbox::worker::IN_CONTAINER;

use super::{
    Bounds, Container, PATIENCE, command, ended, find, image_arguments, kill_arguments, now,
    run_arguments, words,
};

/// How long a container is waited for that is not there: its start may have been cut off just before the engine made it.
const LATE: Duration = Duration::from_secs(5);

/// How often is looked for it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long the engine may take to remove a container; it gives what runs in it some seconds to end.
const REMOVAL: Duration = Duration::from_secs(30);

/// What a sweeper is told whose container was seen, so that one that is not there need not be waited for.
const WAS_THERE: &[u8] = b"!";

/// Bytes copied at once.
const PIECE: usize = 64 * 1024;

/// What the client of an engine reads to find the engine, and itself.
pub const VARIABLES: [&str; 9] = [
    "PATH",
    "HOME",
    "XDG_RUNTIME_DIR",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    "DOCKER_TLS_VERIFY",
    "DOCKER_CERT_PATH",
    "DOCKER_API_VERSION",
];

/// How this binary is made a worker, and a sweeper.
#[derive(Debug, Clone, Copy)]
pub struct Subcommands {
    /// The first argument of a worker.
    pub worker: &'static str,
    /// The first argument of a sweeper.
    pub sweeper: &'static str,
}

/// Runs one container and returns the exit code of the process. `args`: the program to ask, and the image.
pub fn relay_main(mut args: impl Iterator<Item = OsString>, own: Subcommands) -> i32 {
    let Some(socket) = socket() else { return 1 };
    let (program, image) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let told = Container {
        name: &format!("metamcp-{}", std::process::id()),
        image: &image.to_string_lossy(),
        // As the engine finds it: the link by which we were started is ours alone.
        program: &std::env::current_exe().unwrap_or_default(),
        args: &[own.worker, IN_CONTAINER],
        bounds: Bounds::default(),
    };
    match start(&PathBuf::from(program), &told, own) {
        Ok((container, sweeper)) => carry(&socket, container, sweeper),
        Err(reason) => refuse(&socket, reason),
    }
    0
}

/// Waits until whoever started it is gone, then removes the container. `args`: the program to ask, and the name.
pub fn sweeper_main(mut args: impl Iterator<Item = OsString>) -> i32 {
    let (program, name) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    // What is read before the end, if anything, is that the container was there.
    let was_there = io::copy(&mut io::stdin().lock(), &mut io::sink()).is_ok_and(|read| read > 0);
    let late = if was_there { Duration::ZERO } else { LATE };
    i32::from(!swept(Path::new(&program), &name.to_string_lossy(), late))
}

/// Removes a container, and if it is not there once more for as long as it may come `late`; whether it was removed.
pub(super) fn swept(program: &Path, name: &str, late: Duration) -> bool {
    let began = now();
    loop {
        let removed = removed(program, name);
        if removed || began.elapsed() >= late {
            return removed;
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Whether the engine says that it removed the container: by its name. Whether one that is not there is an error, its
/// versions disagree about.
fn removed(program: &Path, name: &str) -> bool {
    let child = command(program)
        .args(kill_arguments(name))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else { return false };
    ended(&mut child, REMOVAL).is_some_and(|status| status.success())
        && words(child.stdout.take()) == name
}

/// The socket, which is our standard input.
fn socket() -> Option<UnixStream> {
    io::stdin().as_fd().try_clone_to_owned().ok().map(UnixStream::from)
}

/// Starts the container and whoever removes it.
fn start(program: &Path, told: &Container<'_>, own: Subcommands) -> Result<(Child, Child), String> {
    find(program, PATIENCE).map_err(|refused| refused.to_string())?;
    let is_here = command(program)
        .args(image_arguments(told.image))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .map_err(|error| error.to_string())?;
    if !is_here.success() {
        return Err(format!(
            "the image {0} is not on this machine; get it with `{1} pull {0}`, or set code.image",
            told.image,
            program.display()
        ));
    }
    let list = run_arguments(told).map_err(|refused| refused.to_string())?;
    let sweeper = command(told.program)
        .args([own.sweeper.as_ref(), program.as_os_str(), told.name.as_ref()])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // What ends us must not end it.
        .process_group(0)
        .spawn()
        .map_err(|error| error.to_string())?;
    let container = command(program)
        .args(list)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    Ok((container, sweeper))
}

/// Copies both ways until either side ends, and waits for the container to be gone.
fn carry(socket: &UnixStream, mut container: Child, mut sweeper: Child) {
    let (input, output) = (container.stdin.take(), container.stdout.take());
    if let (Some(mut input), Ok(mut from)) = (input, socket.try_clone()) {
        // It ends with the socket; the container's input ends with it.
        thread::spawn(move || copy(&mut from, &mut input));
    }
    let said = output.map_or(0, |mut output| copy(&mut output, &mut &*socket));
    if said == 0 {
        let reason = words(container.stderr.take());
        refuse(socket, format!("the container ended before the worker was ready: {reason}"));
    }
    socket.shutdown(Shutdown::Both).ok();
    container.kill().ok();
    container.wait().ok();
    // Closed at the end of this, which is what it waits for.
    if let Some(mut told) = sweeper.stdin.take().filter(|_| said > 0) {
        // One that is gone needs no word.
        told.write_all(WAS_THERE).ok();
    }
    sweeper.wait().ok();
}

/// Copies as it comes; how much it was.
fn copy(from: &mut impl Read, to: &mut impl Write) -> u64 {
    let mut piece = vec![0; PIECE];
    let mut all = 0;
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..count]).and_then(|()| to.flush()).is_err() {
            break;
        }
        all += count as u64;
    }
    all
}

fn refuse(mut socket: &UnixStream, reason: String) {
    let missing = vec![MissingLayer { layer: layer::CONTAINER.to_owned(), reason }];
    let mut frame = Vec::new();
    FromWorker::Ready { layers: Vec::new(), missing }.encode(&mut frame);
    // A gateway that is gone needs no reason.
    socket.write_all(&frame).ok();
}
