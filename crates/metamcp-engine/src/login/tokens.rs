//! All tokens this process uses or used, for redaction.
//! Owns: their values, in memory.      Never: writes or prints one.
//! In: every record read or stored.  Out: secrets, and a version that changes with them.
//! Tests: below; `metamcp/tests/remote/login.rs`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use metamcp_types::secret::Secret;
use parking_lot::Mutex;

use super::store::Record;

/// Most values remembered. A replaced token is remembered for a while, since a server may still repeat it.
const MAX_TOKENS: usize = 256;

#[derive(Debug, Default)]
pub struct Tokens {
    values: Mutex<VecDeque<Secret>>,
    version: AtomicU64,
}

impl Tokens {
    pub(super) fn note(&self, record: &Record) {
        let values = [
            ("access_token", Some(&record.access)),
            ("refresh_token", record.refresh.as_ref()),
            ("client_secret", record.client_secret.as_ref()),
        ];
        let mut known = self.values.lock();
        for (name, value) in values {
            let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
            if known.iter().any(|secret| secret.expose() == value) {
                continue;
            }
            if known.len() == MAX_TOKENS {
                known.pop_front();
            }
            known.push_back(Secret::new(name, value.as_str()));
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub fn secrets(&self) -> Vec<Secret> {
        self.values.lock().iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use metamcp_types::secret::Redactor;

    use super::*;

    fn record(access: &str) -> Record {
        Record {
            issuer: String::new(),
            resource: String::new(),
            token_endpoint: String::new(),
            client_id: "someone".to_owned(),
            client_secret: None,
            client_method: String::new(),
            access: access.to_owned(),
            refresh: Some("refresh-me-later".to_owned()),
            ends_at_ms: None,
            scopes: Vec::new(),
        }
    }

    #[test]
    fn opaque_tokens_are_secrets_old_ones_too_and_bounded() {
        let tokens = Tokens::default();
        tokens.note(&record("opaque-access-value"));
        let first = tokens.version();
        tokens.note(&record("opaque-access-value"));
        assert_eq!(tokens.version(), first);
        tokens.note(&record("another-access-value"));
        assert!(tokens.version() > first);
        let secrets = tokens.secrets();
        let redactor = Redactor::new(&secrets);
        let said =
            br#"["opaque-access-value","x another-access-value","refresh-me-later","someone"]"#;
        let clean = redactor.redact(said);
        assert_eq!(clean.removed, 3);
        assert!(String::from_utf8_lossy(&clean.json).contains("someone"));
        (0..10 * MAX_TOKENS)
            .for_each(|number| tokens.note(&record(&format!("token-number-{number}"))));
        assert_eq!(tokens.secrets().len(), MAX_TOKENS);
    }
}
