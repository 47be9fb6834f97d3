//! What a client signs that proves itself with a key in place of a secret.

use serde_json::{Value, json};

/// How long it is good, in seconds: it is used at once, by servers whose clocks may differ a little.
const LIFE: u64 = 120;

/// The claims to sign: who we are, for whom it is, and that it is this one. `now` is in seconds since 1970.
pub fn assertion(client: &str, issuer: &str, unique: &str, now: u64) -> Value {
    json!({
        "iss": client,
        "sub": client,
        "aud": issuer,
        "jti": unique,
        "iat": now,
        "exp": now.saturating_add(LIFE),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_from_us_for_one_server_and_for_a_short_time() {
        let expected = json!({"iss": "c", "sub": "c", "aud": "https://i", "jti": "u", "iat": 1000, "exp": 1120});
        assert_eq!(assertion("c", "https://i", "u", 1000), expected);
    }
}
