//! The composition, one behaviour per test, with explicit times.

use super::*;

mod breaking;
mod crashing;
mod pooling;
mod probing;
mod reloading;
mod remote;
mod removing;
mod restarting;
mod starting;
mod stopping;
mod timing;
mod turns;

const SECOND: Duration = Duration::from_secs(1);
/// What every call is given unless a test says otherwise.
const TIMEOUT: Duration = Duration::from_mins(1);
const COOLDOWN: Duration = Duration::from_secs(30);

/// The documented defaults, with a pool of the given size and no reserve.
fn pool_of(size: usize) -> Limits {
    Limits {
        pool: pool::Limits {
            size,
            reserve: 0,
            reserve_after: Duration::from_secs(5),
            minimum: 0,
            idle_timeout: Duration::from_mins(5),
            per_owner: 0,
        },
        breaker_threshold: 5,
        breaker_cooldown: COOLDOWN,
        pool_wait: Duration::from_secs(30),
        connect_timeout: Duration::from_mins(1),
        install_timeout: Duration::from_mins(5),
    }
}

fn exclusive() -> ServerPolicy {
    ServerPolicy { max_in_flight: 1, ..ServerPolicy::default() }
}

fn ephemeral() -> ServerPolicy {
    ServerPolicy { keep: Keep::Ephemeral, ..ServerPolicy::default() }
}

fn exited() -> Failure {
    Failure::new(Fact::Exited { code: Some(1), signal: None })
}

fn no_such_command() -> Failure {
    Failure::new(Fact::SpawnFailed { reason: "no such file".into() })
}

/// A dispatch, its clock, and the effects nobody has looked at yet. Payloads are 0, 1, 2 … in order of the calls.
struct Bench {
    dispatch: Dispatch<u32>,
    effects: Effects<u32>,
    now: Moment,
    calls: u32,
}

impl Bench {
    fn new(limits: Limits) -> Bench {
        Bench { dispatch: Dispatch::new(limits), effects: Vec::new(), now: Moment::START, calls: 0 }
    }

    /// A bench with one server of the given kind, and that server.
    fn with(policy: ServerPolicy) -> (Bench, ServerId) {
        let mut bench = Bench::new(pool_of(20));
        let server = bench.dispatch.add_server(policy);
        (bench, server)
    }

    /// A bench with one server that is connected and has been listed.
    fn warm(policy: ServerPolicy) -> (Bench, ServerId, ConnId) {
        let (mut bench, server) = Bench::with(policy);
        let conn = bench.warm_up(server);
        (bench, server, conn)
    }

    fn add(&mut self) -> ServerId {
        self.dispatch.add_server(ServerPolicy::default())
    }

    /// Connects a server for a listing, and leaves it idle.
    fn warm_up(&mut self, server: ServerId) -> ConnId {
        self.dispatch
            .wake_server(server, 0, self.now, &mut self.effects)
            .expect("nothing keeps it from starting");
        let conn = self.connects()[0];
        self.ready(conn);
        conn
    }

    // -- time --

    fn wait(&mut self, length: Duration) {
        self.now = self.now + length;
    }

    fn tick(&mut self) {
        self.dispatch.tick(self.now, &mut self.effects);
    }

    /// Time passes as an engine lets it pass: it ticks when it is asked to, and not otherwise.
    fn pass(&mut self, length: Duration) {
        let end = self.now + length;
        let mut ticks = 0;
        while self.dispatch.wake() <= end {
            self.now = self.now.max(self.dispatch.wake());
            self.tick();
            ticks += 1;
            assert!(ticks < 1000, "the dispatch asks for a tick at {:?} for ever", self.now);
        }
        self.now = end;
    }

    // -- what callers do --

    fn call(&mut self, server: ServerId) -> Option<CallId> {
        self.ask(server, CallOptions::default())
    }

    /// A call of that session.
    fn call_of(&mut self, lane: u64, server: ServerId) -> Option<CallId> {
        self.ask(server, CallOptions { lane, ..CallOptions::default() })
    }

