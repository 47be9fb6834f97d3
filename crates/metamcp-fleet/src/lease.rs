//! Who owns a server instance: one node at a time, by a key of the bus with compare-and-set and a time to live.
//! Owns: this node's part in one key: its claim, its renewals, when it stops, what it leaves behind.      Never: reads a clock, trusts one of another node.
//! In: entries of the key, answers of the bus, the time by our own clock.  Out: `Effect`s, the epoch this node may act under.
//! Tests: `lease/tests.rs`, `tests/sim.rs`.
//!
//! The bus alone counts the time to live, from the moment it took a write. A holder counts from before it sent that write
//! and stops earlier by a margin, so it has stopped when the bus lets the key go, whatever happened in between. The epoch
//! is the revision by which the bus took the claim: it is greater than that of any earlier owner, needs no second key, and
//! is known to whoever sees the entry. A lease that was lost is not revived, even if the bus still has it.

use metamcp_types::moment::Moment;
use serde::{Deserialize, Serialize};

use crate::identity::{NodeRef, Stamp};
use crate::timing::{BUS_ANSWER, RETRY, Timing};

/// What the key of an instance holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub owner: NodeRef,
    /// Which write of that owner made it, so that it recognizes its own even if the bus's answer was lost.
    pub attempt: u64,
    /// The revision of the claim; none in the claim itself, which cannot know it.
    pub epoch: Option<Stamp>,
}

/// What the bus said to a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Done(Stamp),
    /// The key was not as expected, or, for a claim, there was one.
    Conflict,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Write an entry if there is none.
    Claim { attempt: u64 },
    /// Write it again over that revision.
    Renew { attempt: u64, over: Stamp, epoch: Stamp },
    /// Delete it, if it still has that revision.
    Delete { attempt: u64, over: Stamp },
    /// Read it, not from the watch.
    Look { attempt: u64 },
    /// End the process of that epoch: `at_once` if we may not act for it any more.
    End { epoch: Stamp, at_once: bool },
}

/// What a step of the machine needs.
#[derive(Debug)]
pub struct Context<'a> {
    pub me: &'a NodeRef,
    pub timing: &'a Timing,
    pub now: Moment,
    /// Counts the writes of this process, over all leases.
    pub attempts: &'a mut u64,
    pub effects: &'a mut Vec<Effect>,
}

impl Context<'_> {
    fn attempt(&mut self) -> u64 {
        *self.attempts += 1;
        *self.attempts
    }
}

#[derive(Debug)]
struct Held {
    entry: Entry,
    revision: Stamp,
    seen: Moment,
}

#[derive(Debug)]
struct Owning {
    epoch: Stamp,
    revision: Stamp,
    good_until: Moment,
    /// The renewal under way, and when it was sent.
    renewal: Option<(u64, Moment)>,
    renew_at: Moment,
    /// The bus refused a renewal, and the key has not been read since.
    is_doubtful: bool,
    /// The process is ending; nothing new is run, but the key is kept until it has ended.
    is_closing: bool,
}

#[derive(Debug)]
enum Doing {
    Idle,
    Claiming {
        attempt: u64,
        sent: Moment,
    },
    Owning(Owning),
    /// The lease is lost and the process not ended.
    Fenced {
        epoch: Stamp,
    },
}

/// The key of one instance.
#[derive(Debug)]
pub struct Lease {
    doing: Doing,
    /// What the bus holds, as far as we know.
    held: Option<Held>,
    /// The greatest revision seen of this key.
    latest: Stamp,
    deletion: Option<(u64, Moment)>,
    /// The look under way, and the greatest revision seen when it was sent.
    look: Option<(u64, Stamp)>,
}

impl Default for Lease {
    fn default() -> Lease {
        Lease {
            doing: Doing::Idle,
            held: None,
            latest: Stamp::default(),
            deletion: None,
            look: None,
        }
    }
}

