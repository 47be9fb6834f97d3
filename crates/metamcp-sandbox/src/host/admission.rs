//! Admission control of one run: what may start, what is queued, which limit is hit. Pure: given the time.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::{CallStatus, Limits, ScriptCall};
use crate::limits::{CPU_GRACE, QUESTIONS, QUESTIONS_AT_ONCE};

/// The shortest interval between two reads of a worker's CPU clock.
const MIN_CPU_CHECK: Duration = Duration::from_millis(5);

/// What a request counts as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RequestKind {
    /// A tool call.
    Call {
        /// By its canonical name.
        server: String,
        /// As the script wrote it, truncated.
        tool: String,
    },
    /// A request the gateway answers itself: search, describe, list, types, results.
    Question,
}

/// A limit the gateway enforces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitKind {
    /// The wall clock.
    Wall,
    /// CPU time, grace included.
    Cpu,
    /// Tool calls.
    Calls,
    /// Requests the gateway answers itself.
    Questions,
}

/// The decision on a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admit {
    /// It starts now.
    Start,
    /// It is queued; [`Admission::finished`] returns it when it may start.
    Wait,
    /// It exceeds a limit: the run is over.
    LimitHit(LimitKind),
    /// Its id is in use, which a correct worker never does.
    Repeated,
}

/// The result of comparing the clocks with their limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClockCheck {
    /// No limit can be hit before this time has passed.
    Again(Duration),
    /// One is exceeded.
    LimitHit(LimitKind),
}

#[derive(Debug)]
struct OpenRequest {
    kind: RequestKind,
    requested_at: Duration,
}

/// The queue of one server, or of all requests that are not calls.
#[derive(Debug, Default)]
struct RequestQueue {
    running: usize,
    /// Global arrival order, and the worker's id.
    waiting: VecDeque<(u64, u32)>,
}

/// The state of one run. Times are since its start.
#[derive(Debug)]
pub(super) struct Admission {
    limits: Limits,
    calls: u32,
    questions: u32,
    /// By the worker's id, so that dropped calls are listed in order.
    open: BTreeMap<u32, OpenRequest>,
    in_flight: usize,
    at_server: HashMap<String, RequestQueue>,
    questions_queue: RequestQueue,
    /// Requests queued so far.
    waited: u64,
    made: Vec<ScriptCall>,
}

impl Admission {
    pub(super) fn new(limits: Limits) -> Admission {
        Admission {
            limits,
            calls: 0,
            questions: 0,
            open: BTreeMap::new(),
            in_flight: 0,
            at_server: HashMap::new(),
            questions_queue: RequestQueue::default(),
            waited: 0,
            made: Vec::new(),
        }
    }

    /// Admits a request.
    pub(super) fn request(&mut self, id: u32, kind: RequestKind, now: Duration) -> Admit {
        if self.open.contains_key(&id) {
            return Admit::Repeated;
        }
        let (count, most, limit_kind) = match kind {
            RequestKind::Call { .. } => (&mut self.calls, self.limits.calls, LimitKind::Calls),
            RequestKind::Question => (&mut self.questions, QUESTIONS, LimitKind::Questions),
        };
        if *count >= most {
            return Admit::LimitHit(limit_kind);
        }
        *count += 1;
        let (has_slot, waited) = (self.in_flight < self.limits.in_flight, self.waited);
        let (queue, most) = self.queue(&kind);
        let starts = has_slot && queue.running < most;
        if starts {
            queue.running += 1;
            self.in_flight += 1;
        } else {
            queue.waiting.push_back((waited, id));
            self.waited += 1;
        }
        self.open.insert(id, OpenRequest { kind, requested_at: now });
        if starts { Admit::Start } else { Admit::Wait }
    }

    /// Ends a started request. Returns those that may start now.
    pub(super) fn finished(&mut self, id: u32, ok: bool, now: Duration) -> Vec<u32> {
        let Some(open) = self.open.remove(&id) else { return Vec::new() };
        self.in_flight -= 1;
        self.queue(&open.kind).0.running -= 1;
        if let RequestKind::Call { server, tool } = open.kind {
            let ended = if ok { CallStatus::Ok } else { CallStatus::Failed };
            self.made.push(ScriptCall {
                server,
                tool,
                took: now.saturating_sub(open.requested_at),
                ended,
            });
        }
        self.dequeue()
    }

