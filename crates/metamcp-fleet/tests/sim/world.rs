//! The world of one seed: nodes with clocks of their own, links, clients; what they do to each other, in true time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use metamcp_fleet::directory::{About, Labels, PROTOCOL};
use metamcp_fleet::identity::{InstanceId, NodeName, NodeRef, Stamp};
use metamcp_fleet::lease::{Answer, Entry};
use metamcp_fleet::message::{Message, Part};
use metamcp_fleet::node::{CallId, Effect, Node, Readiness, Request, Run};
use metamcp_fleet::placement::Requirements;
use metamcp_fleet::timing::Timing;
use metamcp_types::moment::Moment;

use crate::books::{Books, body};
use crate::bus::{Bus, Write};
use crate::plan::{Fault, MS, Plan, SECOND};
use crate::processes::Processes;
use crate::rng::Rng;

/// A run that takes more events than this does not end by itself.
const MAX_EVENTS: u64 = 400_000;
const TICK: u64 = 100 * MS;
const SWEEP: u64 = 250 * MS;

#[derive(Debug, Clone)]
pub(crate) enum Event {
    Tick {
        slot: usize,
    },
    /// Goes on with what it was about to do when it was paused.
    Resume {
        slot: usize,
    },
    /// At the bus.
    Write {
        slot: usize,
        instance: InstanceId,
        attempt: u64,
        write: Write,
    },
    Look {
        slot: usize,
        instance: InstanceId,
        attempt: u64,
    },
    MarkReady {
        slot: usize,
        bucket: u64,
    },
    Sweep,
    /// At a node.
    Answer {
        slot: usize,
        instance: InstanceId,
        attempt: u64,
        answer: Answer,
    },
    Entry {
        slot: usize,
        instance: InstanceId,
        revision: Stamp,
        entry: Option<Entry>,
    },
    Absent {
        slot: usize,
        instance: InstanceId,
        attempt: u64,
    },
    Bucket {
        slot: usize,
        bucket: u64,
        is_ready: bool,
    },
    Hear {
        slot: usize,
        from: NodeRef,
        message: Message<u64>,
    },
    NotDelivered {
        slot: usize,
        number: u64,
    },
    LinkDown {
        slot: usize,
    },
    LinkUp {
        slot: usize,
        outward: bool,
        inward: bool,
    },
    /// At a process.
    Speak {
        slot: usize,
        instance: InstanceId,
        epoch: Stamp,
        run: Run,
    },
    Ended {
        slot: usize,
        instance: InstanceId,
        epoch: Stamp,
    },
    /// Of clients and operators.
    Call {
        id: u64,
    },
    Cancel {
        slot: usize,
        id: u64,
    },
    Input {
        slot: usize,
        id: u64,
        rerun: u32,
        body: u64,
    },
    Fault(Fault),
    Start {
        name: usize,
    },
    Stop {
        slot: usize,
    },
    CheckDeath {
        slot: usize,
        call: u64,
        owner: NodeRef,
    },
    Finish,
}

/// What a node that acts knows of its lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// It has just decided.
    Fresh,
    /// It looked at the clock, was stopped, and acts.
    Stale,
    /// It had decided before it was stopped, and looks at the clock once more.
    LookedAgain,
}

pub(crate) struct Slot {
    pub(crate) node: Node<u64>,
    pub(crate) me: NodeRef,
    pub(crate) name: usize,
    pub(crate) is_alive: bool,
    rate: u64,
    born: u64,
    pub(crate) paused_until: u64,
    pub(crate) backlog: Vec<Effect<u64>>,
    /// Broken directions of its link, counted, because cuts overlap.
    pub(crate) cut_out: u32,
    pub(crate) cut_in: u32,
    pub(crate) knows_cut: bool,
    pub(crate) is_upgrading: bool,
    pub(crate) is_unsubscribed: bool,
    pub(crate) processes: Processes,
    /// When it last went on after a pause, and when it last did something it had decided before one.
    pub(crate) resumed_at: u64,
    pub(crate) stale_since: Option<u64>,
}

