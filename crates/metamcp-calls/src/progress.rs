//! Progress notifications of one call: the server's own, or begin and end where it sends none.
//! Owns: that progress increases with every notification, as the protocol requires, and that none follows the end.      Never: writes a message, reads a clock.
//! In: the server's progress, its silence, the end of the call.  Out: the numbers to send.
//! Tests: below, over every short history; `metamcp/tests/surface/progress.rs` with real servers.

/// How much a word that does not rise is moved above the one before it.
const NUDGE: f64 = 1e-6;

/// The progress that stands for the end of a call without progress of its own, and its total.
pub const DONE: u32 = 1;

#[derive(Debug, Clone, Copy, Default)]
pub struct Progress {
    last: Option<f64>,
    own: bool,
    over: bool,
}

/// What to send when a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct End {
    /// A begin notification first, if none was sent yet.
    pub begin: bool,
    /// That it ended.
    pub end: bool,
}

impl Progress {
    /// The server has been silent for a while: whether to send a begin notification now.
    pub fn silent(&mut self) -> bool {
        let tells = self.last.is_none() && !self.over;
        if tells {
            self.last = Some(0.0);
        }
        tells
    }

    /// The server's progress: the number to send, which is its own unless that does not increase.
    pub fn own(&mut self, value: f64) -> f64 {
        self.own = true;
        let told = match self.last {
            Some(last) if value <= last || value.is_nan() => last.next_up().max(last + NUDGE),
            _ => value,
        };
        self.last = Some(told);
        told
    }

    /// The call ended; `answered` unless it was cancelled. What failed has ended too: a client that was notified of the begin must
    /// not go on waiting.
    pub fn end(&mut self, answered: bool) -> End {
        let tells = answered && !self.own && !self.over;
        let begin = tells && self.last.is_none();
        self.over = true;
        End { begin, end: tells }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Event {
        Silent,
        Own(f64),
        End(bool),
    }

    const EVENTS: [Event; 7] = [
        Event::Silent,
        Event::Own(0.0),
        Event::Own(1.0),
        Event::Own(-3.0),
        Event::Own(1e18),
        Event::End(true),
        Event::End(false),
    ];

    fn told(history: &[Event]) -> Vec<f64> {
        let mut progress = Progress::default();
        let mut told = Vec::new();
        for event in history {
            match *event {
                Event::Silent => told.extend(progress.silent().then_some(0.0)),
                Event::Own(value) => told.push(progress.own(value)),
                Event::End(answered) => {
                    let end = progress.end(answered);
                    told.extend(end.begin.then_some(0.0));
                    told.extend(end.end.then_some(f64::from(DONE)));
                }
            }
        }
        told
    }

    #[test]
    fn a_silent_server_gets_begin_and_end_and_one_that_speaks_its_own_words() {
        use Event::{End, Own, Silent};
        assert_eq!(told(&[End(true)]), [0.0, 1.0]);
        assert_eq!(told(&[Silent, End(true)]), [0.0, 1.0]);
        assert_eq!(told(&[Silent, Silent, End(true)]), [0.0, 1.0]);
        assert_eq!(told(&[Own(1.0), Own(2.0), Silent, End(true)]), [1.0, 2.0]);
        assert_eq!(told(&[Silent, Own(0.0), Own(5.0), End(true)]), [0.0, 1e-6, 5.0]);
        for called_off in [&[End(false)][..], &[End(false), Silent]] {
            assert_eq!(told(called_off), [0.0; 0], "nobody waits for what was called off");
        }
        assert_eq!(told(&[Silent, End(false)]), [0.0]);
    }

    /// Every history of up to six events, as far as the protocol allows it: nothing follows an end.
    #[test]
    fn it_always_rises_and_ends_once() {
        for length in 1..=6_u32 {
            for number in 0..EVENTS.len().pow(length) {
                let mut rest = number;
                let mut history = Vec::new();
                for _ in 0..length {
                    history.push(EVENTS[rest % EVENTS.len()]);
                    rest /= EVENTS.len();
                }
                let ends = history.iter().position(|event| matches!(event, Event::End(_)));
                let told_then = told(&history);
                if ends.is_none_or(|at| {
                    history[at..].iter().all(|event| !matches!(event, Event::Own(_)))
                }) {
                    assert!(
                        told_then.windows(2).all(|pair| pair[1] > pair[0]),
                        "{history:?}: {told_then:?}"
                    );
                }
                if let Some(at) = ends {
                    let after: Vec<Event> = history
                        .iter()
                        .copied()
                        .filter(|event| !matches!(event, Event::Own(_)))
                        .collect();
                    let first =
                        after.iter().position(|event| matches!(event, Event::End(_))).unwrap();
                    assert_eq!(
                        told(&after).len(),
                        told(&after[..=first]).len(),
                        "{history:?} from {at}"
                    );
                }
            }
        }
    }
}