    /// Compares the clocks with their limits. `cpu` is the CPU time since the job was sent.
    pub(super) fn watch(&self, now: Duration, cpu: Duration) -> ClockCheck {
        if now >= self.limits.wall {
            return ClockCheck::LimitHit(LimitKind::Wall);
        }
        let most = self.limits.cpu + CPU_GRACE;
        if cpu >= most {
            return ClockCheck::LimitHit(LimitKind::Cpu);
        }
        // One thread uses no more CPU time than wall time.
        ClockCheck::Again(
            self.limits.wall.saturating_sub(now).min(most.saturating_sub(cpu).max(MIN_CPU_CHECK)),
        )
    }

    /// The calls of the run; those still open are dropped.
    pub(super) fn close(mut self, now: Duration) -> Vec<ScriptCall> {
        for open in self.open.into_values() {
            if let RequestKind::Call { server, tool } = open.kind {
                let took = now.saturating_sub(open.requested_at);
                self.made.push(ScriptCall { server, tool, took, ended: CallStatus::Dropped });
            }
        }
        self.made
    }

    /// Dequeues in arrival order whatever has a slot: a busy server holds up only its own calls.
    fn dequeue(&mut self) -> Vec<u32> {
        let mut next = Vec::new();
        while self.in_flight < self.limits.in_flight {
            let most = self.limits.per_server;
            let servers = self.at_server.values_mut().filter(|queue| queue.running < most);
            let questions = Some(&mut self.questions_queue);
            let ready = servers.chain(questions.filter(|queue| queue.running < QUESTIONS_AT_ONCE));
            let first = ready.filter(|queue| !queue.waiting.is_empty());
            let Some(queue) = first.min_by_key(|queue| queue.waiting.front().copied()) else {
                break;
            };
            let Some((_, id)) = queue.waiting.pop_front() else { break };
            queue.running += 1;
            self.in_flight += 1;
            next.push(id);
        }
        next
    }

