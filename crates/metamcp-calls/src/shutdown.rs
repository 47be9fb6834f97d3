//! Shutdown of the gateway: it serves, drains, ends its servers, kills them.
//! Owns: what a signal, the end of input and a lost client mean in each phase, and when the drain is over.      Never: sends a signal, closes a pipe, reads a clock.
//! In: events, each with the time.  Out: the phase the gateway is in now.
//! Tests: below, over every short history; with real processes in `metamcp/tests/promises/drain.rs` and `metamcp/tests/http/ending.rs`.

use std::time::Duration;

use metamcp_types::moment::Moment;

/// Signals until servers are killed: the first drains, the second ends, the third kills.
const KILLS: u32 = 3;

/// Where the gateway stands. It never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Requests are taken.
    Serving,
    /// No new ones; those in flight may finish until then.
    Draining {
        /// When it is over, whatever is still in flight.
        until: Moment,
    },
    /// What is left is answered with `shutting_down`, and servers end, with shutdown escalation.
    Ending,
    /// Servers are killed.
    Killing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// SIGTERM, SIGINT or SIGHUP.
    Signal,
    /// The client has said all it has to say.
    InputEnded,
    /// Whatever is written to the client is lost.
    OutputLost,
    /// Somebody looked how far the drain has come.
    Looked {
        /// Whether a request has no answer yet, or an answer has not left.
        in_flight: bool,
        /// Whether an answer could still be read by anybody.
        can_answer: bool,
    },
}

#[derive(Debug, Clone)]
pub struct Shutdown {
    drain: Duration,
    phase: Phase,
    /// How often it was said that this has to end.
    words: u32,
}

