//! The simulated environment of a dispatch: processes that start, work, hang and die, callers, an operator, and a
//! clock. Events are passed to the dispatch as the engine would; every step is checked.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::time::Duration;

use metamcp_calls::breaker::Phase;
use metamcp_calls::dispatch::{
    CallId, CallOptions, Dispatch, DispatchError, Effects, Removal, ServerPolicy,
};
use metamcp_calls::failure::{Fact, Failure};
use metamcp_calls::pool::ServerId;
use metamcp_calls::replay::Delivery;
use metamcp_types::moment::Moment;
use metamcp_types::suspend_clock::{BEAT, ClockReader, SuspendAwareClock};

use crate::books::{
    Caller, Check, End, Event, Process, Queued, Seen, Server, Sights, Stage, Step, ensure,
    server_id,
};
use crate::plan::{Action, CallerPlan, Plan, ServerPlan};
use crate::rng::Rng;

/// Maximum steps of one run; the longest correct ones take a tenth.
const STEPS: u64 = 200_000;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) dispatch: Dispatch<u32>,
    pub(crate) effects: Effects<u32>,
    pub(crate) now: Moment,
    /// How the engine's clock treats time in which the gateway is stopped.
    pub(crate) suspend_clock: SuspendAwareClock,
    pub(crate) heap: BinaryHeap<Reverse<Queued>>,
    pub(crate) sequence: u64,
    pub(crate) processes: Vec<Process>,
    /// Processes that have not exited yet.
    pub(crate) alive: Vec<usize>,
    pub(crate) callers: Vec<Caller>,
    /// Callers that were admitted and wait for a response.
    pub(crate) open: Vec<u32>,
    pub(crate) servers: Vec<Server>,
    pub(crate) calm: bool,
    pub(crate) calm_since: Moment,
    pub(crate) stopping: bool,
    /// Whether the current effects were decided by a tick.
    pub(crate) ticking: bool,
    pub(crate) chance: Rng,
    pub(crate) refused: Vec<u32>,
    pub(crate) seen: Seen,
    /// What happened in this step, for the checks after it.
    pub(crate) granted: Vec<(ServerId, bool)>,
    pub(crate) ended: Vec<(u32, End)>,
    /// Callers whose call was on the lost process.
    pub(crate) lost_calls: Vec<u32>,
    /// Servers whose start failed, and whether that counts as a failure.
    pub(crate) start_failed: Vec<(usize, bool)>,
    /// Whether a retry with a fresh process might succeed, for the last failed start.
    pub(crate) may_pass: bool,
    /// The wake-up time the dispatch requested before this step.
    pub(crate) wake_before: Moment,
    pub(crate) steps: u64,
    /// Calls admitted, and calls replayed although they may have run.
    pub(crate) let_in: u64,
    pub(crate) resent: u64,
    pub(crate) sights: Sights,
    /// A hash of the whole history: the same seed gives the same one.
    pub(crate) hash: u64,
    pub(crate) trace: Option<Vec<String>>,
}

impl World {
    pub(crate) fn new(plan: Plan, tracing: bool) -> World {
        let mut world = World {
            dispatch: Dispatch::new(plan.limits),
            effects: Vec::new(),
            now: Moment::START,
            suspend_clock: SuspendAwareClock::default(),
            heap: BinaryHeap::new(),
            sequence: 0,
            processes: Vec::new(),
            alive: Vec::new(),
            callers: Vec::new(),
            open: Vec::new(),
            servers: Vec::new(),
            calm: false,
            calm_since: Moment::NEVER,
            stopping: false,
            ticking: false,
            chance: Rng::of(plan.seed, 0, 0),
            refused: Vec::new(),
            seen: Seen::default(),
            granted: Vec::new(),
            ended: Vec::new(),
            lost_calls: Vec::new(),
            start_failed: Vec::new(),
            may_pass: false,
            wake_before: Moment::NEVER,
            steps: 0,
            let_in: 0,
            resent: 0,
            sights: Sights::default(),
            hash: 0,
            trace: tracing.then(Vec::new),
            plan,
        };
        for number in 0..world.plan.servers.len() {
            let plan = world.plan.servers[number];
            world.add_server(plan);
        }
        for number in 0..world.plan.callers.len() {
            let plan = world.plan.callers[number];
            world.add_caller(plan);
        }
        for number in 0..world.plan.actions.len() {
            world.at(world.plan.actions[number].0, Event::Act(number));
        }
        world.at(world.plan.calm_at, Event::Calm);
        world
    }

