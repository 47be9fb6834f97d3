//! Connections that break with calls on them: what is sent again, what is not, what it costs.

use super::*;

#[test]
fn a_call_that_did_not_get_out_is_sent_again_once() {
    for harmless in [false, true] {
        let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
        let call = bench.sent_call(server, harmless);
        bench.crash_unsent(conn);
        assert_eq!(bench.answers(), []);
        bench.gone(conn);
        bench.ready(conn);
        assert_eq!(bench.sent(), [(conn, call)]);
        assert_eq!(bench.dispatch.attempts(call), 2);
        bench.crash_unsent(conn);
        assert!(
            matches!(&bench.verdicts()[..], [DispatchError::Unavailable { .. }]),
            "once, and it is certain that it never ran"
        );
        assert_eq!(bench.failures(server), 1);
    }
}

#[test]
fn a_harmless_call_is_sent_again_once() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, true);
    bench.crash(conn);
    assert_eq!(bench.answers(), []);
    bench.gone(conn);
    bench.ready(conn);
    assert_eq!(bench.sent(), [(conn, call)]);
    assert_eq!(bench.failures(server), 0, "the retry comes before the failure is counted");
    bench.crash(conn);
    assert!(matches!(&bench.verdicts()[..], [DispatchError::OutcomeUnknown { .. }]));
    assert_eq!(bench.failures(server), 1);
    assert_eq!(bench.dispatch.open_calls(), 0);
}

#[test]
fn a_harmful_call_that_was_sent_is_never_sent_again() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.sent_call(server, false);
    bench.crash(conn);
    assert!(matches!(
        &bench.verdicts()[..],
        [DispatchError::OutcomeUnknown { failure }] if **failure == exited()
    ));
    assert_eq!(bench.failures(server), 1);
    bench.gone(conn);
    bench.ready(conn);
    assert_eq!(bench.sent(), [], "the server is back, the call is not");
}

#[test]
fn each_call_on_a_broken_connection_is_judged_by_how_far_it_got() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let half_sent = bench.sent_call(server, false);
    let harmful = bench.sent_call(server, false);
    let harmless = bench.sent_call(server, true);
    let delivery = |call| if call == half_sent { Delivery::NotSent } else { Delivery::Sent };
    bench.dispatch.lost(conn, exited(), &delivery, bench.now, &mut bench.effects);
    let answers = bench.answers();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].0, 1, "only {harmful:?}");
    bench.gone(conn);
    bench.ready(conn);
    assert_eq!(bench.sent(), [(conn, half_sent), (conn, harmless)]);
}

#[test]
fn what_broke_off_goes_out_before_what_came_later() {
    let (mut bench, server, conn) = Bench::warm(exclusive());
    let first = bench.sent_call(server, true);
    let second = bench.call(server).expect("it is let in");
    bench.crash(conn);
    let third = bench.call(server).expect("it is let in");
    bench.gone(conn);
    bench.ready(conn);
    let mut order = Vec::new();
    while let [(conn, call)] = bench.sent()[..] {
        order.push(call);
        bench.answer(call, conn);
    }
    assert_eq!(order, [first, second, third]);
}

#[test]
fn a_crash_with_sixty_four_calls_in_flight_is_one_failure() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    for _ in 0..64 {
        bench.sent_call(server, false);
    }
    bench.crash(conn);
    assert_eq!(bench.answers().len(), 64);
    assert_eq!(bench.failures(server), 1);
}

#[test]
fn a_start_that_fails_after_a_crash_ends_what_may_have_run_as_unknown() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.sent_call(server, true);
    bench.crash(conn);
    bench.call(server);
    bench.gone(conn);
    assert_eq!(bench.connects(), [conn]);
    bench.lost(conn, no_such_command(), Delivery::NotSent);
    let verdicts = bench.verdicts();
    assert!(
        matches!(
            &verdicts[..],
            [DispatchError::OutcomeUnknown { .. }, DispatchError::Unavailable { .. }]
        ),
        "{verdicts:?}"
    );
    assert_eq!(bench.failures(server), 1);
}

