//! The breaker: when it opens, what it rejects, how it closes again.

use super::*;

#[test]
fn five_timeouts_in_a_row_trip_it_and_cost_the_process_its_life() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    for _ in 0..4 {
        bench.sent_call(server, false);
        bench.pass(TIMEOUT);
        assert_eq!(bench.closes(), []);
    }
    assert_eq!(bench.failures(server), 4);
    bench.sent_call(server, false);
    bench.pass(TIMEOUT);
    assert_eq!(bench.phase(server), breaker::Phase::Open { until: bench.now + COOLDOWN });
    assert_eq!(
        bench.closes(),
        [(conn, CloseMode::Graceful)],
        "the probe shall meet a fresh process"
    );
}

#[test]
fn five_that_hang_at_once_are_as_good_as_five_in_a_row() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    for _ in 0..64 {
        bench.sent_call(server, false);
    }
    bench.pass(TIMEOUT);
    assert_eq!(bench.answers().len(), 64);
    assert!(bench.is_open(server));
    assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
}

#[test]
fn an_open_breaker_refuses_at_once_without_touching_the_child() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.trip(server, conn);
    bench.pass(Duration::from_secs(10));
    for _ in 0..1000 {
        assert_eq!(bench.call(server), None);
    }
    assert_eq!(bench.connects(), []);
    let verdicts = bench.verdicts();
    assert_eq!(verdicts.len(), 1000);
    assert!(verdicts.iter().all(|error| matches!(
        error,
        DispatchError::CircuitOpen { retry_after, failure: Some(failure) }
            if *retry_after == Duration::from_secs(20)
                && failure.fact == Fact::CallTimedOut { after: TIMEOUT }
    )));
    let refused = bench.dispatch.wake_server(server, 0, bench.now, &mut bench.effects);
    assert!(matches!(refused, Err(DispatchError::CircuitOpen { .. })), "nor for a listing");
    assert_eq!(bench.effects, []);
}

#[test]
fn after_the_cooldown_one_of_ten_thousand_is_the_probe_and_meets_a_fresh_process() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.trip(server, conn);
    bench.pass(COOLDOWN);
    let admitted: Vec<CallId> = (0..10_000).filter_map(|_| bench.call(server)).collect();
    assert_eq!(admitted.len(), 1);
    let verdicts = bench.verdicts();
    assert_eq!(verdicts.len(), 9_999);
    assert!(verdicts.iter().all(|error| matches!(error, DispatchError::CircuitOpen { .. })));
    let fresh = bench.connects();
    assert_eq!(fresh.len(), 1);
    assert_ne!(fresh[0], conn);
    bench.ready(fresh[0]);
    assert!(bench.answer(admitted[0], fresh[0]).is_some());
    assert_eq!(bench.failures(server), 0);
    bench.sent_call(server, false);
}

#[test]
fn a_failed_probe_opens_it_again_at_once_with_a_fresh_cooldown() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.trip(server, conn);
    bench.pass(COOLDOWN);
    bench.call(server).expect("the probe");
    let conn = bench.connects()[0];
    bench.lost(conn, no_such_command(), Delivery::NotSent);
    assert_eq!(bench.phase(server), breaker::Phase::Open { until: bench.now + COOLDOWN });
    assert!(
        matches!(&bench.verdicts()[..], [DispatchError::Unavailable { .. }]),
        "its start failed, so the call was never sent and says so"
    );
    bench.wait(COOLDOWN.saturating_sub(Duration::from_millis(1)));
    assert_eq!(bench.call(server), None);
}

#[test]
fn an_error_from_the_tool_is_enough_for_a_probe() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.trip(server, conn);
    bench.pass(COOLDOWN);
    let probe = bench.call(server).expect("the probe");
    let conn = bench.connects()[0];
    bench.ready(conn);
    bench.dispatch.answered(probe, conn, true, bench.now, &mut bench.effects);
    assert_eq!(bench.failures(server), 0, "the server is back: it answers");
}

#[test]
fn a_cancelled_probe_frees_its_place() {
    for sent in [false, true] {
        let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
        bench.trip(server, conn);
        bench.pass(COOLDOWN);
        let probe = bench.call(server).expect("the probe");
        if sent {
            let conn = bench.connects()[0];
            bench.ready(conn);
        }
        bench.cancel(probe);
        assert!(bench.call(server).is_some(), "the next caller is the probe");
        assert_eq!(bench.call(server), None);
    }
}

#[test]
fn a_probe_that_finds_no_slot_frees_its_place() {
    let mut bench = Bench::new(pool_of(1));
    let (broken, busy) = (bench.add(), bench.add());
    let conn = bench.warm_up(broken);
    bench.trip(broken, conn);
    let conn = bench.warm_up(busy);
    let patient = CallOptions { timeout: Some(Duration::from_mins(10)), ..CallOptions::default() };
    bench.ask(busy, patient).expect("it is let in");
    bench.pass(COOLDOWN);
    bench.call(broken).expect("the probe waits for a slot");
    assert_eq!(bench.call(broken), None);
    bench.effects.clear();
    bench.pass(Duration::from_secs(30));
    assert!(matches!(&bench.verdicts()[..], [DispatchError::PoolExhausted { .. }]));
    assert!(bench.call(broken).is_some(), "nothing was learnt, so the next may try");
    assert_eq!(bench.state(conn).map(State::in_flight), Some(1));
}

#[test]
fn calls_admitted_before_it_tripped_say_nothing_about_it_afterwards() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let patient = CallOptions { timeout: Some(Duration::from_mins(10)), ..CallOptions::default() };
    let early = bench.ask(server, patient).expect("it is let in");
    for _ in 0..5 {
        bench.call(server);
    }
    bench.pass(TIMEOUT);
    let open = bench.phase(server);
    assert_eq!(bench.answer(early, conn), Some(0));
    assert_eq!(bench.phase(server), open, "a straggler closes nothing");
    assert_eq!(
        bench.closes(),
        [(conn, CloseMode::Graceful)],
        "it was the last one on a failing process"
    );
}

#[test]
fn chance_lengthens_the_cooldown_by_at_most_a_tenth() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.dispatch.set_jitter(5000);
    for _ in 0..5 {
        bench.sent_call(server, false);
    }
    bench.pass(TIMEOUT);
    let until = bench.now + COOLDOWN + COOLDOWN / 10;
    assert_eq!(bench.phase(server), breaker::Phase::Open { until });
    bench.gone(conn);
}

#[test]
fn a_failure_is_told_while_it_matters() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let told = |bench: &Bench| bench.dispatch.view(server).and_then(|view| view.last_failure);
    bench.sent_call(server, false);
    bench.pass(TIMEOUT);
    assert_eq!(told(&bench).map(|f| f.fact.clone()), Some(Fact::CallTimedOut { after: TIMEOUT }));
    let call = bench.sent_call(server, false);
    bench.answer(call, conn);
    assert_eq!(told(&bench), None, "it works again");

    // A straggler does not make an open breaker forget why it is open.
    let patient = CallOptions { timeout: Some(Duration::from_mins(10)), ..CallOptions::default() };
    let early = bench.ask(server, patient).expect("it is let in");
    for _ in 0..5 {
        bench.call(server);
    }
    bench.pass(TIMEOUT);
    bench.answer(early, conn);
    assert!(told(&bench).is_some());
}
