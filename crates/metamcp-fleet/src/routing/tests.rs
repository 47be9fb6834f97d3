//! What may be said of a forwarded call, case by case.

use std::time::Duration;

use super::*;
use crate::identity::NodeName;

const NOW: Moment = Moment::millis(1000);

fn sent() -> Forwarded<u8> {
    let name = NodeName::parse("b").unwrap();
    let owner = NodeRef { name, incarnation: Stamp { bucket: 1, revision: 1 } };
    let epoch = Stamp { bucket: 1, revision: 7 };
    let mut call = Forwarded::new(owner, epoch, 3, InstanceId(1), 9, NOW);
    call.publish(NOW);
    call
}

fn after(millis: u64) -> Moment {
    NOW + Duration::from_millis(millis)
}

#[test]
fn the_message_is_sent_again_until_it_is_accepted() {
    let mut call = sent();
    assert_eq!(call.tick(true, after(299)), []);
    assert!(matches!(
        call.tick(true, after(300))[..],
        [Step::Send(Message::Call { number: 3, .. })]
    ));
    call.accepted(after(310));
    assert_eq!(call.tick(true, after(700)), []);
    assert_eq!(call.tick(true, after(1310)), [Step::Send(Message::Poll { number: 3 })]);
}

#[test]
fn only_the_sole_copy_can_be_known_not_to_have_arrived() {
    let not_run = Some(Ending::NotRun(NotRun::NotDelivered));
    assert_eq!(sent().not_delivered(), not_run);
    let mut twice = sent();
    twice.publish(after(300));
    assert_eq!(twice.not_delivered(), None);
    let mut accepted = sent();
    accepted.accepted(NOW);
    assert_eq!(accepted.not_delivered(), None);
}

#[test]
fn a_refusal_is_believed_unless_the_call_was_accepted() {
    let refused = Ending::NotRun(NotRun::Refused(Refusal::Full));
    assert_eq!(sent().refused(Refusal::Full), refused);
    let mut accepted = sent();
    accepted.accepted(NOW);
    assert_eq!(accepted.refused(Refusal::Full), Ending::Unknown(Unknown::Forgotten));
}

#[test]
fn whatever_else_ends_it_leaves_it_unknown() {
    let over = |why| vec![Step::Over(Ending::Unknown(why))];
    assert_eq!(sent().tick(false, after(10)), over(Unknown::OwnerSilent));
    assert_eq!(sent().tick(true, after(1500)), over(Unknown::NotAccepted));
    let mut gone = sent();
    gone.lease_gone(after(10));
    assert!(
        !gone.tick(true, after(400)).contains(&Step::Over(Ending::Unknown(Unknown::LeaseGone)))
    );
    assert_eq!(gone.tick(true, after(410)), over(Unknown::LeaseGone));
    let mut accepted = sent();
    accepted.accepted(NOW);
    accepted.tick(true, after(1000));
    assert_eq!(accepted.tick(true, after(2500)), over(Unknown::Forgotten), "a poll has no answer");
}

#[test]
fn the_last_part_ends_it_once_all_before_it_are_there() {
    let mut call = sent();
    assert_eq!(call.output(1, Part::Last(2), after(5)), []);
    let steps = call.output(0, Part::Chunk(1), after(6));
    assert_eq!(
        steps,
        [
            Step::Part(Part::Chunk(1)),
            Step::Part(Part::Last(2)),
            Step::Send(Message::OutputSeen { number: 3, next: 2 }),
            Step::Over(Ending::Answered),
        ]
    );
}