impl Lease {
    /// The epoch under which this node may act now, if any. Asked right before each act.
    pub fn serving(&self, now: Moment) -> Option<Stamp> {
        match &self.doing {
            Doing::Owning(own) if now < own.good_until && !own.is_closing => Some(own.epoch),
            _ => None,
        }
    }

    /// The epoch of a process that may be there.
    pub fn epoch(&self) -> Option<Stamp> {
        match &self.doing {
            Doing::Owning(Owning { epoch, .. }) | Doing::Fenced { epoch } => Some(*epoch),
            _ => None,
        }
    }

    /// The epoch of which this node is the owner, serving or closing.
    pub fn owned(&self) -> Option<Stamp> {
        match &self.doing {
            Doing::Owning(own) => Some(own.epoch),
            _ => None,
        }
    }

    /// When this node stops, if nothing is renewed any more.
    pub fn good_until(&self) -> Option<Moment> {
        match &self.doing {
            Doing::Owning(own) => Some(own.good_until),
            _ => None,
        }
    }

    /// When the next look at the clock is due.
    pub fn due(&self, timing: &Timing) -> Moment {
        let doing = match &self.doing {
            Doing::Idle | Doing::Fenced { .. } => Moment::NEVER,
            Doing::Claiming { sent, .. } => *sent + BUS_ANSWER,
            Doing::Owning(own) => {
                let renewal = own.renewal.map_or(own.renew_at, |(_, sent)| sent + BUS_ANSWER);
                return renewal.min(own.good_until);
            }
        };
        let deletion = self.deletion.map_or(Moment::NEVER, |(_, sent)| sent + BUS_ANSWER);
        let expiry = self.held.as_ref().map(|held| held.seen + timing.surely_over());
        doing.min(deletion).min(expiry.unwrap_or(Moment::NEVER))
    }

    /// Who owns the instance, and under which epoch, as far as we know.
    pub fn owner(&self) -> Option<(&NodeRef, Stamp)> {
        let held = self.held.as_ref()?;
        Some((&held.entry.owner, held.entry.epoch.unwrap_or(held.revision)))
    }

    /// Whether there is nothing to remember.
    pub fn is_idle(&self) -> bool {
        matches!(self.doing, Doing::Idle) && self.held.is_none() && self.deletion.is_none()
    }

    /// Whether this node may ask the bus for the instance: nobody has it, and no process of ours is left.
    pub fn is_free(&self) -> bool {
        matches!(self.doing, Doing::Idle) && self.held.is_none()
    }

    pub fn is_claiming(&self) -> bool {
        matches!(self.doing, Doing::Claiming { .. })
    }

    /// Somebody needs the instance here.
    pub fn need(&mut self, cx: &mut Context<'_>) {
        if self.is_free() {
            let attempt = cx.attempt();
            self.doing = Doing::Claiming { attempt, sent: cx.now };
            cx.effects.push(Effect::Claim { attempt });
        }
    }

    /// Nothing runs any more: the process may end, and then the lease.
    pub fn close(&mut self, cx: &mut Context<'_>) {
        self.expire(cx);
        if let Doing::Owning(own) = &mut self.doing
            && !own.is_closing
        {
            own.is_closing = true;
            cx.effects.push(Effect::End { epoch: own.epoch, at_once: false });
        }
    }

    /// The process of that epoch has ended, or there was none.
    pub fn ended(&mut self, epoch: Stamp, cx: &mut Context<'_>) {
        self.expire(cx);
        let is_over = match &self.doing {
            Doing::Owning(own) => own.epoch == epoch && own.is_closing,
            Doing::Fenced { epoch: fenced } => *fenced == epoch,
            _ => false,
        };
        if is_over {
            self.doing = Doing::Idle;
            self.clean(cx);
        }
    }

