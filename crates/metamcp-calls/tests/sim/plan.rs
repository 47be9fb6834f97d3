//! What a seed determines before a run begins: the gateway's settings, its servers and their faults, the callers, and
//! the operator's actions.

use std::time::Duration;

use metamcp_calls::dispatch::{Limits, ServerPolicy};
use metamcp_calls::pool::{self, Keep};
use metamcp_types::moment::Moment;

use crate::rng::Rng;

/// Entities with a random generator of their own.
pub(crate) const PLAN: u64 = 1;
pub(crate) const SERVER: u64 = 2;
pub(crate) const CALLER: u64 = 3;
pub(crate) const PROCESS: u64 = 4;
pub(crate) const CALL: u64 = 5;

/// How a run is shrunk; the whole run by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Number of callers that arrive at all.
    pub(crate) callers: usize,
    /// Number of operator actions that happen at all.
    pub(crate) actions: usize,
}

impl Cut {
    pub(crate) const WHOLE: Cut = Cut { callers: usize::MAX, actions: usize::MAX };
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) limits: Limits,
    pub(crate) servers: Vec<ServerPlan>,
    pub(crate) callers: Vec<CallerPlan>,
    pub(crate) actions: Vec<(Moment, Action)>,
    /// From here on no more faults are injected.
    pub(crate) calm_at: Moment,
    pub(crate) driver: Driver,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerPlan {
    pub(crate) policy: ServerPolicy,
    pub(crate) behaviour: Behaviour,
}

/// Probabilities of a server's faults, in thousandths, and its speed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    pub(crate) start_fails: u32,
    pub(crate) start_slow: u32,
    pub(crate) hung: u32,
    pub(crate) dies_in_call: u32,
    pub(crate) dies_some_time: u32,
    pub(crate) odd_call: u32,
    pub(crate) refused: u32,
    pub(crate) slow_death: u32,
    pub(crate) start: (u64, u64),
    pub(crate) service: (u64, u64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CallerPlan {
    pub(crate) at: Moment,
    pub(crate) server: usize,
    /// Its session.
    pub(crate) lane: u64,
    pub(crate) harmless: bool,
    pub(crate) timeout: Option<Duration>,
    /// After how long it cancels the call.
    pub(crate) patience: Option<Duration>,
}

/// An action of the operator, or of the engine on its own.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Add(ServerPlan),
    Change(usize, ServerPolicy),
    Remove(usize),
    ListAgain(usize),
    WakeServer(usize, u64),
    /// The machine is suspended: the clock jumps and nothing happens meanwhile.
    Jump(Duration),
    /// The gateway process is stopped for this long.
    Stopped(Duration),
    Jitter(u32),
    Stop,
    StopNow,
}

/// How the engine schedules ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Driver {
    /// Ticks come late by up to this much; other events may come first.
    pub(crate) late: Duration,
    /// Whether a tick comes before an event of the same moment.
    pub(crate) tick_first: bool,
    /// How often it ticks without a request, in thousandths of the events.
    pub(crate) nosy: u32,
}

impl Plan {
    pub(crate) fn new(seed: u64, cut: Cut) -> Plan {
        let mut rng = Rng::of(seed, PLAN, 0);
        let defaults = rng.chance(100);
        let size = rng.pick(&[1, 1, 2, 2, 2, 3, 4, 6]);
        let pool = pool::Limits {
            size,
            reserve: rng.pick(&[0, 0, 1, 2]),
            reserve_after: rng.pick(&[Duration::ZERO, rng.clone().span(10, 1000)]),
            minimum: rng.size(0, size),
            idle_timeout: rng.span(10, 4000),
            per_owner: rng.pick(&[0, 1, 2, (size * 3 / 4).max(1)]),
        };
        let limits = if defaults {
            Limits {
                pool: pool::Limits {
                    reserve_after: Duration::from_secs(5),
                    idle_timeout: Duration::from_mins(5),
                    ..pool
                },
                breaker_threshold: 5,
                breaker_cooldown: Duration::from_secs(30),
                pool_wait: Duration::from_secs(30),
                connect_timeout: Duration::from_mins(1),
                install_timeout: Duration::from_mins(5),
            }
        } else {
            let connect_timeout = rng.span(50, 4000);
            Limits {
                pool,
                breaker_threshold: rng.pick(&[1, 2, 3, 5]),
                breaker_cooldown: rng.span(20, 8000),
                pool_wait: rng.span(20, 4000),
                connect_timeout,
                install_timeout: connect_timeout * rng.pick(&[1, 2, 5]),
            }
        };
        let crowd = rng.chance(10);
        let count = if crowd { rng.size(30, 200) } else { rng.size(1, 3 + 2 * size) };
        let vice = rng.pick(&[0, 300, 1000, 1000, 1000, 3000]);
        let servers: Vec<ServerPlan> = (0..count)
            .map(|n| server_plan(&mut Rng::of(seed, SERVER, n as u64), vice, defaults))
            .collect();
        let people = if crowd { rng.size(100, 400) } else { rng.span(2, 200).as_millis() as usize };
        // From everybody at once to an occasional call.
        let gap = rng.span(1, if defaults { 4000 } else { 400 });
        let length = (gap.as_millis() as u64 * people as u64).max(200);
        let calm_at = Moment::millis(length);
        let burst = rng.chance(300);
        let callers = (0..people.min(cut.callers))
            .map(|n| caller_plan(&mut Rng::of(seed, CALLER, n as u64), count, length, burst))
            .collect();
        let mut actions = actions(&mut rng, count, length, vice, defaults);
        actions.truncate(cut.actions);
        let driver = Driver {
            late: rng.pick(&[Duration::ZERO, Duration::ZERO, rng.clone().span(1, 200)]),
            tick_first: rng.chance(500),
            nosy: rng.pick(&[0, 50, 1000]),
        };
        Plan { seed, limits, servers, callers, actions, calm_at, driver }
    }
}

