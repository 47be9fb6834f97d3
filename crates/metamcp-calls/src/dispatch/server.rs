//! Dispatch: state of one server, and the table of all.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};
use std::sync::Arc;
use std::time::Duration;

use super::CallId;
use super::error::DispatchError;
use crate::breaker::{self, Breaker, Outcome};
use crate::failure::{Fact, Failure};
use crate::lifecycle::State;
use crate::pool::{ConnId, Keep, ServerId, Terms};
use crate::restart_backoff::{Backoff, RestartBackoff};
use crate::turns::Turns;
use metamcp_types::moment::Moment;

/// After so long without a crash a server has its one free restart back.
const HEALED: Duration = Duration::from_mins(10);
/// The first backoff after a 429 without `Retry-After`; doubled by each further one.
const FIRST_REST: Duration = Duration::from_secs(1);
/// The longest of those pauses.
const LONGEST_REST: Duration = Duration::from_mins(1);

/// What a server's configuration says about its calls and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerPolicy {
    /// How long it has to answer a call.
    pub timeout: Duration,
    /// Requests it takes at once; 1 for a server that cannot multiplex.
    pub max_in_flight: u32,
    /// Whether a crash always earns an immediate restart.
    pub vital: bool,
    /// When its idle connection is closed.
    pub keep: Keep,
    /// Its own idle timeout.
    pub idle_timeout: Option<Duration>,
    /// Whether all its calls take one pipe, so that silence after one of them may be the silence of all.
    pub one_pipe: bool,
    /// The lane of the session it belongs to, whose share of the pool it takes; nobody's if it is shared.
    pub owner: Option<u64>,
    /// How many there may be of it at once: the router adds siblings ([`crate::siblings`]), each with an id of its own.
    pub instances: u32,
}

impl ServerPolicy {
    /// On which terms it has a slot of the pool.
    pub(super) fn terms(&self) -> Terms {
        Terms { keep: self.keep, idle_timeout: self.idle_timeout, owner: self.owner }
    }
}

/// What an operator may see of a server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerView {
    /// Its connection, if it has one.
    pub state: Option<State>,
    /// Since when it waits for a slot.
    pub waiting_since: Option<Moment>,
    pub breaker: breaker::Phase,
    /// Calls waiting for it.
    pub queued: usize,
    /// What went wrong last, while it matters.
    pub last_failure: Option<Arc<Failure>>,
}

/// All servers by their place. An id whose place was given to another finds nothing.
#[derive(Debug, Default)]
pub(super) struct Servers {
    entries: Vec<Server>,
    /// Removed ones whose place was not taken back yet.
    removed: Vec<ServerId>,
    /// Ids to give next, the one whose place is free for the longest time first.
    free: VecDeque<ServerId>,
}

impl Servers {
    pub(super) fn add(&mut self, policy: ServerPolicy, breaker: Breaker) -> ServerId {
        if let Some(id) = self.free.pop_front() {
            self.entries[id.place()] = Server::new(id, policy, breaker);
            return id;
        }
        let id = ServerId::first_at(self.entries.len());
        self.entries.push(Server::new(id, policy, breaker));
        id
    }

    pub(super) fn get(&self, id: ServerId) -> Option<&Server> {
        self.entries.get(id.place()).filter(|entry| entry.id == id)
    }