    /// The watch, or a look, shows the key: an entry, or that it was deleted by that revision.
    pub fn seen(&mut self, revision: Stamp, entry: Option<Entry>, cx: &mut Context<'_>) {
        self.expire(cx);
        let is_again = revision == self.latest && entry.is_some() && self.held.is_none();
        if revision < self.latest || (revision == self.latest && !is_again) {
            if let Doing::Owning(own) = &mut self.doing {
                own.is_doubtful = false;
            }
            return;
        }
        self.latest = revision;
        let seen = cx.now;
        self.held = entry.map(|entry| Held { entry, revision, seen });
        match &mut self.doing {
            Doing::Claiming { attempt, sent } => match &self.held {
                Some(Held { entry, .. }) if entry.owner == *cx.me && entry.attempt == *attempt => {
                    let sent = *sent;
                    self.take(revision, sent, cx);
                }
                Some(_) => self.doing = Doing::Idle,
                None => {}
            },
            Doing::Owning(own) => match &self.held {
                Some(Held { entry, .. })
                    if entry.owner == *cx.me && entry.epoch == Some(own.epoch) =>
                {
                    // A renewal whose answer was lost: the next one has to go over it. It is no proof of when it was sent.
                    own.revision = revision;
                    if own.is_doubtful {
                        own.is_doubtful = false;
                        own.renew_at = cx.now;
                    }
                }
                _ => self.fence(cx),
            },
            Doing::Idle | Doing::Fenced { .. } => {}
        }
        self.clean(cx);
    }

    /// Read the key: somebody says that it is not as we believe.
    pub fn look(&mut self, cx: &mut Context<'_>) {
        let attempt = cx.attempt();
        self.look = Some((attempt, self.latest));
        cx.effects.push(Effect::Look { attempt });
    }

    /// A look found no key. That alone may come from a bus server that lags behind.
    pub fn absent(&mut self, attempt: u64, cx: &mut Context<'_>) {
        self.expire(cx);
        // What the watch has shown since the look was sent is newer than what the look found.
        if self.look.take_if(|(look, _)| *look == attempt).is_none_or(|(_, at)| at != self.latest) {
            return;
        }
        match &self.doing {
            Doing::Owning(own) if own.is_doubtful => {
                // It refused a renewal too: in doubt, stop.
                self.held = None;
                self.fence(cx);
            }
            Doing::Owning(_) => {}
            _ => self.held = None,
        }
    }

    /// The bus answered a write.
    pub fn answered(&mut self, attempt: u64, answer: Answer, cx: &mut Context<'_>) {
        self.expire(cx);
        if let Doing::Claiming { attempt: claim, sent } = self.doing
            && claim == attempt
        {
            match answer {
                Answer::Done(revision) if revision > self.latest => {
                    self.latest = revision;
                    self.hold(revision, None, attempt, cx);
                    self.take(revision, sent, cx);
                }
                _ => {
                    self.doing = Doing::Idle;
                    self.look(cx);
                }
            }
            self.clean(cx);
            return;
        }
        if let Doing::Owning(own) = &mut self.doing
            && let Some((renewal, sent)) = own.renewal
            && renewal == attempt
        {
            own.renewal = None;
            match answer {
                Answer::Done(revision) => {
                    own.good_until = own.good_until.max(sent + cx.timing.holds());
                    own.renew_at = sent + cx.timing.renew_every();
                    if revision > self.latest {
                        own.revision = revision;
                        let epoch = own.epoch;
                        self.latest = revision;
                        self.hold(revision, Some(epoch), attempt, cx);
                    }
                }
                Answer::Conflict => {
                    own.is_doubtful = true;
                    own.renew_at = cx.now + RETRY;
                    self.look(cx);
                }
            }
            return;
        }
        if self.deletion.is_some_and(|(deletion, _)| deletion == attempt) {
            self.deletion = None;
            match answer {
                Answer::Done(revision) if revision > self.latest => {
                    self.latest = revision;
                    self.held = None;
                }
                Answer::Done(_) => {}
                Answer::Conflict => self.look(cx),
            }
            return;
        }
        // Something we had given up was done after all.
        if matches!(answer, Answer::Done(revision) if revision > self.latest) {
            self.look(cx);
        }
    }

