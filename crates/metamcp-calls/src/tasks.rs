//! Tasks: calls that go on after their request was answered with a handle.
//! Owns: the states of a task and their order, which ended ones are forgotten.      Never: holds a result, knows a client.
//! In: what happens to the call and what the client says, with the time.  Out: the state, whether to cancel, what to drop.
//! Tests: below: every short history of one task, long random ones of many.

use std::collections::BTreeSet;
use std::time::Duration;

use metamcp_types::moment::Moment;

/// How long an ended task is kept: a client that lost its connection comes back within minutes, a person within the hour.
pub const KEEP: Duration = Duration::from_hours(1);
/// Tasks of one owner that may run at once. A further call stays an ordinary one, which its own time limit ends.
pub const MOST_RUNNING: usize = 128;
/// Ended tasks of one owner that are kept; the oldest make room.
pub const MOST_ENDED: usize = 256;

/// The states of the protocol's task extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Working,
    /// The server waits for something from the client.
    InputRequired,
    /// There is a result, be it one that reports a failure of the tool.
    Completed,
    /// The call ended with a protocol error.
    Failed,
    Cancelled,
}

impl Status {
    pub fn is_final(self) -> bool {
        matches!(self, Status::Completed | Status::Failed | Status::Cancelled)
    }

    /// The word of the protocol.
    pub fn word(self) -> &'static str {
        match self {
            Status::Working => "working",
            Status::InputRequired => "input_required",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
        }
    }
}

/// What a task hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The server asks the client something, under a number that no other question of the task has.
    Asked(u64),
    /// The client answered it, or the server does not wait for the answer any more.
    Settled(u64),
    /// The client does not want the result any more.
    Cancelled,
    /// The call ended, in one of the final states.
    Ended(Status),
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Nothing,
    /// The call is to be cancelled: once, and only while it runs.
    CancelCall,
    /// The task has its final state, and everything that waits for it can go on.
    Finished,
}

/// One task.
#[derive(Debug, Clone)]
pub struct Task {
    status: Status,
    open: BTreeSet<u64>,
    is_cancelling: bool,
    created: Moment,
    changed: Moment,
}

impl Task {
    pub fn new(now: Moment) -> Task {
        let (open, is_cancelling) = (BTreeSet::new(), false);
        Task { status: Status::Working, open, is_cancelling, created: now, changed: now }
    }

    pub fn status(&self) -> Status {
        self.status
    }

    pub fn created(&self) -> Moment {
        self.created
    }

    /// When its state last changed.
    pub fn changed(&self) -> Moment {
        self.changed
    }

    /// The questions that wait for an answer.
    pub fn open(&self) -> impl Iterator<Item = u64> {
        self.open.iter().copied()
    }

    /// A final state never changes. A cancelled call that ends with a result all the same did run: the result is the truth.
    pub fn take(&mut self, event: Event, now: Moment) -> Effect {
        if self.status.is_final() {
            return Effect::Nothing;
        }
        match event {
            Event::Asked(number) => drop(self.open.insert(number)),
            Event::Settled(number) => drop(self.open.remove(&number)),
            Event::Cancelled => {
                let is_first = !std::mem::replace(&mut self.is_cancelling, true);
                return if is_first { Effect::CancelCall } else { Effect::Nothing };
            }
            Event::Ended(status) => {
                // What is not final says nothing about how the call ended.
                self.status = if status.is_final() { status } else { Status::Cancelled };
                self.open.clear();
                self.changed = now;
                return Effect::Finished;
            }
        }
        let status = match self.open.is_empty() {
            true => Status::Working,
            false => Status::InputRequired,
        };
        if self.status != status {
            (self.status, self.changed) = (status, now);
        }
        Effect::Nothing
    }
}

/// What is known of each task when it is decided which are forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub owner: u64,
    /// When it ended, if it did.
    pub ended: Option<Moment>,
}

/// Which of these to forget: those that ended long ago, and the oldest of an owner with too many. One that runs is never
/// forgotten.
pub fn to_forget(all: &[Standing], now: Moment) -> Vec<usize> {
    let mut ended: Vec<(u64, Moment, usize)> = Vec::new();
    let mut forgotten = Vec::new();
    for (at, standing) in all.iter().enumerate() {
        match standing.ended {
            Some(since) if now.since(since) >= KEEP => forgotten.push(at),
            Some(since) => ended.push((standing.owner, since, at)),
            None => {}
        }
    }
    ended.sort_unstable_by_key(|&(owner, since, at)| (owner, std::cmp::Reverse((since, at))));
    for of_owner in ended.chunk_by(|one, other| one.0 == other.0) {
        forgotten.extend(of_owner.iter().skip(MOST_ENDED).map(|(_, _, at)| *at));
    }
    forgotten.sort_unstable();
    forgotten
}