    fn add_server(&mut self, plan: ServerPlan) {
        let server = self.dispatch.add_server(plan.policy);
        assert_eq!(server.0 as usize, self.servers.len(), "servers are numbered as they come");
        self.servers.push(Server {
            plan,
            removed: false,
            attached: None,
            waiting: 0,
            starts: Vec::new(),
            due: false,
            not_before: Moment::START,
            owed: false,
            crashes: 0,
            last_crash: Moment::START,
            epoch: 0,
            processes: 0,
            last_first: HashMap::new(),
            passed: HashMap::new(),
            woken_by: Vec::new(),
            list_due: false,
        });
        self.seen.phases.push(Phase::Normal { failures: 0 });
    }

    /// Schedules a caller. Returns its number.
    pub(crate) fn add_caller(&mut self, plan: CallerPlan) -> u32 {
        let number = u32::try_from(self.callers.len()).expect("a few hundred");
        self.callers.push(Caller {
            server: plan.server,
            lane: plan.lane,
            harmless: plan.harmless,
            timeout: plan.timeout.unwrap_or(Duration::ZERO),
            patience: plan.patience,
            arrived: plan.at,
            order: 0,
            call: None,
            ended: None,
            on: None,
            sends: 0,
            abandoned: false,
            wrote_last: false,
            wrote: false,
            ran: 0,
            said_unsent: false,
            answered: false,
            agreed: Moment::NEVER,
            deadline: Moment::NEVER,
            cap: Moment::NEVER,
            epoch: 0,
            probe: false,
        });
        self.at(plan.at, Event::Arrive(number));
        number
    }

    pub(crate) fn at(&mut self, at: Moment, event: Event) {
        self.sequence += 1;
        self.heap.push(Reverse(Queued { at, sequence: self.sequence, event }));
    }

    pub(crate) fn after(&mut self, length: Duration, event: Event) {
        self.at(self.now + length, event);
    }

    // -- time --

    /// Advances time: up to a moment, or until no event is left.
    pub(crate) fn drive(&mut self, until: Option<Moment>) -> Check {
        loop {
            let event_at = self.heap.peek().map_or(Moment::NEVER, |next| next.0.at);
            let tick_at = self.tick_at();
            match until {
                None if event_at == Moment::NEVER && self.open.is_empty() => return Ok(()),
                Some(end) if event_at > end && tick_at > end => {
                    self.now = self.now.max(end);
                    return Ok(());
                }
                _ => {}
            }
            ensure!(
                event_at.min(tick_at) != Moment::NEVER,
                "calls are left, nothing will happen, and no tick is asked for: {:?}",
                self.open
            );
            self.steps += 1;
            ensure!(self.steps < STEPS, "it goes on for ever");
            if tick_at < event_at || (tick_at == event_at && self.plan.driver.tick_first) {
                self.now = self.now.max(tick_at);
                self.dispatch.tick(self.now, &mut self.effects);
                let idle = self.effects.is_empty();
                self.ticking = true;
                self.settle(Step::Tick)?;
                self.ticking = false;
                ensure!(
                    !idle || self.dispatch.wake() > self.now,
                    "a tick did nothing, and the next is asked for at {:?} already",
                    self.dispatch.wake()
                );
            } else if let Some(Reverse(next)) = self.heap.pop() {
                self.now = self.now.max(next.at);
                if self.now < self.dispatch.wake() && self.chance.chance(self.plan.driver.nosy) {
                    self.dispatch.tick(self.now, &mut self.effects);
                    ensure!(
                        self.effects.is_empty(),
                        "a tick before its time, which was to be {:?}, did {:?}",
                        self.dispatch.wake(),
                        self.effects
                    );
                    self.settle(Step::Nosy)?;
                }
                self.happen(next.event)?;
            }
        }
    }

    /// When the engine ticks next: at the requested time, or a little later.
    fn tick_at(&self) -> Moment {
        let wake = self.dispatch.wake();
        let late = u64::try_from(self.plan.driver.late.as_micros()).unwrap_or(0);
        if wake == Moment::NEVER || late == 0 {
            return wake;
        }
        let salt = u64::try_from(wake.elapsed().as_micros()).unwrap_or(0);
        wake + Duration::from_micros(Rng::of(self.plan.seed, 7, salt).below(late + 1))
    }

