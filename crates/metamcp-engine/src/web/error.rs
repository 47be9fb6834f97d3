//! Why a request got no response: by the types of errors, never by their words.

use std::error::Error;
use std::io;

use super::body::Watch;
use super::dial::Forbidden;
use crate::rlimits;

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendErrorKind {
    /// No connection stands.
    Unreachable {
        /// What is in the way.
        reason: &'static str,
    },
    /// TLS was not accepted, by us or by them.
    Insecure {
        /// What is wrong.
        reason: &'static str,
    },
    /// The address is one that may not be visited.
    Forbidden {
        /// Which, and why not.
        reason: String,
    },
    /// This process has as many files open as it may.
    OutOfFiles {
        /// What the system said.
        reason: String,
    },
    /// The connection ended before a response came.
    Closed,
}

/// A request without a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendError {
    /// Why.
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

/// Why there is no connection, by the innermost error of a type we know.
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
            // Its source leaves out what it wraps.
            next = error.get_ref().map(|inner| inner as &(dyn Error + 'static));
        } else {
            next = error.source();
        }
    }
    use io::ErrorKind as Kind;
    let unreachable = |reason| SendErrorKind::Unreachable { reason };
    let insecure = |reason| SendErrorKind::Insecure { reason };
    match kind {
        // What rustls does not accept arrives as invalid data.
        Some(Kind::InvalidData) => insecure("its certificate or its TLS is not accepted"),
        Some(Kind::UnexpectedEof) => insecure("it closed the connection; it may not speak TLS"),
        Some(Kind::ConnectionRefused) => unreachable("connection refused"),
        Some(Kind::TimedOut) => unreachable("no connection in time"),
        Some(Kind::ConnectionReset) => unreachable("connection reset"),
        Some(Kind::NetworkUnreachable | Kind::HostUnreachable | Kind::NetworkDown) => {
            unreachable("no way there")
        }
        // A name that is not found has no kind of its own.
        _ => unreachable("its name is not known, or the network is down"),
    }
}

/// The faults of certificates that people can do something about, each in its own words.
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
            "its certificate was issued by nobody we trust; name its authority in `tls.ca`"
        }
        Tls::InvalidCertificate(Bad::Revoked) => "its certificate was revoked",
        Tls::InvalidCertificate(_) => "its certificate is not accepted",
        Tls::AlertReceived(_) => "it does not accept us: it may want a client certificate",
        _ => "its TLS is not accepted",
    }
}