    fn harmless(&mut self, server: ServerId) -> Option<CallId> {
        self.ask(server, CallOptions { harmless: true, ..CallOptions::default() })
    }

    fn ask(&mut self, server: ServerId, ask: CallOptions) -> Option<CallId> {
        let payload = self.calls;
        self.calls += 1;
        self.dispatch.call(server, ask, payload, self.now, &mut self.effects)
    }

    /// A call that has to be let in.
    fn sent_call(&mut self, server: ServerId, harmless: bool) -> CallId {
        let call = self
            .ask(server, CallOptions { harmless, ..CallOptions::default() })
            .expect("it is let in");
        assert_eq!(self.sent().last().map(|sent| sent.1), Some(call), "it is sent");
        call
    }

    fn cancel(&mut self, call: CallId) {
        self.dispatch.cancel(call, self.now, &mut self.effects);
    }

    // -- what servers do --

    fn connected(&mut self, conn: ConnId) {
        self.dispatch.connected(conn, self.now, &mut self.effects);
    }

    fn listed(&mut self, conn: ConnId) {
        self.dispatch.listed(conn, self.now, &mut self.effects);
    }

    fn ready(&mut self, conn: ConnId) {
        self.connected(conn);
        self.listed(conn);
    }

    fn answer(&mut self, call: CallId, conn: ConnId) -> Option<u32> {
        self.dispatch.answered(call, conn, false, self.now, &mut self.effects)
    }

    fn lost(&mut self, conn: ConnId, failure: Failure, delivery: Delivery) {
        self.dispatch.lost(conn, failure, &|_| delivery, self.now, &mut self.effects);
    }

    /// Its process ended after everything was sent to it.
    fn crash(&mut self, conn: ConnId) {
        self.lost(conn, exited(), Delivery::Sent);
    }

    /// Its process ended before anything reached it.
    fn crash_unsent(&mut self, conn: ConnId) {
        self.lost(conn, exited(), Delivery::NotSent);
    }

    fn gone(&mut self, conn: ConnId) {
        self.dispatch.gone(conn, self.now, &mut self.effects);
    }

    // -- what was asked for since last looked --

    fn connects(&mut self) -> Vec<ConnId> {
        self.take(|effect| match effect {
            Effect::Connect { conn, .. } => Some(*conn),
            _ => None,
        })
    }

    fn lists(&mut self) -> Vec<ConnId> {
        self.take(|effect| match effect {
            Effect::List { conn, .. } => Some(*conn),
            _ => None,
        })
    }

    fn sent(&mut self) -> Vec<(ConnId, CallId)> {
        self.take(|effect| match effect {
            Effect::Send { conn, call } => Some((*conn, *call)),
            _ => None,
        })
    }

    fn abandoned(&mut self) -> Vec<CallId> {
        self.take(|effect| match effect {
            Effect::Abandon { call, .. } => Some(*call),
            _ => None,
        })
    }

    fn closes(&mut self) -> Vec<(ConnId, CloseMode)> {
        self.take(|effect| match effect {
            Effect::Close { conn, mode } => Some((*conn, *mode)),
            _ => None,
        })
    }

    /// Calls that ended without an answer, as payload and verdict.
    fn answers(&mut self) -> Vec<(u32, DispatchError)> {
        self.take(|effect| match effect {
            Effect::Answer { payload, error, .. } => Some((*payload, error.clone())),
            _ => None,
        })
    }

    fn verdicts(&mut self) -> Vec<DispatchError> {
        self.answers().into_iter().map(|(_, error)| error).collect()
    }

    fn take<X>(&mut self, pick: impl Fn(&Effect<u32>) -> Option<X>) -> Vec<X> {
        let mut taken = Vec::new();
        self.effects.retain(|effect| match pick(effect) {
            Some(picked) => {
                taken.push(picked);
                false
            }
            None => true,
        });
        taken
    }

    // -- what can be seen --

    fn phase(&self, server: ServerId) -> breaker::Phase {
        self.dispatch.view(server).expect("it was added").breaker
    }

