//! Invariants that hold after every step, and those that hold once the faults have stopped.

use std::collections::BTreeSet;
use std::mem::discriminant;
use std::time::Duration;

use metamcp_calls::breaker::Phase;
use metamcp_calls::lifecycle::State;
use metamcp_calls::pool::{self, Keep};
use metamcp_calls::state_change::StateChange;
use metamcp_types::moment::Moment;

use crate::books::{Check, End, Seen, Server, Stage, Step, ensure};
use crate::plan::CallerPlan;
use crate::world::World;

impl World {
    /// A complete run: the phase with faults, the calm phase after it, and shutdown.
    pub(crate) fn run(&mut self) -> Check {
        self.drive(None)?;
        self.check_calm()?;
        if !self.stopping {
            self.check_recovery()?;
            self.check_sweep()?;
        }
        self.check_end()
    }

    // -- after every step --

    pub(crate) fn check(&mut self, step: Step) -> Check {
        self.check_line(step)?;
        self.check_slots()?;
        self.check_changes()?;
        for server in 0..self.servers.len() {
            self.check_server(step, server)?;
        }
        self.seen.count = self.dispatch.pool().count();
        self.check_wake(step)?;
        self.wake_before = self.dispatch.wake();
        ensure!(
            self.dispatch.open_calls() == self.open.len(),
            "{} calls are open, there should be {}",
            self.dispatch.open_calls(),
            self.open.len()
        );
        match step {
            Step::Arrive(number) | Step::Cancel(number) | Step::Refuse(number) => {
                let caller = &self.callers[number as usize];
                let over = !matches!(step, Step::Arrive(_)) || caller.call.is_none();
                ensure!(caller.ended.is_some() == over, "after {step:?}: {caller:?}");
            }
            Step::Change(server) | Step::Remove(server) | Step::RemoveAtOnce(server) => {
                let others = |end: &&(u32, End)| self.callers[end.0 as usize].server != server;
                ensure!(self.ended.iter().find(others).is_none(), "a reload hurt another server");
            }
            Step::Nothing | Step::Nosy => {
                ensure!(
                    self.granted.is_empty() && self.ended.is_empty(),
                    "something came of nothing"
                );
            }
            Step::Lost { .. } if self.stopping => {
                let again = |who: &&u32| self.callers[**who as usize].ended.is_none();
                let kept = self.lost_calls.iter().find(again);
                ensure!(kept.is_none(), "caller {kept:?} is to be sent again after the end");
            }
            _ => {}
        }
        Ok(())
    }

    /// The line is served within the limits, the lanes in turns.
    fn check_line(&mut self, step: Step) -> Check {
        self.check_lanes()?;
        let pool = self.dispatch.pool();
        let limits = pool.limits();
        let before = std::mem::take(&mut self.seen.line);
        let mut count = self.seen.count;
        let grants = self.granted.iter().filter(|grant| !grant.1).count();
        if let Step::Gone(_) = step
            && grants == self.granted.len()
        {
            count -= 1;
        }
        for _ in 0..grants {
            if count >= limits.size {
                let long =
                    |place: &(pool::ServerId, Moment)| self.now >= place.1 + limits.reserve_after;
                ensure!(
                    limits.reserve_after > Duration::ZERO && before.iter().any(long),
                    "the reserve was opened, and nobody waited long: {before:?}"
                );
            }
            count += 1;
        }
        ensure!(
            count <= limits.size + limits.reserve && count == pool.count(),
            "{count} slots are taken, the ledger says {}",
            pool.count()
        );
        for (server, since) in &before {
            let is_granted = self.granted.iter().any(|grant| grant.0 == *server);
            let still = pool.waits_since(*server);
            ensure!(
                is_granted || still.is_none_or(|still| still >= *since),
                "{server:?} waits since {still:?}, not {since:?}"
            );
        }
        let now: Vec<pool::ServerId> = pool.line();
        let held_back = !now.is_empty() && count < limits.size;
        let (long, reserve) = (now.len() >= 3, grants > 0 && count > limits.size);
        let at_share = |server: &pool::ServerId| {
            let owner = self.servers[self.numbers[server]].plan.policy.owner;
            let held = self.alive.iter().filter(|&&one| owner == self.processes[one].policy.owner);
            owner.is_some() && limits.per_owner > 0 && held.count() >= limits.per_owner
        };
        let at_share = grants > 0 && now.iter().any(at_share);
        let mut line = before;
        line.clear();
        line.extend(now.iter().filter_map(|&server| Some((server, pool.waits_since(server)?))));
        self.seen.line = line;
        for (seen, sight) in [
            (held_back, "start held back by the burst"),
            (long, "line of three or more"),
            (reserve, "reserve opened"),
            (at_share, "served past one whose owner has its share"),
        ] {
            if seen {
                self.sights.add(sight);
            }
        }
        Ok(())
    }

