use std::cell::Cell;
use std::rc::Rc;

use serde_json::json;

use super::*;

const TIMEOUT: Duration = Duration::from_mins(30);
const ME: Owner = Owner { principal: Principal(1), endpoint: Endpoint::Main };
const OTHER: Owner = Owner { principal: Principal(2), endpoint: Endpoint::Main };

/// A session as far as the table knows it.
#[derive(Clone, Debug)]
struct Fake(Rc<Cell<bool>>, bool);

impl PartialEq for Fake {
    fn eq(&self, other: &Fake) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl ActiveSession for Fake {
    fn is_quiet(&self) -> bool {
        self.0.get()
    }

    fn is_attached(&self) -> bool {
        self.1
    }
}

fn quiet() -> Fake {
    Fake(Rc::new(Cell::new(true)), false)
}

fn id(number: u64) -> SessionId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    SessionId::new(bytes)
}

fn at(seconds: u64) -> Moment {
    Moment::after_start(Duration::from_secs(seconds))
}

fn peer(capabilities: serde_json::Value) -> Peer {
    Peer {
        era: Era::Initialize(Revision::V2025_06_18),
        name: "someone".into(),
        title: None,
        version: "1".into(),
        capabilities,
        description: None,
        instructions: None,
    }
}

#[test]
fn a_session_is_its_owners_alone() {
    let mut sessions = Sessions::new(TIMEOUT);
    let session = quiet();
    assert!(sessions.insert(id(1), ME, &peer(json!({})), session.clone(), at(0)));
    assert_eq!(sessions.find(id(1), ME, at(1)), Some(Found::Awake(session)));
    assert_eq!(sessions.find(id(1), OTHER, at(1)), None);
    assert_eq!(sessions.find(id(2), ME, at(1)), None);
    let elsewhere = Owner { endpoint: Endpoint::Direct, ..ME };
    assert_eq!(sessions.find(id(1), elsewhere, at(1)), None, "it goes on where it began");
    assert!(sessions.remove(id(1), OTHER).is_none());
    assert!(sessions.remove(id(1), ME).is_some());
    assert_eq!(sessions.find(id(1), ME, at(1)), None);
    assert!(sessions.is_empty() && sessions.held.is_empty() && sessions.bytes == 0);
}

#[test]
fn idle_sessions_are_forgotten_and_busy_ones_are_not() {
    let mut sessions = Sessions::new(TIMEOUT);
    let busy = Fake(Rc::new(Cell::new(false)), false);
    sessions.insert(id(1), ME, &peer(json!({})), quiet(), at(0));
    sessions.insert(id(2), ME, &peer(json!({})), busy.clone(), at(0));
    sessions.insert(id(3), ME, &peer(json!({})), quiet(), at(0));
    assert!(sessions.find(id(3), ME, at(1000)).is_some());
    sessions.sweep(at(1799));
    assert_eq!(sessions.len(), 3);
    sessions.sweep(at(1800));
    assert!(sessions.find(id(1), ME, at(1800)).is_none());
    busy.0.set(true);
    sessions.sweep(at(2800));
    assert_eq!(sessions.len(), 1, "the busy one was used until it became quiet");
    sessions.sweep(at(3600));
    assert!(sessions.is_empty());
}

#[test]
fn quiet_sessions_rest_and_wake_as_they_were() {
    let mut sessions = Sessions::new(TIMEOUT);
    let declared = json!({ "elicitation": {}, "experimental": { "x": {} } });
    let busy = Fake(Rc::new(Cell::new(false)), false);
    sessions.insert(id(0), ME, &peer(declared), quiet(), at(0));
    sessions.insert(id(1), ME, &peer(json!({})), busy.clone(), at(0));
    for number in 2..MAX_AWAKE as u64 + 20 {
        sessions.insert(id(number), ME, &peer(json!({})), quiet(), at(1));
    }
    assert_eq!(sessions.awake().count(), MAX_AWAKE);
    let Some(Found::Resting(found)) = sessions.find(id(0), ME, at(2)) else {
        panic!("the oldest rests")
    };
    assert!(found.can("elicitation") && !found.can("roots"));
    assert_eq!(found.era.revision(), Some(Revision::V2025_06_18));
    assert_eq!(sessions.find(id(1), ME, at(2)), Some(Found::Awake(busy)), "no rest while busy");
    let again = quiet();
    sessions.wake(id(0), again.clone());
    assert_eq!(sessions.find(id(0), ME, at(2)), Some(Found::Awake(again)));
}

#[test]
fn who_was_used_last_rests_last_and_who_would_lose_something_does_not() {
    let mut sessions = Sessions::new(TIMEOUT);
    sessions.most.awake = 10;
    let attached = || Fake(Rc::new(Cell::new(true)), true);
    sessions.insert(id(0), ME, &peer(json!({})), attached(), at(0));
    for number in 1..11 {
        // The second one is at work all the time.
        sessions.find(id(1), ME, at(number));
        sessions.insert(id(number), ME, &peer(json!({})), quiet(), at(number));
    }
    let rests = |sessions: &mut Sessions<Fake>, number| {
        matches!(sessions.find(id(number), ME, at(20)), Some(Found::Resting(_)))
    };
    sessions.find(id(1), ME, at(19));
    for number in 11..19 {
        sessions.insert(id(number), ME, &peer(json!({})), quiet(), at(19));
    }
    assert!(!rests(&mut sessions, 0) && !rests(&mut sessions, 1));
    assert!((2..8).all(|number| rests(&mut sessions, number)));
    // Nobody can keep any number of them awake.
    for number in 100..400 {
        sessions.insert(id(number), ME, &peer(json!({})), attached(), at(30));
    }
    assert!(sessions.awake().count() <= 10 * FAR_TOO_MANY, "{}", sessions.awake().count());
}

#[test]
fn whoever_opens_most_pays_for_it() {
    let mut sessions = Sessions::new(TIMEOUT);
    sessions.most.sessions = 1000;
    sessions.insert(id(0), OTHER, &peer(json!({})), quiet(), at(0));
    for number in 1..=2000 {
        assert!(sessions.insert(id(number), ME, &peer(json!({})), quiet(), at(number)));
    }
    assert!(sessions.len() <= 1000);
    assert!(sessions.find(id(0), OTHER, at(1)).is_some(), "the modest one keeps its session");
    let newest = id(2000);
    assert!(sessions.find(newest, ME, at(1)).is_some());
}

#[test]
fn what_clients_declare_does_not_fill_the_memory() {
    const MOST: usize = 1024 * 1024;
    let mut sessions = Sessions::new(TIMEOUT);
    sessions.most.bytes = MOST;
    for number in 0..1000 {
        let own = json!({ "roots": { "own": format!("{number:0>4000}") } });
        assert!(sessions.insert(id(number), ME, &peer(own), quiet(), at(number)));
        assert!(sessions.bytes <= MOST);
    }
    let kept: usize = sessions.table.values().map(|entry| entry.card.capabilities.len()).sum();
    assert!(kept <= MOST && sessions.len() > 200, "{kept} bytes in {}", sessions.len());
}

#[test]
fn ids_read_back_and_nothing_else_does() {
    let one = SessionId::new(*b"0123456789abcdef");
    assert_eq!(SessionId::parse(&one.text()), Some(one));
    let wrong =
        ["", "0", &"g".repeat(32), &"A".repeat(32), &"0".repeat(33), "é".repeat(16).as_str()]
            .map(SessionId::parse);
    assert_eq!(wrong, [None; 6]);
    assert_eq!(format!("{one:?}"), "SessionId", "it is as good as a password");
}
