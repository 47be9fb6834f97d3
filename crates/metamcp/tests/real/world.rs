//! A separate environment for each test: a home, files, a repository, and a config that names every server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use metamcp_testkit::{DAEMON, eventually};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::installed::{Installed, Start, text};

/// How long a process may take to exit on a loaded machine; the benchmark measures the real time.
const LINGERING: Duration = Duration::from_secs(10);

/// Everything a test may touch is under one temporary folder.
pub(crate) struct World {
    folder: TempDir,
    pub(crate) installed: Installed,
    has_daemon: bool,
}

/// Which of two identical but separate copies of the stateful servers to use.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Direct,
    Gateway,
}

impl World {
    pub(crate) fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let world = World { folder, installed: Installed::find(), has_daemon: false };
        fs::create_dir(world.home()).unwrap();
        fs::create_dir_all(world.files().join("sub")).unwrap();
        fs::write(world.files().join("hello.txt"), "Grüße\nsecond line\n").unwrap();
        fs::write(world.files().join("sub/data.json"), "{\"n\": 12345678901234567890}").unwrap();
        world.make_repository();
        fs::write(world.config(), serde_json::to_vec_pretty(&world.servers()).unwrap()).unwrap();
        world
    }

    /// The same, whose clients share a daemon of their own.
    pub(crate) fn with_daemon() -> World {
        World { has_daemon: true, ..World::new() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.path().join("home")
    }

    pub(crate) fn files(&self) -> PathBuf {
        // The filesystem server returns resolved paths.
        fs::canonicalize(self.path()).unwrap().join("files")
    }

    pub(crate) fn repository(&self) -> PathBuf {
        fs::canonicalize(self.path()).unwrap().join("repository")
    }

    /// A server as a client would start it without the gateway.
    pub(crate) fn direct(&self, name: &str) -> Start {
        self.server(name, Side::Direct)
    }

    /// The gateway in front of all servers.
    pub(crate) fn gateway(&self) -> Start {
        Start {
            command: env!("CARGO_BIN_EXE_metamcp").to_owned(),
            args: vec!["--config".to_owned(), text(&self.config())],
            env: Vec::new(),
        }
    }

    /// A command with a clean environment: what it needs to find programs, and a temporary home.
    pub(crate) fn command(&self, start: &Start) -> Command {
        let mut command = Command::new(&start.command);
        command.args(&start.args).current_dir(self.path()).env_clear().envs(self.environment());
        command.envs(start.env.iter().map(|(name, value)| (name, value)));
        command
    }

    pub(crate) fn environment(&self) -> Vec<(String, String)> {
        let path = std::env::var("PATH").expect("a machine with a PATH");
        let mut said = vec![("PATH", path), ("HOME", text(&self.home()))];
        if self.has_daemon {
            said.push((DAEMON.0, "require".to_owned()));
            said.push(("METAMCP_RUNTIME_DIR", text(&self.path().join("run"))));
            // One that nobody ends is soon gone.
            said.push(("METAMCP_DAEMON_IDLE_EXIT", "60s".to_owned()));
        } else {
            said.push((DAEMON.0, DAEMON.1.to_owned()));
        }
        said.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Waits until every process of this world has exited, and names those that have not.
    pub(crate) fn nothing_is_left(&self) {
        let gone = eventually(LINGERING, || self.processes().is_empty());
        assert!(gone, "still running: {:#?}", self.processes());
    }

    /// The processes that still have this world's home in their environment; Linux only.
    pub(crate) fn processes(&self) -> Vec<String> {
        let home = format!("HOME={}", text(&self.home()));
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(environment) = fs::read(entry.path().join("environ")) else { continue };
            if environment.split(|byte| *byte == 0).any(|variable| variable == home.as_bytes()) {
                let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
                found.push(String::from_utf8_lossy(&line).replace('\0', " "));
            }
        }
        found
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.path().join("mcp.json")
    }

    fn servers(&self) -> Value {
        let mut servers = Map::new();
        for name in self.installed.server_names() {
            let Start { command, args, env } = self.server(name, Side::Gateway);
            let env: Map<String, Value> =
                env.into_iter().map(|(name, value)| (name, json!(value))).collect();
            servers
                .insert(name.to_owned(), json!({ "command": command, "args": args, "env": env }));
        }
        json!({ "mcpServers": servers })
    }

    fn server(&self, name: &str, side: Side) -> Start {
        let mut start = self.installed.start(name);
        match name {
            "filesystem" => start.args.push(text(&self.files())),
            "git" => start.args.extend(["--repository".to_owned(), text(&self.repository())]),
            "time" => start.args.push("--local-timezone=Europe/Berlin".to_owned()),
            "memory" => {
                let file = match side {
                    Side::Direct => "memory-direct.jsonl",
                    Side::Gateway => "memory-gateway.jsonl",
                };
                start.env.push(("MEMORY_FILE_PATH".to_owned(), text(&self.path().join(file))));
            }
            _ => {}
        }
        start
    }

    /// One commit, one changed file, one new file; always the same commit id.
    fn make_repository(&self) {
        let folder = self.repository();
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("kept.txt"), "one\n").unwrap();
        let git = |args: &[&str]| {
            let output = Command::new("git")
                .args([
                    "-c",
                    "user.name=Ada",
                    "-c",
                    "user.email=ada@example.org",
                    "-c",
                    "init.defaultBranch=main",
                ])
                .args(args)
                .current_dir(&folder)
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .env("HOME", self.home())
                .env("GIT_AUTHOR_DATE", "2026-01-02T03:04:05Z")
                .env("GIT_COMMITTER_DATE", "2026-01-02T03:04:05Z")
                .output()
                .expect("git is installed");
            assert!(
                output.status.success(),
                "git {args:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        };
        git(&["init", "--quiet"]);
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", "first"]);
        fs::write(folder.join("kept.txt"), "one\ntwo\n").unwrap();
        fs::write(folder.join("new.txt"), "new\n").unwrap();
    }
}