    /// The lanes of the calls that wait for a server, and of those who had it woken.
    fn lanes_of(&self, server: usize) -> BTreeSet<u64> {
        let waiting = self.open.iter().map(|&number| &self.callers[number as usize]);
        let mut lanes: BTreeSet<u64> = waiting
            .filter(|caller| caller.server == server && caller.on.is_none())
            .map(|caller| caller.lane)
            .collect();
        lanes.extend(&self.servers[server].woken_by);
        // A restart after a crash is its owner's, or nobody's in particular.
        lanes.insert(self.servers[server].plan.policy.owner.unwrap_or(0));
        lanes
    }

    /// A lane with a call that waits for a slot is passed over at most once by each other lane.
    fn check_lanes(&mut self) -> Check {
        let grants: Vec<usize> = self
            .granted
            .iter()
            .filter(|grant| !grant.1)
            .map(|grant| self.numbers[&grant.0])
            .collect();
        // Whoever gives up leaves the line before it is served, and comes again at the end.
        let gave_up = self.ended.iter().map(|end| &self.callers[end.0 as usize]);
        for caller in gave_up.filter(|caller| caller.sends == 0) {
            self.seen.passed.remove(&caller.lane);
        }
        for server in grants {
            let served = self.served_lanes(server);
            for (lane, (times, others)) in &mut self.seen.passed {
                if served.contains(lane) {
                    *times = 0;
                    others.clear();
                    continue;
                }
                *times += 1;
                others.extend(&served);
                others.remove(lane);
                ensure!(
                    *times <= others.len(),
                    "lane {lane} was passed over {times} times, by {others:?}"
                );
            }
            let line = &self.seen.line;
            let since =
                line.iter().find(|place| place.0 == self.servers[server].id).map(|place| place.1);
            if since.is_some_and(|since| line.iter().any(|other| other.1 < since)) {
                self.sights.add("a later lane served before an earlier one");
            }
            self.servers[server].woken_by.clear();
        }
        let line: Vec<usize> =
            self.dispatch.pool().waiting().map(|server| self.numbers[&server]).collect();
        let callers = self.open.iter().map(|&number| &self.callers[number as usize]);
        let waits: BTreeSet<u64> = callers
            .filter(|caller| caller.on.is_none() && line.contains(&caller.server))
            // One whose owner has its share is rightly passed over.
            .filter(|caller| {
                self.plan.limits.pool.per_owner == 0
                    || self.servers[caller.server].plan.policy.owner.is_none()
            })
            .map(|caller| caller.lane)
            .collect();
        let all: BTreeSet<u64> = line.iter().flat_map(|&server| self.lanes_of(server)).collect();
        self.seen.passed.retain(|lane, _| waits.contains(lane));
        for lane in waits {
            let (_, others) = self.seen.passed.entry(lane).or_default();
            others.extend(all.iter().filter(|other| **other != lane));
        }
        Ok(())
    }

    /// The lanes that a slot for this server served: those who wait for it, and whose calls on it were just sent or ended.
    fn served_lanes(&self, server: usize) -> BTreeSet<u64> {
        let mut lanes = self.lanes_of(server);
        let ended = self.ended.iter().map(|end| &self.callers[end.0 as usize]);
        lanes.extend(ended.filter(|caller| caller.server == server).map(|caller| caller.lane));
        lanes
    }

