//! What we trust, and what we show: the roots built in, and the files that a server's configuration names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use metamcp_core::config::TlsFiles;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not there or is something else.
    #[error("cannot read {what} from {}", path.display())]
    File {
        /// What it should hold.
        what: &'static str,
        /// Where it should be.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: pem::Error,
    },
    /// What is in the files cannot be used.
    #[error("{what} cannot be used")]
    Content {
        /// What it is.
        what: &'static str,
        /// What is wrong with it.
        #[source]
        source: rustls::Error,
    },
}

pub(super) fn config(files: &TlsFiles) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    if let Some(path) = &files.ca {
        let what = "certificates of authorities";
        for certificate in certificates(path, what)? {
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
    let chain = certificates(cert, "a client certificate")?;
    let what = "the key of the client certificate";
    let key = PrivateKeyDer::from_pem_file(key).map_err(|source| TlsError::File {
        what,
        path: key.clone(),
        source,
    })?;
    let what = "the client certificate with its key";
    builder.with_client_auth_cert(chain, key).map_err(|source| TlsError::Content { what, source })
}

fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let file = |source| TlsError::File { what, path: path.to_owned(), source };
    let read = CertificateDer::pem_file_iter(path).map_err(file)?;
    read.collect::<Result<Vec<_>, _>>().map_err(file)
}