#[test]
fn replays_never_add_more_than_a_fifth() {
    let (mut bench, server, conn) =
        Bench::warm(ServerPolicy { max_in_flight: 1000, ..ServerPolicy::default() });
    for _ in 0..100 {
        bench.sent_call(server, true);
    }
    bench.crash(conn);
    assert_eq!(bench.answers().len(), 80);
    bench.gone(conn);
    bench.ready(conn);
    assert_eq!(bench.sent().len(), 20);
}

#[test]
fn calls_that_did_not_get_out_are_outside_the_budget() {
    let (mut bench, server, conn) =
        Bench::warm(ServerPolicy { max_in_flight: 1000, ..ServerPolicy::default() });
    for _ in 0..100 {
        bench.sent_call(server, false);
    }
    bench.crash_unsent(conn);
    bench.gone(conn);
    bench.ready(conn);
    assert_eq!(bench.sent().len(), 100);
}

#[test]
fn a_replay_gets_what_is_left_of_the_agreed_time() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, true);
    bench.pass(Duration::from_secs(50));
    bench.crash(conn);
    bench.gone(conn);
    bench.pass(Duration::from_secs(5));
    bench.ready(conn);
    assert_eq!(bench.sent(), [(conn, call)]);
    bench.pass(Duration::from_millis(4_999));
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.verdicts(), [DispatchError::TimedOut { after: TIMEOUT, sent: true }]);
    assert_eq!(bench.now, Moment::START + TIMEOUT);
}

#[test]
fn a_replay_that_cannot_start_in_the_agreed_time_ends_there() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.sent_call(server, true);
    bench.pass(SECOND);
    bench.crash(conn);
    bench.gone(conn);
    bench.pass(Duration::from_millis(58_999));
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    assert!(
        matches!(&bench.verdicts()[..], [DispatchError::TimedOut { sent: true, .. }]),
        "it is not on a wire now, but it may have run"
    );
}

#[test]
fn a_call_that_outlived_its_agreed_time_by_progress_is_not_sent_again() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, true);
    bench.pass(Duration::from_secs(30));
    bench.dispatch.progressed(call, bench.now);
    bench.pass(Duration::from_secs(40));
    assert_eq!(bench.answers(), []);
    bench.crash(conn);
    assert!(matches!(&bench.verdicts()[..], [DispatchError::OutcomeUnknown { .. }]));
}

#[test]
fn a_replay_does_not_win_a_second_allowance_of_progress() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, true);
    bench.pass(Duration::from_secs(50));
    bench.crash(conn);
    bench.gone(conn);
    bench.ready(conn);
    for _ in 0..100 {
        bench.dispatch.progressed(call, bench.now);
        bench.pass(Duration::from_secs(10));
    }
    assert_eq!(bench.answers().len(), 1);
    assert_eq!(bench.dispatch.open_calls(), 0);
    let mut again = Bench::warm(ServerPolicy::default());
    let call = again.0.sent_call(again.1, true);
    again.0.crash(again.2);
    again.0.gone(again.2);
    again.0.pass(Duration::from_secs(40));
    again.0.ready(again.2);
    let mut ended = None;
    while ended.is_none() {
        again.0.dispatch.progressed(call, again.0.now);
        again.0.pass(SECOND);
        ended = again.0.verdicts().pop();
    }
    assert_eq!(again.0.now, Moment::START + TIMEOUT * PROGRESS_CAP);
}

#[test]
fn a_child_that_dies_idle_hurts_nobody() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.effects.clear();
    bench.crash(conn);
    assert_eq!(bench.effects, [Effect::Close { conn, mode: CloseMode::Immediate }]);
    assert_eq!(bench.failures(server), 0);
    bench.effects.clear();
    // A call may come before its process is gone: it gets a new connection.
    bench.call(server);
    let next = bench.connects();
    assert_eq!(next.len(), 1);
    assert_ne!(next[0], conn);
    bench.gone(conn);
    assert_eq!(bench.dispatch.pool().count(), 1);
}

