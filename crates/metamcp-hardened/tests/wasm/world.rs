//! A worker's loop without a worker: questions are answered at once, timers are due in order.

use std::collections::{BTreeMap, VecDeque};
use std::thread;

use metamcp_hardened::realm::{Natives, Realm, ScriptEnd, ScriptInput, Ticker};
use nix::time::{ClockId, clock_gettime};
use sha2::{Digest, Sha256};

/// What interrupts scripts here.
#[cfg(target_os = "linux")]
const TICKER: Ticker = Ticker::CpuTimer;
#[cfg(not(target_os = "linux"))]
const TICKER: Ticker = Ticker::Thread;

/// The operation that has no response.
const PARTIAL: u8 = 7;
/// How many operations there are.
const OPS: u8 = 9;

/// What a run may use, in a test.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) cpu_milliseconds: i64,
    pub(crate) heap: usize,
    pub(crate) stack: usize,
    pub(crate) result: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        // A machine under load needs long for what is soon done otherwise; attacks are given less.
        Bounds { cpu_milliseconds: 60_000, heap: 64 << 20, stack: 512 << 10, result: 10 << 20 }
    }
}

/// What came of a script.
#[derive(Debug)]
pub(crate) struct Run {
    /// How it ended; nothing if it waits for what nobody can settle.
    pub(crate) end: Option<ScriptEnd>,
    pub(crate) world: World,
}

#[derive(Debug, Default)]
pub(crate) struct World {
    pub(crate) logs: Vec<(u8, String)>,
    pub(crate) questions: Vec<(u8, String)>,
    pub(crate) progress: Vec<(f64, Option<f64>, Option<String>)>,
    waiting: VecDeque<u32>,
    timers: BTreeMap<(u64, u32), ()>,
    last_timer: u32,
    deadline: i64,
}

fn processor_milliseconds() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap();
    time.tv_sec() * 1000 + time.tv_nsec() / 1_000_000
}

impl Natives for World {
    fn request(&mut self, op: u8, payload: String) -> Option<u32> {
        let number = u32::try_from(self.questions.len()).unwrap();
        self.questions.push((op, payload));
        if op != PARTIAL {
            self.waiting.push_back(number);
        }
        (op < OPS).then_some(number)
    }
    fn log(&mut self, level: u8, text: String) {
        self.logs.push((level, text));
    }
    fn progress(&mut self, value: f64, total: Option<f64>, message: Option<String>) {
        self.progress.push((value, total, message));
    }
    fn timer(&mut self, milliseconds: f64) -> u32 {
        self.last_timer += 1;
        self.timers.insert((milliseconds as u64, self.last_timer), ());
        self.last_timer
    }
    fn clear(&mut self, number: u32) {
        self.timers.retain(|&(_, timer), ()| timer != number);
    }
    fn random(&mut self, out: &mut [u8]) {
        out.fill(0x5a);
    }
    fn sha256(&mut self, bytes: &[u8]) -> [u8; 32] {
        Sha256::digest(bytes).into()
    }
    fn now(&mut self) -> f64 {
        1_700_000_000_000_000.0
    }
    fn is_out_of_time(&mut self) -> bool {
        processor_milliseconds() > self.deadline
    }
}

/// Runs a script to its end. A call of a tool is answered with its own arguments as the content, one of
/// the tool `fail` or the server `evil` with an error.
pub(crate) fn run(code: &str, bounds: Bounds) -> Run {
    let code = code.to_owned();
    // The stack of a test's thread is smaller than what compiled code may use of it.
    let thread = thread::Builder::new().stack_size(16 << 20).spawn(move || looped(&code, bounds));
    thread.unwrap().join().unwrap()
}

fn looped(code: &str, bounds: Bounds) -> Run {
    let mut realm = Realm::build(World::default(), TICKER).unwrap();
    realm.natives().deadline = processor_milliseconds() + bounds.cpu_milliseconds;
    let setup = format!(
        r#"{{"servers":[{{"name":"git hub","identifiers":["gitHub","git_hub"]}},{{"name":"github","identifiers":["github"]}}],"sleep":30000,"result":{},"limits":{{"payload":4194304,"line":8192,"timers":1000,"calls":2000,"questions":2000,"partial":8388608,"partial_item":1048576}}}}"#,
        bounds.result
    );
    let source = format!("(async () => {{\n{code}\n}})");
    let job = ScriptInput {
        source: &source,
        file: "script",
        setup: &setup,
        heap: bounds.heap,
        stack: bounds.stack,
    };
    let end = turned(&mut realm, job);
    Run { end, world: std::mem::take(realm.natives()) }
}

fn turned(realm: &mut Realm<World>, job: ScriptInput<'_>) -> Option<ScriptEnd> {
    if let Err(end) = realm.begin(job) {
        return Some(end);
    }
    loop {
        if let Err(end) = realm.run() {
            return Some(end);
        }
        if let Some(end) = realm.ended() {
            return Some(end);
        }
        let turn = if let Some(number) = realm.natives().waiting.pop_front() {
            let (_, payload) = realm.natives().questions[number as usize].clone();
            if payload.contains("\"fail\"") || payload.contains("\"evil\"") {
                realm.settle(number, Err(r#"{"message":"no","code":"broken","retryable":true}"#))
            } else if payload.contains("\"garbage\"") {
                realm.settle(number, Ok("{"))
            } else {
                let text = format!(r#"{{"structuredContent":{payload}}}"#);
                realm.settle(number, Ok(&text))
            }
        } else if let Some((key, ())) = realm.natives().timers.pop_first() {
            realm.due(key.1)
        } else if realm.ran_out() {
            return Some(ScriptEnd::Memory(Default::default()));
        } else {
            return None;
        };
        if let Err(end) = turn {
            return Some(end);
        }
    }
}
