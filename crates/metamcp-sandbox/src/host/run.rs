//! One run from script to outcome: a single task that reads, answers, counts and watches.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::io::AsyncReadExt as _;
use tokio::task::yield_now;
use tokio::time::{sleep_until, timeout};

use super::admission::{Admission, Admit, ClockCheck, RequestKind};
use super::completion::{Completion, MAX_WORDS};
use super::json_depth::json_depth;
use super::pending_answers::PendingAnswers;
use super::workers::{PIECE, Worker};
use super::{CallError, Host, Limits, LogLine, Op, ScriptJob, ScriptOutcome};
use crate::limits::{CPU_GRACE, DEPTH, NAME};
use crate::protocol::{FromWorker, MAX_FRAME, ProtocolViolation, ToWorker, WorkerLimits};
use crate::run_clock::{CLOCK_CHECK_INTERVAL, RunClock};

/// Bytes of questions in line above which no more are read; the worker then waits with the next.
const MAX_WAITING: usize = 32 * 1024 * 1024;

/// Bytes of answers not yet taken by the worker above which no further question is read.
const MAX_ANSWERS: usize = 32 * 1024 * 1024;

/// How long the dead are waited for, to be told why they died. The kernel needs a moment at most.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// Words about progress that are passed on in one run; a worker of ours sends no more.
const MAX_PROGRESS: u32 = 2_000;

/// Runs one script to its end. Never fails: what goes wrong is an outcome. When `cancel` completes, the
/// run ends as cancelled. Dropping the future kills the worker and drops the calls under way.
pub async fn run(
    worker: Worker,
    job: ScriptJob,
    host: Arc<dyn Host>,
    cancel: impl Future<Output = ()> + Send,
) -> ScriptOutcome {
    let limits = job.limits.clone().bounded();
    let before = worker.processor_time().unwrap_or_default();
    let mut run = ScriptRun {
        run_clock: RunClock::new(Instant::now()),
        before,
        cpu: Duration::ZERO,
        admission: Admission::new(limits.clone()),
        limits,
        host,
        pending_answers: PendingAnswers::default(),
        held: HashMap::new(),
        held_bytes: 0,
        out: Vec::new(),
        sent: 0,
        deaf: false,
        logs: Vec::new(),
        logs_left: 0,
        logs_dropped: 0,
        progress: 0,
        next: 0,
    };
    run.logs_left = run.limits.logs;
    if job.code.len() > run.limits.source {
        let completion = Completion::source_too_long(job.code.len(), &run.limits);
        return run.outcome(completion);
    }
    run.say(&ToWorker::Job {
        code: job.code,
        limits: worker_limits(&run.limits),
        servers: job.servers,
    });
    let (worker, ended) = run.drive(worker, cancel).await;
    let completion = match ended {
        Some(completion) => {
            // Closing its socket and having it buried take as long as a short script, and nobody waits for that.
            tokio::spawn(async { drop(worker) });
            completion
        }
        None => {
            let status = match worker.end() {
                Some(reaped) => timeout(REAP_TIMEOUT, reaped).await.ok().and_then(Result::ok),
                None => None,
            };
            Completion::from_exit(status, &run.limits)
        }
    };
    run.outcome(completion)
}

/// What a worker is told of the limits.
fn worker_limits(limits: &Limits) -> WorkerLimits {
    WorkerLimits {
        cpu: u64::try_from(limits.cpu.as_micros()).unwrap_or(u64::MAX),
        heap: limits.heap as u64,
        stack: limits.stack as u64,
        sleep: u64::try_from(limits.sleep.as_millis()).unwrap_or(u64::MAX),
        logs: limits.logs as u64,
        result: limits.result as u64,
    }
}

