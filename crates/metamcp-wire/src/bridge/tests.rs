use std::collections::BTreeSet;

use proptest::prelude::*;

use super::input_retries::{self, InputRetries};
use super::suspension::{self, Suspension};
use super::*;
use crate::modern::input::{Question, Required};

const PATIENCE: u64 = 100;

/// What must be true of a held call after any history.
#[derive(Default)]
struct Books {
    /// Requests of the client that came and have no answer.
    waiting: i64,
    open: BTreeSet<u64>,
    settled: BTreeSet<u64>,
    round: u32,
    over: bool,
    abandoned: bool,
    done: bool,
}

impl Books {
    fn play(&mut self, suspension: &mut Suspension, event: &suspension::Event, now: u64) {
        let before = self.over;
        if let &suspension::Event::Asked(question) = event {
            // Numbers are given out once.
            if self.open.contains(&question) || self.settled.contains(&question) {
                return;
            }
            self.open.insert(question);
        }
        if let &suspension::Event::Withdrawn(question) = event
            && self.open.remove(&question)
        {
            self.settled.insert(question);
        }
        let retried = matches!(event, suspension::Event::Retried { .. });
        let cancelled = *event == suspension::Event::Cancelled && self.waiting == 1;
        self.waiting += i64::from(retried);
        self.done |= *event == suspension::Event::Done && !before;
        for effect in suspension.take(event.clone(), now) {
            match effect {
                suspension::Effect::Respond { round, questions } => {
                    assert_eq!(round, self.round + 1);
                    assert!(!questions.is_empty() && !self.over);
                    assert!(questions.iter().all(|question| self.open.contains(question)));
                    self.round = round;
                    self.waiting -= 1;
                }
                suspension::Effect::Deliver => {
                    assert!(self.done && !self.over);
                    self.waiting -= 1;
                }
                suspension::Effect::GiveUp | suspension::Effect::Reject => self.waiting -= 1,
                suspension::Effect::Forward(question) => {
                    assert!(
                        retried && self.open.remove(&question),
                        "only what was asked is fed, once"
                    );
                    self.settled.insert(question);
                }
                suspension::Effect::Refuse(question) => {
                    assert!(self.open.remove(&question));
                    self.settled.insert(question);
                }
                suspension::Effect::Abandon => {
                    assert!(!self.abandoned && !self.done && !self.over);
                    self.abandoned = true;
                }
                suspension::Effect::Forget => {
                    assert!(!self.over);
                    self.over = true;
                }
            }
        }
        if cancelled {
            self.waiting -= 1;
        }
        assert!((0..=1).contains(&self.waiting), "one answer for each request: {event:?}");
        assert_eq!(suspension.is_waiting(), self.waiting == 1, "{event:?}");
        assert_eq!(suspension.is_suspended(), self.waiting == 0 && !self.over);
        if self.over {
            assert!(self.open.is_empty(), "no question is left behind: {event:?}");
            assert_eq!(suspension.until(), u64::MAX);
        }
    }
}

fn alphabet() -> Vec<suspension::Event> {
    use suspension::Event::*;
    vec![
        Asked(1),
        Asked(2),
        Withdrawn(1),
        Done,
        Retried { round: 1, answers: vec![1] },
        Retried { round: 2, answers: vec![1, 2, 9] },
        Retried { round: 1, answers: vec![] },
        Cancelled,
        Tick,
    ]
}

#[test]
fn every_short_history_of_a_held_call() {
    let letters = alphabet();
    let length = 6;
    let mut seen = BTreeSet::new();
    for mut number in 0..letters.len().pow(length) {
        let (mut suspension, mut books) =
            (Suspension::new(PATIENCE), Books { waiting: 1, ..Books::default() });
        let mut now = 0;
        for _ in 0..length {
            let event = letters[number % letters.len()].clone();
            number /= letters.len();
            now += if event == suspension::Event::Tick { PATIENCE } else { 1 };
            books.play(&mut suspension, &event, now);
        }
        seen.insert((books.over, books.abandoned, books.done, books.round));
    }
    // The histories reach what matters: delivered, abandoned, held in a second round.
    assert!(seen.contains(&(true, false, true, 1)));
    assert!(seen.contains(&(true, true, false, 0)));
    assert!(seen.contains(&(false, false, false, 2)));
}

