//! Servers that are added, changed and removed while calls are under way.

use super::*;

fn change(bench: &mut Bench, server: ServerId, policy: ServerPolicy) {
    bench.dispatch.change_server(server, policy, bench.now, &mut bench.effects);
}

fn remove(bench: &mut Bench, server: ServerId) {
    bench.dispatch.remove_server(server, Removal::Finish, bench.now, &mut bench.effects);
}

#[test]
fn after_a_change_old_calls_finish_where_they_are_and_new_ones_get_a_new_connection() {
    let (mut bench, server, old) = Bench::warm(ServerPolicy::default());
    let before = bench.sent_call(server, false);
    bench.effects.clear();
    change(&mut bench, server, exclusive());
    assert_eq!(bench.effects, [], "nothing is interrupted");
    let after = bench.call(server).expect("it is let in");
    let new = bench.connects()[0];
    assert_ne!(new, old);
    bench.ready(new);
    assert_eq!(bench.sent(), [(new, after)]);
    assert_eq!(bench.answer(before, old), Some(0));
    assert_eq!(bench.closes(), [(old, CloseMode::Graceful)], "the old one goes when it is done");
    bench.gone(old);
    assert_eq!(bench.answer(after, new), Some(1));
    assert_eq!(bench.dispatch.pool().count(), 1);
}

#[test]
fn a_restart_is_a_change_to_the_same_and_brings_no_removed_server_back() {
    let restart = |bench: &mut Bench, server| {
        bench.dispatch.restart_server(server, bench.now, &mut bench.effects)
    };
    let (mut bench, server, old) = Bench::warm(ServerPolicy::default());
    let before = bench.sent_call(server, false);
    bench.effects.clear();
    assert!(restart(&mut bench, server));
    assert_eq!(bench.effects, [], "nothing is interrupted");
    let after = bench.call(server).expect("it is let in");
    let new = bench.connects()[0];
    bench.ready(new);
    assert_eq!(bench.sent(), [(new, after)]);
    assert_eq!(bench.answer(before, old), Some(0));
    assert_eq!(bench.closes(), [(old, CloseMode::Graceful)]);
    remove(&mut bench, server);
    assert!(!restart(&mut bench, server));
    assert_eq!(bench.call(server), None);
}

#[test]
fn a_change_closes_an_idle_connection_and_starts_nothing() {
    let (mut bench, server, old) = Bench::warm(ServerPolicy::default());
    change(&mut bench, server, exclusive());
    assert_eq!(bench.closes(), [(old, CloseMode::Graceful)]);
    assert_eq!(bench.connects(), []);
}

#[test]
fn a_change_while_starting_starts_the_new_configuration_for_those_who_wait() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    let call = bench.call(server).expect("it is let in");
    let old = bench.connects()[0];
    change(&mut bench, server, exclusive());
    assert_eq!(bench.closes(), [(old, CloseMode::Graceful)]);
    let new = bench.connects();
    assert_eq!(new.len(), 1);
    // The old process may still say that it is ready, or die: nobody listens.
    bench.connected(old);
    bench.crash_unsent(old);
    bench.gone(old);
    assert_eq!(bench.answers(), []);
    bench.ready(new[0]);
    assert_eq!(bench.sent(), [(new[0], call)]);
}

#[test]
fn a_change_forgets_what_was_learnt_and_what_is_still_out_teaches_nothing() {
    let mut limits = pool_of(20);
    limits.breaker_threshold = 1;
    let mut bench = Bench::new(limits);
    let server = bench.add();
    let old = bench.warm_up(server);
    bench.sent_call(server, false);
    change(&mut bench, server, exclusive());
    bench.crash(old);
    assert_eq!(bench.answers().len(), 1);
    assert_eq!(bench.failures(server), 0, "it was the old configuration that crashed");
    assert_eq!(bench.dispatch.view(server).and_then(|view| view.last_failure), None);

    let new = bench.warm_up(server);
    bench.sent_call(server, false);
    bench.crash(new);
    assert!(bench.is_open(server));
    change(&mut bench, server, exclusive());
    assert!(bench.call(server).is_some(), "the new configuration gets its chance at once");
}

