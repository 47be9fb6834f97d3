//! Parses callbacks, token responses and registrations. Bounded, and more lenient than the SDK where servers differ in
//! ways that do not matter.

use serde_json::{Value, json};

use super::{Client, MAX_TEXT, Method, OAuthError, unescaped};

/// Longest token lifetime accepted, in seconds: a year.
const MAX_LIFETIME: u64 = 365 * 24 * 3600;

/// What a request to the callback means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callback {
    /// Not from this flow: the login goes on waiting.
    Stray,
    /// Authorization was granted.
    Code {
        code: String,
        /// The `iss` parameter.
        issuer: Option<String>,
    },
    /// The user or the server refused.
    Refused(String),
}

/// Parses the query of a callback.
pub fn callback(query: &str, state: &str) -> Callback {
    let names = ["state", "code", "iss", "error", "error_description"];
    // A repeated parameter makes the query ambiguous.
    let Some([shown, code, issuer, error, description]) = fields(query, names) else {
        return Callback::Stray;
    };
    if shown.is_none_or(|shown| !same(shown.as_bytes(), state.as_bytes())) {
        return Callback::Stray;
    }
    match (code, error) {
        (_, Some(error)) => {
            let words = description.map(|words| format!("{error}: {words}")).unwrap_or(error);
            Callback::Refused(words.chars().filter(|c| !c.is_control()).take(200).collect())
        }
        (Some(code), None) if !code.is_empty() => Callback::Code { code, issuer },
        _ => Callback::Refused("the response contains no code".into()),
    }
}

/// The values of these parameters; nothing if one of them is repeated.
pub fn fields<const N: usize>(query: &str, names: [&str; N]) -> Option<[Option<String>; N]> {
    let mut fields = [const { None }; N];
    for pair in query.split('&').take(64) {
        let Some((name, value)) = pair.split_once('=') else { continue };
        if let Some(place) = names.iter().position(|known| *known == name) {
            if fields[place].is_some() || value.len() > MAX_TEXT {
                return None;
            }
            fields[place] = unescaped(value);
        }
    }
    Some(fields)
}

/// Compares in constant time.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |all, (a, b)| all | (a ^ b)) == 0
}

/// A token response.
#[derive(Clone, PartialEq, Eq)]
pub struct Tokens {
    pub access: String,
    pub refresh: Option<String>,
    /// Lifetime of the access token, in seconds.
    pub expires_in: Option<u64>,
    /// The granted scopes, if the server named them.
    pub scopes: Option<Vec<String>>,
}

impl Tokens {
    /// As a standard token response.
    pub fn document(&self) -> Value {
        let mut document = json!({ "access_token": self.access, "token_type": "bearer" });
        if let Some(refresh) = &self.refresh {
            document["refresh_token"] = refresh.as_str().into();
        }
        if let Some(life) = self.expires_in {
            document["expires_in"] = life.into();
        }
        if let Some(scopes) = &self.scopes {
            document["scope"] = scopes.join(" ").into();
        }
        document
    }
}

/// Why no tokens were issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantError {
    /// The grant is used up or revoked: only a new login helps.
    Invalid(String),
    /// The client ID is no longer valid.
    UnknownClient,
    /// A temporary failure.
    Later(String),
}

