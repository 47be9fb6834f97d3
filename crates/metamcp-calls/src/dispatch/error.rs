//! Errors of calls that their server did not answer.

use std::sync::Arc;
use std::time::Duration;

use crate::failure::{Fact, Failure};
use crate::pool::ServerId;
use crate::replay::Delivery;

/// How a call ended without an answer of its server.
#[derive(Clone, Debug, PartialEq)]
pub enum DispatchError {
    /// The server failed too often; it is left alone for a while. The call was not sent.
    CircuitOpen {
        /// When it may be tried again.
        retry_after: Duration,
        /// What went wrong last.
        failure: Option<Arc<Failure>>,
    },
    /// The server could not be started or reached. The call was not sent.
    Unavailable {
        failure: Arc<Failure>,
        /// When it may be tried again.
        retry_after: Option<Duration>,
    },
    /// The server is left alone for a moment, after what its last start or request led to. The call was not sent, and
    /// the server was not contacted again.
    Paused {
        /// What that led to.
        failure: Arc<Failure>,
        /// When it may be tried again.
        retry_after: Duration,
    },
    /// The server answered that it does not take the call: it did not run.
    Refused {
        failure: Arc<Failure>,
        /// When it may be tried again.
        retry_after: Option<Duration>,
    },
    /// The server keeps crashing. The call was not sent.
    CrashLoop {
        /// Its last crash.
        failure: Option<Arc<Failure>>,
        /// When it may be tried again.
        retry_after: Duration,
    },
    /// No slot came free in time. The call was not sent.
    PoolExhausted {
        /// How long it waited.
        waited: Duration,
        /// Who had the slots.
        holders: Vec<ServerId>,
    },
    /// Too many calls wait already. The call was not sent.
    Overloaded,
    /// What was to be sent is no JSON. The call was not sent.
    NotJson,
    /// Time ran out.
    TimedOut {
        after: Duration,
        /// Whether the server may have seen the call.
        sent: bool,
    },
    /// The server broke after it may have seen the call.
    OutcomeUnknown {
        /// What happened to it.
        failure: Arc<Failure>,
    },
    /// The caller called it off.
    Cancelled,
    /// The gateway is going down.
    ShuttingDown {
        /// Whether the server may have seen the call.
        sent: bool,
    },
    /// The server is not configured any more.
    Removed,
}

impl DispatchError {
    /// Whether only a login helps.
    pub fn wants_login(&self) -> bool {
        match self {
            DispatchError::Unavailable { failure, .. }
            | DispatchError::Refused { failure, .. }
            | DispatchError::Paused { failure, .. } => {
                matches!(failure.fact, Fact::LoginNeeded { .. })
            }
            _ => false,
        }
    }

    /// The reason in one word, for records and metrics.
    pub fn word(&self) -> &'static str {
        match self {
            DispatchError::CircuitOpen { .. } => "circuit_open",
            DispatchError::Unavailable { .. } => "unavailable",
            DispatchError::Paused { .. } => "paused",
            DispatchError::Refused { .. } => "refused_by_server",
            DispatchError::CrashLoop { .. } => "crash_loop",
            DispatchError::PoolExhausted { .. } => "pool_exhausted",
            DispatchError::Overloaded => "overloaded",
            DispatchError::NotJson => "not_json",
            DispatchError::TimedOut { .. } => "timeout",
            DispatchError::OutcomeUnknown { .. } => "outcome_unknown",
            DispatchError::Cancelled => "cancelled",
            DispatchError::ShuttingDown { .. } => "shutting_down",
            DispatchError::Removed => "removed",
        }
    }

    /// What went wrong with the server, where that is the reason.
    pub fn failure(&self) -> Option<&Arc<Failure>> {
        match self {
            DispatchError::CircuitOpen { failure, .. }
            | DispatchError::CrashLoop { failure, .. } => failure.as_ref(),
            DispatchError::Unavailable { failure, .. }
            | DispatchError::Paused { failure, .. }
            | DispatchError::Refused { failure, .. }
            | DispatchError::OutcomeUnknown { failure } => Some(failure),
            DispatchError::PoolExhausted { .. }
            | DispatchError::Overloaded
            | DispatchError::NotJson
            | DispatchError::TimedOut { .. }
            | DispatchError::Cancelled
            | DispatchError::ShuttingDown { .. }
            | DispatchError::Removed => None,
        }
    }

    /// For a call that broke off for good.
    pub(super) fn for_broken_call(
        failure: Arc<Failure>,
        delivery: Delivery,
        retry_after: Option<Duration>,
    ) -> DispatchError {
        match delivery {
            Delivery::NotSent => DispatchError::Unavailable { failure, retry_after },
            Delivery::Refused => DispatchError::Refused { failure, retry_after },
            Delivery::Sent => DispatchError::OutcomeUnknown { failure },
        }
    }

    /// The same for a call of which an earlier sending broke off and may have been executed: it must not be told
    /// that it was not sent.
    pub(super) fn or_outcome_unknown(self, broke: &Arc<Failure>) -> DispatchError {
        match self {
            DispatchError::CircuitOpen { .. }
            | DispatchError::Unavailable { .. }
            | DispatchError::Paused { .. }
            | DispatchError::Refused { .. }
            | DispatchError::CrashLoop { .. }
            | DispatchError::PoolExhausted { .. }
            | DispatchError::Overloaded
            | DispatchError::NotJson
            | DispatchError::Removed => {
                DispatchError::OutcomeUnknown { failure: Arc::clone(broke) }
            }
            DispatchError::TimedOut { after, .. } => DispatchError::TimedOut { after, sent: true },
            DispatchError::ShuttingDown { .. } => DispatchError::ShuttingDown { sent: true },
            DispatchError::OutcomeUnknown { .. } | DispatchError::Cancelled => self,
        }
    }
}