    // -- what happens --

    fn happen(&mut self, event: Event) -> Check {
        match event {
            Event::Arrive(caller) => self.arrive(caller),
            Event::Cancel(number) => {
                let caller = &self.callers[number as usize];
                let (Some(call), open) = (caller.call, caller.ended.is_none()) else {
                    return Ok(());
                };
                self.dispatch.cancel(call, self.now, &mut self.effects);
                self.settle(if open { Step::Cancel(number) } else { Step::Nothing })
            }
            Event::Started(process) => self.started(process),
            Event::Life(process, every, signs) => {
                let life = &mut self.processes[process];
                if life.stage != Stage::Starting || life.dead {
                    return Ok(());
                }
                self.dispatch.life_sign(life.conn, self.now);
                if !life.told {
                    let last = life.born + self.plan.limits.install_timeout;
                    let more = (self.now + Duration::from_secs(30)).min(last);
                    life.start_deadline = life.start_deadline.max(more);
                }
                if signs == 0 {
                    self.after(every, Event::Started(process));
                } else {
                    self.after(every, Event::Life(process, every, signs - 1));
                }
                self.settle(Step::Nothing)
            }
            Event::StartFails(process, fact) => {
                self.processes[process].dead = true;
                self.lose(process, fact)
            }
            Event::Dies(process) => {
                let life = &mut self.processes[process];
                if !self.calm && !life.dead && life.stage != Stage::Gone {
                    life.dead = true;
                    let noticed = Duration::from_micros(self.chance.below(3000));
                    let fact = self.chance.pick(&[true, true, false]);
                    let fact = if fact {
                        Fact::Exited { code: None, signal: Some(9) }
                    } else {
                        Fact::OutputClosed
                    };
                    self.after(noticed, Event::Noticed(process, fact));
                }
                Ok(())
            }
            Event::Noticed(process, fact) => {
                if self.calm && !self.processes[process].dead {
                    return Ok(());
                }
                self.lose(process, fact)
            }
            Event::Listed(process) => {
                let life = &mut self.processes[process];
                if life.stage != Stage::Ready || life.listings == 0 {
                    return Ok(());
                }
                life.listings -= 1;
                self.dispatch.listed(life.conn, self.now, &mut self.effects);
                self.settle(Step::Listed(process))
            }
            Event::StrayListed(conn) => {
                // The engine does not end the listing of the successor process.
                let listing = |&process: &usize| {
                    self.processes[process].conn == conn && self.processes[process].listings > 0
                };
                if self.alive.iter().any(listing) {
                    return Ok(());
                }
                self.dispatch.listed(conn, self.now, &mut self.effects);
                self.settle(Step::Nothing)
            }
            Event::Runs(process, number) => {
                let life = &self.processes[process];
                if life.dead || life.stage == Stage::Gone {
                    return Ok(());
                }
                let caller = &mut self.callers[number as usize];
                caller.ran += 1;
                let most = if caller.harmless { 2 } else { 1 };
                ensure!(caller.ran <= most, "caller {number} ran {} times: {caller:?}", caller.ran);
                ensure!(caller.ran <= caller.sends, "caller {number} ran more often than sent");
                let twice = caller.ran == 2;
                ensure!(
                    !caller.said_unsent,
                    "caller {number} was told that it was not sent, and ran: {caller:?}"
                );
                if twice {
                    self.sights.add("ran twice");
                }
                Ok(())
            }
            Event::Replies(process, number, sending, error) => {
                self.reply(process, number, sending, error)
            }
            Event::Lives(process) => {
                let life = &mut self.processes[process];
                if life.dead || life.stage != Stage::Ready {
                    return Ok(());
                }
                let conn = life.conn;
                if life.probed.take().is_some() {
                    self.sights.add("asked for a sign of life, and gave it");
                }
                self.dispatch.alive(conn, self.now, &mut self.effects);
                self.settle(Step::Nothing)
            }
            Event::Progresses(process, number, sending) => {
                let now = self.now;
                if let Some((call, caller)) = self.under_way(process, number, sending) {
                    caller.deadline = caller.deadline.max((now + caller.timeout).min(caller.cap));
                    self.dispatch.progressed(call, now);
                }
                self.settle(Step::Nothing)
            }
            Event::Pauses(process, number, sending) => {
                if let Some((call, caller)) = self.under_way(process, number, sending) {
                    caller.deadline = caller.cap;
                    self.dispatch.paused(call);
                }
                self.settle(Step::Nothing)
            }
            Event::Resumes(process, number, sending) => {
                let now = self.now;
                if let Some((call, caller)) = self.under_way(process, number, sending) {
                    caller.deadline = (now + caller.timeout).min(caller.cap);
                    self.dispatch.resumed(call, now);
                }
                self.settle(Step::Nothing)
            }
            Event::Intrudes(process) => {
                let (conn, stage) = (self.processes[process].conn, self.processes[process].stage);
                let foreign = |number: &&u32| self.callers[**number as usize].on != Some(process);
                let victim = self.open.iter().find(foreign).copied();
                if let Some(call) = victim.and_then(|number| self.callers[number as usize].call)
                    && stage == Stage::Ready
                {
                    self.processes[process].probed = None;
                    let taken =
                        self.dispatch.answered(call, conn, false, self.now, &mut self.effects);
                    ensure!(taken.is_none(), "a process answered a call that was not sent to it");
                    self.sights.add("answer by an intruder");
                }
                self.settle(Step::Nothing)
            }
            Event::Gone(process) => {
                self.processes[process].stage = Stage::Gone;
                self.alive.retain(|&other| other != process);
                let conn = self.processes[process].conn;
                self.dispatch.gone(conn, self.now, &mut self.effects);
                self.settle(Step::Gone(process))
            }
            Event::Act(number) => {
                let action = self.plan.actions[number].1;
                self.act(action)
            }
            Event::Calm => {
                self.calm = true;
                self.calm_since = self.now;
                Ok(())
            }
        }
    }