    /// An observer of the change notifications alone knows the state of every connection and every breaker.
    fn check_changes(&mut self) -> Check {
        let same = |one: &State, other: &State| discriminant(one) == discriminant(other);
        let (states, phases) = (&mut self.seen.reported_states, &mut self.seen.reported_phases);
        for change in self.dispatch.take_changes() {
            let server = self.numbers.get(&change.server());
            let is_known = server.is_some_and(|&server| !self.servers[server].reclaimed);
            ensure!(is_known, "{change:?} of a server that is no more");
            match change {
                StateChange::Connection { conn, from, to, .. } => {
                    let before = match to {
                        Some(to) => states.insert(conn, to),
                        None => states.remove(&conn),
                    };
                    let follows = match (&before, &from) {
                        (Some(before), Some(from)) => same(before, from),
                        (before, from) => before.is_none() && from.is_none(),
                    };
                    ensure!(follows, "{conn:?} was {before:?} and is said to leave {from:?}");
                }
                StateChange::Breaker { server, from, to } => {
                    let before = phases.insert(server, to).unwrap_or(Phase::Normal { failures: 0 });
                    ensure!(
                        discriminant(&before) == discriminant(&from),
                        "the breaker of {server:?} was {before:?} and is said to leave {from:?}"
                    );
                }
                StateChange::Pool { .. } => {}
            }
        }
        let pool = self.dispatch.pool();
        ensure!(states.len() == pool.count(), "{} connections were reported", states.len());
        for (conn, slot) in pool.all() {
            let reported = states.get(&conn);
            ensure!(
                reported.is_some_and(|reported| same(reported, &slot.state)),
                "{conn:?} is {}, reported was {reported:?}",
                slot.state
            );
        }
        for server in 0..self.servers.len() {
            let Server { id, reclaimed, .. } = self.servers[server];
            let view = self.dispatch.view(id);
            ensure!(view.is_none() == reclaimed, "{id:?} is known though taken back, or not");
            let Some(phase) = view.map(|view| view.breaker) else { continue };
            let reported = phases.get(&id).copied();
            let reported = reported.unwrap_or(Phase::Normal { failures: 0 });
            ensure!(
                discriminant(&reported) == discriminant(&phase),
                "the breaker of server {server} is {phase:?}, reported was {reported:?}"
            );
        }
        Ok(())
    }

    /// Every slot has its process and every process its slot, and both agree on the state.
    fn check_slots(&self) -> Check {
        let pool = self.dispatch.pool();
        ensure!(
            pool.count() == self.alive.len(),
            "{} slots for {} processes",
            pool.count(),
            self.alive.len()
        );
        let mut fresh = 0;
        for (conn, slot) in pool.all() {
            let process = &self.processes[self.on(conn)?];
            ensure!(slot.server == self.servers[process.server].id, "the slot of another server");
            let work = process.work();
            let agrees = match (process.stage, process.told) {
                (Stage::Lost, _) => matches!(slot.state, State::Failed | State::Closed),
                (_, true) => slot.state == State::Closed,
                (Stage::Starting, false) => slot.state == State::Connecting,
                (Stage::Ready, false) if work == 0 => slot.state == State::Idle,
                (Stage::Ready, false) => {
                    matches!(slot.state, State::Active { in_flight } if in_flight.get() == work)
                }
                (Stage::Gone, false) => false,
            };
            ensure!(agrees, "{:?} is not {process:?}", slot.state);
            ensure!(work <= process.policy.max_in_flight, "it has too much to do: {process:?}");
            let fresh_until = process.born + pool::CONNECT_BURST_WINDOW;
            if slot.state == State::Connecting && self.now < fresh_until {
                fresh += 1;
            }
        }
        ensure!(fresh <= pool::CONNECT_BURST, "{fresh} are starting at once");
        let owners = || self.alive.iter().filter_map(|&one| self.processes[one].policy.owner);
        for owner in owners() {
            let held = owners().filter(|other| *other == owner).count();
            let share = pool.limits().per_owner;
            ensure!(share == 0 || held <= share, "owner {owner} has {held} of {share} slots");
        }
        Ok(())
    }

