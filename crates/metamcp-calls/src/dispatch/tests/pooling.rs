//! Pool slots: which call gets one, which waits, which fails.

use super::*;

/// Serves whatever is asked for at once, counting processes as the system would.
struct Machine {
    alive: Vec<ConnId>,
    most: usize,
    answered: Vec<u32>,
}

impl Machine {
    fn new() -> Machine {
        Machine { alive: Vec::new(), most: 0, answered: Vec::new() }
    }

    fn serve(&mut self, bench: &mut Bench) {
        loop {
            let effects = std::mem::take(&mut bench.effects);
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Connect { conn, .. } => {
                        self.alive.push(conn);
                        self.most = self.most.max(self.alive.len());
                        bench.connected(conn);
                    }
                    Effect::List { conn, .. } => bench.listed(conn),
                    Effect::Send { conn, call } => {
                        self.answered.push(bench.answer(call, conn).expect("it is waited for"));
                    }
                    Effect::Close { conn, .. } => {
                        self.alive.retain(|other| *other != conn);
                        bench.gone(conn);
                    }
                    Effect::Abandon { .. } | Effect::Probe { .. } => {}
                    Effect::Answer { error, .. } => panic!("{error:?}"),
                }
            }
        }
    }
}

#[test]
fn two_hundred_servers_share_a_pool_of_two() {
    let mut bench = Bench::new(pool_of(2));
    let servers: Vec<ServerId> = (0..200).map(|_| bench.add()).collect();
    for &server in &servers {
        bench.call(server).expect("it may wait");
    }
    let mut machine = Machine::new();
    machine.serve(&mut bench);
    assert_eq!(machine.most, 2);
    assert_eq!(machine.answered, (0..200).collect::<Vec<_>>(), "in the order they came");
    assert_eq!(bench.dispatch.open_calls(), 0);
    assert_eq!(bench.dispatch.pool().count(), 2);
}

#[test]
fn a_thousand_who_wait_for_one_slot_are_served_in_order() {
    let mut bench = Bench::new(pool_of(1));
    let holder = bench.add();
    let conn = bench.warm_up(holder);
    let held = bench.sent_call(holder, false);
    for _ in 0..1000 {
        let server = bench.add();
        bench.call(server).expect("it may wait");
        bench.pass(Duration::from_millis(1));
    }
    assert_eq!(bench.connects(), []);
    bench.effects.clear();
    bench.answer(held, conn);
    let mut machine = Machine::new();
    machine.alive.push(conn);
    machine.serve(&mut bench);
    assert_eq!(machine.most, 1);
    assert_eq!(machine.answered, (1..=1000).collect::<Vec<_>>());
}

#[test]
fn a_slot_is_free_only_when_its_process_is_gone() {
    let mut bench = Bench::new(pool_of(1));
    let (idle, next) = (bench.add(), bench.add());
    let conn = bench.warm_up(idle);
    bench.call(next);
    assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
    bench.pass(Duration::from_secs(10));
    assert_eq!(bench.connects(), [], "it takes ten seconds to die");
    bench.gone(conn);
    assert_eq!(bench.connects().len(), 1);
}

#[test]
fn a_full_pool_does_not_delay_warm_servers() {
    let mut bench = Bench::new(pool_of(1));
    let (warm, cold) = (bench.add(), bench.add());
    bench.warm_up(warm);
    bench.sent_call(warm, false);
    bench.call(cold);
    bench.sent_call(warm, false);
}

#[test]
fn waiting_for_a_slot_ends_after_its_time_and_names_who_has_them() {
    let mut bench = Bench::new(pool_of(2));
    let servers: Vec<ServerId> = (0..3).map(|_| bench.add()).collect();
    for &server in &servers[..2] {
        bench.warm_up(server);
        bench.sent_call(server, false);
    }
    bench.wait(SECOND);
    bench.call(servers[2]);
    bench.pass(Duration::from_millis(29_999));
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    let waited = Duration::from_secs(30);
    let holders = vec![servers[0], servers[1]];
    assert_eq!(bench.verdicts(), [DispatchError::PoolExhausted { waited, holders }]);
    assert_eq!(bench.failures(servers[2]), 0);
    assert_eq!(bench.dispatch.pool().line().len(), 0, "nobody wants that slot any more");
}