    /// The queue of a request, and its limit in flight.
    fn queue(&mut self, kind: &RequestKind) -> (&mut RequestQueue, usize) {
        match kind {
            RequestKind::Question => (&mut self.questions_queue, QUESTIONS_AT_ONCE),
            RequestKind::Call { server, .. } => {
                if !self.at_server.contains_key(server) {
                    self.at_server.insert(server.clone(), RequestQueue::default());
                }
                let queue = self.at_server.get_mut(server).expect("put there if it was missing");
                (queue, self.limits.per_server)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Duration = Duration::from_millis(10);

    fn limits() -> Limits {
        Limits { calls: 20, in_flight: 4, per_server: 2, ..Limits::default() }
    }

    fn call(server: &str) -> RequestKind {
        RequestKind::Call { server: server.into(), tool: "t".into() }
    }

    #[test]
    fn more_than_fit_wait_and_come_in_order() {
        let mut admission = Admission::new(limits());
        let admitted: Vec<_> = ["a", "a", "a", "b", "c", "c"]
            .iter()
            .zip(0..)
            .map(|(s, id)| admission.request(id, call(s), NOW))
            .collect();
        use Admit::{Start, Wait};
        assert_eq!(admitted, [Start, Start, Wait, Start, Start, Wait]);
        // The third waits for its server, the last for room at all.
        assert_eq!(admission.finished(3, true, NOW), [5]);
        assert_eq!(admission.finished(0, false, NOW), [2]);
        assert_eq!(admission.finished(1, true, NOW), [0_u32; 0]);
    }

    #[test]
    fn one_call_too_many_ends_the_run() {
        let mut admission = Admission::new(limits());
        for id in 0..20 {
            admission.request(id, call("a"), NOW);
        }
        assert_eq!(admission.request(20, call("a"), NOW), Admit::LimitHit(LimitKind::Calls));
        assert_eq!(admission.request(21, RequestKind::Question, NOW), Admit::Start);
    }

    #[test]
    fn questions_have_a_bound_of_their_own() {
        let mut admission = Admission::new(limits());
        for id in 0..QUESTIONS {
            assert_ne!(
                admission.request(id, RequestKind::Question, NOW),
                Admit::LimitHit(LimitKind::Questions)
            );
            admission.finished(id, true, NOW);
        }
        let limit_kind = admission.request(QUESTIONS, RequestKind::Question, NOW);
        assert_eq!(limit_kind, Admit::LimitHit(LimitKind::Questions));
    }

    #[test]
    fn questions_wait_for_each_other_and_leave_room_for_calls() {
        let mut admission = Admission::new(Limits::default());
        let admitted: Vec<_> =
            (0..20).map(|id| admission.request(id, RequestKind::Question, NOW)).collect();
        let at_once = admitted.iter().filter(|admitted| **admitted == Admit::Start).count();
        assert_eq!(at_once, QUESTIONS_AT_ONCE);
        assert_eq!(admission.request(20, call("a"), NOW), Admit::Start);
        assert_eq!(admission.finished(20, true, NOW), [0_u32; 0]);
        assert_eq!(admission.finished(0, true, NOW), [8]);
    }

    #[test]
    fn a_number_in_use_is_refused() {
        let mut admission = Admission::new(limits());
        admission.request(7, call("a"), NOW);
        assert_eq!(admission.request(7, RequestKind::Question, NOW), Admit::Repeated);
        admission.finished(7, true, NOW);
        assert_eq!(admission.request(7, RequestKind::Question, NOW), Admit::Start);
    }

    #[test]
    fn clocks_strike_at_their_limit_and_not_before() {
        let admission = Admission::new(Limits {
            wall: Duration::from_secs(10),
            cpu: Duration::from_secs(1),
            ..limits()
        });
        let ms = Duration::from_millis;
        assert_eq!(admission.watch(ms(0), ms(0)), ClockCheck::Again(ms(1_250)));
        assert_eq!(admission.watch(ms(9_999), ms(0)), ClockCheck::Again(ms(1)));
        assert_eq!(admission.watch(ms(10_000), ms(0)), ClockCheck::LimitHit(LimitKind::Wall));
        assert_eq!(admission.watch(ms(5_000), ms(1_249)), ClockCheck::Again(MIN_CPU_CHECK));
        assert_eq!(admission.watch(ms(5_000), ms(1_250)), ClockCheck::LimitHit(LimitKind::Cpu));
    }

    #[test]
    fn what_is_open_at_the_end_is_named_as_dropped() {
        let mut admission = Admission::new(limits());
        admission.request(0, call("a"), NOW);
        admission.request(1, RequestKind::Question, NOW);
        admission.request(2, call("b"), NOW);
        admission.finished(2, false, NOW * 3);
        let made = admission.close(NOW * 5);
        let seen: Vec<_> = made.iter().map(|c| (c.server.as_str(), c.took, c.ended)).collect();
        assert_eq!(seen, [("b", NOW * 2, CallStatus::Failed), ("a", NOW * 4, CallStatus::Dropped)]);
    }

    proptest! {
        /// In whatever order: never more in flight than allowed, nothing is queued while there is a slot for it,
        /// and every call is listed exactly once.
        #[test]
        fn the_books_balance(steps in prop::collection::vec((any::<bool>(), 0_u8..5, any::<prop::sample::Index>()), 1..200)) {
            let limits = limits();
            let mut admission = Admission::new(limits.clone());
            let (mut next, mut running, mut requested_at) = (0, Vec::new(), 0);
            for (ask, server, pick) in steps {
                if ask || running.is_empty() {
                    let kind = if server == 4 { RequestKind::Question } else { call(&server.to_string()) };
                    let is_call = kind != RequestKind::Question;
                    match admission.request(next, kind, NOW) {
                        Admit::Start => running.push(next),
                        Admit::Wait => {}
                        Admit::LimitHit(limit_kind) => {
                            prop_assert_eq!(limit_kind, LimitKind::Calls);
                            prop_assert_eq!(requested_at, limits.calls);
                            next += 1;
                            continue;
                        }
                        Admit::Repeated => prop_assert!(false),
                    }
                    requested_at += u32::from(is_call);
                    next += 1;
                } else {
                    let id = running.swap_remove(pick.index(running.len()));
                    running.extend(admission.finished(id, true, NOW));
                }
                prop_assert!(running.len() <= limits.in_flight);
                prop_assert_eq!(running.len(), admission.in_flight);
                prop_assert!(admission.at_server.values().all(|queue| queue.running <= limits.per_server));
                let is_full = admission.in_flight == limits.in_flight;
                let waits = |queue: &RequestQueue| !queue.waiting.is_empty();
                let asks_most = admission.questions_queue.running == QUESTIONS_AT_ONCE;
                prop_assert!(is_full || asks_most || !waits(&admission.questions_queue));
                prop_assert!(admission.at_server.values().all(|queue| is_full || !waits(queue) || queue.running == limits.per_server));
            }
            prop_assert_eq!(admission.close(NOW).len(), requested_at as usize);
        }
    }
}
