//! One digest per tool and one per server: equal exactly when nothing a model or a caller relies on changed.

use std::fmt;

use serde_json::Value;
use sha2::{Digest, Sha256};

/// Room for the canonical form of most tools.
const TYPICAL_BYTES: usize = 2 * 1024;

/// A SHA-256 over the canonical form: key order and tool order do not matter, everything else does.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The digest of one tool's fields, absent ones told apart from null ones.
    pub(super) fn of_tool(fields: &[Option<&Value>]) -> Self {
        // Gathered first: to hash many small parts costs more than one large one.
        let mut all = Vec::with_capacity(TYPICAL_BYTES);
        for field in fields {
            match field {
                None => all.push(b'-'),
                Some(value) => absorb(&mut all, value),
            }
        }
        Self(Sha256::digest(&all).into())
    }

    /// The digest of a set of tools.
    pub(super) fn of_tools(tools: impl Iterator<Item = Fingerprint>) -> Self {
        let mut all: Vec<Fingerprint> = tools.collect();
        all.sort_unstable();
        let mut hasher = Sha256::new();
        for one in &all {
            hasher.update(one.0);
        }
        Self(hasher.finalize().into())
    }

    /// From the hexadecimal form that `Display` writes.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return None;
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = u8::try_from(high * 16 + low).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Every value is written with a tag and a length, so that no two values share a byte sequence.
/// The depth is bounded by the parser that made the value.
fn absorb(all: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => all.push(b'n'),
        Value::Bool(true) => all.push(b't'),
        Value::Bool(false) => all.push(b'f'),
        Value::Number(number) => absorb_text(all, b"#", &number.to_string()),
        Value::String(text) => absorb_text(all, b"s", text),
        Value::Array(items) => {
            absorb_length(all, b"[", items.len());
            for item in items {
                absorb(all, item);
            }
        }
        Value::Object(map) => {
            absorb_length(all, b"{", map.len());
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            for (key, item) in entries {
                absorb_text(all, b"k", key);
                absorb(all, item);
            }
        }
    }
}

fn absorb_text(all: &mut Vec<u8>, tag: &[u8], text: &str) {
    absorb_length(all, tag, text.len());
    all.extend_from_slice(text.as_bytes());
}

fn absorb_length(all: &mut Vec<u8>, tag: &[u8], length: usize) {
    all.extend_from_slice(tag);
    all.extend_from_slice(&(length as u64).to_le_bytes());
}
