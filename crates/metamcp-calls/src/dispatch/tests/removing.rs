//! Servers of a session that is gone: nothing of them stays, and their places are used again.

use super::*;

impl Bench {
    fn remove(&mut self, server: ServerId, removal: Removal) {
        self.dispatch.remove_server(server, removal, self.now, &mut self.effects);
    }
}

#[test]
fn at_once_gives_up_calls_and_closes_in_a_hurry() {
    let (mut bench, server, conn) = Bench::warm(ServerPolicy { max_in_flight: 2, ..exclusive() });
    let sent = [bench.sent_call(server, false), bench.sent_call(server, true)];
    let waiting = bench.call(server).expect("let in");
    bench.remove(server, Removal::AtOnce);
    assert_eq!(bench.abandoned(), sent);
    assert_eq!(
        bench.answers(),
        [(2, DispatchError::Removed), (0, DispatchError::Cancelled), (1, DispatchError::Cancelled)]
    );
    assert_eq!(bench.closes(), [(conn, CloseMode::Brisk)]);
    assert_eq!(bench.dispatch.open_calls(), 0);
    for call in sent.into_iter().chain([waiting]) {
        assert_eq!(bench.answer(call, conn), None);
    }
    bench.effects.clear();
    bench.crash(conn);
    bench.gone(conn);
    assert_eq!(bench.effects, []);
    assert_eq!(bench.dispatch.pool().count(), 0);
    assert_eq!(bench.dispatch.wake(), Moment::NEVER);
}

#[test]
fn at_once_hurries_whatever_is_left_of_a_server() {
    let (mut bench, server, old) = Bench::warm(exclusive());
    bench.sent_call(server, false);
    let change = |bench: &mut Bench| {
        bench.dispatch.change_server(server, exclusive(), bench.now, &mut bench.effects);
    };
    change(&mut bench);
    assert_eq!(bench.closes(), [], "the old one finishes its call");
    let next = bench.warm_up(server);
    change(&mut bench);
    assert_eq!(bench.closes(), [(next, CloseMode::Graceful)]);
    bench.call(server);
    let starting = bench.connects()[0];
    bench.remove(server, Removal::Finish);
    assert_eq!(bench.closes(), [(starting, CloseMode::Graceful)]);
    bench.remove(server, Removal::AtOnce);
    let mut closes = bench.closes();
    closes.sort_by_key(|close| close.0);
    let mut expected = [old, next, starting].map(|conn| (conn, CloseMode::Brisk));
    expected.sort_by_key(|close| close.0);
    assert_eq!(closes, expected);
}

#[test]
fn one_removed_at_once_that_comes_back_is_closed_as_usual() {
    let (mut bench, server, conn) = Bench::warm(ephemeral());
    bench.remove(server, Removal::AtOnce);
    bench.gone(conn);
    bench.closes();
    bench.dispatch.change_server(server, exclusive(), bench.now, &mut bench.effects);
    assert_eq!(bench.dispatch.reclaim(), []);
    let conn = bench.warm_up(server);
    bench.remove(server, Removal::Finish);
    assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
}

#[test]
fn a_place_is_taken_back_when_nothing_is_left_and_the_old_id_finds_nothing() {
    let (mut bench, server, conn) = Bench::warm(exclusive());
    assert_eq!(bench.dispatch.reclaim(), []);
    bench.sent_call(server, false);
    bench.remove(server, Removal::Finish);
    assert_eq!(bench.dispatch.reclaim(), [], "a call is still under way");
    bench.remove(server, Removal::AtOnce);
    assert_eq!(bench.dispatch.reclaim(), [], "a dying process still belongs to it");
    bench.gone(conn);
    assert_eq!(bench.dispatch.reclaim(), [server]);
    assert_eq!(bench.dispatch.reclaim(), []);
    assert_eq!(bench.dispatch.view(server), None);
    let next = bench.dispatch.add_server(exclusive());
    assert_eq!((next.place(), next == server), (server.place(), false));

    // Whatever is late for the old one does not touch the new one.
    let conn = bench.warm_up(next);
    bench.effects.clear();
    assert_eq!(bench.call(server), None);
    assert_eq!(bench.verdicts(), [DispatchError::Removed]);
    let woken = bench.dispatch.wake_server(server, 0, bench.now, &mut bench.effects);
    assert_eq!(woken, Err(DispatchError::Removed));
    assert_eq!(bench.dispatch.why_not(server, bench.now), Some(DispatchError::Removed));
    assert_eq!(bench.dispatch.load(server, bench.now), None);
    assert_eq!(bench.dispatch.view(server), None);
    bench.dispatch.change_server(server, ephemeral(), bench.now, &mut bench.effects);
    bench.remove(server, Removal::AtOnce);
    assert_eq!(bench.effects, []);
    assert!(bench.dispatch.pool().slot(conn).is_some_and(|slot| slot.state == State::Idle));
}

#[test]
fn a_hundred_thousand_sessions_do_not_make_the_table_grow() {
    let mut bench = Bench::new(pool_of(20));
    let shared = bench.add();
    let mut given = std::collections::HashSet::new();
    let mut live = std::collections::VecDeque::new();
    for _ in 0..100_000 {
        let server = bench.add();
        assert!(given.insert(server), "{server:?} was given before");
        live.push_back(server);
        if live.len() > 50 {
            let oldest = live.pop_front().expect("there are fifty");
            bench.remove(oldest, Removal::AtOnce);
            assert_eq!(bench.dispatch.reclaim(), [oldest]);
        }
    }
    let highest = given.iter().map(|server| server.place()).max();
    assert!(highest.is_some_and(|place| place < 100), "the highest place is {highest:?}");
    assert!(bench.dispatch.view(shared).is_some());
}

/// After four thousand servers a place is retired, so that no id is given twice.
#[test]
fn a_place_that_was_used_too_often_is_retired() {
    let mut bench = Bench::new(pool_of(1));
    let mut places = std::collections::BTreeMap::new();
    for _ in 0..5000 {
        let server = bench.add();
        *places.entry(server.place()).or_insert(0) += 1;
        bench.remove(server, Removal::AtOnce);
        bench.dispatch.reclaim();
    }
    assert_eq!(places.into_iter().collect::<Vec<_>>(), [(0, 4096), (1, 904)]);
}
