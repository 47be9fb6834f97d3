//! A stand-in for docker: a client in a folder of the test, and an engine in the test's own process, so that killing
//! the client ends no container, as with the real one. It knows the commands that metamcp uses, and refuses every
//! other.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

pub(crate) struct Engine {
    /// The folder of the client, first in `PATH`.
    pub(crate) programs: PathBuf,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// The arguments of each command, in order.
    asked: Vec<Vec<String>>,
    /// Images that can be pulled, with the digests they report.
    offered: BTreeMap<String, Vec<String>>,
    here: BTreeMap<String, Vec<String>>,
    containers: BTreeMap<String, Container>,
    is_down: bool,
    /// The error of `run`, instead of running.
    fails: Option<String>,
    server: PathBuf,
    python: String,
}

struct Container {
    image: String,
    process: Child,
}

impl Engine {
    pub(crate) fn start(folder: &Path) -> Engine {
        let programs = folder.join("engine");
        fs::create_dir(&programs).unwrap();
        let mut python = Command::new("python3");
        let found = python.args(["-c", "import sys; print(sys.executable)"]).output().unwrap();
        let python = String::from_utf8(found.stdout).unwrap().trim().to_owned();
        let socket = programs.join("socket");
        let client = programs.join("docker");
        let script = CLIENT.replace("SOCKET", &json!(socket).to_string());
        fs::write(&client, format!("#!{python}\n{script}")).unwrap();
        fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
        let server = programs.join("server.py");
        fs::write(&server, SERVER).unwrap();
        let state = Arc::new(Mutex::new(State { server, python, ..State::default() }));
        let listener = UnixListener::bind(&socket).unwrap();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                thread::spawn(move || drop(serve(&stream, &state)));
            }
        });
        Engine { programs, state }
    }

    pub(crate) fn offer(&self, image: &str, digests: &[&str]) {
        let digests = digests.iter().map(|&digest| digest.to_owned()).collect();
        self.state.lock().unwrap().offered.insert(image.to_owned(), digests);
    }

    pub(crate) fn switch(&self, is_on: bool) {
        self.state.lock().unwrap().is_down = !is_on;
    }

    pub(crate) fn fail(&self, words: Option<&str>) {
        self.state.lock().unwrap().fails = words.map(str::to_owned);
    }

    pub(crate) fn containers(&self) -> Vec<String> {
        self.state.lock().unwrap().containers.keys().cloned().collect()
    }

    pub(crate) fn has(&self, image: &str) -> bool {
        self.state.lock().unwrap().here.contains_key(image)
    }

    /// The commands whose first argument is this.
    pub(crate) fn asked(&self, first: &str) -> Vec<Vec<String>> {
        let state = self.state.lock().unwrap();
        let of = |words: &&Vec<String>| words.first().is_some_and(|word| word == first);
        state.asked.iter().filter(of).cloned().collect()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        for (_, mut container) in std::mem::take(&mut self.state.lock().unwrap().containers) {
            drop(container.process.kill());
        }
    }
}

/// The client's output and exit code; or it stays attached to the input of a container.
enum EngineReply {
    Said(i32, String),
    Runs { name: String, input: ChildStdin, output: std::process::ChildStdout },
}

fn serve(stream: &UnixStream, state: &Mutex<State>) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    reader.read_line(&mut head)?;
    let head: Value = serde_json::from_str(&head)?;
    let words: Vec<String> = serde_json::from_value(head["words"].clone())?;
    let outcome = state.lock().unwrap().outcome(&words, &head["env"]);
    let mut writer = stream;
    match outcome {
        EngineReply::Said(code, text) => {
            writeln!(writer, "{}", json!({ "code": code, "text": text }))
        }
        EngineReply::Runs { name, mut input, mut output } => {
            writeln!(writer, "{}", json!({ "text": "" }))?;
            let mut back = stream.try_clone()?;
            let ends = thread::spawn(move || {
                drop(io::copy(&mut output, &mut back));
                drop(back.shutdown(Shutdown::Both));
            });
            // A container's input ends with its client, but the container runs on until it exits.
            drop(copy(&mut reader, &mut input));
            drop(input);
            drop(ends.join());
            // It was started with `--rm`.
            if let Some(mut container) = state.lock().unwrap().containers.remove(&name) {
                drop(container.process.wait());
            }
            Ok(())
        }
    }
}

fn copy(from: &mut impl BufRead, to: &mut impl Write) -> io::Result<()> {
    loop {
        let piece = from.fill_buf()?;
        let length = piece.len();
        if length == 0 {
            return Ok(());
        }
        to.write_all(piece)?;
        to.flush()?;
        from.consume(length);
    }
}

