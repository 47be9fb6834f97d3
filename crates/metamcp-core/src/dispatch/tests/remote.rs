//! Calls over HTTP: each breaks off on its own, and its connection goes on.

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
    assert!(matches!(bench.verdicts()[..], [Verdict::OutcomeUnknown { .. }]));
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
        let unknown = matches!(verdicts[0], Verdict::OutcomeUnknown { .. });
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
    assert!(matches!(bench.verdicts()[..], [Verdict::OutcomeUnknown { .. }]));
}

#[test]
fn refusals_and_logins_never_trip_the_breaker() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let login = Fact::LoginNeeded { reason: "no token".into(), address: None };
    let limited = Fact::Limited { retry_after: None };
    for fact in [status(400), status(403), status(404), login, limited] {
        for _ in 0..10 {
            let call = bench.sent_call(server, true);
            broke(&mut bench, call, conn, fact.clone(), Delivery::Refused);
        }
        assert!(bench.verdicts().iter().all(|verdict| matches!(verdict, Verdict::Refused { .. })));
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
    assert_eq!(bench.closes(), [(conn, Shut::Gently)]);
}

#[test]
fn a_server_that_asks_for_a_pause_gets_it() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, false);
    let fact = Fact::Limited { retry_after: Some(10 * SECOND) };
    broke(&mut bench, call, conn, fact, Delivery::Refused);
    let after = |verdict: &Verdict| match verdict {
        Verdict::Refused { retry_after, .. } | Verdict::Unavailable { retry_after, .. } => {
            *retry_after
        }
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
            matches!(&verdicts[..], [Verdict::Unavailable { failure, retry_after: None }] if failure.fact == login()),
            "{verdicts:?}"
        );
    }
    assert_eq!(bench.failures(server), 0);
    bench.call(server);
    let conn = bench.connects()[0];
    bench.ready(conn);
    assert_eq!(bench.sent().len(), 1, "after the login it works at once");
}