    /// A look at the clock.
    pub fn tick(&mut self, cx: &mut Context<'_>) {
        self.expire(cx);
        match &mut self.doing {
            Doing::Claiming { sent, .. } if cx.now.since(*sent) >= BUS_ANSWER => {
                self.doing = Doing::Idle;
            }
            Doing::Owning(own) => {
                if own.renewal.is_some_and(|(_, sent)| cx.now.since(sent) >= BUS_ANSWER) {
                    own.renewal = None;
                    own.renew_at = cx.now;
                }
                if own.renewal.is_none() && cx.now >= own.renew_at {
                    let (over, epoch) = (own.revision, own.epoch);
                    *cx.attempts += 1;
                    let attempt = *cx.attempts;
                    own.renewal = Some((attempt, cx.now));
                    cx.effects.push(Effect::Renew { attempt, over, epoch });
                }
            }
            _ => {}
        }
        if self.deletion.is_some_and(|(_, sent)| cx.now.since(sent) >= BUS_ANSWER) {
            self.deletion = None;
        }
        // An expiry that nobody told us of. If this is wrong, a claim meets a conflict, and no more.
        let is_over = |held: &Held| cx.now.since(held.seen) >= cx.timing.surely_over();
        if !matches!(self.doing, Doing::Owning(_)) && self.held.as_ref().is_some_and(is_over) {
            self.held = None;
        }
        self.clean(cx);
    }

    /// The bus is there again: what was sent before may be lost.
    pub fn renew_soon(&mut self, cx: &mut Context<'_>) {
        self.expire(cx);
        if let Doing::Owning(own) = &mut self.doing {
            own.renewal = None;
            own.renew_at = cx.now;
        }
    }

    /// The bucket with all keys was lost, or this node is not itself any more.
    pub fn abandon(&mut self, cx: &mut Context<'_>) {
        self.held = None;
        self.latest = Stamp::default();
        self.deletion = None;
        self.look = None;
        match &self.doing {
            Doing::Owning(_) => self.fence(cx),
            Doing::Claiming { .. } => self.doing = Doing::Idle,
            _ => {}
        }
    }

    fn hold(&mut self, revision: Stamp, epoch: Option<Stamp>, attempt: u64, cx: &Context<'_>) {
        let entry = Entry { owner: cx.me.clone(), attempt, epoch };
        self.held = Some(Held { entry, revision, seen: cx.now });
    }

    /// The claim that was sent then has been taken.
    fn take(&mut self, revision: Stamp, sent: Moment, cx: &Context<'_>) {
        let good_until = sent + cx.timing.holds();
        if cx.now >= good_until {
            self.doing = Doing::Idle;
            return;
        }
        self.doing = Doing::Owning(Owning {
            epoch: revision,
            revision,
            good_until,
            renewal: None,
            renew_at: sent + cx.timing.renew_every(),
            is_doubtful: false,
            is_closing: false,
        });
    }

    fn expire(&mut self, cx: &mut Context<'_>) {
        if matches!(&self.doing, Doing::Owning(own) if cx.now >= own.good_until) {
            self.fence(cx);
        }
    }

    fn fence(&mut self, cx: &mut Context<'_>) {
        if let Doing::Owning(own) = &self.doing {
            let epoch = own.epoch;
            cx.effects.push(Effect::End { epoch, at_once: true });
            self.doing = Doing::Fenced { epoch };
        }
    }

    /// Deletes an entry of ours that we do not act under: nobody else can own the instance before it is gone.
    fn clean(&mut self, cx: &mut Context<'_>) {
        let Some(held) = &self.held else { return };
        if matches!(self.doing, Doing::Idle)
            && held.entry.owner == *cx.me
            && self.deletion.is_none()
        {
            let over = held.revision;
            let attempt = cx.attempt();
            self.deletion = Some((attempt, cx.now));
            cx.effects.push(Effect::Delete { attempt, over });
        }
    }
}

#[cfg(test)]
mod tests;