fn server_plan(rng: &mut Rng, vice: u32, defaults: bool) -> ServerPlan {
    // Servers differ: most have one fault or none, some have all.
    let mut often = |per_mille: u32| {
        if rng.chance(400) { per_mille * vice / 1000 } else { per_mille * vice / 10_000 }
    };
    let behaviour = Behaviour {
        start_fails: often(300),
        start_slow: often(300),
        hung: often(150),
        dies_in_call: often(150),
        dies_some_time: often(300),
        odd_call: often(300),
        refused: often(50),
        slow_death: often(300),
        start: (0, 0),
        service: (0, 0),
    };
    let behaviour = Behaviour {
        start: rng.pick(&[(1, 5), (10, 500), (200, 1500)]),
        service: rng.pick(&[(1, 5), (1, 100), (50, 2000)]),
        ..behaviour
    };
    ServerPlan { policy: policy(rng, defaults), behaviour }
}

fn policy(rng: &mut Rng, defaults: bool) -> ServerPolicy {
    let own = rng.span(10, 4000);
    ServerPolicy {
        timeout: if defaults { Duration::from_mins(1) } else { rng.span(20, 4000) },
        max_in_flight: rng.pick(&[1, 1, 2, 3, 64]),
        vital: rng.chance(200),
        keep: rng.pick(&[
            Keep::UntilTimeout,
            Keep::UntilTimeout,
            Keep::UntilTimeout,
            Keep::Alive,
            Keep::Ephemeral,
        ]),
        idle_timeout: rng.chance(200).then_some(own),
        one_pipe: rng.chance(700),
        owner: rng.chance(300).then(|| rng.below(4)),
        instances: 1,
    }
}

fn caller_plan(rng: &mut Rng, servers: usize, length: u64, burst: bool) -> CallerPlan {
    // In a burst most come in one of three moments; otherwise they are spread over the run.
    let at =
        if burst && rng.chance(800) { length * rng.between(0, 2) / 3 } else { rng.below(length) };
    // Some servers are much more popular than others.
    let server = rng.size(0, servers).min(rng.size(0, servers - 1));
    CallerPlan {
        at: Moment::millis(at),
        server,
        harmless: rng.chance(400),
        timeout: rng.chance(100).then(|| rng.span(10, 3000)),
        patience: rng.chance(100).then(|| rng.span(1, 2000)),
        // One session makes most of the calls.
        lane: rng.below(5).saturating_sub(rng.below(3)),
    }
}

fn actions(
    rng: &mut Rng,
    servers: usize,
    length: u64,
    vice: u32,
    defaults: bool,
) -> Vec<(Moment, Action)> {
    let storm = rng.chance(150);
    let count = if storm { 60 } else { rng.pick(&[0, 3, 8, 25]) };
    let mut list: Vec<(Moment, Action)> = (0..count)
        .map(|_| {
            let at = Moment::millis(rng.below(length));
            // Occasionally one that was added meanwhile.
            let which = rng.size(0, servers);
            if storm && rng.chance(800) {
                // The configuration of the popular ones changes repeatedly.
                let which = which.min(rng.size(0, servers)) / 2;
                return (at, Action::Change(which, policy(rng, defaults)));
            }
            let action = match rng.below(20) {
                0 => Action::Add(server_plan(rng, vice, defaults)),
                1..=5 => Action::Change(which, policy(rng, defaults)),
                6 => Action::Remove(which),
                7..=12 => Action::ListAgain(which),
                13..=16 => Action::WakeServer(which, rng.below(4)),
                17 => Action::Jump(rng.span(10, 30_000)),
                18 => Action::Stopped(rng.span(500, 200_000)),
                _ => Action::Jitter(u32::try_from(rng.below(1001)).unwrap_or(0)),
            };
            (at, action)
        })
        .collect();
    if rng.chance(150) {
        let at = rng.below(length);
        let stop = if rng.chance(500) { Action::Stop } else { Action::StopNow };
        list.push((Moment::millis(at), stop));
    }
    list
}
