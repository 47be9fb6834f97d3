//! The simulator's own records of servers, processes and callers, independent of the dispatch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use metamcp_calls::breaker::Phase;
use metamcp_calls::dispatch::{CallId, ServerPolicy};
use metamcp_calls::failure::Fact;
use metamcp_calls::lifecycle::State;
use metamcp_calls::pool::{ConnId, ServerId};
use metamcp_types::moment::Moment;

use crate::plan::ServerPlan;

/// An error is a broken invariant, as text.
pub(crate) type Check = Result<(), String>;

macro_rules! ensure {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(format!($($words)+));
        }
    };
}
pub(crate) use ensure;

/// Coverage points of a run. Together the runs have to reach all of them, or they prove less than they claim.
const SIGHTS: [&str; 40] = [
    "answered",
    "answered with an error",
    "circuit open",
    "unavailable",
    "crash loop",
    "pool exhausted",
    "overloaded",
    "timed out before it was sent",
    "timed out after it was sent",
    "timed out waiting to be sent again",
    "outcome unknown",
    "cancelled while waiting",
    "cancelled under way",
    "shutting down before it was sent",
    "shutting down after it was sent",
    "removed",
    "sent again, not having got out",
    "sent again, being harmless",
    "ran twice",
    "late or repeated answer",
    "answer by an intruder",
    "reserve opened",
    "line of three or more",
    "start held back by the burst",
    "reconnected on its slot",
    "two processes of one server",
    "probe succeeded",
    "probe failed",
    "probe called off",
    "crash with several calls on it",
    "died idle",
    "crash on a connection let go",
    "listing put off",
    "start given up",
    "asked for a sign of life, and gave it",
    "gone deaf and replaced",
    "stopped for longer than a call may take",
    "a later call sent before an earlier one of another lane",
    "a later lane served before an earlier one",
    "served past one whose owner has its share",
];

/// The coverage points a run has reached.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sights(u64);

impl Sights {
    pub(crate) fn add(&mut self, sight: &str) {
        let number = SIGHTS.iter().position(|known| *known == sight);
        self.0 |= 1 << number.expect("a sight that is on the list");
    }

    pub(crate) fn join(&mut self, other: Sights) {
        self.0 |= other.0;
    }

    pub(crate) fn missed(self) -> Vec<&'static str> {
        let missed = |number: &usize| self.0 & (1 << number) == 0;
        (0..SIGHTS.len()).filter(missed).map(|number| SIGHTS[number]).collect()
    }
}

/// The observed state after the last step.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) line: Vec<(ServerId, Moment)>,
    /// For each lane with calls that wait for a slot: how often it was passed over since it came or was served, and the
    /// other lanes that waited meanwhile.
    pub(crate) passed: BTreeMap<u64, (usize, BTreeSet<u64>)>,
    pub(crate) phases: Vec<Phase>,
    pub(crate) count: usize,
    /// The states of connections and breakers, derived only from the reported changes.
    pub(crate) reported_states: HashMap<ConnId, State>,
    pub(crate) reported_phases: HashMap<ServerId, Phase>,
}

#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) plan: ServerPlan,
    pub(crate) removed: bool,
    /// The process that gets its new calls.
    pub(crate) attached: Option<usize>,
    /// Its open calls that have no process.
    pub(crate) waiting: usize,
    pub(crate) starts: Vec<Moment>,
    /// A start is due although nobody waits: for a listing, or as the one restart after a crash.
    pub(crate) due: bool,
    /// The backoff after a start that failed for good.
    pub(crate) not_before: Moment,
    pub(crate) crashes: u32,
    pub(crate) last_crash: Moment,
    /// Its last crash was not charged to the breaker yet.
    pub(crate) owed: bool,
    /// Incremented with every change of the breaker's phase.
    pub(crate) epoch: u64,
    pub(crate) processes: u64,
    /// By lane, the arrival order of the last call that was sent for the first time.
    pub(crate) last_first: HashMap<u64, u64>,
    /// How often the first lane, which waits, was passed over by the second.
    pub(crate) passed: HashMap<(u64, u64), u32>,
    /// Lanes that had it woken, since it was last started.
    pub(crate) woken_by: Vec<u64>,
    pub(crate) list_due: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Starting,
    Ready,
    /// The dispatch knows that it failed.
    Lost,
    Gone,
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) conn: ConnId,
    pub(crate) server: usize,
    pub(crate) born: Moment,
    pub(crate) stage: Stage,
    /// The dispatch has ordered it to stop.
    pub(crate) told: bool,
    /// It has exited by itself, whether the dispatch knows or not.
    pub(crate) dead: bool,
    pub(crate) hung: bool,
    pub(crate) calls: u32,
    pub(crate) listings: u32,
    /// The deadline of a liveness probe, while one is pending.
    pub(crate) probed: Option<Moment>,
    /// The configuration it was started with.
    pub(crate) policy: ServerPolicy,
    pub(crate) start_deadline: Moment,
}

