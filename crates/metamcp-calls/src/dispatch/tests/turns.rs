//! Sessions that wait are served in turns.

use super::*;

#[test]
fn a_servers_queue_serves_sessions_in_turns() {
    let (mut bench, server, conn) = Bench::warm(exclusive());
    let running = bench.sent_call(server, false);
    let flood: Vec<CallId> = (0..100).filter_map(|_| bench.call_of(1, server)).collect();
    let (first, second) = (bench.call_of(2, server), bench.call_of(2, server));
    let other = bench.call_of(3, server);
    let mut order = Vec::new();
    let mut last = running;
    for _ in 0..6 {
        bench.answer(last, conn);
        last = bench.sent()[0].1;
        order.push(last);
    }
    assert_eq!(
        order.into_iter().map(Some).collect::<Vec<_>>(),
        [Some(flood[0]), first, other, Some(flood[1]), second, Some(flood[2])]
    );
}

#[test]
fn what_is_sent_again_goes_before_all_others() {
    let (mut bench, server, conn) = Bench::warm(exclusive());
    bench.sent_call(server, true);
    let other = bench.call_of(2, server);
    bench.crash(conn);
    bench.gone(conn);
    bench.ready(conn);
    let again = bench.sent();
    assert_eq!(bench.dispatch.attempts(again[0].1), 2);
    bench.answer(again[0].1, conn);
    assert_eq!(bench.sent().first().map(|sent| Some(sent.1)), Some(other));
}

/// One session wants fifty servers, another one: that is the second to get a slot.
#[test]
fn the_pool_serves_sessions_in_turns() {
    let mut bench = Bench::new(pool_of(1));
    let servers: Vec<ServerId> = (0..52).map(|_| bench.add()).collect();
    let mut conn = bench.warm_up(servers[0]);
    bench.sent_call(servers[0], false);
    for &server in &servers[1..51] {
        bench.call_of(1, server);
    }
    bench.call_of(2, servers[51]);
    let mut served = Vec::new();
    for _ in 0..3 {
        for call in bench.dispatch.calls_on(conn) {
            bench.answer(call, conn);
        }
        assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
        bench.gone(conn);
        conn = bench.connects()[0];
        served.push(bench.dispatch.pool().slot(conn).map(|slot| slot.server));
        bench.ready(conn);
    }
    assert_eq!(served, [Some(servers[1]), Some(servers[51]), Some(servers[2])]);
}

/// A server that several sessions wait for is started in the turn of whoever comes first.
#[test]
fn a_shared_server_starts_in_the_first_turn_of_those_who_want_it() {
    let mut bench = Bench::new(pool_of(1));
    let servers: Vec<ServerId> = (0..5).map(|_| bench.add()).collect();
    bench.warm_up(servers[0]);
    bench.sent_call(servers[0], false);
    for &server in &servers[1..] {
        bench.call_of(1, server);
    }
    let call = bench.call_of(2, servers[4]).expect("let in");
    let line = |bench: &Bench| bench.dispatch.pool().line();
    assert_eq!(line(&bench), [servers[1], servers[4], servers[2], servers[3]]);
    bench.cancel(call);
    assert_eq!(line(&bench), servers[1..], "the other still waits for it");
    assert!(bench.call_of(2, servers[4]).is_some());
    assert_eq!(line(&bench), [servers[1], servers[4], servers[2], servers[3]]);
}

#[test]
fn the_load_of_a_server_says_where_a_call_fares_best() {
    let (mut bench, server) = Bench::with(exclusive());
    let load = |bench: &Bench| bench.dispatch.load(server, bench.now).expect("it is there");
    let down = Load { is_up: false, in_flight: 0, queued: 0, max_in_flight: 1, admits: true };
    assert_eq!(load(&bench), down);
    let first = bench.call(server).expect("let in");
    assert_eq!(load(&bench), Load { is_up: true, queued: 1, ..down });
    let conn = bench.connects()[0];
    bench.ready(conn);
    bench.call(server);
    assert_eq!(load(&bench), Load { is_up: true, in_flight: 1, queued: 1, ..down });
    bench.answer(first, conn);
    let second = bench.sent().last().expect("sent").1;
    bench.answer(second, conn);
    assert_eq!(load(&bench), Load { is_up: true, ..down });
    for _ in 0..5 {
        bench.sent_call(server, false);
        bench.pass(TIMEOUT);
    }
    assert!(bench.is_open(server));
    assert!(!load(&bench).admits);
    bench.pass(COOLDOWN);
    assert!(load(&bench).admits, "it is time for a probe");
    bench.dispatch.remove_server(server, Removal::Finish, bench.now, &mut bench.effects);
    assert_eq!(bench.dispatch.load(server, bench.now), None);
}
