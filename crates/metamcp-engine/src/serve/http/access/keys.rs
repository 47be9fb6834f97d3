//! A set of public keys (JWKS), and strict base64url decoding.

use ring::signature::{self, UnparsedPublicKey, VerificationAlgorithm};
use serde::Deserialize;

/// Keys taken from one set: issuers have two or three.
const MAX_KEYS: usize = 64;

/// Why a set of keys cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not a JWKS.
    #[error("it is no JSON Web Key Set")]
    NotASet,
    /// No key of a supported kind.
    #[error("it holds no key for RS256, ES256 or EdDSA")]
    NoneUsable,
}

/// The public keys of an issuer.
#[derive(Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

#[derive(Debug)]
struct Key {
    id: Option<String>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Written>,
}

#[derive(Deserialize)]
struct Written {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    used_for: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// Parses a JWKS; keys of unsupported kinds are skipped.
    pub fn parse(text: &[u8]) -> Result<KeySet, KeyError> {
        let set: Set = serde_json::from_slice(text).map_err(|_| KeyError::NotASet)?;
        let keys: Vec<Key> = set.keys.into_iter().filter_map(Written::key).take(MAX_KEYS).collect();
        if keys.is_empty() { Err(KeyError::NoneUsable) } else { Ok(KeySet { keys }) }
    }

    /// Verifies a signature by the key of that `kid`, else by any key.
    pub fn verify(
        &self,
        algorithm: &str,
        id: Option<&str>,
        signed: &[u8],
        signature: &[u8],
    ) -> bool {
        self.keys
            .iter()
            .filter(|key| key.id.is_none() || id.is_none() || key.id.as_deref() == id)
            .any(|key| key.kind.verify(algorithm, signed, signature))
    }
}

impl Written {
    fn key(self) -> Option<Key> {
        if self.used_for.as_deref().is_some_and(|used_for| used_for != "sig") {
            return None;
        }
        let part = |text: &Option<String>| decode(text.as_deref()?.as_bytes());
        let curve = self.crv.as_deref();
        let (kind, algorithm) = match (self.kty.as_str(), curve) {
            ("RSA", _) => {
                (Kind::Rsa { modulus: part(&self.n)?, exponent: part(&self.e)? }, "RS256")
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (part(&self.x)?, part(&self.y)?);
                if (x.len(), y.len()) != (32, 32) {
                    return None;
                }
                (Kind::P256([&[4], &x[..], &y[..]].concat()), "ES256")
            }
            ("OKP", Some("Ed25519")) => (Kind::Ed25519(part(&self.x)?), "EdDSA"),
            _ => return None,
        };
        let fits = self.alg.as_deref().is_none_or(|said| said == algorithm);
        fits.then_some(Key { id: self.kid, kind })
    }
}

impl Kind {
    /// The algorithm is the key's; the token's `alg` has to match it.
    fn verify(&self, algorithm: &str, signed: &[u8], signature: &[u8]) -> bool {
        let plain = |way: &'static dyn VerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(way, key).verify(signed, signature).is_ok()
        };
        match (self, algorithm) {
            (Kind::Rsa { modulus, exponent }, "RS256") => {
                signature::RsaPublicKeyComponents { n: modulus, e: exponent }
                    .verify(&signature::RSA_PKCS1_2048_8192_SHA256, signed, signature)
                    .is_ok()
            }
            (Kind::P256(key), "ES256") => plain(&signature::ECDSA_P256_SHA256_FIXED, key),
            (Kind::Ed25519(key), "EdDSA") => plain(&signature::ED25519, key),
            _ => false,
        }
    }
}

/// Decodes base64url without padding.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    let (mut bits, mut count) = (0_u32, 0);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    // Trailing bits must be zero, or one value would have several encodings.
    (count < 6 && bits == 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_one_text_for_each_value() {
        let read = |text: &str| decode(text.as_bytes());
        assert_eq!(read("").as_deref(), Some(&b""[..]));
        assert_eq!(read("Zm9vYmE").as_deref(), Some(&b"fooba"[..]));
        assert_eq!(read("_-8").as_deref(), Some(&[0xff, 0xef][..]));
        for wrong in ["Z", "Zm9vYmF", "Zm9v=", "Zm 9", "+/"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn only_keys_for_signatures_count() {
        assert_eq!(KeySet::parse(b"[]").unwrap_err(), KeyError::NotASet);
        let none = br#"{"keys":[{"kty":"oct","k":"AAAA"},{"kty":"RSA","use":"enc","n":"AQAB","e":"AQAB"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#;
        assert_eq!(KeySet::parse(none).unwrap_err(), KeyError::NoneUsable);
        let one = br#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        assert_eq!(KeySet::parse(one).unwrap().keys.len(), 1);
    }
}