struct ScriptRun {
    /// The time it took so far: a gateway that was stopped gives its scripts what they had left.
    run_clock: RunClock,
    /// Processor time of the worker before its job.
    before: Duration,
    cpu: Duration,
    limits: Limits,
    admission: Admission,
    host: Arc<dyn Host>,
    pending_answers: PendingAnswers,
    /// Questions in line.
    held: HashMap<u32, (Op, String)>,
    held_bytes: usize,
    out: Vec<u8>,
    sent: usize,
    /// Whether the worker takes nothing any more.
    deaf: bool,
    logs: Vec<LogLine>,
    logs_left: usize,
    logs_dropped: usize,
    progress: u32,
    /// The number of the worker's next question.
    next: u32,
}

impl ScriptRun {
    /// Turns until the run ended. Without a verdict the worker died without a word.
    async fn drive(
        &mut self,
        mut worker: Worker,
        cancel: impl Future<Output = ()> + Send,
    ) -> (Worker, Option<Completion>) {
        let mut cancel = pin!(cancel);
        let mut piece = vec![0; PIECE];
        // Nothing is over before this; looked at again then.
        let mut next_check = Instant::now()
            + (self.limits.cpu + CPU_GRACE).min(self.limits.wall).min(CLOCK_CHECK_INTERVAL);
        // One for the whole run: putting a new one among all timers of the gateway for each answer took longer than the answer.
        let mut alarm = pin!(sleep_until(next_check.into()));
        loop {
            // Before anything else: while there is always something to answer, nothing below would get to it.
            if Instant::now() >= next_check {
                match self.watch(&worker) {
                    ClockCheck::Again(pause) => {
                        next_check = Instant::now() + pause.min(CLOCK_CHECK_INTERVAL);
                        alarm.as_mut().reset(next_check.into());
                    }
                    ClockCheck::LimitHit(limit_kind) => {
                        return (worker, Some(Completion::from_limit(limit_kind, &self.limits)));
                    }
                }
            }
            if self.flush(&worker).is_err() {
                // It closed its end. What it said before is still to be read.
                self.deaf = true;
                self.out.clear();
                self.sent = 0;
            }
            let reads = self.held_bytes < MAX_WAITING && self.out.len() - self.sent < MAX_ANSWERS;
            let (mut inward, outward) = worker.halves();
            // In this order: what is answered already goes out before more is taken in. There is an end to that, since no
            // more are under way than were asked for.
            tokio::select! {
                biased;
                () = &mut cancel => return (worker, Some(Completion::cancelled())),
                done = poll_fn(|context| self.pending_answers.poll(context)), if !self.pending_answers.is_empty() => {
                    for (id, answer) in done {
                        self.answered(id, answer);
                    }
                    // The thread is shared with everybody else's requests, and a script can have any number of
                    // questions ready.
                    if self.pending_answers.has_worked() {
                        yield_now().await;
                    }
                }
                // Not by `try_read`, which needs a second look at a socket to know that the first one took all.
                heard = inward.read(&mut piece), if reads => match heard {
                    Ok(0) | Err(_) => return (worker, None),
                    Ok(count) => {
                        worker.frames.push(&piece[..count]);
                        if let Some(completion) = self.frames(&mut worker) {
                            return (worker, Some(completion));
                        }
                    }
                },
                _ = outward.writable(), if self.sent < self.out.len() => {}
                () = &mut alarm => {}
            }
        }
    }

    fn watch(&mut self, worker: &Worker) -> ClockCheck {
        if let Some(used) = worker.processor_time() {
            self.cpu = used.saturating_sub(self.before);
        }
        let spent = self.spent();
        self.admission.watch(spent, self.cpu)
    }

    /// How long it runs already.
    fn spent(&mut self) -> Duration {
        self.run_clock.spent(Instant::now())
    }

    /// Reads every frame that is here.
    fn frames(&mut self, worker: &mut Worker) -> Option<Completion> {
        loop {
            let message = match worker.frames.next_frame() {
                Ok(Some(frame)) => FromWorker::decode(frame),
                Ok(None) => return None,
                Err(violation) => Err(violation),
            };
            match message {
                Ok(message) => {
                    if let Some(completion) = self.heard(message) {
                        return Some(completion);
                    }
                }
                Err(violation) => return Some(Completion::from_protocol_violation(&violation)),
            }
        }
    }

