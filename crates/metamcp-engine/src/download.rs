//! Files of a release: bounded, with a deadline, over HTTPS; plain HTTP to this machine only, which is how mirrors are tried.
//! Owns: which addresses may be fetched from and redirected to.      Never: writes a file, says what a release is, retries.
//! In: the address of a folder, the name of a file.  Out: its bytes, or why not.
//! Tests: below; `metamcp/tests/config/upgrade.rs` with a server of releases.

use std::time::Duration;

use bytes::Bytes;
use hyper::header::{HeaderMap, LOCATION};
use metamcp_types::web::{Address, AddressError};

use crate::web::{
    self, BodyError, ClientOptions, GuardedClient, Outgoing, Proxy, SendError, SendErrorKind,
    TlsError,
};

/// Redirects followed: a page of releases leads to a store, with some more for a mirror.
const MAX_REDIRECTS: usize = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// Enough for 40 MB over a slow line.
const TIMEOUT: Duration = Duration::from_mins(15);

/// Why a file could not be had.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    #[error("{text} is not an address to download from")]
    Address {
        text: String,
        #[source]
        source: AddressError,
    },
    #[error("{text} is not https; plain http is for this machine only")]
    Plain { text: String },
    #[error("TLS cannot be set up")]
    Tls(#[source] TlsError),
    #[error("cannot fetch {address}: {why}")]
    Send { address: String, why: String },
    #[error("cannot fetch {address}: status {status}")]
    Status { address: String, status: u16 },
    #[error("{address} redirects to {to}, where nothing is downloaded from")]
    Redirect { address: String, to: String },
    #[error("{address} redirects more than {MAX_REDIRECTS} times")]
    Redirects { address: String },
    #[error("{address} is larger than {most} bytes")]
    TooLarge { address: String, most: usize },
    #[error("{address} broke off before its end")]
    Cut { address: String },
    #[error("{address} did not arrive within {} s", TIMEOUT.as_secs())]
    TooSlow { address: String },
}

/// A folder of files, such as those of a release.
#[derive(Debug, Clone)]
pub struct Folder(Address);

impl Folder {
    pub fn parse(text: &str) -> Result<Folder, DownloadError> {
        let address = Address::parse(&format!("{}/", text.trim_end_matches('/')))
            .map_err(|source| DownloadError::Address { text: text.to_owned(), source })?;
        if !address.is_confidential() {
            return Err(DownloadError::Plain { text: text.to_owned() });
        }
        Ok(Folder(address))
    }

    /// The content of a file there, of at most `most` bytes.
    pub async fn fetch(&self, file: &str, most: usize) -> Result<Bytes, DownloadError> {
        let address = self
            .0
            .join(file)
            .map_err(|source| DownloadError::Address { text: file.to_owned(), source })?;
        let too_slow = DownloadError::TooSlow { address: address.to_string() };
        let fetched = tokio::time::timeout(TIMEOUT, follow(&self.0, address, most)).await;
        fetched.unwrap_or(Err(too_slow))
    }
}

async fn follow(from: &Address, mut address: Address, most: usize) -> Result<Bytes, DownloadError> {
    // A release may redirect to where files are stored, but not into the network of whoever downloads.
    let guarded = GuardedClient::default();
    let options =
        ClientOptions { proxy: Proxy::from_env(), ..ClientOptions::new(CONNECT_TIMEOUT, 1) };
    let web = guarded.client(from, &options).map_err(DownloadError::Tls)?;
    for _ in 0..=MAX_REDIRECTS {
        let shown = address.to_string();
        let failed =
            |error: SendError| DownloadError::Send { address: shown.clone(), why: words(error) };
        let empty = Outgoing::of(Bytes::new());
        let request = web::request(hyper::Method::GET, &address, HeaderMap::new(), empty);
        let answer = web.send(request.map_err(failed)?).await.map_err(failed)?;
        let status = answer.status();
        if status.is_success() {
            let body = web::read_body(answer.into_body(), most).await;
            return body.map_err(|error| match error {
                BodyError::TooLarge => DownloadError::TooLarge { address: shown, most },
                BodyError::Closed => DownloadError::Cut { address: shown },
            });
        }
        let next = answer.headers().get(LOCATION).filter(|_| status.is_redirection());
        let Some(next) = next.and_then(|next| next.to_str().ok()) else {
            return Err(DownloadError::Status { address: shown, status: status.as_u16() });
        };
        let refused = DownloadError::Redirect { address: shown, to: next.to_owned() };
        match address.join(next) {
            Ok(next) if next.is_secure() || (next.is_here() && !address.is_secure()) => {
                address = next;
            }
            _ => return Err(refused),
        }
    }
    Err(DownloadError::Redirects { address: from.to_string() })
}

fn words(error: SendError) -> String {
    match error.kind {
        SendErrorKind::Unreachable { reason } | SendErrorKind::Insecure { reason } => {
            reason.to_owned()
        }
        SendErrorKind::Forbidden { reason } | SendErrorKind::OutOfFiles { reason } => reason,
        SendErrorKind::Closed => "the connection was closed before an answer came".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_and_this_machine_are_downloaded_from() {
        let fine =
            ["https://example.com/releases", "http://127.0.0.1:8080/x/", "http://localhost:1"];
        for text in fine {
            assert!(Folder::parse(text).is_ok(), "{text}");
        }
        for text in ["http://example.com", "ftp://example.com", "file:///x", "x", ""] {
            assert!(Folder::parse(text).is_err(), "{text}");
        }
    }
}
