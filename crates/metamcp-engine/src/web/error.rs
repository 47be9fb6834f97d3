//! Why a request got no response, by the types of errors and never by their text.

use std::error::Error;
use std::io;

use super::body::Watch;
use super::dial::Forbidden;
use crate::rlimits;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendErrorKind {
    /// No connection could be made.
    Unreachable { reason: &'static str },
    /// The TLS handshake failed.
    Insecure { reason: &'static str },
    /// Refused by the SSRF guard.
    Forbidden { reason: String },
    /// This process has reached its limit of open files.
    OutOfFiles { reason: String },
    /// The connection ended before a response came.
    Closed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendError {
    pub kind: SendErrorKind,
    /// Whether the server may have seen the request.
    pub sent: bool,
}

impl SendError {
    pub(super) fn from_hyper(
        error: &hyper_util::client::legacy::Error,
        watch: &Watch,
    ) -> SendError {
        if error.is_connect() {
            return SendError { kind: not_connected(error), sent: false };
        }
        SendError { kind: SendErrorKind::Closed, sent: watch.may_be_sent() }
    }

    pub(super) fn no_address() -> SendError {
        let reason = "its address cannot be used";
        SendError { kind: SendErrorKind::Unreachable { reason }, sent: false }
    }
}

/// Classifies by the innermost error of a known type.
fn not_connected(error: &(dyn Error + 'static)) -> SendErrorKind {
    if let Some(reason) = rlimits::out_of_files(error) {
        return SendErrorKind::OutOfFiles { reason };
    }
    let mut kind = None;
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(forbidden) = error.downcast_ref::<Forbidden>() {
            return SendErrorKind::Forbidden { reason: forbidden.to_string() };
        }
        if let Some(tls) = error.downcast_ref::<tokio_rustls::rustls::Error>() {
            return SendErrorKind::Insecure { reason: tls_reason(tls) };
        }
        if let Some(error) = error.downcast_ref::<io::Error>() {
            kind = Some(error.kind());
            // Its `source` skips the error it wraps.
            next = error.get_ref().map(|inner| inner as &(dyn Error + 'static));
        } else {
            next = error.source();
        }
    }
    use io::ErrorKind as Kind;
    let unreachable = |reason| SendErrorKind::Unreachable { reason };
    let insecure = |reason| SendErrorKind::Insecure { reason };
    match kind {
        // rustls errors arrive as invalid data.
        Some(Kind::InvalidData) => insecure("its certificate or its TLS is not accepted"),
        Some(Kind::UnexpectedEof) => insecure("it closed the connection; it may not speak TLS"),
        Some(Kind::ConnectionRefused) => unreachable("connection refused"),
        Some(Kind::TimedOut) => unreachable("connection timed out"),
        Some(Kind::ConnectionReset) => unreachable("connection reset"),
        Some(Kind::NetworkUnreachable | Kind::HostUnreachable | Kind::NetworkDown) => {
            unreachable("no route to it")
        }
        // A failed name lookup has no error kind of its own.
        _ => unreachable("its host name cannot be resolved, or the network is down"),
    }
}

/// The certificate errors that users can do something about.
fn tls_reason(error: &tokio_rustls::rustls::Error) -> &'static str {
    use tokio_rustls::rustls::CertificateError as Bad;
    use tokio_rustls::rustls::Error as Tls;
    match error {
        Tls::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "its certificate has expired"
        }
        Tls::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "its certificate is not valid yet"
        }
        Tls::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "its certificate is for another name"
        }
        Tls::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "its certificate was issued by an unknown authority; set `tls.ca` to the authority's certificate"
        }
        Tls::InvalidCertificate(Bad::Revoked) => "its certificate was revoked",
        Tls::InvalidCertificate(_) => "its certificate is not accepted",
        Tls::AlertReceived(_) => {
            "it refused the TLS handshake: it may require a client certificate"
        }
        _ => "its TLS is not accepted",
    }
}