    fn check_server(&mut self, step: Step, number: usize) -> Check {
        let server = &self.servers[number];
        let Some(view) = self.dispatch.view(server.id) else {
            ensure!(server.waiting == 0, "calls wait for a server that is no more");
            // A breaker that nobody asks has no deadline.
            self.seen.phases[number] = Phase::Normal { failures: 0 };
            return Ok(());
        };
        ensure!(
            view.queued == server.waiting,
            "{} wait for server {number}, it says {}",
            server.waiting,
            view.queued
        );
        if server.waiting > 0 {
            ensure!(
                view.state.is_some_and(|state| state != State::Closed)
                    || view.waiting_since.is_some(),
                "nothing is done for those who wait for server {number}: {view:?}"
            );
        }
        if let Some(process) = server.attached.map(|process| &self.processes[process])
            && process.stage == Stage::Ready
        {
            let room = process.work() < process.policy.max_in_flight && process.probed.is_none();
            ensure!(
                !room || (server.waiting == 0 && !server.list_due),
                "server {number} could take more, but something waits: {process:?}"
            );
            ensure!(
                process.work() > 0 || !matches!(view.breaker, Phase::Open { .. }),
                "the process that failed its calls is kept for the probe: {process:?}"
            );
        }
        let given_up = view.state != Some(State::Failed)
            && self.start_failed.iter().any(|failed| failed.0 == number);
        if self.start_failed.iter().any(|failed| failed.0 == number) {
            let first = server.crashes == 1 && self.may_pass && !self.stopping;
            ensure!(!first || !given_up, "the first crash of server {number} earns a retry");
            ensure!(given_up || self.may_pass, "server {number} cannot do better at once");
        }
        if given_up && self.start_failed.contains(&(number, true)) {
            self.servers[number].not_before = self.now + Duration::from_millis(250);
        }
        self.check_breaker(step, number, view.breaker)
    }

    /// A driver that ticks when requested, and only then, misses nothing.
    fn check_wake(&self, step: Step) -> Check {
        let wake = self.dispatch.wake();
        let deadlines = self
            .open
            .iter()
            .map(|&number| &self.callers[number as usize])
            .filter(|caller| caller.on.is_some())
            .map(|caller| caller.deadline);
        let starts = self
            .alive
            .iter()
            .map(|&process| &self.processes[process])
            .filter(|process| process.stage == Stage::Starting && !process.told)
            .map(|process| process.start_deadline);
        let probes = self.seen.phases.iter().filter_map(|phase| match phase {
            Phase::Probing { deadline } => Some(*deadline),
            _ => None,
        });
        let first = deadlines.chain(starts).chain(probes).min().unwrap_or(Moment::NEVER);
        ensure!(wake <= first, "it wants to be woken at {wake:?}, but {first:?} comes before");
        ensure!(
            step != Step::Tick || first > self.now,
            "a tick left something undone that was due at {first:?}"
        );
        // A step does at once whatever it makes possible. After a start two things are left to a tick: closing a
        // connection above the minimum that was idle too long, and opening the next slot of the reserve.
        ensure!(
            wake > self.now || self.wake_before <= self.now || !self.granted.is_empty(),
            "{step:?} left something to do at once"
        );
        Ok(())
    }

    // -- when the storm is over --

