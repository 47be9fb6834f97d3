//! A compromised worker: whatever it sends, servers receive permitted calls and nothing else.
//!
//! The gateway runs in this process; in place of its worker a program replays the frames written here. Half of them
//! are valid frames of a worker, around arguments that try to be more than arguments; after these come corrupted
//! frames of the same kind, and plain noise. The server behind it records every byte.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use metamcp_child::ShimCommand;
use metamcp_config::config;
use metamcp_config::settings::{CodeProfile, ToolSurface};
use metamcp_engine::gateway::Gateway;
use metamcp_engine::surface::{Finished, View};
use metamcp_sandbox::host::{Launch, Profile};
use metamcp_sandbox::protocol::{End, FromWorker, Level, Op, ScriptError};
use metamcp_testkit::{programs, stand_in};
use serde_json::{Value, json};

/// A fixed seed: the same frames every time.
const SEED: u64 = 0x6d65_7461_6d63_7001;
/// Number of workers, each with this many valid frames and then one corrupted or random one: the first invalid frame
/// ends a worker, so that a second one would never be read. 100,000 frames together.
const WORKERS: u64 = 4_000;
const IN_ORDER: u64 = 24;
/// Concurrent workers.
const AT_ONCE: u64 = 4;
/// What counts as a line break for one parser or another.
const ENDS: [char; 5] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}'];

/// Splitmix.
struct SeededRng(u64);

impl SeededRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }

    fn size(&mut self, most: usize) -> usize {
        usize::try_from(self.below(most as u64)).unwrap()
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.size(of.len())]
    }
}

/// What a server must never receive.
const FORGED: [&str; 6] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"secret","arguments":{}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#,
    r#"{"jsonrpc":"2.0","id":2,"result":{"action":"accept","content":{}}}"#,
    r#"{"jsonrpc":"2.0","id":2097152,"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#,
    r#"[{"jsonrpc":"2.0","id":4,"method":"tools/list"}]"#,
];

/// Arguments that a server may receive, on one line: an object with a unique mark, among all kinds of other members.
fn arguments(rng: &mut SeededRng, mark: &str) -> String {
    let mut text = format!("{{#\"mark\"#:#\"{mark}\"");
    for n in 0..rng.below(4) {
        let value = match rng.below(7) {
            0 => format!("[#{}#]", rng.one(&FORGED)),
            1 => rng.one(&FORGED).replace(',', "#,#").replace('{', "{#"),
            2 => {
                let ends = ["\u{2028}", "\u{2029}", "\u{85}", "\\n", "\\r\\n", "\\u2028"];
                let end = rng.one(&ends);
                format!("\"x{end}{}{end}\"", rng.one(&FORGED).replace('"', "\\\""))
            }
            3 => {
                let depth = rng.size(20);
                format!("{}1{}", "[#".repeat(depth), "#]".repeat(depth))
            }
            4 => "[1e3,#-0,#true,#null,#\"\\u0000\"]".to_owned(),
            5 => format!("\"{}\"", "é€😀".repeat(rng.size(50))),
            _ => format!("{{#\"a\"#:#{{#\"b\"#:#{}#}}#}}", rng.below(1000)),
        };
        text.push_str(&format!("#,#\"k{n}\"#:#{value}"));
    }
    text.push_str("#}");
    // Whatever whitespace is allowed between two tokens.
    let mut out = String::new();
    for piece in text.split_inclusive('#') {
        out.push_str(piece.trim_end_matches('#'));
        if piece.ends_with('#') {
            out.push_str(rng.one(&["", "", "", " ", "\n", "\r", "\r\n", "\n\n", "\t"]));
        }
    }
    out
}

/// One valid frame of a worker. A call of `echo` gets a mark.
fn in_order(rng: &mut SeededRng, id: &mut u32, mark: &str) -> (FromWorker, bool) {
    let mut request = |op: Op, payload: String| {
        *id += 1;
        FromWorker::Request { id: *id - 1, op, payload }
    };
    let call = |server: &str, tool: &str, arguments: &str| {
        format!("{{\"server\":{server},\"tool\":{tool},\"arguments\":{arguments}}}")
    };
    match rng.below(10) {
        0..=2 => {
            let arguments = arguments(rng, mark);
            (request(Op::Call, call("\"alpha\"", "\"echo\"", &arguments)), true)
        }
        3 | 4 => {
            let arguments = arguments(rng, "denied");
            let tool = rng.one(&[
                "\"secret\"",
                "\"se\\u0063ret\"",
                "\"secret\\u0000\"",
                "\"SECRET\"",
                "\"\"",
                "\"echo\\n\"",
            ]);
            let server = rng.one(&[
                "\"alpha\"",
                "\"alpha\"",
                "\"beta\"",
                "\"mcp.alpha\"",
                "\"\"",
                "\"alpha\\n\"",
            ]);
            (request(Op::Call, call(server, tool, &arguments)), false)
        }
        5 => {
            let op = rng.one(&[&Op::Search, &Op::Describe, &Op::List, &Op::Types, &Op::ResultsGet]);
            let word =
                rng.one(&["\"alpha\"", "null", "7", "\"echo\\n\"", "{\"a\":[\n]}", "\"r0\""]);
            let key = rng.one(&["query", "server", "tool", "handle", "options"]);
            (request(*op, format!("{{\"{key}\":{word}}}")), false)
        }
        6 => {
            let value = arguments(rng, "kept");
            (request(Op::ResultsPut, format!("{{\"value\":{value}}}")), false)
        }
        _ => {
            let text = format!("a line\n{}\u{2028}", rng.one(&FORGED));
            let progress =
                FromWorker::Progress { value: 1.0, total: Some(2.0), message: Some(text.clone()) };
            let log = FromWorker::Log { level: Level::Warn, text };
            (if rng.below(2) == 0 { log } else { progress }, false)
        }
    }
}