#[test]
fn who_stops_waiting_loses_only_his_own_place() {
    let mut bench = Bench::new(pool_of(1));
    let servers: Vec<ServerId> = (0..4).map(|_| bench.add()).collect();
    let conn = bench.warm_up(servers[0]);
    let held = bench.sent_call(servers[0], false);
    let waiting: Vec<CallId> =
        servers[1..].iter().map(|&server| bench.call(server).expect("it may wait")).collect();
    bench.cancel(waiting[0]);
    let line: Vec<ServerId> = bench.dispatch.pool().line();
    assert_eq!(line, servers[2..]);
    bench.effects.clear();
    bench.answer(held, conn);
    let mut machine = Machine::new();
    machine.alive.push(conn);
    machine.serve(&mut bench);
    assert_eq!(machine.answered, [2, 3]);
}

#[test]
fn the_reserve_opens_for_whoever_waited_long_enough() {
    let mut limits = pool_of(1);
    limits.pool.reserve = 1;
    let mut bench = Bench::new(limits);
    let servers: Vec<ServerId> = (0..3).map(|_| bench.add()).collect();
    bench.warm_up(servers[0]);
    bench.sent_call(servers[0], false);
    bench.call(servers[1]);
    bench.call(servers[2]);
    bench.pass(Duration::from_millis(4_999));
    assert_eq!(bench.connects(), []);
    bench.pass(Duration::from_millis(1));
    let extra = bench.connects();
    assert_eq!(extra.len(), 1);
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.connects(), [], "there is only one of them");
    assert_eq!(bench.dispatch.pool().count(), 2);
    // The reserve is not for keeps: above the size, the first to go idle is closed.
    bench.ready(extra[0]);
    let (conn, call) = bench.sent()[0];
    bench.answer(call, conn);
    assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
}

#[test]
fn more_than_the_line_holds_are_told_so_at_once() {
    let mut bench = Bench::new(pool_of(1));
    let (busy, wanted) = (bench.add(), bench.add());
    bench.warm_up(busy);
    bench.sent_call(busy, false);
    let mut waiting = 0;
    while bench.call(wanted).is_some() {
        waiting += 1;
    }
    assert_eq!(waiting, SLOT_QUEUE / 4 * 3);
    assert_eq!(bench.verdicts(), [DispatchError::Overloaded]);
    let other = bench.add();
    assert_eq!(bench.call(other), None, "the bound is over all servers");
    assert!(bench.call_of(1, other).is_some(), "there is room for another session");
    assert_eq!(bench.failures(wanted), 0);
    bench.sent_call(busy, false);
}

#[test]
fn more_than_a_servers_queue_holds_are_told_so_at_once() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    let mut calls = Vec::new();
    while let Some(call) = bench.call(server) {
        calls.push(call);
    }
    assert_eq!(calls.len(), SERVER_QUEUE / 4 * 3);
    assert_eq!(bench.verdicts(), [DispatchError::Overloaded]);
    // Those who gave up make room.
    bench.cancel(calls[calls.len() - 1]);
    assert!(bench.call(server).is_some());
    assert_eq!(bench.call(server), None);
    assert!(bench.call_of(1, server).is_some(), "there is room for another session");
    assert_eq!(bench.dispatch.view(server).map(|view| view.queued), Some(calls.len() + 1));
}

#[test]
fn the_count_of_those_who_wait_is_right_however_they_leave() {
    let (mut bench, server, conn) = Bench::warm(exclusive());
    let mut calls: Vec<CallId> = (0..10).map(|_| bench.call(server).expect("let in")).collect();
    let mut waiting = 9;
    let queued = |bench: &Bench| bench.dispatch.view(server).map(|view| view.queued);
    for cancelled in [1, 2, 5] {
        bench.cancel(calls[cancelled]);
        waiting -= 1;
        assert_eq!(queued(&bench), Some(waiting));
    }
    while let Some(at) = calls.iter().position(|&call| bench.dispatch.is_on(call, conn)) {
        bench.answer(calls.remove(at), conn);
        waiting = waiting.saturating_sub(1);
        assert_eq!(queued(&bench), Some(waiting));
    }
    assert_eq!(bench.dispatch.open_calls(), 0);
}

#[test]
fn a_server_that_cannot_do_two_things_at_once_is_never_asked_to() {
    let (mut bench, server) = Bench::with(exclusive());
    let calls: Vec<CallId> = (0..5).map(|_| bench.call(server).expect("it is let in")).collect();
    let conn = bench.connects()[0];
    bench.connected(conn);
    assert_eq!(bench.sent(), [], "its listing is under way");
    bench.listed(conn);
    for &call in &calls {
        assert_eq!(bench.sent(), [(conn, call)], "one at a time, in order");
        assert_eq!(bench.state(conn).map(State::in_flight), Some(1));
        bench.answer(call, conn);
    }
    assert_eq!(bench.state(conn), Some(State::Idle));
}

