//! The source of JWT keys: a file, or a URL of the issuer. Both are polled.

use std::fs;
use std::future::pending;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use hyper::{Request, StatusCode, Uri};
use tokio::time::{sleep, timeout};

use super::keys::{KeyError, KeySet};
use crate::serve::http::handler::Handler;
use crate::web::{self, BodyError, ClientOptions, Outgoing, SendErrorKind, Web};

/// Poll interval of a file.
const FILE_AGAIN: Duration = Duration::from_secs(5);
/// Poll interval of a URL.
const ISSUER_AGAIN: Duration = Duration::from_mins(10);
/// The shortest interval between two fetches because of an unknown key: anybody can send a token with one.
const ISSUER_SOONEST: Duration = Duration::from_secs(30);
/// Timeout of a fetch.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum size of a JWKS.
const MAX_BYTES: usize = 1024 * 1024;

/// Why a source cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is no file.
    #[error("cannot read {}", path.display())]
    File {
        /// Where it should be.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// The file holds something else.
    #[error("{} cannot be used", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: KeyError,
    },
    /// Not a URL, or one without TLS.
    #[error("{address:?} must be an address with https, or with http on this machine")]
    Address {
        /// As it was given.
        address: String,
    },
}

/// See the module.
#[derive(Debug)]
pub enum KeySource {
    /// A file, and when it last changed.
    File(PathBuf, Option<SystemTime>),
    /// An address.
    Issuer(Uri),
}

impl KeySource {
    /// Reads a file, or checks a URL, which is fetched once we serve.
    pub fn open(place: &str) -> Result<(KeySource, KeySet), SourceError> {
        if place.contains("://") {
            let address = || SourceError::Address { address: place.to_owned() };
            let uri: Uri = place.parse().map_err(|_| address())?;
            let is_here = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
            return match uri.scheme_str() {
                Some("https") => Ok((KeySource::Issuer(uri), KeySet::default())),
                Some("http") if is_here => Ok((KeySource::Issuer(uri), KeySet::default())),
                _ => Err(address()),
            };
        }
        let path = PathBuf::from(place);
        let changed = changed(&path);
        let text =
            fs::read(&path).map_err(|source| SourceError::File { path: path.clone(), source })?;
        let keys = KeySet::parse(&text)
            .map_err(|source| SourceError::Content { path: path.clone(), source })?;
        Ok((KeySource::File(path, changed), keys))
    }

    /// Keeps a handler's keys up to date. Keys that cannot be read do not replace the current ones.
    pub async fn refresh(mut self, handler: Arc<Handler>) {
        let Some(signed) = handler.signed() else { return pending().await };
        loop {
            match self.fresh().await {
                Ok(Some(keys)) => {
                    *signed.keys.write() = keys;
                }
                Ok(None) => {}
                Err(why) => {
                    let message = format!("keys of signed tokens could not be read again: {why}");
                    tracing::warn!("{message}");
                }
            }
            match &self {
                KeySource::File(..) => sleep(FILE_AGAIN).await,
                KeySource::Issuer(_) => {
                    sleep(ISSUER_SOONEST).await;
                    // Earlier if a token was signed by an unknown key.
                    let _either = timeout(
                        ISSUER_AGAIN.saturating_sub(ISSUER_SOONEST),
                        signed.unknown.notified(),
                    )
                    .await;
                }
            }
        }
    }

    /// The keys, if they may have changed.
    async fn fresh(&mut self) -> Result<Option<KeySet>, String> {
        match self {
            KeySource::File(path, seen) => {
                let now = changed(path);
                if now == *seen {
                    return Ok(None);
                }
                let text = fs::read(&*path).map_err(|error| error.to_string())?;
                let keys = KeySet::parse(&text).map_err(|error| error.to_string())?;
                *seen = now;
                Ok(Some(keys))
            }
            KeySource::Issuer(uri) => {
                let text = timeout(PATIENCE, fetch(uri.clone()))
                    .await
                    .map_err(|_| "the issuer does not answer".to_owned())??;
                KeySet::parse(&text).map(Some).map_err(|error| error.to_string())
            }
        }
    }
}

/// Fetches one document, without following redirects.
async fn fetch(uri: Uri) -> Result<Bytes, String> {
    let web = Web::new(ClientOptions::new(PATIENCE, 1)).map_err(|error| error.to_string())?;
    let mut request = Request::new(Outgoing::default());
    *request.uri_mut() = uri;
    let answer = web.send(request).await.map_err(|error| match error.kind {
        SendErrorKind::Unreachable { reason } | SendErrorKind::Insecure { reason } => {
            reason.to_owned()
        }
        SendErrorKind::Forbidden { reason } | SendErrorKind::OutOfFiles { reason } => reason,
        SendErrorKind::Closed => "the issuer closed the connection".to_owned(),
    })?;
    if answer.status() != StatusCode::OK {
        return Err(format!("the issuer answers {}", answer.status()));
    }
    web::read_body(answer.into_body(), MAX_BYTES).await.map_err(|error| match error {
        BodyError::TooLarge => "the issuer's answer is too long".to_owned(),
        BodyError::Closed => "the issuer's answer broke off".to_owned(),
    })
}

fn changed(path: &std::path::Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_over_ways_nobody_can_change_them_on() {
        for good in ["https://issuer/keys", "http://127.0.0.1:1/keys", "http://localhost/keys"] {
            assert!(matches!(KeySource::open(good), Ok((KeySource::Issuer(_), _))), "{good}");
        }
        for bad in ["http://issuer/keys", "ftp://issuer/keys", "https://", "://"] {
            assert!(matches!(KeySource::open(bad), Err(SourceError::Address { .. })), "{bad}");
        }
        assert!(matches!(KeySource::open("/nowhere/keys.json"), Err(SourceError::File { .. })));
    }
}