/// Whether another call of this owner may become a task.
pub fn has_room(all: &[Standing], owner: u64) -> bool {
    let running = |standing: &&Standing| standing.owner == owner && standing.ended.is_none();
    all.iter().filter(running).count() < MOST_RUNNING
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EVENTS: [Event; 8] = [
        Event::Asked(1),
        Event::Asked(2),
        Event::Settled(1),
        Event::Settled(2),
        Event::Cancelled,
        Event::Ended(Status::Completed),
        Event::Ended(Status::Failed),
        Event::Ended(Status::Cancelled),
    ];

    fn at(seconds: u64) -> Moment {
        Moment::START + Duration::from_secs(seconds)
    }

    fn every_history(length: usize, judge: &mut impl FnMut(&[Event])) {
        let mut digits = vec![0; length];
        loop {
            let history: Vec<Event> = digits.iter().map(|digit| EVENTS[*digit]).collect();
            judge(&history);
            let Some(next) = digits.iter().rposition(|digit| digit + 1 < EVENTS.len()) else {
                return;
            };
            digits[next] += 1;
            digits[next + 1..].fill(0);
        }
    }

    #[test]
    fn every_short_history_ends_once_cancels_once_and_asks_only_while_it_runs() {
        for length in 1..=5 {
            every_history(length, &mut |history| {
                let mut task = Task::new(at(0));
                let (mut cancels, mut ends) = (0, 0);
                let mut last = Status::Working;
                for (second, event) in (1..).zip(history) {
                    let effect = task.take(*event, at(second));
                    assert!(!last.is_final() || effect == Effect::Nothing, "{history:?}");
                    cancels += usize::from(effect == Effect::CancelCall);
                    ends += usize::from(effect == Effect::Finished);
                    assert!(!last.is_final() || task.status() == last, "{history:?}");
                    let asks = task.open().next().is_some();
                    assert_eq!(task.status() == Status::InputRequired, asks, "{history:?}");
                    let moved = task.status() != last;
                    assert_eq!(task.changed() == at(second), moved, "{history:?}");
                    last = task.status();
                }
                assert!(cancels <= 1 && ends <= 1, "{history:?}");
                assert_eq!(ends == 1, last.is_final(), "{history:?}");
            });
        }
    }

    #[test]
    fn a_result_that_came_in_spite_of_a_cancellation_is_told() {
        let mut task = Task::new(at(0));
        assert_eq!(task.take(Event::Cancelled, at(1)), Effect::CancelCall);
        assert_eq!(task.status(), Status::Working, "it still runs");
        assert_eq!(task.take(Event::Ended(Status::Completed), at(2)), Effect::Finished);
        assert_eq!(task.status(), Status::Completed);
    }

    proptest! {
        #[test]
        fn what_runs_stays_and_the_oldest_ended_go_first(
            all in prop::collection::vec((0_u64..3, prop::option::of(0_u64..8_000)), 0..900),
            now in 8_000_u64..9_000,
        ) {
            let all: Vec<Standing> = all
                .into_iter()
                .map(|(owner, ended)| Standing { owner, ended: ended.map(at) })
                .collect();
            let gone = to_forget(&all, at(now));
            prop_assert!(gone.is_sorted());
            let is_gone = |index: &usize| gone.binary_search(index).is_ok();
            for owner in 0..3 {
                let of_owner = |index: &usize| all[*index].owner == owner;
                let kept: Vec<usize> = (0..all.len()).filter(of_owner).filter(|i| !is_gone(i)).collect();
                let ended = |index: &&usize| all[**index].ended.is_some();
                prop_assert!(kept.iter().filter(ended).count() <= MOST_ENDED);
                let oldest_kept = kept.iter().filter_map(|index| all[*index].ended).min();
                for index in gone.iter().filter(|index| of_owner(index)) {
                    let since = all[*index].ended.expect("one that runs is not forgotten");
                    prop_assert!(oldest_kept.is_none_or(|kept| since <= kept));
                }
            }
        }
    }

    #[test]
    fn an_owner_with_many_running_tasks_gets_no_more_and_others_do() {
        let all = vec![Standing { owner: 1, ended: None }; MOST_RUNNING];
        assert!(!has_room(&all, 1));
        assert!(has_room(&all, 2));
        assert!(has_room(&all[1..], 1));
    }
}