    fn arrive(&mut self, number: u32) -> Check {
        let caller = &mut self.callers[number as usize];
        caller.server = caller.server.min(self.servers.len() - 1);
        let plan = self.servers[caller.server].plan;
        caller.arrived = self.now;
        self.sequence += 1;
        caller.order = self.sequence;
        let timeout = (caller.timeout > Duration::ZERO).then_some(caller.timeout);
        caller.timeout = timeout.unwrap_or(plan.policy.timeout);
        let options = CallOptions { timeout, harmless: caller.harmless, lane: caller.lane };
        let server = server_id(caller.server);
        let patience = caller.patience;
        let call = self.dispatch.call(server, options, number, self.now, &mut self.effects);
        let caller = &mut self.callers[number as usize];
        caller.call = call;
        if call.is_some() {
            let (server, lane) = (caller.server, caller.lane);
            self.servers[server].waiting += 1;
            if !self.waits_for_its_turn(server, lane) {
                self.servers[server].passed.retain(|passed, _| passed.0 != lane);
            }
            self.let_in += 1;
            self.open.push(number);
            if let Some(patience) = patience {
                self.after(patience, Event::Cancel(number));
            }
        }
        self.settle(Step::Arrive(number))
    }

    /// Whether a call of that lane waits to be sent to that server for the first time.
    pub(crate) fn waits_for_its_turn(&self, server: usize, lane: u64) -> bool {
        self.open.iter().map(|&number| &self.callers[number as usize]).any(|caller| {
            (caller.server, caller.lane, caller.sends, caller.on) == (server, lane, 0, None)
        })
    }

    fn started(&mut self, process: usize) -> Check {
        let life = &mut self.processes[process];
        let conn = life.conn;
        if life.dead || life.stage != Stage::Starting {
            return Ok(());
        }
        life.stage = Stage::Ready;
        self.dispatch.connected(conn, self.now, &mut self.effects);
        // It may have been ordered to stop in the same moment; then the event is ignored.
        let told = self.processes[process].told;
        self.settle(if told { Step::Nothing } else { Step::Connected(process) })
    }

