//! The claims of a client assertion (`private_key_jwt`).

use serde_json::{Value, json};

/// Lifetime in seconds: used at once, by servers whose clocks may differ a little.
const LIFETIME: u64 = 120;

/// The claims to sign: client, audience, unique id, expiry. `now` is in seconds since 1970.
pub fn assertion(client: &str, issuer: &str, unique: &str, now: u64) -> Value {
    json!({
        "iss": client,
        "sub": client,
        "aud": issuer,
        "jti": unique,
        "iat": now,
        "exp": now.saturating_add(LIFETIME),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assertion_names_one_audience_and_expires_soon() {
        let expected = json!({"iss": "c", "sub": "c", "aud": "https://i", "jti": "u", "iat": 1000, "exp": 1120});
        assert_eq!(assertion("c", "https://i", "u", 1000), expected);
    }
}
