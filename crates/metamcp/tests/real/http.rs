//! The official SDKs and the Inspector as clients over HTTP: every client, every serve mode.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use serde_json::json;

use crate::installed::{Start, text};
use crate::plan::{Client, Plan, Remote, parsed};
use crate::world::World;

/// The serve modes a client can encounter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServeMode {
    Plain,
    Json,
    Stateless,
    Tls,
    Sse,
}

const CLIENTS: [Client; 4] =
    [Client::TypescriptV1, Client::TypescriptV2, Client::PythonV1, Client::PythonV2];

/// A listening gateway; stopped on drop.
pub(crate) struct Serving {
    process: Child,
    pub(crate) remote: Remote,
}

impl Serving {
    fn start(world: &World, mode: ServeMode) -> Serving {
        let mut flags = vec!["--port".to_owned(), "0".to_owned(), "--transport".to_owned()];
        flags.push(if mode == ServeMode::Sse { "sse" } else { "streamable-http" }.to_owned());
        let mut trust = Vec::new();
        match mode {
            ServeMode::Plain | ServeMode::Sse => {}
            ServeMode::Json => flags.push("--json-response".to_owned()),
            ServeMode::Stateless => flags.push("--stateless".to_owned()),
            ServeMode::Tls => {
                let (cert, key) = (world.path().join("cert.pem"), world.path().join("key.pem"));
                let CertifiedKey { cert: made, signing_key } =
                    generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
                fs::write(&cert, made.pem()).unwrap();
                fs::write(&key, signing_key.serialize_pem()).unwrap();
                flags.extend(["--tls".to_owned(), "--tls-cert".to_owned(), text(&cert)]);
                flags.extend(["--tls-key".to_owned(), text(&key)]);
                for name in ["NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"] {
                    trust.push((name.to_owned(), text(&cert)));
                }
            }
        }
        let Start { command, mut args, env } = world.gateway();
        args.extend(flags);
        let over = if mode == ServeMode::Sse { "sse" } else { "http" };
        let mut serving = Serving::listening(world, &Start { command, args, env });
        // A certificate is for a host name.
        serving.remote.url = serving.remote.url.replace("127.0.0.1", "localhost");
        (serving.remote.over, serving.remote.trust) = (over, trust);
        serving
    }

    /// Starts a gateway and waits until it reports its address.
    pub(crate) fn listening(world: &World, gateway: &Start) -> Serving {
        Serving::of(world.command(gateway), &world.home())
    }

    /// The same in another home.
    pub(crate) fn of(mut command: Command, home: &Path) -> Serving {
        let mut process = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines =
            BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines
            .by_ref()
            .find_map(|line| line.split_once("listening on ").map(|(_, url)| url.to_owned()))
            .expect("it listens");
        thread::spawn(move || lines.for_each(drop));
        let token = fs::read_to_string(home.join(".metamcp/http-token")).unwrap_or_default();
        let token = token.trim().to_owned();
        Serving { process, remote: Remote { url, over: "http", token, trust: Vec::new() } }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), Signal::SIGTERM).ok();
        self.process.wait().ok();
    }
}

fn through(tool: &str, args: &serde_json::Value) -> serde_json::Value {
    json!({ "server": "everything", "tool": tool, "args": args })
}

/// Runs the same steps with every client in one mode.
fn all_clients(mode: ServeMode) {
    let world = World::new();
    let serving = Serving::start(&world, mode);
    // Without a session there is no stream for server requests.
    let can_be_asked = matches!(mode, ServeMode::Plain | ServeMode::Tls | ServeMode::Sse);
    for client in CLIENTS {
        let mut plan = Plan::new()
            .list("list")
            .call("echo", "mcp_call", &through("echo", &json!({ "message": "hi" })))
            .call_with_progress(
                "long",
                "mcp_call",
                &through("trigger-long-running-operation", &json!({ "duration": 0.4, "steps": 4 })),
            );
        if can_be_asked {
            plan = plan
                .answering(
                    "sampling/createMessage",
                    json!({ "model": "none", "role": "assistant", "content": { "type": "text", "text": "sampled" } }),
                )
                .call(
                    "model",
                    "mcp_call",
                    &through("trigger-sampling-request", &json!({ "prompt": "say it", "maxTokens": 7 })),
                );
        }
        let report = plan.run_at(&world, client, &serving.remote);
        assert!(report.tools("list").contains(&"mcp_call".to_owned()), "{mode:?} {client:?}");
        assert_eq!(report.step("echo").text(), "Echo: hi", "{mode:?} {client:?}");
        assert!(report.step("long").text().contains("completed"), "{mode:?} {client:?}");
        if mode != ServeMode::Json {
            // An SDK may drop what arrives together with the response; it never drops the first.
            let progress = report.step("long").progress();
            let expected = [1.0, 2.0, 3.0, 4.0];
            assert!(!progress.is_empty() && expected.starts_with(&progress), "{progress:?}");
        }
        if can_be_asked {
            assert!(report.step("model").text().contains("sampled"), "{mode:?} {client:?}");
        }
    }
    drop(serving);
    world.nothing_is_left();
}

#[test]
fn every_client_over_streamable_http() {
    all_clients(ServeMode::Plain);
}

