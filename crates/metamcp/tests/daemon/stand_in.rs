//! A stand-in for the daemon: takes sessions on the local socket, remembers every line, and dies on command.

use std::io::{BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use metamcp_engine::runtime_folder::{Held, Places};
use metamcp_testkit::{Client, Workspace, eventually};
use metamcp_wire::local::{Accepted, Hello, Reply};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A workspace whose daemon is in a folder of its own.
pub(crate) fn workspace() -> Workspace {
    let mut workspace = Workspace::new().unwrap();
    workspace.with_daemon();
    workspace
}

pub(crate) fn places(workspace: &Workspace) -> Places {
    let folder = workspace.runtime_folder();
    Places::find_in(&home(workspace), folder.to_str()).unwrap()
}

pub(crate) fn home(workspace: &Workspace) -> PathBuf {
    workspace.home().join(".metamcp")
}

/// The command of a client's config.
pub(crate) fn command(workspace: &Workspace) -> Command {
    let mut command = workspace.command(Path::new(env!("CARGO_BIN_EXE_metamcp"))).unwrap();
    command.env("METAMCP_HOME", home(workspace));
    command
}

pub(crate) fn connect(workspace: &Workspace) -> Client {
    Client::start(command(workspace)).unwrap()
}

pub(crate) fn shake_hands(client: &Client) -> Value {
    client.initialize(&json!({ "sampling": {} }), PATIENCE).unwrap()
}

/// What a session of the stand-in does with a line; what it returns is written back.
pub(crate) type Behaviour = fn(&Value) -> Vec<String>;

pub(crate) struct StandIn {
    places: Places,
    held: Option<Held>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    hellos: Vec<Hello>,
    lines: Vec<String>,
    streams: Vec<UnixStream>,
    ended: usize,
    is_dead: bool,
}

impl StandIn {
    /// Takes sessions at the place of the workspace's daemon.
    pub(crate) fn start(workspace: &Workspace, behaviour: Behaviour) -> StandIn {
        Self::replying(workspace, accepted(env!("CARGO_PKG_VERSION")), behaviour)
    }

    /// The same with another reply to every hello.
    pub(crate) fn replying(workspace: &Workspace, reply: Vec<u8>, behaviour: Behaviour) -> StandIn {
        let places = places(workspace);
        let held = places.hold().unwrap().expect("no other daemon");
        let listener = places.bind(&held).unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let accepting = Arc::clone(&state);
        std::thread::spawn(move || accept(&listener, &reply, behaviour, &accepting));
        StandIn { places, held: Some(held), state }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(crate) fn hellos(&self) -> Vec<Hello> {
        self.state().hellos.clone()
    }

    /// Everything that sessions said.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.state().lines.clone()
    }

    pub(crate) fn methods(&self) -> Vec<String> {
        let method = |line: &String| -> Option<String> {
            let value: Value = serde_json::from_str(line).ok()?;
            Some(value["method"].as_str().unwrap_or("response").to_owned())
        };
        self.lines().iter().filter_map(method).collect()
    }

    pub(crate) fn wait_for(&self, what: &str) {
        let is_there = || self.lines().iter().any(|line| line.contains(what));
        assert!(eventually(PATIENCE, is_there), "{what} is not in {:?}", self.lines());
    }

    /// How many sessions have said that their client's input ended.
    pub(crate) fn ended(&self) -> usize {
        self.state().ended
    }

    /// Writes to the newest session.
    pub(crate) fn say(&self, line: &str) {
        let mut stream = self.state().streams.last().unwrap().try_clone().unwrap();
        stream.write_all(line.as_bytes()).unwrap();
    }

    /// Closes the newest session, as at its ordinary end.
    pub(crate) fn close(&self) {
        self.state().streams.last().unwrap().shutdown(Shutdown::Both).unwrap();
    }

    /// Dies as by `kill -9`: the socket's name stays, nobody answers there.
    pub(crate) fn die(mut self) {
        self.state().is_dead = true;
        // Wakes the accepting thread, which then drops the listener.
        drop(self.places.connect());
        for stream in &self.state().streams {
            stream.shutdown(Shutdown::Both).ok();
        }
        self.held = None;
    }
}

fn accept(listener: &UnixListener, reply: &[u8], behaviour: Behaviour, state: &Arc<Mutex<State>>) {
    while let Ok((mut stream, _)) = listener.accept() {
        let mut now = state.lock();
        if now.is_dead {
            return;
        }
        now.streams.push(stream.try_clone().unwrap());
        drop(now);
        let (reply, state) = (reply.to_vec(), Arc::clone(state));
        std::thread::spawn(move || {
            let lock = || state.lock();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let Some(Ok(line)) = lines.next() else { return };
            lock().hellos.extend(Hello::parse(line.as_bytes()));
            if stream.write_all(&reply).is_err() {
                return;
            }
            for line in lines.map_while(Result::ok) {
                let heard = serde_json::from_str(&line).unwrap_or_default();
                lock().lines.push(line);
                for answer in behaviour(&heard) {
                    stream.write_all(answer.as_bytes()).ok();
                }
            }
            lock().ended += 1;
        });
    }
}

pub(crate) fn accepted(version: &str) -> Vec<u8> {
    let remarks = vec!["a remark of the daemon".to_owned()];
    let version = version.to_owned();
    Reply::Accepted(Accepted { version, pid: 1, remarks, ..Accepted::default() }).to_line()
}

/// Answers everything but tools whose name is `hang`.
pub(crate) fn obliging(message: &Value) -> Vec<String> {
    if message["method"].is_null() || message["id"].is_null() {
        return Vec::new();
    }
    let result = match message["method"].as_str() {
        _ if message["params"]["name"] == "hang" => return Vec::new(),
        Some("initialize") => json!({
            "protocolVersion": message["params"]["protocolVersion"],
            "capabilities": {},
            "serverInfo": { "name": "stand-in", "version": "1" },
        }),
        _ => json!({ "heard": message["params"] }),
    };
    vec![format!("{}\n", json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))]
}

/// Answers nothing but the handshake.
pub(crate) fn silent(message: &Value) -> Vec<String> {
    if message["method"] == "initialize" { obliging(message) } else { Vec::new() }
}
