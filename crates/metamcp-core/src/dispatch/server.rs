//! What the dispatch knows of one server.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::CallId;
use super::verdict::Verdict;
use crate::breaker::{self, Breaker, Outcome};
use crate::failure::Failure;
use crate::ledger::{ConnId, Keep};
use crate::lifecycle::State;
use crate::limiter::{Held, Limiter};
use crate::moment::Moment;

/// After so long without a crash a server has its one free restart back.
const HEALED: Duration = Duration::from_secs(600);

/// What a server's configuration says about its calls and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPolicy {
    /// How long it has to answer a call.
    pub timeout: Duration,
    /// Requests it takes at once; 1 for a server that cannot multiplex.
    pub max_in_flight: u32,
    /// Whether a crash always earns an immediate restart.
    pub vital: bool,
    /// How long its connection is kept.
    pub keep: Keep,
    /// Its own idle timeout.
    pub idle_timeout: Option<Duration>,
}

/// What an operator may see of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerView {
    /// Its connection, if it has one.
    pub state: Option<State>,
    /// Since when it waits for a slot.
    pub waiting_since: Option<Moment>,
    /// Its breaker.
    pub breaker: breaker::Phase,
    /// Calls waiting for it.
    pub queued: usize,
    /// What went wrong last, while it matters.
    pub last_failure: Option<Arc<Failure>>,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) policy: ServerPolicy,
    pub(super) breaker: Breaker,
    pub(super) limiter: Limiter,
    pub(super) conn: Option<ConnId>,
    pub(super) queue: VecDeque<CallId>,
    pub(super) dead_in_queue: usize,
    /// Since when it last waited for a slot.
    pub(super) in_line_since: Moment,
    pub(super) ready_at: Moment,
    pub(super) start_deadline: Moment,
    /// The one immediate retry of a failed start has been used.
    pub(super) retried_start: bool,
    /// A connection is wanted although no call waits: for a listing, or after a crash.
    pub(super) wanted: bool,
    /// Its last crash has not been charged to any call yet, since all of them are to be sent once more.
    pub(super) owed: bool,
    /// A listing waits until its connection can take one more request.
    pub(super) list_due: bool,
    pub(super) last_failure: Option<Arc<Failure>>,
    pub(super) removed: bool,
    /// It asked to be left alone until then.
    quiet_until: Moment,
    restarts: u32,
    last_crash: Moment,
}

impl Server {
    pub(super) fn new(policy: ServerPolicy, breaker: Breaker) -> Server {
        Server {
            policy,
            breaker,
            limiter: Limiter::default(),
            conn: None,
            queue: VecDeque::new(),
            dead_in_queue: 0,
            in_line_since: Moment::START,
            ready_at: Moment::START,
            start_deadline: Moment::NEVER,
            retried_start: false,
            wanted: false,
            owed: false,
            list_due: false,
            last_failure: None,
            removed: false,
            quiet_until: Moment::START,
            restarts: 0,
            last_crash: Moment::START,
        }
    }

    pub(super) fn view(&self, state: Option<State>, waiting_since: Option<Moment>) -> ServerView {
        ServerView {
            state,
            waiting_since,
            breaker: self.breaker.phase(),
            queued: self.waiting(),
            last_failure: self.last_failure.clone(),
        }
    }

    /// Calls that wait for it.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len().saturating_sub(self.dead_in_queue)
    }

    pub(super) fn starting(&mut self, now: Moment, limit: Duration) {
        self.limiter.spawned(now);
        self.start_deadline = now + limit;
    }

    /// Counts a crash; says whether it earns an immediate restart.
    pub(super) fn crashed(&mut self, now: Moment) -> bool {
        if now.since(self.last_crash) >= HEALED {
            self.restarts = 0;
        }
        self.last_crash = now;
        self.restarts += 1;
        self.policy.vital || self.restarts <= 1
    }

    /// What went wrong, and the pause it may have asked for.
    pub(super) fn failed_with(&mut self, failure: &Arc<Failure>, now: Moment) {
        self.last_failure = Some(Arc::clone(failure));
        if let Some(pause) = failure.fact.pause() {
            self.quiet_until = now + pause;
        }
    }

    /// The verdict for a call that comes while it wants to be left alone.
    pub(super) fn left_alone(&self, now: Moment) -> Option<Verdict> {
        let failure = self.last_failure.as_ref().filter(|_| now < self.quiet_until)?;
        Some(Verdict::Unavailable {
            failure: Arc::clone(failure),
            retry_after: Some(self.quiet_until.since(now)),
        })
    }

    /// What its last crash tells the breaker, if nobody has told it yet.
    pub(super) fn owed_outcome(&mut self) -> Outcome {
        if std::mem::take(&mut self.owed) { Outcome::Failure } else { Outcome::Neutral }
    }

    /// The verdict for a call that comes while no start is allowed.
    pub(super) fn held_back(&self, held: Held, now: Moment) -> Verdict {
        match (held, &self.last_failure) {
            (Held::Pausing { until }, Some(failure)) => Verdict::Unavailable {
                failure: Arc::clone(failure),
                retry_after: Some(until.since(now)),
            },
            (Held::CrashLoop { until } | Held::Pausing { until }, failure) => {
                Verdict::CrashLoop { failure: failure.clone(), retry_after: until.since(now) }
            }
        }
    }
}
