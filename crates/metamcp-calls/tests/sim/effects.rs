//! Carries out the effects the dispatch requests, as the engine would, and updates the simulator's records.

use std::time::Duration;

use metamcp_calls::dispatch::{CallId, CloseMode, DispatchError, Effect, PROBE, PROGRESS_CAP};
use metamcp_calls::failure::Fact;
use metamcp_calls::pool::{ConnId, ServerId};

use crate::books::{Check, End, Event, Process, Stage, Step, ensure};
use crate::fate::{self, Fate, Start};
use crate::plan::{CALL, PROCESS};
use crate::rng::Rng;
use crate::sessions;
use crate::world::World;

/// The engine's timeout for a listing.
const LIST_TIMEOUT: Duration = Duration::from_secs(15);

impl World {
    /// Carries out the effects of a step, then checks all invariants.
    pub(crate) fn settle(&mut self, step: Step) -> Check {
        self.note(step);
        if step == Step::Tick {
            self.give_up_the_deaf();
        }
        let mut effects = std::mem::take(&mut self.effects);
        for effect in effects.drain(..) {
            self.carry(step, effect)?;
        }
        self.effects = effects;
        self.check(step)?;
        self.at_nobodys_cost = false;
        self.granted.clear();
        self.ended.clear();
        self.start_failed.clear();
        self.lost_calls.clear();
        while let Some(number) = self.refused.pop() {
            let caller = &self.callers[number as usize];
            if let Some(call) = caller.call.filter(|_| caller.ended.is_none()) {
                self.dispatch.refuse(call, DispatchError::Overloaded, self.now, &mut self.effects);
                self.settle(Step::Refuse(number))?;
            }
        }
        Ok(())
    }

