//! From the first call to a process that answers.

use super::*;

#[test]
fn ten_thousand_first_calls_start_one_process() {
    let (mut bench, server) =
        Bench::with(ServerPolicy { max_in_flight: 20_000, ..ServerPolicy::default() });
    for _ in 0..10_000 {
        assert!(bench.call(server).is_some());
    }
    let connects = bench.connects();
    assert_eq!(connects.len(), 1);
    bench.ready(connects[0]);
    let sent = bench.sent();
    assert_eq!(sent.len(), 10_000);
    let payloads: Vec<u32> =
        sent.iter().map(|(conn, call)| bench.answer(*call, *conn).expect("one each")).collect();
    assert!(payloads.is_sorted(), "in the order they came");
    assert_eq!(bench.dispatch.open_calls(), 0);
}

#[test]
fn a_start_that_fails_is_one_attempt_one_failure_and_the_same_verdict_for_everyone() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    for _ in 0..10_000 {
        bench.call(server);
    }
    let conn = bench.connects()[0];
    bench.lost(conn, no_such_command(), Delivery::NotSent);
    let answers = bench.answers();
    assert_eq!(answers.len(), 10_000);
    let first = &answers[0].1;
    assert!(matches!(first, DispatchError::Unavailable { failure, retry_after: Some(pause) }
            if **failure == no_such_command() && *pause == Duration::from_millis(250)));
    assert!(answers.iter().all(|(_, error)| error == first));
    assert_eq!(bench.failures(server), 1);
    assert_eq!(bench.closes(), [(conn, CloseMode::Immediate)]);
    bench.gone(conn);
    assert_eq!(bench.connects(), []);
    assert_eq!(bench.dispatch.pool().count(), 0);

    // Within the pause the failure is remembered and nothing is started.
    bench.wait(Duration::from_millis(100));
    assert_eq!(bench.call(server), None);
    assert!(matches!(
        &bench.verdicts()[..],
        [DispatchError::Paused { failure, retry_after: pause }]
            if failure.fact == no_such_command().fact && *pause == Duration::from_millis(150)
    ));
    assert_eq!(bench.connects(), []);
    bench.wait(Duration::from_millis(150));
    assert!(bench.call(server).is_some());
    assert_eq!(bench.connects().len(), 1);
}

#[test]
fn a_crash_in_the_handshake_is_retried_once_before_it_counts() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    for _ in 0..3 {
        bench.call(server);
    }
    let conn = bench.connects()[0];
    bench.crash_unsent(conn);
    assert_eq!(bench.answers(), [], "nobody is told yet");
    assert_eq!(bench.failures(server), 0);
    assert_eq!(bench.connects(), [], "nothing starts before the old process is gone");
    bench.gone(conn);
    assert_eq!(bench.connects(), [conn], "the retry keeps the slot, without a pause");
    bench.crash_unsent(conn);
    assert_eq!(bench.answers().len(), 3);
    assert_eq!(bench.failures(server), 1);
    bench.gone(conn);
    assert_eq!(bench.connects(), [], "exactly once");
}

#[test]
fn a_retry_that_works_is_no_failure_and_loses_nobody() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    for _ in 0..3 {
        bench.call(server);
    }
    let conn = bench.connects()[0];
    bench.crash_unsent(conn);
    bench.call(server);
    bench.gone(conn);
    bench.call(server);
    bench.ready(conn);
    assert_eq!(bench.sent().len(), 5, "those who came meanwhile included");
    assert_eq!(bench.failures(server), 0);
}

#[test]
fn the_free_retry_comes_back_after_ten_minutes_or_always_for_a_vital_server() {
    for (vital, pause, retried) in [
        (false, Duration::from_secs(599), false),
        (false, Duration::from_mins(10), true),
        (true, Duration::from_mins(1), true),
    ] {
        let (mut bench, server) = Bench::with(ServerPolicy { vital, ..ServerPolicy::default() });
        bench.call(server);
        let conn = bench.connects()[0];
        bench.crash_unsent(conn);
        bench.gone(conn);
        bench.connects();
        bench.crash_unsent(conn);
        bench.gone(conn);
        bench.effects.clear();

        bench.wait(pause);
        bench.call(server);
        let conn = bench.connects()[0];
        bench.crash_unsent(conn);
        bench.gone(conn);
        assert_eq!(bench.connects().len(), usize::from(retried), "{vital} {pause:?}");
    }
}

#[test]
fn a_refused_handshake_or_a_missing_command_is_not_retried() {
    let refused = Failure::new(Fact::HandshakeRefused { reason: "too old".into() });
    for failure in [refused, no_such_command()] {
        let (mut bench, server) = Bench::with(ServerPolicy::default());
        bench.call(server);
        let conn = bench.connects()[0];
        bench.lost(conn, failure, Delivery::NotSent);
        assert_eq!(bench.answers().len(), 1);
        bench.gone(conn);
        assert_eq!(bench.connects(), []);
        assert_eq!(bench.failures(server), 1);
    }
}

