//! Calls over HTTP: each breaks off on its own, and its connection goes on.

use proptest::prelude::*;

use super::*;

fn broke(bench: &mut Bench, call: CallId, conn: ConnId, fact: Fact, delivery: Delivery) {
    let failure = Failure::new(fact);
    bench.dispatch.broke_off(call, conn, failure, delivery, bench.now, &mut bench.effects);
}

fn status(status: u16) -> Fact {
    Fact::HttpStatus { status }
}

#[test]
fn one_call_breaks_off_and_its_neighbour_does_not_notice() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.effects.clear();
    let (broken, fine) = (bench.sent_call(server, false), bench.sent_call(server, false));
    broke(&mut bench, broken, conn, Fact::StreamDropped, Delivery::Sent);
    assert!(matches!(bench.verdicts()[..], [DispatchError::OutcomeUnknown { .. }]));
    assert_eq!(bench.failures(server), 1);
    assert_eq!(bench.answer(fine, conn), Some(1));
    assert_eq!(bench.state(conn), Some(State::Idle));
    broke(&mut bench, broken, conn, Fact::StreamDropped, Delivery::Sent);
    assert_eq!(bench.effects, [], "a call ends once");
}

#[test]
fn what_was_not_sent_or_is_harmless_goes_out_once_more_on_the_same_connection() {
    for (delivery, harmless) in [(Delivery::NotSent, false), (Delivery::Sent, true)] {
        let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
        let call = bench.sent_call(server, harmless);
        broke(&mut bench, call, conn, Fact::StreamDropped, delivery);
        assert_eq!(bench.sent(), [(conn, call)]);
        assert_eq!(bench.dispatch.attempts(call), 2);
        broke(&mut bench, call, conn, Fact::StreamDropped, delivery);
        assert_eq!(bench.sent(), []);
        let verdicts = bench.verdicts();
        assert_eq!(verdicts.len(), 1);
        let unknown = matches!(verdicts[0], DispatchError::OutcomeUnknown { .. });
        assert_eq!(unknown, delivery == Delivery::Sent);
        assert_eq!(bench.failures(server), 1, "one call, one failure");
        assert_eq!(bench.state(conn), Some(State::Idle));
    }
}

#[test]
fn a_call_that_may_have_run_is_not_told_otherwise_by_its_second_sending() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, true);
    broke(&mut bench, call, conn, status(503), Delivery::Sent);
    broke(&mut bench, call, conn, status(400), Delivery::Refused);
    assert!(matches!(bench.verdicts()[..], [DispatchError::OutcomeUnknown { .. }]));
}

#[test]
fn refusals_and_logins_never_trip_the_breaker() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let login = Fact::LoginNeeded { reason: "no token".into(), address: None };
    for fact in [status(400), status(403), status(404), login] {
        for _ in 0..10 {
            let call = bench.sent_call(server, true);
            broke(&mut bench, call, conn, fact.clone(), Delivery::Refused);
        }
        assert!(
            bench.verdicts().iter().all(|error| matches!(error, DispatchError::Refused { .. }))
        );
    }
    assert_eq!(bench.failures(server), 0);
}

#[test]
fn five_answers_of_a_broken_server_do() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    for _ in 0..5 {
        let call = bench.sent_call(server, false);
        broke(&mut bench, call, conn, status(503), Delivery::Sent);
    }
    assert!(bench.is_open(server));
    assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
}

#[test]
fn a_server_that_asks_for_a_pause_gets_it() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, false);
    let fact = Fact::Limited { retry_after: Some(10 * SECOND) };
    broke(&mut bench, call, conn, fact, Delivery::Refused);
    let after = |error: &DispatchError| match error {
        DispatchError::Refused { retry_after, .. } => *retry_after,
        DispatchError::Paused { retry_after, .. } => Some(*retry_after),
        other => panic!("{other:?}"),
    };
    assert_eq!(bench.verdicts().iter().map(after).collect::<Vec<_>>(), [Some(10 * SECOND)]);
    bench.pass(4 * SECOND);
    assert_eq!(bench.call(server), None);
    assert_eq!(bench.verdicts().iter().map(after).collect::<Vec<_>>(), [Some(6 * SECOND)]);
    assert_eq!(bench.sent(), []);
    bench.pass(6 * SECOND);
    let call = bench.sent_call(server, false);
    assert!(bench.answer(call, conn).is_some());
    assert_eq!(bench.failures(server), 0);
}