    fn heard(&mut self, message: FromWorker) -> Option<Completion> {
        match message {
            FromWorker::Request { id, op, payload } => return self.asked(id, op, payload),
            FromWorker::Log { level, text } => {
                // Lines without a text take room as well.
                if text.len() <= self.logs_left && self.logs.len() < self.limits.logs {
                    self.logs_left -= text.len();
                    self.host.log(level, &text);
                    self.logs.push(LogLine { level, text });
                } else {
                    self.logs_left = 0;
                    self.logs_dropped = self.logs_dropped.saturating_add(text.len());
                }
            }
            FromWorker::LogsDropped { bytes } => {
                let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
                self.logs_dropped = self.logs_dropped.saturating_add(bytes);
            }
            FromWorker::Progress { value, total, message } => {
                let is_told = value.is_finite() && total.is_none_or(f64::is_finite);
                if !is_told || message.as_ref().is_some_and(|words| words.len() > MAX_WORDS) {
                    return Some(Completion::from_protocol_violation(&ProtocolViolation::Bounds {
                        field: "progress",
                    }));
                }
                if self.progress < MAX_PROGRESS {
                    self.progress += 1;
                    self.host.progress(value, total, message.as_deref());
                }
            }
            FromWorker::Done { end, cpu } => {
                // One thread uses no more than passes on the wall, whatever it says.
                let said = Duration::from_micros(cpu).min(self.spent());
                self.cpu = self.cpu.max(said);
                return Some(Completion::from_end(end, &self.limits));
            }
            FromWorker::Ready { .. } => return Some(Completion::out_of_order()),
        }
        None
    }

    fn asked(&mut self, id: u32, op: Op, payload: String) -> Option<Completion> {
        // Numbers follow each other, so that no answer can go to another question than its own.
        if id != self.next {
            return Some(Completion::out_of_order());
        }
        self.next = self.next.wrapping_add(1);
        let kind = match kind_of(op, &payload, &*self.host) {
            Ok(kind) => kind,
            Err(violation) => return Some(Completion::from_protocol_violation(&violation)),
        };
        let now = self.spent();
        match self.admission.request(id, kind, now) {
            Admit::Start => self.start(id, op, payload),
            Admit::Wait => {
                self.held_bytes += payload.len();
                self.held.insert(id, (op, payload));
            }
            Admit::LimitHit(limit_kind) => {
                return Some(Completion::from_limit(limit_kind, &self.limits));
            }
            Admit::Repeated => return Some(Completion::out_of_order()),
        }
        None
    }

    fn start(&mut self, id: u32, op: Op, payload: String) {
        let answer = match levels(&payload) {
            levels if levels > DEPTH => Box::pin(std::future::ready(Err(too_deep(levels)))),
            _ => self.host.answer(op, payload),
        };
        self.pending_answers.add(id, op, answer);
    }

    fn answered(&mut self, id: u32, answer: Result<String, CallError>) {
        let answer = bounded(answer);
        let ok = answer.as_ref().is_ok_and(|result| !is_error_result(result));
        self.say(&ToWorker::Reply { id, answer: answer.map_err(|error| error.json) });
        let now = self.spent();
        for id in self.admission.finished(id, ok, now) {
            if let Some((op, payload)) = self.held.remove(&id) {
                self.held_bytes -= payload.len();
                self.start(id, op, payload);
            }
        }
    }

    fn say(&mut self, message: &ToWorker) {
        if self.deaf {
            return;
        }
        if self.sent == self.out.len() {
            self.out.clear();
            self.sent = 0;
        }
        message.encode(&mut self.out);
    }

