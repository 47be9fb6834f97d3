//! A home, a project with its `.mcp.json`, and everything a test starts in them.
//! Owns: the temporary directory, the config, the mark of its processes, whether there is a daemon.  Never: touches the
//!   real home, or the daemon of the person who runs the tests.
//! In: servers and settings.  Out: a command for the gateway, journals, surviving processes.
//! Tests: below.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::census::{self, MARK, Process};
use crate::journal::Journal;
use crate::patience::eventually;
use crate::programs;

/// Says whether clients share a daemon. Tests have a gateway of their own unless they say otherwise, here by
/// [`Workspace::with_daemon`]: what a daemon of another test, or of the person at the keyboard, does is none of theirs.
pub const DAEMON: (&str, &str) = ("METAMCP_DAEMON", "off");

/// How long the daemon of a test stays without clients: long enough for the next command of the test, and short enough
/// that one which nobody ends is soon gone.
const IDLE_EXIT: &str = "30s";

/// A variable set for the gateway that no child may ever see.
pub const CANARY: &str = "TESTKIT_CANARY";

/// How long leftover processes may take to die of SIGKILL before the directory is removed anyway.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// The environment of one test; on drop its processes are killed and its files removed.
#[derive(Debug)]
pub struct Workspace {
    directory: TempDir,
    mark: String,
    servers: Map<String, Value>,
    settings: Map<String, Value>,
    has_daemon: bool,
}

/// A server entry of the config.
#[derive(Clone, Debug)]
pub struct Server {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Map<String, Value>,
    settings: Map<String, Value>,
    journals: bool,
}

/// The hostile child with these hazards; with none it is correct.
pub fn chaos(hazards: &[&str]) -> Server {
    let mut server = Server::new(programs::chaos_child(), &[]);
    server.journals = true;
    if hazards.is_empty() { server } else { server.argument("--do").argument(&hazards.join(",")) }
}

/// The trivial fast child.
pub fn echo() -> Server {
    Server::new(programs::echo_child(), &[])
}

impl Server {
    /// A server that runs any program.
    pub fn new(program: impl Into<PathBuf>, arguments: &[&str]) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            environment: Map::new(),
            settings: Map::new(),
            journals: false,
        }
    }

    /// The same server by another program, such as a link to it.
    #[must_use]
    pub fn by(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// Adds a variable to its `env`.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.environment.insert(name.to_owned(), value.into());
        self
    }

    /// Adds a key to its config entry, such as `timeoutMs`.
    #[must_use]
    pub fn setting(mut self, key: &str, value: Value) -> Self {
        self.settings.insert(key.to_owned(), value);
        self
    }
}

