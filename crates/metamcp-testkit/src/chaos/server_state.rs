//! What all hooks share: the options, the output, the journal, and the calls in flight.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::unistd::{Pid, getppid};
use serde_json::{Value, json};

use super::hazards::Hook;
use super::hooks::Next;
use super::message::{Call, request_line};
use super::options::{Options, SelectedHazard, fires_by_odds};
use super::output::{Output, Piece};
use crate::census;
use crate::journal::{EventKind, JournalWriter, Record};

pub(super) struct ServerState {
    pub options: Options,
    pub output: Output,
    /// The parent at start; a different one means that it has died.
    pub parent: Pid,
    pub surroundings: Value,
    /// Its standard input by name, for the journal.
    input: Option<String>,
    pub calls: AtomicU64,
    pub lists: AtomicU64,
    /// Tools added by the tool `grow`.
    pub grown: AtomicU64,
    /// Tells this process from all others.
    pub number: u64,
    /// What a stateful server was told last.
    pub kept: Mutex<String>,
    pub tasks: super::tasks::Tasks,
    /// The capabilities the client declared.
    pub capabilities: OnceLock<Value>,
    /// Whether `server/discover` was received.
    pub probed: AtomicBool,
    /// The subscription to tool list changes.
    subscription: Mutex<Option<Value>>,
    journal_writer: Option<JournalWriter>,
    begun: Mutex<HashSet<&'static str>>,
    chosen: OnceLock<bool>,
    asked: Mutex<HashMap<String, Sender<Value>>>,
    next_question: AtomicU64,
    cancelled: Mutex<HashSet<String>>,
    cancelling: Condvar,
}

impl ServerState {
    pub(super) fn new(options: Options) -> Result<Self> {
        // Before anything is opened, so that only inherited files show.
        let surroundings = surroundings().context("looking at /proc/self")?;
        let journal_writer = match &options.journal {
            Some(path) => Some(
                JournalWriter::open(path)
                    .with_context(|| format!("opening the journal {}", path.display()))?,
            ),
            None => None,
        };
        Ok(Self {
            options,
            output: Output::default(),
            parent: getppid(),
            surroundings,
            input: census::input(std::process::id()),
            calls: AtomicU64::new(0),
            lists: AtomicU64::new(0),
            grown: AtomicU64::new(0),
            // As many bits as a number in JSON keeps.
            number: RandomState::new().hash_one(std::process::id()) >> 11,
            kept: Mutex::default(),
            tasks: super::tasks::Tasks::default(),
            capabilities: OnceLock::new(),
            probed: AtomicBool::new(false),
            subscription: Mutex::default(),
            journal_writer,
            begun: Mutex::default(),
            chosen: OnceLock::new(),
            asked: Mutex::default(),
            next_question: AtomicU64::new(1),
            cancelled: Mutex::default(),
            cancelling: Condvar::new(),
        })
    }

    /// Records an event. A child that cannot write its journal is no ground truth, so it exits.
    pub(super) fn record(&self, record: &Record) {
        if let Some(journal_writer) = &self.journal_writer
            && journal_writer.write(record).is_err()
        {
            die(3);
        }
    }

