//! Signed tokens (JWT): verifies the signature first, then the claims.

use metamcp_wire::object;
use serde_json::Value;

use super::keys::{KeySet, decode};

/// Allowed clock skew, in seconds.
const LEEWAY: u64 = 60;
/// Deepest nesting of a token's parts; they are flat.
const DEPTH: usize = 16;

/// Required claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// `iss`.
    pub issuer: String,
    /// `aud`.
    pub audience: String,
}

/// Why a signed token is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// Not a JWT.
    #[error("it is neither a known token nor a signed one")]
    Shape,
    /// No known key verifies the signature.
    #[error("none of the known keys signed it")]
    Signature,
    /// Wrong `iss`.
    #[error("it comes from another issuer")]
    Issuer,
    /// Wrong `aud`.
    #[error("it is meant for another audience")]
    Audience,
    /// `exp` has passed.
    #[error("it has expired")]
    Expired,
    /// No `exp`.
    #[error("it has no usable exp, and only tokens that end are taken")]
    Endless,
    /// `nbf` has not come yet.
    #[error("it is not valid yet")]
    Early,
}

/// The claim that names the principal. Part of its identity, or a client could register under the name of a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    /// `sub`: a person, or whatever the issuer gives a subject.
    Subject,
    /// `client_id`: a program on its own behalf.
    Client,
    /// `azp`: the program a token was given to.
    Party,
}

impl Kind {
    /// The prefix of each in `approvers`.
    pub(super) const ALL: [(&'static str, Kind); 3] =
        [("sub", Kind::Subject), ("client", Kind::Client), ("azp", Kind::Party)];
}

/// The principal of a token, and its toolset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bearer {
    /// Which claim says so.
    pub(super) kind: Kind,
    /// What it says.
    pub(super) name: String,
    /// The one toolset it opens; none for everything.
    pub(super) toolset: Option<String>,
}

/// The claim by which an issuer binds a token to a toolset.
const TOOLSET: &str = "metamcp_toolset";

/// Verifies signature, issuer, audience and lifetime of a token.
pub(super) fn verify(
    token: &str,
    keys: &KeySet,
    expected: &Expected,
    unix: u64,
) -> Result<Bearer, JwtError> {
    let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Shape)?;
    let (header, claims) = signed.split_once('.').ok_or(JwtError::Shape)?;
    let header = part(header)?;
    let signature = decode(signature.as_bytes()).ok_or(JwtError::Shape)?;
    let algorithm = header["alg"].as_str().ok_or(JwtError::Shape)?;
    // `crit`: extensions that must be understood, and none is (RFC 7515, 4.1.11).
    if !header["crit"].is_null() {
        return Err(JwtError::Shape);
    }
    if !keys.verify(algorithm, header["kid"].as_str(), signed.as_bytes(), &signature) {
        return Err(JwtError::Signature);
    }
    let claims = part(claims)?;
    if claims["iss"].as_str() != Some(&expected.issuer) {
        return Err(JwtError::Issuer);
    }
    let is_for_us = match &claims["aud"] {
        Value::String(audience) => *audience == expected.audience,
        Value::Array(all) => all.iter().any(|one| one.as_str() == Some(&expected.audience)),
        _ => false,
    };
    if !is_for_us {
        return Err(JwtError::Audience);
    }
    let time = |name: &str| claims[name].as_f64().map(|seconds| seconds.max(0.0) as u64);
    // A token that never expires could not be revoked.
    let end = time("exp").ok_or(JwtError::Endless)?;
    if end.saturating_add(LEEWAY) <= unix {
        return Err(JwtError::Expired);
    }
    if time("nbf").is_some_and(|start| start > unix.saturating_add(LEEWAY)) {
        return Err(JwtError::Early);
    }
    let toolset = match &claims[TOOLSET] {
        Value::Null => None,
        Value::String(toolset) => Some(toolset.clone()),
        // An unreadable binding must not mean no binding.
        _ => return Err(JwtError::Shape),
    };
    let name = |name: &str| claims[name].as_str().filter(|name| !name.is_empty());
    let (kind, name) = match (name("sub"), name("client_id"), name("azp")) {
        // A program that acts for itself is its own subject (RFC 9068, 2.2), and no person of that name.
        (Some(subject), Some(client), _) if subject == client => (Kind::Client, client),
        (Some(subject), ..) => (Kind::Subject, subject),
        (None, Some(client), _) => (Kind::Client, client),
        (None, None, Some(party)) => (Kind::Party, party),
        (None, None, None) => return Err(JwtError::Shape),
    };
    Ok(Bearer { kind, name: name.to_owned(), toolset })
}