    pub(super) fn get_mut(&mut self, id: ServerId) -> Option<&mut Server> {
        self.entries.get_mut(id.place()).filter(|entry| entry.id == id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Server> {
        self.entries.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Server> {
        self.entries.iter_mut()
    }

    pub(super) fn ids(&self) -> Vec<ServerId> {
        self.entries.iter().map(|entry| entry.id).collect()
    }

    pub(super) fn set_removed(&mut self, id: ServerId, removed: bool) {
        self.removed.retain(|other| *other != id);
        self[id].removed = removed;
        if removed {
            self.removed.push(id);
        }
    }

    /// Takes back the places of removed servers that `is_left` is false of.
    pub(super) fn reclaim(
        &mut self,
        is_left: impl Fn(ServerId) -> bool,
        vacant: impl Fn() -> Breaker,
    ) -> Vec<ServerId> {
        let (left, over): (Vec<_>, Vec<_>) = self.removed.drain(..).partition(|id| is_left(*id));
        self.removed = left;
        for id in &over {
            if let Some(next) = id.successor() {
                // Whoever holds the old id finds nothing from now on.
                let place = &mut self.entries[id.place()];
                *place = Server::new(next, ServerPolicy::default(), vacant());
                place.removed = true;
                self.free.push_back(next);
            }
        }
        over
    }
}

impl Index<ServerId> for Servers {
    type Output = Server;

    fn index(&self, id: ServerId) -> &Server {
        let entry = &self.entries[id.place()];
        debug_assert_eq!(entry.id, id, "whatever refers to a server keeps its place");
        entry
    }
}

impl IndexMut<ServerId> for Servers {
    fn index_mut(&mut self, id: ServerId) -> &mut Server {
        let entry = &mut self.entries[id.place()];
        debug_assert_eq!(entry.id, id, "whatever refers to a server keeps its place");
        entry
    }
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) id: ServerId,
    pub(super) policy: ServerPolicy,
    pub(super) breaker: Breaker,
    pub(super) restart_backoff: RestartBackoff,
    pub(super) conn: Option<ConnId>,
    /// Calls that wait for it, served by lanes in turns.
    pub(super) queue: Turns<CallId>,
    /// Since when it last waited for a slot.
    pub(super) in_line_since: Moment,
    pub(super) ready_at: Moment,
    pub(super) start_deadline: Moment,
    /// The one immediate retry of a failed start has been used.
    pub(super) retried_start: bool,
    /// A connection is wanted although no call waits: for a listing, or after a crash. By which lane.
    pub(super) wanted: Option<u64>,
    /// Its last crash has not been charged to any call yet, since all of them are to be sent once more.
    pub(super) owed: bool,
    /// A listing waits until its connection can take one more request.
    pub(super) list_due: bool,
    pub(super) last_failure: Option<Arc<Failure>>,
    pub(super) removed: bool,
    /// It was removed at once: what is left of it has a second.
    pub(super) in_a_hurry: bool,
    /// Its `Retry-After`: nothing is sent before then.
    quiet_until: Moment,
    /// How often in a row it wanted fewer requests.
    limited: u32,
    restarts: u32,
    last_crash: Moment,
}

impl Server {
    pub(super) fn new(id: ServerId, policy: ServerPolicy, breaker: Breaker) -> Server {
        Server {
            id,
            policy,
            breaker,
            restart_backoff: RestartBackoff::default(),
            conn: None,
            queue: Turns::default(),
            in_line_since: Moment::START,
            ready_at: Moment::START,
            start_deadline: Moment::NEVER,
            retried_start: false,
            wanted: None,
            owed: false,
            list_due: false,
            last_failure: None,
            removed: false,
            in_a_hurry: false,
            quiet_until: Moment::START,
            limited: 0,
            restarts: 0,
            last_crash: Moment::START,
        }
    }

    pub(super) fn view(&self, state: Option<State>, waiting_since: Option<Moment>) -> ServerView {
        ServerView {
            state,
            waiting_since,
            breaker: self.breaker.phase(),
            queued: self.queue.len(),
            last_failure: self.last_failure.clone(),
        }
    }

    pub(super) fn starting(&mut self, now: Moment, limit: Duration) {
        self.restart_backoff.spawned(now);
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

    /// Records a failure. Returns how long to back off because of it: as long as the server requested, or a little
    /// longer each time.
    pub(super) fn failed_with(&mut self, failure: &Arc<Failure>, now: Moment) -> Option<Duration> {
        self.last_failure = Some(Arc::clone(failure));
        let pause = failure.fact.pause().or_else(|| {
            let Fact::Limited { .. } = failure.fact else { return None };
            // Those that were under way together are refused together, and count as one.
            self.limited += u32::from(now >= self.quiet_until);
            let doubled = 1 << self.limited.saturating_sub(1).min(16);
            Some(FIRST_REST.saturating_mul(doubled).min(LONGEST_REST))
        })?;
        self.quiet_until = self.quiet_until.max(now + pause);
        Some(self.quiet_until.since(now))
    }

    /// It answered a call.
    pub(super) fn answered(&mut self) {
        self.limited = 0;
    }

    /// The verdict for a call that comes while it wants to be left alone.
    pub(super) fn left_alone(&self, now: Moment) -> Option<DispatchError> {
        let failure = self.last_failure.as_ref().filter(|_| now < self.quiet_until)?;
        Some(DispatchError::Paused {
            failure: Arc::clone(failure),
            retry_after: self.quiet_until.since(now),
        })
    }

    /// Its last crash, if the breaker has not counted it yet.
    pub(super) fn owed_outcome(&mut self) -> Outcome {
        if std::mem::take(&mut self.owed) { Outcome::Failure } else { Outcome::Neutral }
    }

    /// The verdict for a call that comes while no start is allowed.
    pub(super) fn held_back(&self, backoff: Backoff, now: Moment) -> DispatchError {
        match (backoff, &self.last_failure) {
            (Backoff::Pausing { until }, Some(failure)) => DispatchError::Paused {
                failure: Arc::clone(failure),
                retry_after: until.since(now),
            },
            (Backoff::CrashLoop { until } | Backoff::Pausing { until }, failure) => {
                DispatchError::CrashLoop { failure: failure.clone(), retry_after: until.since(now) }
            }
        }
    }
}
