//! Any history of a held call, any text as a message of the stateless era: one answer per request, no question left
//! behind, and every reader survives every text.

use std::collections::BTreeSet;

use metamcp_wire::bridge::Suspension;
use metamcp_wire::bridge::suspension::{Effect, Event};
use metamcp_wire::handshake;
use metamcp_wire::modern::listen::Filter;
use metamcp_wire::modern::{headers, input, meta, result};
use metamcp_wire::scan::{self, MAX_RESULT_DEPTH};
use metamcp_wire::seal::{self, Key};

/// Each byte is an event; as a whole the bytes are also read as a message.
pub(crate) fn check(data: &[u8]) {
    history(data);
    readers(data);
}

fn history(data: &[u8]) {
    let mut suspension = Suspension::new(8);
    let (mut now, mut last, mut round) = (0, 0, 0);
    let mut open: BTreeSet<u64> = BTreeSet::new();
    let mut waiting = 1_i32;
    let mut over = false;
    for byte in data.iter().take(400) {
        let amount = u64::from(byte >> 3);
        now += amount % 3;
        let event = match byte & 7 {
            0 | 1 => {
                last += 1;
                open.insert(last);
                Event::Asked(last)
            }
            2 => {
                open.remove(&amount);
                Event::Withdrawn(amount)
            }
            3 => Event::Retried { round, answers: open.iter().copied().collect() },
            4 => Event::Retried { round, answers: vec![amount] },
            5 => Event::Retried { round: amount as u32, answers: Vec::new() },
            6 if amount == 0 => Event::Done,
            7 if amount == 0 => Event::Cancelled,
            _ => Event::Tick,
        };
        waiting += i32::from(matches!(event, Event::Retried { .. }));
        let cancelled = event == Event::Cancelled && suspension.is_waiting();
        for effect in suspension.take(event, now) {
            match effect {
                Effect::Respond { round: next, questions } => {
                    assert!(questions.iter().all(|question| open.contains(question)));
                    round = next;
                    waiting -= 1;
                }
                Effect::Deliver | Effect::GiveUp | Effect::Reject => waiting -= 1,
                Effect::Forward(question) | Effect::Refuse(question) => {
                    assert!(open.remove(&question));
                }
                Effect::Abandon => assert!(!over),
                Effect::Forget => {
                    assert!(!over);
                    over = true;
                }
            }
        }
        waiting -= i32::from(cancelled);
        assert!((0..=1).contains(&waiting));
        assert_eq!(suspension.is_waiting(), waiting == 1);
        assert!(!over || open.is_empty());
    }
}

fn readers(data: &[u8]) {
    let forged = String::from_utf8_lossy(data);
    assert!(Key::new([3; 32]).open(&forged, b"", 0, &[0; 32]).is_err());
    drop(headers::decoded(data));
    if scan::check(data, MAX_RESULT_DEPTH).is_err() {
        return;
    }
    let typed = result::completed(data);
    if data.trim_ascii_start().starts_with(b"{") {
        assert_eq!(result::kind(&typed), result::Kind::Complete);
        assert!(scan::check(&typed, MAX_RESULT_DEPTH).is_ok());
        let untyped = result::untyped(&typed);
        assert!(scan::check(&untyped, MAX_RESULT_DEPTH).is_ok());
        assert!(scan::check(&meta::ours(data, b"{}", None, "0"), MAX_RESULT_DEPTH).is_ok());
        assert!(scan::check(&input::restated(data, "x"), MAX_RESULT_DEPTH).is_ok());
    }
    if let Ok(required) = input::required(data) {
        let questions = &required.questions;
        let parts = questions.iter().map(|q| (&*q.key, &*q.method, q.params.as_deref()));
        let again =
            input::required(&input::asking(parts, "state")).expect("what is asked is readable");
        assert_eq!(&again.questions, questions);
    }
    if let Ok(responses) = input::responses(data) {
        assert_eq!(input::responses(&input::answering(&responses)), Ok(responses));
    }
    drop(meta::require(Some(data)));
    drop(Filter::read(data));
    drop((handshake::discovered(data), handshake::undiscovered(data)));
    assert_eq!(seal::digest("m", Some(data)), seal::digest("m", Some(data)));
}