    /// All calls ended, each in time, and the system is idle.
    fn check_calm(&mut self) -> Check {
        let limits = self.plan.limits;
        let longest = self.callers.iter().map(|caller| caller.timeout).max().unwrap_or_default();
        let bound = limits.pool_wait
            + limits.connect_timeout
            + limits.install_timeout * 2
            + longest * 11
            + self.plan.driver.late * 8
            + Duration::from_secs(20);
        for caller in &self.callers {
            let Some(ended) = caller.ended else { return Err(format!("never ended: {caller:?}")) };
            let begin = caller.arrived.max(self.calm_since);
            ensure!(ended <= begin + bound, "took too long: {caller:?}");
        }
        ensure!(self.dispatch.open_calls() == 0, "calls are left");
        let windows = self.now.elapsed().as_secs() / 10 + 1;
        ensure!(
            self.resent <= self.let_in / 5 + 3 * windows,
            "{} of {} calls were sent again in {windows} windows",
            self.resent,
            self.let_in
        );
        // Listings and exits may still be in progress, and starts that hang.
        self.drive(Some(self.now + limits.install_timeout + Duration::from_secs(36)))?;
        for (_, slot) in self.dispatch.pool().all() {
            ensure!(slot.state == State::Idle, "not at rest: {slot:?}");
        }
        // A requested listing has no deadline, and may wait for a slot that never becomes free.
        let in_vain = |server: pool::ServerId| self.is_hoarded(self.numbers[&server]);
        ensure!(self.dispatch.pool().waiting().all(in_vain), "the line is not empty");
        Ok(())
    }

    /// Whether keep-alive servers occupy all slots that a server could have: then it waits in vain, as configured.
    fn is_hoarded(&self, server: usize) -> bool {
        let limits = &self.plan.limits.pool;
        let policies = self.alive.iter().map(|&process| &self.processes[process].policy);
        let kept = policies.filter(|policy| policy.keep == Keep::Alive);
        let owner = self.servers[server].plan.policy.owner.filter(|_| limits.per_owner > 0);
        let theirs = kept.clone().filter(|policy| owner.is_some() && policy.owner == owner);
        kept.count() >= limits.size || (owner.is_some() && theirs.count() >= limits.per_owner)
    }

    /// Whatever happened: a little later every server works again.
    fn check_recovery(&mut self) -> Check {
        let limits = self.plan.limits;
        let longest =
            self.servers.iter().map(|server| server.plan.policy.timeout).max().unwrap_or_default();
        let pause = limits.breaker_cooldown * 2 + limits.install_timeout + longest;
        self.drive(Some(self.now + pause + Duration::from_secs(40)))?;
        // With many servers a sample is enough.
        let every = 1 + self.servers.len() / 16;
        for number in (0..self.servers.len()).step_by(every) {
            if self.servers[number].removed {
                continue;
            }
            let hoarded = self.is_hoarded(number);
            let who = self.add_caller(CallerPlan {
                at: self.now,
                server: number,
                lane: 0,
                harmless: false,
                timeout: None,
                patience: None,
            });
            self.drive(None)?;
            let caller = &self.callers[who as usize];
            ensure!(
                (caller.answered && caller.ran == 1) || hoarded,
                "server {number} does not work any more: {caller:?}"
            );
        }
        Ok(())
    }

    /// Idle connections are closed, except those with keep-alive.
    fn check_sweep(&mut self) -> Check {
        let limits = self.plan.limits.pool;
        let own = self.servers.iter().filter_map(|server| server.plan.policy.idle_timeout).max();
        let longest = own.unwrap_or_default().max(limits.idle_timeout);
        self.drive(Some(self.now + longest + self.plan.driver.late * 2 + Duration::from_secs(2)))?;
        let kept = |process: &&usize| {
            let policy = self.processes[**process].policy;
            policy.keep == Keep::Alive && policy.idle_timeout.is_none()
        };
        let kept = self.alive.iter().filter(kept).count();
        ensure!(
            self.alive.len() <= limits.minimum.max(kept),
            "{} are alive, {kept} of them to be kept, at least {}",
            self.alive.len(),
            limits.minimum
        );
        Ok(())
    }

    /// Shutdown leaves nothing behind.
    fn check_end(&mut self) -> Check {
        self.stop(true)?;
        self.drive(None)?;
        ensure!(self.alive.is_empty(), "processes are left: {:?}", self.alive);
        ensure!(self.dispatch.pool().count() == 0, "slots are left");
        ensure!(self.dispatch.open_calls() == 0, "calls are left");
        ensure!(
            self.dispatch.wake() == Moment::NEVER,
            "it still wants to be woken at {:?}",
            self.dispatch.wake()
        );
        self.seen = Seen::default();
        Ok(())
    }
}