#[test]
fn what_waits_during_a_change_is_judged_by_the_new_breaker() {
    let (mut bench, server) = Bench::with(ServerPolicy::default());
    bench.call(server);
    bench.connects();
    change(&mut bench, server, exclusive());
    let new = bench.connects()[0];
    bench.lost(new, no_such_command(), Delivery::NotSent);
    assert_eq!(bench.answers().len(), 1);
    assert_eq!(bench.failures(server), 1);
}

#[test]
fn a_call_that_breaks_off_on_the_old_connection_is_sent_again_on_the_new_one() {
    let (mut bench, server, old) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, true);
    change(&mut bench, server, ServerPolicy::default());
    let new = bench.warm_up(server);
    assert_eq!(bench.state(new), Some(State::Idle));
    bench.crash(old);
    assert_eq!(bench.sent(), [(new, call)], "at once: it is warm");
    bench.gone(old);
    assert_eq!(bench.answer(call, new), Some(0));

    // The same without a new connection yet: one is opened.
    let (mut bench, server, old) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, true);
    change(&mut bench, server, ServerPolicy::default());
    bench.crash(old);
    let new = bench.connects()[0];
    assert_ne!(new, old);
    bench.ready(new);
    assert_eq!(bench.sent(), [(new, call)]);
}

#[test]
fn a_change_of_a_server_in_the_line_takes_effect_when_its_turn_comes() {
    let mut bench = Bench::new(pool_of(1));
    let (busy, server) = (bench.add(), bench.add());
    let conn = bench.warm_up(busy);
    let held = bench.sent_call(busy, false);
    let call = bench.call(server).expect("it may wait");
    change(&mut bench, server, ephemeral());
    bench.answer(held, conn);
    bench.closes();
    bench.gone(conn);
    let new = bench.connects()[0];
    bench.ready(new);
    bench.answer(call, new);
    assert_eq!(bench.closes(), [(new, CloseMode::Graceful)], "ephemeral since the change");
}

#[test]
fn a_change_does_not_cost_those_who_wait_their_time() {
    // Forty seconds into a slow start, with a pool of one, the configuration changes: the old process has to go
    // before the new one starts. Nobody waited for a slot until now.
    let mut bench = Bench::new(pool_of(1));
    let server = bench.add();
    bench.call(server);
    let old = bench.connects()[0];
    bench.pass(Duration::from_secs(40));
    change(&mut bench, server, exclusive());
    bench.pass(Duration::from_millis(1550));
    assert_eq!(bench.answers(), []);
    bench.gone(old);
    let new = bench.connects()[0];
    bench.ready(new);
    assert_eq!(bench.sent().len(), 1);
}

#[test]
fn the_wait_for_a_slot_after_a_change_is_bounded_by_itself() {
    let mut bench = Bench::new(Limits { connect_timeout: TIMEOUT * 5, ..pool_of(1) });
    let server = bench.add();
    bench.call(server);
    bench.pass(Duration::from_secs(40));
    change(&mut bench, server, exclusive());
    bench.pass(Duration::from_millis(29_999));
    assert_eq!(bench.answers(), []);
    bench.pass(Duration::from_millis(1));
    assert!(matches!(&bench.verdicts()[..], [DispatchError::PoolExhausted { .. }]));
}

#[test]
fn a_removed_server_refuses_new_and_waiting_calls_and_finishes_the_others() {
    let (mut bench, server, conn) = Bench::warm(exclusive());
    let sent = bench.sent_call(server, false);
    bench.call(server).expect("it waits behind the first");
    remove(&mut bench, server);
    assert_eq!(bench.answers(), [(1, DispatchError::Removed)]);
    assert_eq!(bench.call(server), None);
    assert_eq!(bench.verdicts(), [DispatchError::Removed]);
    let refused = bench.dispatch.wake_server(server, 0, bench.now, &mut bench.effects);
    assert_eq!(refused, Err(DispatchError::Removed));
    assert_eq!(bench.answer(sent, conn), Some(0));
    assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
    bench.gone(conn);
    bench.pass(Duration::from_hours(1));
    assert_eq!(bench.connects(), []);
    assert_eq!(bench.dispatch.pool().count(), 0);
}

