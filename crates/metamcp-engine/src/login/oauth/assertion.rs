//! What a client signs that proves itself with a key in place of a secret.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;

/// How long it is good, in seconds: it is used at once, by servers whose clocks may differ a little.
const LIFE: u64 = 120;

/// The text to sign: who we are, for whom it is, and that it is this one. `now` is in seconds since 1970.
pub fn assertion(client: &str, issuer: &str, algorithm: &str, unique: &str, now: u64) -> String {
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = part(json!({ "alg": algorithm, "typ": "JWT" }));
    let claims = part(json!({
        "iss": client,
        "sub": client,
        "aud": issuer,
        "jti": unique,
        "iat": now,
        "exp": now.saturating_add(LIFE),
    }));
    format!("{header}.{claims}")
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn it_is_from_us_for_one_server_and_for_a_short_time() {
        let text = assertion("c", "https://i", "ES256", "u", 1000);
        let parts: Vec<Value> = text
            .split('.')
            .map(|part| serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap())
            .collect();
        assert_eq!(parts[0], json!({"alg": "ES256", "typ": "JWT"}));
        let expected = json!({"iss": "c", "sub": "c", "aud": "https://i", "jti": "u", "iat": 1000, "exp": 1120});
        assert_eq!(parts[1], expected);
    }
}
