//! Progress on the terminal while somebody waits.
//! Owns: spinners on stderr, one line a server or a step.      Never: writes to a pipe, or with `--quiet` or `--json`.
//! In: messages, or a gateway to watch.  Out: lines that disappear when the wait is over.
//! Tests: below for the messages; `tests/config/screen.rs` in a pseudo-terminal.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use metamcp_calls::lifecycle::State;
use metamcp_engine::gateway::Gateway;
use metamcp_engine::router::Entry;

use crate::render;
use crate::terminal;

/// Anything faster needs no spinner: it would only flicker.
const DELAY: Duration = Duration::from_millis(300);

/// How often spinners advance and the gateway is polled.
const TURN: Duration = Duration::from_millis(100);

/// Most servers with a line of their own; a screen has room for about twice as many.
const MOST_LINES: usize = 12;

/// Lines on the terminal for as long as this lives; none where stderr is not watched.
pub(crate) struct Progress {
    lines: MultiProgress,
    /// Dropping the sender ends the thread.
    delayed: Option<(SyncSender<Infallible>, JoinHandle<()>)>,
}

impl Progress {
    /// Begins, with lines that appear only if it takes long enough to wonder about.
    pub(crate) fn begin() -> Progress {
        let lines = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        if !terminal::is_watched() {
            return Progress { lines, delayed: None };
        }
        let (ended, end) = sync_channel(0);
        let shown = lines.clone();
        let show = move || {
            if end.recv_timeout(DELAY) == Err(RecvTimeoutError::Timeout) {
                shown.set_draw_target(ProgressDrawTarget::stderr());
            }
        };
        // Without the thread no progress is shown; everything else works.
        let thread = std::thread::Builder::new().name("progress".into()).spawn(show);
        Progress { lines, delayed: thread.ok().map(|thread| (ended, thread)) }
    }

    /// A line about one thing, removed when the returned value is dropped.
    pub(crate) fn line(&self, what: &str, words: impl Into<Cow<'static, str>>) -> Line {
        let template = if what.is_empty() {
            "{spinner:.cyan} {wide_msg}"
        } else {
            "{spinner:.cyan} {prefix:.bold}  {wide_msg:.dim}"
        };
        let style = ProgressStyle::with_template(template)
            .unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = self.lines.add(ProgressBar::new_spinner().with_style(style));
        bar.set_prefix(render::visible(what));
        bar.set_message(words);
        Line(bar)
    }

    /// Shows what the servers of a gateway are doing, until the future is dropped.
    pub(crate) async fn watch(&self, gateway: &Gateway) -> Infallible {
        if self.delayed.is_none() {
            return std::future::pending().await;
        }
        let mut lines: HashMap<String, Line> = HashMap::new();
        let mut rest: Option<Line> = None;
        let mut turns = tokio::time::interval(TURN);
        loop {
            turns.tick().await;
            let busy = busy(gateway);
            lines.retain(|name, _| busy.iter().any(|(other, _)| other == name));
            for (name, doing) in busy.iter().take(MOST_LINES) {
                let line = lines.entry(name.clone()).or_insert_with(|| self.line(name, ""));
                line.turn(doing);
            }
            lines.retain(|name, _| busy.iter().take(MOST_LINES).any(|(other, _)| other == name));
            let more = busy.len().saturating_sub(MOST_LINES);
            rest = match (rest, busy.len()) {
                (rest, 0) => Some(rest.unwrap_or_else(|| self.line("", "working"))),
                (rest, _) if more > 0 => Some(rest.unwrap_or_else(|| self.line("", ""))),
                _ => None,
            };
            if let Some(rest) = &rest {
                let words =
                    if more > 0 { format!("and {more} more") } else { "working".to_owned() };
                rest.turn(&words);
            }
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((ended, thread)) = self.delayed.take() {
            drop(ended);
            // The thread only waits; a panic in it would have been reported.
            drop(thread.join());
        }
        // A terminal that is gone shows nothing anyway.
        drop(self.lines.clear());
    }
}

/// One line, removed when dropped.
pub(crate) struct Line(ProgressBar);

impl Line {
    /// Replaces the message.
    pub(crate) fn say(&self, words: impl Into<Cow<'static, str>>) {
        self.0.set_message(words);
    }

    /// The next frame of the spinner, with the current activity.
    fn turn(&self, doing: &str) {
        let words = match self.0.elapsed().as_secs() {
            0 | 1 => doing.to_owned(),
            seconds => format!("{doing}, {seconds} s"),
        };
        if self.0.message() != words {
            self.0.set_message(words);
        }
        self.0.tick();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// One slow step, shown until the returned value is dropped.
pub(crate) fn step(words: impl Into<Cow<'static, str>>) -> Step {
    let progress = Progress::begin();
    let line = progress.line("", words);
    if progress.delayed.is_some() {
        line.0.enable_steady_tick(TURN);
    }
    Step { line, _progress: progress }
}

/// See [`step`]. The line is dropped before the rest.
pub(crate) struct Step {
    line: Line,
    _progress: Progress,
}

impl Step {
    /// Replaces the message with the next step.
    pub(crate) fn say(&self, words: impl Into<Cow<'static, str>>) {
        self.line.say(words);
    }
}

/// The servers that are busy now, in the order of the configuration, each with its activity.
fn busy(gateway: &Gateway) -> Vec<(String, &'static str)> {
    let (servers, snapshot) = (gateway.servers(), gateway.catalog.snapshot());
    let doing = |entry: &Entry| {
        let view = gateway.router.view(entry.id)?;
        let is_listed =
            snapshot.known(entry.definition).is_some_and(|known| known.listed_at.is_some())
                || snapshot.failure(entry.definition).is_some();
        let words = doing(view.state, view.waiting_since.is_some(), is_listed)?;
        Some((entry.name.to_string(), words))
    };
    servers.iter().filter_map(doing).collect()
}

/// What a server is doing, if somebody waits for it.
fn doing(state: Option<State>, is_waiting: bool, is_listed: bool) -> Option<&'static str> {
    match state {
        None if is_waiting => Some("waiting for a free slot"),
        Some(State::Connecting) => Some("starting"),
        Some(State::Active { .. } | State::Idle) if !is_listed => Some("listing its tools"),
        Some(State::Active { .. }) => Some("at work"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_shown_only_for_awaited_servers() {
        assert_eq!(doing(None, false, false), None);
        assert_eq!(doing(None, true, false), Some("waiting for a free slot"));
        assert_eq!(doing(Some(State::Connecting), false, false), Some("starting"));
        assert_eq!(doing(Some(State::Idle), false, false), Some("listing its tools"));
        assert_eq!(doing(Some(State::Idle), false, true), None);
        assert_eq!(doing(Some(State::Failed), false, false), None);
    }

    #[test]
    fn nothing_is_shown_where_nobody_wants_it() {
        terminal::keep_quiet();
        let progress = Progress::begin();
        assert!(progress.delayed.is_none() && progress.lines.is_hidden());
    }
}
