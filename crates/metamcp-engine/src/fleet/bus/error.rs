//! Why the bus did not do something.
//! Owns: the reasons, in words that say what to do.      Never: decides what follows.
//! In: errors of the client.  Out: `BusError`.
//! Tests: `metamcp/tests/fleet/messages.rs`.

use std::path::PathBuf;
use std::time::Duration;

use async_nats::client::{PublishErrorKind, RequestErrorKind};
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{
    AccountErrorKind, CreateKeyValueErrorKind, CreateStreamError, CreateStreamErrorKind,
};
use async_nats::jetstream::stream::LastRawMessageErrorKind;

use metamcp_wire::cluster_key::SealError;

#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error(
        "the cluster address {0:?} is not one: give nats://HOST:PORT or tls://HOST:PORT, several with commas"
    )]
    Address(String),
    #[error(
        "the cluster's bus lets nobody in with these credentials ({servers}): check cluster.credentials, cluster.user and the account"
    )]
    NotAuthorized { servers: String },
    #[error(
        "TLS with the cluster's bus fails ({servers}): {why}; cluster.ca names the certificate authority, cluster.cert and cluster.cert_key this node's certificate"
    )]
    Tls { servers: String, why: String },
    #[error("the cluster's bus cannot be reached ({servers}) for {}: {why}", seconds(*after))]
    Unreachable { servers: String, after: Duration, why: String },
    #[error("cannot read the credentials of the cluster's bus from {}: {why}", file.display())]
    Credentials { file: PathBuf, why: String },
    #[error("cannot prepare TLS for the cluster's bus: {0}")]
    Certificates(String),
    #[error(
        "the cluster's bus has no JetStream for this account: start nats-server with -js, or enable jetstream in the account"
    )]
    NoJetStream,
    #[error("the cluster's bus is older than version 2.11, which a fleet needs")]
    TooOld,
    #[error(
        "the cluster's bus has no room left ({what}): raise the account's limits, or max_file_store of the servers"
    )]
    Full { what: String },
    #[error(
        "the cluster's bus does not keep {what} on so many servers: cluster.replicas is at most the number of its servers"
    )]
    Replicas { what: String },
    #[error("the bucket {what} cannot be used: {why}")]
    Bucket { what: String, why: String },
    #[error("the bus is not reached")]
    Gone,
    #[error("the bus did not answer in time")]
    TimedOut,
    #[error("nobody is there to take it")]
    NobodyThere,
    #[error("the key is not as it was expected")]
    Conflict,
    #[error("{bytes} bytes are more than one message of the bus holds ({limit})")]
    TooLong { bytes: usize, limit: usize },
    #[error("what the bus holds is refused: {0}")]
    NotOpened(SealError),
    #[error("the bus: {0}")]
    Other(String),
}

impl BusError {
    /// Whether the bus may only not be ready yet.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(
            self,
            BusError::Gone | BusError::TimedOut | BusError::Bucket { .. } | BusError::Other(_)
        )
    }
}

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}

impl From<async_nats::client::PublishError> for BusError {
    fn from(error: async_nats::client::PublishError) -> BusError {
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => BusError::TooLong { bytes: 0, limit: 0 },
            PublishErrorKind::Send => BusError::Gone,
            PublishErrorKind::InvalidSubject => BusError::Other(error.to_string()),
        }
    }
}

impl From<async_nats::client::RequestError> for BusError {
    fn from(error: async_nats::client::RequestError) -> BusError {
        match error.kind() {
            RequestErrorKind::TimedOut => BusError::TimedOut,
            RequestErrorKind::NoResponders => BusError::NobodyThere,
            _ => BusError::Other(error.to_string()),
        }
    }
}

impl From<async_nats::SubscribeError> for BusError {
    fn from(error: async_nats::SubscribeError) -> BusError {
        BusError::Other(error.to_string())
    }
}

/// A write to a stream.
pub(super) fn write(error: &async_nats::jetstream::context::PublishError) -> BusError {
    use async_nats::jetstream::context::PublishErrorKind;
    match error.kind() {
        PublishErrorKind::WrongLastSequence => BusError::Conflict,
        PublishErrorKind::TimedOut | PublishErrorKind::StreamNotFound => BusError::TimedOut,
        PublishErrorKind::BrokenPipe => BusError::Gone,
        PublishErrorKind::MaxPayloadExceeded => BusError::TooLong { bytes: 0, limit: 0 },
        _ => match jetstream_code(error) {
            // A key that is written at the same moment by another, in a stream with several replicas.
            Some(CONCURRENT_WRITE) => BusError::Conflict,
            Some(ErrorCode::STREAM_STORE_FAILED | ErrorCode::INSUFFICIENT_RESOURCES) => {
                BusError::Full { what: error.to_string() }
            }
            _ => BusError::Other(error.to_string()),
        },
    }
}

/// The servers have no storage left for what a bucket reserves.
const NO_STORAGE: ErrorCode = ErrorCode(10047);
/// The same sequence of a subject is expected by a write that is under way.
const CONCURRENT_WRITE: ErrorCode = ErrorCode(10071);

fn jetstream_code(error: &(dyn std::error::Error + 'static)) -> Option<ErrorCode> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<async_nats::jetstream::Error>() {
            return Some(error.error_code());
        }
        if let Some(error) = error.downcast_ref::<CreateStreamError>()
            && let CreateStreamErrorKind::JetStream(error) = error.kind()
        {
            return Some(error.error_code());
        }
        next = error.source();
    }
    None
}

/// A read from a stream's leader; `None` if there is no such key.
pub(super) fn read(error: &async_nats::jetstream::stream::LastRawMessageError) -> Option<BusError> {
    match error.kind() {
        LastRawMessageErrorKind::NoMessageFound => None,
        LastRawMessageErrorKind::JetStream(error) => Some(BusError::Other(error.to_string())),
        _ => Some(BusError::TimedOut),
    }
}

pub(super) fn account(error: &async_nats::jetstream::context::AccountError) -> BusError {
    match error.kind() {
        AccountErrorKind::JetStreamUnavailable => BusError::NoJetStream,
        AccountErrorKind::TimedOut => BusError::Other(
            "JetStream does not answer this account: it needs the right to publish to $JS.API.> and to hear _INBOX.>".to_owned(),
        ),
        AccountErrorKind::JetStream(error) => match error.error_code() {
            ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
                BusError::NoJetStream
            }
            _ => BusError::Other(error.to_string()),
        },
        AccountErrorKind::Other => BusError::Other(error.to_string()),
    }
}

pub(super) fn bucket(
    what: &str,
    error: &async_nats::jetstream::context::CreateKeyValueError,
) -> BusError {
    match error.kind() {
        CreateKeyValueErrorKind::LimitMarkersNotSupported => BusError::TooOld,
        CreateKeyValueErrorKind::TimedOut => BusError::TimedOut,
        _ => stream(what, error),
    }
}

pub(super) fn stream(what: &str, error: &(dyn std::error::Error + 'static)) -> BusError {
    let what = what.to_owned();
    match jetstream_code(error) {
        Some(ErrorCode::STREAM_REPLICAS_NOT_SUPPORTED) => BusError::Replicas { what },
        Some(ErrorCode::INSUFFICIENT_RESOURCES | NO_STORAGE) => BusError::Full { what },
        _ => BusError::Bucket { what, why: chain(error) },
    }
}

/// An error with its sources.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut told = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let source_text = source.to_string();
        if !told.contains(&source_text) {
            told.push_str(": ");
            told.push_str(&source_text);
        }
        next = source.source();
    }
    told
}
