//! Who we are to a server: what its configuration says, or what a login brought.

use hyper::header::HeaderValue;
use metamcp_core::failure::Fact;

/// A token as it was sent, so that a refusal can be told from one of an older token.
#[derive(Clone)]
pub(super) struct Token {
    pub(super) value: String,
}

impl Token {
    pub(super) fn header(&self) -> HeaderValue {
        let text = format!("Bearer {}", self.value);
        let mut value =
            HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        value.set_sensitive(true);
        value
    }
}

/// See the module.
pub struct Credentials {
    /// The configuration has an `Authorization` header of its own.
    pub configured: bool,
}

impl Credentials {
    /// The token to send, if there is one.
    pub(super) async fn token(&self) -> Option<Token> {
        None
    }

    /// The server did not take what we showed. `Ok` if there is something else to show now.
    pub(super) async fn refused(
        &self,
        _challenges: &[String],
        _shown: Option<&Token>,
    ) -> Result<(), Fact> {
        let reason = if self.configured {
            "it does not accept the token in its configuration"
        } else {
            "it wants a token"
        };
        Err(Fact::LoginNeeded { reason: reason.to_owned(), address: None })
    }
}
