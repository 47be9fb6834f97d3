//! Finds members of a JSON object without allocating; trusts the sender to write JSON.

use memchr::memchr2;

/// The members of the object in `bytes`, as raw key (without quotes) and raw value; stops at the first syntax error.
pub(super) fn members(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = skip_space(bytes, 0);
    let mut open = bytes.get(at) == Some(&b'{');
    at += 1;
    std::iter::from_fn(move || {
        if !open {
            return None;
        }
        open = false;
        at = skip_space(bytes, at);
        let key_end = value_end(bytes, at)?;
        let key = bytes.get(at + 1..key_end - 1).filter(|_| bytes[at] == b'"')?;
        at = skip_space(bytes, key_end);
        if bytes.get(at) != Some(&b':') {
            return None;
        }
        at = skip_space(bytes, at + 1);
        let end = value_end(bytes, at)?;
        let value = &bytes[at..end];
        at = skip_space(bytes, end);
        open = bytes.get(at) == Some(&b',');
        at += 1;
        Some((key, value))
    })
}

/// The raw value of one member.
pub(super) fn member<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    members(bytes).find_map(|(key, value)| (key == name).then_some(value))
}

/// Parses a raw value as a number of bytes.
pub(super) fn number(raw: &[u8]) -> Option<usize> {
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// The end of the value that begins at `at`.
fn value_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    match *bytes.get(at)? {
        b'"' => string_end(bytes, at),
        b'{' | b'[' => {
            let mut depth = 0_usize;
            loop {
                match *bytes.get(at)? {
                    b'"' => {
                        at = string_end(bytes, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => {
            let length = bytes[at..]
                .iter()
                .position(|byte| b",}] \t\r\n".contains(byte))
                .unwrap_or(bytes.len() - at);
            (length > 0).then_some(at + length)
        }
    }
}

fn string_end(bytes: &[u8], quote: usize) -> Option<usize> {
    let mut at = quote + 1;
    loop {
        at += memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

fn skip_space(bytes: &[u8], at: usize) -> usize {
    let rest = bytes.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}
