//! Debounce of list-changed notifications: one per burst of changes, sent when it is over or has lasted too long.
//! Owns: the debounce, its maximum, what counts as a change.      Never: sends, reads a list.
//! In: `heard(digest, now)`, `tick(now)`.  Out: when to tick, and whether to notify.
//! Tests: below.

use std::time::Duration;

use metamcp_types::moment::Moment;

/// A list with change notifications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum List {
    Tools,
    /// Resources, and templates of them.
    Resources,
    Prompts,
}

impl List {
    /// All of them.
    pub const ALL: [List; 3] = [List::Tools, List::Resources, List::Prompts];

    /// Its list-changed notification.
    pub fn method(self) -> &'static str {
        match self {
            List::Tools => "notifications/tools/list_changed",
            List::Resources => "notifications/resources/list_changed",
            List::Prompts => "notifications/prompts/list_changed",
        }
    }

    /// The list that a notification is about.
    pub fn told_by(method: &str) -> Option<List> {
        List::ALL.into_iter().find(|list| list.method() == method)
    }

    /// The capability it belongs to.
    pub fn capability(self) -> &'static str {
        match self {
            List::Tools => "tools",
            List::Resources => "resources",
            List::Prompts => "prompts",
        }
    }
}

/// How long is waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// After the last change.
    pub quiet: Duration,
    /// After the first one, however many follow.
    pub longest: Duration,
}

/// See the module. One for each list.
#[derive(Debug, Default)]
pub struct Debounce {
    /// The digest that clients were last notified of, if known.
    told: Option<u64>,
    burst: Option<Burst>,
}

#[derive(Debug)]
struct Burst {
    first: Moment,
    last: Moment,
    digest: u64,
}

impl Debounce {
    /// Clients know the list with this digest: they have just been given it.
    pub fn given(&mut self, digest: u64) {
        if self.burst.is_none() {
            self.told = Some(digest);
        } else if self.told != Some(digest) {
            // One of them has seen what the others have not: whatever the list comes to, it is news to somebody.
            self.told = None;
        }
    }

    /// The list may have changed, and has this digest now.
    pub fn heard(&mut self, digest: u64, now: Moment) {
        match &mut self.burst {
            Some(burst) => {
                burst.last = now;
                burst.digest = digest;
            }
            None if self.told == Some(digest) => {}
            None => self.burst = Some(Burst { first: now, last: now, digest }),
        }
    }

    /// When `tick` wants to be called.
    pub fn due(&self, pace: Pace) -> Moment {
        self.burst.as_ref().map_or(Moment::NEVER, |burst| {
            (burst.last + pace.quiet).min(burst.first + pace.longest)
        })
    }

    /// Whether to notify clients now. A list that is again what it was is no change.
    pub fn tick(&mut self, pace: Pace, now: Moment) -> bool {
        if self.due(pace) > now {
            return false;
        }
        let Some(burst) = self.burst.take() else { return false };
        self.told.replace(burst.digest) != Some(burst.digest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace = Pace { quiet: Duration::from_millis(150), longest: Duration::from_secs(1) };

    fn at(millis: u64) -> Moment {
        Moment::millis(millis)
    }

    #[test]
    fn a_burst_is_told_once_when_it_is_over() {
        let mut list = Debounce::default();
        assert_eq!(list.due(PACE), Moment::NEVER);
        for millis in [0, 50, 100] {
            list.heard(millis + 1, at(millis));
        }
        assert_eq!(list.due(PACE), at(250));
        assert!(!list.tick(PACE, at(249)));
        assert!(list.tick(PACE, at(250)));
        assert!(!list.tick(PACE, at(500)));
        assert_eq!(list.due(PACE), Moment::NEVER);
    }

    #[test]
    fn a_burst_without_end_is_told_all_the_same() {
        let mut list = Debounce::default();
        let mut told = Vec::new();
        for millis in (0..3000).step_by(10) {
            list.heard(millis, at(millis));
            if list.due(PACE) <= at(millis) && list.tick(PACE, at(millis)) {
                told.push(millis);
            }
        }
        assert_eq!(told, [1000, 2010]);
    }

    #[test]
    fn what_is_again_what_it_was_is_no_news() {
        let mut list = Debounce::default();
        list.given(1);
        list.heard(1, at(0));
        assert_eq!(list.due(PACE), Moment::NEVER, "nothing changed");
        list.heard(2, at(0));
        list.heard(1, at(10));
        assert!(!list.tick(PACE, at(200)), "it changed and changed back");
        list.heard(2, at(300));
        assert!(list.tick(PACE, at(500)));
        list.heard(2, at(600));
        assert_eq!(list.due(PACE), Moment::NEVER);
    }

    #[test]
    fn what_was_given_in_the_middle_of_a_burst_is_taken_back_aloud() {
        let mut list = Debounce::default();
        list.given(1);
        list.heard(2, at(0));
        list.given(2);
        list.heard(1, at(10));
        assert!(list.tick(PACE, at(200)), "somebody still has the other one");
        list.heard(2, at(300));
        list.given(1);
        list.heard(1, at(310));
        assert!(!list.tick(PACE, at(500)), "everybody has this one");
    }

    #[test]
    fn the_names_fit_each_other() {
        for list in List::ALL {
            assert_eq!(List::told_by(list.method()), Some(list));
        }
        assert_eq!(List::told_by("notifications/message"), None);
    }
}
