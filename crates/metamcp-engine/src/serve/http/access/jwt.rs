//! Signed tokens (JWT): the signature first, then what they say.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use metamcp_wire::object;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::keys::KeySet;

/// Clocks of issuers may be off by this many seconds.
const LEEWAY: u64 = 60;
/// Deepest nesting of a token's parts; they are flat.
const DEPTH: usize = 16;

/// What a token has to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// Who issued it.
    pub issuer: String,
    /// Whom it is for.
    pub audience: String,
}

/// Why a signed token does not let a client in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// It is none.
    #[error("it is neither a known token nor a signed one")]
    Shape,
    /// Nobody we trust signed it.
    #[error("none of the known keys signed it")]
    Signature,
    /// Somebody else issued it.
    #[error("it comes from another issuer")]
    Issuer,
    /// It was issued for somebody else.
    #[error("it is meant for another audience")]
    Audience,
    /// It is too old.
    #[error("it has expired")]
    Expired,
    /// It does not say when it ends.
    #[error("it has no usable exp, and only tokens that end are taken")]
    Endless,
    /// It is too young.
    #[error("it is not valid yet")]
    Early,
}

/// Which claim says whose a token is. A client could otherwise register under the name of a person and be taken for it.
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
    /// What stands before the colon where the owner names a principal.
    pub(super) const ALL: [(&'static str, Kind); 3] =
        [("sub", Kind::Subject), ("client", Kind::Client), ("azp", Kind::Party)];
}

/// Who it is in every process that trusts the same issuer.
pub(super) fn lasting(kind: Kind, name: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    let word = Kind::ALL.iter().find(|(_, known)| *known == kind).map_or("", |(word, _)| word);
    hash.update(word.as_bytes());
    hash.update([0]);
    hash.update(name.as_bytes());
    hash.finalize().into()
}

/// Whose a token is, and what it is bound to.
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

/// The bearer of a token that is signed, from the right issuer, for us, and of today.
pub(super) fn verify(
    token: &str,
    keys: &KeySet,
    expected: &Expected,
    unix: u64,
) -> Result<Bearer, JwtError> {
    let header = part(token.split('.').next().unwrap_or_default())?;
    // A token that demands we understand something must not be taken by those who do not.
    if !header["crit"].is_null() {
        return Err(JwtError::Shape);
    }
    let kid = header["kid"].as_str();
    // An algorithm that the library does not know, `none` among them, has signed nothing.
    jsonwebtoken::decode_header(token).map_err(|error| match error.kind() {
        ErrorKind::InvalidToken => JwtError::Shape,
        _ => JwtError::Signature,
    })?;
    let claims = keys.claims(token, kid, &expected.audience)?;
    let claims = strict(claims.get().as_bytes())?;
    // The library takes a list of issuers too; it is one (RFC 7519, 4.1.1).
    if claims["iss"].as_str() != Some(&expected.issuer) {
        return Err(JwtError::Issuer);
    }
    let seconds = |time: &Value| time.as_f64().map(|seconds| seconds.max(0.0) as u64);
    // One that never expires could not be taken back.
    let end = seconds(&claims["exp"]).ok_or(JwtError::Endless)?;
    if end.saturating_add(LEEWAY) <= unix {
        return Err(JwtError::Expired);
    }
    let start = &claims["nbf"];
    // A beginning that is not understood must not mean none.
    if !start.is_null() && seconds(start).ok_or(JwtError::Shape)? > unix.saturating_add(LEEWAY) {
        return Err(JwtError::Early);
    }
    let toolset = match &claims[TOOLSET] {
        Value::Null => None,
        Value::String(toolset) => Some(toolset.clone()),
        // Bound to something that is not understood must not mean bound to nothing.
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

fn part(text: &str) -> Result<Value, JwtError> {
    strict(&URL_SAFE_NO_PAD.decode(text).map_err(|_| JwtError::Shape)?)
}

/// A part of a token, read strictly: a name that stands twice could mean two things.
fn strict(raw: &[u8]) -> Result<Value, JwtError> {
    let value = object::strict_value(raw, DEPTH).map_err(|_| JwtError::Shape)?;
    if value.is_object() { Ok(value) } else { Err(JwtError::Shape) }
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    fn encode(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
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
            ("nbf", json!("9999999999"), JwtError::Shape),
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
        let listed = with("iss", json!(["https://issuer"]));
        assert_eq!(check(&sign(&mine, &header, &listed)), Err(JwtError::Issuer));
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
