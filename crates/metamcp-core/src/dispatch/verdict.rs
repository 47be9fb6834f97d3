//! How a call ends when it is not its server that answers.

use std::sync::Arc;
use std::time::Duration;

use crate::failure::{Fact, Failure};
use crate::ledger::ServerId;
use crate::replay::Delivery;

/// How a call ended without an answer of its server.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// The server failed too often; it is left alone for a while. The call was not sent.
    CircuitOpen {
        /// When it may be tried again.
        retry_after: Duration,
        /// What went wrong last.
        failure: Option<Arc<Failure>>,
    },
    /// The server could not be started or reached. The call was not sent.
    Unavailable {
        /// Why.
        failure: Arc<Failure>,
        /// When it may be tried again.
        retry_after: Option<Duration>,
    },
    /// The server is left alone for a moment, after what its last start or request led to. The call was not sent, and
    /// the server was not asked again.
    Paused {
        /// What that led to.
        failure: Arc<Failure>,
        /// When it may be tried again.
        retry_after: Duration,
    },
    /// The server answered that it does not take the call: it did not run.
    Refused {
        /// What it said.
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
        /// After how long.
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

impl Verdict {
    /// Whether only a login helps.
    pub fn wants_login(&self) -> bool {
        match self {
            Verdict::Unavailable { failure, .. }
            | Verdict::Refused { failure, .. }
            | Verdict::Paused { failure, .. } => {
                matches!(failure.fact, Fact::LoginNeeded { .. })
            }
            _ => false,
        }
    }

    /// For a call that broke off for good.
    pub(super) fn of_one_that_broke(
        failure: Arc<Failure>,
        delivery: Delivery,
        retry_after: Option<Duration>,
    ) -> Verdict {
        match delivery {
            Delivery::NotSent => Verdict::Unavailable { failure, retry_after },
            Delivery::Refused => Verdict::Refused { failure, retry_after },
            Delivery::Sent => Verdict::OutcomeUnknown { failure },
        }
    }

    /// The same for a call of which an earlier sending broke off and may have been executed: it must not be told
    /// that it was not sent.
    pub(super) fn of_one_that_may_have_run(self, broke: &Arc<Failure>) -> Verdict {
        match self {
            Verdict::CircuitOpen { .. }
            | Verdict::Unavailable { .. }
            | Verdict::Paused { .. }
            | Verdict::Refused { .. }
            | Verdict::CrashLoop { .. }
            | Verdict::PoolExhausted { .. }
            | Verdict::Overloaded
            | Verdict::NotJson
            | Verdict::Removed => Verdict::OutcomeUnknown { failure: Arc::clone(broke) },
            Verdict::TimedOut { after, .. } => Verdict::TimedOut { after, sent: true },
            Verdict::ShuttingDown { .. } => Verdict::ShuttingDown { sent: true },
            Verdict::OutcomeUnknown { .. } | Verdict::Cancelled => self,
        }
    }
}