#[test]
fn a_removed_server_is_not_started_again_for_a_call_that_broke_off() {
    for delivery in [Delivery::NotSent, Delivery::Sent] {
        let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
        bench.sent_call(server, true);
        remove(&mut bench, server);
        bench.lost(conn, exited(), delivery);
        bench.gone(conn);
        assert_eq!(bench.connects(), []);
        let verdicts = bench.verdicts();
        assert!(
            match delivery {
                Delivery::NotSent => matches!(verdicts[..], [DispatchError::Unavailable { .. }]),
                Delivery::Sent => matches!(verdicts[..], [DispatchError::OutcomeUnknown { .. }]),
                Delivery::Refused => matches!(verdicts[..], [DispatchError::Refused { .. }]),
            },
            "{verdicts:?}"
        );
    }
}

#[test]
fn a_call_that_may_have_run_is_never_told_that_it_did_not() {
    // It ran, the process died, and while the next one starts its server is removed.
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    bench.sent_call(server, true);
    bench.crash(conn);
    bench.gone(conn);
    bench.call(server);
    remove(&mut bench, server);
    let verdicts = bench.verdicts();
    assert!(
        matches!(&verdicts[..], [DispatchError::OutcomeUnknown { failure }, DispatchError::Removed]
            if **failure == exited()),
        "{verdicts:?}"
    );
}

#[test]
fn a_removed_server_leaves_the_line() {
    let mut bench = Bench::new(pool_of(1));
    let (busy, server) = (bench.add(), bench.add());
    bench.warm_up(busy);
    bench.sent_call(busy, false);
    bench.call(server);
    remove(&mut bench, server);
    assert_eq!(bench.verdicts(), [DispatchError::Removed]);
    assert_eq!(bench.dispatch.pool().line().len(), 0);
}

#[test]
fn unchanged_servers_do_not_notice() {
    let mut bench = Bench::new(pool_of(20));
    let (changed, removed, idle, busy, starting) =
        (bench.add(), bench.add(), bench.add(), bench.add(), bench.add());
    bench.warm_up(changed);
    bench.warm_up(removed);
    let idle_conn = bench.warm_up(idle);
    let conn = bench.warm_up(busy);
    let call = bench.sent_call(busy, false);
    bench.call(starting);
    let new = bench.connects()[0];
    bench.effects.clear();
    for _ in 0..1000 {
        change(&mut bench, changed, exclusive());
    }
    remove(&mut bench, removed);
    bench.add();
    let closed: Vec<ServerId> = bench
        .closes()
        .iter()
        .filter_map(|(conn, _)| bench.dispatch.pool().slot(*conn).map(|slot| slot.server))
        .collect();
    assert_eq!(closed, [changed, removed]);
    assert_eq!(bench.effects, []);
    assert_eq!(bench.state(idle_conn), Some(State::Idle));
    assert_eq!(bench.state(new), Some(State::Connecting));
    assert_eq!(bench.answer(call, conn), Some(0));
}

#[test]
fn nor_is_one_that_is_refused_by_its_connection_when_it_is_sent_again() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy::default());
    let call = bench.sent_call(server, true);
    bench.crash(conn);
    bench.gone(conn);
    bench.ready(conn);
    assert_eq!(bench.sent(), [(conn, call)]);
    bench.dispatch.refuse(call, DispatchError::Overloaded, bench.now, &mut bench.effects);
    let verdicts = bench.verdicts();
    assert!(matches!(&verdicts[..], [DispatchError::OutcomeUnknown { .. }]), "{verdicts:?}");

    let call = bench.sent_call(server, true);
    bench.dispatch.refuse(call, DispatchError::Overloaded, bench.now, &mut bench.effects);
    assert_eq!(bench.verdicts(), [DispatchError::Overloaded], "this one was never sent");
}