    /// Writes what the socket takes.
    fn flush(&mut self, worker: &Worker) -> io::Result<()> {
        while self.sent < self.out.len() {
            match worker.socket().try_write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn outcome(mut self, completion: Completion) -> ScriptOutcome {
        let wall = self.spent();
        let Completion { status, value, error, limit } = completion;
        ScriptOutcome {
            status,
            value,
            logs: self.logs,
            logs_dropped: self.logs_dropped,
            calls: self.admission.close(wall),
            error,
            limit,
            cpu: self.cpu,
            wall,
        }
    }
}

/// What is asked, as the prelude writes it: these members, each once, and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    server: String,
    tool: String,
    #[serde(rename = "arguments")]
    _arguments: IgnoredAny,
}

/// The same for everything that is no call. Which of them an operation reads is its own business.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Question {
    #[serde(default, rename = "query")]
    _query: IgnoredAny,
    #[serde(default, rename = "options")]
    _options: IgnoredAny,
    #[serde(default, rename = "server")]
    _server: IgnoredAny,
    #[serde(default, rename = "tool")]
    _tool: IgnoredAny,
    #[serde(default, rename = "handle")]
    _handle: IgnoredAny,
    #[serde(default, rename = "value")]
    _value: IgnoredAny,
}

/// What a question is, for the books.
///
/// # Errors
/// It is nothing that a worker of ours asks.
fn kind_of(op: Op, payload: &str, host: &dyn Host) -> Result<RequestKind, ProtocolViolation> {
    let violation = |_| ProtocolViolation::Json { field: "payload" };
    // A list would be read as the members in their order.
    if !payload.starts_with('{') {
        return Err(ProtocolViolation::Json { field: "payload" });
    }
    // What is nested too deeply for the reader of JSON is answered with that, and nobody looks into it.
    let is_deep = levels(payload) > DEPTH;
    if op != Op::Call {
        if !is_deep {
            serde_json::from_str::<Question>(payload).map_err(violation)?;
        }
        return Ok(RequestKind::Question);
    }
    if is_deep {
        return Ok(RequestKind::Call { server: String::new(), tool: String::new() });
    }
    let Call { server, tool, .. } = serde_json::from_str(payload).map_err(violation)?;
    let server = host.server_meant(&server).unwrap_or(server);
    Ok(RequestKind::Call { server: short(server), tool: short(tool) })
}

/// How deep what is asked with is nested. What is around it takes one level.
fn levels(payload: &str) -> usize {
    json_depth(payload).saturating_sub(1)
}

/// A name in the books, which are as long as the names in them.
fn short(mut name: String) -> String {
    if let Some((at, _)) = name.char_indices().nth(NAME) {
        name.truncate(at);
        name.push('…');
        name.shrink_to_fit();
    }
    name
}

fn too_deep(levels: usize) -> CallError {
    CallError {
        json: format!(
            r#"{{"code":"validation_input","retryable":false,"message":"nested too deeply: {levels} levels, {DEPTH} at most; nothing was sent"}}"#
        ),
    }
}

/// An answer that fits a frame.
fn bounded(answer: Result<String, CallError>) -> Result<String, CallError> {
    /// What is around an answer in its frame.
    const AROUND: usize = 64;
    match answer {
        Ok(text) if text.len() > MAX_FRAME - AROUND => Err(CallError {
            json: format!(
                r#"{{"code":"result_too_large","retryable":false,"message":"the result has {} bytes, {} at most; ask the tool for less"}}"#,
                text.len(),
                MAX_FRAME - AROUND,
            ),
        }),
        Err(error) if error.json.len() > MAX_FRAME - AROUND => Err(CallError {
            json: r#"{"code":"internal","message":"the call failed, and its error is too long to be shown"}"#.to_owned(),
        }),
        answer => answer,
    }
}

/// Whether a result of a tool is an error by its own word.
fn is_error_result(result: &str) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Result {
        #[serde(default)]
        is_error: bool,
    }
    result.contains("\"isError\"")
        && serde_json::from_str::<Result>(result).is_ok_and(|result| result.is_error)
}
