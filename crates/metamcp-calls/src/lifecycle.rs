//! The state machine of one connection: five states and exactly eleven transitions.
//! Owns: the table of states.      Never: knows why an event happened, counts failures, holds a process.
//! In: events.  Out: the next state, or that the event is illegal here.
//! Tests: below, over every state and event.

use std::fmt;
use std::num::NonZeroU32;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Usable, with nothing under way.
    Idle,
    /// Starting its process and shaking hands.
    Connecting,
    /// Working on requests. Connections multiplex, so it is the last one to finish that makes it idle.
    Active {
        /// Requests under way.
        in_flight: NonZeroU32,
    },
    /// Unusable: its process or transport broke. It may connect again.
    Failed,
    /// Over. A server needed again gets a new connection.
    Closed,
}

/// What can happen to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Its process is to be started.
    Connect,
    /// A request is put on it; the first of them ends the handshake.
    Begin,
    /// A request on it ended, however it ended.
    Finish,
    /// Its process or transport broke.
    Break,
    /// It is to be shut.
    Close,
}

/// An event that cannot happen in a state. Always a fault of the gateway, never of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event:?} cannot happen to a connection that is {state}")]
pub struct Illegal {
    /// The state it was in.
    pub state: State,
    /// What was to happen.
    pub event: Event,
}

impl State {
    /// The state after an event.
    pub fn after(self, event: Event) -> Result<State, Illegal> {
        let active =
            |n: u32| NonZeroU32::new(n).map_or(State::Idle, |n| State::Active { in_flight: n });
        Ok(match (self, event) {
            (State::Idle | State::Failed, Event::Connect) => State::Connecting,
            (State::Idle | State::Connecting, Event::Begin) => active(1),
            (State::Active { in_flight }, Event::Begin) => {
                active(in_flight.get().saturating_add(1))
            }
            (State::Active { in_flight }, Event::Finish) => active(in_flight.get() - 1),
            (State::Connecting | State::Active { .. }, Event::Break) => State::Failed,
            // A process that exits while idle affected no call: it is not a failure, the next start decides.
            (State::Idle, Event::Break) => State::Closed,
            (
                State::Idle | State::Connecting | State::Active { .. } | State::Failed,
                Event::Close,
            ) => State::Closed,
            (state, event) => return Err(Illegal { state, event }),
        })
    }

    /// Requests under way.
    pub fn in_flight(self) -> u32 {
        match self {
            State::Active { in_flight } => in_flight.get(),
            _ => 0,
        }
    }

    /// Whether requests can be put on it.
    pub fn is_live(self) -> bool {
        matches!(self, State::Idle | State::Active { .. })
    }

    pub fn word(self) -> &'static str {
        match self {
            State::Idle => "idle",
            State::Connecting => "connecting",
            State::Active { .. } => "active",
            State::Failed => "failed",
            State::Closed => "closed",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_edges_are_exactly_the_promised_ones() {
        let two = State::Active { in_flight: NonZeroU32::MIN.saturating_add(1) };
        let one = State::Active { in_flight: NonZeroU32::MIN };
        let states = [State::Idle, State::Connecting, one, two, State::Failed, State::Closed];
        let events = [Event::Connect, Event::Begin, Event::Finish, Event::Break, Event::Close];
        let mut edges = BTreeSet::new();
        for state in states {
            for event in events {
                if let Ok(next) = state.after(event)
                    && next.to_string() != state.to_string()
                {
                    edges.insert(format!("{state} {next}"));
                }
            }
        }
        let promised = [
            "active closed",
            "active failed",
            "active idle",
            "connecting active",
            "connecting closed",
            "connecting failed",
            "failed closed",
            "failed connecting",
            "idle active",
            "idle closed",
            "idle connecting",
        ];
        assert_eq!(edges.into_iter().collect::<Vec<_>>(), promised);
    }

    #[test]
    fn only_the_last_finish_makes_it_idle() {
        let two = State::Connecting.after(Event::Begin).unwrap().after(Event::Begin).unwrap();
        assert_eq!(two.in_flight(), 2);
        let one = two.after(Event::Finish).unwrap();
        assert_eq!(one.in_flight(), 1);
        assert_eq!(one.after(Event::Finish), Ok(State::Idle));
    }
}
