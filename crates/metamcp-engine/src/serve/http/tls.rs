//! TLS with a certificate from files, reloaded when they change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::{self, ServerConfig};

use crate::clock;
use crate::pem::{self, PemError};

/// The shortest interval between two checks of the files.
const RELOAD_INTERVAL: Duration = Duration::from_secs(1);

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] PemError),
    /// It holds no certificate.
    #[error("there is no certificate in {}", path.display())]
    Empty {
        /// Where one should be.
        path: PathBuf,
    },
    /// Certificate and key do not match.
    #[error("the certificate and the key cannot be used together")]
    Pair {
        /// What is wrong with them.
        #[source]
        source: rustls::Error,
    },
}

/// See the module.
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    state: Mutex<State>,
}

struct State {
    acceptor: TlsAcceptor,
    made_from: [Option<SystemTime>; 2],
    checked: Instant,
}

impl Tls {
    /// Reads certificate and key.
    pub fn load(cert: &Path, key: &Path) -> Result<Tls, TlsError> {
        let made_from = [changed(cert), changed(key)];
        let acceptor = acceptor(cert, key)?;
        let state = State { acceptor, made_from, checked: clock::instant() };
        Ok(Tls { cert: cert.to_owned(), key: key.to_owned(), state: Mutex::new(state) })
    }

    /// The acceptor for the next connection. Changed files are reloaded; if they are invalid, the old ones stay in use.
    pub fn acceptor(&self) -> TlsAcceptor {
        let mut state = self.state.lock();
        if state.checked.elapsed() >= RELOAD_INTERVAL {
            state.checked = clock::instant();
            let made_from = [changed(&self.cert), changed(&self.key)];
            if made_from != state.made_from {
                match acceptor(&self.cert, &self.key) {
                    Ok(fresh) => {
                        state.acceptor = fresh;
                        state.made_from = made_from;
                        tracing::info!("the TLS certificate was read again");
                    }
                    // They may be in the middle of being replaced: checked again next time.
                    Err(error) => {
                        let message =
                            format!("the TLS certificate changed, but {error}; the old one stays");
                        tracing::warn!("{message}");
                    }
                }
            }
        }
        state.acceptor.clone()
    }
}

fn changed(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let chain = pem::certificates(cert, "the certificate")?;
    if chain.is_empty() {
        return Err(TlsError::Empty { path: cert.to_owned() });
    }
    let key = pem::key(key, "the key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|source| TlsError::Pair { source })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A failed handshake, as an I/O error.
pub(super) fn failed(error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("TLS: {error}"))
}
