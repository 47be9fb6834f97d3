//! What a script sends out: requests, console lines and progress, within their limits.

use std::collections::VecDeque;

use super::{State, position};
use crate::limits::LOGS_TAIL;
use crate::protocol::{FromWorker, Level, Op};

/// Progress messages of one run.
const PROGRESS: u32 = 2_000;

/// What a line counts for at least; empty ones take memory too.
const MIN_LINE: usize = 16;

impl State {
    pub(super) fn ask(&self, op: Op, payload: String) -> u32 {
        let id = self.next.get();
        self.next.set(id.wrapping_add(1));
        if op.is_answered() {
            self.open.set(self.open.get().saturating_add(1));
        }
        let payload = position::without_lone_surrogates(payload);
        self.link.borrow_mut().send(&FromWorker::Request { id, op, payload });
        id
    }

    pub(super) fn log(&self, level: u8, text: String) {
        let bytes = text.len() as u64;
        if bytes > self.logs.get() {
            // From the first line that does not fit on, only the last lines are kept.
            self.logs.set(0);
            let dropped = self.logs_tail.borrow_mut().push(level, text);
            self.dropped.set(self.dropped.get().saturating_add(dropped));
            return;
        }
        self.logs.set(self.logs.get() - bytes);
        let level = Level::of(level).unwrap_or(Level::Info);
        let mut link = self.link.borrow_mut();
        link.send(&FromWorker::Log { level, text });
        // Flushed at once: the script may be killed for the next thing it does.
        link.flush().ok();
    }

    pub(super) fn progress(&self, value: f64, total: Option<f64>, message: Option<String>) {
        if self.progress.get() < PROGRESS {
            self.progress.set(self.progress.get() + 1);
            let mut link = self.link.borrow_mut();
            link.send(&FromWorker::Progress { value, total, message });
            link.flush().ok();
        }
    }
}

/// The last lines of a console that said too much.
#[derive(Debug, Default)]
pub(super) struct LogsTail {
    lines: VecDeque<(u8, String)>,
    bytes: usize,
}

impl LogsTail {
    /// Adds a line; returns the bytes that had to go.
    fn push(&mut self, level: u8, text: String) -> u64 {
        self.bytes += text.len();
        self.lines.push_back((level, text));
        let mut dropped = 0;
        while self.bytes > LOGS_TAIL || self.lines.len() > LOGS_TAIL / MIN_LINE {
            let Some((_, text)) = self.lines.pop_front() else { break };
            self.bytes -= text.len();
            dropped += text.len() as u64;
        }
        dropped
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = (Level, String)> {
        std::mem::take(self)
            .lines
            .into_iter()
            .map(|(level, text)| (Level::of(level).unwrap_or(Level::Info), text))
    }
}