    fn carry(&mut self, step: Step, effect: Effect<u32>) -> Check {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("              {effect:?}"));
        }
        match effect {
            Effect::Connect { conn, server } => {
                self.mix(1, conn.0.number(), u64::from(server.0));
                self.connect(step, conn, server)
            }
            Effect::List { conn, server } => {
                self.mix(2, conn.0.number(), u64::from(server.0));
                let process = self.on(conn)?;
                let life = &mut self.processes[process];
                ensure!(life.stage == Stage::Ready && !life.told, "listing on {life:?}");
                life.listings += 1;
                let number = self.number_of(server)?;
                self.servers[number].list_due = false;
                self.listing(process);
                Ok(())
            }
            Effect::Send { conn, call } => {
                self.mix(3, conn.0.number(), call.0.number());
                self.send(conn, call)
            }
            Effect::Probe { conn } => {
                self.mix(7, conn.0.number(), 0);
                let process = self.on(conn)?;
                let life = &mut self.processes[process];
                ensure!(life.stage == Stage::Ready && !life.told, "asked for life: {life:?}");
                ensure!(life.probed.is_none(), "asked twice: {life:?}");
                life.probed = Some(self.now + PROBE);
                if !life.hung || self.calm {
                    let length = Duration::from_micros(self.chance.between(100, 20_000));
                    self.after(length, Event::Lives(process));
                }
                Ok(())
            }
            Effect::Abandon { conn, call, attempt } => {
                self.mix(4, conn.0.number(), call.0.number());
                let process = self.on(conn)?;
                let on = |number: &&u32| self.callers[**number as usize].call == Some(call);
                let found = self.open.iter().find(on).copied();
                let caller = found.map(|number| &mut self.callers[number as usize]);
                let Some(caller) = caller.filter(|c| c.on == Some(process) && c.sends == attempt)
                else {
                    return Err(format!("abandoned, though not under way: {found:?}"));
                };
                caller.abandoned = true;
                Ok(())
            }
            Effect::Close { conn, mode } => {
                self.mix(5, conn.0.number(), 0);
                let process = self.on(conn)?;
                ensure!(!self.at_nobodys_cost, "closed for a sibling");
                let life = &mut self.processes[process];
                let hurried = mode == CloseMode::Brisk;
                ensure!(
                    hurried == (step == Step::RemoveAtOnce(life.server)),
                    "told {mode:?} in {step:?}: {life:?}"
                );
                ensure!(!life.told || hurried, "told to go a second time: {life:?}");
                let busy =
                    life.stage == Stage::Ready && (life.calls > 0 || life.work() > 0 && !hurried);
                ensure!(!busy || step == Step::StopNow, "told to go while at work: {life:?}");
                life.brisk |= hurried;
                if std::mem::replace(&mut life.told, true) {
                    self.sights.add("hurried while closing");
                    let server = &self.servers[life.server];
                    let end = fate::of_end(&mut self.chance, &server.plan.behaviour, self.calm);
                    self.after(sessions::brisk_end(end), Event::Gone(process));
                    return Ok(());
                }
                if life.stage == Stage::Starting && mode == CloseMode::Immediate {
                    // The dispatch gave up on it by itself.
                    life.stage = Stage::Lost;
                    ensure!(self.now >= life.start_deadline, "given up too early: {life:?}");
                    self.may_pass = false;
                    self.sights.add("start given up");
                    self.start_failed.push((life.server, true));
                    self.servers[life.server].crashed(self.now);
                }
                let server = &mut self.servers[life.server];
                if server.attached == Some(process) {
                    if mode == CloseMode::Graceful {
                        // Closed on our order: no sign of a crash loop.
                        server.starts.pop();
                    }
                    server.attached = None;
                    server.list_due = false;
                }
                let end = fate::of_end(&mut self.chance, &server.plan.behaviour, self.calm);
                let end = if hurried { sessions::brisk_end(end) } else { end };
                self.after(end, Event::Gone(process));
                Ok(())
            }
            Effect::Answer { server, payload, error } => {
                self.mix(6, u64::from(server.0), u64::from(payload));
                self.told(step, payload, &error)
            }
        }
    }

    fn connect(&mut self, step: Step, conn: ConnId, server: ServerId) -> Check {
        let number = self.number_of(server)?;
        ensure!(self.on(conn).is_err(), "a second process on one connection");
        let again = matches!(step, Step::Gone(before) if self.processes[before].conn == conn);
        self.granted.push((server, again));
        if again {
            self.sights.add("reconnected on its slot");
        }
        if self.alive.iter().any(|&process| self.processes[process].server == number) {
            self.sights.add("two processes of one server");
        }
        let entry = &mut self.servers[number];
        ensure!(!entry.removed, "a removed server is started");
        ensure!(!self.stopping, "a server is started after the end");
        ensure!(entry.attached.is_none(), "it has a connection already");
        ensure!(self.now >= entry.not_before, "started again without a pause");
        ensure!(
            std::mem::take(&mut entry.due) || entry.waiting > 0,
            "server {number} is started for nobody"
        );
        entry.starts.push(self.now);
        if let Some(fifth) = entry.starts.len().checked_sub(6) {
            let before = entry.starts[fifth];
            ensure!(
                self.now >= before + Duration::from_secs(30),
                "six starts within thirty seconds: {:?}",
                entry.starts
            );
        }
        entry.processes += 1;
        let mut rng = Rng::of(self.plan.seed, PROCESS, (number as u64) << 24 | entry.processes);
        let process = self.processes.len();
        entry.attached = Some(process);
        let behaviour = entry.plan.behaviour;
        let start = fate::of_start(&mut rng, &behaviour, self.calm);
        self.processes.push(Process {
            conn,
            server: number,
            born: self.now,
            stage: Stage::Starting,
            told: false,
            brisk: false,
            dead: false,
            hung: rng.chance(behaviour.hung),
            calls: 0,
            listings: 0,
            probed: None,
            policy: entry.plan.policy,
            start_deadline: self.now + self.plan.limits.connect_timeout,
        });
        self.alive.push(process);
        match start {
            Start::Ready { after } => self.after(after, Event::Started(process)),
            Start::Slow { every, signs } => {
                self.after(every, Event::Life(process, every, signs));
            }
            Start::Fails { after, fact } => self.after(after, Event::StartFails(process, fact)),
            Start::Hangs => {}
        }
        if rng.chance(behaviour.dies_some_time) {
            let length = rng.span(1, 4000);
            self.after(length, Event::Dies(process));
        }
        if rng.chance(behaviour.odd_call / 4) {
            let length = rng.span(1, 1000);
            self.after(length, Event::Intrudes(process));
        }
        Ok(())
    }

    /// Processes that missed their liveness probe get no new calls from now on.
    fn give_up_the_deaf(&mut self) {
        for &process in &self.alive {
            let life = &mut self.processes[process];
            if life.probed.is_some_and(|until| self.now >= until) {
                life.probed = None;
                let server = &mut self.servers[life.server];
                if server.attached == Some(process) {
                    server.attached = None;
                    server.list_due = false;
                    self.sights.add("gone deaf and replaced");
                }
            }
        }
    }

    pub(crate) fn listing(&mut self, process: usize) {
        let length = if self.calm {
            Duration::from_millis(1)
        } else if self.processes[process].hung {
            LIST_TIMEOUT
        } else {
            Duration::from_micros(self.chance.between(100, 20_000))
        };
        self.after(length, Event::Listed(process));
    }

    fn send(&mut self, conn: ConnId, call: CallId) -> Check {
        let process = self.on(conn)?;
        let Some(&number) = self.dispatch.payload(call) else {
            // It was stopped in the same step in which the call was sent.
            return Err("sent and ended in one step".into());
        };
        let server = self.processes[process].server;
        let again = |who: &&u32| {
            let other = &self.callers[**who as usize];
            other.server == server && other.on.is_none() && other.sends > 0
        };
        let first = self.open.iter().find(again).copied();
        let life = &mut self.processes[process];
        let caller = &mut self.callers[number as usize];
        ensure!(life.stage == Stage::Ready && !life.told, "sent to {life:?}");
        ensure!(life.server == caller.server, "sent to another server");
        ensure!(caller.ended.is_none() && caller.on.is_none(), "sent though {caller:?}");
        ensure!(
            self.servers[caller.server].attached == Some(process),
            "sent to a connection that was let go"
        );
        caller.sends += 1;
        let (at, lane, order) = (caller.server, caller.lane, caller.order);
        if caller.sends == 1 {
            ensure!(first.is_none(), "caller {first:?} was to be sent again before");
            self.check_turn(number, at, lane, order)?;
        }
        let server = &mut self.servers[at];
        let caller = &mut self.callers[number as usize];
        if caller.sends == 1 {
            caller.agreed = self.now + caller.timeout;
            caller.cap = caller.agreed + caller.timeout * (PROGRESS_CAP - 1);
        } else {
            ensure!(caller.sends == 2, "sent {} times", caller.sends);
            ensure!(!caller.wrote_last || caller.harmless, "sent again: {caller:?}");
            ensure!(self.now < caller.agreed, "sent again after its time: {caller:?}");
            self.resent += u64::from(caller.wrote_last);
            self.sights.add(if caller.wrote_last {
                "sent again, being harmless"
            } else {
                "sent again, not having got out"
            });
        }
        caller.deadline = caller.agreed;
        caller.on = Some(process);
        caller.wrote_last = true;
        server.waiting -= 1;
        let life = &mut self.processes[process];
        life.calls += 1;
        let (hung, dead) = (life.hung && !self.calm, life.dead);
        let (sending, behaviour) = (caller.sends, server.plan.behaviour);
        let mut rng = Rng::of(self.plan.seed, CALL, u64::from(number) << 8 | u64::from(sending));
        let fate = fate::of_call(&mut rng, &behaviour, self.calm);
        let fate = if hung {
            Fate::Hangs { ran: rng.chance(500).then_some(rng.span(1, 100)) }
        } else {
            fate
        };
        let mut written = !dead || rng.chance(500);
        match fate {
            Fate::Answered { ran, reply, error, progress, asks, last } => {
                self.after(ran, Event::Runs(process, number));
                for sign in 1..=progress {
                    let length = reply * u32::try_from(sign).unwrap_or(1)
                        / u32::try_from(progress + 1).unwrap_or(1);
                    self.after(length, Event::Progresses(process, number, sending));
                }
                let mut reply = reply;
                if let Some(asks) = asks {
                    self.after(reply, Event::Pauses(process, number, sending));
                    self.after(reply + asks, Event::Resumes(process, number, sending));
                    reply += asks * 2;
                }
                self.after(reply, Event::Replies(process, number, sending, error));
                // A second response, and one after its death, must not reach anybody.
                if rng.chance(50) {
                    self.after(reply, Event::Replies(process, number, sending, error));
                }
                if last {
                    self.after(reply, Event::Dies(process));
                }
            }
            Fate::Hangs { ran } => {
                if let Some(ran) = ran {
                    self.after(ran, Event::Runs(process, number));
                }
            }
            Fate::Dies { after, written: whole, ran } => {
                written &= whole;
                if ran {
                    self.after(after, Event::Runs(process, number));
                }
                self.after(after, Event::Dies(process));
            }
            Fate::Stalls { after } => {
                written = false;
                self.after(after, Event::Noticed(process, Fact::Stalled { after }));
            }
            Fate::Refused => {
                written = false;
                self.refused.push(number);
            }
        }
        let caller = &mut self.callers[number as usize];
        caller.wrote_last = written;
        caller.wrote |= written;
        Ok(())
    }

    /// A call is sent for the first time: after all that came before it in its lane, and after each other lane that waits
    /// was passed over once at most.
    fn check_turn(&mut self, number: u32, at: usize, lane: u64, order: u64) -> Check {
        let waiting = self.open.iter().map(|&other| (other, &self.callers[other as usize]));
        let mut others: Vec<u64> = waiting
            .filter(|(other, caller)| *other != number && caller.server == at)
            .filter(|(_, caller)| caller.sends == 0 && caller.on.is_none() && caller.lane != lane)
            .inspect(|(_, caller)| {
                if caller.order < order {
                    self.sights.add("a later call sent before an earlier one of another lane");
                }
            })
            .map(|(_, caller)| caller.lane)
            .collect();
        others.sort_unstable();
        others.dedup();
        let server = &mut self.servers[at];
        let last = server.last_first.insert(lane, order);
        ensure!(last.is_none_or(|last| order > last), "a later call of a lane was sent first");
        server.passed.retain(|passed, _| passed.0 != lane);
        for other in others {
            let times = server.passed.entry((other, lane)).or_default();
            *times += 1;
            ensure!(*times == 1, "lane {other} was passed over twice by lane {lane}");
        }
        Ok(())
    }

    /// A caller's call ends without a response.
    fn told(&mut self, step: Step, number: u32, error: &DispatchError) -> Check {
        let caller = &mut self.callers[number as usize];
        let server = &self.servers[caller.server];
        let attached = server.attached;
        let limits = &self.plan.limits;
        let unsent = match error {
            DispatchError::CircuitOpen { .. } => {
                ensure!(step == Step::Arrive(number), "the breaker refused a call let in before");
                true
            }
            DispatchError::Unavailable { .. }
            | DispatchError::Paused { .. }
            | DispatchError::CrashLoop { .. }
            | DispatchError::Refused { .. } => true,
            DispatchError::PoolExhausted { holders, .. } => {
                ensure!(self.now >= caller.arrived + limits.pool_wait, "it waited too little");
                ensure!(holders.len() == self.alive.len(), "the holders are {holders:?}");
                true
            }
            DispatchError::Overloaded | DispatchError::NotJson => {
                ensure!(step == Step::Refuse(number), "nothing here is overloaded");
                true
            }
            DispatchError::TimedOut { sent, .. } => {
                if caller.on.is_some() {
                    ensure!(*sent, "it was under way");
                    ensure!(self.now >= caller.deadline, "timed out too early: {caller:?}");
                } else {
                    let soonest = limits.connect_timeout.min(caller.timeout).min(limits.pool_wait);
                    ensure!(
                        self.now >= (caller.arrived + soonest).min(caller.agreed),
                        "timed out too early: {caller:?}"
                    );
                }
                ensure!(!*sent || caller.sends > 0, "it was never sent");
                !*sent
            }
            DispatchError::OutcomeUnknown { .. } => {
                ensure!(caller.wrote, "the server cannot have seen it: {caller:?}");
                false
            }
            DispatchError::Cancelled => {
                let session_over = step == Step::RemoveAtOnce(caller.server);
                ensure!(step == Step::Cancel(number) || session_over, "nobody cancelled it");
                false
            }
            DispatchError::ShuttingDown { sent } => {
                ensure!(self.stopping, "nobody stopped it");
                !*sent
            }
            DispatchError::Removed => {
                ensure!(server.removed, "its server is still there");
                true
            }
        };
        if unsent {
            caller.said_unsent = true;
            ensure!(!caller.wrote, "told that it was not sent, by {error:?}: {caller:?}");
        }
        let waiting = caller.on.is_none();
        let again = caller.sends > 0;
        let end = match error {
            // An unresponsive process is replaced because of a call that timed out, which was charged; waiting calls
            // are not charged again.
            DispatchError::CrashLoop { .. } | DispatchError::Paused { .. } if self.ticking => {
                End::Neutral
            }
            DispatchError::Unavailable { .. }
            | DispatchError::Paused { .. }
            | DispatchError::Refused { .. }
            | DispatchError::OutcomeUnknown { .. }
            | DispatchError::CrashLoop { .. } => End::Failed,
            // Pending calls of a replaced process do not count against its replacement.
            DispatchError::TimedOut { .. } if caller.on.is_some() && caller.on != attached => {
                End::Neutral
            }
            DispatchError::TimedOut { .. } if caller.on.is_some() => End::TimedOut,
            DispatchError::TimedOut { .. } | DispatchError::PoolExhausted { .. }
                if caller.sends > 0 =>
            {
                End::TimedOutAgain
            }
            _ => End::Neutral,
        };
        if let Some(process) = caller.on.take() {
            ensure!(caller.abandoned, "its process still works for nobody: {caller:?}");
            self.processes[process].calls -= 1;
            self.servers[caller.server].waiting += 1;
        }
        self.sights.add(match error {
            DispatchError::CircuitOpen { .. } => "circuit open",
            DispatchError::Unavailable { .. } | DispatchError::Paused { .. } => "unavailable",
            DispatchError::Refused { .. } => "refused",
            DispatchError::CrashLoop { .. } => "crash loop",
            DispatchError::PoolExhausted { .. } => "pool exhausted",
            DispatchError::Overloaded | DispatchError::NotJson => "overloaded",
            DispatchError::TimedOut { .. } if waiting && again => {
                "timed out waiting to be sent again"
            }
            DispatchError::TimedOut { sent: false, .. } => "timed out before it was sent",
            DispatchError::TimedOut { sent: true, .. } => "timed out after it was sent",
            DispatchError::OutcomeUnknown { .. } => "outcome unknown",
            DispatchError::Cancelled if waiting => "cancelled while waiting",
            DispatchError::Cancelled => "cancelled under way",
            DispatchError::ShuttingDown { sent: false } => "shutting down before it was sent",
            DispatchError::ShuttingDown { sent: true } => "shutting down after it was sent",
            DispatchError::Removed => "removed",
        });
        let caller = &mut self.callers[number as usize];
        if caller.call.is_none() {
            // Rejected on arrival.
            ensure!(caller.ended.is_none(), "ended twice: {caller:?}");
            caller.ended = Some(self.now);
            return Ok(());
        }
        self.end(number, end)
    }

    pub(crate) fn end(&mut self, number: u32, end: End) -> Check {
        let caller = &mut self.callers[number as usize];
        ensure!(caller.ended.is_none(), "ended twice: {caller:?}");
        caller.ended = Some(self.now);
        self.servers[caller.server].waiting -= 1;
        self.open.retain(|&other| other != number);
        self.ended.push((number, end));
        Ok(())
    }

    /// The process on a connection that has not exited yet.
    pub(crate) fn on(&self, conn: ConnId) -> Result<usize, String> {
        let found = self.alive.iter().find(|&&process| self.processes[process].conn == conn);
        found.copied().ok_or_else(|| format!("there is no process on {conn:?}"))
    }

    // -- the record --

    fn note(&mut self, step: Step) {
        let at = u64::try_from(self.now.elapsed().as_micros()).unwrap_or(0);
        let (kind, number) = match step {
            Step::Arrive(number) => (10, u64::from(number)),
            Step::Cancel(number) => (11, u64::from(number)),
            Step::Refuse(number) => (12, u64::from(number)),
            Step::Connected(process) => (13, process as u64),
            Step::Lost { process, .. } => (14, process as u64),
            Step::Gone(process) => (15, process as u64),
            Step::Listed(process) => (16, process as u64),
            Step::Answered(number) => (17, u64::from(number)),
            Step::Change(server) => (18, server as u64),
            Step::Remove(server) => (19, server as u64),
            Step::RemoveAtOnce(server) => (27, server as u64),
            Step::Wake(server) => (20, server as u64),
            Step::Tick => (21, 0),
            Step::Nosy => (22, 0),
            Step::Add => (23, 0),
            Step::Stop => (24, 0),
            Step::StopNow => (25, 0),
            Step::Nothing => (26, 0),
        };
        self.mix(kind, number, at);
        if let Some(trace) = &mut self.trace
            && step != Step::Nosy
        {
            trace.push(format!("{:>12?}  {step:?}", self.now));
        }
    }

    fn mix(&mut self, kind: u64, first: u64, second: u64) {
        for word in [kind, first, second] {
            self.hash = (self.hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
        }
    }
}
