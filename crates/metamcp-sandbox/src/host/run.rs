//! One run from script to outcome: a single task that reads requests, answers them and enforces the limits.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::task::yield_now;
use tokio::time::{sleep_until, timeout};

use super::admission::{Admission, Admit, ClockCheck, RequestKind};
use super::completion::{Completion, MAX_TEXT};
use super::json_depth::json_depth;
use super::partials::Partials;
use super::pending_answers::PendingAnswers;
use super::workers::{PIECE, Worker};
use super::{CallError, Host, Limits, LogLine, Op, ScriptJob, ScriptOutcome, Status};
use crate::limits::{CPU_GRACE, DEPTH, LOGS_TAIL, NAME};
use crate::protocol::{FromWorker, MAX_FRAME, ProtocolViolation, ToWorker, WorkerLimits};
use crate::run_clock::{self, CLOCK_CHECK_INTERVAL, RunClock};

/// Backpressure: above this many bytes of queued requests no more are read.
const MAX_QUEUED: usize = 32 * 1024 * 1024;

/// Backpressure: above this many bytes of responses the worker has not read, no more requests are read.
const MAX_UNREAD: usize = 32 * 1024 * 1024;

/// Time to wait for the exit status of a dead worker.
const REAP_TIMEOUT: Duration = Duration::from_secs(1);

/// Progress messages relayed in one run; a correct worker sends no more.
const MAX_PROGRESS: u32 = 2_000;

