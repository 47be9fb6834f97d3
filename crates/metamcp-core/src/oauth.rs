//! Logging in to a remote server: each step of OAuth as a pure function, from a challenge to tokens.
//! Owns: what is asked of whom, in which order, and what of the answers is believed.      Never: sends, waits, reads a clock, makes a random number.
//! In: headers and documents of servers.  Out: addresses to fetch, forms to post, `Tokens`, or why not.
//! Tests: below and in each file; `metamcp/tests/remote/login.rs` with a server of its own.
//!
//! The official SDK has this too. Its `auth` stands on an HTTP client of its own and on crates for addresses, dates and
//! tracing, which would double the shipped tree and bypass our guard on addresses; these steps need neither.

mod answer;
mod assertion;
mod challenge;
mod metadata;
mod request;

pub use answer::{
    Callback, GrantError, Registered, Tokens, callback, refusal, registered, tokens, voucher,
};
pub use assertion::assertion;
pub use challenge::Challenge;
pub use metadata::{AuthServer, Resource, resource_places, server_places};
pub use request::{
    Authorization, Client, Form, Method, authorization, code_form, machine_form, refresh_form,
    registration, scopes, vouched_form, voucher_form,
};

/// Longest document about logins that is read.
pub const MAX_DOCUMENT: usize = 1024 * 1024;

/// What the word of a company for its person is called on the wire.
const VOUCHER: &str = "urn:ietf:params:oauth:token-type:id-jag";

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
    fn document(what: &'static str, why: impl Into<String>) -> OAuthError {
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