#[test]
fn what_happens_to_a_connection_that_is_over_is_ignored() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.crash(conn);
    bench.gone(conn);
    bench.effects.clear();
    bench.crash(conn);
    bench.connected(conn);
    bench.listed(conn);
    bench.gone(conn);
    bench.dispatch.life_sign(conn, bench.now);
    assert!(!bench.dispatch.list_again(conn));
    assert_eq!(bench.effects, []);
    assert_eq!(bench.failures(server), 0);
}

#[test]
fn a_listing_that_ends_with_its_connection_costs_no_call() {
    // The engine says `listed` for a listing that failed, too, and that may come after `lost`.
    let (mut bench, server) = Bench::with(exclusive());
    let call = bench.call(server).expect("it is let in");
    let conn = bench.connects()[0];
    bench.connected(conn);
    assert_eq!(bench.sent(), [], "the listing comes first");
    bench.crash_unsent(conn);
    bench.listed(conn);
    bench.gone(conn);
    assert_eq!(bench.connects(), [conn]);
    bench.listed(conn);
    assert_eq!(bench.sent(), [], "it is not connected yet");
    bench.connected(conn);
    bench.listed(conn);
    assert_eq!(bench.sent(), [(conn, call)]);
    bench.listed(conn);
    assert_eq!(bench.state(conn).map(State::in_flight), Some(1), "there was no second listing");
    assert_eq!(bench.answer(call, conn), Some(0));
}

#[test]
fn a_crash_is_charged_to_a_call_whose_leave_is_still_good() {
    // One call is admitted, four others time out and trip the breaker; the probe goes out beside the first, and
    // then the process dies. The probe failed: the breaker must not let the next caller straight through.
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let patient = CallOptions { timeout: Some(Duration::from_mins(10)), ..CallOptions::default() };
    bench.ask(server, patient).expect("it is let in");
    for _ in 0..5 {
        bench.call(server);
    }
    bench.pass(TIMEOUT);
    assert!(bench.is_open(server));
    assert_eq!(bench.closes(), [], "the patient call keeps it open");
    bench.pass(COOLDOWN);
    bench.sent_call(server, false);
    assert!(matches!(bench.phase(server), breaker::Phase::Probing { .. }));
    bench.crash(conn);
    assert_eq!(bench.phase(server), breaker::Phase::Open { until: bench.now + COOLDOWN });
}

#[test]
fn a_probe_that_crashed_and_cannot_be_retried_failed() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.trip(server, conn);
    bench.pass(COOLDOWN);
    // Four more starts, so that the retry of the probe is over the limit of starts.
    bench.harmless(server).expect("the probe");
    let conn = bench.connects()[0];
    bench.ready(conn);
    bench.effects.clear();
    for _ in 0..4 {
        bench.dispatch.servers[ServerId(0)].restart_backoff.spawned(bench.now);
    }
    bench.crash(conn);
    assert_eq!(bench.answers(), []);
    bench.gone(conn);
    let verdicts = bench.verdicts();
    assert!(matches!(&verdicts[..], [DispatchError::OutcomeUnknown { .. }]), "{verdicts:?}");
    assert_eq!(bench.phase(server), breaker::Phase::Open { until: bench.now + COOLDOWN });
}

#[test]
fn credentials_that_expire_in_a_call_do_not_count_either() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.sent_call(server, false);
    let unauthorized = Failure::new(Fact::HttpStatus { status: 403 });
    bench.lost(conn, unauthorized, Delivery::Sent);
    assert_eq!(bench.failures(server), 0);
}

#[test]
fn a_connection_that_says_twice_that_it_is_ready_is_ready_once() {
    let mut bench = Bench::new(pool_of(1));
    let (server, other) = (bench.add(), bench.add());
    let conn = bench.warm_up(server);
    bench.effects.clear();
    bench.connected(conn);
    assert_eq!(bench.effects, []);
    let call = bench.sent_call(server, false);
    bench.connected(conn);
    bench.call(other);
    assert_eq!(bench.closes(), [], "a connection with a call on it is not evicted");
    bench.answer(call, conn);
    assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
}
