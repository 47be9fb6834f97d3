//! The start of one server: what is run, and how it gets into its job before it runs.
//! Owns: the command line, the pipes, the suspended start.      Never: waits for the end of more than the server.
//! In: `Spec`.  Out: a process in its job, with its pipes; or why not.
//! Tests: `cargo xtask test --windows`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;

use process_wrap::tokio::{ChildWrapper, CommandWrap, CommandWrapper, JobObject, KillOnDrop};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

use super::job::ServerJob;
use crate::environment;
use crate::program::{self, Line, Search};
use crate::spec::{Exit, SpawnError, Spec};

/// A console of its own, without a window: what is typed at ours, and Ctrl-C with it, is not for servers.
const CREATE_NO_WINDOW: u32 = 0x0800_0000;
/// It runs only after it is in its job.
const CREATE_SUSPENDED: u32 = 0x0000_0004;

/// Longest batch file that is read: npm's have 30 lines.
const LONGEST: u64 = 16 * 1024;

/// A server about to be started.
pub(super) struct Prepared {
    program: OsString,
    cwd: Option<PathBuf>,
    line: Line,
    env: Vec<(OsString, OsString)>,
}

/// A server in its job.
pub(super) struct Launched {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
    pub(super) running: Running,
    pub(super) job: Arc<ServerJob>,
    pub(super) pid: u32,
}

/// The process of a server, and the right to end it with all of its own.
pub(super) struct Running {
    child: Box<dyn ChildWrapper>,
}

impl Running {
    /// Waits for the server alone.
    pub(super) async fn exited(&mut self) -> Exit {
        // Of the child inside: the outer one would wait for the job by blocking a thread.
        let status = self.child.inner_mut().wait().await;
        Exit { code: status.ok().and_then(|status| status.code()), signal: None }
    }

    /// Ends the whole job.
    pub(super) fn kill_all(&mut self) {
        // A job without processes cannot be ended, which is what is wanted.
        self.child.start_kill().ok();
    }
}

/// Finds what a spec names, as this system would, but never in the current folder. Reads the disk.
pub(super) fn look_up(spec: Spec) -> Result<Prepared, SpawnError> {
    spec.check()?;
    let env = environment::for_server(spec.own_variables(), &spec.env, &spec.pass_env, None);
    let Spec { program, args, cwd, .. } = spec;
    let own = std::env::current_dir().unwrap_or_default();
    let base = cwd.as_ref().map_or_else(|| own.clone(), |cwd| own.join(cwd));
    if let Some(cwd) = cwd.as_ref().filter(|_| !base.is_dir()) {
        let source = io::ErrorKind::NotADirectory.into();
        return Err(SpawnError::BadDirectory { cwd: cwd.clone(), source });
    }
    let search = Search::of(&env, base);
    let Some(found) = program::find(&program, &search, &Path::is_file) else {
        return Err(SpawnError::NotFound { program });
    };
    let line = program::line(&found, args, &search, &Path::is_file, &read);
    let line = line.map_err(|why| SpawnError::NotExecutable {
        program: program.clone(),
        source: io::Error::new(io::ErrorKind::Unsupported, why),
    })?;
    Ok(Prepared { program, cwd, line, env })
}

/// The text of a batch file.
fn read(file: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(file).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Starts it, suspended until it is in its job. Dropping the result ends it.
pub(super) fn start(prepared: Prepared) -> Result<Launched, SpawnError> {
    let Prepared { program, cwd, line, env } = prepared;
    let job = ServerJob::new().map_err(|source| SpawnError::Shim { source })?;
    let job = Arc::new(job);
    #[expect(clippy::disallowed_methods, reason = "this is what contains servers")]
    let mut command = Command::new(&line.program);
    command
        .args(&line.args)
        .env_clear()
        .envs(env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(cwd) = &cwd {
        command.current_dir(cwd);
    }
    // In this order: into our job, then into the one that can be ended as a whole, whose wrapper lets it run; the flags
    // last, because that wrapper sets its own.
    let mut command = CommandWrap::from(command);
    command.wrap(KillOnDrop).wrap(InJob(Arc::clone(&job))).wrap(JobObject).wrap(Flags);
    let mut child = command.spawn().map_err(|source| spawn_error(program, source))?;
    let lost = || SpawnError::Lost;
    Ok(Launched {
        stdin: child.stdin().take().ok_or_else(lost)?,
        stdout: child.stdout().take().ok_or_else(lost)?,
        stderr: child.stderr().take().ok_or_else(lost)?,
        pid: child.id().unwrap_or(0),
        running: Running { child },
        job,
    })
}

/// Puts the suspended process into a job.
#[derive(Debug)]
struct InJob(Arc<ServerJob>);

impl CommandWrapper for InJob {
    fn wrap_child(
        &mut self,
        mut child: Box<dyn ChildWrapper>,
        _command: &CommandWrap,
    ) -> io::Result<Box<dyn ChildWrapper>> {
        let taken = match child.process_handle() {
            Some(process) => self.0.take(process),
            None => Err(io::ErrorKind::Unsupported.into()),
        };
        if let Err(error) = taken {
            child.start_kill().ok();
            return Err(error);
        }
        Ok(child)
    }
}

/// How the process is made.
#[derive(Debug)]
struct Flags;

impl CommandWrapper for Flags {
    fn pre_spawn(&mut self, command: &mut Command, _wrapped: &CommandWrap) -> io::Result<()> {
        command.creation_flags(CREATE_NO_WINDOW | CREATE_SUSPENDED);
        Ok(())
    }
}

fn spawn_error(program: OsString, source: io::Error) -> SpawnError {
    match source.kind() {
        io::ErrorKind::NotFound => SpawnError::NotFound { program },
        io::ErrorKind::PermissionDenied => SpawnError::NotExecutable { program, source },
        // An argument that the interpreter of a batch file would read as its own; or a command line of 32,768 characters.
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => {
            SpawnError::BadCommand { source }
        }
        _ => SpawnError::Exec { program, source },
    }
}
