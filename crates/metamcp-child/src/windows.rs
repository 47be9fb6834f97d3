//! Children on Windows, as far as safe code reaches.
//! Owns: the same API as on Unix.      Never: claims to contain what a server starts itself.
//! In: `Spec`, `Escalation`.  Out: `Child`, `Handle`, `ExitWatch`.
//! Tests: none have run; it is compiled.
//!
//! The system's own container is the job object, which needs either code this project forbids or one
//! more dependency. Until then only the server itself is killed, and what it started may live on.
//! There is no signal to ask with either: the end of stdin is the one polite request.

use std::ffi::OsString;
use std::io;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Instant;

use metamcp_types::escalation::{Escalation, Next, Step};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, watch};

use crate::clock;
use crate::environment;
use crate::spec::{Containment, Exit, ShimCommand, SpawnError, Spec, Tier};
use crate::stderr_tail::StderrTail;

pub type Stdin = ChildStdin;
pub type Stdout = ChildStdout;

/// Keeps a console window from opening for each server.
const CREATE_NO_WINDOW: u32 = 0x0800_0000;

/// There are no shims here.
pub fn shim_main(_args: impl Iterator<Item = OsString>) -> i32 {
    64
}

/// Starts children. Cheap to clone.
#[derive(Clone)]
pub struct Spawner {
    containment: Containment,
}

impl Spawner {
    /// See the Unix twin; there is no thread and no shim here.
    pub fn start(_shim: ShimCommand, containment: Containment) -> io::Result<Spawner> {
        Ok(Spawner { containment })
    }

    /// Starts a child.
    pub async fn spawn(&self, spec: Spec) -> Result<Child, SpawnError> {
        if self.containment == Containment::Namespace {
            let source = io::Error::from(io::ErrorKind::Unsupported);
            return Err(SpawnError::Namespace { step: "new namespaces", source });
        }
        if spec.sandbox_policy.is_some() {
            return Err(SpawnError::Sandbox { source: io::ErrorKind::Unsupported.into() });
        }
        #[expect(clippy::disallowed_methods, reason = "this is what contains servers")]
        let mut command = Command::new(&spec.program);
        command
            .args(&spec.args)
            .env_clear()
            .envs(environment::for_server(spec.own_variables(), &spec.env, &spec.pass_env, None))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .creation_flags(CREATE_NO_WINDOW)
            .kill_on_drop(true);
        if let Some(cwd) = &spec.cwd {
            command.current_dir(cwd);
        }
        let mut process = command.spawn().map_err(|source| spawn_error(spec, source))?;
        let lost = || SpawnError::Lost;
        let stdin = process.stdin.take().ok_or_else(lost)?;
        let stdout = process.stdout.take().ok_or_else(lost)?;
        let stderr = process.stderr.take().ok_or_else(lost)?;
        let inner = Arc::new(Inner {
            pid: process.id().unwrap_or(0),
            tail: StderrTail::default(),
            state: watch::Sender::new(None),
            kill: Arc::default(),
            descent: Mutex::new(None),
        });
        #[expect(
            clippy::disallowed_methods,
            reason = "tasks have names in the engine, which is above"
        )]
        tokio::spawn(drain(stderr, inner.tail.clone()));
        let (state, kill) = (inner.state.clone(), inner.kill.clone());
        #[expect(
            clippy::disallowed_methods,
            reason = "tasks have names in the engine, which is above"
        )]
        tokio::spawn(async move {
            let status = tokio::select! {
                status = process.wait() => status,
                () = kill.notified() => {
                    process.start_kill().ok();
                    process.wait().await
                }
            };
            let code = status.ok().and_then(|status| status.code());
            state.send_replace(Some(Exit { code, signal: None }));
        });
        Ok(Child { stdin, stdout, handle: Handle { inner } })
    }

    /// How children are contained.
    pub fn tier(&self) -> Tier {
        Tier::Group
    }
}

