//! The sandbox's worker with the engine as WASM: the same protocol, and the same lockdown where there is one.
//! Owns: the translation between the two.      Never: reaches anything a script could not.
//! In: the calls that the worker's loop makes to an engine.  Out: calls into the module.
//! Tests: `tests/workers.rs`, `metamcp/tests/hardened.rs`, in builds that have the feature.

use metamcp_sandbox::limits::QUESTIONS;
use metamcp_sandbox::prelude::{LINE, PARTIAL, PARTIAL_ITEM, PAYLOAD, TIMERS};
use metamcp_sandbox::protocol::{End, ScriptError, Server, WorkerLimits};
use metamcp_sandbox::worker::{Engine, HostHandle, position, serve_unlocked};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::confine;
use crate::realm::{Natives, Realm, ScriptEnd, ScriptInput, Thrown, Ticker};

/// Stack of the thread that runs a script without the lockdown. The main thread's is 1 or 2 MiB on Windows, and compiled
/// code may use 4.
const STACK: usize = 8 * 1024 * 1024;

/// Exit code of a worker whose thread cannot be started.
const BROKEN: i32 = 70;

/// Runs the worker of the profile `hardened` and returns the exit code of the process; see
/// `metamcp_sandbox::worker::worker_main`.
#[cfg(target_os = "linux")]
pub fn worker_main() -> i32 {
    locked_down(metamcp_sandbox::lockdown::LinkKind::Socket)
}

/// The same for the profile `wasm`: connected by standard input and output, and with as much of the lockdown as there is.
pub fn piped_worker_main() -> i32 {
    #[cfg(target_os = "linux")]
    return locked_down(metamcp_sandbox::lockdown::LinkKind::Pipes);
    #[cfg(not(target_os = "linux"))]
    unlocked_worker_main()
}

/// The same without any of it, as on systems that have none; on Linux only tests do without.
pub fn unlocked_worker_main() -> i32 {
    let worker = std::thread::Builder::new().stack_size(STACK).spawn(|| {
        serve_unlocked(
            |outside| WasmEngine::build(outside, Ticker::Thread),
            confine::apply,
            confine::begun,
        )
    });
    worker.map_or(BROKEN, |worker| worker.join().unwrap_or(BROKEN))
}

#[cfg(target_os = "linux")]
fn locked_down(link_kind: metamcp_sandbox::lockdown::LinkKind) -> i32 {
    use metamcp_sandbox::worker::{WorkerSetup, serve};
    let setup = WorkerSetup {
        layers: &[metamcp_sandbox::layer::WASM],
        reserved: crate::realm::RESERVED,
        link_kind,
        forks: false,
    };
    serve(setup, |outside| WasmEngine::build(outside, Ticker::CpuTimer))
}

/// The module as the engine of the worker's loop.
struct WasmEngine {
    realm: Realm<HostNatives>,
    /// Lines of the script.
    lines: u32,
    /// Limit on the value as JSON, in bytes. The prelude counts characters, which may be more bytes.
    result: usize,
}

impl WasmEngine {
    fn build(outside: HostHandle, ticker: Ticker) -> Option<WasmEngine> {
        let realm = Realm::build(HostNatives(outside), ticker).ok()?;
        Some(WasmEngine { realm, lines: 1, result: usize::MAX })
    }
}

impl Engine for WasmEngine {
    fn begin(&mut self, code: &str, servers: &[Server], limits: &WorkerLimits) -> Result<(), End> {
        self.lines = u32::try_from(code.lines().count()).unwrap_or(u32::MAX);
        let servers: Vec<_> = servers
            .iter()
            .map(|server| json!({ "name": server.name, "identifiers": server.identifiers }))
            .collect();
        let setup = json!({
            "servers": servers,
            "sleep": limits.sleep,
            "result": limits.result,
            "limits": {
                "payload": PAYLOAD,
                "line": LINE,
                "timers": TIMERS,
                "calls": limits.calls,
                "questions": QUESTIONS,
                "partial": PARTIAL,
                "partial_item": PARTIAL_ITEM,
            },
        });
        let size = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        self.result = size(limits.result);
        let job = ScriptInput {
            source: &position::wrapped(code),
            file: position::FILE,
            setup: &setup.to_string(),
            heap: size(limits.heap),
            stack: size(limits.stack),
        };
        self.realm.begin(job).map_err(|ended| end(ended, self.lines))
    }

    fn run(&mut self) -> Result<(), End> {
        self.realm.run().map_err(|ended| end(ended, self.lines))
    }

    fn ended(&mut self) -> Option<End> {
        self.realm.ended().map(|ended| match ended {
            ScriptEnd::Value(value) if value.len() > self.result => {
                End::ResultLimit { bytes: value.len() as u64 }
            }
            ended => end(ended, self.lines),
        })
    }

    fn settle(&mut self, id: u32, answer: Result<String, String>) -> Result<(), End> {
        let answer = answer.as_deref().map_err(String::as_str);
        self.realm.settle(id, answer).map_err(|ended| end(ended, self.lines))
    }

    fn due(&mut self, number: u32) -> Result<(), End> {
        self.realm.due(number).map_err(|ended| end(ended, self.lines))
    }

    fn ran_out(&mut self) -> bool {
        self.realm.ran_out()
    }
}

fn end(ended: ScriptEnd, lines: u32) -> End {
    let located = |thrown: Thrown| {
        let tool = thrown.tool_error.map(position::without_lone_surrogates);
        position::located(thrown.name, thrown.message, &thrown.stack, tool, lines)
    };
    match ended {
        ScriptEnd::Value(value) => End::Ok { value: position::without_lone_surrogates(value) },
        ScriptEnd::Threw(thrown) => End::Error(located(thrown)),
        ScriptEnd::Memory(thrown) => End::MemoryLimit(located(thrown)),
        ScriptEnd::Cpu => End::CpuLimit,
        ScriptEnd::ResultTooLong { bytes } => End::ResultLimit { bytes },
        ScriptEnd::Broken { reason } => End::Error(ScriptError {
            name: "InternalError".into(),
            message: format!("the engine stopped: {reason}"),
            ..ScriptError::default()
        }),
    }
}

/// The host functions available to the module.
struct HostNatives(HostHandle);

impl Natives for HostNatives {
    fn request(&mut self, op: u8, payload: String) -> Option<u32> {
        self.0.request(op, payload)
    }

    fn log(&mut self, level: u8, text: String) {
        self.0.log(level, text);
    }

    fn progress(&mut self, value: f64, total: Option<f64>, message: Option<String>) {
        self.0.progress(value, total, message);
    }

    fn timer(&mut self, milliseconds: f64) -> u32 {
        self.0.timer(milliseconds)
    }

    fn clear(&mut self, number: u32) {
        self.0.clear(number);
    }

    fn random(&mut self, out: &mut [u8]) {
        // Without a random source a script gets zeros; it has nothing to keep secret from itself.
        let _zeros = getrandom::fill(out);
    }

    fn sha256(&mut self, bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }

    fn now(&mut self) -> f64 {
        confine::now()
    }

    fn is_out_of_time(&mut self) -> bool {
        self.0.is_out_of_time()
    }
}
