//! Shutdown: every call gets an outcome.

use super::*;

/// Seven calls in every place a call can be in: sent, queued, starting, restarting, waiting for a slot.
fn everywhere() -> Bench {
    let mut bench = Bench::new(pool_of(3));
    let busy = bench.dispatch.add_server(exclusive());
    let (starting, crashing, waiting) = (bench.add(), bench.add(), bench.add());
    bench.warm_up(busy);
    let broken = bench.warm_up(crashing);
    bench.call(busy);
    bench.call(busy);
    bench.call(starting);
    bench.call(starting);
    bench.harmless(crashing);
    bench.crash(broken);
    bench.call(crashing);
    bench.call(waiting);
    assert_eq!(bench.answers(), []);
    assert_eq!(bench.dispatch.open_calls(), 7);
    bench
}

#[test]
fn the_first_word_answers_what_was_not_sent_and_lets_the_rest_finish() {
    let mut bench = everywhere();
    bench.dispatch.stop(bench.now, &mut bench.effects);
    let answers = bench.answers();
    assert_eq!(answers.len(), 6);
    for (payload, error) in answers {
        // The one that broke off after it was sent may have run.
        assert_eq!(error, DispatchError::ShuttingDown { sent: payload == 4 }, "{payload}");
    }
    let on: Vec<(ConnId, CallId)> = bench
        .dispatch
        .pool()
        .all()
        .map(|(conn, _)| conn)
        .flat_map(|conn| bench.dispatch.calls_on(conn).into_iter().map(move |call| (conn, call)))
        .collect();
    let &[(conn, call)] = &on[..] else { panic!("one call is left: {on:?}") };
    assert_eq!(bench.answer(call, conn), Some(0));
    assert_eq!(bench.dispatch.open_calls(), 0);
    assert_eq!(bench.call(ServerId(0)), None);
    assert_eq!(bench.verdicts(), [DispatchError::ShuttingDown { sent: false }]);
    assert!(bench.dispatch.wake_server(ServerId(3), 0, bench.now, &mut bench.effects).is_err());
}

#[test]
fn the_last_word_answers_everyone_once_and_closes_everything_once() {
    for stopped_before in [false, true] {
        let mut bench = everywhere();
        let mut closed: Vec<ConnId> = bench.closes().iter().map(|close| close.0).collect();
        if stopped_before {
            bench.dispatch.stop(bench.now, &mut bench.effects);
        }
        bench.dispatch.stop_now(bench.now, &mut bench.effects);
        bench.dispatch.stop_now(bench.now, &mut bench.effects);
        let mut answered: Vec<u32> = bench.answers().iter().map(|answer| answer.0).collect();
        answered.sort_unstable();
        assert_eq!(answered, (0..7).collect::<Vec<_>>());
        closed.extend(bench.closes().iter().map(|close| close.0));
        closed.sort_unstable();
        let mut held: Vec<ConnId> = bench.dispatch.pool().all().map(|(conn, _)| conn).collect();
        held.sort_unstable();
        assert_eq!(closed, held);
        assert_eq!(held.len(), 3);
        for conn in held {
            bench.gone(conn);
        }
        assert_eq!(bench.dispatch.pool().count(), 0);
        assert_eq!(bench.connects().len(), 1, "the one that was starting, and nothing since");
        assert_eq!(bench.dispatch.wake(), Moment::NEVER);
    }
}

#[test]
fn a_crash_after_the_first_word_is_final() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.sent_call(server, true);
    bench.dispatch.stop(bench.now, &mut bench.effects);
    bench.crash(conn);
    assert!(matches!(&bench.verdicts()[..], [DispatchError::OutcomeUnknown { .. }]));
    bench.gone(conn);
    assert_eq!(bench.connects(), []);
    assert_eq!(bench.dispatch.pool().count(), 0);
}

#[test]
fn a_cancelled_call_hears_nothing_more() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, false);
    bench.cancel(call);
    bench.cancel(call);
    assert_eq!(bench.answers(), [(0, DispatchError::Cancelled)]);
    assert_eq!(bench.abandoned(), [call]);
    assert_eq!(bench.answer(call, conn), None);
    bench.dispatch.stop_now(bench.now, &mut bench.effects);
    assert_eq!(bench.answers(), []);
    assert_eq!(bench.failures(server), 0);
}
