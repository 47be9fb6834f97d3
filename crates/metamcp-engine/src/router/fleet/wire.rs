//! A call and what comes of it, as bytes between nodes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use metamcp_calls::dispatch::DispatchError;
use metamcp_calls::failure::{Fact, Failure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::super::error::CallErrorKind;
use super::super::{CallError, CallOutcome, Pending, Router, UpstreamRequest};
use super::placed::Placed;
use crate::fleet::Body;

/// What stands in front of a result.
pub(super) const HEAD: usize = 64;
/// Methods that are forwarded as they are.
pub(super) const METHODS: [&str; 11] = [
    "tools/call",
    "tools/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
];

/// A call, as its owner needs it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Call {
    pub definition: u128,
    /// Whose instance it is, where each principal has one of its own.
    pub owner: Option<u128>,
    pub tool: String,
    pub arguments: Option<Body>,
    pub meta: Option<Body>,
    pub wants_progress: bool,
    pub verbatim: Option<(String, Body)>,
    pub harmless: bool,
    /// Its server takes it as a task only, and has to be told.
    pub as_task: bool,
    pub input: Option<(Body, Option<Body>)>,
    pub principal: String,
    pub session: u64,
    pub client: Option<(String, String)>,
    /// Of its client: a JSON object.
    pub capabilities: String,
    pub is_stateless: bool,
}

/// How it ended.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answered {
    Result(Body),
    Rpc(Body),
    Unusable(String),
    Malformed(String),
    Oversize { bytes: u64, limit: usize },
    Dispatch(Ended),
    Cancelled,
}

/// An error of the owner's dispatch.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Ended {
    CircuitOpen { retry_after: Duration, failure: Option<Failure> },
    Unavailable { failure: Failure, retry_after: Option<Duration> },
    Paused { failure: Failure, retry_after: Duration },
    Refused { failure: Failure, retry_after: Option<Duration> },
    CrashLoop { failure: Option<Failure>, retry_after: Duration },
    PoolExhausted { waited: Duration, holders: Vec<String> },
    Overloaded,
    NotJson,
    TimedOut { after: Duration, sent: bool },
    OutcomeUnknown { failure: Failure },
    ShuttingDown { sent: bool },
    Removed,
}

/// Something on the way.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    Progress(Body),
    Log(Body),
    /// A request of the server to the client.
    Asked {
        ask: u64,
        method: String,
        params: Option<Body>,
    },
    /// The server does not want to know any more.
    Withdrawn {
        ask: u64,
    },
}

/// What the client says to such a request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Replied {
    Result(Body),
    Error(Body),
    Refused(String),
    Unreadable,
}

pub(super) fn call(placed: &Placed, pending: &Pending) -> Body {
    let (request, caller) = (&pending.request, &pending.caller);
    let identity = caller.client.identity();
    let body = |bytes: &Bytes| Body(bytes.clone());
    written(&Call {
        definition: placed.definition,
        owner: placed.principal,
        tool: request.tool.to_string(),
        arguments: request.arguments.as_ref().map(body),
        meta: request.meta.as_ref().map(body),
        wants_progress: request.progress.is_some(),
        verbatim: request.verbatim.as_ref().map(|it| (it.method.to_owned(), body(&it.params))),
        harmless: request.harmless,
        as_task: request.as_task,
        input: request
            .input
            .as_ref()
            .map(|input| (body(&input.responses), input.state.as_ref().map(body))),
        principal: identity.principal_name.to_string(),
        session: identity.session,
        client: identity.client.as_ref().map(|it| (it.name.clone(), it.version.clone())),
        capabilities: caller.client.capabilities().to_string(),
        is_stateless: caller.responder.is_stateless(),
    })
}

pub(super) fn written<T: Serialize>(value: &T) -> Body {
    // It fails only for types that do not know their length.
    Body(postcard::to_allocvec(value).unwrap_or_default().into())
}

/// Exactly one value; what follows it makes it none.
pub(super) fn read<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

impl Answered {
    /// It was not given to a process.
    pub(super) fn not_run(why: &str) -> Answered {
        let failure = Failure::new(Fact::Unreachable { reason: why.to_owned() });
        Answered::Dispatch(Ended::Unavailable { failure, retry_after: Some(super::TRY_AGAIN) })
    }

    pub(super) fn of(outcome: CallOutcome) -> Answered {
        let error = match outcome {
            CallOutcome::Result(result) => return Answered::Result(Body(result)),
            CallOutcome::Cancelled => return Answered::Cancelled,
            CallOutcome::Failed(error) => error,
        };
        match error.kind {
            CallErrorKind::Rpc(error) => Answered::Rpc(Body(error)),
            CallErrorKind::Malformed(defect) => Answered::Malformed(defect.to_string()),
            CallErrorKind::Unusable(why) | CallErrorKind::Unrecorded(why) => {
                Answered::Unusable(why)
            }
            // Both are said where a call begins, and calls of others do not begin here.
            CallErrorKind::Unapproved(_) | CallErrorKind::Mismatch(_) => {
                Answered::Unusable("was not called: the gateway that runs it refused it".to_owned())
            }
            CallErrorKind::Oversize { bytes, limit } => Answered::Oversize { bytes, limit },
            CallErrorKind::Dispatch { error, holders } => match ended(error, &holders) {
                Some(ended) => Answered::Dispatch(ended),
                None => Answered::Cancelled,
            },
        }
    }