impl Shutdown {
    /// A gateway that serves, and lets calls in flight finish for up to `drain` at shutdown.
    pub fn new(drain: Duration) -> Shutdown {
        Shutdown { drain, phase: Phase::Serving, words: 0 }
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Hears what happened; says where the gateway stands now.
    ///
    /// The end of input is a word like a signal, so that a host which closes stdin and then sends SIGTERM, as the
    /// protocol tells it to, is not kept waiting; only a drain that a signal began is not cut short by it.
    pub fn hear(&mut self, event: Event, now: Moment) -> Phase {
        self.phase = match (self.phase, event) {
            (Phase::Serving, Event::Signal | Event::InputEnded) => {
                self.words += 1;
                Phase::Draining { until: now + self.drain }
            }
            (Phase::Serving, Event::OutputLost) => {
                self.words += 1;
                Phase::Ending
            }
            (Phase::Draining { .. }, Event::Signal) => {
                self.words += 1;
                Phase::Ending
            }
            (Phase::Draining { .. }, Event::OutputLost) => Phase::Ending,
            (Phase::Draining { until }, Event::Looked { in_flight, can_answer })
                if !in_flight || !can_answer || now >= until =>
            {
                Phase::Ending
            }
            (Phase::Ending, Event::Signal) => {
                self.words += 1;
                if self.words >= KILLS { Phase::Killing } else { Phase::Ending }
            }
            (phase, _) => phase,
        };
        self.phase
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAIN: Duration = Duration::from_secs(5);
    const BUSY: Event = Event::Looked { in_flight: true, can_answer: true };
    const QUIET: Event = Event::Looked { in_flight: false, can_answer: true };
    const UNHEARD: Event = Event::Looked { in_flight: true, can_answer: false };
    const EVENTS: [Event; 6] =
        [Event::Signal, Event::InputEnded, Event::OutputLost, BUSY, QUIET, UNHEARD];

    /// The phases that a history leads through; each event comes a second after the one before.
    fn through(history: &[Event]) -> Vec<Phase> {
        let mut shutdown = Shutdown::new(DRAIN);
        let at = |index: usize| Moment::millis(1000 * index as u64);
        history.iter().enumerate().map(|(index, event)| shutdown.hear(*event, at(index))).collect()
    }

    fn after(history: &[Event]) -> Phase {
        *through(history).last().unwrap()
    }

    #[test]
    fn with_nothing_in_flight_nothing_waits() {
        for word in [Event::Signal, Event::InputEnded] {
            assert_eq!(after(&[word]), Phase::Draining { until: Moment::millis(5000) });
            assert_eq!(after(&[word, QUIET]), Phase::Ending);
        }
    }

    #[test]
    fn calls_in_flight_have_as_long_as_the_drain_is_and_no_longer() {
        let mut shutdown = Shutdown::new(DRAIN);
        let until = Moment::millis(5100);
        assert_eq!(shutdown.hear(Event::Signal, Moment::millis(100)), Phase::Draining { until });
        assert_eq!(shutdown.hear(BUSY, Moment::millis(5099)), Phase::Draining { until });
        assert_eq!(shutdown.hear(BUSY, until), Phase::Ending);
        let mut impatient = Shutdown::new(Duration::ZERO);
        impatient.hear(Event::Signal, Moment::millis(100));
        assert_eq!(impatient.hear(BUSY, Moment::millis(100)), Phase::Ending);
    }

    #[test]
    fn a_second_word_ends_the_drain_and_a_third_kills() {
        use Event::{InputEnded, OutputLost, Signal};
        assert_eq!(after(&[Signal, BUSY, Signal]), Phase::Ending);
        assert_eq!(after(&[InputEnded, BUSY, Signal]), Phase::Ending);
        assert_eq!(after(&[Signal, InputEnded, BUSY]), Phase::Draining { until: DRAINED });
        for ended in [[Signal, Signal], [Signal, QUIET], [InputEnded, QUIET], [Signal, UNHEARD]] {
            assert_eq!(after(&ended), Phase::Ending, "{ended:?}");
        }
        assert_eq!(after(&[Signal, Signal, Signal]), Phase::Killing);
        assert_eq!(
            after(&[Signal, QUIET, Signal]),
            Phase::Ending,
            "the escalation has begun already"
        );
        assert_eq!(after(&[Signal, QUIET, Signal, Signal]), Phase::Killing);
        assert_eq!(after(&[InputEnded, Signal, Signal]), Phase::Killing);
        assert_eq!(after(&[OutputLost, Signal, Signal]), Phase::Killing);
    }

    const DRAINED: Moment = Moment::millis(5000);

    /// Every history of up to seven events: a third of a million.
    #[test]
    fn every_short_history_keeps_the_promises() {
        let mut history = Vec::new();
        for length in 1..=7 {
            for number in 0..EVENTS.len().pow(length) {
                history.clear();
                let mut rest = number;
                for _ in 0..length {
                    history.push(EVENTS[rest % EVENTS.len()]);
                    rest /= EVENTS.len();
                }
                check(&history);
            }
        }
    }

    fn check(history: &[Event]) {
        let phases = through(history);
        let mut before = Phase::Serving;
        let mut began = None;
        for (index, (&phase, &event)) in phases.iter().zip(history).enumerate() {
            let now = Moment::millis(1000 * index as u64);
            let story = || format!("{:?} after {:?}", phase, &history[..=index]);
            assert!(phase >= before, "it went back: {}", story());
            if before == Phase::Serving && phase != Phase::Serving {
                began = Some(now);
            }
            match phase {
                Phase::Serving => {
                    assert!(matches!(event, Event::Looked { .. }), "not heard: {}", story());
                }
                Phase::Draining { until } => {
                    assert_eq!(Some(until), began.map(|began| began + DRAIN), "{}", story());
                    assert!(!matches!(event, Event::OutputLost), "{}", story());
                    if let (Event::Looked { .. }, Phase::Draining { .. }) = (event, before) {
                        assert!(event == BUSY && now < until, "{}", story());
                    }
                }
                Phase::Ending if before < Phase::Ending => {
                    let drained = match before {
                        Phase::Draining { until } => event != BUSY || now >= until,
                        _ => event == Event::OutputLost,
                    };
                    assert!(drained && event != Event::InputEnded, "{}", story());
                }
                Phase::Killing if before < Phase::Killing => {
                    let signals = |seen: &&Event| **seen == Event::Signal;
                    let signals = history[..=index].iter().filter(signals).count();
                    assert!(event == Event::Signal && signals >= 2, "{}", story());
                    assert_eq!(before, Phase::Ending, "servers were asked first: {}", story());
                }
                Phase::Ending | Phase::Killing => {}
            }
            before = phase;
        }
    }
}
