//! When a server's tool list is refreshed: at most once per change, however often the server notifies.
//! Owns: the minimum interval, the limit for notification storms.      Never: reads a list.
//! In: `changed(now)`, `started(now)`, `finished()`.  Out: when the next refresh is due.
//! Tests: below.

use std::collections::VecDeque;
use std::time::Duration;

use metamcp_types::moment::Moment;

/// Least time between the starts of two readings.
const GAP: Duration = Duration::from_secs(1);
/// More readings than this within a minute are a storm.
const STORM: usize = 10;
const MINUTE: Duration = Duration::from_mins(1);

#[derive(Debug, Default)]
pub struct Refresh {
    running: bool,
    wanted: bool,
    /// The server shouts without pause: its list is polled once a minute instead of chased.
    storm: bool,
    last_change: Moment,
    starts: VecDeque<Moment>,
}

impl Refresh {
    /// The server says that its list changed.
    pub fn changed(&mut self, now: Moment) {
        if now.since(self.last_change) >= MINUTE {
            self.storm = false;
        }
        self.last_change = now;
        self.wanted = true;
    }

    /// When the next reading is due: never while one runs or none is wanted.
    pub fn due(&self, now: Moment) -> Moment {
        if self.running || !self.wanted {
            return Moment::NEVER;
        }
        let gap = if self.storm { MINUTE } else { GAP };
        self.starts.back().map_or(now, |&last| last + gap)
    }

    /// When the last reading began.
    pub fn last_started(&self) -> Option<Moment> {
        self.starts.back().copied()
    }

    /// A reading begins.
    pub fn started(&mut self, now: Moment) {
        self.running = true;
        self.wanted = false;
        self.starts.retain(|&at| at + MINUTE > now);
        self.starts.push_back(now);
        self.storm |= self.starts.len() > STORM;
    }

    /// A reading ended.
    pub fn finished(&mut self) {
        self.running = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_running_one_pending_and_a_gap() {
        let mut refresh = Refresh::default();
        assert_eq!(refresh.due(Moment::START), Moment::NEVER);
        refresh.changed(Moment::START);
        assert_eq!(refresh.due(Moment::START), Moment::START);
        refresh.started(Moment::START);
        for _ in 0..100_000 {
            refresh.changed(Moment::millis(5));
        }
        assert_eq!(refresh.due(Moment::millis(10)), Moment::NEVER, "one is running");
        refresh.finished();
        assert_eq!(refresh.due(Moment::millis(10)), Moment::millis(1000));
    }

    #[test]
    fn a_storm_becomes_a_poll() {
        let mut refresh = Refresh::default();
        let mut now = Moment::START;
        let mut readings = 0;
        while now < Moment::millis(300_000) {
            refresh.changed(now);
            let due = refresh.due(now);
            if due <= now {
                refresh.started(now);
                refresh.finished();
                readings += 1;
            }
            now = now + Duration::from_millis(100);
        }
        assert!(readings <= 11 + 5, "{readings} readings in five minutes");
    }
}
