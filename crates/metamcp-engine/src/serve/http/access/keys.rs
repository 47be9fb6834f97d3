//! A set of public keys (JWKS).

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::jwt::JwtError;
use crate::jwt;

/// Keys taken from one set: issuers have two or three.
const MAX_KEYS: usize = 64;

/// Why a set of keys cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Its text is something else.
    #[error("it is no JSON Web Key Set")]
    NotASet,
    /// It has keys, but of other kinds.
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
    /// It follows from the key; what a token says has to agree with it.
    algorithm: Algorithm,
    decoding: DecodingKey,
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

impl KeySet {
    /// Reads a set; keys of kinds we do not use are left out.
    pub fn parse(text: &[u8]) -> Result<KeySet, KeyError> {
        let set: Set = serde_json::from_slice(text).map_err(|_| KeyError::NotASet)?;
        // One by one, so that a key that cannot be read does not take the others with it.
        let keys: Vec<Key> = set.keys.into_iter().filter_map(usable).take(MAX_KEYS).collect();
        if keys.is_empty() { Err(KeyError::NoneUsable) } else { Ok(KeySet { keys }) }
    }

    /// The claims of a token for this audience that one of the keys signed: the one named, where one is named and known by
    /// name.
    pub(super) fn claims(
        &self,
        token: &str,
        id: Option<&str>,
        audience: &str,
    ) -> Result<Box<RawValue>, JwtError> {
        let fitting = |key: &&Key| key.id.is_none() || id.is_none() || key.id.as_deref() == id;
        for Key { algorithm, decoding, .. } in self.keys.iter().filter(fitting) {
            let mut validation = Validation::new(*algorithm);
            // The library would read the clock itself.
            validation.validate_exp = false;
            validation.set_required_spec_claims(&["aud"]);
            validation.set_audience(&[audience]);
            let kind = match jwt::decode(token, decoding, &validation) {
                Ok(data) => return Ok(data.claims),
                Err(error) => error.into_kind(),
            };
            match kind {
                ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm => {}
                ErrorKind::InvalidAudience | ErrorKind::MissingRequiredClaim(_) => {
                    return Err(JwtError::Audience);
                }
                _ => return Err(JwtError::Shape),
            }
        }
        Err(JwtError::Signature)
    }
}

fn usable(written: Value) -> Option<Key> {
    let written: Jwk = serde_json::from_value(written).ok()?;
    let algorithm = match &written.algorithm {
        AlgorithmParameters::RSA(_) => Algorithm::RS256,
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            Algorithm::ES256
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Algorithm::EdDSA
        }
        _ => return None,
    };
    let common = &written.common;
    if common.public_key_use.as_ref().is_some_and(|said| *said != PublicKeyUse::Signature)
        || common.key_algorithm.is_some_and(|said| said != algorithm.into())
    {
        return None;
    }
    let decoding = DecodingKey::from_jwk(&written).ok()?;
    // The library does not look how long the two numbers of a point are.
    if algorithm == Algorithm::ES256 && decoding.try_get_as_bytes().ok()?.len() != 65 {
        return None;
    }
    Some(Key { id: written.common.key_id, algorithm, decoding })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_for_signatures_count() {
        assert_eq!(KeySet::parse(b"[]").unwrap_err(), KeyError::NotASet);
        let none = br#"{"keys":[{"kty":"oct","k":"AAAA"},{"kty":"RSA","use":"enc","n":"AQAB","e":"AQAB"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#;
        assert_eq!(KeySet::parse(none).unwrap_err(), KeyError::NoneUsable);
        let one = br#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        assert_eq!(KeySet::parse(one).unwrap().keys.len(), 1);
        let odd = br#"{"keys":[{"kid":7},"key",{"kty":"OKP","crv":"Ed25519","alg":"ES256","x":"AA"},{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
        assert_eq!(KeySet::parse(odd).unwrap().keys.len(), 1);
    }
}