#[test]
fn every_client_where_answers_are_documents() {
    all_clients(ServeMode::Json);
}

#[test]
fn every_client_without_sessions() {
    all_clients(ServeMode::Stateless);
}

#[test]
fn every_client_over_tls() {
    all_clients(ServeMode::Tls);
}

#[test]
fn every_client_over_the_transport_of_2024() {
    all_clients(ServeMode::Sse);
}

/// The newest clients use the newest revision, server requests included, however the gateway serves older ones.
#[test]
fn the_newest_clients_need_no_session() {
    for mode in [ServeMode::Plain, ServeMode::Json, ServeMode::Stateless, ServeMode::Tls] {
        let world = World::new();
        let serving = Serving::start(&world, mode);
        for client in [Client::TypescriptV2, Client::PythonV2] {
            let report = Plan::new()
                .asking_the_era()
                .answering(
                    "elicitation/create",
                    json!({ "action": "accept", "content": { "name": "Ada", "check": true } }),
                )
                .list("list")
                .call("echo", "mcp_call", &through("echo", &json!({ "message": "hi" })))
                .call("form", "mcp_call", &through("trigger-elicitation-request", &json!({})))
                .run_at(&world, client, &serving.remote);
            assert!(report.tools("list").contains(&"mcp_call".to_owned()), "{mode:?} {client:?}");
            assert_eq!(report.step("echo").text(), "Echo: hi", "{mode:?} {client:?}");
            // Without a session, only this revision supports server requests.
            let form = report.step("form").value().to_string();
            assert!(form.contains("Ada"), "{mode:?} {client:?}: {form}");
        }
        drop(serving);
        world.nothing_is_left();
    }
}

/// Direct mode, seen by every client.
#[test]
fn every_client_sees_servers_as_they_are() {
    let world = World::new();
    let (everything, memory) = (world.direct("everything"), world.direct("memory"));
    let server = |start: &Start| json!({ "command": start.command, "args": start.args });
    let servers = json!({ "everything": server(&everything), "memory": server(&memory) });
    let config = world.path().join("two.json");
    fs::write(&config, json!({ "mcpServers": servers }).to_string()).unwrap();
    let mut args = vec!["--config".to_owned(), text(&config)];
    args.extend(["--transport", "http", "--port", "0"].map(str::to_owned));
    let Start { command, env, .. } = world.gateway();
    let mut serving = Serving::listening(&world, &Start { command, args, env });
    serving.remote.url.push_str("/direct");
    for client in CLIENTS {
        let long = json!({ "duration": 0.4, "steps": 4 });
        let plan = Plan::new()
            .list("list")
            .call("echo", "everything__echo", &json!({ "message": "hi" }))
            .call("graph", "memory__read_graph", &json!({}))
            .call_with_progress("long", "everything__trigger-long-running-operation", &long);
        let newest = matches!(client, Client::TypescriptV2 | Client::PythonV2);
        let plan = if newest { plan.asking_the_era() } else { plan };
        let report = plan.run_at(&world, client, &serving.remote);
        let tools = report.tools("list");
        assert!(tools.contains(&"everything__echo".to_owned()), "{client:?}: {tools:?}");
        assert!(tools.contains(&"memory__read_graph".to_owned()), "{client:?}: {tools:?}");
        assert!(!tools.contains(&"mcp_call".to_owned()), "{client:?}: {tools:?}");
        assert_eq!(report.step("echo").text(), "Echo: hi", "{client:?}");
        assert!(report.step("graph").text().contains("entities"), "{client:?}");
        assert!(!report.step("long").progress().is_empty(), "{client:?}");
    }
    drop(serving);
    world.nothing_is_left();
}

/// The Inspector's command line in one mode.
fn inspected(mode: ServeMode) {
    let world = World::new();
    let serving = Serving::start(&world, mode);
    let arguments = through("echo", &json!({ "message": "hi" })).to_string();
    let mut args = vec![text(&world.installed.inspector()), "--cli".to_owned()];
    args.extend(["--method", "tools/call", "--tool-name", "mcp_call"].map(str::to_owned));
    args.extend(["--tool-args-json".to_owned(), arguments]);
    args.extend(["--header".to_owned(), format!("Authorization: Bearer {}", serving.remote.token)]);
    args.extend(["--format", "json", "--quiet", "--transport"].map(str::to_owned));
    args.extend([serving.remote.over.to_owned(), serving.remote.url.clone()]);
    let env = serving.remote.trust.clone();
    let start = Start { command: world.installed.node(), args, env };
    let output = world.command(&start).stdin(Stdio::null()).output().unwrap();
    let answer = parsed("Inspector", &output);
    assert_eq!(answer["result"]["content"][0]["text"], "Echo: hi", "{answer}");
}

#[test]
fn the_inspector_over_streamable_http() {
    inspected(ServeMode::Plain);
}

#[test]
fn the_inspector_over_the_transport_of_2024() {
    inspected(ServeMode::Sse);
}

#[test]
fn the_inspector_over_tls_without_sessions_and_with_documents() {
    for mode in [ServeMode::Tls, ServeMode::Stateless, ServeMode::Json] {
        inspected(mode);
    }
}
