//! A worker in its own container: the arguments for the Docker CLI, and whether an engine answers.
//! Owns: argument lists, finding an engine, one container's life cycle ([`relay`]).      Never: pulls an image.
//! In: the worker's program, an image, limits.  Out: arguments for `docker`, or a [`DockerError`].
//! Tests: beside, as snapshots.
//!
//! The frames that otherwise cross a socket go over standard input and output of `docker run`. The container has no
//! network, no writable file, no capability and no second process; inside it, the worker locks itself down as
//! everywhere.
//!
//! Killing the `docker` process does not stop the container, so a second process waits for the first to end, for
//! whatever reason, and then removes the container ([`relay::sweeper_main`]).

#[cfg(target_os = "linux")]
pub mod relay;

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The default image for workers. It has what the binary needs, a C library, and little else.
pub const IMAGE: &str = "debian:stable-slim";

/// How long an engine may take to report its version. A running one answers within a fraction of a second; a socket on
/// which nobody answers would block the first script forever.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Path of the program in the container.
const PROGRAM: &str = "/metamcp";

/// `nobody`, in every image.
const USER: &str = "65534:65534";

/// Bytes kept of the engine's error output.
const WORDS: usize = 512;

/// Polling interval while waiting for the engine.
const LOOK: Duration = Duration::from_millis(10);

/// Resource limits of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of memory, with no swap beyond them.
    pub memory: u64,
    /// CPU time of one process in seconds, enforced by the kernel.
    pub cpu_seconds: u64,
    /// Processes and threads. `docker` starts one; the worker never starts another.
    pub processes: u32,
}

impl Default for Bounds {
    fn default() -> Bounds {
        // The worker's address space is limited to 256 MiB; the rest is for the programs that start it. The longest
        // script gets a minute.
        Bounds { memory: 320 * 1024 * 1024, cpu_seconds: 65, processes: 4 }
    }
}

/// One container to start.
#[derive(Debug, Clone, Copy)]
pub struct Container<'a> {
    /// Its unique name; see [`is_name`].
    pub name: &'a str,
    /// The image.
    pub image: &'a str,
    /// The worker's program on the host, an absolute path.
    pub program: &'a Path,
    /// The arguments that make it a worker.
    pub args: &'a [&'a str],
    /// Its resource limits.
    pub bounds: Bounds,
}

/// Why no container could be started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DockerError {
    /// The program could not be started.
    #[error(
        "no container engine: {program} cannot be started ({reason}); install Docker, or choose another profile"
    )]
    NoProgram {
        /// The program.
        program: String,
        /// The operating system's error.
        reason: String,
    },
    /// The program runs, but no engine answers.
    #[error(
        "no container engine: `{tried}` says {said:?}; start the engine, or choose another profile"
    )]
    NoEngine {
        /// The command.
        tried: String,
        /// Its error output.
        said: String,
    },
    /// The engine did not answer in time.
    #[error(
        "no container engine: `{tried}` did not answer within {patience:?}; look whether the engine is stuck, or choose another profile"
    )]
    Silent {
        /// The command.
        tried: String,
        /// The timeout.
        patience: Duration,
    },
    /// The engine runs containers of another operating system.
    #[error(
        "the container engine {version} runs {system} containers, the worker needs linux; choose another profile"
    )]
    System {
        /// Its version.
        version: String,
        /// The operating system of its containers.
        system: String,
    },
    /// A name, an image or a path that the engine would misinterpret.
    #[error("{what} {value:?} cannot be used for a container")]
    Word {
        /// The kind of value.
        what: &'static str,
        /// The value.
        value: String,
    },
}

/// An engine that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Engine {
    /// Its version, as reported.
    pub version: String,
}

/// Queries the engine's version. The format excludes the client's, which is available without an engine.
const ASK: [&str; 3] = ["version", "--format", "{{.Server.Os}} {{.Server.Version}}"];

/// Checks for an engine behind `program`, which is `docker` or takes the same arguments.
///
/// # Errors
/// If no engine answers; the error names the command.
pub fn find(program: &Path, patience: Duration) -> Result<Engine, DockerError> {
    let tried = format!("{} {}", program.display(), ASK.join(" "));
    let child = command(program)
        .args(ASK)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            let program = program.display().to_string();
            return Err(DockerError::NoProgram { program, reason: error.to_string() });
        }
    };
    let Some(status) = ended(&mut child, patience) else {
        return Err(DockerError::Silent { tried, patience });
    };
    let said = words(child.stdout.take());
    if !status.success() || said.is_empty() {
        let said = Some(words(child.stderr.take())).filter(|said| !said.is_empty());
        let said = said.unwrap_or_else(|| status.to_string());
        return Err(DockerError::NoEngine { tried, said });
    }
    match said.split_once(' ') {
        Some(("linux", version)) => Ok(Engine { version: version.to_owned() }),
        Some((system, version)) => {
            Err(DockerError::System { version: version.to_owned(), system: system.to_owned() })
        }
        None => Err(DockerError::NoEngine { tried, said }),
    }
}