#[test]
fn a_server_request_is_answered_in_the_next_request() {
    use suspension::{Effect, Event};
    let mut suspension = Suspension::new(PATIENCE);
    assert_eq!(
        suspension.take(Event::Asked(1), 0),
        [Effect::Respond { round: 1, questions: vec![1] }]
    );
    assert_eq!(suspension.until(), PATIENCE);
    // Asked meanwhile: told with the next answer.
    assert_eq!(suspension.take(Event::Asked(2), 1), []);
    assert_eq!(
        suspension.take(Event::Retried { round: 1, answers: vec![1] }, 2),
        [Effect::Forward(1), Effect::Respond { round: 2, questions: vec![2] }]
    );
    // The first ticket is used up.
    assert_eq!(suspension.take(Event::Retried { round: 1, answers: vec![2] }, 3), [Effect::Reject]);
    assert_eq!(
        suspension.take(Event::Retried { round: 2, answers: vec![2] }, 3),
        [Effect::Forward(2)]
    );
    assert_eq!(suspension.take(Event::Done, 4), [Effect::Deliver, Effect::Forget]);
}

#[test]
fn a_client_that_never_comes_back_is_forgotten() {
    use suspension::{Effect, Event};
    let mut suspension = Suspension::new(PATIENCE);
    suspension.take(Event::Asked(1), 0);
    assert_eq!(suspension.take(Event::Tick, PATIENCE - 1), []);
    assert_eq!(
        suspension.take(Event::Tick, PATIENCE),
        [Effect::Refuse(1), Effect::Abandon, Effect::Forget]
    );
    let mut suspension = Suspension::new(PATIENCE);
    suspension.take(Event::Asked(1), 0);
    assert_eq!(suspension.take(Event::Done, 1), [], "the answer waits for the client");
    assert_eq!(suspension.take(Event::Tick, PATIENCE), [Effect::Refuse(1), Effect::Forget]);
}

#[test]
fn a_server_request_outlives_the_request_it_was_delivered_with() {
    use suspension::{Effect, Event};
    // Two calls of one server: the second's question came to the first, which was over before the client had answered.
    let mut suspension = Suspension::new(PATIENCE);
    suspension.take(Event::Asked(1), 0);
    assert_eq!(suspension.take(Event::Done, 1), []);
    assert_eq!(
        suspension.take(Event::Retried { round: 1, answers: vec![1] }, 2),
        [Effect::Forward(1), Effect::Deliver, Effect::Forget]
    );
    // One that the client leaves open is not asked again.
    let mut suspension = Suspension::new(PATIENCE);
    suspension.take(Event::Asked(1), 0);
    suspension.take(Event::Done, 1);
    assert_eq!(
        suspension.take(Event::Retried { round: 1, answers: vec![] }, 2),
        [Effect::Refuse(1), Effect::Deliver, Effect::Forget]
    );
    // One that it has not been told of is.
    let mut suspension = Suspension::new(PATIENCE);
    suspension.take(Event::Asked(1), 0);
    suspension.take(Event::Asked(2), 1);
    suspension.take(Event::Done, 2);
    assert_eq!(
        suspension.take(Event::Retried { round: 1, answers: vec![1] }, 3),
        [Effect::Forward(1), Effect::Respond { round: 2, questions: vec![2] }]
    );
    assert_eq!(
        suspension.take(Event::Retried { round: 2, answers: vec![2] }, 4),
        [Effect::Forward(2), Effect::Deliver, Effect::Forget]
    );
}

fn hold_events() -> impl Strategy<Value = suspension::Event> {
    prop_oneof![
        4 => (0_u64..24).prop_map(suspension::Event::Asked),
        1 => (0_u64..24).prop_map(suspension::Event::Withdrawn),
        1 => Just(suspension::Event::Done),
        6 => (0_u32..20, proptest::collection::vec(0_u64..24, 0..4))
            .prop_map(|(round, answers)| suspension::Event::Retried { round, answers }),
        1 => Just(suspension::Event::Cancelled),
        1 => Just(suspension::Event::Tick),
    ]
}

proptest! {
    #[test]
    fn long_histories_of_a_held_call(
        events in proptest::collection::vec((hold_events(), 0_u64..40, any::<bool>()), 0..200),
    ) {
        let (mut suspension, mut books) = (Suspension::new(PATIENCE), Books { waiting: 1, ..Books::default() });
        let mut now = 0;
        for (mut event, later, right) in events {
            now += later;
            // Half of the retries know the right round, so that long histories come about.
            if let suspension::Event::Retried { round, .. } = &mut event && right {
                *round = books.round;
            }
            books.play(&mut suspension, &event, now);
        }
    }

    #[test]
    fn long_histories_of_rounds(events in proptest::collection::vec(round_events(), 0..120)) {
        play_rounds(events);
    }
}

