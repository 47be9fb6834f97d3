//! Processes started again after a crash: for whom, when, and how many at once.

use super::*;

#[test]
fn the_first_crash_earns_a_restart_though_nobody_waits() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.sent_call(server, false);
    bench.crash(conn);
    bench.gone(conn);
    assert_eq!(bench.connects(), [conn]);
    bench.ready(conn);
    bench.sent_call(server, false);
    bench.crash(conn);
    bench.gone(conn);
    assert_eq!(bench.connects(), [], "the second waits for somebody to ask");
    assert_eq!(bench.dispatch.pool().count(), 0);
}

#[test]
fn a_vital_server_is_restarted_after_every_crash() {
    let (mut bench, server, conn) =
        Bench::warm(ServerPolicy { vital: true, ..ServerPolicy::default() });
    for _ in 0..4 {
        bench.sent_call(server, false);
        bench.crash(conn);
        bench.gone(conn);
        assert_eq!(bench.connects(), [conn]);
        bench.ready(conn);
    }
}

#[test]
fn a_retry_after_a_long_start_is_not_cut_short_by_the_time_already_waited() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    bench.call(server);
    let conn = bench.connects()[0];
    for _ in 0..9 {
        bench.pass(Duration::from_secs(10));
        bench.dispatch.life_sign(conn, bench.now);
    }
    bench.crash_unsent(conn);
    bench.pass(Duration::from_millis(1500));
    assert_eq!(bench.answers(), [], "its process takes a moment to go");
    bench.gone(conn);
    assert_eq!(bench.connects(), [conn]);
    bench.ready(conn);
    assert_eq!(bench.sent().len(), 1);
}

#[test]
fn reconnecting_servers_take_turns_like_all_others() {
    let mut bench = Bench::new(pool_of(20));
    let servers: Vec<ServerId> = (0..6).map(|_| bench.add()).collect();
    let conns: Vec<ConnId> = servers
        .iter()
        .map(|&server| {
            let conn = bench.warm_up(server);
            bench.sent_call(server, true);
            conn
        })
        .collect();
    for _ in 0..100 {
        bench.dispatch.budget.called(bench.now);
    }
    for &conn in &conns {
        bench.crash(conn);
    }
    for &conn in &conns {
        bench.gone(conn);
    }
    let first = bench.connects();
    assert_eq!(first.len(), pool::CONNECT_BURST);
    bench.ready(first[0]);
    assert_eq!(bench.connects().len(), 1, "one is up, the next may start");
    bench.pass(pool::CONNECT_BURST_WINDOW);
    assert_eq!(bench.connects().len(), 1);
}

#[test]
fn a_server_is_not_restarted_for_those_who_gave_up_waiting() {
    let (mut bench, server, conn) = Bench::warm(exclusive());
    bench.sent_call(server, false);
    bench.crash(conn);
    bench.gone(conn);
    bench.ready(conn);
    bench.effects.clear();
    // The last of three who wait leaves; the others are served.
    let calls: Vec<CallId> = (0..4).map(|_| bench.call(server).expect("it is let in")).collect();
    bench.cancel(calls[3]);
    bench.answer(calls[0], conn);
    bench.answer(calls[1], conn);
    bench.crash(conn);
    bench.gone(conn);
    assert_eq!(bench.connects(), [], "the second crash earns no restart, and nobody waits");
    assert_eq!(bench.dispatch.pool().count(), 0);
}

#[test]
fn a_restart_that_takes_its_turn_is_not_lost_with_a_caller_who_leaves() {
    let mut bench = Bench::new(pool_of(20));
    let servers: Vec<ServerId> = (0..5).map(|_| bench.add()).collect();
    let conn = bench.warm_up(servers[4]);
    bench.sent_call(servers[4], false);
    bench.crash(conn);
    for &server in &servers[..4] {
        bench.call(server);
    }
    bench.effects.clear();
    bench.gone(conn);
    assert_eq!(bench.connects(), [], "four are starting");
    let caller = bench.call(servers[4]).expect("it may wait");
    bench.cancel(caller);
    bench.pass(pool::CONNECT_BURST_WINDOW);
    assert_eq!(bench.connects().len(), 1, "the crash earned it");
}
