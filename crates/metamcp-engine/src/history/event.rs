//! Events in a sentence each: breakers, starts and ends of connections, waits for the pool, sign-ins.

use metamcp_calls::breaker::Phase;
use metamcp_calls::lifecycle::State;
use metamcp_calls::state_change::{PoolChange, StateChange};
use metamcp_types::text::{self, duration};
use serde::{Deserialize, Serialize};

use crate::observe::{Event, LoginChange};

/// Longest name that is shown.
const MAX_NAME: usize = 200;

/// Whether somebody should look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    #[default]
    Info,
    Warning,
}

/// An event in a list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EventRow {
    pub number: u64,
    /// In milliseconds since 1970.
    pub at_ms: u64,
    pub severity: Severity,
    /// `breaker`, `connection`, `pool` or `login`.
    pub kind: String,
    pub server: Option<String>,
    pub words: String,
}

impl EventRow {
    /// Of an event that belongs into the list.
    pub fn of(event: &Event<'_>, at_ms: u64) -> Option<EventRow> {
        let (server, kind, (severity, words)) = match event {
            Event::State { server, change } => {
                let kind = match change {
                    StateChange::Breaker { .. } => "breaker",
                    StateChange::Connection { .. } => "connection",
                    StateChange::Pool { .. } => "pool",
                };
                (*server, kind, state(change)?)
            }
            Event::Login { server, change } => (*server, "login", login(*change)),
            _ => return None,
        };
        let server = Some(text::clean_line(server, MAX_NAME).into_owned());
        Some(EventRow { number: 0, at_ms, severity, kind: kind.to_owned(), server, words })
    }
}

fn info(words: impl Into<String>) -> (Severity, String) {
    (Severity::Info, words.into())
}

fn warning(words: impl Into<String>) -> (Severity, String) {
    (Severity::Warning, words.into())
}

fn state(change: &StateChange) -> Option<(Severity, String)> {
    Some(match change {
        StateChange::Breaker { to: Phase::Open { .. }, .. } => {
            warning("the circuit breaker opened: calls are refused for a while")
        }
        StateChange::Breaker { to: Phase::Probing { .. }, .. } => {
            info("one call probes whether the server is back")
        }
        StateChange::Breaker { to: Phase::Normal { .. }, .. } => info("the circuit breaker closed"),
        StateChange::Connection { to: Some(State::Connecting), .. } => info("starting"),
        StateChange::Connection {
            from: Some(State::Connecting),
            to: Some(State::Idle | State::Active { .. }),
            ..
        } => info("started"),
        StateChange::Connection { to: Some(State::Failed), .. } => warning("failed"),
        StateChange::Connection { to: Some(State::Closed), .. } => info("stopping"),
        StateChange::Connection { to: None, .. } => info("stopped"),
        StateChange::Connection { .. } => return None,
        StateChange::Pool { change, .. } => match change {
            PoolChange::Queued { ahead } => {
                warning(format!("waits for a slot of the pool, {ahead} before it"))
            }
            PoolChange::Granted { waited, from_reserve: true } => {
                warning(format!("got a reserve slot of the pool after {}", duration(*waited)))
            }
            PoolChange::Granted { waited, .. } if !waited.is_zero() => {
                info(format!("got a slot of the pool after {}", duration(*waited)))
            }
            PoolChange::Granted { .. } => return None,
            PoolChange::Withdrawn => info("no longer waits for a slot of the pool"),
            PoolChange::Evicted => info("stopped to make room for another server"),
            PoolChange::IdleTimeout => info("stopped because nobody used it"),
        },
    })
}

fn login(change: LoginChange) -> (Severity, String) {
    match change {
        LoginChange::Needed => warning("needs a person to sign in"),
        LoginChange::Started => info("signing in: waits for a person"),
        LoginChange::Granted => info("signed in"),
        LoginChange::Refreshed => info("its token was refreshed"),
        LoginChange::Failed => warning("signing in failed"),
        LoginChange::Forgotten => info("signed out"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metamcp_calls::pool::ServerId;
    use metamcp_types::moment::Moment;

    use super::*;

    #[test]
    fn what_matters_is_an_event_and_what_every_call_causes_is_not() {
        let server = ServerId(0);
        let of = |change: &StateChange| {
            let row = EventRow::of(&Event::State { server: "a\nb", change }, 1)?;
            assert_eq!(row.server.as_deref(), Some("a b"));
            Some((row.severity, row.words))
        };
        let opened = StateChange::Breaker {
            server,
            from: Phase::Normal { failures: 0 },
            to: Phase::Open { until: Moment::START },
        };
        assert_eq!(of(&opened).unwrap().0, Severity::Warning);
        let granted = |waited| StateChange::Pool {
            server,
            change: PoolChange::Granted { waited, from_reserve: false },
        };
        assert_eq!(of(&granted(Duration::ZERO)), None);
        assert!(of(&granted(Duration::from_secs(2))).unwrap().1.starts_with("got a slot"));
    }
}
