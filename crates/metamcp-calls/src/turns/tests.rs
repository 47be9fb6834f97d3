use proptest::prelude::*;

use super::*;

/// The same with plain lists: what waits in the order it came, and the lanes in the order of their turns.
#[derive(Debug, Default)]
struct Model {
    ahead: Vec<(u64, u32)>,
    waiting: Vec<(u64, u32)>,
    turns: Vec<u64>,
}

impl Model {
    fn push(&mut self, lane: u64, item: u32) {
        self.waiting.push((lane, item));
        if !self.turns.contains(&lane) {
            self.turns.push(lane);
        }
    }

    fn remove(&mut self, item: u32) -> bool {
        let before = self.ahead.len() + self.waiting.len();
        self.ahead.retain(|waits| waits.1 != item);
        self.waiting.retain(|waits| waits.1 != item);
        self.turns.retain(|lane| self.waiting.iter().any(|waits| waits.0 == *lane));
        self.ahead.len() + self.waiting.len() < before
    }

    fn pop_where(&mut self, can_go: impl Fn(u32) -> bool) -> Option<u32> {
        if let Some(at) = self.ahead.iter().position(|waits| can_go(waits.1)) {
            return Some(self.ahead.remove(at).1);
        }
        let able = |lane: &u64| {
            self.waiting.iter().find(|waits| waits.0 == *lane && can_go(waits.1)).copied()
        };
        let (lane, item) = self.turns.iter().find_map(able)?;
        self.remove(item);
        if let Some(at) = self.turns.iter().position(|other| *other == lane) {
            self.turns.remove(at);
            self.turns.push(lane);
        }
        Some(item)
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(u64),
    PushAhead(u64),
    Pop,
    /// Only items with an even number can go.
    PopEven,
    /// The n-th of those that ever came.
    Remove(usize),
}

/// Carries out the steps on both, then empties both; whatever they say has to be the same.
fn compare(steps: impl IntoIterator<Item = Step>) {
    let (mut turns, mut model) = (Turns::default(), Model::default());
    let mut tickets = Vec::new();
    for step in steps {
        let item = u32::try_from(tickets.len()).unwrap();
        match step {
            Step::Push(lane) => {
                tickets.push(turns.push(lane, item));
                model.push(lane, item);
            }
            Step::PushAhead(lane) => {
                tickets.push(turns.push_ahead(lane, item));
                model.ahead.push((lane, item));
            }
            Step::Pop => assert_eq!(turns.pop(), model.pop_where(|_| true)),
            Step::PopEven => {
                let next = turns.next_where(|item| item % 2 == 0).map(|next| next.0);
                let taken = next.and_then(|ticket| turns.take(ticket));
                assert_eq!(taken, model.pop_where(|item| item % 2 == 0));
            }
            Step::Remove(which) if which < tickets.len() => {
                let which_item = u32::try_from(which).unwrap();
                let removed = turns.remove(tickets[which]);
                assert_eq!(removed, model.remove(which_item).then_some(which_item));
            }
            Step::Remove(_) => {}
        }
        let waiting = || model.ahead.iter().chain(&model.waiting);
        assert_eq!(turns.len(), waiting().count());
        assert_eq!(turns.is_empty(), waiting().next().is_none());
        for lane in 0..4 {
            let of_lane = waiting().filter(|waits| waits.0 == lane).count();
            assert_eq!(turns.waiting_of(lane), of_lane);
            assert_eq!(turns.lanes().any(|other| other == lane), of_lane > 0);
        }
        let mut all: Vec<u32> = turns.iter().copied().collect();
        all.sort_unstable();
        let mut expected: Vec<u32> = waiting().map(|waits| waits.1).collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
    }
    while let Some(item) = turns.pop() {
        assert_eq!(Some(item), model.pop_where(|_| true));
    }
    assert_eq!(model.pop_where(|_| true), None);
}

#[test]
fn every_short_history() {
    const STEPS: [Step; 9] = [
        Step::Push(0),
        Step::Push(1),
        Step::Push(2),
        Step::PushAhead(0),
        Step::Pop,
        Step::PopEven,
        Step::Remove(0),
        Step::Remove(1),
        Step::Remove(2),
    ];
    for number in 0..STEPS.len().pow(5) {
        let step = |place: u32| STEPS[number / STEPS.len().pow(place) % STEPS.len()];
        compare((0..5).map(step));
    }
}

#[test]
fn a_flood_of_one_lane_delays_another_by_one_turn() {
    let mut turns = Turns::default();
    for item in 0..1000 {
        turns.push(1, item);
    }
    turns.push(2, 5000);
    assert_eq!((turns.pop(), turns.pop(), turns.pop()), (Some(0), Some(5000), Some(1)));
}

#[test]
fn there_is_always_room_for_another_lane() {
    let (bound, mut waiting) = (1024, 0);
    for lane in 0_u32.. {
        let mut own = 0;
        while has_room(bound, waiting, own) {
            own += 1;
            waiting += 1;
        }
        assert!(lane > 0 || own == 768, "one alone has three quarters: {own}");
        assert!(own > 0 || waiting == bound, "lane {lane} found no room among {waiting}");
        if waiting == bound {
            assert!(lane >= 5, "{lane} lanes took all of it");
            break;
        }
    }
}

proptest! {
    #[test]
    fn long_histories(
        steps in prop::collection::vec(
            prop_oneof![
                6 => (0_u64..4).prop_map(Step::Push),
                1 => (0_u64..4).prop_map(Step::PushAhead),
                3 => Just(Step::Pop),
                1 => Just(Step::PopEven),
                2 => (0_usize..300).prop_map(Step::Remove),
            ],
            1..300,
        )
    ) {
        compare(steps);
    }

    /// However others come and go: who waits is passed over at most once by each other lane.
    #[test]
    fn nobody_is_passed_over_twice(
        steps in prop::collection::vec((0_u64..5, any::<bool>()), 1..300)
    ) {
        let mut turns = Turns::default();
        let mut passed = [[0_u32; 5]; 5];
        for (lane, comes) in steps {
            if comes {
                if turns.waiting_of(lane) == 0 {
                    passed[usize::try_from(lane).unwrap()] = [0; 5];
                }
                turns.push(lane, usize::try_from(lane).unwrap());
            } else if let Some(served) = turns.pop() {
                passed[served] = [0; 5];
                for waits in turns.lanes().map(|lane| usize::try_from(lane).unwrap()) {
                    passed[waits][served] += u32::from(waits != served);
                    prop_assert!(passed[waits][served] <= 1);
                }
            }
        }
    }
}
