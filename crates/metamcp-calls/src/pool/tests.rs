use super::*;

const A: ServerId = ServerId(0);

fn limits(size: usize) -> Limits {
    Limits {
        size,
        reserve: 0,
        reserve_after: Duration::from_secs(5),
        minimum: 0,
        idle_timeout: Duration::from_mins(5),
        per_owner: 0,
    }
}

fn at(ms: u64) -> Moment {
    Moment::millis(ms)
}

/// A ledger and the orders it gave, driven by one-line calls.
struct Bench {
    pool: Pool,
    orders: Vec<Order>,
}

impl Bench {
    fn new(limits: Limits) -> Bench {
        Bench { pool: Pool::new(limits), orders: Vec::new() }
    }
    fn want(&mut self, server: u32, ms: u64) {
        self.want_kept(server, Keep::UntilTimeout, ms);
    }
    fn want_kept(&mut self, server: u32, keep: Keep, ms: u64) {
        self.pool.want(ServerId(server), 0, Terms { keep, ..Terms::default() }, at(ms));
        self.pump(ms);
    }
    fn pump(&mut self, ms: u64) {
        self.pool.pump(at(ms), &mut self.orders);
    }
    /// Connections ordered since last asked.
    fn connects(&mut self) -> Vec<(u32, ConnId)> {
        let taken = std::mem::take(&mut self.orders);
        let (connects, rest): (Vec<_>, Vec<_>) =
            taken.into_iter().partition(|order| matches!(order, Order::Connect { .. }));
        self.orders = rest;
        connects
            .into_iter()
            .map(|order| match order {
                Order::Connect { conn, server } | Order::Close { conn, server } => (server.0, conn),
            })
            .collect()
    }
    fn closes(&mut self) -> Vec<u32> {
        let taken = std::mem::take(&mut self.orders);
        taken
            .into_iter()
            .filter_map(|order| match order {
                Order::Close { server, .. } => Some(server.0),
                Order::Connect { .. } => None,
            })
            .collect()
    }
    /// Connects a server and leaves it idle.
    fn idle(&mut self, server: u32, ms: u64) -> ConnId {
        self.want(server, ms);
        let conn = self.connects()[0].1;
        assert!(self.pool.connected(conn));
        self.pool.finish(conn, at(ms), &mut self.orders);
        conn
    }
}

#[test]
fn a_full_pool_evicts_the_least_recently_used_and_waits_for_its_slot() {
    let mut bench = Bench::new(limits(2));
    let oldest = bench.idle(0, 0);
    bench.idle(1, 10_000);
    bench.want(2, 20_000);
    assert_eq!(bench.connects(), [], "the slot is not free before the process is gone");
    assert_eq!(bench.closes(), [0]);
    bench.pool.gone(oldest);
    bench.pump(20_100);
    assert_eq!(bench.connects().iter().map(|c| c.0).collect::<Vec<_>>(), [2]);
    assert_eq!(bench.pool.count(), 2);
}

#[test]
fn reuse_moves_a_connection_to_the_head() {
    let mut bench = Bench::new(limits(2));
    let first = bench.idle(0, 0);
    bench.idle(1, 1000);
    assert!(bench.pool.begin(first));
    bench.pool.finish(first, at(2000), &mut bench.orders);
    bench.want(2, 3000);
    assert_eq!(bench.closes(), [1]);
}

#[test]
fn nobody_idle_means_waiting_and_the_first_to_go_idle_makes_room() {
    let mut bench = Bench::new(limits(1));
    bench.want(0, 0);
    let busy = bench.connects()[0].1;
    bench.pool.connected(busy);
    bench.want(1, 1000);
    bench.want(2, 1001);
    assert_eq!(bench.orders, []);
    bench.pool.finish(busy, at(2000), &mut bench.orders);
    assert_eq!(bench.closes(), [0]);
    bench.pool.gone(busy);
    bench.pump(2001);
    assert_eq!(bench.connects()[0].0, 1, "first come, first served");
}

