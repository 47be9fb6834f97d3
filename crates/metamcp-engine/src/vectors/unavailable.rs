//! Why there are no vectors, in our own words: nothing an API said is repeated, since it may echo the key.

use std::time::Duration;

use metamcp_types::text;

/// There are no vectors now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no embeddings from {host}: {failure}; {}", next(*.retry_in))]
pub struct Unavailable {
    /// Host and port of the API.
    pub host: String,
    /// What happened.
    pub failure: Failure,
    /// How long until it is asked again; until then every request is refused at once.
    pub retry_in: Duration,
}

/// What happened to a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No connection came about.
    #[error("it cannot be reached ({reason})")]
    Unreachable {
        /// The kind of error the system gave.
        reason: &'static str,
    },
    /// Its certificate was not accepted, or it does not speak TLS.
    #[error("no secure connection could be agreed ({reason})")]
    Insecure {
        /// The kind of error.
        reason: &'static str,
    },
    /// The connection ended before the answer did.
    #[error("it closed the connection before its answer was complete")]
    Closed,
    /// No whole answer in time.
    #[error("it did not answer within {} s", limit.as_secs())]
    TimedOut {
        /// The time it had.
        limit: Duration,
    },
    /// The key is missing or wrong.
    #[error("it refused the key (status {status}); check {}", key.as_deref().unwrap_or("whether it needs one"))]
    Unauthorised {
        /// The HTTP status.
        status: u16,
        /// The name, never the value, of the key that was sent.
        key: Option<String>,
    },
    /// It does not know the path or the model.
    #[error(
        "it knows no such path or model (status 404); check the address and the model {model:?}"
    )]
    NotFound {
        /// The model that was asked for.
        model: String,
    },
    /// It wants to be left alone.
    #[error("it has had too many requests (status 429)")]
    TooMany,
    /// It points elsewhere. A key is never carried there.
    #[error(
        "it redirects elsewhere (status {status}), which is not followed; set the final address"
    )]
    Redirected {
        /// The HTTP status.
        status: u16,
    },
    /// It does not accept the request as it is.
    #[error("it does not accept the request (status {status}); check the model {model:?}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The model that was asked for.
        model: String,
    },
    /// Any other status.
    #[error("it answered with status {status}")]
    Status {
        /// The HTTP status.
        status: u16,
    },
    /// More bytes than any honest answer has.
    #[error("its answer is larger than {cap} bytes")]
    TooLarge {
        /// The most that is read.
        cap: usize,
    },
    /// Not JSON of the expected form, or with more vectors or numbers than are possible.
    #[error("its answer is not one of an embeddings API")]
    Malformed,
    /// Not one vector for each text.
    #[error("it answered {asked} texts with {answered} vectors")]
    WrongCount {
        /// Texts sent.
        asked: usize,
        /// Vectors received.
        answered: usize,
    },
    /// Vectors of different lengths.
    #[error("its vectors have {found} numbers where others have {expected}")]
    WrongDimensions {
        /// The length of vectors until now.
        expected: usize,
        /// The length of this one.
        found: usize,
    },
    /// A vector that points nowhere.
    #[error("its vectors hold numbers that are not finite, or only zeros")]
    NotAVector,
    /// Our own limit of requests at once was in use all the time.
    #[error("other requests to it took all the time there was")]
    Busy,
    /// There is nothing to look for.
    #[error("the query is empty")]
    EmptyQuery,
}

fn next(retry_in: Duration) -> String {
    if retry_in.is_zero() {
        "the next request tries again".to_owned()
    } else {
        // Rounded up: one who waits as long as we say must not come too early.
        let seconds = retry_in.as_millis().div_ceil(1000);
        let whole = Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
        format!("tried again in {}", text::duration(whole))
    }
}
