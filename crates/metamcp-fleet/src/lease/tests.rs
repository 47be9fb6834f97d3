//! Histories of one key, written out; the simulation has the long ones.

use std::time::Duration;

use super::*;
use crate::identity::NodeName;

struct Holder {
    lease: Lease,
    me: NodeRef,
    timing: Timing,
    attempts: u64,
    now: Moment,
}

fn node(name: &str) -> NodeRef {
    let name = NodeName::parse(name).unwrap();
    NodeRef { name, incarnation: Stamp { bucket: 1, revision: 1 } }
}

fn at(revision: u64) -> Stamp {
    Stamp { bucket: 1, revision }
}

impl Holder {
    fn new() -> Holder {
        let (lease, timing) = (Lease::default(), Timing::default());
        Holder { lease, me: node("a"), timing, attempts: 0, now: Moment::millis(1000) }
    }

    /// The owner of epoch 10, by its first attempt.
    fn owning() -> Holder {
        let mut holder = Holder::new();
        holder.step(Lease::need);
        holder.step(|lease, cx| lease.answered(1, Answer::Done(at(10)), cx));
        holder
    }

    fn step(&mut self, step: impl FnOnce(&mut Lease, &mut Context<'_>)) -> Vec<Effect> {
        let mut effects = Vec::new();
        let (me, timing, now) = (&self.me, &self.timing, self.now);
        let attempts = &mut self.attempts;
        let mut cx = Context { me, timing, now, attempts, effects: &mut effects };
        step(&mut self.lease, &mut cx);
        effects
    }

    fn tick_after(&mut self, millis: u64) -> Vec<Effect> {
        self.now = self.now + Duration::from_millis(millis);
        self.step(Lease::tick)
    }

    fn entry(&self, attempt: u64, epoch: Option<Stamp>) -> Entry {
        Entry { owner: self.me.clone(), attempt, epoch }
    }

    fn serving(&self) -> Option<Stamp> {
        self.lease.serving(self.now)
    }
}

#[test]
fn a_claim_is_owned_from_the_answer_or_from_the_watch() {
    let holder = Holder::owning();
    assert_eq!(holder.serving(), Some(at(10)));
    let mut other = Holder::new();
    assert_eq!(other.step(Lease::need), [Effect::Claim { attempt: 1 }]);
    let entry = other.entry(1, None);
    assert_eq!(other.step(|lease, cx| lease.seen(at(10), Some(entry), cx)), []);
    assert_eq!(other.serving(), Some(at(10)));
    assert_eq!(other.lease.good_until(), holder.lease.good_until());
}

#[test]
fn an_entry_of_a_claim_that_was_given_up_is_deleted_and_not_acted_under() {
    let mut holder = Holder::new();
    holder.step(Lease::need);
    holder.tick_after(2000);
    assert_eq!(holder.step(Lease::need), [Effect::Claim { attempt: 2 }]);
    // The first claim was taken after all: nobody knows how long ago.
    let entry = holder.entry(1, None);
    let effects = holder.step(|lease, cx| lease.seen(at(10), Some(entry), cx));
    assert_eq!(effects, [Effect::Delete { attempt: 3, over: at(10) }]);
    assert_eq!(holder.serving(), None);
}

#[test]
fn a_lease_ends_by_our_own_clock_counted_from_when_the_renewal_was_sent() {
    let mut holder = Holder::owning();
    assert_eq!(
        holder.tick_after(2000),
        [Effect::Renew { attempt: 2, over: at(10), epoch: at(10) }]
    );
    // The answer takes a second and a half, which does not count.
    holder.now = holder.now + Duration::from_millis(1500);
    holder.step(|lease, cx| lease.answered(2, Answer::Done(at(11)), cx));
    let good_until = Moment::millis(3000) + holder.timing.holds();
    assert_eq!(holder.lease.good_until(), Some(good_until));
    holder.now = good_until;
    assert_eq!(holder.serving(), None, "before anybody looks");
    assert_eq!(holder.step(Lease::tick), [Effect::End { epoch: at(10), at_once: true }]);
}

#[test]
fn a_lost_lease_is_not_revived_and_its_key_is_kept_until_the_process_has_ended() {
    let mut holder = Holder::owning();
    holder.now = holder.lease.good_until().unwrap();
    holder.step(Lease::tick);
    let entry = holder.entry(2, Some(at(10)));
    assert_eq!(holder.step(|lease, cx| lease.seen(at(11), Some(entry), cx)), []);
    assert_eq!(holder.serving(), None);
    assert_eq!(holder.step(Lease::need), []);
    let effects = holder.step(|lease, cx| lease.ended(at(10), cx));
    assert_eq!(effects, [Effect::Delete { attempt: 2, over: at(11) }]);
}

#[test]
fn a_renewal_whose_answer_was_lost_is_gone_over_and_proves_nothing_about_time() {
    let mut holder = Holder::owning();
    let before = holder.lease.good_until();
    holder.tick_after(2000);
    let entry = holder.entry(2, Some(at(10)));
    holder.step(|lease, cx| lease.seen(at(11), Some(entry), cx));
    assert_eq!(holder.lease.good_until(), before);
    assert_eq!(
        holder.tick_after(2000),
        [Effect::Renew { attempt: 3, over: at(11), epoch: at(10) }]
    );
}

#[test]
fn whoever_is_refused_looks_and_whoever_finds_nothing_stops() {
    let mut holder = Holder::owning();
    assert_eq!(holder.step(Lease::look), [Effect::Look { attempt: 2 }]);
    assert_eq!(holder.step(|lease, cx| lease.absent(2, cx)), [], "it may be a server that lags");
    holder.tick_after(2000);
    let effects = holder.step(|lease, cx| lease.answered(3, Answer::Conflict, cx));
    assert_eq!(effects, [Effect::Look { attempt: 4 }]);
    assert_eq!(holder.serving(), Some(at(10)));
    let effects = holder.step(|lease, cx| lease.absent(4, cx));
    assert_eq!(effects, [Effect::End { epoch: at(10), at_once: true }]);
    assert_eq!(holder.serving(), None);
}

#[test]
fn a_look_that_found_nothing_does_not_undo_what_the_watch_has_shown_since() {
    let mut holder = Holder::new();
    holder.step(Lease::look);
    let entry = Entry { owner: node("b"), attempt: 1, epoch: None };
    holder.step(|lease, cx| lease.seen(at(5), Some(entry), cx));
    holder.step(|lease, cx| lease.absent(1, cx));
    assert_eq!(holder.lease.owner(), Some((&node("b"), at(5))));
    holder.step(Lease::look);
    holder.step(|lease, cx| lease.absent(2, cx));
    assert_eq!(holder.lease.owner(), None);
}

#[test]
fn another_owner_in_the_watch_ends_ours() {
    let mut holder = Holder::owning();
    let entry = Entry { owner: node("b"), attempt: 1, epoch: None };
    let late = entry.clone();
    assert_eq!(holder.step(|lease, cx| lease.seen(at(9), Some(late), cx)), [], "older than ours");
    let effects = holder.step(|lease, cx| lease.seen(at(12), Some(entry), cx));
    assert_eq!(effects, [Effect::End { epoch: at(10), at_once: true }]);
    assert_eq!(holder.lease.owner(), Some((&node("b"), at(12))));
}

#[test]
fn a_closed_lease_is_renewed_until_the_process_has_ended() {
    let mut holder = Holder::owning();
    let effects = holder.step(Lease::close);
    assert_eq!(effects, [Effect::End { epoch: at(10), at_once: false }]);
    assert_eq!((holder.serving(), holder.lease.owned()), (None, Some(at(10))));
    assert_eq!(
        holder.tick_after(2000),
        [Effect::Renew { attempt: 2, over: at(10), epoch: at(10) }]
    );
    holder.step(|lease, cx| lease.answered(2, Answer::Done(at(11)), cx));
    let effects = holder.step(|lease, cx| lease.ended(at(10), cx));
    assert_eq!(effects, [Effect::Delete { attempt: 3, over: at(11) }]);
    holder.step(|lease, cx| lease.answered(3, Answer::Done(at(12)), cx));
    assert!(holder.lease.is_idle());
}

#[test]
fn an_expiry_nobody_tells_of_is_found_by_waiting() {
    let mut holder = Holder::new();
    let entry = Entry { owner: node("b"), attempt: 1, epoch: None };
    holder.step(|lease, cx| lease.seen(at(5), Some(entry), cx));
    holder.tick_after(11_900);
    assert!(!holder.lease.is_free());
    holder.tick_after(100);
    assert!(holder.lease.is_free());
}
