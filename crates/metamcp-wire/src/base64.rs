//! Base64 in its two alphabets: padded for headers, without padding for text that travels in JSON and URLs.
//! Owns: the encoding.      Never: knows what is encoded.
//! In: bytes or text.  Out: text, or bytes if the text is exactly what we would have written.
//! Tests: below.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// `bytes` in the standard alphabet, padded.
pub fn encode(bytes: &[u8]) -> String {
    encode_with(bytes, STANDARD, true)
}

/// `bytes` in the alphabet for URLs, without padding.
pub fn encode_url(bytes: &[u8]) -> String {
    encode_with(bytes, URL, false)
}

/// What was encoded by [`encode`]; `None` for anything that it would not have written.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let body = match text {
        [body @ .., b'=', b'='] | [body @ .., b'='] => body,
        body => body,
    };
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let bytes = decode_with(body, STANDARD)?;
    (encode(&bytes).as_bytes() == text).then_some(bytes)
}

/// What was encoded by [`encode_url`]; `None` for anything that it would not have written.
pub fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    let bytes = decode_with(text, URL)?;
    // Spare bits of the last letter could be anything; two texts for one value would be one too many.
    (encode_url(&bytes).as_bytes() == text).then_some(bytes)
}

fn encode_with(bytes: &[u8], alphabet: &[u8; 64], padded: bool) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, &byte| (group << 8) | u32::from(byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            if place <= chunk.len() {
                let index = (group >> (18 - 6 * place)) & 63;
                out.push(char::from(alphabet[index as usize]));
            } else if padded {
                out.push('=');
            }
        }
    }
    out
}

fn decode_with(text: &[u8], alphabet: &[u8; 64]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.chunks(4) {
        let mut group = 0_u32;
        for &letter in chunk {
            let value = alphabet.iter().position(|&known| known == letter)?;
            group = (group << 6) | u32::try_from(value).ok()?;
        }
        group <<= 6 * (4 - chunk.len());
        let whole = [(group >> 16) as u8, (group >> 8) as u8, group as u8];
        out.extend_from_slice(&whole[..chunk.len().checked_sub(1)?]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        for (plain, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("Hello, 世界", "SGVsbG8sIOS4lueVjA=="),
            (" padded ", "IHBhZGRlZCA="),
            ("=?base64?literal?=", "PT9iYXNlNjQ/bGl0ZXJhbD89"),
        ] {
            assert_eq!(encode(plain.as_bytes()), coded);
            assert_eq!(decode(coded.as_bytes()).as_deref(), Some(plain.as_bytes()));
        }
    }

    #[test]
    fn every_length_round_trips_and_other_spellings_do_not_decode() {
        for length in 0..40_u8 {
            let bytes: Vec<u8> = (0..length).map(|n| n.wrapping_mul(37) ^ 0xa5).collect();
            assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes.clone()));
            assert_eq!(decode_url(encode_url(&bytes).as_bytes()), Some(bytes));
        }
        for wrong in ["Zg", "Zg=", "Zh==", "Z===", "Zm9v\n", "Zm 9", "====", "Zm9v-_=="] {
            assert_eq!(decode(wrong.as_bytes()), None, "{wrong}");
        }
        for wrong in ["Z", "Zh", "Zg==", "a+/b", "\u{e9}a"] {
            assert_eq!(decode_url(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
