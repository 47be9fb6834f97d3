//! What an owner says to a call that it has seen before, or will not run.

use super::*;
use crate::identity::NodeName;

const NOW: Moment = Moment::millis(1000);
const WHERE: (InstanceId, Stamp) = (InstanceId(1), Stamp { bucket: 1, revision: 7 });

fn call(number: u64) -> ForeignCall {
    let name = NodeName::parse("a").unwrap();
    let caller = NodeRef { name, incarnation: Stamp { bucket: 1, revision: 1 } };
    ForeignCall { caller, number }
}

fn owner() -> Serving<u8> {
    Serving::new(Limits { calls: 8, window: 4 })
}

/// What is said, and whether something is run.
fn heard(serving: &mut Serving<u8>) -> (Vec<Message<u8>>, bool) {
    let (mut said, mut runs) = (Vec::new(), false);
    for step in serving.steps() {
        match step {
            Step::Send { message, .. } => said.push(message),
            Step::Run { .. } => runs = true,
            Step::Input { .. } | Step::Abort { .. } => {}
        }
    }
    (said, runs)
}

fn asked(
    serving: &mut Serving<u8>,
    number: u64,
    refusal: Option<Refusal>,
) -> (Vec<Message<u8>>, bool) {
    serving.call(call(number), WHERE, 0, refusal);
    heard(serving)
}

#[test]
fn a_call_is_run_once_and_its_copies_hear_that_it_is_here() {
    let mut owner = owner();
    assert_eq!(asked(&mut owner, 5, None), (vec![], true), "most answers come before a look");
    assert_eq!(asked(&mut owner, 5, None), (vec![Message::Accepted { number: 5 }], false));
    owner.output(&call(5), Part::Last(1), NOW);
    assert_eq!(owner.in_flight(WHERE.0), 1, "until the caller has the answer");
    owner.output_seen(&call(5), 1, NOW);
    assert_eq!(owner.in_flight(WHERE.0), 0);
    heard(&mut owner);
    assert_eq!(asked(&mut owner, 5, None), (vec![Message::Forgotten { number: 5 }], false));
}

#[test]
fn a_call_that_has_said_nothing_yet_is_accepted_once() {
    let mut owner = owner();
    assert!(asked(&mut owner, 5, None).1 && asked(&mut owner, 6, None).1);
    owner.output(&call(6), Part::Notification(1), NOW);
    heard(&mut owner);
    owner.tick(|_| true, NOW);
    assert_eq!(heard(&mut owner), (vec![Message::Accepted { number: 5 }], false));
    owner.tick(|_| true, NOW);
    assert_eq!(heard(&mut owner), (vec![], false));
}

#[test]
fn what_was_refused_stays_refused() {
    let mut owner = owner();
    let refused = vec![Message::Refused { number: 5, why: Refusal::Full }];
    assert_eq!(asked(&mut owner, 5, Some(Refusal::Full)), (refused.clone(), false));
    assert_eq!(asked(&mut owner, 5, None), (refused, false));
}

#[test]
fn a_cancellation_that_overtakes_its_call_keeps_it_from_running() {
    let mut owner = owner();
    owner.cancel(call(5));
    let refused = vec![Message::Refused { number: 5, why: Refusal::Cancelled }];
    assert_eq!(asked(&mut owner, 5, None), (refused, false));
}

#[test]
fn below_the_window_nothing_is_run_and_nothing_denied() {
    let mut owner = owner();
    asked(&mut owner, 9, None);
    assert_eq!(asked(&mut owner, 5, None), (vec![Message::Forgotten { number: 5 }], false));
    assert_eq!(asked(&mut owner, 6, None), (vec![], true));
}

#[test]
fn after_a_fence_nothing_is_said_but_that_nobody_knows() {
    let mut owner = owner();
    asked(&mut owner, 5, None);
    owner.fence(WHERE.0, WHERE.1);
    owner.output(&call(5), Part::Last(1), NOW);
    assert_eq!(heard(&mut owner), (vec![], false));
    owner.poll(&call(5));
    assert_eq!(heard(&mut owner), (vec![Message::Forgotten { number: 5 }], false));
}