fn spawn_error(spec: Spec, source: io::Error) -> SpawnError {
    let Spec { program, cwd, .. } = spec;
    match (source.kind(), cwd) {
        (_, Some(cwd)) if !cwd.is_dir() => SpawnError::BadDirectory { cwd, source },
        (io::ErrorKind::NotFound, _) => SpawnError::NotFound { program },
        (io::ErrorKind::PermissionDenied, _) => SpawnError::NotExecutable { program, source },
        (io::ErrorKind::InvalidInput, _) => SpawnError::BadCommand { source },
        _ => SpawnError::Exec { program, source },
    }
}

async fn drain(mut stderr: ChildStderr, tail: StderrTail) {
    let mut chunk = vec![0; 16 * 1024];
    while let Ok(read) = stderr.read(&mut chunk).await {
        if read == 0 {
            break;
        }
        tail.push(&chunk[..read]);
    }
}

/// A running server: its streams and a handle.
pub struct Child {
    pub stdin: Stdin,
    pub stdout: Stdout,
    handle: Handle,
}

pub struct Parts {
    pub stdin: Stdin,
    pub stdout: Stdout,
    pub handle: Handle,
}

impl Child {
    pub fn into_parts(self) -> Parts {
        Parts { stdin: self.stdin, stdout: self.stdout, handle: self.handle }
    }

    /// See [`Handle`].
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// See [`Handle::pid`].
    pub fn pid(&self) -> u32 {
        self.handle.pid()
    }

    /// See [`Handle::stderr`].
    pub fn stderr(&self) -> StderrTail {
        self.handle.stderr()
    }

    /// See [`Handle::watch`].
    pub fn watch(&self) -> ExitWatch {
        self.handle.watch()
    }

    /// See [`Handle::activity`].
    pub fn activity(&self) -> u64 {
        self.handle.activity()
    }
}

/// A handle on a server.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

struct Inner {
    pid: u32,
    tail: StderrTail,
    state: watch::Sender<Option<Exit>>,
    kill: Arc<Notify>,
    descent: Mutex<Option<Instant>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.kill.notify_one();
    }
}

impl Handle {
    /// Waits out the shutdown escalation, of which only the last step exists here.
    pub async fn stop(&self, mut escalation: Escalation) {
        let since = {
            let mut descent = self.inner.descent.lock();
            *descent.get_or_insert_with(clock::now)
        };
        let watch = self.watch();
        loop {
            match escalation.next(since.elapsed()) {
                Next::Take(Step::KillAll) => self.kill_now(),
                Next::Take(_) => {}
                Next::Wait(left) => {
                    if tokio::time::timeout(left, watch.empty()).await.is_ok() {
                        return;
                    }
                }
                Next::Finished => return watch.empty().await,
            }
        }
    }

    /// Kills the server.
    pub fn kill_now(&self) {
        self.inner.kill.notify_one();
    }

    /// The server's pid.
    pub fn pid(&self) -> u32 {
        self.inner.pid
    }

    /// There is no shim here.
    pub fn keeper_pid(&self) -> u32 {
        0
    }

    /// The end of what the server wrote to stderr.
    pub fn stderr(&self) -> StderrTail {
        self.inner.tail.clone()
    }

    pub fn watch(&self) -> ExitWatch {
        ExitWatch { state: self.inner.state.subscribe() }
    }

    /// Output on stderr is the only activity seen here.
    pub fn activity(&self) -> u64 {
        self.inner.tail.total()
    }

    /// How this one is contained.
    pub fn tier(&self) -> Tier {
        Tier::Group
    }
}

/// Waits for a server's end.
#[derive(Debug, Clone)]
pub struct ExitWatch {
    state: watch::Receiver<Option<Exit>>,
}

impl ExitWatch {
    /// Waits until the server ended.
    pub async fn exited(&self) -> Exit {
        match self.state.clone().wait_for(Option::is_some).await {
            Ok(exit) => exit.unwrap_or_default(),
            Err(_) => Exit::default(),
        }
    }

    /// The same: other processes are not seen here.
    pub async fn empty(&self) {
        self.exited().await;
    }

    /// How the server ended, if it did.
    pub fn exit(&self) -> Option<Exit> {
        *self.state.borrow()
    }

    /// Whether the server ended.
    pub fn is_empty(&self) -> bool {
        self.exit().is_some()
    }
}
