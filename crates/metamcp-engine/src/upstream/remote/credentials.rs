//! Who we are to a server: what its configuration says, or what a login brought.

use std::sync::Arc;

use hyper::header::HeaderValue;
use metamcp_calls::failure::Fact;

use crate::login::Login;

/// A token as it was sent, so that a refusal can be told from one of an older token.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    pub(super) fn header(&self) -> HeaderValue {
        let text = format!("Bearer {}", self.0);
        let mut value =
            HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        value.set_sensitive(true);
        value
    }
}

/// See the module.
pub enum Credentials {
    /// The configuration has an `Authorization` header of its own.
    Configured,
    /// Whatever a login brings.
    Login(Arc<Login>),
}

impl Credentials {
    /// The token to send, if there is one.
    pub(super) async fn token(&self) -> Option<Token> {
        match self {
            Credentials::Configured => None,
            Credentials::Login(login) => login.token().await.map(Token),
        }
    }

    /// The server did not take what we showed. `Ok` if there is something else to show now.
    pub(super) async fn refused(
        &self,
        challenges: &[String],
        shown: Option<&Token>,
    ) -> Result<(), Fact> {
        match self {
            Credentials::Configured => {
                let reason = "it does not accept the token in its configuration".to_owned();
                Err(Fact::LoginNeeded { reason, address: None })
            }
            Credentials::Login(login) => {
                login.refused(challenges, shown.map(|token| token.0.as_str())).await
            }
        }
    }
}
