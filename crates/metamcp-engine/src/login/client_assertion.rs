//! Client assertions (`private_key_jwt`): each is signed for one authorization server and one use.

use std::path::Path;

use crate::login::oauth;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::store::random;
use super::{LoginError, http_client};
use crate::clock::unix_millis;
use crate::{jwt, pem};

/// A signed assertion for one use.
pub(super) async fn signed(signer: &http_client::Signer) -> Result<String, LoginError> {
    let unusable = |why: String| LoginError::ClientAssertion { why };
    let unique =
        random::<16>().ok_or_else(|| unusable("the system has no random numbers".to_owned()))?;
    let (key, client, issuer) = (signer.key.clone(), signer.client.clone(), signer.issuer.clone());
    let sign = move || assertion(&key, &client, &issuer, &URL_SAFE_NO_PAD.encode(unique));
    let signed = tokio::task::spawn_blocking(sign).await;
    signed.unwrap_or_else(|_| Err("it cannot be used".to_owned())).map_err(unusable)
}

fn assertion(path: &Path, client: &str, issuer: &str, unique: &str) -> Result<String, String> {
    let key = pem::key(path, "a private key").map_err(|error| super::chain(&error))?;
    let der = match &key {
        PrivateKeyDer::Pkcs8(der) => der.secret_pkcs8_der(),
        PrivateKeyDer::Pkcs1(der) => der.secret_pkcs1_der(),
        _ => &[],
    };
    let claims = oauth::assertion(client, issuer, unique, unix_millis() / 1000);
    jwt::encode(der, &claims)
        .ok_or_else(|| format!("{} contains no key that can sign", path.display()))?
        .map_err(|_| "signing failed".to_owned())
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use ring::rand::SystemRandom;
    use ring::signature::{
        ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair,
        Ed25519KeyPair, KeyPair, UnparsedPublicKey,
    };

    use super::*;

    fn written(folder: &Path, pkcs8: &[u8]) -> std::path::PathBuf {
        let path = folder.join("key.pem");
        let body = STANDARD.encode(pkcs8);
        let text = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn an_assertion_verifies_with_the_public_key() {
        let folder = tempfile::tempdir().unwrap();
        let chance = SystemRandom::new();
        let curve = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(curve, &chance).unwrap();
        let public = EcdsaKeyPair::from_pkcs8(curve, pkcs8.as_ref(), &chance).unwrap();
        let verify = |proof: &str, verifier: &dyn Fn(&[u8], &[u8]) -> bool| {
            let (text, signature) = proof.rsplit_once('.').unwrap();
            verifier(text.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap())
        };
        let made =
            assertion(&written(folder.path(), pkcs8.as_ref()), "c", "https://i", "u").unwrap();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, public.public_key());
        assert!(verify(&made, &|text, signature| key.verify(text, signature).is_ok()));
        assert!(!verify(&made, &|text, signature| key.verify(&text[1..], signature).is_ok()));

        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&chance).unwrap();
        let public = Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap();
        let made =
            assertion(&written(folder.path(), pkcs8.as_ref()), "c", "https://i", "u").unwrap();
        let key = UnparsedPublicKey::new(&ED25519, public.public_key());
        assert!(verify(&made, &|text, signature| key.verify(text, signature).is_ok()));
    }

    #[test]
    fn an_unusable_key_file_is_named_in_the_error() {
        let folder = tempfile::tempdir().unwrap();
        for (path, why) in [
            (folder.path().join("none.pem"), "none.pem"),
            (written(folder.path(), b"no key"), "contains no key that can sign"),
        ] {
            let told = assertion(&path, "c", "https://i", "u").unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }
}
