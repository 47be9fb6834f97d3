//! Deadlines: of calls, of waiting, of probes; and that `wake` is early enough for all of them.

use super::*;

#[test]
fn a_call_that_is_not_answered_ends_on_time_and_is_called_off() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, true);
    bench.pass(Duration::from_millis(59_999));
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.answers(), [(0, DispatchError::TimedOut { after: TIMEOUT, sent: true })]);
    assert_eq!(bench.abandoned(), [call]);
    assert_eq!(bench.sent(), [], "a timeout is never sent again, harmless or not");
    assert_eq!(bench.failures(server), 1);
    assert_eq!(bench.answer(call, conn), None, "the answer comes too late");
    assert_eq!(bench.state(conn), Some(State::Idle));
    assert_eq!(bench.closes(), [], "one timeout does not cost a process its life");
}

#[test]
fn a_call_may_bring_its_own_timeout() {
    let (mut bench, server, _) = Bench::warm(ServerPolicy::default());
    bench.ask(server, CallOptions { timeout: Some(SECOND), ..CallOptions::default() });
    bench.pass(SECOND);
    assert_eq!(bench.verdicts(), [DispatchError::TimedOut { after: SECOND, sent: true }]);
}

#[test]
fn timeouts_without_end_do_not_overflow() {
    let (mut bench, server) =
        Bench::with(ServerPolicy { timeout: Duration::MAX, ..ServerPolicy::default() });
    let conn = bench.warm_up(server);
    let call = bench.sent_call(server, false);
    bench.dispatch.progressed(call, bench.now);
    bench.pass(Duration::from_secs(1 << 40));
    assert_eq!(bench.answers(), []);
    assert_eq!(bench.answer(call, conn), Some(0));
}

#[test]
fn progress_gives_a_call_its_time_again_up_to_ten_times() {
    let (mut bench, server, _) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, false);
    let mut ended = Vec::new();
    while ended.is_empty() {
        bench.dispatch.progressed(call, bench.now);
        bench.pass(SECOND);
        ended = bench.verdicts();
    }
    assert_eq!(ended, [DispatchError::TimedOut { after: TIMEOUT, sent: true }]);
    assert_eq!(bench.now, Moment::START + TIMEOUT * PROGRESS_CAP);
}

#[test]
fn progress_that_stops_gives_one_more_timeout() {
    let (mut bench, server, _) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, false);
    bench.pass(Duration::from_secs(45));
    bench.dispatch.progressed(call, bench.now);
    bench.pass(Duration::from_millis(59_999));
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.answers().len(), 1);
}

#[test]
fn the_clients_thinking_is_not_the_servers() {
    let (mut bench, server, _) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, false);
    bench.pass(Duration::from_secs(30));
    bench.dispatch.paused(call);
    bench.pass(Duration::from_secs(400));
    assert_eq!(bench.answers(), []);
    bench.dispatch.resumed(call, bench.now);
    bench.pass(Duration::from_millis(59_999));
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.answers().len(), 1);

    // A client that never answers is bounded by the cap.
    let call = bench.sent_call(server, false);
    bench.dispatch.paused(call);
    bench.pass((TIMEOUT * PROGRESS_CAP).saturating_sub(SECOND));
    assert_eq!(bench.answers(), []);
    bench.pass(SECOND);
    assert_eq!(bench.answers().len(), 1);
}

#[test]
fn waiting_behind_others_is_bounded_by_the_timeout_too() {
    let (mut bench, server, _) = Bench::warm(exclusive());
    bench.ask(
        server,
        CallOptions { timeout: Some(Duration::from_mins(10)), ..CallOptions::default() },
    );
    bench.call(server);
    bench.pass(TIMEOUT);
    assert_eq!(bench.answers(), [(1, DispatchError::TimedOut { after: TIMEOUT, sent: false })]);
    assert_eq!(bench.failures(server), 0, "it is the queue that was slow");
    assert_eq!(bench.abandoned(), [], "nothing was sent");
}

#[test]
fn a_tick_that_comes_late_does_not_send_what_is_overdue() {
    // The first frees the connection by timing out. The second is overdue as well, and has not been sent: it
    // must not go out only to be called off in the same breath.
    let (mut bench, server, _) = Bench::warm(exclusive());
    let first = bench.sent_call(server, false);
    bench.call(server);
    bench.wait(TIMEOUT * 2);
    bench.tick();
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.abandoned(), [first]);
    let answers = bench.answers();
    assert_eq!(answers.len(), 2);
    for (payload, error) in answers {
        let sent = payload == 0;
        assert!(
            matches!(error, DispatchError::TimedOut { sent: said, .. } if said == sent),
            "{payload} {error:?}"
        );
    }
}