impl Slot {
    pub(crate) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) rng: Rng,
    pub(crate) t: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    /// By sequence number, taken when they happen.
    events: Vec<Option<Event>>,
    pub(crate) bus: Bus,
    pub(crate) slots: Vec<Slot>,
    pub(crate) books: Books,
    /// At which process of a node each call was made.
    pub(crate) at_slot: BTreeMap<u64, usize>,
    /// Calls that were published, by process and number.
    pub(crate) published: BTreeSet<(usize, u64)>,
    pub(crate) finishing: bool,
    pub(crate) finish_at: u64,
    /// Who stops does not come back.
    pub(crate) closing: bool,
    /// Since the bus lost what it held.
    pub(crate) amnesia_at: u64,
    pub(crate) story: Option<Vec<String>>,
    pub(crate) handled: u64,
}

impl World {
    pub(crate) fn new(seed: u64, telling: bool) -> World {
        let plan = Plan::new(seed);
        let bus = Bus {
            bucket: 1,
            revision: 0,
            is_ready: true,
            keys: BTreeMap::new(),
            rate: plan.bus_rate,
            offset: 0,
            down_until: 0,
            ttl: (plan.ttl_ms * MS) as i64,
        };
        World {
            plan,
            rng: Rng::of(seed, 2, 0),
            t: 0,
            queue: BinaryHeap::new(),
            events: Vec::new(),
            bus,
            slots: Vec::new(),
            books: Books::default(),
            at_slot: BTreeMap::new(),
            published: BTreeSet::new(),
            finishing: false,
            finish_at: 0,
            closing: false,
            amnesia_at: 0,
            story: telling.then(Vec::new),
            handled: 0,
        }
    }