#[test]
fn a_server_that_wants_fewer_requests_is_left_alone_a_little_longer_each_time() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let mut pauses = Vec::new();
    for _ in 0..9 {
        // Two that are refused together count as one.
        let calls = [bench.sent_call(server, false), bench.sent_call(server, false)];
        for call in calls {
            let fact = Fact::Limited { retry_after: None };
            broke(&mut bench, call, conn, fact, Delivery::Refused);
        }
        let verdicts = bench.verdicts();
        let [
            DispatchError::Refused { retry_after: Some(first), .. },
            DispatchError::Refused { retry_after: Some(second), .. },
        ] = verdicts[..]
        else {
            panic!("{verdicts:?}")
        };
        assert_eq!(first, second);
        assert_eq!(bench.call(server), None);
        assert!(
            matches!(bench.verdicts()[..], [DispatchError::Paused { retry_after, .. }] if retry_after == first)
        );
        assert_eq!(bench.sent(), []);
        pauses.push(first.as_secs());
        bench.pass(first);
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    let call = bench.sent_call(server, false);
    assert!(bench.answer(call, conn).is_some());
    let call = bench.sent_call(server, false);
    broke(&mut bench, call, conn, Fact::Limited { retry_after: None }, Delivery::Refused);
    assert!(matches!(
        bench.verdicts()[..],
        [DispatchError::Refused { retry_after: Some(SECOND), .. }]
    ));
    assert_eq!(bench.failures(server), 0);
}

#[test]
fn a_server_that_is_busy_and_says_for_how_long_is_left_alone_so_long() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, false);
    let fact = Fact::Busy { retry_after: 10 * SECOND };
    broke(&mut bench, call, conn, fact, Delivery::Sent);
    assert!(matches!(bench.verdicts()[..], [DispatchError::OutcomeUnknown { .. }]));
    assert_eq!(bench.call(server), None);
    let verdicts = bench.verdicts();
    assert!(
        matches!(verdicts[..], [DispatchError::Paused { retry_after, .. }] if retry_after == 10 * SECOND),
        "{verdicts:?}"
    );
    assert_eq!(bench.failures(server), 1);
    bench.pass(10 * SECOND);
    bench.sent_call(server, false);
}

#[test]
fn a_server_that_wants_a_login_is_asked_again_each_time_and_never_in_a_crash_loop() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    let login = || Fact::LoginNeeded { reason: "no token".into(), address: None };
    for _ in 0..50 {
        bench.call(server).expect("it is let in");
        let conn = bench.connects()[0];
        bench.lost(conn, Failure::new(login()), Delivery::NotSent);
        bench.gone(conn);
        let verdicts = bench.verdicts();
        assert!(
            matches!(&verdicts[..], [DispatchError::Unavailable { failure, retry_after: None }] if failure.fact == login()),
            "{verdicts:?}"
        );
    }
    assert_eq!(bench.failures(server), 0);
    bench.call(server);
    let conn = bench.connects()[0];
    bench.ready(conn);
    assert_eq!(bench.sent().len(), 1, "after the login it works at once");
}

/// What happens next to the calls of one connection; numbers pick a call among those under way.
#[derive(Clone, Debug)]
enum Happening {
    Call { harmless: bool },
    Answer(usize),
    Breaks(usize, Delivery, u16),
    Cancel(usize),
    Pass(u64),
}

/// What became of a call so far.
#[derive(Clone, Debug, Default)]
struct Fate {
    harmless: bool,
    sent: u32,
    may_have_run: bool,
    ends: u32,
}