/// Runs one script to its end. Never fails: errors are outcomes. When `cancel` completes, the run ends as
/// cancelled. Dropping the future kills the worker and drops the calls in flight.
pub async fn run(
    worker: Worker,
    job: ScriptJob,
    host: Arc<dyn Host>,
    cancel: impl Future<Output = ()> + Send,
) -> ScriptOutcome {
    let limits = job.limits.clone().bounded();
    let cpu_before = worker.processor_time().unwrap_or_default();
    let mut run = ScriptRun {
        run_clock: RunClock::new(run_clock::now()),
        cpu_before,
        cpu: Duration::ZERO,
        admission: Admission::new(limits.clone()),
        limits,
        host,
        pending_answers: PendingAnswers::default(),
        queued: HashMap::new(),
        queued_bytes: 0,
        out: Vec::new(),
        sent: 0,
        closed: false,
        logs: Vec::new(),
        logs_left: 0,
        logs_tail_left: LOGS_TAIL,
        logs_dropped: 0,
        logs_before_drop: 0,
        partials: Partials::default(),
        progress: 0,
        next: 0,
    };
    run.logs_left = run.limits.logs;
    if job.code.len() > run.limits.source {
        let completion = Completion::source_too_long(job.code.len(), &run.limits);
        return run.outcome(completion);
    }
    run.send(&ToWorker::Job {
        code: job.code,
        limits: worker_limits(&run.limits),
        servers: job.servers,
    });
    let (worker, ended) = run.drive(worker, cancel).await;
    let completion = match ended {
        Some(completion) => {
            // In the background: closing the socket and reaping the process take as long as a short script.
            #[expect(
                clippy::disallowed_methods,
                reason = "a worker is dropped, which needs no name"
            )]
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

/// The limits the worker enforces on itself.
fn worker_limits(limits: &Limits) -> WorkerLimits {
    WorkerLimits {
        cpu: u64::try_from(limits.cpu.as_micros()).unwrap_or(u64::MAX),
        heap: limits.heap as u64,
        stack: limits.stack as u64,
        sleep: u64::try_from(limits.sleep.as_millis()).unwrap_or(u64::MAX),
        logs: limits.logs as u64,
        result: limits.result as u64,
        calls: u64::from(limits.calls),
    }
}

struct ScriptRun {
    /// Excludes the time in which the gateway was stopped.
    run_clock: RunClock,
    /// CPU time of the worker before its job.
    cpu_before: Duration,
    cpu: Duration,
    limits: Limits,
    admission: Admission,
    host: Arc<dyn Host>,
    pending_answers: PendingAnswers,
    /// Requests that wait for a slot.
    queued: HashMap<u32, (Op, String)>,
    queued_bytes: usize,
    out: Vec<u8>,
    sent: usize,
    /// Whether the worker has closed its end for reading.
    closed: bool,
    logs: Vec<LogLine>,
    logs_left: usize,
    /// Bytes left for the lines that follow a gap.
    logs_tail_left: usize,
    logs_dropped: usize,
    /// How many lines came before the gap.
    logs_before_drop: usize,
    partials: Partials,
    progress: u32,
    /// The id of the worker's next request.
    next: u32,
}

impl ScriptRun {
    /// Runs until the end. Without a completion the worker died without reporting one.
    async fn drive(
        &mut self,
        mut worker: Worker,
        cancel: impl Future<Output = ()> + Send,
    ) -> (Worker, Option<Completion>) {
        let mut cancel = pin!(cancel);
        let mut piece = vec![0; PIECE];
        // No limit can be hit before this.
        let mut next_check = run_clock::now()
            + (self.limits.cpu + CPU_GRACE).min(self.limits.wall).min(CLOCK_CHECK_INTERVAL);
        // One timer for the whole run: inserting a new one for each request took longer than the request.
        let mut alarm = pin!(sleep_until(next_check.into()));
        loop {
            // First, since the branches below are biased and a busy script would never get to the timer.
            if run_clock::now() >= next_check {
                match self.watch(&worker) {
                    ClockCheck::Again(pause) => {
                        next_check = run_clock::now() + pause.min(CLOCK_CHECK_INTERVAL);
                        alarm.as_mut().reset(next_check.into());
                    }
                    ClockCheck::LimitHit(limit_kind) => {
                        return (worker, Some(Completion::from_limit(limit_kind, &self.limits)));
                    }
                }
            }
            if self.flush(&worker).is_err() {
                // It closed its end. What it sent before is still to be read.
                self.closed = true;
                self.out.clear();
                self.sent = 0;
            }
            let reads = self.queued_bytes < MAX_QUEUED && self.out.len() - self.sent < MAX_UNREAD;
            let (mut inward, outward) = worker.halves();
            // Biased: responses leave before more requests are read. That terminates, since only what was read is in flight.
            tokio::select! {
                biased;
                () = &mut cancel => return (worker, Some(Completion::cancelled())),
                done = poll_fn(|context| self.pending_answers.poll(context)), if !self.pending_answers.is_empty() => {
                    for (id, answer) in done {
                        self.answered(id, answer);
                    }
                    // The thread is shared with all other clients, and a script can have any number of requests ready.
                    if self.pending_answers.has_worked() {
                        yield_now().await;
                    }
                }
                // Not `try_read`, which needs a second call to know that the first one emptied the socket.
                read = inward.read(&mut piece), if reads => match read {
                    Ok(0) | Err(_) => return (worker, None),
                    Ok(count) => {
                        worker.frames.push(&piece[..count]);
                        if let Some(completion) = self.frames(&mut worker) {
                            return (worker, Some(completion));
                        }
                    }
                },
                () = outward.writable(), if self.sent < self.out.len() => {}
                () = &mut alarm => {}
            }
        }
    }

    fn watch(&mut self, worker: &Worker) -> ClockCheck {
        if let Some(used) = worker.processor_time() {
            self.cpu = used.saturating_sub(self.cpu_before);
        }
        let spent = self.spent();
        self.admission.watch(spent, self.cpu)
    }

    /// Time since the start.
    fn spent(&mut self) -> Duration {
        self.run_clock.spent(run_clock::now())
    }

    /// Handles every complete frame.
    fn frames(&mut self, worker: &mut Worker) -> Option<Completion> {
        loop {
            let message = match worker.frames.next_frame() {
                Ok(Some(frame)) => FromWorker::decode(frame),
                Ok(None) => return None,
                Err(violation) => Err(violation),
            };
            match message {
                Ok(message) => {
                    if let Some(completion) = self.received(message) {
                        return Some(completion);
                    }
                }
                Err(violation) => return Some(Completion::from_protocol_violation(&violation)),
            }
        }
    }

    fn received(&mut self, message: FromWorker) -> Option<Completion> {
        match message {
            FromWorker::Request { id, op, payload } => return self.requested(id, op, payload),
            FromWorker::Log { level, text } => {
                // Where the first lines used it up come the last ones, which have a limit of their own.
                let left = if text.len() <= self.logs_left {
                    &mut self.logs_left
                } else {
                    self.logs_left = 0;
                    &mut self.logs_tail_left
                };
                // Empty lines take memory as well.
                if text.len() <= *left && self.logs.len() < self.limits.logs {
                    *left -= text.len();
                    self.host.log(level, &text);
                    self.logs.push(LogLine { level, text });
                } else {
                    self.drop_logs(text.len());
                }
            }
            FromWorker::LogsDropped { bytes } => {
                self.drop_logs(usize::try_from(bytes).unwrap_or(usize::MAX));
            }
            FromWorker::Progress { value, total, message } => {
                let is_told = value.is_finite() && total.is_none_or(f64::is_finite);
                if !is_told || message.as_ref().is_some_and(|words| words.len() > MAX_TEXT) {
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
                // One thread uses no more CPU time than wall time, whatever it claims.
                let said = Duration::from_micros(cpu).min(self.spent());
                self.cpu = self.cpu.max(said);
                return Some(Completion::from_end(end, &self.limits));
            }
            FromWorker::Ready { .. } => return Some(Completion::out_of_order()),
        }
        None
    }

    fn drop_logs(&mut self, bytes: usize) {
        if self.logs_dropped == 0 {
            self.logs_before_drop = self.logs.len();
        }
        self.logs_dropped = self.logs_dropped.saturating_add(bytes);
    }

    fn requested(&mut self, id: u32, op: Op, payload: String) -> Option<Completion> {
        // Ids are consecutive, so that no response can go to another request.
        if id != self.next {
            return Some(Completion::out_of_order());
        }
        self.next = self.next.wrapping_add(1);
        let (op, payload) = match op {
            Op::Partial => {
                // Deeper than can be sent on: it counts as unfinished.
                if json_depth(&payload) > DEPTH {
                    return None;
                }
                let taken = self.partials.take(&payload);
                return taken.err().map(|error| Completion::from_protocol_violation(&error));
            }
            Op::Keep => {
                let Ok(Group { group }) = serde_json::from_str(&payload) else {
                    let violation = ProtocolViolation::Json { field: "payload" };
                    return Some(Completion::from_protocol_violation(&violation));
                };
                let kept = self.partials.remove(group);
                let value = kept.as_ref().map_or("null", |kept| kept.json.as_str());
                (Op::ResultsPut, format!("{{\"value\":{value}}}"))
            }
            other => (other, payload),
        };
        let kind = match kind_of(op, &payload, &*self.host) {
            Ok(kind) => kind,
            Err(violation) => return Some(Completion::from_protocol_violation(&violation)),
        };
        let now = self.spent();
        match self.admission.request(id, kind, now) {
            Admit::Start => self.start(id, op, payload),
            Admit::Wait => {
                self.queued_bytes += payload.len();
                self.queued.insert(id, (op, payload));
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
        self.send(&ToWorker::Reply { id, answer: answer.map_err(|error| error.json) });
        let now = self.spent();
        for id in self.admission.finished(id, ok, now) {
            if let Some((op, payload)) = self.queued.remove(&id) {
                self.queued_bytes -= payload.len();
                self.start(id, op, payload);
            }
        }
    }

    fn send(&mut self, message: &ToWorker) {
        if self.closed {
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
            match worker.link().try_write(&self.out[self.sent..]) {
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
        let partial = match status {
            Status::Ok => Vec::new(),
            _ => self.partials.into_results(),
        };
        ScriptOutcome {
            status,
            value,
            logs: self.logs,
            logs_dropped: self.logs_dropped,
            logs_before_drop: self.logs_before_drop,
            partial,
            calls: self.admission.close(wall),
            error,
            limit,
            cpu: self.cpu,
            wall,
        }
    }
}

/// The payload of a call as the prelude writes it: these members, each once, and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    server: String,
    tool: String,
    #[serde(rename = "arguments")]
    _arguments: IgnoredAny,
}

/// The payload of [`Op::Keep`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    group: u32,
}

/// The payload of every other operation. Each reads some of the members.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OtherPayload {
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

/// What a request counts as.
///
/// # Errors
/// A payload that the prelude never writes.
fn kind_of(op: Op, payload: &str, host: &dyn Host) -> Result<RequestKind, ProtocolViolation> {
    let violation = |_| ProtocolViolation::Json { field: "payload" };
    // serde would read an array as the members in their order.
    if !payload.starts_with('{') {
        return Err(ProtocolViolation::Json { field: "payload" });
    }
    // Nested too deeply for serde_json: rejected later, without parsing it.
    let is_deep = levels(payload) > DEPTH;
    if op != Op::Call {
        if !is_deep {
            serde_json::from_str::<OtherPayload>(payload).map_err(violation)?;
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

/// The depth of the arguments. The object around them is one level.
fn levels(payload: &str) -> usize {
    json_depth(payload).saturating_sub(1)
}

/// A name for the list of calls, bounded.
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

/// A response that fits a frame.
fn bounded(answer: Result<String, CallError>) -> Result<String, CallError> {
    /// Frame overhead of a response.
    const AROUND: usize = 64;
    let most = MAX_FRAME - AROUND;
    match answer {
        Ok(text) if text.len() > most => Err(CallError {
            json: format!(
                r#"{{"code":"limit_exceeded","limit":"result","value":{most},"retryable":false,"message":"the result has {} bytes, {most} at most come into a script; ask the tool for less"}}"#,
                text.len(),
            ),
        }),
        Err(error) if error.json.len() > most => Err(CallError {
            json: r#"{"code":"internal","message":"the call failed, and its error is too long to be shown"}"#.to_owned(),
        }),
        answer => answer,
    }
}

/// Whether a tool's result has `isError`.
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