#[test]
fn credentials_are_not_the_servers_health() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    for _ in 0..3 {
        bench.call(server).expect("never refused by the breaker");
        let conn = bench.connects()[0];
        let unauthorized = Failure::new(Fact::HttpStatus { status: 401 });
        bench.lost(conn, unauthorized, Delivery::NotSent);
        bench.gone(conn);
        bench.effects.clear();
        bench.wait(COOLDOWN);
    }
    assert_eq!(bench.failures(server), 0);
}

#[test]
fn a_server_that_hangs_in_its_handshake_is_given_up_after_the_connect_timeout() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    bench.call(server);
    let conn = bench.connects()[0];
    bench.pass(Duration::from_millis(59_999));
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    assert!(matches!(
        &bench.verdicts()[..],
        [DispatchError::Unavailable { failure, .. }]
            if failure.fact == Fact::StartTimedOut { after: Duration::from_mins(1) }
    ));
    assert_eq!(bench.closes(), [(conn, CloseMode::Immediate)]);
    assert_eq!(bench.failures(server), 1);
}

#[test]
fn signs_of_life_stretch_a_start_up_to_the_install_timeout() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    bench.call(server);
    let conn = bench.connects()[0];
    for _ in 0..29 {
        bench.pass(Duration::from_secs(10));
        bench.dispatch.life_sign(conn, bench.now);
    }
    assert_eq!(bench.answers(), [], "290 s in and still installing");
    bench.pass(Duration::from_millis(9_999));
    bench.dispatch.life_sign(conn, bench.now);
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.answers().len(), 1, "300 s is the end of it");

    // Without a further sign the grace ends after thirty seconds.
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    bench.call(server);
    let conn = bench.connects()[0];
    bench.pass(Duration::from_secs(50));
    bench.dispatch.life_sign(conn, bench.now);
    bench.pass(Duration::from_millis(29_999));
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    assert_eq!(bench.answers().len(), 1);
}

#[test]
fn the_caller_who_started_it_may_leave_the_others_still_get_their_server() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    let leader = bench.call(server).expect("it is let in");
    bench.call(server);
    let conn = bench.connects()[0];
    bench.cancel(leader);
    assert_eq!(bench.answers(), [(0, DispatchError::Cancelled)]);
    bench.ready(conn);
    assert_eq!(bench.sent().len(), 1);
    assert_eq!(bench.closes(), []);
}

#[test]
fn a_start_for_a_listing_is_retried_once_and_counts_like_any_other() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    for _ in 0..3 {
        bench.dispatch.wake_server(server, 0, bench.now, &mut bench.effects).expect("it may start");
    }
    let connects = bench.connects();
    assert_eq!(connects.len(), 1);
    bench.crash_unsent(connects[0]);
    bench.gone(connects[0]);
    assert_eq!(bench.failures(server), 0, "the first crash earns a retry");
    let again = bench.connects();
    assert_eq!(again, connects, "a call may wait for the list");
    bench.crash_unsent(again[0]);
    bench.gone(again[0]);
    assert_eq!(bench.failures(server), 1);
    assert_eq!(bench.connects(), []);
    let refused = bench.dispatch.wake_server(server, 0, bench.now, &mut bench.effects);
    assert!(matches!(refused, Err(DispatchError::Paused { .. })), "within the pause");
    bench.wait(SECOND);
    assert_eq!(bench.dispatch.wake_server(server, 0, bench.now, &mut bench.effects), Ok(()));
}

#[test]
fn five_starts_in_thirty_seconds_are_a_crash_loop() {
    // It lists its tools, then dies at its first call: every start works, so there is no pause.
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    let mut starts = Vec::new();
    let mut loops = 0;
    for step in 0..600 {
        if let Some(call) = bench.call(server) {
            let mut ready = bench.connects();
            while let Some(conn) = ready.pop() {
                starts.push(step);
                bench.ready(conn);
                if bench.dispatch.is_on(call, conn) {
                    // Its death is noticed while idle, as far as the breaker can tell.
                    bench.answer(call, conn);
                }
                bench.crash(conn);
                bench.gone(conn);
                ready.extend(bench.connects());
            }
        }
        loops += bench
            .verdicts()
            .iter()
            .filter(|v| matches!(v, DispatchError::CrashLoop { .. }))
            .count();
        bench.effects.clear();
        bench.pass(Duration::from_millis(100));
    }
    assert_eq!(starts.len(), 10, "two windows of five: {starts:?}");
    assert_eq!(starts[..5], [0, 1, 2, 3, 4]);
    assert_eq!(starts[5], 300, "as soon as the first has left the window");
    assert!(loops > 500, "everyone else is told at once");
}

#[test]
fn a_crash_loop_is_reported_with_its_last_crash_and_when_to_come_back() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    for _ in 0..5 {
        let conn = bench.warm_up(server);
        bench.crash(conn);
        bench.gone(conn);
        bench.wait(SECOND);
    }
    assert_eq!(bench.call(server), None);
    assert_eq!(
        bench.verdicts(),
        [DispatchError::CrashLoop {
            failure: Some(Arc::new(exited())),
            retry_after: Duration::from_secs(25)
        }]
    );
}
