use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cluster_key::{ClusterKeys, Purpose};

const KEY: &str = "u8uBlFpHbYuV6J1m0bD2cQ3nS8X7kZ5yTqWvEo4fGhI=";
const OTHER: &str = "3a7f0c91d4e852b6af13c0de9972461b58ee0f7da4c3b21966850a4fd1e7c39b";

fn sealer(text: &str) -> Sealer {
    ClusterKeys::parse(text).unwrap().sealer(Purpose::SessionIds)
}

fn ticket() -> SessionTicket {
    SessionTicket {
        id: [7; 16],
        gateway: 3,
        expires: 1000,
        revision: Revision::V2025_06_18,
        name: "ada's agent".into(),
        version: "1.2".into(),
        capabilities: json!({ "elicitation": {}, "roots": { "listChanged": true } }),
    }
}

#[test]
fn an_id_is_good_for_its_owner_until_it_expires() {
    let sealer = sealer(KEY);
    let text = ticket().seal(&sealer, [1; RANDOM], b"ada").unwrap();
    assert_eq!(SessionTicket::open(&text, &sealer, b"ada", 999), Ok(ticket()));
    assert_eq!(SessionTicket::open(&text, &sealer, b"ada", 1000), Err(TicketError::Expired));
    let broken = TicketError::Sealed(SealError::Broken);
    assert_eq!(SessionTicket::open(&text, &sealer, b"bob", 0), Err(broken));
    let elsewhere = SessionTicket::open(&text, &self::sealer(OTHER), b"ada", 0);
    assert_eq!(elsewhere, Err(TicketError::Sealed(SealError::OtherKey)));
    let rotated = self::sealer(&format!("{OTHER}\n{KEY}"));
    assert_eq!(SessionTicket::open(&text, &rotated, b"ada", 0), Ok(ticket()));
    // As the header has to be, and about as long as a short token.
    assert!(text.bytes().all(|byte| byte.is_ascii_graphic()) && text.len() < 300, "{}", text.len());
}

#[test]
fn no_changed_letter_goes_unnoticed() {
    let sealer = sealer(KEY);
    let text = ticket().seal(&sealer, [1; RANDOM], b"ada").unwrap();
    for at in 0..text.len() {
        for letter in ["A", "_", "=", " "] {
            let mut forged = text.clone();
            forged.replace_range(at..=at, letter);
            if forged != text {
                assert!(SessionTicket::open(&forged, &sealer, b"ada", 0).is_err(), "{at} {letter}");
            }
        }
    }
}

#[test]
fn a_client_that_says_too_much_has_no_such_id() {
    let wordy = json!({ "elicitation": { "about": "x".repeat(MAX_TEXT) } });
    let ticket = SessionTicket { capabilities: wordy, ..ticket() };
    assert_eq!(ticket.seal(&sealer(KEY), [1; RANDOM], b"ada"), None);
}

#[test]
fn only_what_goes_on_is_in_it() {
    let declared = json!({ "elicitation": {}, "experimental": { "x": {} } });
    let peer = Peer { capabilities: declared, ..ticket().peer() };
    let ticket = SessionTicket::of(&peer, [7; 16], 3, 1000);
    assert_eq!(ticket.capabilities, json!({ "elicitation": {} }));
    assert_eq!(ticket.peer().era, Era::Initialize(Revision::V2025_06_18));
    assert!(ticket.peer().can("elicitation"));
}

proptest! {
    #[test]
    fn what_is_sealed_comes_back(id: [u8; 16], gateway: u64, expires in 1_u64.., name in ".{0,200}", version in ".{0,40}") {
        let ticket = SessionTicket { id, gateway, expires, name, version, ..ticket() };
        let sealer = sealer(KEY);
        let text = ticket.seal(&sealer, [1; RANDOM], b"ada").unwrap();
        prop_assert_eq!(SessionTicket::open(&text, &sealer, b"ada", expires - 1), Ok(ticket));
    }

    #[test]
    fn noise_is_refused(noise in ".{0,300}", bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let sealer = sealer(KEY);
        prop_assert!(SessionTicket::open(&noise, &sealer, b"", 0).is_err());
        // Whatever passes the seal must still not bring the reader down.
        drop(SessionTicket::decode(&bytes));
    }
}