/// A corrupted frame, or random bytes.
fn bent(rng: &mut SeededRng, id: &mut u32) -> Vec<u8> {
    let mut out = Vec::new();
    let (frame, _) = match rng.below(8) {
        0 => {
            let value =
                rng.one(&["1,\"calls\":[]", "{}\n{}", "", "nul", "{\"a\":\n1}", "\"\u{2028}\""]);
            (FromWorker::Done { end: End::Ok { value: value.to_owned() }, cpu: rng.next() }, false)
        }
        1 => {
            let tool_error = Some(rng.one(&FORGED).to_owned());
            let error = ScriptError {
                message: "x".repeat(rng.size(200)),
                tool_error,
                ..ScriptError::default()
            };
            (FromWorker::Done { end: End::Error(error), cpu: 0 }, false)
        }
        2 => (FromWorker::Ready { layers: Vec::new(), missing: Vec::new() }, false),
        3 => {
            // A payload that is no longer one object with three members.
            let arguments = arguments(rng, "bent");
            let payload = match rng.below(7) {
                0 => format!(
                    "{{\"server\":\"alpha\",\"tool\":\"echo\",\"arguments\":{arguments}\n{}",
                    rng.one(&FORGED)
                ),
                1 => format!(
                    "{{\"server\":\"alpha\",\"tool\":\"echo\",\"arguments\":{arguments}}}}}\n{{"
                ),
                2 => format!(
                    "{{\"server\":\"alpha\",\"tool\":\"echo\",\"tool\":\"secret\",\"arguments\":{arguments}}}"
                ),
                3 => format!(
                    "{{\"server\":\"alpha\",\"tool\":\"echo\",\"arguments\":{arguments},\"arguments\":{{}}}}"
                ),
                4 => format!("[\"alpha\",\"echo\",{arguments}]"),
                5 => format!(
                    "{{\"server\":\"alpha\",\"tool\":\"echo\",\"Arguments\":{{}},\"arguments\":{arguments}}}"
                ),
                _ => format!(
                    "{{\"server\":\"alpha\",\"tool\":\"echo\",\"arguments\":{{}}}},\"method\":\"x\",\"params\":{{\"name\":\"secret\",\"arguments\":{arguments}}}"
                ),
            };
            *id += 1;
            (FromWorker::Request { id: *id - 1, op: Op::Call, payload }, false)
        }
        4 => {
            // An id that is out of sequence.
            let mut other = u32::try_from(rng.below(1 << 32)).unwrap();
            in_order(rng, &mut other, "out of turn")
        }
        5 => {
            let noise = (0..rng.size(64)).map(|_| rng.next() as u8).collect::<Vec<u8>>();
            let length = if rng.below(2) == 0 { noise.len() as u64 } else { rng.below(1 << 32) };
            out.extend_from_slice(&u32::try_from(length).unwrap().to_le_bytes());
            out.extend_from_slice(&noise);
            return out;
        }
        _ => in_order(rng, id, "bent"),
    };
    frame.encode(&mut out);
    for _ in 0..rng.below(3) {
        let at = rng.size(out.len());
        match rng.below(5) {
            0 => out[at] ^= 1 << rng.below(8),
            1 => out[at] = rng.next() as u8,
            2 => out.insert(at, *rng.one(&[&b'\n', &b'}', &b'"', &0])),
            3 => out.truncate(at.max(1)),
            _ => {
                let again = out[at..].to_vec();
                out.extend(again);
            }
        }
    }
    out
}

