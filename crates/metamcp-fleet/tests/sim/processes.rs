//! Servers of one node: processes by instance and epoch, and what runs in them.

use std::collections::BTreeMap;

use metamcp_fleet::identity::{InstanceId, Stamp};
use metamcp_fleet::message::Part;
use metamcp_fleet::node::Run;

use crate::books::body;
use crate::plan::{Call, MS, SECOND};
use crate::world::{Event, View, World};

#[derive(Debug)]
struct Job {
    call: u64,
    next: u64,
    /// It asked the client something and waits.
    waits: bool,
}

#[derive(Debug, Default)]
struct Process {
    jobs: BTreeMap<Run, Job>,
    /// When it was told to end, and whether at once.
    ending: Option<(u64, bool)>,
}

#[derive(Debug, Default)]
pub(crate) struct Processes {
    of: BTreeMap<(InstanceId, Stamp), Process>,
}

impl Processes {
    pub(crate) fn remove(&mut self, instance: InstanceId, epoch: Stamp) {
        self.of.remove(&(instance, epoch));
    }

    pub(crate) fn abort(&mut self, run: &Run) {
        for process in self.of.values_mut() {
            process.jobs.remove(run);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Processes that have not been told to end.
    pub(crate) fn acting(&self) -> impl Iterator<Item = (InstanceId, Stamp)> {
        let acting = self.of.iter().filter(|(_, process)| process.ending.is_none());
        acting.map(|((instance, epoch), _)| (*instance, *epoch))
    }
}

/// The kind of a part, by its number.
fn part(call: u64, plan: &Call, index: u64) -> Part<u64> {
    let body = body(call, index);
    if index == plan.parts {
        Part::Last(body)
    } else if plan.asks == Some(index) {
        Part::Request(body)
    } else if index.is_multiple_of(3) {
        Part::Notification(body)
    } else {
        Part::Chunk(body)
    }
}

impl World {
    /// The engine hands a call to the process.
    pub(crate) fn run_call(
        &mut self,
        slot: usize,
        run: Run,
        (instance, epoch): (InstanceId, Stamp),
        body: u64,
        view: View,
    ) -> Result<(), String> {
        let now = self.now(slot);
        let me = self.slots[slot].me.clone();
        if view == View::Stale {
            self.books.sights.stale_acts += 1;
        } else if !self.slots[slot].node.may_act(instance, epoch, now) {
            if view == View::Fresh {
                return Err(format!("{me:?} decides to act under {epoch:?} without a lease"));
            }
            self.books.sights.not_acted += 1;
            return Ok(());
        } else {
            self.holds(slot, instance, epoch)?;
        }
        self.books.acts(&me, instance, epoch)?;
        let labelled = self.plan.labelled.map(|index| self.plan.instances[index]);
        if labelled == Some(instance) && !self.slots[slot].name.is_multiple_of(2) {
            return Err(format!("{me:?} runs what it has no label for"));
        }
        match &run {
            Run::Ours { .. } => self.books.sights.local += 1,
            Run::Foreign(_) => self.books.sights.foreign += 1,
        }
        let call = body / 1000;
        self.books.executed(call)?;
        let pace = self.books.calls[&call].plan.pace;
        self.is_alone(slot, instance, epoch)?;
        let process = self.slots[slot].processes.of.entry((instance, epoch)).or_default();
        process.jobs.insert(run.clone(), Job { call, next: 0, waits: false });
        self.after(pace, Event::Speak { slot, instance, epoch, run });
        Ok(())
    }

    /// The bus holds the instance for whoever acts, by its own clock, at this very moment.
    pub(crate) fn holds(
        &self,
        slot: usize,
        instance: InstanceId,
        epoch: Stamp,
    ) -> Result<(), String> {
        let holder = self.bus.holder(instance, self.t);
        // What was owned when the bus lost everything may go on, as long as nobody else may act. There may be a key: of a
        // claim by somebody who had not heard of the loss, and will not count it.
        let is_forgotten = !self.bus.is_ready && epoch.bucket < self.bus.bucket;
        let is_too_new = !self.bus.is_ready && epoch.bucket == self.bus.bucket;
        if (holder == Some(epoch) && !is_too_new) || is_forgotten {
            return Ok(());
        }
        let me = &self.slots[slot].me;
        Err(format!("{me:?} acts for {instance:?} under {epoch:?}, the bus has {holder:?}"))
    }

    /// No other process of the instance is left, but for one that a node lost and is ending, or that sleeps with its node.
    fn is_alone(&self, slot: usize, instance: InstanceId, epoch: Stamp) -> Result<(), String> {
        for (other, this) in self.slots.iter().enumerate().filter(|(_, this)| this.is_alive) {
            let is_asleep = this.paused_until > self.t
                || this.has_backlog()
                || this.resumed_at + SECOND > self.t;
            for ((of, old), process) in &this.processes.of {
                let is_same = *of != instance || (other == slot && *old == epoch);
                let is_lost = process.ending.is_some_and(|(_, at_once)| at_once);
                if !is_same && !is_lost && !is_asleep && epoch > *old {
                    return Err(format!(
                        "{:?} still has the process of {old:?} for {instance:?}",
                        this.me
                    ));
                }
            }
        }
        Ok(())
    }

    pub(crate) fn speak(
        &mut self,
        slot: usize,
        instance: InstanceId,
        epoch: Stamp,
        run: Run,
    ) -> Result<(), String> {
        let Some(process) = self.slots[slot].processes.of.get_mut(&(instance, epoch)) else {
            return Ok(());
        };
        let Some(job) = process.jobs.get_mut(&run) else { return Ok(()) };
        if job.waits {
            return Ok(());
        }
        let plan = self.books.calls[&job.call].plan;
        let part = part(job.call, &plan, job.next);
        job.next += 1;
        job.waits = matches!(part, Part::Request(_));
        let is_over = part.is_last();
        if is_over {
            process.jobs.remove(&run);
        }
        let now = self.now(slot);
        self.slots[slot].node.output(&run, part, now);
        if !is_over {
            self.after(plan.pace + MS, Event::Speak { slot, instance, epoch, run });
        }
        self.act(slot)
    }

    /// The client's answer reaches the process that asked.
    pub(crate) fn input_to_process(
        &mut self,
        slot: usize,
        run: &Run,
        body: u64,
    ) -> Result<(), String> {
        let mut found = None;
        for ((instance, epoch), process) in &mut self.slots[slot].processes.of {
            if let Some(job) = process.jobs.get_mut(run) {
                if body != crate::books::body(job.call, job.next - 1) {
                    return Err(format!(
                        "the answer {body} came to part {} of {}",
                        job.next - 1,
                        job.call
                    ));
                }
                job.waits = false;
                found = Some((*instance, *epoch));
            }
        }
        if let Some((instance, epoch)) = found {
            self.after(MS, Event::Speak { slot, instance, epoch, run: run.clone() });
        }
        Ok(())
    }

    pub(crate) fn end_process(
        &mut self,
        slot: usize,
        instance: InstanceId,
        epoch: Stamp,
        at_once: bool,
    ) {
        if at_once {
            self.books.sights.fenced += 1;
        } else {
            self.books.sights.closed += 1;
        }
        let t = self.t;
        let process = self.slots[slot].processes.of.get_mut(&(instance, epoch));
        let takes = match (process, at_once) {
            (None, _) => 0,
            (Some(process), at_once) => {
                process.ending.get_or_insert((t, at_once));
                self.rng.below(if at_once { 300 } else { 1000 }) * MS
            }
        };
        self.after(takes, Event::Ended { slot, instance, epoch });
    }
}
