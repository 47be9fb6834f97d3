//! Credentials for a server: from its configuration, or from a login.

use std::sync::Arc;

use hyper::header::HeaderValue;
use metamcp_calls::failure::Fact;

use crate::login::Login;

/// A token as it was sent, so that a refusal is matched to the right token.
#[derive(Clone)]
pub(in crate::upstream) struct Token(String);

impl Token {
    pub(in crate::upstream) fn header(&self) -> HeaderValue {
        let text = format!("Bearer {}", self.0);
        let mut value =
            HeaderValue::from_str(&text).unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        value.set_sensitive(true);
        value
    }
}

pub enum Credentials {
    /// The configuration sets an `Authorization` header.
    Configured,
    /// An OAuth login.
    Login(Arc<Login>),
}

impl Credentials {
    pub(in crate::upstream) async fn token(&self) -> Option<Token> {
        match self {
            Credentials::Configured => None,
            Credentials::Login(login) => login.token().await.map(Token),
        }
    }

    /// Handles a refused credential. `Ok` if there is another token to try now.
    pub(in crate::upstream) async fn refused(
        &self,
        challenges: &[String],
        shown: Option<&Token>,
    ) -> Result<(), Fact> {
        match self {
            Credentials::Configured => {
                let reason =
                    "it refused the `Authorization` header of its configuration".to_owned();
                Err(Fact::LoginNeeded { reason, address: None })
            }
            Credentials::Login(login) => {
                login.refused(challenges, shown.map(|token| token.0.as_str())).await
            }
        }
    }
}
