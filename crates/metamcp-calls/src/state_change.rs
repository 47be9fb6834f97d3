//! What changed in a step of the dispatch: breakers, connections and the pool, for whoever observes the gateway.
//! Owns: the vocabulary of changes and their order.      Never: decides anything, formats a line.
//! In: `note` from breaker, pool and lifecycle transitions.  Out: `StateChange`s, oldest first.
//! Tests: below; `tests/sim.rs` checks that every change starts where the one before it ended.

use std::time::Duration;

use crate::breaker::{Breaker, Phase};
use crate::lifecycle::State;
use crate::pool::{ConnId, ServerId};

/// A change that was made. Requests beginning and ending on a busy connection are not changes of its state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StateChange {
    /// A breaker went from one phase to another.
    Breaker {
        /// Whose breaker.
        server: ServerId,
        from: Phase,
        to: Phase,
    },
    /// A connection went from one state to another; `None` before it had a slot and after its slot is free.
    Connection { server: ServerId, conn: ConnId, from: Option<State>, to: Option<State> },
    /// The pool gave, refused or took back a slot.
    Pool {
        /// Who waits for the slot or had it.
        server: ServerId,
        change: PoolChange,
    },
}

/// What happened in the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolChange {
    /// A server waits in line for a slot, with so many before it.
    Queued { ahead: usize },
    /// It got one.
    Granted { waited: Duration, from_reserve: bool },
    /// Nobody needs it any more, so it left the line.
    Withdrawn,
    /// Its idle connection is closed to make room for another server.
    Evicted,
    /// Its connection was idle for too long.
    IdleTimeout,
}

impl StateChange {
    pub fn server(&self) -> ServerId {
        match *self {
            StateChange::Breaker { server, .. }
            | StateChange::Connection { server, .. }
            | StateChange::Pool { server, .. } => server,
        }
    }

    /// Whether this only says that a connection got its first request or finished its last one. It happens with most
    /// calls, so observers ask for it separately.
    pub fn is_activity(&self) -> bool {
        matches!(
            self,
            StateChange::Connection {
                from: Some(State::Idle | State::Active { .. }),
                to: Some(State::Idle | State::Active { .. }),
                ..
            }
        )
    }
}

/// Changes nobody has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Changes(Vec<StateChange>);

impl Changes {
    pub(crate) fn note(&mut self, change: StateChange) {
        self.0.push(change);
    }

    /// Whatever `act` does to a breaker, noted if it changed the phase.
    pub(crate) fn of_breaker<R>(
        &mut self,
        server: ServerId,
        breaker: &mut Breaker,
        act: impl FnOnce(&mut Breaker) -> R,
    ) -> R {
        let from = breaker.phase();
        let result = act(breaker);
        let to = breaker.phase();
        if std::mem::discriminant(&from) != std::mem::discriminant(&to) {
            self.note(StateChange::Breaker { server, from, to });
        }
        result
    }

    pub(crate) fn of_connection(
        &mut self,
        server: ServerId,
        conn: ConnId,
        from: Option<State>,
        to: Option<State>,
    ) {
        if from.map(|state| std::mem::discriminant(&state))
            != to.map(|state| std::mem::discriminant(&state))
        {
            self.note(StateChange::Connection { server, conn, from, to });
        }
    }

    /// Everything since the last time, oldest first. Keeps its memory.
    pub(crate) fn drain(&mut self) -> std::vec::Drain<'_, StateChange> {
        self.0.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use metamcp_types::moment::Moment;

    use super::*;
    use crate::breaker::{Outcome, Policy};

    #[test]
    fn a_breaker_that_only_counts_has_not_changed() {
        let second = Duration::from_secs(1);
        let policy = Policy { threshold: 2, cooldown: second, probe_limit: second };
        let (mut breaker, mut changes) = (Breaker::new(policy), Changes::default());
        let mut fail = |changes: &mut Changes| {
            changes.of_breaker(ServerId(3), &mut breaker, |breaker| {
                let permit = breaker.admit(Moment::START).unwrap();
                breaker.settle(permit, Outcome::Failure, Moment::START, Duration::ZERO);
            });
        };
        fail(&mut changes);
        assert_eq!(changes.drain().count(), 0);
        fail(&mut changes);
        let opened = changes.drain().next().unwrap();
        let StateChange::Breaker { server: ServerId(3), to: Phase::Open { .. }, .. } = opened
        else {
            panic!("{opened:?}");
        };
    }

    #[test]
    fn only_busy_and_idle_are_activity() {
        let busy = Some(State::Active { in_flight: NonZeroU32::MIN });
        let key = metamcp_types::slab::Slab::default().insert(());
        let change =
            |from, to| StateChange::Connection { server: ServerId(0), conn: ConnId(key), from, to };
        assert!(change(Some(State::Idle), busy).is_activity());
        assert!(change(busy, Some(State::Idle)).is_activity());
        assert!(!change(Some(State::Connecting), busy).is_activity());
        assert!(!change(None, Some(State::Connecting)).is_activity());
        assert!(!change(busy, Some(State::Failed)).is_activity());
    }
}