/// Parses a part of a token; duplicate names are rejected as ambiguous.
fn part(text: &str) -> Result<Value, JwtError> {
    let raw = decode(text.as_bytes()).ok_or(JwtError::Shape)?;
    let value = object::strict_value(&raw, DEPTH).map_err(|_| JwtError::Shape)?;
    if value.is_object() { Ok(value) } else { Err(JwtError::Shape) }
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    fn encode(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let mut text = String::new();
        for chunk in bytes.chunks(3) {
            let group = chunk.iter().fold(0_u32, |all, byte| all << 8 | u32::from(*byte))
                << (8 * (3 - chunk.len()));
            for at in 0..=chunk.len() {
                text.push(char::from(DIGITS[(group >> (18 - 6 * at) & 63) as usize]));
            }
        }
        text
    }

    fn key(seed: u8) -> Ed25519KeyPair {
        Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
    }

    fn keys(of: &Ed25519KeyPair) -> KeySet {
        let key = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "one", "x": encode(of.public_key().as_ref()) });
        KeySet::parse(json!({ "keys": [key] }).to_string().as_bytes()).unwrap()
    }

    fn sign(key: &Ed25519KeyPair, header: &Value, claims: &Value) -> String {
        let signed = format!(
            "{}.{}",
            encode(header.to_string().as_bytes()),
            encode(claims.to_string().as_bytes())
        );
        let signature = encode(key.sign(signed.as_bytes()).as_ref());
        format!("{signed}.{signature}")
    }

    fn expected() -> Expected {
        Expected { issuer: "https://issuer".into(), audience: "https://us/mcp".into() }
    }

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn a_token_has_to_be_signed_for_us_and_of_today() {
        let (mine, theirs) = (key(1), key(2));
        let keys = keys(&mine);
        let header = json!({ "alg": "EdDSA", "kid": "one" });
        let good = json!({ "iss": "https://issuer", "aud": ["x", "https://us/mcp"], "sub": "ada", "exp": NOW + 10 });
        let with = |name: &str, value: Value| {
            let mut claims = good.clone();
            claims[name] = value;
            claims
        };
        let check = |token: &str| verify(token, &keys, &expected(), NOW);
        let ada = Bearer { kind: Kind::Subject, name: "ada".to_owned(), toolset: None };
        assert_eq!(check(&sign(&mine, &header, &good)), Ok(ada));
        assert_eq!(check(&sign(&theirs, &header, &good)), Err(JwtError::Signature));
        for (name, value, error) in [
            ("iss", json!("https://evil"), JwtError::Issuer),
            ("aud", json!("https://other/mcp"), JwtError::Audience),
            ("aud", json!(null), JwtError::Audience),
            ("exp", json!(NOW - LEEWAY), JwtError::Expired),
            ("exp", json!(null), JwtError::Endless),
            ("nbf", json!(NOW + LEEWAY + 1), JwtError::Early),
            ("sub", json!(null), JwtError::Shape),
            ("metamcp_toolset", json!(["docs"]), JwtError::Shape),
        ] {
            assert_eq!(check(&sign(&mine, &header, &with(name, value))), Err(error), "{name}");
        }
        for header in [
            json!({ "alg": "none", "kid": "one" }),
            json!({ "alg": "HS256", "kid": "one" }),
            json!({ "alg": "ES256", "kid": "one" }),
            json!({ "alg": "EdDSA", "kid": "two" }),
        ] {
            assert_eq!(check(&sign(&mine, &header, &good)), Err(JwtError::Signature), "{header}");
        }
        let critical = json!({ "alg": "EdDSA", "crit": ["b64"] });
        assert_eq!(check(&sign(&mine, &critical, &good)), Err(JwtError::Shape));
    }

    #[test]
    fn who_a_token_speaks_for_is_told_by_kind() {
        let mine = key(1);
        let keys = keys(&mine);
        let bearer = |more: Value| {
            let mut claims =
                json!({ "iss": "https://issuer", "aud": "https://us/mcp", "exp": NOW + 10 });
            claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let token = sign(&mine, &json!({ "alg": "EdDSA" }), &claims);
            verify(&token, &keys, &expected(), NOW).unwrap()
        };
        for (claims, kind) in [
            (json!({ "sub": "ada" }), Kind::Subject),
            (json!({ "sub": "ada", "client_id": "editor", "azp": "editor" }), Kind::Subject),
            (json!({ "client_id": "ada" }), Kind::Client),
            (json!({ "client_id": "ada", "azp": "other" }), Kind::Client),
            (json!({ "sub": "ada", "client_id": "ada" }), Kind::Client),
            (json!({ "sub": "", "azp": "ada" }), Kind::Party),
        ] {
            let found = bearer(claims.clone());
            assert_eq!((found.kind, found.name.as_str()), (kind, "ada"), "{claims}");
        }
        let bound = bearer(json!({ "sub": "ada", "metamcp_toolset": "docs" }));
        assert_eq!(bound.toolset.as_deref(), Some("docs"));
    }

    #[test]
    fn texts_that_are_no_tokens() {
        let keys = keys(&key(1));
        for text in ["", ".", "..", "a.b", "a.b.c", "e30.e30.", "bnVsbA.e30.AA", "é.é.é"] {
            assert!(verify(text, &keys, &expected(), NOW).is_err(), "{text}");
        }
    }

    #[test]
    fn a_changed_token_is_not_signed_any_more() {
        let mine = key(1);
        let keys = keys(&mine);
        let claims = json!({ "iss": "https://issuer", "aud": "https://us/mcp", "sub": "ada", "exp": NOW + 10 });
        let token = sign(&mine, &json!({ "alg": "EdDSA" }), &claims);
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(verify(&changed, &keys, &expected(), NOW).is_err(), "{at}");
        }
    }
}