fn question(key: u8) -> Question {
    let method = if key.is_multiple_of(2) { "elicitation/create" } else { "roots/list" };
    Question { key: format!("k{key}"), method: method.to_owned(), params: None }
}

fn required(keys: &[u8]) -> input_retries::Event {
    let questions = keys.iter().copied().map(question).collect();
    input_retries::Event::Required(Required { questions, state: Some("s".to_owned()) })
}

fn answered(key: u8, good: bool) -> input_retries::Event {
    let result = good.then(|| b"{}".to_vec());
    input_retries::Event::Answered { key: format!("k{key}"), result }
}

fn round_events() -> impl Strategy<Value = input_retries::Event> {
    prop_oneof![
        2 => proptest::collection::btree_set(0_u8..4, 0..4)
            .prop_map(|keys| required(&keys.into_iter().collect::<Vec<_>>())),
        6 => (0_u8..4, any::<bool>()).prop_map(|(key, good)| answered(key, good)),
        1 => Just(input_retries::Event::Cancelled),
    ]
}

/// Each question asked is answered or taken back; the call is made again only with all answers; at most one end.
fn play_rounds(events: Vec<input_retries::Event>) {
    let mut input_retries = InputRetries::new();
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut asked = 0;
    // The call is with the server, or the client is being asked, or it is over.
    let (mut sent, mut over) = (true, false);
    for event in events {
        if matches!(event, input_retries::Event::Required(_)) && !sent {
            continue;
        }
        if let input_retries::Event::Answered { key, .. } = &event {
            open.remove(key);
        }
        over |= event == input_retries::Event::Cancelled;
        sent &= !matches!(event, input_retries::Event::Required(_));
        for effect in input_retries.take(event) {
            match effect {
                input_retries::Effect::Ask(question) => {
                    assert!(open.insert(question.key));
                    asked += 1;
                }
                input_retries::Effect::Withdraw(key) => assert!(open.remove(&key)),
                input_retries::Effect::Retry { responses, state } => {
                    assert!(open.is_empty() && !over && !sent);
                    assert!(responses.len() <= asked);
                    assert_eq!(state.as_deref(), Some("s"));
                    (sent, asked) = (true, 0);
                }
                input_retries::Effect::Fail(_) => {
                    assert!(!over);
                    over = true;
                }
            }
        }
        if over {
            assert!(open.is_empty() && !input_retries.is_asking());
        }
    }
}

#[test]
fn every_short_history_of_rounds() {
    let letters = [
        required(&[]),
        required(&[0]),
        required(&[0, 1]),
        answered(0, true),
        answered(0, false),
        answered(1, true),
        answered(1, false),
        input_retries::Event::Cancelled,
    ];
    for length in 1..=6_u32 {
        for mut number in 0..letters.len().pow(length) {
            let mut events = Vec::new();
            for _ in 0..length {
                events.push(letters[number % letters.len()].clone());
                number /= letters.len();
            }
            play_rounds(events);
        }
    }
}

#[test]
fn a_call_is_made_again_with_all_answers() {
    use input_retries::{Effect, RetryError};
    let mut input_retries = InputRetries::new();
    assert_eq!(input_retries.take(required(&[0, 2])).len(), 2);
    assert_eq!(input_retries.take(answered(2, true)), []);
    let again = input_retries.take(answered(0, false));
    let [Effect::Retry { responses, state }] = &again[..] else { panic!("{again:?}") };
    assert_eq!(responses[0], ("k0".to_owned(), br#"{"action":"cancel"}"#.to_vec()));
    assert_eq!(responses[1].0, "k2");
    assert_eq!(state.as_deref(), Some("s"));
    // What only the client can give ends the call when it is not given.
    assert_eq!(input_retries.take(required(&[0, 1])).len(), 2);
    assert_eq!(
        input_retries.take(answered(1, false)),
        [Effect::Withdraw("k0".into()), Effect::Fail(RetryError::Unanswered)]
    );
}

#[test]
fn a_server_that_asks_for_ever_is_given_up() {
    let mut input_retries = InputRetries::new();
    for _ in 0..MAX_INPUT_ROUNDS {
        assert!(matches!(
            input_retries.take(required(&[]))[..],
            [input_retries::Effect::Retry { .. }]
        ));
    }
    assert_eq!(
        input_retries.take(required(&[])),
        [input_retries::Effect::Fail(input_retries::RetryError::TooOften)]
    );
}