#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) server: usize,
    pub(crate) lane: u64,
    pub(crate) harmless: bool,
    pub(crate) timeout: Duration,
    pub(crate) patience: Option<Duration>,
    pub(crate) arrived: Moment,
    pub(crate) order: u64,
    pub(crate) call: Option<CallId>,
    pub(crate) ended: Option<Moment>,
    /// The process it was sent to, while its response is pending.
    pub(crate) on: Option<usize>,
    pub(crate) sends: u32,
    /// Its process was notified of the cancellation.
    pub(crate) abandoned: bool,
    /// Whether the server may have seen the last attempt, and any attempt.
    pub(crate) wrote_last: bool,
    pub(crate) wrote: bool,
    pub(crate) ran: u32,
    /// The caller got an error saying that the call was not sent.
    pub(crate) said_unsent: bool,
    pub(crate) answered: bool,
    pub(crate) agreed: Moment,
    pub(crate) deadline: Moment,
    pub(crate) cap: Moment,
    /// The breaker's permit: its epoch and whether it is the probe.
    pub(crate) epoch: u64,
    pub(crate) probe: bool,
}

/// How a call ended, as far as it matters to the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered {
        error: bool,
    },
    /// The server failed: unavailable, or the outcome is unknown.
    Failed,
    /// It timed out on a process.
    TimedOut,
    /// It timed out in the queue, having been sent before.
    TimedOutAgain,
    /// No information about the server.
    Neutral,
}

/// The last input to the dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Arrive(u32),
    Cancel(u32),
    Refuse(u32),
    Connected(usize),
    Lost {
        process: usize,
        attached: bool,
        counts: bool,
    },
    Gone(usize),
    Listed(usize),
    Answered(u32),
    Tick,
    /// A tick that the dispatch did not request.
    Nosy,
    Add,
    Change(usize),
    Remove(usize),
    Wake(usize),
    Stop,
    StopNow,
    /// An input that must not change anything.
    Nothing,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Queued {
    pub(crate) at: Moment,
    pub(crate) sequence: u64,
    pub(crate) event: Event,
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// A scheduled event. The first number is a process, the others a caller and an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Arrive(u32),
    Cancel(u32),
    Started(usize),
    Life(usize, Duration, u64),
    StartFails(usize, Fact),
    Dies(usize),
    Noticed(usize, Fact),
    Listed(usize),
    StrayListed(ConnId),
    Runs(usize, u32),
    Replies(usize, u32, u32, bool),
    /// It shows activity, which answers a pending liveness probe.
    Lives(usize),
    Progresses(usize, u32, u32),
    Pauses(usize, u32, u32),
    Resumes(usize, u32, u32),
    /// It sends a response to a call that was never sent to it.
    Intrudes(usize),
    Gone(usize),
    Act(usize),
    Calm,
}

pub(crate) fn server_id(number: usize) -> ServerId {
    ServerId(u32::try_from(number).expect("a few hundred"))
}

impl Process {
    /// Requests it has yet to answer.
    pub(crate) fn work(&self) -> u32 {
        self.calls + self.listings + u32::from(self.probed.is_some())
    }
}

impl Server {
    /// The first crash in ten minutes triggers a restart, and every crash of a vital server.
    pub(crate) fn crashed(&mut self, now: Moment) {
        if now.since(self.last_crash) >= Duration::from_mins(10) {
            self.crashes = 0;
        }
        self.last_crash = now;
        self.crashes += 1;
        self.due |= self.plan.policy.vital || self.crashes == 1;
    }
}