    fn lose(&mut self, process: usize, fact: Fact) -> Check {
        let life = &mut self.processes[process];
        if life.told || matches!(life.stage, Stage::Lost | Stage::Gone) {
            return Ok(());
        }
        let (server, conn) = (life.server, life.conn);
        let (stage, calls) = (life.stage, life.calls);
        let busy = life.work() > 0;
        let counts = fact.counts();
        self.may_pass = fact.may_pass();
        life.stage = Stage::Lost;
        life.calls = 0;
        life.probed = None;
        if std::mem::take(&mut life.listings) > 0 {
            let late = Duration::from_micros(self.chance.below(20_000));
            self.after(late, Event::StrayListed(conn));
        }
        let attached = self.servers[server].attached == Some(process);
        if attached {
            self.servers[server].attached = None;
            self.servers[server].list_due = false;
            if stage == Stage::Starting {
                self.start_failed.push((server, counts));
            }
            if stage == Stage::Starting && !counts {
                // The server is healthy and only needs something first: such a start does not count.
                self.servers[server].starts.pop();
            } else if stage == Stage::Starting || busy {
                self.servers[server].crashed(self.now);
            }
        }
        let callers = &self.callers;
        let of = |call: CallId| {
            let on = self.dispatch.payload(call).map(|&number| &callers[number as usize]);
            if on.is_some_and(|caller| caller.wrote_last) {
                Delivery::Sent
            } else {
                Delivery::NotSent
            }
        };
        let deliveries: Vec<(CallId, Delivery)> =
            self.dispatch.calls_on(conn).into_iter().map(|call| (call, of(call))).collect();
        let delivery = |call: CallId| {
            deliveries.iter().find(|known| known.0 == call).map_or(Delivery::Sent, |known| known.1)
        };
        if stage == Stage::Ready && self.dispatch.calls_on(conn).is_empty() {
            self.sights.add("died idle");
        }
        if calls > 1 {
            self.sights.add("crash with several calls on it");
        }
        if calls > 0 && !attached {
            self.sights.add("crash on a connection let go");
        }
        self.dispatch.lost(conn, Failure::new(fact), &delivery, self.now, &mut self.effects);
        for index in 0..self.open.len() {
            let caller = &mut self.callers[self.open[index] as usize];
            if caller.on == Some(process) {
                caller.on = None;
                self.lost_calls.push(self.open[index]);
                self.servers[server].waiting += 1;
            }
        }
        self.settle(Step::Lost { process, attached, counts })
    }

    fn reply(&mut self, process: usize, number: u32, sending: u32, error: bool) -> Check {
        let life = &mut self.processes[process];
        if life.dead || life.stage != Stage::Ready {
            return Ok(());
        }
        let conn = life.conn;
        let caller = &mut self.callers[number as usize];
        let Some(call) = caller.call else { return Ok(()) };
        let awaited = caller.on == Some(process) && caller.sends == sending;
        life.probed = None;
        let taken = self.dispatch.answered(call, conn, error, self.now, &mut self.effects);
        ensure!(
            taken == awaited.then_some(number),
            "an answer for caller {number} came back as {taken:?}: {caller:?}"
        );
        if !awaited {
            self.sights.add("late or repeated answer");
            return self.settle(Step::Nothing);
        }
        life.calls -= 1;
        caller.on = None;
        caller.answered = true;
        self.servers[caller.server].waiting += 1;
        self.sights.add(if error { "answered with an error" } else { "answered" });
        self.end(number, End::Answered { error })?;
        self.settle(Step::Answered(number))
    }

    /// The call of an attempt whose response is still pending.
    fn under_way(
        &mut self,
        process: usize,
        number: u32,
        sending: u32,
    ) -> Option<(CallId, &mut Caller)> {
        let life = &self.processes[process];
        let caller = &mut self.callers[number as usize];
        let heard = !life.dead && life.stage == Stage::Ready;
        let awaited = caller.on == Some(process) && caller.sends == sending;
        (heard && awaited).then_some((caller.call?, caller))
    }

