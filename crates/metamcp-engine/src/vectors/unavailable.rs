//! Why there are no vectors, in fixed text: nothing an API said is repeated, since it may echo the key.

use std::time::Duration;

use metamcp_types::text;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no embeddings from {host}: {failure}; {}", next(*.retry_in))]
pub struct Unavailable {
    pub host: String,
    pub failure: Failure,
    /// The remaining backoff; until then every request is refused at once.
    pub retry_in: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("it cannot be reached ({reason})")]
    Unreachable { reason: &'static str },
    /// TLS handshake failed.
    #[error("the TLS handshake failed ({reason})")]
    Insecure { reason: &'static str },
    #[error("it closed the connection before its response was complete")]
    Closed,
    #[error("it did not respond within {} s", limit.as_secs())]
    TimedOut { limit: Duration },
    /// The key is missing or wrong.
    #[error("it refused the key (status {status}); check {}", key.as_deref().unwrap_or("whether it needs one"))]
    Unauthorised {
        status: u16,
        /// The name, never the value, of the key that was sent.
        key: Option<String>,
    },
    /// Wrong path or model.
    #[error(
        "it knows no such path or model (status 404); check the address and the model {model:?}"
    )]
    NotFound { model: String },
    #[error("too many requests (status 429)")]
    TooMany,
    /// A redirect, which is never followed: it would forward the key.
    #[error(
        "it redirects elsewhere (status {status}), which is not followed; set the final address"
    )]
    Redirected { status: u16 },
    #[error("it does not accept the request (status {status}); check the model {model:?}")]
    Refused { status: u16, model: String },
    #[error("it answered with status {status}")]
    Status { status: u16 },
    #[error("its response is larger than {cap} bytes")]
    TooLarge { cap: usize },
    /// Not JSON of the expected form, or with too many vectors or dimensions.
    #[error("its response is not that of an embeddings API")]
    Malformed,
    /// Not one vector for each text.
    #[error("it answered {asked} texts with {answered} vectors")]
    WrongCount { asked: usize, answered: usize },
    #[error("its vectors have {found} dimensions instead of {expected}")]
    WrongDimensions { expected: usize, found: usize },
    #[error("its vectors contain only zeros, or numbers that are not finite")]
    NotAVector,
    /// Our own concurrency limit was exhausted for the whole time.
    #[error("it is busy with other requests")]
    Busy,
    #[error("the query is empty")]
    EmptyQuery,
}

fn next(retry_in: Duration) -> String {
    if retry_in.is_zero() {
        "the next request will try again".to_owned()
    } else {
        // Rounded up: a caller who waits as long as stated must not come too early.
        let seconds = retry_in.as_millis().div_ceil(1000);
        let whole = Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX));
        format!("next attempt in {}", text::duration(whole))
    }
}
