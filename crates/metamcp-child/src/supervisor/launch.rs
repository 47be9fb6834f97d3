//! Starting one shim.
//! Owns: the four descriptors a shim begins with.      Never: waits for it.
//! In: what to run and how to contain it.  Out: a process, our ends of its pipes, the control socket.
//! Tests: `tests/it/children.rs`.

use std::io::{self, IoSlice, PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use super::{Reply, sweep};
use crate::message::{HEADER, Order, Start};
use crate::shim;
use crate::spawner::Shared;
use crate::spec::ShimCommand;

/// Timeout of the first order. A shim that does not read for this long is broken,
/// and the thread has others to serve.
const FIRST_ORDER_TIMEOUT: Duration = Duration::from_secs(5);

/// How a child is to be contained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// By a shim alone.
    Plain,
    /// By the init of a namespace.
    Isolated {
        /// Whether a user namespace may be made where there is no other way.
        user: bool,
    },
}

/// How a shim is started.
pub(super) struct Way<'a> {
    pub(super) own: &'a ShimCommand,
    pub(super) mode: Mode,
    pub(super) lifeline: Option<&'a PipeReader>,
}

/// A start to be tried again without a namespace.
pub(super) struct Retry {
    pub(super) id: u64,
    pub(super) start: Start,
    pub(super) shared: Arc<Shared>,
    pub(super) reply: Reply,
}

/// A shim that has been given its first order.
pub(super) struct Launched {
    pub(super) shim: Child,
    pub(super) control: UnixStream,
    pub(super) stdin: PipeWriter,
    pub(super) stdout: PipeReader,
    pub(super) stderr: PipeReader,
}

#[expect(clippy::disallowed_methods, reason = "this is what contains servers")]
pub(super) fn launch(way: &Way<'_>, start: &Start) -> io::Result<Launched> {
    let (their_stdin, stdin) = io::pipe()?;
    let (stdout, their_stdout) = io::pipe()?;
    let (stderr, their_stderr) = io::pipe()?;
    fcntl(&stderr, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let (control, their_control) = UnixStream::pair()?;
    let stage: &[&str] = match way.mode {
        Mode::Plain => &[shim::HOLD],
        Mode::Isolated { user: false } => &[shim::ISOLATE],
        Mode::Isolated { user: true } => &[shim::ISOLATE, shim::USER],
    };
    // An empty environment: the server's variables are sent over the socket.
    let mut command = Command::new(&way.own.program);
    command
        .arg0(shim::NAME)
        .args(&way.own.args)
        .args(stage)
        .env_clear()
        .stdin(OwnedFd::from(their_control))
        .stdout(their_stdout)
        .stderr(their_stderr);
    let process = sweep::start_shim(&mut command)?;
    // It holds our copies of their ends.
    drop(command);
    // Errors from here on are not fatal: the shim is running, and any problem will show
    // on its socket.
    hand_over(&control, &their_stdin, way.lifeline, start).ok();
    control.set_nonblocking(true).ok();
    Ok(Launched { shim: process, control, stdin, stdout, stderr })
}

/// Sends the first order with the server's stdin attached, and the lifeline. The other two streams are in place already;
/// a fourth descriptor has no place of its own, and one left open across exec could be inherited by
/// whatever else this process starts at that moment.
fn hand_over(
    mut control: &UnixStream,
    stdin: &PipeReader,
    lifeline: Option<&PipeReader>,
    start: &Start,
) -> io::Result<()> {
    control.set_write_timeout(Some(FIRST_ORDER_TIMEOUT))?;
    let frame = Order::Start(start.clone()).encode();
    let (header, body) = frame.split_at(HEADER);
    let rights: Vec<RawFd> =
        [Some(stdin), lifeline].into_iter().flatten().map(AsRawFd::as_raw_fd).collect();
    let attached = [ControlMessage::ScmRights(&rights)];
    let parts = [IoSlice::new(header)];
    sendmsg::<()>(control.as_raw_fd(), &parts, &attached, MsgFlags::empty(), None)?;
    control.write_all(body)
}