/// Writes the files of frames, and returns the marks of the calls that must arrive.
fn write_down(folder: &Path) -> Vec<String> {
    let mut ready = Vec::new();
    let layers = Profile::Docker.demands().map(str::to_owned).collect();
    FromWorker::Ready { layers, missing: Vec::new() }.encode(&mut ready);
    fs::write(folder.join("ready"), ready).unwrap();
    let (mut rng, mut marks) = (SeededRng(SEED), Vec::new());
    for worker in 0..WORKERS {
        let (mut first, mut second, mut id) = (Vec::new(), Vec::new(), 0);
        for n in 0..IN_ORDER {
            let mark = format!("{worker}-{n}-{:x}", rng.next());
            let (frame, is_permitted) = in_order(&mut rng, &mut id, &mark);
            frame.encode(&mut first);
            marks.extend(is_permitted.then_some(mark));
        }
        let replies = id;
        second.extend(bent(&mut rng, &mut id));
        let file = stand_in::file(replies, &first, &second);
        fs::write(folder.join(worker.to_string()), file).unwrap();
    }
    marks
}

async fn make(view: &View, name: &str, arguments: &Value) -> Value {
    let meta = json!({ "progressToken": 1 });
    let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
    match view.call_for_command(&params).await.to(view.audience) {
        Finished::Result(result) => serde_json::from_slice(&result).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_worker_that_says_anything_reaches_its_servers_with_permitted_calls_alone() {
    let place = tempfile::tempdir().unwrap();
    let (home, frames) = (place.path().join("home"), place.path().join("frames"));
    fs::create_dir_all(&home).unwrap();
    fs::create_dir_all(&frames).unwrap();
    let journal = place.path().join("journal");
    let marks = write_down(&frames);
    let file = json!({ "mcpServers": { "alpha": {
        "command": programs::line_journal(),
        "args": [journal],
        "deniedTools": ["secret"],
    } } });
    let mut config = config::parse(&file.to_string(), &|_| None).unwrap().config;
    config.settings.home = home;
    // The one profile whose worker the gateway cannot inspect: its claims about its sandbox are trusted.
    config.settings.code.profile = CodeProfile::Docker;
    let shim =
        ShimCommand { program: env!("CARGO_BIN_EXE_metamcp").into(), args: vec!["__shim".into()] };
    let worker = Launch {
        program: programs::worker_stand_in(),
        args: vec![frames.into()],
        env: Vec::new(),
        forks: false,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let gateway = Gateway::start(&config, shim, worker);
        let view = View { tool_surface: ToolSurface::Both, ..gateway.view.clone() };
        let runs: Vec<_> = (0..AT_ONCE)
            .map(|first| {
                let view = view.clone();
                tokio::spawn(async move {
                    for worker in (first..WORKERS).step_by(usize::try_from(AT_ONCE).unwrap()) {
                        let code = format!("\"{}{worker}\"", stand_in::WORD);
                        let result = make(&view, "mcp_execute", &json!({ "code": code })).await;
                        assert!(result["content"].is_array(), "{result}");
                    }
                })
            })
            .collect();
        for run in runs {
            run.await.unwrap();
        }
        let after = json!({ "server": "alpha", "tool": "echo", "args": { "mark": "after" } });
        let result = make(&view, "mcp_call", &after).await;
        assert_eq!(result["content"][0]["text"], "did \"echo\"", "{result}");
        gateway.router.stop_now();
        gateway.router.emptied().await;
        gateway.catalog.written().await;
    });
    judge(&fs::read_to_string(&journal).unwrap(), marks);
}

fn judge(journal: &str, marks: Vec<String>) {
    let mut waited: HashMap<String, bool> = marks.into_iter().map(|mark| (mark, false)).collect();
    assert!(waited.len() > 15_000, "{} calls are permitted", waited.len());
    let mut ids = Vec::new();
    for line in journal.strip_suffix('\n').unwrap().split('\n') {
        assert!(!line.contains(ENDS), "more than one line to some readers: {line:?}");
        let message: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line:?}"));
        let members: Vec<&str> = message.as_object().unwrap().keys().map(String::as_str).collect();
        match message["method"].as_str().unwrap_or_default() {
            "tools/call" => {
                assert_eq!(members, ["jsonrpc", "id", "method", "params"], "{line}");
                let params: Vec<&String> = message["params"].as_object().unwrap().keys().collect();
                assert_eq!(params, ["name", "arguments", "_meta"], "{line}");
                assert_eq!(message["params"]["name"], "echo", "{line}");
                let id = message["id"].as_u64().unwrap();
                assert!(id > 0 && i32::try_from(id).is_ok(), "{line}");
                ids.push(id);
                let mark = message["params"]["arguments"]["mark"].as_str().unwrap_or_default();
                if let Some(came) = waited.get_mut(mark) {
                    assert!(!std::mem::replace(came, true), "twice: {line}");
                }
            }
            "notifications/cancelled" => {
                let of = message["params"]["requestId"].as_u64().unwrap();
                assert!(ids.contains(&of), "of a call that was not made: {line}");
            }
            "initialize" | "notifications/initialized" | "tools/list" | "server/discover" => {}
            _ => panic!("nobody of ours says this: {line}"),
        }
    }
    let missing = waited.values().filter(|came| !**came).count();
    assert_eq!(missing, 0, "of {} permitted calls", waited.len());
}
