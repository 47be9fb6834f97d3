use super::*;

const MINUTE: Duration = Duration::from_mins(1);

fn piped() -> ServerPolicy {
    ServerPolicy { one_pipe: true, ..ServerPolicy::default() }
}

fn probes(bench: &mut Bench) -> Vec<ConnId> {
    bench.take(|effect| match effect {
        Effect::Probe { conn } => Some(*conn),
        _ => None,
    })
}

#[test]
fn a_deaf_connection_is_replaced_after_one_call_and_what_was_sent_is_not_sent_again() {
    let (mut bench, server, conn) = Bench::warm(piped());
    bench.sent_call(server, false);
    bench.pass(MINUTE / 2);
    let second = bench.sent_call(server, true);
    bench.pass(MINUTE / 2);
    assert!(matches!(bench.verdicts()[..], [DispatchError::TimedOut { sent: true, .. }]));
    assert_eq!(probes(&mut bench), [conn]);
    // Who comes now waits for the sign of life instead of for another minute.
    let third = bench.call(server).expect("it is let in");
    assert_eq!(bench.sent(), []);
    bench.pass(PROBE);
    let fresh = bench.connects();
    assert_eq!(fresh.len(), 1);
    assert_ne!(fresh[0], conn);
    assert_eq!(bench.closes(), [], "the second call has its own time");
    bench.ready(fresh[0]);
    assert_eq!(bench.sent(), [(fresh[0], third)]);
    assert!(bench.answer(third, fresh[0]).is_some());
    assert_eq!(bench.failures(server), 0, "the fresh one answered");
    assert!(bench.dispatch.is_on(second, conn));
    bench.pass(MINUTE / 2);
    assert!(matches!(bench.verdicts()[..], [DispatchError::TimedOut { sent: true, .. }]));
    assert_eq!(bench.failures(server), 0, "it is not held against the fresh one");
    assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
    assert_eq!(probes(&mut bench), [], "nobody asks one that was given up");
}

#[test]
fn one_that_is_only_slow_is_kept() {
    let (mut bench, server, conn) = Bench::warm(piped());
    bench.sent_call(server, false);
    bench.pass(MINUTE);
    assert_eq!(probes(&mut bench), [conn]);
    let waiting: Vec<CallId> = (0..3).filter_map(|_| bench.call(server)).collect();
    bench.pass(PROBE / 2);
    assert_eq!(bench.sent(), []);
    bench.dispatch.alive(conn, bench.now, &mut bench.effects);
    let sent: Vec<CallId> = bench.sent().into_iter().map(|(_, call)| call).collect();
    assert_eq!(sent, waiting);
    bench.pass(PROBE);
    assert_eq!((bench.connects(), bench.closes()), (vec![], vec![]));
    // Late as it is, an answer is a sign of life too.
    bench.pass(MINUTE.saturating_sub(PROBE));
    assert_eq!(probes(&mut bench), [conn]);
    assert!(bench.answer(sent[0], conn).is_none());
    bench.sent_call(server, false);
}

#[test]
fn a_server_elsewhere_is_not_asked() {
    let (mut bench, server, _) = Bench::warm(ServerPolicy::default());
    bench.sent_call(server, false);
    bench.pass(MINUTE);
    assert_eq!(probes(&mut bench), []);
}

#[test]
fn one_that_dies_or_is_changed_while_it_is_asked_leaves_nothing_behind() {
    for change in [false, true] {
        let (mut bench, server, conn) = Bench::warm(piped());
        bench.sent_call(server, false);
        bench.pass(MINUTE);
        assert_eq!(probes(&mut bench), [conn]);
        if change {
            bench.dispatch.change_server(server, piped(), bench.now, &mut bench.effects);
            assert_eq!(bench.closes(), []);
            bench.dispatch.alive(conn, bench.now, &mut bench.effects);
            assert_eq!(bench.closes(), [(conn, CloseMode::Graceful)]);
        } else {
            bench.crash(conn);
        }
        bench.gone(conn);
        // After a crash the same slot is used again at once.
        for again in bench.connects() {
            bench.ready(again);
        }
        bench.pass(PROBE * 2);
        bench.effects.clear();
        if change {
            bench.warm_up(server);
        }
        bench.sent_call(server, false);
    }
}