/// Parses a token response.
pub fn tokens(status: u16, document: &[u8]) -> Result<Tokens, GrantError> {
    let value: Value = serde_json::from_slice(document).unwrap_or_default();
    let text = |name: &str| {
        let text = value.get(name)?.as_str()?;
        (!text.is_empty()
            && text.len() <= MAX_TEXT
            && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '))
        .then(|| text.to_owned())
    };
    if status != 200 && status != 201 {
        let error = text("error").unwrap_or_else(|| format!("HTTP {status}"));
        return Err(match error.as_str() {
            "invalid_client" | "unauthorized_client" => GrantError::UnknownClient,
            "temporarily_unavailable" | "server_error" | "slow_down" => GrantError::Later(error),
            _ if (400..500).contains(&status) && status != 408 && status != 429 => {
                GrantError::Invalid(error.chars().take(100).collect())
            }
            _ => GrantError::Later(error),
        });
    }
    let later = |why: &str| GrantError::Later(why.to_owned());
    let access = text("access_token").filter(|token| !token.contains(' '));
    let access = access.ok_or_else(|| later("its response contains no token"))?;
    let kind = text("token_type").unwrap_or_else(|| "bearer".to_owned());
    if !kind.eq_ignore_ascii_case("bearer") {
        return Err(later("its token has an unknown type"));
    }
    let expires_in = value.get("expires_in").and_then(|life| match life {
        Value::String(text) => text.parse().ok(),
        other => other.as_u64(),
    });
    Ok(Tokens {
        access,
        refresh: text("refresh_token"),
        expires_in: expires_in.map(|life: u64| life.min(MAX_LIFETIME)),
        scopes: text("scope").map(|scope| scope.split_whitespace().map(str::to_owned).collect()),
    })
}

/// The error in a response, bounded.
pub fn refusal(status: u16, document: &[u8]) -> String {
    let value: Value = serde_json::from_slice(document).unwrap_or_default();
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let words = match (text("error"), text("error_description")) {
        (Some(error), Some(words)) => format!("{error}: {words}"),
        (Some(error), None) => error.to_owned(),
        _ => format!("HTTP {status}"),
    };
    words.chars().filter(|c| !c.is_control()).take(200).collect()
}

/// Parses a registration response.
pub fn registered(document: &[u8]) -> Result<Client, OAuthError> {
    const WHAT: &str = "response to the client registration";
    let value: Value = serde_json::from_slice(document)
        .map_err(|_| OAuthError::document(WHAT, "it is not JSON"))?;
    let text = |name: &str| value.get(name)?.as_str().filter(|text| text.len() <= MAX_TEXT);
    let id = text("client_id").filter(|id| !id.is_empty());
    let id = id.ok_or_else(|| OAuthError::document(WHAT, "it contains no client_id"))?;
    let secret = text("client_secret").filter(|secret| !secret.is_empty());
    let stated = text("token_endpoint_auth_method").and_then(Method::named);
    let method = match (secret, stated) {
        (None, _) => Method::None,
        // `private_key_jwt` works only with a key the operator configured, which is not the case here.
        (Some(_), Some(Method::Key) | None) => Method::Basic,
        (Some(_), Some(method)) => method,
    };
    Ok(Client { id: id.to_owned(), secret: secret.map(str::to_owned), method })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callback_counts_only_with_its_state() {
        let read = |query: &str| callback(query, "s3");
        let code = |issuer: Option<&str>| Callback::Code {
            code: "c/1".to_owned(),
            issuer: issuer.map(str::to_owned),
        };
        assert_eq!(read("code=c%2F1&state=s3"), code(None));
        assert_eq!(read("state=s3&code=c/1&iss=https%3A%2F%2Fi"), code(Some("https://i")));
        for stray in
            ["code=c", "code=c&state=s4", "state=s3&state=s3&code=c", "", "&&&", "code=%zz&state=s"]
        {
            assert_eq!(read(stray), Callback::Stray, "{stray}");
        }
        assert!(matches!(read("state=s3"), Callback::Refused(_)));
        let Callback::Refused(words) = read("state=s3&error=%3Cb%3E%0A&code=c") else { panic!() };
        assert!(!words.contains('\n'));
    }

    #[test]
    fn answers_about_tokens() {
        let good = tokens(
            200,
            br#"{"access_token":"a","token_type":"Bearer","expires_in":"60","scope":"x y"}"#,
        );
        let Ok(good) = good else { panic!() };
        assert_eq!((good.expires_in, &good.refresh), (Some(60), &None));
        assert_eq!(
            good.document(),
            json!({"access_token": "a", "token_type": "bearer", "expires_in": 60, "scope": "x y"})
        );
        let refused = |status, text: &str| tokens(status, text.as_bytes()).err().unwrap();
        assert_eq!(
            refused(400, r#"{"error":"invalid_grant"}"#),
            GrantError::Invalid("invalid_grant".into())
        );
        assert_eq!(refused(401, r#"{"error":"invalid_client"}"#), GrantError::UnknownClient);
        assert!(matches!(refused(503, "<html>"), GrantError::Later(_)));
        assert!(matches!(refused(429, ""), GrantError::Later(_)));
        assert!(matches!(refused(200, "{}"), GrantError::Later(_)));
        assert!(matches!(refused(200, r#"{"access_token":"a\nb"}"#), GrantError::Later(_)));
        assert!(matches!(
            refused(200, r#"{"access_token":"a","token_type":"mac"}"#),
            GrantError::Later(_)
        ));
    }

    #[test]
    fn a_refusal_is_bounded() {
        let long = format!(r#"{{"error":"no","error_description":"a\nb{}"}}"#, "c".repeat(500));
        assert!(refusal(400, long.as_bytes()).starts_with("no: abccc"));
        assert_eq!(refusal(400, long.as_bytes()).len(), 200);
        assert_eq!(refusal(400, br#"{"error":"no"}"#), "no");
        assert_eq!(refusal(503, b"<html>"), "HTTP 503");
    }

    #[test]
    fn a_registration_is_parsed() {
        let client = registered(br#"{"client_id":"c","client_secret":"s","token_endpoint_auth_method":"client_secret_post"}"#);
        assert_eq!(client.unwrap().method, Method::Post);
        assert_eq!(registered(br#"{"client_id":"c"}"#).unwrap().method, Method::None);
        assert!(registered(b"{}").is_err() && registered(b"<").is_err());
    }
}