#[test]
fn the_reserve_opens_for_the_head_only_after_its_wait() {
    let mut bench = Bench::new(Limits { reserve: 2, ..limits(1) });
    bench.want(0, 0);
    let busy = bench.connects()[0].1;
    bench.pool.connected(busy);
    bench.want(1, 1000);
    bench.want(2, 1000);
    bench.pump(5999);
    assert_eq!(bench.connects(), []);
    assert_eq!(bench.pool.deadline(at(5999)), at(6000));
    bench.pump(6000);
    assert_eq!(bench.connects().len(), 1, "one per evaluation");
    bench.pump(6000);
    assert_eq!(bench.connects().len(), 1);
    assert_eq!(bench.pool.count(), 3);
}

#[test]
fn above_the_size_the_first_to_go_idle_is_closed() {
    let mut bench = Bench::new(Limits { reserve: 1, ..limits(1) });
    bench.want(0, 0);
    let busy = bench.connects()[0].1;
    bench.pool.connected(busy);
    bench.want(1, 0);
    bench.pump(5000);
    let extra = bench.connects()[0].1;
    bench.pool.connected(extra);
    bench.pool.finish(extra, at(6000), &mut bench.orders);
    assert_eq!(bench.closes(), [1]);
}

#[test]
fn a_zero_reserve_timeout_turns_the_reserve_off() {
    let mut bench = Bench::new(Limits { reserve: 5, reserve_after: Duration::ZERO, ..limits(1) });
    bench.want(0, 0);
    bench.connects();
    bench.want(1, 0);
    bench.pump(3_600_000);
    assert_eq!(bench.connects(), []);
}

#[test]
fn the_minimum_guards_the_sweep_but_not_a_swap() {
    let mut bench = Bench::new(Limits { minimum: 1, ..limits(2) });
    bench.idle(0, 0);
    bench.idle(1, 1000);
    bench.pool.sweep(at(1_000_000), &mut bench.orders);
    assert_eq!(bench.closes(), [0], "the older goes, the minimum stays");

    let mut bench = Bench::new(Limits { minimum: 1, ..limits(1) });
    bench.idle(0, 0);
    bench.want(1, 1000);
    assert_eq!(
        bench.closes(),
        [0],
        "a swap keeps the count, so a full pool never locks a server out"
    );
}

#[test]
fn idle_deadlines_are_exact_and_per_server() {
    let mut bench = Bench::new(limits(3));
    bench.idle(0, 0);
    assert_eq!(bench.pool.deadline(at(0)), at(300_000));
    bench.pool.want(ServerId(1), 0, Terms { keep: Keep::Alive, ..Terms::default() }, at(0));
    bench.pump(0);
    let kept = bench.connects()[0].1;
    bench.pool.connected(kept);
    bench.pool.finish(kept, at(0), &mut bench.orders);
    let terms =
        Terms { keep: Keep::Alive, idle_timeout: Some(Duration::from_secs(10)), owner: None };
    bench.pool.want(ServerId(2), 0, terms, at(0));
    bench.pump(0);
    let own = bench.connects()[0].1;
    bench.pool.connected(own);
    bench.pool.finish(own, at(0), &mut bench.orders);
    assert_eq!(bench.pool.deadline(at(0)), at(10_000));
    bench.pool.sweep(at(9_999), &mut bench.orders);
    assert!(bench.closes().is_empty());
    bench.pool.sweep(at(10_000_000), &mut bench.orders);
    assert_eq!(bench.closes(), [0, 2], "keep-alive without a timeout of its own stays");
}

#[test]
fn keep_alive_is_not_evicted_under_pressure() {
    let mut bench = Bench::new(limits(1));
    bench.want_kept(0, Keep::Alive, 0);
    let kept = bench.connects()[0].1;
    bench.pool.connected(kept);
    bench.pool.finish(kept, at(0), &mut bench.orders);
    bench.want(1, 1000);
    assert_eq!(bench.orders, []);
}

#[test]
fn ephemeral_closes_when_idle() {
    let mut bench = Bench::new(limits(5));
    bench.want_kept(0, Keep::Ephemeral, 0);
    let conn = bench.connects()[0].1;
    bench.pool.connected(conn);
    bench.pool.finish(conn, at(1), &mut bench.orders);
    assert_eq!(bench.closes(), [0]);
}