impl State {
    fn outcome(&mut self, words: &[String], env: &Value) -> EngineReply {
        self.asked.push(words.to_vec());
        let list: Vec<&str> = words.iter().map(String::as_str).collect();
        let said = |code: i32, text: &str| EngineReply::Said(code, text.to_owned());
        if self.is_down {
            return said(1, "Cannot connect to the Docker daemon. Is the docker daemon running?");
        }
        match list[..] {
            ["version", "--format", "{{.Server.Os}}"] => said(0, "linux"),
            ["manifest", "inspect", image] if self.offered.contains_key(image) => said(0, "{}"),
            ["manifest", "inspect", image] => said(1, &format!("no such manifest: {image}")),
            ["image", "inspect", "--format", "{{json .RepoDigests}}", image] => {
                match self.here.get(image) {
                    Some(digests) => said(0, &json!(digests).to_string()),
                    None => said(1, &format!("Error: No such image: {image}")),
                }
            }
            ["pull", "--quiet", image] => match self.offered.get(image) {
                Some(digests) => {
                    self.here.insert(image.to_owned(), digests.clone());
                    said(0, image)
                }
                None => said(1, "Error response from daemon: manifest unknown"),
            },
            ["image", "rm", image] => {
                if self.containers.values().any(|container| container.image == image) {
                    return said(1, "Error response from daemon: conflict: it is in use");
                }
                match self.here.remove(image) {
                    Some(_) => said(0, image),
                    None => said(1, "Error: No such image"),
                }
            }
            ["rm", "--force", "--volumes", name] => match self.containers.get_mut(name) {
                Some(container) => {
                    drop(container.process.kill());
                    said(0, name)
                }
                None => said(1, "Error: No such container"),
            },
            ["run", ref rest @ ..] => self.run(rest, env),
            _ => said(125, &format!("unknown command: docker {}", list.join(" "))),
        }
    }

    fn run(&mut self, words: &[&str], env: &Value) -> EngineReply {
        let said = |text: String| EngineReply::Said(125, format!("docker: {text}"));
        let mut words = words.iter().copied();
        let (mut name, mut given) = (None, Vec::new());
        let image = loop {
            match words.next() {
                Some("-i" | "--rm" | "--init") => {}
                Some("--pull" | "--log-driver" | "--cap-drop" | "--security-opt") => {
                    words.next();
                }
                Some("-e") => given.extend(words.next()),
                Some(word) if word.starts_with("--name=") => {
                    name = word.strip_prefix("--name=");
                }
                Some(word) if word.starts_with("--label=") => {}
                Some(word) if word.starts_with('-') => {
                    return said(format!("unknown flag: {word}"));
                }
                Some(image) => break image,
                None => return said("requires at least 1 argument".to_owned()),
            }
        };
        let Some(name) = name else { return said("it has no name".to_owned()) };
        if let Some(words) = &self.fails {
            return said(words.clone());
        }
        if !self.here.contains_key(image) {
            return said(format!("Unable to find image '{image}' locally"));
        }
        let mut command = Command::new(&self.python);
        command.arg(&self.server).args(words).env_clear();
        for variable in given {
            if let Some(value) = env[variable].as_str() {
                command.env(variable, value);
            }
        }
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let container = Container { image: image.to_owned(), process };
        self.containers.insert(name.to_owned(), container);
        EngineReply::Runs { name: name.to_owned(), input, output }
    }
}

const CLIENT: &str = r#"
import json, os, socket, sys, threading
engine = socket.socket(socket.AF_UNIX)
engine.connect(SOCKET)
engine.sendall(json.dumps({"words": sys.argv[1:], "env": dict(os.environ)}).encode() + b"\n")
said = engine.makefile("rb")
head = json.loads(said.readline())
if "code" in head:
    print(head["text"], file=sys.stderr if head["code"] else sys.stdout)
    sys.exit(head["code"])
def ask():
    while piece := os.read(0, 65536):
        engine.sendall(piece)
    engine.shutdown(socket.SHUT_WR)
threading.Thread(target=ask, daemon=True).start()
while piece := said.read1(65536):
    os.write(1, piece)
"#;

/// A server that does not exit at end of input.
const SERVER: &str = r#"
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    def say(**part):
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **part}), flush=True)
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        say(result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "wheel", "version": "1"}})
    elif asked["method"] == "tools/list":
        say(result={"tools": [{"name": "turn", "description": "Turns the wheel", "inputSchema": {"type": "object"}}]})
    elif asked["method"] == "tools/call":
        token = asked["params"]["arguments"].get("token")
        seen = {"words": sys.argv[1:], "variables": sorted(name for name in os.environ if name != "LC_CTYPE"),
                "token": os.environ.get("WHEEL_TOKEN") == token}
        say(result={"content": [{"type": "text", "text": json.dumps(seen)}]})
    else:
        say(error={"code": -32601, "message": "no"})
while True:
    time.sleep(60)
"#;