    pub(crate) fn tell(&mut self, words: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            let line = format!("{:>9.3} {}", self.t as f64 / 1e6, words());
            story.push(line);
        }
    }

    pub(crate) fn at(&mut self, t: u64, event: Event) {
        self.queue.push(Reverse((t, self.events.len() as u64)));
        self.events.push(Some(event));
    }

    pub(crate) fn after(&mut self, delay: u64, event: Event) {
        self.at(self.t + delay, event);
    }

    pub(crate) fn run(&mut self) -> Result<(), String> {
        for name in 0..self.plan.nodes {
            self.start(name);
        }
        for (id, call) in self.plan.calls.clone().into_iter().enumerate() {
            self.at(call.at + SECOND, Event::Call { id: id as u64 });
        }
        for (at, fault) in self.plan.faults.clone() {
            self.at(at + SECOND, Event::Fault(fault));
        }
        self.at(0, Event::Sweep);
        let end = self.plan.end + SECOND;
        self.at(end, Event::Finish);
        while let Some(Reverse((t, sequence))) = self.queue.pop() {
            self.t = t;
            self.handled += 1;
            if self.handled > MAX_EVENTS {
                return Err("it does not end".into());
            }
            let Some(event) = self.events[sequence as usize].take() else { continue };
            if let Some(slot) = at_node(&event) {
                if !self.slots[slot].is_alive {
                    continue;
                }
                if self.slots[slot].paused_until > t {
                    let until = self.slots[slot].paused_until;
                    self.at(until, event);
                    continue;
                }
                if !self.slots[slot].backlog.is_empty() && !matches!(event, Event::Resume { .. }) {
                    // What was decided comes first.
                    self.at(t, Event::Resume { slot });
                    self.at(t, event);
                    continue;
                }
            }
            if self.finishing && self.is_over() {
                return self.close();
            }
            self.handle(event)?;
        }
        Err("nothing happens any more, and it is not over".into())
    }

    pub(crate) fn now(&self, slot: usize) -> Moment {
        let slot = &self.slots[slot];
        let local = (self.t - slot.born) * slot.rate / 1_000_000;
        Moment::after_start(Duration::from_micros(SECOND + local))
    }

    pub(crate) fn start(&mut self, name: usize) {
        let incarnation = self.bus.stamp();
        let text = format!("n{name}");
        let me = NodeRef { name: NodeName::parse(&text).expect("it is one token"), incarnation };
        let labels: Labels = if name.is_multiple_of(2) {
            [("gpu".into(), "true".into())].into()
        } else {
            Labels::new()
        };
        let about = About { protocol: PROTOCOL, labels, capacity: 16 };
        let placing = Duration::from_secs(20);
        let ttl = Duration::from_millis(self.plan.ttl_ms);
        let timing = Timing { ttl, placing, ..Timing::default() };
        let first = Moment::after_start(Duration::from_micros(SECOND));
        let node = Node::new(me.clone(), about, self.plan.limits, timing, first);
        self.tell(|| format!("{me:?} starts"));
        self.slots.push(Slot {
            node,
            me,
            name,
            is_alive: true,
            rate: self.plan.rates[name],
            born: self.t,
            paused_until: 0,
            backlog: Vec::new(),
            cut_out: 0,
            cut_in: 0,
            knows_cut: false,
            is_upgrading: false,
            is_unsubscribed: false,
            processes: Processes::default(),
            resumed_at: 0,
            stale_since: None,
        });
        let slot = self.slots.len() - 1;
        self.greet(slot);
        self.after(0, Event::Tick { slot });
    }

    /// What a node hears of the bus when it reaches it.
    fn greet(&mut self, slot: usize) {
        let (bucket, is_ready) = (self.bus.bucket, self.bus.is_ready);
        let delay = self.delay();
        self.after(delay, Event::Bucket { slot, bucket, is_ready });
        let keys = self.bus.keys.iter();
        let entries: Vec<_> =
            keys.map(|(id, key)| (*id, key.revision, key.entry.clone())).collect();
        for (instance, revision, entry) in entries {
            let revision = Stamp { bucket, revision };
            let event = Event::Entry { slot, instance, revision, entry: Some(entry) };
            let more = self.rng.below(20 * MS);
            self.after(delay + more, event);
        }
    }

    /// How long something is under way.
    pub(crate) fn delay(&mut self) -> u64 {
        let slowest = self.plan.slowest;
        300 + self.rng.below(slowest)
    }

    /// Now and then, something takes much longer.
    pub(crate) fn lateness(&mut self, most: u64) -> u64 {
        let is_late = self.plan.late > 0 && !self.finishing && self.rng.chance(self.plan.late);
        if is_late { self.rng.below(most) } else { 0 }
    }

    pub(crate) fn sends(&self, slot: usize) -> bool {
        self.slots[slot].cut_out == 0
    }

    pub(crate) fn hears(&self, slot: usize) -> bool {
        self.slots[slot].cut_in == 0
    }

    pub(crate) fn is_lost(&mut self) -> bool {
        let lost = self.plan.lost;
        !self.finishing && lost > 0 && self.rng.chance(lost)
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Tick { slot } => {
                let now = self.now(slot);
                self.slots[slot].node.tick(now);
                self.act(slot)?;
                let this = &mut self.slots[slot];
                if this.is_upgrading && !this.is_unsubscribed && this.node.is_idle() {
                    // From now on the bus says that nobody is there; what was under way still arrives.
                    this.is_unsubscribed = true;
                    let lasts = self.plan.slowest + MS;
                    self.after(lasts, Event::Stop { slot });
                }
                self.after(TICK, Event::Tick { slot });
            }
            Event::Resume { slot } => {
                let backlog = std::mem::take(&mut self.slots[slot].backlog);
                self.slots[slot].stale_since = Some(self.t);
                self.carry_out(slot, backlog, true)?;
            }
            Event::Write { slot, instance, attempt, write } => {
                self.written(slot, instance, attempt, &write);
            }
            Event::Look { slot, instance, attempt } => {
                if self.t < self.bus.down_until || self.is_lost() {
                    return Ok(());
                }
                let bucket = self.bus.bucket;
                let found =
                    self.bus.keys.get(&instance).filter(|key| self.bus.is_live(key, self.t));
                let event = match found {
                    Some(key) => {
                        let revision = Stamp { bucket, revision: key.revision };
                        Event::Entry { slot, instance, revision, entry: Some(key.entry.clone()) }
                    }
                    None => Event::Absent { slot, instance, attempt },
                };
                let delay = self.delay();
                self.after(delay, event);
            }
            Event::MarkReady { slot, bucket } => {
                let _ = slot;
                if bucket == self.bus.bucket && self.t >= self.bus.down_until && !self.bus.is_ready
                {
                    self.bus.is_ready = true;
                    self.books.sights.marked += 1;
                    self.tell_bucket();
                }
            }
            Event::Sweep => {
                let over = self.bus.sweep(self.t);
                for instance in over {
                    // Whether a bus tells of it depends on its version.
                    if self.rng.chance(700) {
                        let revision = self.bus.stamp();
                        self.show(instance, revision, None);
                    }
                }
                self.check()?;
                self.after(SWEEP, Event::Sweep);
            }
            Event::Answer { slot, instance, attempt, answer } => {
                if self.hears(slot) {
                    let now = self.now(slot);
                    self.slots[slot].node.answered(instance, attempt, answer, now);
                    self.act(slot)?;
                }
            }
            Event::Entry { slot, instance, revision, entry } => {
                if self.hears(slot) {
                    let now = self.now(slot);
                    self.slots[slot].node.entry(instance, revision, entry, now);
                    self.act(slot)?;
                }
            }
            Event::Absent { slot, instance, attempt } => {
                if self.hears(slot) {
                    let now = self.now(slot);
                    self.slots[slot].node.absent(instance, attempt, now);
                    self.act(slot)?;
                }
            }
            Event::Bucket { slot, bucket, is_ready } => {
                // Older news than what it knows is the engine's to drop: it asks when it connects.
                if self.hears(slot) && bucket == self.bus.bucket {
                    let now = self.now(slot);
                    self.slots[slot].node.bucket(bucket, is_ready, now);
                    self.act(slot)?;
                }
            }
            Event::Hear { slot, from, message } => {
                if self.hears(slot) {
                    let now = self.now(slot);
                    self.tell_message(slot, &from, &message);
                    self.slots[slot].node.heard(&from, message, now);
                    self.act(slot)?;
                }
            }
            Event::NotDelivered { slot, number } => {
                let now = self.now(slot);
                self.books.sights.undelivered += 1;
                self.slots[slot].node.not_delivered(number, now);
                self.act(slot)?;
            }
            Event::LinkDown { slot } => {
                if !self.sends(slot) || !self.hears(slot) {
                    self.slots[slot].knows_cut = true;
                    self.slots[slot].node.bus_lost();
                    self.says_no_bus(slot)?;
                }
            }
            Event::LinkUp { slot, outward, inward } => self.link_up(slot, outward, inward)?,
            Event::Speak { slot, instance, epoch, run } => {
                self.speak(slot, instance, epoch, run)?;
            }
            Event::Ended { slot, instance, epoch } => {
                self.tell(|| format!("process of {instance:?} {epoch:?} has ended"));
                let now = self.now(slot);
                self.slots[slot].processes.remove(instance, epoch);
                self.slots[slot].node.ended(instance, epoch, now);
                self.act(slot)?;
            }
            Event::Call { id } => self.call(id)?,
            Event::Cancel { slot, id } => self.cancel(slot, id)?,
            Event::Input { slot, id, rerun, body } => {
                let now = self.now(slot);
                self.books.sights.inputs += 1;
                self.slots[slot].node.input(CallId(id), rerun, body, now);
                self.act(slot)?;
            }
            Event::Fault(fault) => self.fault(fault)?,
            Event::Stop { slot } => self.stop(slot),
            Event::Start { name } => self.start(name),
            Event::CheckDeath { slot, call, owner } => {
                let has_slept = self.slots[slot].resumed_at + 2 * SECOND > self.t;
                if !has_slept && self.slots[slot].node.owner_of(CallId(call)) == Some(&owner) {
                    return Err(format!("call {call} waits for {owner:?}, which died 2 s ago"));
                }
                self.books.sights.deaths_checked += 1;
            }
            Event::Finish => self.finish()?,
        }
        Ok(())
    }

    fn written(&mut self, slot: usize, instance: InstanceId, attempt: u64, write: &Write) {
        if self.t < self.bus.down_until {
            return;
        }
        let (answer, shown) = self.bus.write(instance, write.clone(), self.t);
        self.tell(|| format!("bus: {write:?} of {attempt}: {answer:?}"));
        if let Some((stamp, entry)) = shown {
            self.books.sights.claims += u64::from(matches!(write, Write::Claim { .. }));
            self.show(instance, stamp, entry.as_ref());
        } else {
            self.books.sights.conflicts += 1;
        }
        if !self.is_lost() {
            let delay = self.delay() + self.lateness(3 * SECOND);
            self.after(delay, Event::Answer { slot, instance, attempt, answer });
        }
    }

    /// A node without its bus says so, and until when it serves what it owns.
    fn says_no_bus(&self, slot: usize) -> Result<(), String> {
        let node = &self.slots[slot].node;
        let now = self.now(slot);
        let serves = |instance: &InstanceId| node.serving(*instance, now).is_some();
        let serves = self.plan.instances.iter().any(serves);
        match node.readiness() {
            Readiness::NoBus { until } if until.is_some_and(|until| until > now) || !serves => {
                Ok(())
            }
            Readiness::Draining | Readiness::Superseded => Ok(()),
            other => Err(format!("it has no bus, serves: {serves}, and says {other:?}")),
        }
    }

    /// The watch of every node.
    fn show(&mut self, instance: InstanceId, revision: Stamp, entry: Option<&Entry>) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_alive && self.hears(slot) {
                let delay = self.delay();
                let entry = entry.cloned();
                self.after(delay, Event::Entry { slot, instance, revision, entry });
            }
        }
    }

    pub(crate) fn tell_bucket(&mut self) {
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_alive && self.hears(slot) {
                let delay = self.delay() * 5;
                let (bucket, is_ready) = (self.bus.bucket, self.bus.is_ready);
                self.after(delay, Event::Bucket { slot, bucket, is_ready });
            }
        }
    }

    fn link_up(&mut self, slot: usize, outward: bool, inward: bool) -> Result<(), String> {
        let this = &mut self.slots[slot];
        this.cut_out -= u32::from(outward);
        this.cut_in -= u32::from(inward);
        if this.cut_out == 0 && this.cut_in == 0 {
            this.knows_cut = false;
            self.greet(slot);
            let now = self.now(slot);
            self.slots[slot].node.bus_back(now);
            self.act(slot)?;
        }
        Ok(())
    }

    pub(crate) fn cut(&mut self, slot: usize, outward: bool, inward: bool, length: u64) {
        self.slots[slot].cut_out += u32::from(outward);
        self.slots[slot].cut_in += u32::from(inward);
        let notices = self.rng.span(50, 3000).as_micros() as u64;
        self.after(notices, Event::LinkDown { slot });
        self.after(length, Event::LinkUp { slot, outward, inward });
    }

    fn call(&mut self, id: u64) -> Result<(), String> {
        let call = self.plan.calls[id as usize];
        let is_taken = |slot: &Slot| slot.is_alive && slot.name == call.node && !slot.is_upgrading;
        let taken = self.slots.iter().rposition(is_taken);
        let Some(slot) = taken
            .or_else(|| self.slots.iter().position(|slot| slot.is_alive && !slot.is_unsubscribed))
        else {
            return Ok(());
        };
        if self.slots[slot].paused_until > self.t {
            let until = self.slots[slot].paused_until;
            self.at(until, Event::Call { id });
            return Ok(());
        }
        let requirements = self.requirements(call.instance);
        let request = Request {
            instance: self.plan.instances[call.instance],
            requirements,
            is_harmless: call.is_harmless,
            body: body(id, 0),
        };
        self.tell(|| format!("call {id} at slot {slot}: {call:?}"));
        self.books.begin(id, call);
        self.at_slot.insert(id, slot);
        let now = self.now(slot);
        self.slots[slot].node.call(CallId(id), request, now);
        if let Some(delay) = call.cancel_after {
            self.after(delay, Event::Cancel { slot, id });
        }
        self.act(slot)
    }

    /// What an instance, by its place in the plan, requires.
    pub(crate) fn requirements(&self, instance: usize) -> Arc<Requirements> {
        let mut requirements = Requirements::default();
        if self.plan.labelled == Some(instance) {
            requirements.labels.insert("gpu".into(), "true".into());
        }
        Arc::new(requirements)
    }

    /// The client gets a part, and answers if it is asked something.
    pub(crate) fn client_hears(
        &mut self,
        slot: usize,
        id: u64,
        rerun: u32,
        part: &Part<u64>,
    ) -> Result<(), String> {
        self.books.part(id, part)?;
        if let Part::Request(body) = part {
            let delay = self.rng.span(1, 3000).as_micros() as u64;
            self.after(delay, Event::Input { slot, id, rerun, body: *body });
        }
        Ok(())
    }

    fn tell_message(&mut self, slot: usize, from: &NodeRef, message: &Message<u64>) {
        let sights = &mut self.books.sights;
        match message {
            Message::Heartbeat(_) => return,
            Message::Refused { .. } => sights.refused += 1,
            Message::Forgotten { .. } => sights.forgotten += 1,
            Message::Declined { .. } => sights.declined += 1,
            _ => {}
        }
        let me = self.slots[slot].me.clone();
        self.tell(|| format!("{me:?} hears {from:?}: {message:?}"));
    }

    fn cancel(&mut self, slot: usize, id: u64) -> Result<(), String> {
        let Some(call) = self.books.calls.get_mut(&id) else { return Ok(()) };
        if call.verdict.is_none() {
            // A verdict may wait in the backlog of a pause; the client then hears it.
            let pending = self.slots[slot].backlog.iter();
            let is_decided = |effect: &Effect<u64>| matches!(effect, Effect::Verdict { call, .. } if call.0 == id);
            if pending.into_iter().any(is_decided) {
                return Ok(());
            }
            call.is_cancelled = true;
            self.books.sights.cancelled += 1;
            let now = self.now(slot);
            self.slots[slot].node.cancel(CallId(id), now);
            self.act(slot)?;
        }
        Ok(())
    }
}

/// The node whose process has to run for this to happen.
fn at_node(event: &Event) -> Option<usize> {
    match event {
        Event::Tick { slot }
        | Event::Resume { slot }
        | Event::Answer { slot, .. }
        | Event::Entry { slot, .. }
        | Event::Absent { slot, .. }
        | Event::Bucket { slot, .. }
        | Event::Hear { slot, .. }
        | Event::NotDelivered { slot, .. }
        | Event::LinkDown { slot }
        | Event::LinkUp { slot, .. }
        | Event::Speak { slot, .. }
        | Event::Ended { slot, .. }
        | Event::Cancel { slot, .. }
        | Event::Stop { slot }
        | Event::Input { slot, .. }
        | Event::CheckDeath { slot, .. } => Some(*slot),
        _ => None,
    }
}
