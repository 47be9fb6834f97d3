//! What a login needs beside the official SDK, each a pure function: its protocol is the SDK's, which `engine::login` drives.
//! Owns: bounds on what strangers say, ways of clients that the SDK does not have, the choice of rights.      Never: sends, waits, reads a clock, makes a random number.
//! In: visits, answers and addresses of servers.  Out: what of them is believed, forms put right, or why not.
//! Tests: below and in each file; `metamcp/tests/remote/login.rs` with a server of its own.
//!
//! Why each is here: `answer` because the SDK keeps no bounds within a document, refuses answers that differ in trifles
//! (a lifetime in quotes, no `token_type`, no `redirect_uris`) and tells errors in words of its own; `endpoint` because it
//! takes every address for good; `client` because it would ask for rights that nobody named, and cannot be told how a
//! client proves itself; `form` and `assertion` because its signed proofs need a C library and serve one grant of three
//! (ours are signed in `engine::jwt`).

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

/// Longest document about logins that is read.
pub const MAX_DOCUMENT: usize = 1024 * 1024;

/// Longest text of theirs that is kept or passed on.
const MAX_TEXT: usize = 16 * 1024;

/// Why a login cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OAuthError {
    /// A document is not what it should be.
    #[error("its {what} cannot be used: {why}")]
    Document {
        /// Which document.
        what: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody says who may let us in.
    #[error("it does not say where to log in")]
    NoServer,
    /// It does not want us as a client.
    #[error(
        "its authorization server {issuer} does not register us: {why}; put the `clientId` it gave you into `oauth`"
    )]
    NotRegistered {
        /// Which server.
        issuer: String,
        /// What it says.
        why: String,
    },
    /// There is no way to become known to the authorization server.
    #[error(
        "its authorization server {issuer} registers nobody by itself; put the `clientId` it gave you into `oauth`"
    )]
    Unregistered {
        /// Which server.
        issuer: String,
    },
}

impl OAuthError {
    /// One about a document.
    pub fn document(what: &'static str, why: impl Into<String>) -> OAuthError {
        OAuthError::Document { what, why: why.into() }
    }
}

/// Text as it stands in a query or a form.
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

/// The text behind what stands in a query.
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