    pub(super) fn record_call(&self, call: &Call) {
        self.record(&Record {
            input: self.input.clone(),
            tool: Some(call.tool.clone()),
            key: Some(call.key.clone()),
            call: call.meta["org.metamcp/callKey"].as_str().map(str::to_owned),
            trace: ["traceparent", "tracestate", "baggage"]
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), call.meta[name].as_str()?.to_owned())))
                .collect(),
            detail: json!({"id": serde_json::from_str::<Value>(&call.id).unwrap_or_default()}),
            ..Record::new(EventKind::Execute)
        });
    }

    /// The hooks selected for this process, in the order of the table.
    pub(super) fn hooks(&self) -> impl Iterator<Item = (&'static Hook, SelectedHazard)> {
        let acting = !self.options.selected.is_empty() && self.is_chosen();
        self.options
            .selected
            .iter()
            .filter(move |_| acting)
            .flat_map(|selected| selected.hazard.hooks.iter().map(move |hook| (hook, *selected)))
    }

    /// Whether the hazard affects this call.
    pub(super) fn applies_to(&self, call: &Call) -> bool {
        call.number > self.options.after
            && self.options.only.as_ref().is_none_or(|prefix| call.key.starts_with(prefix))
            && fires_by_odds(self.options.seed, &call.key, self.options.odds)
    }

    /// True the first time per hazard: what costs gigabytes happens once per process.
    pub(super) fn first(&self, hazard: &'static str) -> bool {
        lock(&self.begun).insert(hazard)
    }

    /// Sends one line, modified by any line hooks. A closed stdout ends the server.
    pub(super) fn send(&self, line: &str) {
        let mut bytes = line.as_bytes().to_vec();
        bytes.push(b'\n');
        let mut pieces = vec![Piece::new(bytes)];
        for (hook, selected) in self.hooks() {
            if let Hook::Line(bend) = hook {
                pieces = bend(selected.amount, pieces);
            }
        }
        if self.output.write(&pieces).is_err() {
            die(1);
        }
    }

    /// Sends the correct response to a call, unless a hook responds otherwise.
    pub(super) fn answer(&self, call: &Call, line: &str) {
        if self.applies_to(call) {
            for (hook, selected) in self.hooks() {
                if let Hook::Answer(hook) = hook
                    && hook(self, selected.amount, call, line) == Next::Done
                {
                    return;
                }
            }
        }
        self.send(line);
    }

    pub(super) fn subscribe(&self, id: Value) {
        *lock(&self.subscription) = Some(id);
    }

    /// The params of a notification that the list of tools changed.
    pub(super) fn list_changed(&self) -> Value {
        match &*lock(&self.subscription) {
            Some(id) => json!({"_meta": {"io.modelcontextprotocol/subscriptionId": id}}),
            None => json!({}),
        }
    }

    /// Sends a server request; the response arrives through the receiver.
    pub(super) fn ask(&self, method: &str, params: &str) -> Receiver<Value> {
        let id = format!("\"q{}\"", self.next_question.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = channel();
        lock(&self.asked).insert(id.clone(), sender);
        self.send(&request_line(&id, method, params));
        receiver
    }

    /// Handles the response to a server request; unknown ids are ignored.
    pub(super) fn answered(&self, id: &str, answer: Value) {
        if let Some(sender) = lock(&self.asked).remove(id) {
            // The requester may have stopped waiting.
            drop(sender.send(answer));
        }
    }

    pub(super) fn cancel(&self, id: String) {
        lock(&self.cancelled).insert(id);
        self.cancelling.notify_all();
    }

    /// Waits, and returns whether the call was cancelled meanwhile.
    pub(super) fn wait_unless_cancelled(&self, id: &str, time: Duration) -> bool {
        let end = Instant::now() + time;
        let mut cancelled = lock(&self.cancelled);
        loop {
            if cancelled.remove(id) {
                return true;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            cancelled = self
                .cancelling
                .wait_timeout(cancelled, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    fn is_chosen(&self) -> bool {
        *self.chosen.get_or_init(|| match &self.options.once {
            Some(path) => OpenOptions::new().write(true).create_new(true).open(path).is_ok(),
            None => true,
        })
    }
}

/// Exits at once.
#[expect(clippy::exit, reason = "ending abruptly is what a hostile child is for")]
pub(super) fn die(code: i32) -> ! {
    std::process::exit(code)
}

/// Sleeps until the lifetime is over.
pub(super) fn linger(lifetime: Duration) -> ! {
    thread::sleep(lifetime);
    die(0)
}

/// The environment, the open files and the directory the process started with.
fn surroundings() -> io::Result<Value> {
    let environment: BTreeMap<String, String> = std::env::vars_os()
        .map(|(name, value)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        })
        .collect();
    let mut files = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        let target = fs::read_link(entry.path()).unwrap_or_default();
        // The directory being read is itself open, by this process and only now.
        if !(target.starts_with("/proc") && target.ends_with("fd")) {
            files.insert(
                entry.file_name().to_string_lossy().into_owned(),
                target.to_string_lossy().into_owned(),
            );
        }
    }
    Ok(json!({
        "environment": environment,
        "files": files,
        "directory": std::env::current_dir()?.to_string_lossy(),
        "arguments": std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect::<Vec<_>>(),
    }))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