/// Commands for containers, which need none of the containment of servers.
#[expect(clippy::disallowed_methods, reason = "this is the cure")]
fn command(program: &Path) -> Command {
    Command::new(program)
}

#[expect(clippy::disallowed_methods, reason = "this is the cure")]
fn now() -> Instant {
    Instant::now()
}

/// The exit status of a process; `None` if it was killed for taking too long.
fn ended(child: &mut Child, patience: Duration) -> Option<ExitStatus> {
    let began = now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if began.elapsed() < patience => thread::sleep(LOOK),
            Ok(None) | Err(_) => {
                // It may have exited just now; either way nothing of it is left.
                child.kill().ok();
                child.wait().ok();
                return None;
            }
        }
    }
}

/// The arguments that start a worker attached to our standard input and output.
///
/// # Errors
/// If a field of `container` would be misinterpreted.
pub fn run_arguments(container: &Container<'_>) -> Result<Vec<String>, DockerError> {
    let Container { name, image, program, args, bounds } = *container;
    let refused = |what, value: &str| DockerError::Word { what, value: value.to_owned() };
    if !is_name(name) {
        return Err(refused("the name", name));
    }
    if !is_image(image) {
        return Err(refused("the image", image));
    }
    let Some(source) = program.to_str().filter(|_| program.is_absolute()) else {
        return Err(refused("the program", &program.display().to_string()));
    };
    let memory = format!("{}b", bounds.memory);
    let mut list: Vec<String> = [
        "run",
        "--rm",
        "--interactive",
        // Which images are on the machine is a person's choice; a script must not cause a download.
        "--pull=never",
        "--network=none",
        "--ipc=none",
        "--cgroupns=private",
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        "--log-driver=none",
        "--workdir=/",
        "--cpus=1",
        "--ulimit=core=0:0",
        "--ulimit=fsize=0:0",
        "--ulimit=nofile=16:16",
        "--label=metamcp=worker",
    ]
    .map(str::to_owned)
    .to_vec();
    list.push(format!("--user={USER}"));
    list.push(format!("--hostname={name}"));
    list.push(format!("--name={name}"));
    list.push(format!("--pids-limit={}", bounds.processes));
    list.push(format!("--memory={memory}"));
    // The same as memory alone: no swap.
    list.push(format!("--memory-swap={memory}"));
    list.push(format!("--ulimit=cpu={0}:{0}", bounds.cpu_seconds));
    list.push(format!("--mount=type=bind,{},target={PROGRAM},readonly", field("source", source)));
    // The engine sets variables of its own; `env -i` starts the worker without any, as it requires.
    list.push("--entrypoint=/usr/bin/env".to_owned());
    list.push(image.to_owned());
    list.push("-i".to_owned());
    list.push(PROGRAM.to_owned());
    list.extend(args.iter().map(|&word| word.to_owned()));
    Ok(list)
}

/// The arguments that remove a container, if it still exists.
pub fn kill_arguments(name: &str) -> [String; 4] {
    ["rm".into(), "--force".into(), "--volumes".into(), name.into()]
}

/// The arguments that check whether an image is present; the command fails if it is not.
pub fn image_arguments(image: &str) -> [String; 5] {
    ["image".into(), "inspect".into(), "--format".into(), "{{.Id}}".into(), image.into()]
}

/// Whether the engine accepts this as a name: letters, digits, `_`, `.`, `-`, starting with a letter or digit. It is
/// also the host name, which is 63 bytes at most.
pub fn is_name(name: &str) -> bool {
    name.len() <= 63
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name.chars().all(|one| one.is_ascii_alphanumeric() || "_.-".contains(one))
}

/// Whether this can be a reference to an image. Resolving it is up to the engine; it must only not be parsed as an
/// option.
fn is_image(image: &str) -> bool {
    image.len() <= 512
        && image.starts_with(|first: char| first.is_ascii_alphanumeric())
        && image.chars().all(|one| one.is_ascii_alphanumeric() || "_.-/:@".contains(one))
}

/// A field of `--mount`, which is parsed as a line of comma-separated values.
fn field(key: &str, value: &str) -> String {
    if value.contains([',', '"', '\n', '\r']) {
        format!("\"{key}={}\"", value.replace('"', "\"\""))
    } else {
        format!("{key}={value}")
    }
}

/// A process's output, bounded, on one line.
fn words(from: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(from) = from {
        // On an error, whatever was read before it is all there is to show.
        from.take(WORDS as u64).read_to_end(&mut bytes).ok();
    }
    let text = String::from_utf8_lossy(&bytes);
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace(char::is_control, "")
}

#[cfg(test)]
#[cfg(unix)]
mod tests;
