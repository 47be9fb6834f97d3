//! Certificates and keys in PEM files, for both sides of TLS.
//! Owns: reading them, and the error that names the file.      Never: validates their content.
//! In: a path, and what is expected there.  Out: certificates, a key, or why not.
//! Tests: `metamcp/tests/remote/tls.rs`, `metamcp/tests/http`.

use std::path::{Path, PathBuf};

use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

#[derive(Debug, thiserror::Error)]
#[error("cannot read {what} from {}", path.display())]
pub struct PemError {
    what: &'static str,
    path: PathBuf,
    source: pem::Error,
}

pub fn certificates(
    path: &Path,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, PemError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    read.map_err(|source| PemError { what, path: path.to_owned(), source })
}

pub fn key(path: &Path, what: &'static str) -> Result<PrivateKeyDer<'static>, PemError> {
    let read = PrivateKeyDer::from_pem_file(path);
    read.map_err(|source| PemError { what, path: path.to_owned(), source })
}