#[test]
fn starts_are_staggered_but_a_hung_start_holds_nobody_up() {
    let mut bench = Bench::new(limits(20));
    for server in 0..6 {
        bench.want(server, 0);
    }
    assert_eq!(bench.connects().len(), CONNECT_BURST);
    assert_eq!(bench.pool.deadline(at(0)), Moment::START + CONNECT_BURST_WINDOW);
    bench.pump(750);
    assert_eq!(bench.connects().len(), 2);
}

#[test]
fn a_broken_connection_keeps_its_slot_until_it_reconnects_or_is_gone() {
    let mut bench = Bench::new(limits(1));
    bench.want(0, 0);
    let conn = bench.connects()[0].1;
    bench.pool.connected(conn);
    bench.pool.broke(conn, at(5));
    assert_eq!(bench.pool.slot(conn).map(|slot| slot.state), Some(State::Failed));
    bench.want(1, 10);
    assert_eq!(bench.connects(), []);
    assert!(bench.pool.reconnect(conn, at(20)));
    assert_eq!(bench.pool.slot(conn).map(|slot| slot.state), Some(State::Connecting));
    bench.pool.broke(conn, at(25));
    bench.pool.gone(conn);
    bench.pump(30);
    assert_eq!(bench.connects()[0].0, 1);
}

#[test]
fn a_thousand_waiters_are_granted_in_the_order_they_came() {
    let mut bench = Bench::new(limits(1));
    bench.want(A.0, 0);
    let mut holder = bench.connects()[0].1;
    for server in 1..=1000 {
        bench.want(server, u64::from(server));
    }
    for expected in 1..=1000 {
        bench.pool.connected(holder);
        bench.pool.finish(holder, at(2000), &mut bench.orders);
        bench.pool.gone(holder);
        bench.orders.clear();
        bench.pump(2000);
        let granted = bench.connects();
        assert_eq!(granted[0].0, expected);
        holder = granted[0].1;
    }
}

fn owned_by(owner: u64) -> Terms {
    Terms { owner: Some(owner), ..Terms::default() }
}

#[test]
fn an_owner_at_its_share_pays_with_its_own_idle_connection() {
    let mut bench = Bench::new(Limits { per_owner: 2, ..limits(4) });
    bench.idle(0, 0);
    let mut conns = Vec::new();
    for server in [1, 2] {
        bench.pool.want(ServerId(server), 1, owned_by(1), at(u64::from(server)));
        bench.pump(10);
        conns.push(bench.connects()[0].1);
        bench.pool.connected(conns[conns.len() - 1]);
    }
    bench.pool.want(ServerId(3), 1, owned_by(1), at(20));
    bench.pump(20);
    assert_eq!(bench.connects(), [], "there is a free slot, but not for this owner");
    assert!(bench.closes().is_empty(), "it has nothing idle, and nobody else pays for it");
    bench.want(4, 21);
    assert_eq!(bench.connects().len(), 1, "it stands in nobody's way");
    bench.pool.finish(conns[1], at(30), &mut bench.orders);
    assert_eq!(bench.closes(), [2], "its own, though another's was not used for longer");
    bench.pump(31);
    assert_eq!(bench.connects(), [], "a dying process still counts");
    bench.pool.gone(conns[1]);
    bench.pump(32);
    assert_eq!(bench.connects().len(), 1);
}

#[test]
fn a_free_slot_is_one_at_nobodys_cost() {
    let mut bench = Bench::new(Limits { per_owner: 1, ..limits(2) });
    assert!(bench.pool.has_free_slot(None) && bench.pool.has_free_slot(Some(1)));
    bench.pool.want(ServerId(1), 1, owned_by(1), at(0));
    assert!(!bench.pool.has_free_slot(Some(1)), "one that waits counts already");
    bench.pump(0);
    assert!(!bench.pool.has_free_slot(Some(1)));
    assert!(bench.pool.has_free_slot(None) && bench.pool.has_free_slot(Some(2)));
    bench.idle(2, 1);
    assert!(!bench.pool.has_free_slot(None), "somebody's idle one is not free");
}