    fn failures(&self, server: ServerId) -> u32 {
        match self.phase(server) {
            breaker::Phase::Normal { failures } => failures,
            other => panic!("the breaker is {other:?}"),
        }
    }

    fn is_open(&self, server: ServerId) -> bool {
        matches!(self.phase(server), breaker::Phase::Open { .. })
    }

    fn state(&self, conn: ConnId) -> Option<State> {
        self.dispatch.pool().slot(conn).map(|slot| slot.state)
    }

    /// Trips the breaker of a server by calls that are never answered; leaves its process hung up on and gone.
    fn trip(&mut self, server: ServerId, conn: ConnId) {
        for _ in 0..5 {
            self.sent_call(server, false);
            self.pass(TIMEOUT);
        }
        assert!(self.is_open(server));
        assert_eq!(self.closes(), [(conn, CloseMode::Graceful)]);
        self.gone(conn);
        self.effects.clear();
    }
}

#[test]
fn a_call_to_a_warm_server_goes_straight_out_and_its_answer_comes_straight_back() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.effects.clear();
    let call = bench.call(server).expect("it is let in");
    assert_eq!(bench.effects, [Effect::Send { conn, call }]);
    bench.effects.clear();
    assert_eq!(bench.dispatch.payload(call), Some(&0));
    assert_eq!(bench.dispatch.attempts(call), 1);
    assert_eq!(bench.dispatch.calls_on(conn), [call]);
    assert_eq!(bench.answer(call, conn), Some(0));
    assert_eq!(bench.effects, []);
    assert_eq!(bench.state(conn), Some(State::Idle));
    assert_eq!(bench.dispatch.open_calls(), 0);
    assert_eq!(bench.dispatch.payload(call), None);
}

#[test]
fn a_call_is_answered_once_and_only_by_the_connection_it_is_on() {
    let mut bench = Bench::new(pool_of(20));
    let (asked, stranger) = (bench.add(), bench.add());
    let (conn, other) = (bench.warm_up(asked), bench.warm_up(stranger));
    let call = bench.sent_call(asked, false);
    bench.effects.clear();
    assert!(!bench.dispatch.is_on(call, other));
    assert_eq!(bench.answer(call, other), None, "another server cannot answer it");
    assert_eq!(bench.answer(call, conn), Some(0));
    assert_eq!(bench.answer(call, conn), None, "nor can it be answered twice");
    // The slab gives the place to the next call; the old key does not reach it.
    let next = bench.sent_call(asked, false);
    assert_ne!(next, call);
    assert_eq!(bench.answer(call, conn), None);
    assert_eq!(bench.answer(next, conn), Some(1));
    assert_eq!(bench.effects, []);
}

#[test]
fn numbers_on_the_wire_are_never_reused_nor_small_nor_beyond_what_a_peer_can_count() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        let call = bench.sent_call(server, false);
        let number = call.0.number();
        assert!(seen.insert(number), "{number} was used before");
        assert!(number >= Key::FIRST, "smaller numbers belong to other requests");
        assert!(number < 1 << 53, "a peer that counts in doubles loses track");
        assert_eq!(Key::from_number(number).map(CallId), Some(call));
        bench.answer(call, conn);
    }
}

#[test]
fn an_error_from_the_tool_is_an_answer_and_no_failure() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    for _ in 0..50 {
        let call = bench.sent_call(server, false);
        assert!(bench.dispatch.answered(call, conn, true, bench.now, &mut bench.effects).is_some());
    }
    assert_eq!(bench.failures(server), 0);
}

#[test]
fn an_answer_resets_the_count_but_an_error_from_the_tool_does_not() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.sent_call(server, false);
    bench.pass(TIMEOUT);
    assert_eq!(bench.failures(server), 1);
    let call = bench.sent_call(server, false);
    bench.dispatch.answered(call, conn, true, bench.now, &mut bench.effects);
    assert_eq!(bench.failures(server), 1);
    let call = bench.sent_call(server, false);
    bench.answer(call, conn);
    assert_eq!(bench.failures(server), 0);
}
