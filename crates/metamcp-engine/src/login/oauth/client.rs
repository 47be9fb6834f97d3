//! The OAuth client and the scopes it requests.

use metamcp_config::config::Login;
use metamcp_types::secret::Secret;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub id: String,
    pub secret: Option<String>,
    pub method: Method,
}

/// Client authentication methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Public client: PKCE is enough.
    None,
    Basic,
    Post,
    /// A signed assertion for each request.
    Key,
}

impl Method {
    /// The name in the protocol.
    pub fn word(self) -> &'static str {
        match self {
            Method::None => "none",
            Method::Basic => "client_secret_basic",
            Method::Post => "client_secret_post",
            Method::Key => "private_key_jwt",
        }
    }

    pub fn named(word: &str) -> Option<Method> {
        let all = [Method::None, Method::Basic, Method::Post, Method::Key];
        all.into_iter().find(|method| method.word() == word)
    }
}

impl Client {
    /// The configured client; the server's list decides on the authentication method.
    pub fn written(login: &Login, methods: &[&str]) -> Option<Client> {
        let id = login.client_id.clone()?;
        let secret = login.client_secret.as_ref().map(Secret::expose).map(str::to_owned);
        let takes = |method: Method| methods.contains(&method.word());
        let method = match &secret {
            _ if login.private_key.is_some() => Method::Key,
            None => Method::None,
            Some(_) if !takes(Method::Basic) && takes(Method::Post) => Method::Post,
            Some(_) => Method::Basic,
        };
        Some(Client { id, secret: secret.filter(|_| method != Method::Key), method })
    }

    /// A client identified by a metadata document.
    pub fn described(document: &str) -> Client {
        Client { id: document.to_owned(), secret: None, method: Method::None }
    }
}

/// The scopes to request: those of the server's challenge together with the granted ones; else the first there are of the
/// granted, the configured and those in the metadata; and the configured ones in any case. `offered` are the scopes of
/// the challenge, or of the metadata if there is none.
pub fn scopes(
    challenged: bool,
    granted: &[String],
    offered: &[String],
    login: &Login,
) -> Vec<String> {
    let offered = if challenged || (granted.is_empty() && login.scopes.is_empty()) {
        offered
    } else {
        Default::default()
    };
    let mut seen: Vec<String> = Vec::new();
    for scope in granted.iter().chain(offered).chain(&login.scopes) {
        let plain = !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic());
        if plain && !seen.contains(scope) {
            seen.push(scope.clone());
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_decides_the_authentication_method() {
        let mut login = Login { client_id: Some("c".into()), ..Login::default() };
        let method =
            |login: &Login, methods: &[&str]| Client::written(login, methods).unwrap().method;
        assert_eq!(method(&login, &["client_secret_basic"]), Method::None);
        login.client_secret = Some(Secret::new("clientSecret", "s"));
        assert_eq!(method(&login, &["client_secret_post", "client_secret_basic"]), Method::Basic);
        assert_eq!(method(&login, &["client_secret_post"]), Method::Post);
        assert_eq!(method(&login, &[]), Method::Basic);
        login.private_key = Some("key.pem".into());
        let client = Client::written(&login, &[]).unwrap();
        assert_eq!((client.method, client.secret), (Method::Key, None));
        assert_eq!(Client::written(&Login::default(), &[]), None);
    }

    #[test]
    fn no_scope_is_requested_that_nobody_named() {
        let texts =
            |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let (nothing, read) = (Login::default(), texts(&["read"]));
        let all = texts(&["all", "of", "them"]);
        assert_eq!(scopes(true, &[], &read, &nothing), ["read"]);
        assert_eq!(scopes(true, &read, &texts(&["write", "read"]), &nothing), ["read", "write"]);
        assert_eq!(scopes(false, &[], &all, &nothing), ["all", "of", "them"]);
        assert_eq!(scopes(false, &read, &all, &nothing), ["read"]);
        let wanted = Login { scopes: texts(&["mine"]), ..Login::default() };
        assert_eq!(scopes(false, &[], &all, &wanted), ["mine"]);
        assert_eq!(scopes(true, &[], &read, &wanted), ["read", "mine"]);
        assert_eq!(scopes(true, &[], &texts(&["a b", ""]), &nothing), [""; 0]);
    }
}
