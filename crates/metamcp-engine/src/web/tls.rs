//! TLS client configuration: the built-in roots, and the CA and client certificates that a server's configuration names.

use std::sync::Arc;

use metamcp_config::config::TlsFiles;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::pem::{self, PemError};

#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error(transparent)]
    File(#[from] PemError),
    #[error("{what} cannot be used")]
    Content {
        what: &'static str,
        #[source]
        source: rustls::Error,
    },
}

pub(crate) fn config(files: &TlsFiles) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = &files.ca {
        let what = "the CA certificates";
        for certificate in pem::certificates(path, what)? {
            roots.add(certificate).map_err(|source| TlsError::Content { what, source })?;
        }
    }
    let what = "TLS";
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|source| TlsError::Content { what, source })?
        .with_root_certificates(roots);
    let (Some(cert), Some(key)) = (&files.cert, &files.key) else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = pem::certificates(cert, "a client certificate")?;
    let key = pem::key(key, "the key of the client certificate")?;
    let what = "the client certificate and its key";
    builder.with_client_auth_cert(chain, key).map_err(|source| TlsError::Content { what, source })
}