#[test]
fn a_listing_of_a_server_that_is_full_waits_for_its_turn() {
    let (mut bench, server, conn) = Bench::warm(exclusive());
    let first = bench.sent_call(server, false);
    let second = bench.call(server).expect("it is let in");
    bench.effects.clear();
    assert!(!bench.dispatch.list_again(conn), "not now");
    assert!(!bench.dispatch.list_again(conn), "one is enough");
    bench.answer(first, conn);
    assert_eq!(bench.lists(), [conn], "it is asked for as soon as there is room");
    assert_eq!(bench.sent(), []);
    bench.listed(conn);
    assert_eq!(bench.sent(), [(conn, second)]);
    bench.answer(second, conn);
    assert_eq!(bench.lists(), []);
    assert_eq!(bench.state(conn), Some(State::Idle));
}

#[test]
fn a_connection_is_not_idle_while_its_tools_are_listed() {
    let mut bench = Bench::new(pool_of(1));
    let (listing, other) = (bench.add(), bench.add());
    let conn = bench.warm_up(listing);
    assert!(bench.dispatch.list_again(conn));
    bench.call(other);
    assert_eq!(bench.closes(), []);
    bench.listed(conn);
    assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
}

#[test]
fn an_ephemeral_server_is_closed_after_its_last_waiting_call_not_before() {
    for max_in_flight in [1, 2] {
        let (mut bench, server) = Bench::with(ServerPolicy { max_in_flight, ..ephemeral() });
        let calls: Vec<CallId> = (0..5).map(|_| bench.call(server).expect("let in")).collect();
        let conn = bench.connects()[0];
        bench.ready(conn);
        for &call in &calls {
            assert_eq!(bench.closes(), []);
            assert!(bench.answer(call, conn).is_some());
        }
        assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
        // Whoever comes while it closes gets a new one.
        bench.call(server).expect("it is let in");
        assert_ne!(bench.connects()[0], conn);
    }
}

#[test]
fn keep_alive_servers_are_not_evicted() {
    let mut bench = Bench::new(pool_of(1));
    let kept =
        bench.dispatch.add_server(ServerPolicy { keep: Keep::Alive, ..ServerPolicy::default() });
    bench.warm_up(kept);
    let other = bench.add();
    bench.call(other);
    bench.pass(Duration::from_hours(1));
    assert_eq!(bench.closes(), []);
    assert!(matches!(&bench.verdicts()[..], [DispatchError::PoolExhausted { .. }]));
}

#[test]
fn the_next_may_start_as_soon_as_one_is_up() {
    let mut bench = Bench::new(pool_of(20));
    for _ in 0..6 {
        let server = bench.add();
        bench.call(server);
    }
    let starting = bench.connects();
    assert_eq!(starting.len(), pool::CONNECT_BURST);
    bench.pass(Duration::from_millis(10));
    bench.connected(starting[0]);
    assert_eq!(bench.connects().len(), 1, "one is up");
    bench.lost(starting[1], no_such_command(), Delivery::NotSent);
    assert_eq!(bench.connects().len(), 1, "one has given up");
}

#[test]
fn a_restart_that_keeps_its_slot_makes_others_find_theirs() {
    // While a broken connection was on its way out, its slot was promised to the line.
    let mut bench = Bench::new(pool_of(2));
    let (crashing, idle, waiting) = (bench.add(), bench.add(), bench.add());
    let broken = bench.warm_up(crashing);
    let evicted = bench.warm_up(idle);
    bench.sent_call(crashing, true);
    bench.crash(broken);
    bench.closes();
    bench.call(waiting);
    bench.gone(broken);
    assert_eq!(bench.connects(), [broken]);
    assert_eq!(bench.closes(), [(evicted, CloseMode::Graceful)]);
    bench.gone(evicted);
    assert_eq!(bench.connects().len(), 1);
}

#[test]
fn a_server_nobody_wants_any_more_leaves_the_line_though_it_once_crashed() {
    let mut bench = Bench::new(pool_of(1));
    let (server, busy) = (bench.add(), bench.add());
    let conn = bench.warm_up(server);
    let call = bench.sent_call(server, true);
    bench.crash(conn);
    bench.gone(conn);
    bench.ready(conn);
    bench.answer(call, conn);
    bench.call(busy);
    bench.gone(conn);
    bench.effects.clear();
    let waiting = bench.call(server).expect("it may wait");
    bench.cancel(waiting);
    assert_eq!(bench.dispatch.pool().line().len(), 0);
}