    fn act(&mut self, action: Action) -> Check {
        match action {
            Action::Add(plan) => {
                self.add_server(plan);
                self.settle(Step::Add)
            }
            Action::Change(which, policy) => {
                let which = which.min(self.servers.len() - 1);
                if self.servers[which].removed || self.stopping {
                    return Ok(());
                }
                let server = &mut self.servers[which];
                // Whose it is does not change.
                let policy = ServerPolicy { owner: server.plan.policy.owner, ..policy };
                server.plan.policy = policy;
                server.starts.clear();
                server.not_before = Moment::START;
                server.attached = None;
                server.list_due = false;
                let id = server_id(which);
                self.dispatch.change_server(id, policy, self.now, &mut self.effects);
                self.settle(Step::Change(which))
            }
            Action::Remove(which) => {
                let which = which.min(self.servers.len() - 1);
                if self.servers[which].removed {
                    return Ok(());
                }
                self.servers[which].removed = true;
                self.servers[which].attached = None;
                self.dispatch.remove_server(
                    server_id(which),
                    Removal::Finish,
                    self.now,
                    &mut self.effects,
                );
                self.settle(Step::Remove(which))
            }
            Action::ListAgain(which) => {
                let which = which.min(self.servers.len() - 1);
                let Some(process) = self.servers[which].attached else { return Ok(()) };
                let life = &mut self.processes[process];
                let live = life.stage == Stage::Ready && !life.told;
                let full = life.work() >= life.policy.max_in_flight;
                let began = self.dispatch.list_again(life.conn);
                ensure!(began == (live && !full), "list_again said {began} of {life:?}");
                if began {
                    life.listings += 1;
                    self.listing(process);
                }
                if live && full {
                    self.servers[which].list_due = true;
                    self.sights.add("listing put off");
                }
                self.settle(Step::Nothing)
            }
            Action::WakeServer(which, lane) => {
                let which = which.min(self.servers.len() - 1);
                let woken =
                    self.dispatch.wake_server(server_id(which), lane, self.now, &mut self.effects);
                self.servers[which].woken_by.push(lane);
                let server = &self.servers[which];
                match woken {
                    Ok(()) => {
                        ensure!(!server.removed && !self.stopping, "woken, though over");
                        self.servers[which].due |= self.servers[which].attached.is_none();
                    }
                    Err(DispatchError::Removed) => ensure!(server.removed, "it is not removed"),
                    Err(DispatchError::ShuttingDown { .. }) => {
                        ensure!(self.stopping, "nobody stopped");
                    }
                    Err(_) => {}
                }
                self.settle(Step::Wake(which))
            }
            Action::Stopped(length) => self.stopped(length),
            Action::Jump(length) => {
                self.now = self.now + length;
                Ok(())
            }
            Action::Jitter(thousandths) => {
                self.dispatch.set_jitter(thousandths);
                Ok(())
            }
            Action::Stop => self.stop(false),
            Action::StopNow => self.stop(true),
        }
    }

    /// The gateway is stopped while everybody else continues: their messages are delivered afterwards.
    fn stopped(&mut self, length: Duration) -> Check {
        let before = self.now;
        let raw = self.suspend_clock.raw(before);
        // The clock was read all the time until now.
        self.suspend_clock.sleeps_until(ClockReader::Calls, Moment::NEVER);
        self.suspend_clock.now(raw);
        self.suspend_clock
            .sleeps_until(ClockReader::Calls, raw + self.dispatch.wake().since(before).min(BEAT));
        self.now = self.suspend_clock.now(raw + length);
        let missed = length.saturating_sub(self.now.since(before));
        let sooner = |at: Moment| Moment::after_start(at.elapsed().saturating_sub(missed));
        let heap = std::mem::take(&mut self.heap);
        for Reverse(queued) in heap {
            let at = sooner(queued.at).max(self.now);
            self.heap.push(Reverse(Queued { at, ..queued }));
        }
        let open = self.open.iter().map(|&number| &self.callers[number as usize]);
        let mut sent = open.filter(|caller| caller.on.is_some());
        if sent.clone().any(|caller| length > caller.timeout) {
            self.sights.add("stopped for longer than a call may take");
        }
        // An overdue call is overdue with or without a pause.
        ensure!(
            sent.all(|caller| missed == Duration::ZERO || self.now <= caller.deadline.max(before)),
            "a pause of {length:?} took time from a call"
        );
        Ok(())
    }

    pub(crate) fn stop(&mut self, at_once: bool) -> Check {
        self.stopping = true;
        if at_once {
            self.dispatch.stop_now(self.now, &mut self.effects);
            self.settle(Step::StopNow)
        } else {
            self.dispatch.stop(self.now, &mut self.effects);
            self.settle(Step::Stop)
        }
    }
}
