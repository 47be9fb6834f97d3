//! What nodes do: their effects, carried out with delays and losses, and with pauses in the middle.

use metamcp_fleet::identity::{InstanceId, NodeRef};
use metamcp_fleet::lease::{self, Entry};
use metamcp_fleet::message::Message;
use metamcp_fleet::node::Effect;

use crate::bus::Write;
use crate::plan::{MS, SECOND};
use crate::world::{Event, Slot, View, World};

impl World {
    /// Carries out what the node wants done.
    pub(crate) fn act(&mut self, slot: usize) -> Result<(), String> {
        let effects = self.slots[slot].node.effects();
        self.carry_out(slot, effects, false)
    }

    pub(crate) fn carry_out(
        &mut self,
        slot: usize,
        effects: Vec<Effect<u64>>,
        is_late: bool,
    ) -> Result<(), String> {
        let mut effects = effects.into_iter();
        // Of what was decided before a pause, one thing is done without another look at the clock.
        let mut view = if is_late { View::Stale } else { View::Fresh };
        while let Some(effect) = effects.next() {
            if self.plan.stumbles > 0
                && !self.finishing
                && view != View::Stale
                && self.rng.below(100_000) < self.plan.stumbles
            {
                // The process is stopped between two lines of code, with the next thing decided and not done.
                let length = self.rng.span(50, 12_000).as_micros() as u64;
                self.pause(slot, length);
                let until = self.slots[slot].paused_until;
                let this = &mut self.slots[slot];
                this.backlog.push(effect);
                this.backlog.extend(effects);
                self.at(until, Event::Resume { slot });
                return Ok(());
            }
            self.effect(slot, effect, view)?;
            if is_late {
                view = View::LookedAgain;
            }
        }
        Ok(())
    }

    pub(crate) fn pause(&mut self, slot: usize, length: u64) {
        self.books.sights.pauses += 1;
        let me = self.slots[slot].me.clone();
        self.tell(|| format!("{me:?} is stopped for {} ms", length / MS));
        let until = self.slots[slot].paused_until.max(self.t + length);
        self.slots[slot].paused_until = until;
        self.slots[slot].resumed_at = until;
    }

    fn effect(&mut self, slot: usize, effect: Effect<u64>, view: View) -> Result<(), String> {
        let me = self.slots[slot].me.clone();
        if !matches!(effect, Effect::Broadcast(_) | Effect::Send { .. }) {
            self.tell(|| format!("{me:?} {effect:?}"));
        }
        match effect {
            Effect::Lease { instance, effect } => self.lease_effect(slot, instance, &effect),
            Effect::MarkReady => {
                if self.sends(slot) {
                    let bucket = self.bus.bucket;
                    let delay = self.delay();
                    self.after(delay, Event::MarkReady { slot, bucket });
                }
            }
            Effect::Broadcast(heartbeat) => {
                for to in 0..self.slots.len() {
                    if to != slot && self.slots[to].is_alive && !self.slots[to].is_unsubscribed {
                        self.transmit(slot, to, Message::Heartbeat(heartbeat.clone()));
                    }
                }
            }
            Effect::Send { to, message } => self.send(slot, &to, message),
            Effect::Run { run, instance, epoch, body } => {
                self.run_call(slot, run, (instance, epoch), body, view)?;
            }
            Effect::Input { run, body } => self.input_to_process(slot, &run, body)?,
            Effect::Abort { run } => self.slots[slot].processes.abort(&run),
            Effect::Part { call, rerun, part } => self.client_hears(slot, call.0, rerun, &part)?,
            Effect::Discard { call } => self.books.discard(call.0),
            Effect::Verdict { call, verdict } => self.books.verdict(call.0, verdict)?,
            Effect::Ignored { .. } => self.books.sights.ignored += 1,
        }
        Ok(())
    }

    fn lease_effect(&mut self, slot: usize, instance: InstanceId, effect: &lease::Effect) {
        use lease::Effect as Lease;
        let owner = self.slots[slot].me.clone();
        let (attempt, write) = match *effect {
            Lease::Claim { attempt } => {
                (attempt, Write::Claim { entry: Entry { owner, attempt, epoch: None } })
            }
            Lease::Renew { attempt, over, epoch } => {
                let entry = Entry { owner, attempt, epoch: Some(epoch) };
                (attempt, Write::Renew { entry, over })
            }
            Lease::Delete { attempt, over } => (attempt, Write::Delete { over }),
            Lease::Look { attempt } => {
                if self.sends(slot) {
                    let delay = self.delay();
                    self.after(delay, Event::Look { slot, instance, attempt });
                }
                return;
            }
            Lease::End { epoch, at_once } => {
                self.end_process(slot, instance, epoch, at_once);
                return;
            }
        };
        if self.sends(slot) && !self.is_lost() {
            let late = self.lateness(6 * SECOND);
            let delay = self.delay() + late;
            self.after(delay, Event::Write { slot, instance, attempt, write });
        }
    }

    fn send(&mut self, slot: usize, to: &NodeRef, message: Message<u64>) {
        let number = match &message {
            Message::Call { number, .. } => Some(*number),
            _ => None,
        };
        if let Some(number) = number {
            self.books.sights.resent += u64::from(!self.published.insert((slot, number)));
        }
        let is_there = |other: &Slot| other.is_alive && !other.is_unsubscribed && other.me == *to;
        let found = self.slots.iter().position(is_there).filter(|other| self.hears(*other));
        match (found, number) {
            (Some(other), _) => self.transmit(slot, other, message),
            // The bus says that nobody is there, where it can; we know it ourselves where we know that we are cut off.
            (None, Some(number))
                if self.hears(slot) && (self.sends(slot) || self.slots[slot].knows_cut) =>
            {
                let delay = self.delay();
                self.after(delay, Event::NotDelivered { slot, number });
            }
            _ => {}
        }
    }

    fn transmit(&mut self, from: usize, to: usize, message: Message<u64>) {
        if !self.sends(from) || self.is_lost() {
            return;
        }
        let doubled = self.plan.doubled;
        let from = self.slots[from].me.clone();
        let is_heartbeat = matches!(message, Message::Heartbeat(_));
        if doubled > 0 && !self.finishing && !is_heartbeat && self.rng.chance(doubled) {
            let delay = self.delay() + self.rng.span(1, 20_000).as_micros() as u64;
            let (from, message) = (from.clone(), message.clone());
            self.after(delay, Event::Hear { slot: to, from, message });
        }
        let delay = self.delay();
        self.after(delay, Event::Hear { slot: to, from, message });
    }
}