#[test]
fn a_replay_whose_time_is_over_is_not_sent_when_a_late_tick_lets_it() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.sent_call(server, true);
    bench.crash(conn);
    bench.gone(conn);
    bench.wait(TIMEOUT);
    bench.ready(conn);
    assert_eq!(bench.sent(), []);
    assert!(matches!(&bench.verdicts()[..], [DispatchError::TimedOut { sent: true, .. }]));
    assert_eq!(bench.dispatch.open_calls(), 0);
}

#[test]
fn the_idle_sweep_is_exact_and_needs_no_other_event() {
    let (mut bench, _, conn) = Bench::warm(ServerPolicy::default());
    bench.pass(Duration::from_millis(299_999));
    assert_eq!(bench.closes(), []);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
    bench.gone(conn);
    assert_eq!(bench.dispatch.pool().count(), 0);
}

#[test]
fn an_overdue_deadline_is_not_forgotten_when_something_else_happens_first() {
    // Timers are never exact: another event may come between a deadline and its tick.
    let mut bench = Bench::new(pool_of(20));
    let (idle, starting) = (bench.add(), bench.add());
    let conn = bench.warm_up(idle);
    bench.pass(Duration::from_secs(299));
    bench.call(starting);
    let other = bench.connects()[0];
    bench.wait(Duration::from_millis(1_001));
    bench.connected(other);
    assert!(bench.dispatch.wake() <= bench.now, "the sweep is still due");
    bench.pass(Duration::ZERO);
    assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
}

#[test]
fn the_dispatch_asks_for_no_ticks_it_has_no_use_for() {
    // Each of these leaves a start behind that nobody waits for any more.
    let (mut changed, server) = Bench::with(ServerPolicy::default());
    changed.call(server);
    changed.dispatch.change_server(server, exclusive(), changed.now, &mut changed.effects);
    let (mut removed, server) = Bench::with(ServerPolicy::default());
    removed.call(server);
    removed.dispatch.remove_server(server, Removal::Finish, removed.now, &mut removed.effects);
    let (mut stopped, server) = Bench::with(ServerPolicy::default());
    stopped.call(server);
    stopped.dispatch.stop_now(stopped.now, &mut stopped.effects);
    for mut bench in [changed, removed, stopped] {
        bench.pass(Duration::from_hours(1));
    }
}

#[test]
fn a_probe_that_hangs_in_a_start_reopens_the_breaker_by_itself() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.trip(server, conn);
    bench.pass(COOLDOWN);
    bench.call(server).expect("the probe");
    let conn = bench.connects()[0];
    // The probe may take as long as an installation and a call.
    let mut since = Duration::ZERO;
    while since < Duration::from_secs(299) {
        bench.pass(SECOND);
        since += SECOND;
        bench.dispatch.life_sign(conn, bench.now);
    }
    bench.ready(conn);
    let probe = bench.sent()[0].1;
    while since < Duration::from_secs(359) {
        bench.dispatch.progressed(probe, bench.now);
        bench.pass(SECOND);
        since += SECOND;
        assert!(matches!(bench.phase(server), breaker::Phase::Probing { .. }), "{since:?}");
    }
    bench.pass(SECOND);
    assert_eq!(bench.phase(server), breaker::Phase::Open { until: bench.now + COOLDOWN });
    // Its late answer is an answer, but says nothing to the breaker any more.
    assert_eq!(bench.answer(probe, conn), Some(5));
    assert_eq!(bench.phase(server), breaker::Phase::Open { until: bench.now + COOLDOWN });
}

#[test]
fn those_who_wait_for_a_process_that_will_not_go_are_told_in_time() {
    let (mut bench, server, conn) = Bench::warm(exclusive());
    let patient = CallOptions { timeout: Some(Duration::from_mins(10)), ..CallOptions::default() };
    bench.ask(server, patient).expect("it is let in");
    bench.ask(server, patient).expect("it waits behind the first");
    bench.pass(Duration::from_secs(10));
    bench.crash(conn);
    assert_eq!(bench.answers().len(), 1);
    bench.pass(Duration::from_millis(59_999));
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    assert!(matches!(&bench.verdicts()[..], [DispatchError::TimedOut { sent: false, .. }]));
}

#[test]
fn those_who_wait_behind_a_listing_that_hangs_are_told_in_time() {
    let (mut bench, server) = Bench::with(exclusive());
    let hasty = CallOptions { timeout: Some(Duration::from_secs(5)), ..CallOptions::default() };
    bench.ask(server, hasty).expect("it is let in");
    let conn = bench.connects()[0];
    bench.pass(Duration::from_secs(31));
    assert_eq!(bench.answers(), [], "the start has its own deadline");
    bench.connected(conn);
    bench.pass(Duration::from_millis(4_999));
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    assert!(matches!(&bench.verdicts()[..], [DispatchError::TimedOut { sent: false, .. }]));
}