fn happening() -> impl Strategy<Value = Happening> {
    let delivery =
        prop_oneof![Just(Delivery::NotSent), Just(Delivery::Refused), Just(Delivery::Sent),];
    let status = prop_oneof![Just(0), Just(400), Just(401), Just(429), Just(503)];
    prop_oneof![
        4 => any::<bool>().prop_map(|harmless| Happening::Call { harmless }),
        2 => any::<usize>().prop_map(Happening::Answer),
        4 => (any::<usize>(), delivery, status).prop_map(|(n, d, s)| Happening::Breaks(n, d, s)),
        1 => any::<usize>().prop_map(Happening::Cancel),
        1 => (0..20_000_u64).prop_map(Happening::Pass),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_of_calls_that_break_off_alone(history in proptest::collection::vec(happening(), 0..80)) {
        let policy = ServerPolicy { max_in_flight: 3, ..ServerPolicy::default() };
        let mut limits = pool_of(20);
        limits.breaker_threshold = 1000;
        let mut bench = Bench::new(limits);
        let server = bench.dispatch.add_server(policy);
        let conn = bench.warm_up(server);
        bench.effects.clear();
        // By payload, which counts the calls.
        let mut calls: Vec<Fate> = Vec::new();
        for step in history {
            let under_way = bench.dispatch.calls_on(conn);
            let pick = |at: usize| under_way.get(at % under_way.len().max(1)).copied();
            match step {
                Happening::Call { harmless } => {
                    bench.ask(server, CallOptions { harmless, ..CallOptions::default() });
                    calls.push(Fate { harmless, ..Fate::default() });
                }
                Happening::Answer(at) => if let Some(call) = pick(at) {
                    let payload = bench.answer(call, conn);
                    prop_assert!(payload.is_some());
                    calls[payload.unwrap_or(0) as usize].ends += 1;
                },
                Happening::Breaks(at, delivery, status) => if let Some(call) = pick(at) {
                    let fact = match status {
                        0 => Fact::StreamDropped,
                        429 => Fact::Limited { retry_after: Some(SECOND) },
                        status => Fact::HttpStatus { status },
                    };
                    let payload = *bench.dispatch.payload(call).expect("it is under way");
                    calls[payload as usize].may_have_run |= delivery == Delivery::Sent;
                    broke(&mut bench, call, conn, fact, delivery);
                },
                Happening::Cancel(at) => if let Some(call) = pick(at) { bench.cancel(call) },
                Happening::Pass(millis) => bench.pass(Duration::from_millis(millis)),
            }
            for (on, call) in bench.sent() {
                prop_assert_eq!(on, conn);
                // One that was sent and ended in the same step is gone already.
                let Some(&payload) = bench.dispatch.payload(call) else { continue };
                let fate = &mut calls[payload as usize];
                fate.sent += 1;
                prop_assert!(fate.sent <= 2, "sent a third time");
                prop_assert!(!fate.may_have_run || fate.harmless, "sent again, and it may have run");
            }
            for (payload, error) in bench.answers() {
                let fate = &mut calls[payload as usize];
                fate.ends += 1;
                let unsent = matches!(error, DispatchError::Unavailable { .. } | DispatchError::Refused { .. });
                prop_assert!(!(unsent && fate.may_have_run), "told that it did not run: {:?}", error);
            }
            prop_assert!(calls.iter().all(|fate| fate.ends <= 1), "answered twice");
            let on = bench.dispatch.calls_on(conn).len();
            let busy = bench.state(conn).map_or(0, State::in_flight);
            prop_assert_eq!(on, busy as usize, "a place is lost or given twice");
            prop_assert!(on <= 3);
        }
        while let Some(&call) = bench.dispatch.calls_on(conn).first() {
            let payload = bench.answer(call, conn).expect("it is under way");
            calls[payload as usize].ends += 1;
        }
        prop_assert!(calls.iter().all(|fate| fate.ends == 1), "a call was forgotten");
        prop_assert_eq!(bench.dispatch.open_calls(), 0);
        prop_assert_eq!(bench.state(conn), Some(State::Idle));
    }
}
