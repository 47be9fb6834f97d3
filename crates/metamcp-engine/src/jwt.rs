//! Signed tokens (JWT): `jsonwebtoken` on the cryptography that TLS already uses.
//! Owns: the supported algorithms.      Never: checks claims, stores a key.
//! In: a token or claims, and a key.  Out: claims, or a token.
//! Tests: below; `serve/http/access/jwt.rs`, `login/client_assertion.rs`.
//!
//! The library requires a cryptography provider. Of its own two, one is a C build that `deny.toml` refuses, and the other
//! adds 29 crates, among them `rsa`, which has a timing side channel (RUSTSEC-2023-0071). Its older release, with ring
//! built in, skips a `nbf` that is not a number (CVE-2026-25537). So ring is plugged in here.

use jsonwebtoken::crypto::{CryptoProvider, JwtSigner, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{ErrorKind, Result};
use jsonwebtoken::signature::{Error, Signer, Verifier};
use jsonwebtoken::{
    Algorithm, DecodingKey, DecodingKeyKind, EncodingKey, Header, TokenData, Validation,
};
use ring::rand::SystemRandom;
use ring::signature::{
    self, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

static RING: CryptoProvider = CryptoProvider {
    signer_factory: signer,
    verifier_factory: verifier,
    key_utils: KeyUtils::new_unimplemented(),
};

/// The claims of a token, if this key signed it and the library finds it valid.
pub(crate) fn decode<T: DeserializeOwned>(
    token: &str,
    key: &DecodingKey,
    validation: &Validation,
) -> Result<TokenData<T>> {
    let _already = RING.install_default();
    jsonwebtoken::decode(token, key, validation)
}

/// Signs claims with a private key in PKCS #8, or RSA in PKCS #1; `None` if it is not a key that can sign.
pub(crate) fn encode(der: &[u8], claims: &impl Serialize) -> Option<Result<String>> {
    let _already = RING.install_default();
    let kinds = [
        (Algorithm::ES256, EncodingKey::from_ec_der(der)),
        (Algorithm::ES384, EncodingKey::from_ec_der(der)),
        (Algorithm::EdDSA, EncodingKey::from_ed_der(der)),
        (Algorithm::RS256, EncodingKey::from_rsa_der(der)),
    ];
    let (algorithm, key) = kinds
        .into_iter()
        .find(|(algorithm, key)| Pair::of(*algorithm, key.as_bytes()).is_some())?;
    Some(jsonwebtoken::encode(&Header::new(algorithm), claims, &key))
}

struct PublicKey {
    algorithm: Algorithm,
    key: DecodingKey,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the library's signature")]
fn verifier(algorithm: &Algorithm, key: &DecodingKey) -> Result<Box<dyn JwtVerifier>> {
    if algorithm.family() != key.family() {
        return Err(ErrorKind::InvalidAlgorithm.into());
    }
    Ok(Box::new(PublicKey { algorithm: *algorithm, key: key.clone() }))
}

impl Verifier<Vec<u8>> for PublicKey {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> std::result::Result<(), Error> {
        let verified = match (self.algorithm, self.key.kind()) {
            (Algorithm::RS256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
                let way = &signature::RSA_PKCS1_2048_8192_SHA256;
                RsaPublicKeyComponents { n, e }.verify(way, message, signature)
            }
            (Algorithm::ES256, DecodingKeyKind::SecretOrDer(key)) => {
                let way = &signature::ECDSA_P256_SHA256_FIXED;
                UnparsedPublicKey::new(way, key).verify(message, signature)
            }
            (Algorithm::EdDSA, DecodingKeyKind::SecretOrDer(key)) => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature)
            }
            _ => return Err(Error::new()),
        };
        verified.map_err(|_| Error::new())
    }
}

impl JwtVerifier for PublicKey {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

struct PrivateKey {
    algorithm: Algorithm,
    pair: Pair,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl Pair {
    fn of(algorithm: Algorithm, der: &[u8]) -> Option<Pair> {
        let curve = |curve| EcdsaKeyPair::from_pkcs8(curve, der, &SystemRandom::new()).ok();
        match algorithm {
            Algorithm::ES256 => curve(&signature::ECDSA_P256_SHA256_FIXED_SIGNING).map(Pair::Ecdsa),
            Algorithm::ES384 => curve(&signature::ECDSA_P384_SHA384_FIXED_SIGNING).map(Pair::Ecdsa),
            Algorithm::EdDSA => {
                Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok().map(Pair::Ed25519)
            }
            Algorithm::RS256 => RsaKeyPair::from_pkcs8(der)
                .or_else(|_| RsaKeyPair::from_der(der))
                .ok()
                .map(Pair::Rsa),
            _ => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the library's signature")]
fn signer(algorithm: &Algorithm, key: &EncodingKey) -> Result<Box<dyn JwtSigner>> {
    let pair = Pair::of(*algorithm, key.as_bytes()).ok_or(ErrorKind::InvalidKeyFormat)?;
    Ok(Box::new(PrivateKey { algorithm: *algorithm, pair }))
}

impl Signer<Vec<u8>> for PrivateKey {
    fn try_sign(&self, message: &[u8]) -> std::result::Result<Vec<u8>, Error> {
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Ecdsa(key) => {
                key.sign(&random, message).map(|it| it.as_ref().to_vec()).map_err(|_| Error::new())
            }
            Pair::Ed25519(key) => Ok(key.sign(message).as_ref().to_vec()),
            Pair::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&signature::RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map(|()| signature)
                    .map_err(|_| Error::new())
            }
        }
    }
}

impl JwtSigner for PrivateKey {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::KeyPair;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_token_verifies_only_with_its_public_key_and_algorithm() {
        let random = SystemRandom::new();
        let curve = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(curve, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(curve, pkcs8.as_ref(), &random).unwrap();
        let public = pair.public_key().as_ref();
        let claims = json!({ "aud": "a" });
        let token = encode(pkcs8.as_ref(), &claims).unwrap().unwrap();
        let check = |key: &DecodingKey, algorithm| {
            let mut validation = Validation::new(algorithm);
            validation.set_required_spec_claims(&["aud"]);
            validation.set_audience(&["a"]);
            decode::<Value>(&token, key, &validation).map(|data| data.claims)
        };
        let key = DecodingKey::from_ec_der(public);
        assert_eq!(check(&key, Algorithm::ES256), Ok(claims.clone()));
        assert!(check(&key, Algorithm::EdDSA).is_err());
        // The public key as the secret of a symmetric algorithm.
        for wrong in [DecodingKey::from_secret(public), DecodingKey::from_ed_der(public)] {
            assert!(check(&wrong, Algorithm::ES256).is_err());
            assert!(check(&wrong, Algorithm::HS256).is_err());
        }
        assert!(encode(b"no key", &claims).is_none());
    }
}
