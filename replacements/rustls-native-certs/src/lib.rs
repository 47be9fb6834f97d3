//! The crate `rustls-native-certs` without the system's own store.
//! Owns: the one function that the client of the fleet's bus calls.      Never: links a framework, asks a keychain.
//! In: the file in `SSL_CERT_FILE`, or the list of authorities where the system keeps one.  Out: certificates.
//! Tests: below; `cargo xtask cross`, which links the binary for macOS away from a Mac.
//!
//! That client asks for the machine's authorities before every connection by TLS. On macOS the real crate links the
//! framework Security, which only a Mac has. macOS and every Linux also have the list as a file; where there is none, as on
//! Windows, no authority is trusted but those in the configuration.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::{env, fmt};

use pki_types::CertificateDer;
use pki_types::pem::{self, PemObject};

/// Names a file to read in place of the system's.
const CHOSEN: &str = "SSL_CERT_FILE";

/// Where systems keep the list: Debian, Fedora, SUSE, older Fedora, macOS and Alpine.
const LISTS: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// What was found, and what could not be read.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct CertificateResult {
    pub certs: Vec<CertificateDer<'static>>,
    pub errors: Vec<Error>,
}

/// A file that could not be read.
#[derive(Debug)]
pub struct Error {
    path: PathBuf,
    why: pem::Error,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for Error {}

/// The authorities that this machine trusts. A machine without a list trusts none, which is not an error.
pub fn load_native_certs() -> CertificateResult {
    let chosen = env::var_os(CHOSEN).filter(|path| !path.is_empty()).map(PathBuf::from);
    let list = chosen.or_else(|| LISTS.into_iter().map(PathBuf::from).find(|path| path.is_file()));
    list.map_or_else(CertificateResult::default, |path| read(&path))
}

fn read(path: &Path) -> CertificateResult {
    let mut result = CertificateResult::default();
    let mut failed = |why| result.errors.push(Error { path: path.to_owned(), why });
    match CertificateDer::pem_file_iter(path) {
        Ok(found) => {
            for certificate in found {
                match certificate {
                    Ok(certificate) => result.certs.push(certificate),
                    Err(why) => failed(why),
                }
            }
        }
        Err(why) => failed(why),
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_read_and_what_is_no_file_is_named() {
        let path = env::temp_dir().join(format!("native-certs-{}.pem", std::process::id()));
        let one = "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n";
        std::fs::write(&path, format!("# first\n{one}words\n{one}")).unwrap();
        let found = read(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(found.certs, [CertificateDer::from(vec![1, 2, 3]), vec![1, 2, 3].into()]);
        assert!(found.errors.is_empty());
        let gone = read(&path);
        assert!(gone.certs.is_empty());
        let [error] = &*gone.errors else { panic!("{:?}", gone.errors) };
        assert!(error.to_string().contains("native-certs-"), "{error}");
    }
}
