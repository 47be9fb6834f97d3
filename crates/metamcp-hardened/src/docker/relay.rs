//! One container from start to end, in a child process of the gateway that looks like any other worker to it.
//!
//! Data from the socket goes to `docker run`, and its output goes back. Any failure is reported as a worker reports it,
//! as a layer that is missing, so that the gateway refuses with the reason.

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

/// How long to wait for a container that does not exist: its start may have been interrupted just before the engine
/// made it.
const LATE: Duration = Duration::from_secs(5);

/// Polling interval for it.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// How long the engine may take to remove a container; it gives the processes in it some seconds to exit.
const REMOVAL: Duration = Duration::from_secs(30);

/// Tells the sweeper that the container existed, so that it need not wait for a missing one.
const WAS_THERE: &[u8] = b"!";

/// Buffer size for copying.
const PIECE: usize = 64 * 1024;

/// The variables that the engine's client needs to find the engine and its own files.
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

/// The first arguments that make this binary a worker or a sweeper.
#[derive(Debug, Clone, Copy)]
pub struct Subcommands {
    /// The first argument of a worker.
    pub worker: &'static str,
    /// The first argument of a sweeper.
    pub sweeper: &'static str,
}

/// Runs one container and returns the exit code of the process. `args`: the engine's client program, and the image.
pub fn relay_main(mut args: impl Iterator<Item = OsString>, own: Subcommands) -> i32 {
    let Some(socket) = socket() else { return 1 };
    let (program, image) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    let told = Container {
        name: &format!("metamcp-{}", std::process::id()),
        image: &image.to_string_lossy(),
        // The path that the engine can resolve: the link by which we were started works only for us.
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

/// Waits until its parent is gone, then removes the container. `args`: the engine's client program, and the name.
pub fn sweeper_main(mut args: impl Iterator<Item = OsString>) -> i32 {
    let (program, name) = (args.next().unwrap_or_default(), args.next().unwrap_or_default());
    // Any input before the end means that the container existed.
    let was_there = io::copy(&mut io::stdin().lock(), &mut io::sink()).is_ok_and(|read| read > 0);
    let late = if was_there { Duration::ZERO } else { LATE };
    i32::from(!swept(Path::new(&program), &name.to_string_lossy(), late))
}

/// Removes a container, retrying for up to `late` while it does not exist; whether it was removed.
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

/// Whether the engine confirms the removal by printing the name. Engine versions disagree on whether a missing
/// container is an error.
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

/// Starts the container and its sweeper.
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
        // A signal that kills us must not kill it.
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

/// Copies in both directions until either side ends, then waits for the container to be removed.
fn carry(socket: &UnixStream, mut container: Child, mut sweeper: Child) {
    let (input, output) = (container.stdin.take(), container.stdout.take());
    if let (Some(mut input), Ok(mut from)) = (input, socket.try_clone()) {
        // This ends with the socket, and closes the container's input.
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
    // Dropping it at the end of this block closes the pipe, which the sweeper waits for.
    if let Some(mut told) = sweeper.stdin.take().filter(|_| said > 0) {
        // A sweeper that is gone needs no message.
        told.write_all(WAS_THERE).ok();
    }
    sweeper.wait().ok();
}

/// Copies data as it arrives; returns the number of bytes.
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