    pub(super) fn outcome(self, router: &Router, request: &UpstreamRequest) -> CallOutcome {
        let failed = |kind| {
            CallOutcome::Failed(CallError {
                server: router.name_of(request.server),
                tool: Arc::clone(&request.tool),
                method: request.method(),
                kind,
            })
        };
        match self {
            Answered::Result(result) => CallOutcome::Result(result.0),
            Answered::Rpc(error) => failed(CallErrorKind::Rpc(error.0)),
            Answered::Unusable(why) => failed(CallErrorKind::Unusable(why)),
            Answered::Malformed(why) => failed(CallErrorKind::Unusable(format!(
                "answered with something that is not a valid message: {why}"
            ))),
            Answered::Oversize { bytes, limit } => failed(CallErrorKind::Oversize { bytes, limit }),
            // The owner gave it up without a word of ours.
            Answered::Cancelled => failed(CallErrorKind::Dispatch {
                error: super::unknown("the gateway that ran the call gave it up"),
                holders: Vec::new(),
            }),
            Answered::Dispatch(ended) => {
                let (error, holders) = ended.error();
                failed(CallErrorKind::Dispatch { error, holders })
            }
        }
    }
}

fn ended(error: DispatchError, holders: &[Arc<str>]) -> Option<Ended> {
    let own = |failure: Arc<Failure>| Failure::clone(&failure);
    Some(match error {
        DispatchError::CircuitOpen { retry_after, failure } => {
            Ended::CircuitOpen { retry_after, failure: failure.map(own) }
        }
        DispatchError::Unavailable { failure, retry_after } => {
            Ended::Unavailable { failure: own(failure), retry_after }
        }
        DispatchError::Paused { failure, retry_after } => {
            Ended::Paused { failure: own(failure), retry_after }
        }
        DispatchError::Refused { failure, retry_after } => {
            Ended::Refused { failure: own(failure), retry_after }
        }
        DispatchError::CrashLoop { failure, retry_after } => {
            Ended::CrashLoop { failure: failure.map(own), retry_after }
        }
        DispatchError::PoolExhausted { waited, .. } => {
            let holders = holders.iter().map(ToString::to_string).collect();
            Ended::PoolExhausted { waited, holders }
        }
        DispatchError::Overloaded => Ended::Overloaded,
        DispatchError::NotJson => Ended::NotJson,
        DispatchError::TimedOut { after, sent } => Ended::TimedOut { after, sent },
        DispatchError::OutcomeUnknown { failure } => {
            Ended::OutcomeUnknown { failure: own(failure) }
        }
        DispatchError::ShuttingDown { sent } => Ended::ShuttingDown { sent },
        DispatchError::Removed => Ended::Removed,
        DispatchError::Cancelled => return None,
    })
}

impl Ended {
    fn error(self) -> (DispatchError, Vec<Arc<str>>) {
        let mut names = Vec::new();
        let error = match self {
            Ended::CircuitOpen { retry_after, failure } => {
                DispatchError::CircuitOpen { retry_after, failure: failure.map(Arc::new) }
            }
            Ended::Unavailable { failure, retry_after } => {
                DispatchError::Unavailable { failure: Arc::new(failure), retry_after }
            }
            Ended::Paused { failure, retry_after } => {
                DispatchError::Paused { failure: Arc::new(failure), retry_after }
            }
            Ended::Refused { failure, retry_after } => {
                DispatchError::Refused { failure: Arc::new(failure), retry_after }
            }
            Ended::CrashLoop { failure, retry_after } => {
                DispatchError::CrashLoop { failure: failure.map(Arc::new), retry_after }
            }
            Ended::PoolExhausted { waited, holders } => {
                names = holders.iter().map(|name| Arc::from(name.as_str())).collect();
                DispatchError::PoolExhausted { waited, holders: Vec::new() }
            }
            Ended::Overloaded => DispatchError::Overloaded,
            Ended::NotJson => DispatchError::NotJson,
            Ended::TimedOut { after, sent } => DispatchError::TimedOut { after, sent },
            Ended::OutcomeUnknown { failure } => {
                DispatchError::OutcomeUnknown { failure: Arc::new(failure) }
            }
            Ended::ShuttingDown { sent } => DispatchError::ShuttingDown { sent },
            Ended::Removed => DispatchError::Removed,
        };
        (error, names)
    }
}