impl Workspace {
    /// An empty workspace.
    pub fn new() -> Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("metamcp-test-")
            .tempdir()
            .context("making a directory")?;
        for part in ["home", "project", "journals"] {
            fs::create_dir(directory.path().join(part))?;
        }
        let name = directory
            .path()
            .file_name()
            .context("a directory has a name")?
            .to_string_lossy()
            .into_owned();
        let mark = format!("{name}-{}", std::process::id());
        Ok(Self { directory, mark, servers: Map::new(), settings: Map::new(), has_daemon: false })
    }

    /// Lets the commands of this workspace share a daemon, with a socket of its own inside the workspace. It is killed
    /// with everything else when the workspace is dropped.
    pub fn with_daemon(&mut self) -> &mut Self {
        self.has_daemon = true;
        self
    }

    /// Where the daemon's socket and locks are.
    pub fn runtime_folder(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    /// The daemon of this workspace, if one runs: whoever has a file of its folder open.
    pub fn daemons(&self) -> Vec<Process> {
        if self.has_daemon { census::holding_below(&self.runtime_folder()) } else { Vec::new() }
    }

    /// Adds a server to the config.
    pub fn server(&mut self, name: &str, server: Server) -> &mut Self {
        let mut arguments = server.arguments;
        if server.journals {
            arguments.extend([
                "--journal".to_owned(),
                self.journal(name).path().to_string_lossy().into_owned(),
            ]);
        }
        let mut environment = server.environment;
        environment.insert(MARK.to_owned(), self.mark.as_str().into());
        let mut entry = json!({
            "command": server.program.to_string_lossy(),
            "args": arguments,
            "env": environment,
        });
        for (key, value) in server.settings {
            entry[key] = value;
        }
        self.servers.insert(name.to_owned(), entry);
        self
    }

    /// Removes a server from the config.
    pub fn remove(&mut self, name: &str) -> &mut Self {
        self.servers.remove(name);
        self
    }

    /// Adds a server with its whole config entry, such as one with a `url`.
    pub fn entry(&mut self, name: &str, entry: Value) -> &mut Self {
        self.servers.insert(name.to_owned(), entry);
        self
    }

    /// Sets a top-level key of the config, such as `pool`.
    pub fn setting(&mut self, key: &str, value: Value) -> &mut Self {
        self.settings.insert(key.to_owned(), value);
        self
    }

    pub fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    /// The working directory, where `.mcp.json` is.
    pub fn project(&self) -> PathBuf {
        self.directory.path().join("project")
    }

    /// The mark carried by all its processes.
    pub fn mark(&self) -> &str {
        &self.mark
    }

    /// What this server really did.
    pub fn journal(&self, name: &str) -> Journal {
        Journal::at(self.directory.path().join("journals").join(name))
    }

    /// A path for any other file a test needs.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes the current config and returns its path.
    pub fn write_config(&self) -> Result<PathBuf> {
        let path = self.project().join(".mcp.json");
        let mut config = self.settings.clone();
        config.insert("mcpServers".to_owned(), self.servers.clone().into());
        fs::write(&path, serde_json::to_string_pretty(&config)?)
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// Writes the config and returns a command for `program` in this home and project, with a clean environment.
    pub fn command(&self, program: &Path) -> Result<Command> {
        self.write_config()?;
        Ok(self.command_as_it_is(program))
    }

    /// The same with the config as it was written last: a daemon that runs would take a second writing for a change.
    pub fn command_as_it_is(&self, program: &Path) -> Command {
        let config = self.project().join(".mcp.json");
        let mut command = Command::new(program);
        command
            .current_dir(self.project())
            .env_clear()
            // A discovered file, unlike a named one, would need approval first.
            .env("METAMCP_CONFIG", config)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.home())
            .env("LANG", "C.UTF-8")
            .env(CANARY, "must not be seen by a child")
            .env(MARK, &self.mark);
        if self.has_daemon {
            command
                .env(DAEMON.0, "auto")
                .env("METAMCP_RUNTIME_DIR", self.runtime_folder())
                .env("METAMCP_DAEMON_IDLE_EXIT", IDLE_EXIT);
        } else {
            command.env(DAEMON.0, DAEMON.1);
        }
        command
    }

    /// Every running process of this test: the gateway, its shims, its children, and all they started.
    pub fn processes(&self) -> Vec<Process> {
        let mut processes = census::of_test(&self.mark, self.directory.path());
        // A daemon may have neither the environment nor the directory of the client that started it.
        for daemon in self.daemons() {
            if !processes.iter().any(|known| known.pid == daemon.pid) {
                processes.push(daemon);
            }
        }
        processes
    }

    /// Every running process of a program, wherever it was started from.
    pub fn processes_of(&self, program: &Path) -> Vec<Process> {
        let mut processes = self.processes();
        processes.retain(|process| {
            process.command.split(' ').next() == Some(&*program.to_string_lossy())
        });
        processes
    }

    /// Waits until no process of this test is running, and returns those that are at the deadline.
    pub fn survivors(&self, deadline: Duration) -> Vec<Process> {
        let mut alive = Vec::new();
        eventually(deadline, || {
            alive = self.processes();
            alive.is_empty()
        });
        alive
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // Repeatedly, because a process being killed may be starting more.
        eventually(LAST_WAIT, || {
            let alive = self.processes();
            census::kill_all(&alive);
            alive.is_empty()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_config_holds_what_was_asked_for() {
        let mut workspace = Workspace::new().unwrap();
        let server =
            Server::new("/bin/cat", &["-u"]).variable("A", "b").setting("timeoutMs", json!(1000));
        workspace.server("one", server).setting("pool", json!({"poolSize": 2}));
        let text = fs::read_to_string(workspace.write_config().unwrap()).unwrap();
        let config: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(config["pool"]["poolSize"], 2);
        let entry = &config["mcpServers"]["one"];
        assert_eq!(entry["command"], "/bin/cat");
        assert_eq!(entry["args"], json!(["-u"]));
        assert_eq!(entry["timeoutMs"], 1000);
        assert_eq!(entry["env"], json!({"A": "b", MARK: workspace.mark()}));
    }

    #[test]
    fn a_daemon_is_known_by_the_files_it_holds() {
        let mut workspace = Workspace::new().unwrap();
        let off = workspace.command(Path::new("true")).unwrap();
        assert!(
            off.get_envs().any(|(name, value)| name == DAEMON.0 && value == Some("off".as_ref()))
        );
        workspace.with_daemon();
        let folder = workspace.runtime_folder();
        let on = workspace.command(Path::new("true")).unwrap();
        let said =
            |name: &str| on.get_envs().find(|given| given.0 == name).and_then(|given| given.1);
        assert_eq!(said(DAEMON.0), Some("auto".as_ref()));
        assert_eq!(said("METAMCP_RUNTIME_DIR"), Some(folder.as_os_str()));
        fs::create_dir(&folder).unwrap();
        let lock = fs::File::create(folder.join("key.lock")).unwrap();
        let mut child = Command::new("sleep").arg("60").env_clear().stdin(lock).spawn().unwrap();
        // Its own parent held the file for a moment.
        let is_it = |process: &Process| process.pid == child.id();
        assert!(eventually(Duration::from_secs(10), || workspace.daemons().iter().all(is_it)));
        assert_eq!(workspace.processes().len(), 1);
        drop(workspace);
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn dropping_it_kills_what_it_started() {
        let workspace = Workspace::new().unwrap();
        let mut child = workspace.command(Path::new("sleep")).unwrap().arg("60").spawn().unwrap();
        assert!(eventually(Duration::from_secs(10), || workspace.processes().len() == 1));
        assert_eq!(workspace.survivors(Duration::ZERO).len(), 1);
        drop(workspace);
        assert!(!child.wait().unwrap().success());
    }
}
