//! What a login needs beside the official SDK, as pure functions; `engine::login` drives the SDK, which speaks the protocol.
//! Owns: bounds on untrusted input, client authentication the SDK lacks, the choice of scopes.      Never: sends, waits, reads a clock, makes a random number.
//! In: callbacks, responses and addresses of servers.  Out: validated values, corrected forms, or why not.
//! Tests: below and in each file; `metamcp/tests/remote/login.rs` with a server of its own.
//!
//! Why each is here: `answer` because the SDK does not bound the values in a document, refuses responses over trifles (a
//! quoted lifetime, no `token_type`, no `redirect_uris`) and reports errors as text; `endpoint` because it accepts any
//! address; `client` because it would request scopes that nobody named and cannot be given the authentication method;
//! `form` and `assertion` because its client assertions need a C library and serve one of three grants (ours are signed
//! in `engine::jwt`).

mod answer;
mod assertion;
mod client;
mod endpoint;
mod form;

pub use answer::{Callback, GrantError, Tokens, callback, fields, refusal, registered, tokens};
pub use assertion::assertion;
pub use client::{Client, Method, scopes};
pub use endpoint::endpoint;
pub use form::amended;

/// Longest document read.
pub const MAX_DOCUMENT: usize = 1024 * 1024;

/// Longest value accepted from a document.
const MAX_TEXT: usize = 16 * 1024;

/// Why a login cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OAuthError {
    /// A response or metadata document is invalid.
    #[error("its {what} is invalid: {why}")]
    Document { what: &'static str, why: String },
    /// No authorization server is named.
    #[error("it names no authorization server")]
    NoServer,
    /// Dynamic registration was refused.
    #[error(
        "its authorization server {issuer} refused to register a client: {why}; set `clientId` under `oauth`"
    )]
    NotRegistered { issuer: String, why: String },
    /// Dynamic registration is not supported.
    #[error(
        "its authorization server {issuer} does not support dynamic client registration; set `clientId` under `oauth`"
    )]
    Unregistered { issuer: String },
}

impl OAuthError {
    pub fn document(what: &'static str, why: impl Into<String>) -> OAuthError {
        OAuthError::Document { what, why: why.into() }
    }
}

/// Percent-encoding for a query or a form.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                escaped.push(char::from(byte));
            }
            other => escaped.push_str(&format!("%{other:02X}")),
        }
    }
    escaped
}

/// Percent-decoding of a query.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let pair = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&pair).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaping_goes_both_ways() {
        for text in ["a b&c=d", "ü/%", "https://x/y?z", "\n\"'<>"] {
            assert_eq!(unescaped(&escaped(text)).as_deref(), Some(text));
        }
        assert_eq!(unescaped("a+b%20c").as_deref(), Some("a b c"));
        assert_eq!(unescaped("%zz"), None);
        assert_eq!(unescaped("%ff"), None);
    }
}
